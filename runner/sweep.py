"""From a sweep file to a validated Sweep, and from that to episodes.

Unknown keys are refused with the nearest known one: a setting that is silently ignored
is a wrong number in the making.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.checks import nearest, read_table
from runner.dataset import Dataset, find
from runner.nouns import Budget, EpisodeSpec, Limits, Measure, StrategySpec, Target
from runner.schema import PlannedRow
from runner.strategies import strategy
from sandboxes.errors import UsageError
from sandboxes.sandbox import Image


@dataclass(frozen=True, slots=True)
class TargetFilter:
    """[targets]: all of a dataset's, or some."""

    packages: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    limit: int | None = None
    """The first so many."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, it is {self.limit}")


@dataclass(frozen=True, slots=True)
class BudgetTable:
    """[budget]."""

    executions: int = 24
    calls: int = 24
    iterations: int = 10
    usd: float | None = None
    """For the whole sweep, in US dollars; it holds across restarts."""
    step_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        """Raises ValueError."""
        Budget(self.executions, self.calls, self.iterations)
        if self.usd is not None and self.usd <= 0:
            raise ValueError(f"usd must be above 0, it is {self.usd}")
        if self.step_timeout_s <= 0:
            raise ValueError(f"step_timeout_s must be above 0, it is {self.step_timeout_s}")


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """[limits]: of each step, besides its time."""

    memory_mib: int = 2048
    processes: int = 256
    file_mib: int = 256

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for name in ("memory_mib", "processes", "file_mib"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, it is {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """[prices."MODEL"]: US dollars for a million tokens, before LiteLLM's table."""

    input: float
    output: float
    cached: float | None = None
    """As input, unless given."""
    cache_write: float | None = None
    """As input, unless given."""


@dataclass(frozen=True, slots=True)
class SweepFile:
    """The top level of a sweep file."""

    name: str
    dataset: str
    models: list[str]
    strategy: list[dict]  # type: ignore[type-arg]  # checked table by table, against its own strategy
    seeds: list[int] = field(default_factory=lambda: [42])
    targets: dict = field(default_factory=dict)  # type: ignore[type-arg]  # TargetFilter
    budget: dict = field(default_factory=dict)  # type: ignore[type-arg]  # BudgetTable
    limits: dict = field(default_factory=dict)  # type: ignore[type-arg]  # LimitsTable
    measure: dict = field(default_factory=dict)  # type: ignore[type-arg]  # Measure
    prices: dict = field(default_factory=dict)  # type: ignore[type-arg]  # of PriceTable
    max_tokens: int = 4096
    """Longest answer that is asked for, in tokens."""
    max_infra_share: float = 0.02
    """Share of episodes that may fail before tables stop to rank and `run` exits with 1."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What somebody asked for, complete and possible."""

    name: str
    dataset: Dataset
    targets: list[Target]
    strategies: list[StrategySpec]
    models: list[str]
    seeds: list[int]
    budget: Budget
    usd: float | None
    limits: Limits
    measure: Measure
    max_tokens: int
    max_infra_share: float
    prices: dict[str, PriceTable]

    def episodes(self, image: Image) -> list[EpisodeSpec]:
        """Every cell; those of one target side by side, so that what is prepared for it is used.

        Raises UsageError when two cells are the same.
        """
        specs = [
            EpisodeSpec(
                target=target,
                image_ref=image.ref,
                image_digest=image.digest,
                strategy=one,
                model=model,
                seed=seed,
                budget=self.budget,
                limits=self.limits,
                measure=self.measure,
                max_tokens=self.max_tokens,
            )
            for target in self.targets
            for seed in self.seeds
            for model in self.models
            for one in self.strategies
        ]
        seen: dict[str, EpisodeSpec] = {}
        for spec in specs:
            other = seen.setdefault(spec.id, spec)
            if other is not spec:
                raise UsageError(
                    f"sweep {self.name!r} asks twice for {spec.target.module} x {spec.strategy.label} x "
                    f"{spec.model} x seed {spec.seed}: the strategy tables {other.strategy.label!r} and "
                    f"{spec.strategy.label!r}, the models or the seeds repeat each other"
                )
        return specs

    def resolved(self) -> dict[str, Any]:
        """For the manifest: everything that was decided, defaults included."""
        return {
            "name": self.name,
            "dataset": self.dataset.name,
            "targets": [target.module for target in self.targets],
            "strategies": [
                {"name": one.name, "label": one.label, "settings": dict(one.settings), "prompts": one.prompts}
                for one in self.strategies
            ],
            "models": self.models,
            "seeds": self.seeds,
            "budget": asdict(self.budget) | {"usd": self.usd},
            "limits": self.limits._asdict(),
            "measure": asdict(self.measure),
            "max_tokens": self.max_tokens,
            "prices": {model: asdict(price) for model, price in self.prices.items()},
        }


