"""The tables: each a frozen row class whose fields say name, type and meaning at once.

A run holds one folder of Parquet files for each of TABLES; the same names are views in
`corridor sql`. Versioned by nouns.SCHEMA_VERSION; docs/tables.md is made from this file.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa

from runner.nouns import SCHEMA_VERSION, Arc

TEXT, FLAG = pa.string(), pa.bool_()
INT, LONG, REAL = pa.int32(), pa.int64(), pa.float64()
TIME = pa.timestamp("us", tz="UTC")
ARCS = pa.list_(pa.struct([pa.field("src", INT, nullable=False), pa.field("dst", INT, nullable=False)]))
LINES = pa.list_(INT)


def column(kind: pa.DataType, meaning: str) -> Any:
    """A field of a row: its Arrow type, and what it means."""
    return dataclasses.field(metadata={"kind": kind, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One row per committed attempt of an episode; its presence is the commit."""

    table: ClassVar[str] = "episodes"

    episode_id: str = column(TEXT, "hash of everything that decides the result")
    attempt: int = column(INT, "1, 2, ...")
    sweep: str = column(TEXT, "the sweep file's name")
    dataset: str = column(TEXT, "")
    target: str = column(TEXT, "dotted module name")
    package: str = column(TEXT, "")
    strategy: str = column(TEXT, "name")
    label: str = column(TEXT, "what tables call the strategy with these settings")
    strategy_config: str = column(TEXT, "its settings as JSON")
    model: str = column(TEXT, "LiteLLM name")
    seed: int = column(LONG, "")
    end: str = column(TEXT, "completed, budget_exhausted, model_error, infra_error, cancelled")
    error: str | None = column(TEXT, "first line for people")
    error_detail: str | None = column(TEXT, "the whole of it")
    executions: int = column(INT, "scripts or suites run")
    passed: int = column(INT, "those that passed")
    branches: int | None = column(INT, "covered by the whole episode; null when it has no score")
    branches_total: int | None = column(INT, "in the module")
    lines: int | None = column(INT, "covered by the whole episode; null when it has no score")
    lines_total: int | None = column(INT, "in the module")
    suite_size: int | None = column(INT, "test functions of the final suite")
    green: int | None = column(INT, "those that are green")
    suite_branches: int | None = column(INT, "covered by the final suite")
    suite_lines: int | None = column(INT, "covered by the final suite")
    mutants_killed: int | None = column(INT, "by the final suite, of the target's fixed sample")
    mutants_total: int | None = column(INT, "in that sample")
    calls: int = column(LONG, "model calls")
    prompt_tokens: int = column(LONG, "of all calls, cached ones included")
    cached_tokens: int = column(LONG, "of these, read from a provider's cache")
    completion_tokens: int = column(LONG, "")
    cost_usd: float | None = column(REAL, "of all calls; null when a price is unknown")
    wall_s: float = column(REAL, "from start to end")
    model_s: float = column(REAL, "in which it waited for answers")
    sandbox_s: float = column(REAL, "in steps")
    queue_s: float = column(REAL, "waiting for a sandbox")
    started_at: datetime = column(TIME, "")
    finished_at: datetime = column(TIME, "")
    node: str = column(TEXT, "host name")
    image: str = column(TEXT, "")
    image_digest: str = column(TEXT, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One row per executed script, evaluated suite or agent iteration."""

    table: ClassVar[str] = "steps"

    episode_id: str = column(TEXT, "")
    attempt: int = column(INT, "")
    step: int = column(INT, "from 1")
    round: int = column(INT, "planning round, or agent iteration; from 1")
    kind: str = column(TEXT, "script, suite, agent")
    action: str | None = column(TEXT, "strategy's own label: plan number, niche, default/analysis")
    code_sha: str | None = column(TEXT, "in codes; null when there was no code")
    outcome: str = column(TEXT, "passed, failed, timeout, crashed, oom, no_code, infra_error")
    exception: str | None = column(TEXT, "class and first line")
    output: str | None = column(TEXT, "first 2,000 characters")
    duration_s: float = column(REAL, "in the sandbox")
    cpu_s: float = column(REAL, "in the sandbox")
    branches_hit: int | None = column(INT, "executed by this step alone; null when not measured")
    lines_hit: int | None = column(INT, "executed by this step alone; null when not measured")
    coverage_sha: str | None = column(TEXT, "of this step's own branches and lines, for `verify`")
    new_branches: int | None = column(INT, "new in this step")
    branches: int | None = column(INT, "cumulative")
    new_lines: int | None = column(INT, "new in this step")
    lines: int | None = column(INT, "cumulative")
    branch_delta: list[dict[str, int]] = column(ARCS, "the new ones, sorted; dst < 0 is a function exit")
    line_delta: list[int] = column(LINES, "the new ones, sorted")
    coverage_complete: bool = column(FLAG, "false where a fresh run would lose data or children ran")
    suite_size: int | None = column(INT, "suites and agents")
    green: int | None = column(INT, "suites and agents")
    mutants_killed: int | None = column(INT, "suites and agents")
    mutants_total: int | None = column(INT, "suites and agents")
    cost_usd: float | None = column(REAL, "cumulative; null when a price is unknown")
    calls: int = column(LONG, "cumulative model calls")
    elapsed_s: float = column(REAL, "since the episode started")
    detail: str | None = column(TEXT, "JSON of the strategy: Q values, niche, context vector, reward ...")
    at: datetime = column(TIME, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One row per model call, written before its answer is used."""

    table: ClassVar[str] = "calls"

    episode_id: str = column(TEXT, "")
    attempt: int = column(INT, "")
    call: int = column(INT, "from 1, in the order asked")
    step: int = column(INT, "steps executed when it was asked")
    role: str = column(TEXT, "generate, select, score, seed, breed, agent ...")
    model: str = column(TEXT, "LiteLLM name")
    temperature: float = column(REAL, "")
    max_tokens: int = column(INT, "")
    prompt_sha: str = column(TEXT, "hash of the prompt")
    prompt: str = column(TEXT, "the conversation as JSON")
    response: str | None = column(TEXT, "the answer's text; null when the call failed")
    finish_reason: str | None = column(TEXT, "")
    prompt_tokens: int | None = column(LONG, "cached ones included; null when the provider did not say")
    cached_tokens: int | None = column(LONG, "of these, read from the provider's cache")
    cache_write_tokens: int | None = column(LONG, "of these, written to the provider's cache")
    completion_tokens: int | None = column(LONG, "")
    cost_usd: float | None = column(REAL, "our own, from the tokens; null when the price is unknown")
    latency_s: float = column(REAL, "of the try that succeeded")
    tries: int = column(INT, "")
    replayed: bool = column(FLAG, "answered from an earlier attempt's record: it cost nothing now")
    error: str | None = column(TEXT, "why there is no answer")
    at: datetime = column(TIME, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRow:
    """One row per mutant run against a suite."""

    table: ClassVar[str] = "mutants"

    episode_id: str = column(TEXT, "")
    attempt: int = column(INT, "")
    step: int = column(INT, "")
    mutant_id: str = column(TEXT, "operator and node position")
    operator: str = column(TEXT, "")
    line: int = column(INT, "")
    end_line: int = column(INT, "")
    original: str = column(TEXT, "")
    replacement: str = column(TEXT, "")
    verdict: str = column(TEXT, "killed, survived, timeout, no_coverage, crashed, oom")
    killed_by: str | None = column(TEXT, "the test function; <collection> when the module or suite broke")
    path: str = column(TEXT, "fast, slow, copy: how it was run; none without coverage")
    functions: int = column(INT, "test functions chosen for it")
    ran: bool | None = column(FLAG, "the changed statement was executed; null where another process may have")
    duration_s: float = column(REAL, "in the sandbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRow:
    """A script's or suite's text, once for each writer that met it."""

    table: ClassVar[str] = "codes"

    code_sha: str = column(TEXT, "SHA-256 of the text")
    text: str = column(TEXT, "lone surrogates as \\udXXX escapes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A module as its image has it, once it was prepared."""

    table: ClassVar[str] = "targets"

    dataset: str = column(TEXT, "")
    target: str = column(TEXT, "dotted module name")
    package: str = column(TEXT, "")
    version: str = column(TEXT, "of the package, as installed")
    image: str = column(TEXT, "")
    image_digest: str = column(TEXT, "")
    file: str | None = column(TEXT, "in the image; null until a worker has looked")
    branches_total: int | None = column(INT, "exits of all lines with more than one")
    lines_total: int | None = column(INT, "executable statements")
    mutants_total: int | None = column(INT, "in the fixed sample")
    source: str | None = column(TEXT, "the module's text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """One row per planned episode."""

    table: ClassVar[str] = "planned"

    episode_id: str = column(TEXT, "")
    sweep: str = column(TEXT, "")
    dataset: str = column(TEXT, "")
    target: str = column(TEXT, "")
    package: str = column(TEXT, "")
    strategy: str = column(TEXT, "")
    label: str = column(TEXT, "")
    strategy_config: str = column(TEXT, "")
    model: str = column(TEXT, "")
    seed: int = column(LONG, "")
    spec: str = column(TEXT, "all that decides the result, as JSON")
    executions: int = column(INT, "budget")
    calls: int = column(INT, "budget")
    iterations: int = column(INT, "budget")
    image: str = column(TEXT, "")
    image_digest: str = column(TEXT, "")


Row = EpisodeRow | StepRow | CallRow | MutantRow | CodeRow | TargetRow | PlannedRow

TABLES: dict[str, type[Row]] = {
    kind.table: kind for kind in (PlannedRow, TargetRow, CodeRow, CallRow, StepRow, MutantRow, EpisodeRow)
}
"""By name, in the order in which a flush writes them: an episode's row comes last."""


@functools.cache
def arrow_schema(table: str) -> pa.Schema:
    """The one schema that every file of a table has."""
    kind = TABLES[table]
    hints = typing.get_type_hints(kind)
    fields = [
        pa.field(
            item.name,
            item.metadata["kind"],
            nullable=_optional(hints[item.name]),
            metadata={"meaning": item.metadata["meaning"]},
        )
        for item in dataclasses.fields(kind)
    ]
    return pa.schema(fields, metadata={"corridor.table": table, "corridor.schema": str(SCHEMA_VERSION)})


def to_arrow(table: str, rows: Iterable[Row]) -> pa.Table:
    """Rows of one table. Raises pyarrow's ArrowInvalid for a value that its column cannot hold."""
    schema = arrow_schema(table)
    names = schema.names
    return pa.Table.from_pylist([{name: getattr(row, name) for name in names} for row in rows], schema=schema)


def arcs_value(arcs: Iterable[Arc]) -> list[dict[str, int]]:
    """Arcs as a branch_delta holds them, sorted."""
    return [{"src": src, "dst": dst} for src, dst in sorted(arcs)]


def _optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
