"""Recipes, and what they refuse; kits; what is missing, and the command that makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes import wheels
from sandboxes.cold import SCRATCH
from sandboxes.docker import DockerBackend, connect
from sandboxes.errors import PrerequisiteError, UsageError
from sandboxes.images import DockerImages, LocalImages, Recipe
from sandboxes.local import LocalBackend
from sandboxes.sandbox import Image
from tests.sandboxes.conformance import DATASET

GOOD = """\
title = "Made up"
[image]
python = "3.11"
base = "python:3.11-slim"
requirements = "requirements.lock"
dockerfile = "Dockerfile"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dataset.toml").write_text(GOOD)
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    return tmp_path


def test_a_recipe_is_read(folder: Path) -> None:
    recipe = Recipe.read(folder)
    assert (recipe.name, recipe.python, recipe.base) == (folder.name, "3.11", "python:3.11-slim")
    assert recipe.requirements == folder / "requirements.lock"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[image]", "[picture]", r"no \[image\] table"),
        ("[image]", "[image", "is not TOML"),
        ('python = "3.11"', "python = 3.11", "image.python must be a string, it is 3.11"),
        ('base = "python:3.11-slim"', "", "image.base must be a string, it is None"),
        ("dockerfile =", "docker_file =", "image.dockerfile must be a string"),
        ('dockerfile = "Dockerfile"', 'dockerfile = "Dockerfile"\ncpu = 1', "image.cpu is not known"),
        ('"requirements.lock"', '"missing.lock"', "image.requirements names 'missing.lock'"),
        ('"Dockerfile"', '"."', "image.dockerfile names '.'"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(folder: Path, old: str, new: str, says: str) -> None:
    assert GOOD.count(old) == 1
    (folder / "dataset.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=says) as caught:
        Recipe.read(folder)
    assert str(folder / "dataset.toml") in str(caught.value)


def test_a_folder_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dataset\.toml is not there"):
        Recipe.read(tmp_path)


@pytest.mark.parametrize("file", ["requirements.lock", "Dockerfile"])
def test_another_recipe_has_another_id(folder: Path, file: str) -> None:
    before = Recipe.read(folder).id
    assert before == Recipe.read(folder).id
    (folder / file).write_text("# other\n")
    assert Recipe.read(folder).id != before


@pytest.mark.parametrize(
    ("python", "version"),
    [
        ("3.6", "6.2"),
        ("3.7.16", "7.2.7"),
        ("3.8", "7.6.1"),
        ("3.9", "7.10.7"),
        ("3.10", "7.16.2"),
        ("3.11", wheels.CURRENT),
        ("3.14.1", wheels.CURRENT),
    ],
)
def test_each_python_has_a_coverage_with_locked_wheels(python: str, version: str) -> None:
    assert wheels.coverage_version(python) == version
    locked = (wheels.KITS / f"coverage-{version}.txt").read_text()
    assert locked.startswith(f"coverage=={version} ")
    assert locked.count("--hash=sha256:") > 40


@pytest.mark.parametrize("python", ["2.7", "3.5"])
def test_a_python_too_old_is_named(python: str) -> None:
    with pytest.raises(PrerequisiteError, match=f"Python {python} is too old"):
        wheels.coverage_version(python)


def test_all_may_read_what_is_put_into_a_kit(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir(mode=0o700)
    (tmp_path / "package" / "module.py").touch(mode=0o600)
    (tmp_path / "link").symlink_to("nowhere")
    wheels.let_all_read(tmp_path)
    assert (tmp_path / "package").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "package" / "module.py").stat().st_mode & 0o777 == 0o644


async def test_a_missing_docker_image_names_the_command(docker_image: Image) -> None:
    missing = Image("corridor/never-made:0", "", "docker")
    with pytest.raises(PrerequisiteError, match=r"never-made:0.*corridor images build"):
        await DockerBackend("tests").open(missing)


@pytest.mark.parametrize("isolated", [None, False])
async def test_a_missing_environment_names_the_command(tmp_path: Path, isolated: bool | None) -> None:
    missing = Image(str(tmp_path), "", "local", python=str(tmp_path / "bin" / "python"))
    with pytest.raises(PrerequisiteError, match="corridor images build"):
        await LocalBackend("tests", isolated=isolated).open(missing)


async def test_an_environment_that_steps_could_not_see_is_refused(local_image: Image) -> None:
    backend = LocalBackend("tests")
    if not backend.isolated:
        pytest.skip("this system gives no namespaces")
    hidden = Image("x", "", "local", python=local_image.python, kit=f"{SCRATCH}/kit")
    with pytest.raises(PrerequisiteError, match="set CORRIDOR_CACHE"):
        await backend.open(hidden)


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:1", "unix:///nowhere/docker.sock", "nonsense://x"])
async def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(PrerequisiteError, match="--sandbox local") as caught:
        connect()
    assert host in str(caught.value)
    backend = DockerBackend("tests")
    for opening in (backend.check(), backend.open(Image("x", "", "docker"))):
        with pytest.raises(PrerequisiteError):
            await opening


def test_images_are_found_once_they_are_built(docker_image: Image, local_image: Image) -> None:
    recipe = Recipe.read(DATASET)
    assert DockerImages().find(recipe) == docker_image
    assert LocalImages().find(recipe) == local_image
    assert docker_image.digest != local_image.digest
