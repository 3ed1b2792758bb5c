"""Which modules of some packages are targets: the rule, and `corridor datasets discover`.

The rule is the module selection of RepoExploreBench (CovQValue, arXiv 2604.05159, appendix
A) as far as it can be computed; docs/datasets.md has it in words. What a module is made of
is found inside the image, by the target's own Python (`listing`), and a module is a target
only after the sandbox has really prepared it.
"""

from __future__ import annotations

import asyncio
import csv
import fnmatch
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from runner import dataset, listing
from runner.checks import nearest, read_table
from runner.drive import SandboxKind, images_for
from sandboxes.docker import DockerBackend
from sandboxes.errors import PrerequisiteError, SandboxError, SandboxLost, TargetError, UsageError
from sandboxes.images import KIT, Recipe
from sandboxes.local import LocalBackend
from sandboxes.sandbox import Image, Limits, Sandbox, StepOutcome

NEUTRAL = "keyword"
"""A module of the standard library: a step needs a target, and this one is small and is nobody's package."""
OUTPUT_CHARS = 2 * listing.PAGE

TESTS = re.compile(r"tests?|testsuite|conftest|test_.*|.*_tests?")
"""Modules of tests. Tools for testing (click.testing) are not meant."""
VENDORED = re.compile(r"_?vendor(ed|ized)?|_?vendoring|_?externs?|_?externals?|_?third_?party")
LEGACY = re.compile(r"_?compat|_?legacy|_?deprecated|_?backports?|_?six")
"""What the paper calls legacy compatibility layers."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is asked of a module, each field a key of a dataset's [discover] table."""

    packages: list[str] = field(default_factory=list)
    """Import names, in the order of the file."""
    min_lines: int = 200
    """All lines of the file, comments and blank ones too: what the paper counts."""
    limit_per_package: int | None = None
    """Keep the largest of each package; the paper keeps about 10."""
    private: list[str] = field(default_factory=list)
    """Packages whose names that start with _ are taken too."""
    exclude: list[str] = field(default_factory=list)
    """Globs of module names."""

    def __post_init__(self) -> None:
        if self.min_lines < 1:
            raise ValueError(f"min_lines must be at least 1, it is {self.min_lines}")
        if self.limit_per_package is not None and self.limit_per_package < 1:
            raise ValueError(f"limit_per_package must be at least 1, it is {self.limit_per_package}")
        for package in self.packages:
            if not all(part.isidentifier() for part in package.split(".")):
                raise ValueError(f"{package!r} is not an import name (a distribution's may differ from it)")
            if self.packages.count(package) > 1:
                raise ValueError(f"{package!r} is named {self.packages.count(package)} times")
        for package in self.private:
            if package not in self.packages:
                raise ValueError(f"private names {package!r}; {nearest(package, self.packages)}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A module as its file in the image has it."""

    module: str
    file: str
    lines: int
    callables: int | None
    """Public functions, and public classes with methods; None for a file that does not parse."""


@dataclass(frozen=True, slots=True)
class Found:
    """A module that is a target."""

    module: str
    package: str
    version: str
    lines: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A module that is none, and the first reason."""

    module: str
    why: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What came of looking."""

    found: tuple[Found, ...]
    left_out: tuple[LeftOut, ...]
    unfit: tuple[LeftOut, ...]
    """Those that the rule took and the sandbox could not measure."""


def why_not(listed: Listed, package: str, rule: Rule) -> str | None:
    """Why the rule leaves a module out, by its name and file alone; None when it takes it."""
    inside = listed.module.removeprefix(package).split(".")[1:]
    names = [*package.split(".")[-1:], *inside]
    if inside[-1:] == ["__main__"]:
        return "is __main__"
    if any(TESTS.fullmatch(name) for name in inside):
        return "is a test"
    if any(VENDORED.fullmatch(name) for name in inside):
        return "is vendored"
    if any(LEGACY.fullmatch(name) for name in inside):
        return "is a compatibility layer"
    if package not in rule.private and any(name.startswith("_") for name in names):
        return "is private"
    for pattern in rule.exclude:
        if fnmatch.fnmatchcase(listed.module, pattern):
            return f"is excluded by {pattern}"
    if listed.lines < rule.min_lines:
        return f"has fewer than {rule.min_lines} lines"
    if listed.callables is None:
        return "does not parse"
    if listed.callables == 0:
        return "has no public function, and no public class with methods"
    return None


def largest_first(modules: Sequence[Listed]) -> list[Listed]:
    """The order of a package's targets: by size, then by name."""
    return sorted(modules, key=lambda listed: (-listed.lines, listed.module))


async def discover(sandbox: Sandbox, rule: Rule) -> Discovery:
    """Apply a rule in an image. Raises UsageError for a package that is not there, SandboxError."""
    found: list[Found] = []
    left_out: list[LeftOut] = []
    unfit: list[LeftOut] = []
    for package in rule.packages:
        version, modules = await list_package(sandbox, package)
        taken = 0
        for listed in largest_first(modules):
            why = why_not(listed, package, rule)
            if why is None and taken == rule.limit_per_package:
                why = f"is not among the {taken} largest"
            if why is not None:
                left_out.append(LeftOut(listed.module, why))
                continue
            try:
                prepared = await prepare(sandbox, listed)
            except TargetError as error:
                unfit.append(LeftOut(listed.module, str(error)))
                continue
            found.append(Found(listed.module, package, version or prepared, listed.lines))
            taken += 1
    return Discovery(tuple(found), tuple(left_out), tuple(unfit))


async def list_package(sandbox: Sandbox, package: str) -> tuple[str, list[Listed]]:
    """(version, or '' where it is not known; all modules). Raises UsageError, SandboxError."""
    text = ""
    page = 0
    while len(text) == page * listing.PAGE:
        text += await _print_page(sandbox, package, page)
        page += 1
    version, modules = json.loads(text)
    if version is None:
        raise UsageError(f"the image has no package {package!r}: give import names, as a script says them")
    return version, [Listed(*fact) for fact in modules]


async def prepare(sandbox: Sandbox, listed: Listed) -> str:
    """The version that the probe knows. Raises TargetError for what cannot be measured, SandboxError."""
    facts = await sandbox.prepare(listed.module)
    if facts.file != listed.file:
        raise TargetError(f"importing {listed.module} gives {facts.file}, not {listed.file}")
    if not facts.branches:
        raise TargetError(f"{listed.module} has no line with more than one exit")
    return facts.version


async def _print_page(sandbox: Sandbox, package: str, page: int) -> str:
    script = _script() + f"\n\nprint_page({package!r}, {page})\n"
    report = await sandbox.execute(NEUTRAL, script, Limits(output_chars=OUTPUT_CHARS))
    if report.outcome is not StepOutcome.PASSED:
        raise SandboxError(
            f"the modules of {package} could not be listed: {report.outcome}, {report.exception}; "
            f"it said: {report.output[-300:].strip()!r}"
        )
    return report.output


def _script() -> str:
    return (resources.files("runner") / "listing.py").read_text()


def to_csv(found: Sequence[Found]) -> str:
    """A targets.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(dataset.COLUMNS)
    writer.writerows((one.module, one.package, one.version, one.lines) for one in found)
    return text.getvalue()


def summary(discovery: Discovery) -> str:
    """For people: how many, why not, and what the image could not measure."""
    packages = {one.package for one in discovery.found}
    lines = [f"targets: {len(discovery.found)}, packages: {len(packages)}"]
    reasons = Counter(one.why for one in discovery.left_out)
    lines += [f"left out: {number}, each {why}" for why, number in reasons.most_common()]
    lines += [f"cannot be measured: {one.why}" for one in discovery.unfit]
    return "\n".join(lines)


def rule_for(place: Path | None, said: Mapping[str, object]) -> Rule:
    """The rule of the command line's `said`; where it names no packages, over the dataset's own.

    Raises UsageError.
    """
    given = {key: value for key, value in said.items() if value not in (None, [])}
    declared: dict[str, object] = {}
    where = "corridor datasets discover"
    if place is not None and "packages" not in given:
        file = place / "dataset.toml"
        where = f"{file}: [discover]"
        table = tomllib.loads(file.read_text()).get("discover", {})
        read_table(Rule, table, where)
        declared = dict(table)
    rule = read_table(Rule, declared | given, where)
    if not rule.packages:
        raise UsageError(f"{where} names no packages: give them as arguments, or as packages = [...] there")
    return rule


def place_of(name: str) -> Path | None:
    """The dataset folder that IMAGE names; None when it is an image's own reference."""
    if name.startswith((".", "/")) or (Path(name) / "dataset.toml").is_file():
        return Path(name)
    return dataset.folder_of(name) if name in dataset.names() else None


async def discover_in(name: str, sandbox: SandboxKind, said: Mapping[str, object]) -> Discovery:
    """What the command does on a kind of sandbox. Raises CorridorError."""
    place = place_of(name)
    recipe = Recipe.read(place) if place is not None else None
    rule = rule_for(place, said)
    if recipe is not None:
        image = await asyncio.to_thread(images_for(sandbox).build, recipe)
    elif sandbox == "docker":
        image = Image(name, "", "docker", kit=KIT)
    else:
        raise UsageError(
            f"on the local sandbox IMAGE is a dataset: {name!r}; {nearest(name, dataset.names())}"
        )
    backend = DockerBackend() if sandbox == "docker" else LocalBackend()
    try:
        opened = await backend.open(image)
    except SandboxLost as error:
        raise PrerequisiteError(
            f"image {name} does not serve: {error}\nIt needs Python 3.6 or newer, and the layer with "
            f"coverage.py in {KIT} that `corridor images build` gives a dataset's image"
        ) from error
    try:
        return await discover(opened, rule)
    finally:
        await opened.close()
