"""Datasets: folders of declarations. Adding a benchmark is adding a folder.

    dataset.toml    title, source, benchmark (its name in published tables), [image], [discover]
    targets.csv     target, package, version, lines

Ours lie in datasets/ of the project, or where the installed distribution put them;
CORRIDOR_DATASETS may name another folder of datasets; a sweep may name a folder itself.
"""

from __future__ import annotations

import csv
import functools
import os
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

from runner.checks import nearest
from runner.nouns import Target
from sandboxes.errors import UsageError
from sandboxes.images import Recipe

COLUMNS = ("target", "package", "version", "lines")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A benchmark's targets and the recipe of their image."""

    name: str
    folder: Path
    title: str
    benchmark: str | None
    """What published tables call it."""
    targets: tuple[Target, ...]
    recipe: Recipe

    def select(self, packages: list[str], modules: list[str], limit: int | None) -> list[Target]:
        """In the file's order. Raises UsageError for a package or module that it does not have."""
        known_packages = {target.package for target in self.targets}
        known_modules = {target.module for target in self.targets}
        for what, wanted, known in (
            ("package", packages, known_packages),
            ("module", modules, known_modules),
        ):
            for name in wanted:
                if name not in known:
                    raise UsageError(f"dataset {self.name!r} has no {what} {name!r}; {nearest(name, known)}")
        found = [
            target
            for target in self.targets
            if (not packages or target.package in packages) and (not modules or target.module in modules)
        ]
        return found[:limit]


def find(name: str) -> Dataset:
    """By name, or a folder given as a path. Raises UsageError."""
    return read(folder_of(name))


def folder_of(name: str) -> Path:
    """Where a dataset is declared; it need not list its targets yet. Raises UsageError."""
    if "/" in name or name.startswith("."):
        return Path(name)
    for root in roots():
        if (root / name / "dataset.toml").is_file():
            return root / name
    raise UsageError(f"dataset {name!r} is not known; {nearest(name, names())}")


def names() -> list[str]:
    """Every dataset that can be named."""
    found = {file.parent.name for root in roots() for file in root.glob("*/dataset.toml")}
    return sorted(found)


@functools.cache
def roots() -> list[Path]:
    """Folders of datasets, first come first."""
    own = [Path(__file__).parent.parent / "datasets"]
    own.append(Path(sysconfig.get_path("data")) / "share" / "corridor" / "datasets")
    named = os.environ.get("CORRIDOR_DATASETS")
    return [root for root in ([Path(named)] if named else []) + own if root.is_dir()]


def read(folder: Path) -> Dataset:
    """Raises UsageError naming the file and the line."""
    recipe = Recipe.read(folder)
    said = tomllib.loads((folder / "dataset.toml").read_text())
    return Dataset(
        name=folder.resolve().name,
        folder=folder,
        title=str(said.get("title", folder.name)),
        benchmark=said.get("benchmark"),
        targets=tuple(_targets(folder)),
        recipe=recipe,
    )


def _targets(folder: Path) -> list[Target]:
    file = folder / "targets.csv"
    if not file.is_file():
        raise UsageError(
            f"{file} is not there: it lists a dataset's targets, with {', '.join(COLUMNS)}; "
            f"corridor datasets discover writes it"
        )
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        missing = [column for column in COLUMNS[:3] if column not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"{file} has no column {missing[0]!r}; it has {reader.fieldnames}")
        targets = []
        for row in reader:
            try:
                target = Target(folder.resolve().name, row["target"], row["package"], row["version"])
            except ValueError as error:
                raise UsageError(f"{file}, line {reader.line_num}: {error}") from error
            targets.append(target)
    seen = [target.module for target in targets]
    for module in set(seen):
        if seen.count(module) > 1:
            raise UsageError(f"{file} lists {module} {seen.count(module)} times")
    return targets
