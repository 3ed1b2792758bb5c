"""What dead runs left is found and removed; what living ones use is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandboxes import leftovers
from sandboxes.docker import DockerBackend
from sandboxes.owner import scratch_prefix
from sandboxes.sandbox import Image

LEAVE_A_FOLDER = """\
import os, tempfile
from sandboxes.owner import scratch_prefix
folder = tempfile.mkdtemp(prefix=scratch_prefix())
os.makedirs(folder + "/step/deep")
print(folder)
"""

LEAVE_A_CONTAINER = """\
import sys
from sandboxes.docker import DockerBackend
from sandboxes.sandbox import Image
image = Image(sys.argv[2], "", "docker")
DockerBackend("tests").create(sys.argv[1], image, ["sleep", "3600"], "0:0").close()
"""


def run(script: str, *arguments: str) -> str:
    """What a process printed that is no more."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test and its processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_folders_of_the_dead_are_removed(temporary: Path) -> None:
    dead = run(LEAVE_A_FOLDER)
    living = tempfile.mkdtemp(prefix=scratch_prefix())
    strange = temporary / "corridor-of-somebody"
    strange.mkdir()
    assert leftovers.remove_folders() == [dead]
    assert sorted(temporary.iterdir()) == sorted([Path(living), strange])
    assert leftovers.remove_folders() == []


def test_everything_takes_the_living_too(temporary: Path) -> None:
    dead, living = run(LEAVE_A_FOLDER), tempfile.mkdtemp(prefix=scratch_prefix())
    strange = temporary / "corridor-of-somebody"
    strange.mkdir()
    assert sorted(leftovers.remove_folders(everything=True)) == sorted([dead, living])
    assert list(temporary.iterdir()) == [strange]


def test_only_containers_of_the_dead_are_removed(docker_image: Image, temporary: Path) -> None:
    names = {whose: f"corridor-{whose}-{os.getpid()}" for whose in ("dead", "living")}
    run(LEAVE_A_CONTAINER, names["dead"], docker_image.ref)
    living = DockerBackend("tests").create(names["living"], docker_image, ["sleep", "3600"], "0:0")
    try:
        removed = leftovers.remove()
        assert f"container {names['dead']}" in removed
        assert f"container {names['living']}" not in removed
        assert f"container {names['dead']}" not in leftovers.remove()
    finally:
        living.remove()
        living.close()


def test_without_an_engine_there_are_no_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert leftovers.remove_containers() == []
