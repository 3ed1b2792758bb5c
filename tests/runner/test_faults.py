"""What a machine does to a run in its middle: a full disk, an engine that dies."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.store import Run
from tests.runner.runs import asked_twice, came_to, corridor, outcome, parts, started, write
from tests.runner.test_runs import SANDBOX


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    run = small_disk / "run"
    command = ("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX)
    full = corridor(*command, "--set", "seeds=[1, 2, 3]")
    assert full.returncode == 1, full.stderr
    assert "No space left on device" in full.stderr
    assert "run the same command again" in full.stderr
    assert "Traceback" not in full.stderr
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    again = corridor(*command, "--set", "seeds=[1, 2, 3]")
    assert again.returncode == 0, again.stderr
    assert "18 done, 0 failed, 0 pending of 18 planned" in again.stderr
    assert asked_twice(run) == []
    assert len(outcome(run)["steps"]) == 3 * 26


class Relay:
    """Stands before the engine's socket, so that the engine can seem to die."""

    def __init__(self, path: Path, engine: str) -> None:
        self._engine = engine
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def die(self) -> None:
        """Close everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with_no_regard(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(self._engine)
            self._open += [client, engine]
            for source, sink in ((client, engine), (engine, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def with_no_regard(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        one.close()


def test_an_engine_that_dies_stops_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    if SANDBOX != "docker" or not Path(engine).is_socket():
        pytest.skip("no Docker engine answers on a local socket")
    relay = Relay(tmp_path / "engine.sock", engine)
    run = tmp_path / "run"
    command = ("run", write(tmp_path), "--out", run, "--inline", "--sandbox", "docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    process = started(*command)
    assert came_to(process, lambda: parts(run, "calls") >= 3), process.communicate()[0]
    relay.die()
    said, _ = process.communicate()
    assert process.returncode == 3, said
    assert "no Docker engine answers" in said
    assert "Traceback" not in said
    monkeypatch.delenv("DOCKER_HOST")
    again = corridor(*command)
    assert again.returncode == 0, again.stderr
    assert "6 done, 0 failed, 0 pending of 6 planned" in again.stderr
    assert asked_twice(run) == []
    assert all(step["outcome"] != "infra_error" for step in outcome(run)["steps"])
    assert len(Run(run).planned()) == 6
