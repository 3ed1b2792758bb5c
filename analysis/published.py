"""The published numbers of a paper, cell by cell, and what each is of. Data in papers/."""

from __future__ import annotations

import csv
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from sandboxes.errors import UsageError

PAPERS = ("covqvalue",)

_OF_TARGETS = re.compile(r"\(n=(\d+)\)")


@dataclass(frozen=True, slots=True)
class Variant:
    """A strategy of ours with the settings that a cell is of."""

    strategy: str
    executions: int
    settings: Mapping[str, Any]
    """Those that the paper states."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One published number."""

    table: str
    setting: str
    model: str
    """The paper's name; empty where the number is of none."""
    benchmark: str
    metric: str
    text: str
    """As published."""
    value: float
    stderr: float | None
    stderr_text: str
    source: str
    variant: Variant | None
    """None where it is of no strategy."""
    against: Variant | None
    """The other strategy, where the number compares two."""
    repository: str | None
    """None where it is of the whole benchmark."""
    targets: int | None
    """Modules that it is of; None where no source says."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's cells, and how its names are ours."""

    title: str
    cells: tuple[Cell, ...]
    benchmarks: Mapping[str, str]
    """The paper's name by ours."""
    models: Mapping[str, re.Pattern[str]]
    """What a model's name of ours holds, by the paper's name."""
    incomparable: Mapping[str, str]
    """Why a metric of the paper is not ours, by metric."""

    def model(self, ours: str) -> str | None:
        """The paper's name of a model of ours; None for one that the paper does not have."""
        return next((name for name, pattern in self.models.items() if pattern.search(ours)), None)


@functools.cache
def load(name: str) -> Paper:
    """Raises UsageError for a paper without published numbers here."""
    if name not in PAPERS:
        raise UsageError(f"there are no published numbers of {name!r}; choose of {', '.join(PAPERS)}")
    folder = resources.files("analysis") / "papers"
    declared = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    lines = (folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return Paper(
        title=declared["title"],
        cells=tuple(_cell(row, declared) for row in csv.DictReader(lines)),
        benchmarks=declared["benchmarks"],
        models={model: re.compile(pattern) for model, pattern in declared["models"].items()},
        incomparable=declared["incomparable"],
    )


def number(text: str) -> float:
    """A published number: '43.2', '+30.6', '83%' (0.83), '78/93'. Raises ValueError for any other."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    above, _, below = text.partition("/")
    return float(above) / float(below) if below else float(above)


def _cell(row: Mapping[str, str], declared: Mapping[str, Any]) -> Cell:
    variant, against, repository = (
        (None, None, None) if row["metric"] == "default" else _of(row["table"], row["setting"], declared)
    )
    return Cell(
        table=row["table"],
        setting=row["setting"],
        model=row["model"],
        benchmark=row["benchmark"],
        metric=row["metric"],
        text=row["value"],
        value=number(row["value"]),
        stderr=number(row["stderr"]) if row["stderr"] else None,
        stderr_text=row["stderr"],
        source=row["source"],
        variant=variant,
        against=against,
        repository=repository,
        targets=_targets(row, repository, declared),
    )


def _of(table: str, setting: str, declared: Mapping[str, Any]) -> tuple[Variant, Variant | None, str | None]:
    """(strategy, strategy it is compared with, repository) of a setting such as 'N=8 | CovQValue'."""
    if setting in declared["components"]:
        return _variant("CovQValue", declared["components"][setting], {}, declared), None, None
    names: list[str] = []
    knobs: dict[str, str] = {}
    repository = None
    for part in setting.split(" | "):
        if part.startswith("repo="):
            repository = _OF_TARGETS.sub("", part.removeprefix("repo=")).strip().rpartition("/")[2]
        elif "=" in part:
            knobs |= dict(knob.split("=") for knob in part.split())
        elif part != "mean over modules":
            names += re.split(r" vs | - ", part.removesuffix(" (text)"))
    if not names:
        names = ["CovQValue", declared["baselines"][table]]
    variants = [_variant(name, {}, knobs, declared) for name in names]
    return variants[0], variants[1] if len(variants) > 1 else None, repository


def _variant(
    name: str, settings: Mapping[str, Any], knobs: Mapping[str, str], declared: Mapping[str, Any]
) -> Variant:
    base = declared["strategies"][name]
    values = {**base["settings"], "executions": base["executions"], **settings}
    for knob, text in knobs.items():
        for key in declared["knobs"][knob]:
            if key in values:
                values[key] = type(values[key])(text)
    executions = values.pop("executions")
    return Variant(base["name"], executions, values)


def _targets(row: Mapping[str, str], repository: str | None, declared: Mapping[str, Any]) -> int | None:
    """How many modules a cell is of: as its setting, else its table, else the paper says."""
    said = _OF_TARGETS.search(row["setting"]) or (None if repository else _OF_TARGETS.search(row["table"]))
    if said:
        return int(said[1])
    if repository:
        found: int | None = declared["repositories"].get(row["benchmark"], {}).get(repository)
        return found
    total: int | None = declared["targets"].get(row["benchmark"])
    return total
