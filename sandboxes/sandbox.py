"""The Sandbox protocol: what a place to run candidate code offers, whatever it is made of.

Every back end passes tests/sandboxes/conformance.py, the fake as far as it needs no execution.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sandboxes.probe.messages import Evaluated, Limits, MutantRun, Prepared, Ran, SuiteFunction

__all__ = [
    "Arc",
    "Backend",
    "Cold",
    "Image",
    "Limits",
    "Measurement",
    "MutantRun",
    "Mutation",
    "Sandbox",
    "StepOutcome",
    "StepReport",
    "SuiteFunction",
    "SuiteReport",
    "TargetFacts",
]

Arc = tuple[int, int]
"""(from line, to line); a negative line is a way in or out of the code object starting there."""

NO_MEMORY = "OSError: [Errno 12]"
"""How Python tells that the kernel would not map memory."""


class StepOutcome(enum.StrEnum):
    """What the script's run said. All but INFRA_ERROR are the candidate's doing and enter a score."""

    PASSED = "passed"
    """It ended with exit code 0."""
    FAILED = "failed"
    """It ended by itself with another exit code: an uncaught exception, sys.exit(1)."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """A signal that we did not send ended it."""
    OOM = "oom"
    """It met its memory limit."""
    NO_CODE = "no_code"
    """The answer held no code; nothing ran."""
    INFRA_ERROR = "infra_error"
    """Ours to answer for. No coverage, no score."""


@dataclass(frozen=True, slots=True)
class Image:
    """A place's recipe made real: what steps run in."""

    ref: str
    """How the back end finds it: an image name, a folder."""
    digest: str
    """Changes whenever what is measured could change."""
    backend: str
    python: str = "python"
    """The interpreter of the target's environment."""
    kit: str = "/opt/corridor/kit"
    """The folder that holds coverage.py for it."""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A module as its image has it."""

    target: str
    file: str
    source: str
    version: str
    statements: frozenset[int]
    branches: frozenset[Arc]
    branches_total: int

    @classmethod
    def from_message(cls, prepared: Prepared) -> TargetFacts:
        """As the probe tells it."""
        return cls(
            prepared.target,
            prepared.file,
            prepared.source,
            prepared.version,
            frozenset(prepared.statements),
            frozenset(prepared.branches),
            prepared.branches_total,
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """Branches and lines that one step executed, of its target."""

    branches: frozenset[Arc]
    lines: frozenset[int]


@dataclass(frozen=True, slots=True)
class StepReport:
    """One executed script."""

    outcome: StepOutcome
    exception: str | None
    output: str
    duration_s: float
    cpu_s: float
    measurement: Measurement | None
    """None when nothing could be measured."""
    coverage_complete: bool
    start: str
    """'preloaded' or 'plain'."""
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class Mutation:
    """Which mutants of its target a suite is run against, and how."""

    size: int = 200
    """Of the sample: fixed by the seed, and shared by all suites. 0: none."""
    seed: str = ""
    part: tuple[int, int] = (0, 1)
    """(i, n): only each n-th of the sample, from the i-th."""
    matrix: bool = False
    """Find every function that kills a mutant, not only the first."""
    only: Literal["", "slow", "copy"] = ""
    """Take that path for all. For checks of the others."""
    every_test: bool = False
    """Run all green functions, not only those that reach the mutant. For checks."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"a sample of {self.size} mutants cannot be drawn")
        if not 0 <= self.part[0] < self.part[1]:
            raise ValueError(f"{self.part} is not (i, n) with 0 <= i < n")


KILLS = frozenset({"killed", "timeout", "crashed", "oom"})
"""Verdicts that say that the suite, green on the original, is not green on the mutant."""


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """One evaluated suite."""

    error: str | None
    """Why nothing could be collected."""
    size: int
    """Test functions as written; parametrised cases are one with theirs."""
    functions: tuple[SuiteFunction, ...]
    measurement: Measurement
    """Of the green functions, run together."""
    mutants: tuple[MutantRun, ...]
    mutants_total: int
    duration_s: float
    cpu_s: float
    baseline_s: float
    fork_s: float

    @property
    def green(self) -> tuple[str, ...]:
        """Names of the functions that are green, alone and together, each time."""
        return tuple(function.name for function in self.functions if function.outcome == "green")

    @property
    def killed(self) -> int:
        """Mutants on which the suite is not green."""
        return sum(mutant.verdict in KILLS for mutant in self.mutants)


@dataclass(frozen=True, slots=True)
class Cold:
    """What `coverage run --branch` and its JSON report say of a script in a fresh place."""

    measurement: Measurement | None
    """None when the run left no data."""
    exit_code: int
    seconds: float
    output: str = field(repr=False)


class Sandbox(Protocol):
    """One isolated place; one step at a time.

    Each method raises SandboxLost when the place is gone, SandboxError when it refuses.
    """

    dirty: bool
    """It is gone, or cannot promise a clean next step: close it and open another."""

    async def prepare(self, target: str) -> TargetFacts:
        """Get ready for a module. Raises TargetError when it cannot be measured here."""
        ...

    async def execute(self, target: str, script: str, limits: Limits) -> StepReport:
        """Run a script under branch coverage of `target`. Its own failures are outcomes, not exceptions."""
        ...

    async def evaluate(self, target: str, suite: str, limits: Limits, mutation: Mutation) -> SuiteReport:
        """Run a pytest file, and its green functions against mutants of `target`.

        What is wrong with the suite is in the report, not an exception.
        """
        ...

    async def close(self) -> None:
        """End it and everything in it. Never raises for a place that is already gone."""
        ...


class Backend(Protocol):
    """A kind of place."""

    name: str

    async def open(self, image: Image) -> Sandbox:
        """A new sandbox. Raises PrerequisiteError when the engine or the image is missing."""
        ...

    async def cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        """Run a script the slow, plain way: the reference that `execute` is held to."""
        ...

    async def check(self) -> None:
        """Raises PrerequisiteError when the back end cannot serve now."""
        ...


def classify(ran: Ran) -> StepOutcome:
    """What the facts of a step mean. Pure; the table of cases is in tests/sandboxes/test_outcome.py."""
    if ran.timed_out:
        return StepOutcome.TIMEOUT
    if ran.oom_killed and ran.signal is not None:
        return StepOutcome.OOM
    if ran.exception_class == "MemoryError" or (ran.exception or "").startswith(NO_MEMORY):
        return StepOutcome.OOM
    if ran.signal is not None:
        return StepOutcome.CRASHED
    return StepOutcome.PASSED if ran.exit_code == 0 else StepOutcome.FAILED


def suite_report(said: Evaluated) -> SuiteReport:
    """The host's view of a probe's answer."""
    return SuiteReport(
        error=said.error,
        size=said.size,
        functions=tuple(said.functions),
        measurement=Measurement(frozenset(said.branches), frozenset(said.lines)),
        mutants=tuple(said.mutants),
        mutants_total=said.mutants_total,
        duration_s=said.duration_s,
        cpu_s=said.cpu_s,
        baseline_s=said.baseline_s,
        fork_s=said.fork_s,
    )


def report(ran: Ran) -> StepReport:
    """The host's view of a probe's answer."""
    return StepReport(
        outcome=classify(ran),
        exception=ran.exception,
        output=ran.output,
        duration_s=ran.duration_s,
        cpu_s=ran.cpu_s,
        measurement=Measurement(frozenset(ran.branches), frozenset(ran.lines)) if ran.measured else None,
        coverage_complete=ran.complete,
        start=ran.start,
        recovered=ran.recovered,
    )
