"""Wheels fetched on the host, by pip, against hashes: containers and builds have no network."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from sandboxes.cache import cache, only_one
from sandboxes.errors import PrerequisiteError

KITS = Path(__file__).parent / "kits"
CURRENT = "7.17.5"
COVERAGE = {(3, 6): "6.2", (3, 7): "7.2.7", (3, 8): "7.6.1", (3, 9): "7.10.7", (3, 10): "7.16.2"}
"""The last coverage.py that supports each older Python (its change log); CURRENT from 3.11."""
PYTEST = {(3, 6): "7.0.1", (3, 7): "7.4.4", (3, 8): "8.3.5", (3, 9): "8.4.2"}
"""The same of pytest; CURRENT_PYTEST from 3.10. An image that has its own runs suites with that."""
CURRENT_PYTEST = "9.2.0"

_GLIBC = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35)
_OLD_TAGS = ("manylinux1", "manylinux2010", "manylinux2014")


def coverage_version(python: str) -> str:
    """The coverage.py for a Python such as '3.11'. Raises PrerequisiteError below 3.6."""
    return COVERAGE.get(_minor(python), CURRENT)


def pytest_version(python: str) -> str:
    """The pytest for a Python such as '3.11'. Raises PrerequisiteError below 3.6."""
    return PYTEST.get(_minor(python), CURRENT_PYTEST)


def _minor(python: str) -> tuple[int, int]:
    major, minor = (int(part) for part in python.split(".")[:2])
    if (major, minor) < (3, 6):
        raise PrerequisiteError(f"Python {python} is too old to measure: the probe needs 3.6 or newer")
    return major, minor


def fetch(requirements: Path, python: str, machine: str) -> Path:
    """A folder with the wheels that a hash-locked file names, for that Python on Linux.

    `machine` as uname says it: x86_64, aarch64. Kept in the cache. Raises
    PrerequisiteError when pip cannot get them.
    """
    lock = requirements.read_bytes()
    key = hashlib.sha256(lock + f"{python} {machine}".encode()).hexdigest()[:16]
    folder = cache() / "wheels" / key
    with only_one(f"wheels-{key}"):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            _download(requirements, python, machine, part)
            part.rename(folder)
    return folder


def kit(python: str, machine: str) -> Path:
    """A folder that, on PYTHONPATH, gives a Python its coverage.py. Kept in the cache.

    pytest is in its subfolder `suite`, so that only what runs suites finds it.
    """
    version, pytest = coverage_version(python), pytest_version(python)
    folder = cache() / "kits" / f"coverage-{version}-pytest-{pytest}-py{python}-{machine}"
    with only_one(folder.name):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            for lock, place in ((f"coverage-{version}", part), (f"pytest-{pytest}", part / "suite")):
                for wheel in fetch(KITS / f"{lock}.txt", python, machine).glob("*.whl"):
                    with zipfile.ZipFile(wheel) as archive:
                        archive.extractall(place)
            let_all_read(part)
            part.rename(folder)
    return folder


def let_all_read(folder: Path) -> None:
    """Whatever the umask was: a step runs as a user of its own."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _download(requirements: Path, python: str, machine: str, folder: Path) -> None:
    tags = [f"{tag}_{machine}" for tag in _OLD_TAGS]
    tags += [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform={tag}" for tag in tags]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        raise PrerequisiteError(
            f"pip could not fetch the wheels of {requirements} for Python {python} on {machine}: "
            f"{said[-1500:].strip()}\n"
            f"On a machine without a package index, copy {folder.parent} from one that has it."
        )


def this_machine() -> str:
    """As uname says it."""
    return platform.machine()
