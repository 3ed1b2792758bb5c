"""How runs stand: progress, ends by class, steps, rates and dollars, while they are being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from analysis import stand_ins
from analysis.table import Column, Kind, Missing, Table
from analysis.views import literal, query, sql
from runner.nouns import EpisodeEnd

FAILURES = tuple(end.value for end in EpisodeEnd if not end.scores)
"""The ends that make a failed episode."""

_COLUMNS = (
    Column("strategy", Kind.TEXT, "its label"),
    Column("model", Kind.TEXT),
    Column("planned", Kind.COUNT, "episodes: done + failed + pending"),
    Column("done", Kind.COUNT, "with a score"),
    Column("failed", Kind.COUNT, "ended without a score: the sum of the next columns"),
    *(
        Column(end, Kind.COUNT, f"failed with the end {end}", title=end.replace("_", "\n"))
        for end in FAILURES
    ),
    Column("pending", Kind.COUNT, "without a committed attempt"),
    Column("branches", Kind.NUMBER, "mean of the done episodes"),
    Column("steps", Kind.COUNT, "executed, of all attempts, committed or not"),
    Column("steps_per_min", Kind.NUMBER, "from the first step to the last", title="steps\n/min"),
    Column("episodes_per_h", Kind.NUMBER, "done, from the first step to the last", title="episodes\n/h"),
    Column("usd", Kind.DOLLARS, "of every model call that was made; null when a price is unknown"),
)


def status(con: duckdb.DuckDBPyConnection) -> Table:
    """A row for each strategy (by label) and model, and one for all. Raises StoreError."""
    ends = ", ".join(
        f'count(*) filter (where is_planned and "end" = {literal(end)}) as {end}' for end in FAILURES
    )
    rows = list(query(con, sql("status", ends=ends)).dicts())
    models = [row["model"] for row in rows if row["model"] is not None]
    unplanned = next(row["unplanned"] for row in rows if row["everything"])
    runs = [name for (name,) in query(con, "select run from runs order by run").rows]
    notes = stand_ins.notes(models)
    if unplanned:
        notes.append(f"{unplanned} episodes have a row but were never planned: they do not count")
    return Table(
        f"Status of {', '.join(runs)}", _COLUMNS, tuple(tuple(_cells(row)) for row in rows), tuple(notes)
    )


def _cells(row: dict[str, Any]) -> Sequence[Any]:
    if row["everything"]:
        row = row | {"label": "all", "model": ""}
    minutes = row["seconds"] / 60 if row["seconds"] else None
    short = Missing("fewer than two steps: no rate")
    return (
        row["label"],
        row["model"],
        row["planned"],
        row["done"],
        row["failed"],
        *(row[end] for end in FAILURES),
        row["pending"],
        Missing("no episode has a score") if row["branches"] is None else row["branches"],
        row["steps"],
        row["steps"] / minutes if minutes else short,
        60 * row["done"] / minutes if minutes else short,
        _usd(row),
    )


def _usd(row: dict[str, Any]) -> float | Missing:
    known = row["known_usd"]
    if row["unpriced"]:
        return Missing(
            f"the price of {row['unpriced']} of {row['calls']} calls is unknown; the others cost ${known:.2f}"
        )
    return float(known)
