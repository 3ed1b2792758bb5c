"""Prompts of the suite strategies: what TeSearch's appendix says they hold, in our words.

A seed prompt shows the module; a breeding prompt shows it with marks of what the strongest
parent misses, and the parents, weaker first (TeSearch, arXiv 2610.15964, appendix, "Feedback
signal" and "Prompts").
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING

from runner.nouns import Message, Suite
from runner.strategies.prompting import template
from runner.tesearch.annotate import annotate, annotate_failing
from runner.tesearch.kernel import Mode

if TYPE_CHECKING:
    from runner.episode import Episode

SYSTEM, SEED, BREED = (template(name) for name in ("suite_system", "suite_seed", "suite_breed"))

TASKS: dict[Mode, str] = {
    "seed": "",
    "compression": (
        "Rewrite the last suite with fewer tests, at least as strong: merge tests that check the same "
        "thing, share set-up, fold cases into parametrised ones, and leave out what another test covers. "
        "Keep its exact assertions. Mend a failing test if it checks something else, or leave it out."
    ),
    "extension": (
        "Extend the last suite to that many tests, and make it stronger: keep its tests, and add tests that "
        "run the lines marked as not covered and that assert what a surviving mutant would change. Mend "
        "failing tests by correcting what they expect. Do not add a test that closes no gap."
    ),
}
REPAIR = (
    "Improve the last suite: mend its failing tests, and change or add tests so that marked lines are run "
    "and surviving mutants are noticed."
)
MARKS = (
    "In the source, '# <-- NOT COVERED YET' ends a line that no passing test of the last suite runs, and "
    "'# <-- SURVIVING MUTANT: ...' one where a change of that kind passes all its tests."
)


def seed(episode: Episode, size: int | None) -> list[Message]:
    """A first suite, of that many tests if it is said."""
    return _conversation(
        SEED, module=episode.facts.target, source=source(episode, None), size=size_line(size)
    )


def breed(
    episode: Episode, parents: Sequence[Suite], size: int | None, task: str, annotated: bool
) -> list[Message]:
    """A suite from others, the strongest last."""
    last = parents[-1]
    return _conversation(
        BREED,
        module=episode.facts.target,
        marks=MARKS if annotated else "",
        source=source(episode, last if annotated else None),
        size=size_line(size),
        suites="\n".join(_shown(suite, number, parents) for number, suite in enumerate(parents)),
        task=task,
    )


def size_line(size: int | None) -> str:
    """How many tests are asked for."""
    if size is None:
        return ""
    return f"The file must hold exactly {size} test functions: count the names that start with test_."


def source(episode: Episode, missed_by: Suite | None) -> str:
    """The module's source, with marks of what a suite misses."""
    text = episode.facts.source
    if missed_by is not None:
        surviving: dict[int, list[str]] = {}
        for mutant in missed_by.report.mutants:
            if mutant.verdict == "survived":
                surviving.setdefault(mutant.line, []).append(mutant.operator)
        uncovered = episode.facts.statements - missed_by.report.measurement.lines
        text = annotate(text, uncovered, surviving)
    return f"Source:\n<source>\n{text}\n</source>"


def _shown(suite: Suite, number: int, parents: Sequence[Suite]) -> str:
    report = suite.report
    head = (
        f"Suite {number}: {report.size} tests, {len(report.green)} pass, coverage {suite.coverage:.3f}, "
        f"mutants noticed {suite.mutation:.3f}"
    )
    if report.error is not None:
        head += f"; it could not be collected: {report.error[:200]}"
    if number:
        before = parents[number - 1]
        head += (
            f"; against suite {number - 1}: strength {before.hv:.3f} -> {suite.hv:.3f}, "
            f"size {before.report.size} -> {report.size}"
        )
    failing = {
        one.name: one.exception or one.outcome
        for one in report.functions
        if one.outcome not in ("green", "skipped")
    }
    return f"{head}\n```python\n{annotate_failing(suite.text, failing)}\n```"


def _conversation(text: str, **parts: str) -> list[Message]:
    empty = {f"${name}" for name, part in parts.items() if part == ""}
    lines = [line for line in text.splitlines() if line not in empty]
    return [
        Message("system", SYSTEM.strip()),
        Message("user", Template("\n".join(lines)).substitute(parts)),
    ]
