"""A back end that runs nothing: it answers from a script.

A real implementation of the protocol, for tests of what uses sandboxes. Of the checks in
tests/sandboxes/conformance.py it passes `check_protocol`, which needs no execution; the
others are about what scripts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sandboxes.errors import CorridorError, SandboxError, SandboxLost, TargetError
from sandboxes.sandbox import (
    Arc,
    Cold,
    Image,
    Limits,
    Measurement,
    Mutation,
    StepOutcome,
    StepReport,
    SuiteReport,
    TargetFacts,
)

Answer = StepReport | SandboxError
"""What a step comes to: a report, or an error that is raised. SandboxLost takes the sandbox along."""

Answers = Iterable[Answer] | Callable[[str, str], Answer]
"""One for each step, in order, whichever sandbox it runs in; or a function of (target, script)."""

Suites = Callable[[str, str], SuiteReport]
"""What a suite comes to: a function of (target, text)."""

IMAGE = Image(ref="fake", digest="fake", backend="fake")


class OutOfAnswers(SandboxError, LookupError):
    """More steps were executed than the script has answers for."""


class FakeBackend:
    """Sandboxes that answer from one script, and remember what they were asked."""

    name = "fake"

    def __init__(self, facts: Iterable[TargetFacts], answers: Answers, suites: Suites | None = None) -> None:
        """`facts` are the targets that there are."""
        self.suites = suites
        self.facts = {one.target: one for one in facts}
        self.opened: list[FakeSandbox] = []
        self.executed: list[tuple[str, str]] = []
        """(target, script) of each step."""
        self.refusal: CorridorError | None = None
        """Raised by `open` while it is set."""
        self._function = answers if callable(answers) else None
        self._script: Iterator[Answer] = iter(()) if callable(answers) else iter(answers)

    async def check(self) -> None:
        """See Backend.check. It always serves."""

    async def open(self, image: Image) -> FakeSandbox:
        """See Backend.open."""
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(FakeSandbox(self, image))
        return self.opened[-1]

    async def cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        """See Backend.cold. The next answer again: here warm and cold are one."""
        answer = self.answer(facts.target, script)
        code = 0 if answer.outcome is StepOutcome.PASSED else 1
        return Cold(answer.measurement, code, answer.duration_s, answer.output)

    def answer(self, target: str, script: str) -> StepReport:
        """The next. Raises OutOfAnswers, and the answer itself when it is an error."""
        self.executed.append((target, script))
        answer = self._function(target, script) if self._function else next(self._script, None)
        if answer is None:
            raise OutOfAnswers(f"step {len(self.executed)}, on {target}, has no answer in the script")
        if isinstance(answer, SandboxError):
            raise answer
        return answer


class FakeSandbox:
    """See Sandbox."""

    def __init__(self, backend: FakeBackend, image: Image) -> None:
        self.image = image
        self.dirty = False
        self.closed = False
        self._backend = backend

    async def prepare(self, target: str) -> TargetFacts:
        """See Sandbox.prepare."""
        self._refuse_if_closed()
        try:
            return self._backend.facts[target]
        except KeyError as error:
            raise TargetError(f"{target} is not among the targets of this fake") from error

    async def execute(self, target: str, script: str, limits: Limits) -> StepReport:
        """See Sandbox.execute."""
        await self.prepare(target)
        try:
            return self._backend.answer(target, script)
        except SandboxLost:
            self.dirty = True
            raise

    async def evaluate(self, target: str, suite: str, limits: Limits, mutation: Mutation) -> SuiteReport:
        """See Sandbox.evaluate."""
        await self.prepare(target)
        if self._backend.suites is None:
            raise OutOfAnswers(f"this fake has no answers for suites, and was given one for {target}")
        return self._backend.suites(target, suite)

    async def close(self) -> None:
        """See Sandbox.close."""
        self.dirty = self.closed = True

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise SandboxLost("this fake is closed")


def report(
    branches: Iterable[Arc] = (),
    lines: Iterable[int] = (),
    outcome: StepOutcome = StepOutcome.PASSED,
    exception: str | None = None,
) -> StepReport:
    """A step's report, as a script of answers needs it."""
    return StepReport(
        outcome=outcome,
        exception=exception,
        output="",
        duration_s=0.0,
        cpu_s=0.0,
        measurement=Measurement(frozenset(branches), frozenset(lines)),
        coverage_complete=outcome in (StepOutcome.PASSED, StepOutcome.FAILED),
        start="plain",
    )
