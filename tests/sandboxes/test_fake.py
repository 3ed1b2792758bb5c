"""The fake keeps the protocol, and fails loudly when its script runs out."""

from __future__ import annotations

import pytest

from sandboxes.errors import PrerequisiteError, SandboxError, SandboxLost
from sandboxes.fake import IMAGE, FakeBackend, OutOfAnswers, report
from sandboxes.sandbox import Backend, Limits, Sandbox, StepOutcome, StepReport, TargetFacts
from tests.sandboxes.conformance import check_protocol

FACTS = TargetFacts(
    target="package.module",
    file="/package/module.py",
    source="if x:\n    y\n",
    version="1",
    statements=frozenset({1, 2}),
    branches=frozenset({(1, 2), (1, -1)}),
    branches_total=2,
)
LIMITS = Limits()


async def test_it_answers_in_order_and_then_refuses() -> None:
    answers = [report({(1, 2)}, {1, 2}), report(outcome=StepOutcome.TIMEOUT)]
    backend: Backend = FakeBackend([FACTS], answers)
    one: Sandbox = await backend.open(IMAGE)
    other = await backend.open(IMAGE)
    assert await one.execute(FACTS.target, "a", LIMITS) == answers[0]
    assert await other.execute(FACTS.target, "b", LIMITS) == answers[1]
    with pytest.raises(OutOfAnswers, match=r"step 3, on package\.module"):
        await one.execute(FACTS.target, "c", LIMITS)


async def test_a_function_may_answer() -> None:
    def answer(target: str, script: str) -> StepReport:
        return report(lines=range(1, len(script) + 1))

    backend = FakeBackend([FACTS], answer)
    sandbox = await backend.open(IMAGE)
    for script in ("a", "abc"):
        found = await sandbox.execute(FACTS.target, script, LIMITS)
        assert found.measurement is not None
        assert len(found.measurement.lines) == len(script)
    cold = await backend.cold(IMAGE, FACTS, "ab", LIMITS)
    assert cold.measurement == report(lines={1, 2}).measurement
    assert cold.exit_code == 0
    assert backend.executed == [(FACTS.target, "a"), (FACTS.target, "abc"), (FACTS.target, "ab")]


async def test_errors_are_raised_and_a_lost_sandbox_is_dirty() -> None:
    backend = FakeBackend([FACTS], [SandboxError("refused"), SandboxLost("gone")])
    sandbox = await backend.open(IMAGE)
    with pytest.raises(SandboxError, match="refused"):
        await sandbox.execute(FACTS.target, "", LIMITS)
    assert not sandbox.dirty
    with pytest.raises(SandboxLost, match="gone"):
        await sandbox.execute(FACTS.target, "", LIMITS)
    assert sandbox.dirty


async def test_it_keeps_the_protocol() -> None:
    await check_protocol(FakeBackend([FACTS], []), IMAGE, FACTS.target)


async def test_it_may_refuse_to_open() -> None:
    backend = FakeBackend([FACTS], [])
    backend.refusal = PrerequisiteError("no engine")
    with pytest.raises(PrerequisiteError, match="no engine"):
        await backend.open(IMAGE)
    assert backend.opened == []
