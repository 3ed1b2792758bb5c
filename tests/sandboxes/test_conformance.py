"""Every back end under hostile scripts: outcomes, what is kept, and what the next step sees of it."""

from __future__ import annotations

import pytest

from sandboxes.sandbox import Measurement, StepOutcome
from tests.sandboxes.conformance import (
    HOSTILE,
    LEAVES_NOTHING,
    PLENTY,
    PRELUDES,
    Guard,
    Hostile,
    Kept,
    check_protocol,
)
from tests.sandboxes.conftest import Rig

NOTHING = Measurement(frozenset(), frozenset())
TARGETS = list(PRELUDES)


def skip_without(rig: Rig, needs: frozenset[Guard]) -> None:
    for guard in sorted(needs - rig.stand.guards, key=lambda one: one.name):
        pytest.skip(guard.value)


async def check_next_step(rig: Rig, target: str) -> None:
    """A step after an attack is worth what a fresh interpreter's is."""
    control = await (await rig.sandbox()).execute(target, PRELUDES[target], PLENTY)
    assert control.outcome is StepOutcome.PASSED, control.output
    assert control.coverage_complete
    assert control.measurement == (await rig.fresh(target)).measurement


@pytest.mark.parametrize(
    ("case", "target"),
    [pytest.param(case, TARGETS[n % len(TARGETS)], id=case.name) for n, case in enumerate(HOSTILE)],
)
async def test_hostile_script(rig: Rig, case: Hostile, target: str) -> None:
    skip_without(rig, case.needs)
    sandbox = await rig.sandbox()
    report = await sandbox.execute(target, case.script(target), case.limits)
    said = f"{report.output}\n{report.exception}"
    assert report.outcome is case.outcome, said
    assert report.coverage_complete is case.complete
    assert case.says in said
    assert not case.never_says or case.never_says not in said
    assert len(report.output) <= case.limits.output_chars
    if case.kept is not Kept.ANY:
        expected = NOTHING if case.kept is Kept.NONE else (await rig.fresh(target)).measurement
        assert report.measurement == expected
    await check_next_step(rig, target)
    assert await rig.sandbox() is sandbox, "it had to be replaced"


@pytest.mark.parametrize(
    ("leave", "look"), [pytest.param(leave, look, id=name) for name, leave, look in LEAVES_NOTHING]
)
async def test_nothing_of_a_step_is_left_for_the_next(rig: Rig, leave: str, look: str) -> None:
    skip_without(rig, frozenset({Guard.FILES}))
    sandbox = await rig.sandbox()
    for script in (leave, look):
        report = await sandbox.execute("werkzeug.http", script, PLENTY)
        assert report.outcome is StepOutcome.PASSED, report.output


async def test_no_process_of_a_step_is_left(rig: Rig) -> None:
    skip_without(rig, frozenset({Guard.PROCESSES}))
    sandbox = await rig.sandbox()
    count = "import os\nprint(sum(name.isdigit() for name in os.listdir('/proc')))"
    before = await sandbox.execute("werkzeug.http", count, PLENTY)
    leave = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(1000)"
    left = await sandbox.execute("werkzeug.http", leave, PLENTY)
    assert not left.coverage_complete
    after = await sandbox.execute("werkzeug.http", count, PLENTY)
    assert after.output == before.output != ""


async def test_facts_are_the_module_as_the_image_has_it(rig: Rig) -> None:
    facts = await rig.prepare("werkzeug.http")
    assert facts.version == "3.0.1"
    assert "def parse_options_header" in facts.source
    assert facts.file.endswith("werkzeug/http.py")
    assert len(facts.statements) > 400


async def test_protocol(rig: Rig) -> None:
    await check_protocol(rig.stand.backend, rig.stand.image, "werkzeug.http")
