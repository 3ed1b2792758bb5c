"""Runs as DuckDB views: `connect` makes them, `query` asks them while runs are still being written.

Each view is a file in sql/, under the name that it has in SQL; its leading comment says what
it holds. Views read the parts that were alive when they were bound. A merge may take such a
part away; whoever asks through `query` or `retrying` then gets the views bound anew.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, TypeVar

import duckdb

from runner.nouns import SCHEMA_VERSION, EpisodeEnd
from runner.parts import SUFFIX, Folder
from runner.schema import TABLES, arrow_schema
from sandboxes.errors import StoreError, UsageError

MANIFEST = "manifest.json"
RELISTINGS = 8
"""Times that views are bound anew for one query before its error is believed."""
PAUSE_S = 0.05
"""Before each of these."""
LISTINGS = 8
"""Times that a folder is listed until two listings in a row agree."""

VIEWS = (
    "attempts",
    "episodes",
    "planned",
    "all_steps",
    "all_calls",
    "steps",
    "calls",
    "mutants",
    "live_steps",
    "codes",
    "targets",
    "progress",
)
"""In the order in which they build on each other."""

_CHOSEN = {"episodes": "attempts", "planned": "parts.planned"}
"""Views that choose one row per episode, and what from."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query answered."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's names of the columns' types."""
    rows: list[tuple[Any, ...]]

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Each row by column name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)


def connect(runs: Sequence[str | Path]) -> duckdb.DuckDBPyConnection:
    """An in-memory database with VIEWS over these runs, and a table `runs` of their manifests.

    Every view has a column `run`: the run as it was named here. The order of `runs` decides
    which run an episode counts in when several hold it (see sql/episodes.sql).

    Raises UsageError for a folder that is no run or of another schema version, StoreError for
    one that cannot be read.
    """
    if not runs:
        raise UsageError("name at least one run")
    con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    con.execute("set TimeZone = 'UTC'")
    con.execute("create schema parts")
    con.execute("create schema blank")
    for table in TABLES:
        con.register("empty", arrow_schema(table).empty_table())
        con.execute(f"create table blank.{table} as from empty")
        con.unregister("empty")
    ends = ", ".join(literal(end) for end in EpisodeEnd if end.scores)
    con.execute(f"create macro scores(ending) as ending in ({ends})")
    _add_runs(con, runs)
    for table in TABLES:
        con.execute(f"create view parts.{table} as {_union(table, [])}")
    for view in VIEWS:
        con.execute(f"create view {view} as {sql(view)}")
    retrying(con, lambda: bind(con))
    return con


def query(con: duckdb.DuckDBPyConnection, statement: str, parameters: Sequence[object] = ()) -> Rows:
    """Ask the views. Raises StoreError when parts cannot be read, DuckDB's Error for faulty SQL."""

    def ask() -> Rows:
        found = con.execute(statement, list(parameters))
        described = found.description or []
        return Rows(
            columns=tuple(str(column[0]) for column in described),
            types=tuple(str(column[1]) for column in described),
            rows=found.fetchall(),
        )

    return retrying(con, ask)


def retrying(con: duckdb.DuckDBPyConnection, action: Callable[[], T]) -> T:
    """What `action` returns, with the views bound anew whenever a part was gone.

    `action` has to be fit to run again. Raises StoreError when a part is damaged or stays away.
    """
    stale = False
    for left in reversed(range(RELISTINGS + 1)):
        try:
            if stale:
                time.sleep(PAUSE_S)
                _bind_parts(con)
            return action()
        except (duckdb.IOException, FileNotFoundError) as error:
            stale = True
            if not left:
                raise _unreadable(con, error) from error
        except duckdb.InvalidInputException as error:
            if SUFFIX in str(error):
                raise _unreadable(con, error) from error
            raise
    raise AssertionError("the last turn returns or raises")


def bind(con: duckdb.DuckDBPyConnection) -> None:
    """Read the parts that are alive now: what was written since the last time shows.

    Raises duckdb.IOException when parts go away faster than they can be listed.
    """
    _bind_parts(con)
    for view, source in _CHOSEN.items():
        # Where each episode occurs once there is nothing to choose: it saves a sort per query.
        text = f"select count(*) = count(distinct episode_id) from {source}"
        once = con.execute(text).fetchone() == (True,)
        con.execute(f"create or replace view {view} as {f'from {source}' if once else sql(view)}")


