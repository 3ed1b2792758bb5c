"""Small real sweeps for tests: started like a user does, compared row by row."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.replay import TIMES
from runner.schema import EpisodeRow, StepRow
from runner.store import Run

SWEEP = """
name = "small"
dataset = "repo_explore_bench"
models = ["offline/scout"]
seeds = [1]
[targets]
modules = ["click.types", "werkzeug.http"]
[measure]
mutants = 6
[budget]
executions = 4
calls = 3
[[strategy]]
name = "random"
[[strategy]]
name = "cov_qvalue"
[[strategy]]
name = "tesearch"
"""

SCRIPTS = SWEEP.replace('[[strategy]]\nname = "tesearch"\n', "")
"""Its script strategies: what they choose does not depend on the image's sample of mutants."""


def write(folder: Path, text: str = SWEEP) -> Path:
    file = folder / "small.toml"
    file.write_text(text)
    return file


def corridor(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "runner.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | (env or {}),
    )


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    """A command, begun, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "runner.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def came_to(process: subprocess.Popen[str], reached: Callable[[], bool]) -> bool:
    """Wait until something is the case; whether it was before the process ended."""
    while process.poll() is None:
        if reached():
            return True
        # Looks again soon, or at once when the process ends, and leaves the cores to it meanwhile.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    return False


def stop_when(
    process: subprocess.Popen[str], reached: Callable[[], bool], sent: signal.Signals = signal.SIGKILL
) -> bool:
    """Send a signal as soon as something is the case; whether it came to that before the process ended."""
    reached_it = came_to(process, reached)
    if reached_it:
        process.send_signal(sent)
    return reached_it


def parts(run: Path, table: str) -> int:
    """Files of a table so far."""
    return sum(not file.name.startswith(".") for file in (run / table).glob("*.parquet"))


def _counted(run: Path, table: str) -> Iterator[dict[str, Any]]:
    """Rows of the one scored attempt of each episode."""
    store = Run(run)
    counts = {
        episode: [attempt for attempt, end in ends if end.scores] for episode, ends in store.ends().items()
    }
    for row in store.folder.read(table).to_pylist():
        (attempt,) = counts[row["episode_id"]]
        if row["attempt"] == attempt:
            yield row


def outcome(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything about a run's episodes and steps that must not depend on when and how it ran.

    Raises ValueError when an episode was committed twice.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for table, kind, key in (
        ("episodes", EpisodeRow, ("episode_id",)),
        ("steps", StepRow, ("episode_id", "step")),
    ):
        names = [field.name for field in dataclasses.fields(kind) if field.name not in TIMES]
        rows = [{name: row[name] for name in names} for row in _counted(run, table)]
        found[table] = sorted(rows, key=lambda row: tuple(row[name] for name in key))
    return found


def asked_twice(run: Path) -> list[tuple[str, int]]:
    """(episode, call) of what was recorded with an answer and yet really asked again."""
    real: Sequence[tuple[str, int]] = [
        (row["episode_id"], row["call"])
        for row in Run(run).folder.read("calls", ["episode_id", "call", "replayed", "response"]).to_pylist()
        if not row["replayed"] and row["response"] is not None
    ]
    return [one for one in set(real) if real.count(one) > 1]