def read(file: Path, sets: Sequence[str] = (), models: Sequence[str] = ()) -> Sweep:
    """A sweep file with `--set` and `--model` applied. Raises UsageError."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{file} is not there") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    for one in sets:
        _set(table, one)
    if models:
        table["models"] = list(models)
    return from_table(table, str(file))


def from_table(table: dict[str, Any], where: str) -> Sweep:
    """A sweep from a parsed file. Raises UsageError."""
    said = read_table(SweepFile, table, where)
    chosen = read_table(TargetFilter, said.targets, f"{where}: [targets]")
    budget = read_table(BudgetTable, said.budget, f"{where}: [budget]")
    limits = read_table(LimitsTable, said.limits, f"{where}: [limits]")
    measure = read_table(Measure, said.measure, f"{where}: [measure]")
    prices = {
        model: read_table(PriceTable, price, f'{where}: [prices."{model}"]')
        for model, price in said.prices.items()
    }
    if not 0 <= said.max_infra_share <= 1:
        raise UsageError(f"{where}: max_infra_share = {said.max_infra_share} is not between 0 and 1")
    if said.max_tokens < 1:
        raise UsageError(f"{where}: max_tokens = {said.max_tokens} is not above 0")
    dataset = find(said.dataset)
    sweep = Sweep(
        name=said.name,
        dataset=dataset,
        targets=dataset.select(chosen.packages, chosen.modules, chosen.limit),
        strategies=[_strategy(one, f"{where}: [[strategy]] {n}") for n, one in enumerate(said.strategy, 1)],
        models=said.models,
        seeds=said.seeds,
        budget=Budget(budget.executions, budget.calls, budget.iterations),
        usd=budget.usd,
        limits=Limits(timeout_s=float(budget.step_timeout_s), **asdict(limits)),
        measure=measure,
        max_tokens=said.max_tokens,
        max_infra_share=said.max_infra_share,
        prices=prices,
    )
    for key in ("targets", "strategies", "models", "seeds"):
        if not getattr(sweep, key):
            raise UsageError(f"{where}: there is nothing to run: {key} is empty")
    _distinct_labels(sweep.strategies, where)
    return sweep


def planned_rows(sweep: Sweep, specs: Sequence[EpisodeSpec]) -> list[PlannedRow]:
    """One for each episode."""
    return [
        PlannedRow(
            episode_id=spec.id,
            sweep=sweep.name,
            dataset=spec.target.dataset,
            target=spec.target.module,
            package=spec.target.package,
            strategy=spec.strategy.name,
            label=spec.strategy.label,
            strategy_config=spec.strategy.config,
            model=spec.model,
            seed=spec.seed,
            spec=spec.to_json(),
            executions=spec.budget.executions,
            calls=spec.budget.calls,
            iterations=spec.budget.iterations,
            image=spec.image_ref,
            image_digest=spec.image_digest,
        )
        for spec in specs
    ]


def _strategy(table: dict[str, Any], where: str) -> StrategySpec:
    settings = dict(table)
    name, label = settings.pop("name", None), settings.pop("label", None)
    if not isinstance(name, str):
        raise UsageError(f"{where}: the key 'name' must be a text, it is {name!r}")
    if label is not None and not isinstance(label, str):
        raise UsageError(f"{where}: label = {label!r} is not a text")
    try:
        return strategy.load(name, label, settings)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _distinct_labels(strategies: Sequence[StrategySpec], where: str) -> None:
    labels = [one.label for one in strategies]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(
                f"{where}: {labels.count(label)} strategies are called {label!r}; give each its own label"
            )


def _set(table: dict[str, Any], text: str) -> None:
    """Apply one `--set budget.executions=12`; strategies by name or label: strategy.greedy.candidates=5."""
    key, mark, value_text = text.partition("=")
    parts = key.strip().split(".")
    if not mark or not all(parts):
        raise UsageError(f"--set {text!r}: it must look like budget.executions=12")
    place: Any = table
    for number, part in enumerate(parts[:-1]):
        if isinstance(place, list):
            named = [one for one in place if part in (one.get("label"), one.get("name"))]
            if len(named) != 1:
                known = [one.get("label", one.get("name")) for one in place]
                raise UsageError(
                    f"--set {text!r}: no one strategy is called {part!r}; {nearest(part, known)}"
                )
            place = named[0]
        else:
            place = place.setdefault(part, {})
        if not isinstance(place, (dict, list)):
            raise UsageError(f"--set {text!r}: {'.'.join(parts[: number + 1])} is {place!r}, not a table")
    if isinstance(place, list):
        raise UsageError(f"--set {text!r}: say which strategy: strategy.NAME.{parts[-1]}=...")
    try:
        place[parts[-1]] = tomllib.loads(f"value = {value_text}")["value"]
    except tomllib.TOMLDecodeError:
        place[parts[-1]] = value_text.strip()