@functools.cache
def sql(name: str, **parts: str) -> str:
    """The text of sql/NAME.sql, with `parts` filled in where it has $names."""
    text = (resources.files("analysis") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return Template(text).substitute(parts)


def literal(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def allowed_infra_share(con: duckdb.DuckDBPyConnection) -> float | None:
    """The strictest `max_infra_share` that the runs' manifests hold; None when none holds one."""
    found = con.execute("select min(max_infra_share) from runs").fetchone()
    return None if found is None else found[0]


def _add_runs(con: duckdb.DuckDBPyConnection, runs: Sequence[str | Path]) -> None:
    """The table `runs`, and the type of the column `run`, whose order is that of `runs`."""
    found: dict[str, tuple[object, ...]] = {}
    for run in runs:
        folder = Folder(run)
        if folder.local is None:
            raise UsageError(f"{run} is not a local folder: copy the run here to analyse it")
        path = str(folder.local.resolve())
        if all(path != known[1] for known in found.values()):
            manifest = _manifest(folder)
            share = manifest.get("max_infra_share")
            found[folder.uri] = (folder.uri, path, share, json.dumps(manifest))
    con.execute(f"create type run_name as enum ({', '.join(map(literal, found))})")
    con.execute("create table runs (run run_name, path varchar, max_infra_share double, manifest varchar)")
    con.executemany("insert into runs values (?, ?, ?, ?)", [list(row) for row in found.values()])


def _manifest(folder: Folder) -> dict[str, Any]:
    try:
        data = folder.get(MANIFEST)
    except OSError as error:
        raise UsageError(f"{folder.uri} cannot be read as a run: {error}") from error
    if data is None:
        raise UsageError(f"{folder.uri} is not a run: there is no {MANIFEST} in it")
    try:
        manifest: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise StoreError(f"{folder.uri}/{MANIFEST} is not JSON: {error}") from error
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{folder.uri} has schema version {version}; this Corridor reads version {SCHEMA_VERSION}"
        )
    return manifest


def _runs(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """(name, path) of each run, in order."""
    return con.execute("select run, path from runs order by run").fetchall()


def _unreadable(con: duckdb.DuckDBPyConnection, error: Exception) -> StoreError:
    names = ", ".join(name for name, _ in _runs(con))
    return StoreError(f"a part of {names} cannot be read: {str(error).splitlines()[0]}")


def _bind_parts(con: duckdb.DuckDBPyConnection) -> None:
    """The schema `parts`; a table's view is bound right after its listing, as parts may go soon.

    Episodes are listed first and what they stand for after: it was on disk before them.
    """
    folders = [(name, Folder(path)) for name, path in _runs(con)]
    for table in reversed(TABLES):
        for left in reversed(range(RELISTINGS + 1)):
            parts = [(name, _settled(folder, table)) for name, folder in folders]
            try:
                con.execute(f"create or replace view parts.{table} as {_union(table, parts)}")
                break
            except duckdb.IOException:
                if not left:
                    raise
    for view in _CHOSEN:
        con.execute(f"create or replace view {view} as {sql(view)}")


def _settled(folder: Folder, table: str) -> list[str]:
    """Live parts, from two listings in a row that agree.

    One listing is no snapshot: a merge that ends while a folder is being listed can hide
    from it both the merged part and those that it replaced.
    """
    last = folder.paths(table)
    for _ in range(LISTINGS):
        again = folder.paths(table)
        if again == last:
            break
        last = again
    return last


def _union(table: str, parts: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A query over explicit lists of files; without any, over an empty table of the same columns."""
    columns = ", ".join(f'"{name}"' for name in arrow_schema(table).names)
    selects = [
        f"select {literal(run)}::run_name as run, {columns} from read_parquet({_list(paths)}, {_OPTIONS})"
        for run, paths in parts
        if paths
    ]
    return " union all ".join(selects) or f"select null::run_name as run, {columns} from blank.{table}"


_OPTIONS = "hive_partitioning = false, union_by_name = false"
"""A folder named a=b is no column; every part has the one schema."""


def _list(paths: Sequence[str]) -> str:
    return f"[{', '.join(literal(_plain(path)) for path in paths)}]"


def _plain(path: str) -> str:
    """A path as DuckDB reads it, with nothing in it that could match other files."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
