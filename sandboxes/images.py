"""From a dataset's recipe to something steps can run in: an image, or a local environment.

Built once and kept. Both ways put coverage.py beside the target's environment, as one
small layer or folder, never into its site-packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandboxes import wheels
from sandboxes.cache import cache, only_one
from sandboxes.docker import connect
from sandboxes.errors import PrerequisiteError, UsageError
from sandboxes.owner import scratch_prefix
from sandboxes.sandbox import Image

KIT = "/opt/corridor/kit"
RECIPE_LABEL = "corridor.recipe"
_KEYS = ("python", "base", "requirements", "dockerfile")

_KIT_LAYER = f"""\
ARG BASE
FROM ${{BASE}}
COPY kit {KIT}
RUN python -m compileall -q {KIT}
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a dataset's image is made."""

    name: str
    folder: Path
    python: str
    """'3.11'"""
    base: str
    requirements: Path
    dockerfile: Path

    @property
    def id(self) -> str:
        """Of everything the recipe says; 64 hex digits."""
        kit = [wheels.coverage_version(self.python), wheels.pytest_version(self.python)]
        said = [self.python, self.base, *kit, _KIT_LAYER]
        said += [path.read_text() for path in (self.requirements, self.dockerfile)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @classmethod
    def read(cls, folder: Path) -> Recipe:
        """From a dataset folder's dataset.toml. Raises UsageError."""
        file = folder / "dataset.toml"
        try:
            image = tomllib.loads(file.read_text())["image"]
        except FileNotFoundError as error:
            raise UsageError(f"{file} is not there: a dataset is a folder with a dataset.toml") from error
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{file} is not TOML: {error}") from error
        except KeyError as error:
            raise UsageError(f"{file} has no [image] table") from error
        for key in _KEYS:
            if not isinstance(image.get(key), str):
                raise UsageError(f"{file}: image.{key} must be a string, it is {image.get(key)!r}")
        for key in image:
            if key not in _KEYS:
                raise UsageError(f"{file}: image.{key} is not known; known are {', '.join(_KEYS)}")
        for key in ("requirements", "dockerfile"):
            if not (folder / image[key]).is_file():
                raise UsageError(f"{file}: image.{key} names {image[key]!r}, which is not in {folder}")
        return cls(
            name=folder.name,
            folder=folder,
            python=image["python"],
            base=image["base"],
            requirements=folder / image["requirements"],
            dockerfile=folder / image["dockerfile"],
        )


class Images(Protocol):
    """Where a back end's images come from."""

    def find(self, recipe: Recipe) -> Image | None:
        """The image, if it is made already."""
        ...

    def build(self, recipe: Recipe) -> Image:
        """The image, made now if it is not there. Raises PrerequisiteError."""
        ...


class DockerImages:
    """Images on the Docker engine, tagged by their recipe."""

    def find(self, recipe: Recipe) -> Image | None:
        """See Images.find."""
        import docker.errors

        tag = _tag(recipe)
        with contextlib.closing(connect()) as client:
            try:
                found = client.images.get(tag)
            except docker.errors.ImageNotFound:
                return None
            return Image(tag, str(found.id), "docker", kit=KIT)

    def build(self, recipe: Recipe) -> Image:
        """See Images.build."""
        with only_one(f"image-{recipe.id[:12]}"):
            found = self.find(recipe)
            if found is not None:
                return found
            with contextlib.closing(connect()) as client:
                return self._build(client, recipe)

    def _build(self, client: Any, recipe: Recipe) -> Image:
        machine = str(client.info()["Architecture"])
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
            context = Path(name)
            shutil.copytree(wheels.fetch(recipe.requirements, recipe.python, machine), context / "wheels")
            shutil.copy(recipe.requirements, context / "requirements.lock")
            shutil.copy(recipe.dockerfile, context / "Dockerfile")
            bare = _build(client, context, {"BASE": recipe.base}, {}, recipe)
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
            context = Path(name)
            shutil.copytree(wheels.kit(recipe.python, machine), context / "kit")
            (context / "Dockerfile").write_text(_KIT_LAYER)
            made = _build(client, context, {"BASE": bare}, {RECIPE_LABEL: recipe.id}, recipe)
        client.images.get(made).tag(_tag(recipe))
        return Image(_tag(recipe), made, "docker", kit=KIT)


class LocalImages:
    """Virtual environments in the cache, one for each recipe and interpreter."""

    def find(self, recipe: Recipe) -> Image | None:
        """See Images.find."""
        python = interpreter(recipe.python)
        folder = _environment_folder(recipe, python)
        return self._image(recipe, python) if (folder / "ready").exists() else None

    def build(self, recipe: Recipe) -> Image:
        """See Images.build."""
        python = interpreter(recipe.python)
        folder = _environment_folder(recipe, python)
        with only_one(folder.name):
            if not (folder / "ready").exists():
                shutil.rmtree(folder, ignore_errors=True)
                _make_environment(recipe, python, folder)
                wheels.let_all_read(folder)
                (folder / "ready").touch()
        return self._image(recipe, python)

    def _image(self, recipe: Recipe, python: Interpreter) -> Image:
        folder = _environment_folder(recipe, python)
        said = f"{recipe.id} {python.version} {platform.machine()}"
        return Image(
            ref=str(folder),
            digest="local:" + hashlib.sha256(said.encode()).hexdigest(),
            backend="local",
            python=str(folder / "bin" / "python"),
            kit=str(wheels.kit(python.minor, wheels.this_machine())),
        )


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of this machine."""

    path: str
    version: str
    """'3.11.7'"""

    @property
    def minor(self) -> str:
        """Such as '3.11'."""
        return ".".join(self.version.split(".")[:2])


def interpreter(wanted: str) -> Interpreter:
    """A Python of that minor version, else the running one: its digest keeps the two apart."""
    if platform.python_version().startswith(f"{wanted}."):
        return Interpreter(sys.executable, platform.python_version())
    candidates = [shutil.which(f"python{wanted}")]
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python")), reverse=True)
    for candidate in filter(None, candidates):
        done = subprocess.run(
            [candidate, "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and done.stdout.startswith(f"{wanted}."):
            return Interpreter(candidate, done.stdout.strip())
    return Interpreter(sys.executable, platform.python_version())


def _tag(recipe: Recipe) -> str:
    return f"corridor/{recipe.name}:{recipe.id[:12]}"


def _build(
    client: Any, context: Path, arguments: dict[str, str], labels: dict[str, str], recipe: Recipe
) -> str:
    """Build a context without a network; the image's id. Raises PrerequisiteError."""
    import docker.errors

    try:
        image, _ = client.images.build(
            path=str(context),
            buildargs=arguments,
            labels=labels,
            network_mode="none",
            rm=True,
            forcerm=True,
        )
    except docker.errors.BuildError as error:
        log = "".join(line.get("stream", "") for line in error.build_log)
        raise PrerequisiteError(
            f"the image of {recipe.folder} did not build: {error}\n{log[-1500:].strip()}"
        ) from error
    except docker.errors.APIError as error:
        raise PrerequisiteError(
            f"the image of {recipe.folder} did not build from {recipe.base}: {error}\n"
            f"Is the base image there? Try: docker pull {recipe.base}"
        ) from error
    return str(image.id)


def _environment_folder(recipe: Recipe, python: Interpreter) -> Path:
    return cache() / "environments" / f"{recipe.name}-{recipe.id[:12]}-py{python.version}"


def _make_environment(recipe: Recipe, python: Interpreter, folder: Path) -> None:
    """A virtual environment with the recipe's packages. Raises PrerequisiteError."""
    found = wheels.fetch(recipe.requirements, python.minor, wheels.this_machine())
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index"]
    install += ["--find-links", str(found), "--require-hashes", "--requirement", str(recipe.requirements)]
    for command in ([python.path, "-m", "venv", str(folder)], install):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PrerequisiteError(
                f"the environment of {recipe.folder} for Python {python.version} could not be made: "
                f"{' '.join(command[:4])} ...: {done.stderr[-1500:].strip()}"
            )
