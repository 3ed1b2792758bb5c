"""A recorded episode's delivered suite, measured again: how its mutants end, and what it can spare."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace

from runner.dataset import find
from runner.drive import SandboxKind
from runner.nouns import Suite
from runner.recorded import Recorded
from runner.reduction import Covers, reduce
from sandboxes.errors import UsageError
from sandboxes.pool import Pool
from sandboxes.sandbox import KILLS


@dataclass(frozen=True, slots=True)
class Figures:
    """What a suite is worth."""

    size: int
    green: int
    lines: int
    killed: int
    mutants: int
    hv: float

    @classmethod
    def of(cls, suite: Suite) -> Figures:
        """Of a measured one."""
        report = suite.report
        return cls(
            report.size,
            len(report.green),
            len(report.measurement.lines),
            report.killed,
            report.mutants_total,
            suite.hv,
        )


@dataclass(frozen=True, slots=True)
class Reduced:
    """A suite before and after its reduction, both measured."""

    before: Figures
    after: Figures
    text: str


async def measured(
    where: str, start: str, matrix: bool, sandbox: SandboxKind | None, trust: bool
) -> tuple[Suite, Reduced | None]:
    """The delivered suite of the episode whose id begins so; with `matrix`, its reduction too.

    Raises UsageError, PrerequisiteError, SandboxError.
    """
    recorded = Recorded(where)
    (episode,) = recorded.find([start])
    spec = recorded.specs[episode]
    text = _delivered(recorded, episode)
    backend, image = await recorded.place(
        find(spec.target.dataset).recipe, spec.target.dataset, sandbox, trust, os.cpu_count() or 1
    )
    pool = Pool(backend, 1)
    try:
        async with pool.slot(image, spec.target.module) as place:
            lines = len((await place.prepare(spec.target.module)).statements)
            mutation = replace(spec.mutation, matrix=matrix)
            report = await place.evaluate(spec.target.module, text, spec.test_limits, mutation)
            suite = Suite(1, text, report, lines)
            if not matrix:
                return suite, None
            kept = without(text, set(report.green) - set(reduce(_covers(suite))) | _not_green(suite))
            smaller = await place.evaluate(spec.target.module, kept, spec.test_limits, mutation)
            again = Suite(1, kept, smaller, lines)
            return suite, Reduced(Figures.of(suite), Figures.of(again), kept)
    finally:
        await pool.close()


def without(text: str, names: Collection[str]) -> str:
    """A suite without these test functions ('test_x', 'TestC::test_x'), and without classes left empty."""
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            tests = [item for item in node.body if _is_test(item)]
            out = [item for item in tests if f"{node.name}::{_name(item)}" in names]
            if tests and len(out) == len(tests):
                out = [node]
            for item in out:
                gone.update(_extent(item))
        elif _is_test(node) and _name(node) in names:
            gone.update(_extent(node))
    return "".join(line for number, line in enumerate(lines, 1) if number not in gone)


def mutants_text(suite: Suite, format: str) -> str:
    """Each mutant with its path, its functions in order, and its verdict."""
    if format == "json":
        return json.dumps([mutant._asdict() for mutant in suite.report.mutants], indent=2)
    parts = []
    for one in suite.report.mutants:
        killers = f" by {', '.join(one.killed_by)}" if one.killed_by else ""
        functions = f"; runs {', '.join(one.functions)}" if one.functions else ""
        parts.append(
            f"line {one.line}: {one.original!r} -> {one.replacement!r} ({one.id})\n"
            f"    {one.path}: {one.verdict}{killers}{functions}"
        )
    total, killed = suite.report.mutants_total, suite.report.killed
    parts.append(f"{killed} of {total} mutants killed by {len(suite.report.green)} green functions")
    return "\n".join(parts)


def reduced_text(found: Reduced, format: str) -> str:
    """The figures before and after."""
    if format == "json":
        return json.dumps(asdict(found), indent=2)
    rows = [
        f"{label:<7} {one.size:>5} {one.green:>6} {one.lines:>6} "
        f"{one.killed:>7} of {one.mutants:<5} {one.hv:.4f}"
        for label, one in (("before", found.before), ("after", found.after))
    ]
    return "\n".join([f"{'':<7} {'size':>5} {'green':>6} {'lines':>6} {'killed':>7}          hv", *rows])


def _delivered(recorded: Recorded, episode: str) -> str:
    """The text of the suite that the episode's row is about. Raises UsageError."""
    (row,) = recorded.episode_rows({episode})
    for step in recorded.suites(episode):
        if all(step.row[column] == row[of] for of, column in _FIGURES.items()):
            return step.script
    raise UsageError(f"episode {episode} has no measured suite with a green function")


_FIGURES = {
    "suite_size": "suite_size",
    "green": "green",
    "suite_branches": "branches_hit",
    "suite_lines": "lines_hit",
    "mutants_killed": "mutants_killed",
}
"""Of a delivered suite, in its episode's row and in its step's. Of equal ones the first was delivered."""


def _covers(suite: Suite) -> dict[str, Covers]:
    kills: dict[str, set[str]] = {}
    for mutant in suite.report.mutants:
        if mutant.verdict in KILLS:
            for name in mutant.killed_by:
                kills.setdefault(name, set()).add(mutant.id)
    return {
        one.name: Covers(frozenset(one.lines), frozenset(kills.get(one.name, ())), one.duration_s)
        for one in suite.report.functions
        if one.outcome == "green"
    }


def _not_green(suite: Suite) -> set[str]:
    return {one.name for one in suite.report.functions if one.outcome != "green"}


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")


def _name(node: ast.stmt) -> str:
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return node.name


def _extent(node: ast.stmt) -> range:
    """Its lines, decorators and all."""
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return range(first, (node.end_lineno or node.lineno) + 1)
