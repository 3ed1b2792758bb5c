"""Ours beside a paper's published numbers, cell by cell."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis import published, stand_ins
from analysis.published import Cell, Paper, Variant
from analysis.standings import Pairing, Standing, pairings, standings
from analysis.table import Column, Kind, Quoted, Table, number, percent

_COLUMNS = (
    Column("table", Kind.TEXT, "the paper's table, figure or log"),
    Column("setting", Kind.TEXT, "in the paper's words"),
    Column("benchmark", Kind.TEXT, "the paper's name"),
    Column("model", Kind.TEXT, "the paper's name"),
    Column("metric", Kind.TEXT, "shares are from 0 to 1"),
    Column("published", Kind.NUMBER),
    Column("published_se", Kind.SPREAD, "standard error, where published"),
    Column("our_model", Kind.TEXT, "LiteLLM name", title="our model"),
    Column("ours", Kind.NUMBER, "the same of our episodes, as the leaderboard computes it"),
    Column("ours_se", Kind.SPREAD, "standard error"),
    Column("difference", Kind.NUMBER, "ours less published, where they compare", signed=True),
    Column("n", Kind.COUNT, "our episodes with a score or, of comparisons of two strategies, our pairs"),
    Column("mark", Kind.TEXT, "why they do not compare; empty where they do"),
    Column("source", Kind.TEXT, "of the published number", machine=True),
)

_MARK = [column.name for column in _COLUMNS].index("mark")

# A label here is a strategy with its settings, so that no row mixes two settings.
_BY_SETTINGS = (
    "(select * replace (concat_ws(chr(10), strategy, executions, strategy_config) as label) from planned)"
)


@dataclass(frozen=True, slots=True)
class _Ours:
    """What our runs hold of one dataset and model."""

    standings: Mapping[tuple[str, str | None], Standing]
    """By variant (a label of _BY_SETTINGS) and package; None is all packages."""
    pairings: Mapping[tuple[str, str], Pairing]
    """By variant and the variant that it is compared with."""


def compare(con: duckdb.DuckDBPyConnection, paper: str = "covqvalue") -> Table:
    """A row for each published number and each model of ours beside it: at least one.

    Beside a number of one model stand our episodes with that model; where we have none, those
    of every model that the paper does not have, marked so. Raises UsageError for an unknown
    paper, StoreError.
    """
    known = published.load(paper)
    ours = _collect(con, known)
    rows = [row for cell in known.cells for row in _rows(cell, known, ours)]
    marked = sum(bool(row[_MARK]) for row in rows)
    notes = [
        *stand_ins.notes(model for models in ours.values() for model in models),
        f"{len(rows) - marked} of {len(rows)} rows compare; the others say why not",
    ]
    return Table(f"Ours beside {known.title}", _COLUMNS, tuple(rows), tuple(notes))


def _rows(cell: Cell, paper: Paper, ours: Mapping[str, Mapping[str, _Ours]]) -> Iterator[tuple[Any, ...]]:
    known = (
        *(cell.table, cell.setting, cell.benchmark, cell.model, cell.metric),
        Quoted(cell.value, cell.text),
        None if cell.stderr is None else Quoted(cell.stderr, cell.stderr_text),
    )
    there = ours.get(cell.benchmark, {})
    if cell.variant is None:
        yield (*known, "", None, None, None, None, paper.incomparable[cell.metric], cell.source)
        return
    same = [model for model in there if _matches(cell, model, paper)]
    other = [model for model in there if _name(model, paper) is None]
    if not (same or other):
        reason = f"no episodes on {cell.benchmark}" if not there else f"no episodes with {cell.model}"
        yield (*known, "", None, None, None, None, f"not comparable: {reason}", cell.source)
    for model in same or other:
        value, error, count, reasons = _beside(cell, cell.variant, there[model])
        if model in other:
            reasons.insert(0, "stand-in model" if stand_ins.is_stand_in(model) else "another model")
        if cell.metric in paper.incomparable:
            reasons.append(paper.incomparable[cell.metric])
        mark = f"not comparable: {'; '.join(reasons)}" if reasons else ""
        difference = value - cell.value if value is not None and not reasons else None
        quoted = (
            _quoted(value, cell.metric),
            _quoted(error, cell.metric),
            _quoted(difference, cell.metric, "+"),
        )
        yield (*known, model, *quoted, count, mark, cell.source)


def _quoted(value: float | None, metric: str, sign: str = "") -> Quoted | None:
    """One of our numbers as the paper prints its own; with a `sign`, a difference of two."""
    if value is None:
        return None
    if metric in ("pass_rate", "win_rate", "wins"):
        return Quoted(value, f"{100 * value:+.1f} points" if sign else percent(value))
    return Quoted(value, number(value, 2 if metric in ("cohens_d", "cost_usd") else 1, sign))


def _matches(cell: Cell, model: str, paper: Paper) -> bool:
    return bool(cell.model) and _name(model, paper) == cell.model


def _name(model: str, paper: Paper) -> str | None:
    """The paper's name; a stand-in has none, whatever it is called."""
    return None if stand_ins.is_stand_in(model) else paper.model(model)


