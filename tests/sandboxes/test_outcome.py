"""What the facts of a step mean."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxes.probe.messages import Ran
from sandboxes.sandbox import Measurement, StepOutcome, classify, report

PASSED = Ran(
    finished=True,
    exit_code=0,
    signal=None,
    timed_out=False,
    oom_killed=False,
    exception=None,
    exception_class=None,
    output="out",
    output_bytes=3,
    duration_s=0.5,
    cpu_s=0.25,
    branches=[(1, 2)],
    lines=[1, 2],
    measured=True,
    complete=True,
    recovered=False,
    start="plain",
)


def ended(**changes: Any) -> Ran:
    return PASSED._replace(**changes)


def raised(text: str, code: int = 1) -> Ran:
    return ended(exit_code=code, exception=text, exception_class=text.split(":", maxsplit=1)[0])


@pytest.mark.parametrize(
    ("ran", "outcome"),
    [
        (PASSED, StepOutcome.PASSED),
        (raised("SystemExit: 0", code=0), StepOutcome.PASSED),
        (ended(exit_code=0, finished=False, complete=False), StepOutcome.PASSED),
        (ended(exit_code=1), StepOutcome.FAILED),
        (ended(exit_code=255), StepOutcome.FAILED),
        (raised("AssertionError: x"), StepOutcome.FAILED),
        # A memory error that the script caught is no outcome of its own.
        (ended(oom_killed=True), StepOutcome.PASSED),
        (raised("OSError: [Errno 28] No space left on device"), StepOutcome.FAILED),
        (raised("OSError: [Errno 121] Remote I/O error"), StepOutcome.FAILED),
        (raised("ValueError: OSError: [Errno 12] Cannot allocate memory"), StepOutcome.FAILED),
        (raised("NotMemoryError: x"), StepOutcome.FAILED),
        (raised("MemoryError: "), StepOutcome.OOM),
        (raised("OSError: [Errno 12] Cannot allocate memory"), StepOutcome.OOM),
        (ended(exit_code=None, signal=9, oom_killed=True), StepOutcome.OOM),
        (ended(exit_code=None, signal=9), StepOutcome.CRASHED),
        (ended(exit_code=None, signal=11), StepOutcome.CRASHED),
        # A signal that we sent, or an exit on being asked to end, is a timeout whatever else it looks like.
        (ended(exit_code=None, signal=9, timed_out=True), StepOutcome.TIMEOUT),
        (ended(exit_code=1, timed_out=True), StepOutcome.TIMEOUT),
        (ended(exit_code=0, timed_out=True), StepOutcome.TIMEOUT),
        (ended(exit_code=None, signal=9, timed_out=True, oom_killed=True), StepOutcome.TIMEOUT),
    ],
)
def test_classify(ran: Ran, outcome: StepOutcome) -> None:
    assert classify(ran) is outcome


def test_a_report_is_all_that_was_told() -> None:
    found = report(PASSED)
    assert found.outcome is StepOutcome.PASSED
    assert found.measurement == Measurement(frozenset({(1, 2)}), frozenset({1, 2}))
    assert (found.output, found.exception, found.start) == ("out", None, "plain")
    assert (found.duration_s, found.cpu_s) == (0.5, 0.25)
    assert found.coverage_complete
    assert not found.recovered


def test_no_measurement_is_none_and_not_an_empty_one() -> None:
    assert report(ended(measured=False)).measurement is None
    assert report(ended(branches=[], lines=[])).measurement == Measurement(frozenset(), frozenset())
