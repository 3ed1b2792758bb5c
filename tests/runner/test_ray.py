"""A real Ray cluster of three nodes on this machine, one of which goes away in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.store import Run
from tests.runner.runs import asked_twice, came_to, corridor, outcome, started, write
from tests.runner.test_runs import SANDBOX

SWEEP = """
name = "cluster"
dataset = "repo_explore_bench"
models = ["offline/scout"]
seeds = [1, 2, 3]
[targets]
modules = ["click.types", "werkzeug.http", "jinja2.lexer"]
[measure]
mutants = 0
[budget]
executions = 10
[[strategy]]
name = "random"
[[strategy]]
name = "cov_qvalue"
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        made.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves its processes' pipes open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # and so their finalisers
def test_a_node_that_dies_costs_an_attempt_and_no_number(cluster: Any, tmp_path: Path) -> None:
    file = write(tmp_path, SWEEP)
    whole = tmp_path / "whole"
    quiet = corridor("run", file, "--out", whole, "--inline", "--sandbox", SANDBOX)
    assert quiet.returncode == 0, quiet.stderr

    run = tmp_path / "run"
    sandbox = ("--sandbox", SANDBOX)
    process = started("run", file, "--out", run, *sandbox, "--slots", "1", "--address", cluster.address)
    store = Run(run)

    def busy() -> list[Any]:
        return [node for node in cluster.worker_nodes if workers_of(raylet(node))]

    assert came_to(process, lambda: len(store.ends()) >= 2 and len(busy()) > 0), process.communicate()[0]
    victim = busy()[0]
    # A machine that goes takes its workers along at once; Ray's would go on for a while.
    for worker in workers_of(raylet(victim)):
        os.kill(worker, signal.SIGKILL)
    cluster.remove_node(victim, allow_graceful=False)
    said, _ = process.communicate()
    assert process.returncode == 0, said

    assert outcome(run) == outcome(whole)
    assert asked_twice(run) == []
    assert len(store.planned()) == 18
    assert sum(end.scores for ends in store.ends().values() for _, end in ends) == 18
    assert max(store.attempts().values()) == 2


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    file, run = write(tmp_path, SWEEP), tmp_path / "run"
    process = started("run", file, "--out", run, "--sandbox", SANDBOX, "--workers", "1")
    store = Run(run)
    assert came_to(process, lambda: len(store.ends()) >= 2), process.communicate()[0]
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert sum(end.scores for ends in store.ends().values() for _, end in ends) == 18
    assert asked_twice(run) == []
    assert max(store.attempts().values()) == 2


def raylet(node: Any) -> int:
    """A node's own process."""
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def workers_of(driver: int) -> list[int]:
    """Processes of Corridor's actors below a driver, or a node."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                names[int(entry.name)] = (entry / "cmdline").read_bytes()

    def below(pid: int) -> bool:
        return pid == driver or (pid in parents and below(parents[pid]))

    return [pid for pid, name in names.items() if name.startswith(b"ray::RayWorker") and below(pid)]
