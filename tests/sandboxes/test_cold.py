"""What the reference run's output means."""

from __future__ import annotations

import json

import pytest

from sandboxes import cold
from sandboxes.sandbox import Image, Limits, Measurement, TargetFacts

FACTS = TargetFacts(
    target="package.module",
    file="/env/package/module.py",
    source="",
    version="1",
    statements=frozenset({1, 2, 3}),
    branches=frozenset({(2, 3), (2, -1)}),
    branches_total=2,
)
NOTHING = Measurement(frozenset(), frozenset())


def printed(code: int, files: object, before: str = "") -> str:
    return f"exit {code}\n{before}{json.dumps({'meta': {}, 'files': files})}"


def of_target(branches: list[list[int]], lines: list[int]) -> dict[str, object]:
    return {FACTS.file: {"executed_branches": branches, "executed_lines": lines}}


@pytest.mark.parametrize(
    ("output", "code", "measurement"),
    [
        (printed(0, of_target([[2, 3]], [1, 2])), 0, Measurement(frozenset({(2, 3)}), frozenset({1, 2}))),
        (printed(1, of_target([[2, -1]], [2])), 1, Measurement(frozenset({(2, -1)}), frozenset({2}))),
        # Warnings may come before the report.
        (printed(0, of_target([], [1]), "CoverageWarning: x\n"), 0, Measurement(frozenset(), frozenset({1}))),
        # Older coverage.py lists arcs that cannot be, and lines that are no statements.
        (
            printed(0, of_target([[2, 3], [2, -2], [1, 2]], [1, 7])),
            0,
            Measurement(frozenset({(2, 3)}), frozenset({1})),
        ),
        # Another file was measured, or none: the target was not touched.
        (printed(0, {"/env/package/other.py": {}}), 0, NOTHING),
        (printed(0, {}), 0, NOTHING),
        ("exit 1\nNo data to report.\n", 1, NOTHING),
        # A run that was killed left no data; that is not the same as none.
        ("exit 137\nNo data to report.\n", 137, None),
        ("exit 124\nNo data to report.\n", 124, None),
        ("exit 0\nsomething else went wrong", 0, None),
        ("sh: not found", -1, None),
        ("", -1, None),
    ],
)
def test_parse(output: str, code: int, measurement: Measurement | None) -> None:
    found = cold.parse(output, FACTS, 1.5)
    assert found.measurement == measurement
    assert found.exit_code == code
    assert found.seconds == 1.5
    if found.measurement in (None, NOTHING):
        assert found.output == output


def test_the_command_runs_coverage_as_anybody_would() -> None:
    image = Image("ref", "digest", "docker", python="/env/bin/python")
    script = cold.script_bytes("x = '\udc80'")
    command = cold.command(image, "package.module", script, Limits(timeout_s=2.5), "/tmp/step")
    assert command[3:] == [
        "sh",
        "/tmp/step",
        str(len(script)),
        "2.5",
        image.python,
        FACTS.target,
        cold.REPORT,
    ]
    assert 'coverage run --branch --source="$5" script.py' in command[2]


def test_a_step_finds_no_secret_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert set(cold.environment(Image("ref", "digest", "docker"))) == {
        "PYTHONPATH",
        "PYTHONHASHSEED",
        "COVERAGE_RUN",
        "HOME",
        "TMPDIR",
    }
