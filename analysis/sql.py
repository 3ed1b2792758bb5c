"""A user's own query over a run's views: read-only, one statement."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import duckdb

from analysis.table import FORMATS, Column, Kind, Table, render
from analysis.views import connect, query, retrying
from sandboxes.errors import StoreError, UsageError

PARQUET = "parquet"


def run_sql(
    runs: Sequence[str | Path], statement: str, format: str = "table", out: str | Path | None = None
) -> str:
    """What to print: the answer in one of FORMATS or, with `out`, where it was written.

    Raises UsageError for a statement that may change something, faulty SQL, or a format that
    does not exist or needs `out`; StoreError.
    """
    if format not in (*FORMATS, PARQUET):
        raise UsageError(f"there is no format {format!r}; choose one of {', '.join((*FORMATS, PARQUET))}")
    if format == PARQUET and out is None:
        raise UsageError("parquet is no text: name a file with --out")
    con = connect(runs)
    if format == PARQUET and out is not None:
        return f"{write_parquet(con, statement, Path(out))} rows in {out}"
    text = render(ask(con, statement), format)
    if out is None:
        return text
    try:
        Path(out).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error}") from error
    return f"written to {out}"


_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)")
"""DuckDB's types of numbers."""


def ask(con: duckdb.DuckDBPyConnection, statement: str) -> Table:
    """The answer to one reading statement. Raises UsageError, StoreError."""
    text = _reading(con, statement)
    try:
        found = query(con, text)
    except duckdb.Error as error:
        raise UsageError(f"the query failed: {error}") from error
    columns = tuple(
        Column(name, _kind(kind)) for name, kind in zip(_apart(found.columns), found.types, strict=True)
    )
    return Table("", columns, tuple(found.rows))


def write_parquet(con: duckdb.DuckDBPyConnection, statement: str, out: Path) -> int:
    """Put the answer into a file, whole or not at all; how many rows. Raises UsageError, StoreError."""
    text = _reading(con, statement)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")

    def write() -> int:
        con.sql(text).write_parquet(str(temporary), compression="zstd")
        return con.read_parquet(str(temporary)).shape[0]

    try:
        if not out.parent.is_dir():
            raise UsageError(f"{out} cannot be written: {out.parent} is no folder")
        rows = retrying(con, write)
        temporary.rename(out)
    except StoreError:
        raise
    except (duckdb.Error, OSError) as error:
        raise UsageError(f"the query failed: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _reading(con: duckdb.DuckDBPyConnection, statement: str) -> str:
    """The statement, when it is one and only reads. Raises UsageError."""
    try:
        statements = con.extract_statements(statement)
    except duckdb.Error as error:
        raise UsageError(f"this is no SQL: {error}") from error
    if len(statements) != 1:
        raise UsageError(f"give one statement, not {len(statements)}")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise UsageError(
            f"a run's tables are only read: SELECT, WITH, DESCRIBE, SHOW or SUMMARIZE, not {kind.name}"
        )
    return statements[0].query


def _kind(duckdb_type: str) -> Kind:
    """Numbers stand to the right, and as they are: somebody asked for just these."""
    return Kind.EXACT if _NUMBER.fullmatch(duckdb_type) else Kind.ANY


def _apart(names: Sequence[str]) -> list[str]:
    """Column names, the second x as x_2."""
    met: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in met:
            number += 1
            unique = f"{name}_{number}"
        met.append(unique)
    return met