def _beside(
    cell: Cell, variant: Variant, ours: _Ours
) -> tuple[float | None, float | None, int | None, list[str]]:
    """(our number, its standard error, of how many, why it does not compare)."""
    own, reasons = _nearest(variant, ours)
    if own is None:
        return None, None, None, [f"no episodes of {variant.strategy}"]
    standing = ours.standings.get((own, cell.repository))
    if standing is None or not standing.done:
        where = f" of {cell.repository}" if cell.repository else ""
        return None, None, None, [f"no episodes{where} with a score", *reasons]
    if cell.targets is not None and standing.targets != cell.targets:
        reasons.append(f"{standing.targets} of {cell.targets} targets")
    if cell.against is None:
        value = _SINGLE[cell.metric](standing)
        if value is None:
            reasons.append("no number of ours")
        error = standing.se_branches if cell.metric == "mean_branches" else None
        return value, error, standing.done, reasons
    other, others_reasons = _nearest(cell.against, ours)
    if other is None:
        return None, None, None, [f"no episodes of {cell.against.strategy}", *reasons]
    pairing = ours.pairings[own, other]
    reasons += [f"{cell.against.strategy}: {reason}" for reason in others_reasons]
    if cell.targets is not None and pairing.pairs < standing.done:
        reasons.append(f"{pairing.pairs} of {standing.done} episodes have a pair")
    value = _PAIRED[cell.metric](pairing)
    if value is None:
        reasons.append(
            "all differences are the same, or fewer than two pairs" if pairing.pairs else "no pairs"
        )
    return value, None, pairing.pairs, reasons


_SINGLE: Mapping[str, Callable[[Standing], float | None]] = {
    "mean_branches": lambda one: one.mean_branches,
    "mean_lines": lambda one: one.mean_lines,
    "pass_rate": lambda one: one.pass_rate,
    "cost_usd": lambda one: one.usd,
    "wall_seconds": lambda one: None,
}
_PAIRED: Mapping[str, Callable[[Pairing], float | None]] = {
    "delta_branches": lambda pairing: pairing.mean_difference,
    "win_rate": lambda pairing: pairing.win_rate,
    "wins": lambda pairing: pairing.win_rate,
    "cohens_d": lambda pairing: pairing.cohens_d,
}


def _nearest(variant: Variant, ours: _Ours) -> tuple[str | None, list[str]]:
    """Our variant of the same strategy with the fewest other settings, and which these are."""
    found = [
        (_other_settings(variant, label), label)
        for label, package in ours.standings
        if package is None and label.split("\n", 1)[0] == variant.strategy
    ]
    if not found:
        return None, []
    reasons, label = min(found, key=lambda one: (len(one[0]), one[1]))
    return label, reasons


def _other_settings(variant: Variant, label: str) -> list[str]:
    _, executions, config = label.split("\n", 2)
    settings = json.loads(config)
    other = (
        []
        if int(executions) == variant.executions
        else [f"executions {executions}, not {variant.executions}"]
    )
    for key, value in variant.settings.items():
        own = settings.get(key)
        if own != value:
            other.append(f"{key} {json.dumps(own)}, not {json.dumps(value)}")
    return other


def _collect(con: duckdb.DuckDBPyConnection, paper: Paper) -> dict[str, dict[str, _Ours]]:
    """By the paper's benchmark and our model."""
    kept: dict[tuple[str, str], dict[tuple[str, str | None], Standing]] = defaultdict(dict)
    for one in standings(con, ("dataset", "model"), _BY_SETTINGS):
        kept[_key(one.split)][one.label, None] = one
    for one in standings(con, ("dataset", "model", "package"), _BY_SETTINGS):
        kept[_key(one.split)][one.label, one.split[2]] = one
    paired: dict[tuple[str, str], dict[tuple[str, str], Pairing]] = defaultdict(dict)
    compared = {cell.against.strategy for cell in paper.cells if cell.against is not None}
    labels = {label for found in kept.values() for label, _ in found}
    for baseline in sorted(label for label in labels if label.split("\n", 1)[0] in compared):
        for (split, label), pairing in pairings(con, baseline, ("dataset", "model"), _BY_SETTINGS).items():
            paired[_key(split)][label, baseline] = pairing
    ours: dict[str, dict[str, _Ours]] = defaultdict(dict)
    for (dataset, model), found in sorted(kept.items()):
        if dataset in paper.benchmarks:
            ours[paper.benchmarks[dataset]][model] = _Ours(found, paired[dataset, model])
    return ours


def _key(split: Sequence[str]) -> tuple[str, str]:
    return split[0], split[1]
