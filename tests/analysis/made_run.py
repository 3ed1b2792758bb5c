"""Runs made by hand for tests: real Parquet parts, written as the runner writes them."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from runner.nouns import canonical, content_id
from runner.parts import SUFFIX
from runner.schema import (
    CallRow,
    CodeRow,
    EpisodeRow,
    MutantRow,
    PlannedRow,
    Row,
    StepRow,
    TargetRow,
    to_arrow,
)
from runner.store import Run, code_sha

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

SETTINGS: dict[str, dict[str, Any]] = {
    "random": {"candidates": 3, "source_chars": 2500, "generate_temperature": 0.9, "score_temperature": 0.3},
    "greedy": {"candidates": 3, "source_chars": 2500, "generate_temperature": 0.9, "score_temperature": 0.3},
    "cov_greedy": {
        "candidates": 3,
        "source_chars": 2500,
        "generate_temperature": 0.9,
        "score_temperature": 0.3,
    },
    "cov_qvalue": {
        "plans": 3,
        "steps_per_plan": 3,
        "discount": 0.5,
        "diversity_hints": True,
        "scoring": "estimate",
        "source_chars": 2500,
        "generate_temperature": 0.9,
        "score_temperature": 0.3,
    },
}


def nulls(kind: type[Row]) -> dict[str, Any]:
    return dict.fromkeys(field.name for field in fields(kind))


@dataclass(frozen=True, slots=True)
class Cell:
    """What is planned: one episode."""

    target: str = "click.core"
    strategy: str = "greedy"
    model: str = "gpt-5.4-mini"
    seed: int = 42
    label: str = ""
    dataset: str = "repo_explore_bench"
    executions: int = 24
    changes: tuple[tuple[str, Any], ...] = ()
    """To the strategy's settings."""

    @property
    def id(self) -> str:
        decides = [
            self.dataset,
            self.target,
            self.strategy,
            self.config,
            self.model,
            self.seed,
            self.executions,
        ]
        return content_id(decides)

    @property
    def package(self) -> str:
        return self.target.split(".")[0]

    @property
    def config(self) -> str:
        return canonical(SETTINGS.get(self.strategy, {}) | dict(self.changes))

    def planned(self) -> PlannedRow:
        return PlannedRow(
            episode_id=self.id,
            sweep="made",
            dataset=self.dataset,
            target=self.target,
            package=self.package,
            strategy=self.strategy,
            label=self.label or self.strategy,
            strategy_config=self.config,
            model=self.model,
            seed=self.seed,
            spec="{}",
            executions=self.executions,
            calls=24,
            iterations=10,
            image="made:1",
            image_digest="sha256:made",
        )

    def ended(
        self, branches: int | None = 10, attempt: int = 1, end: str = "completed", **changes: Any
    ) -> EpisodeRow:
        """Its row; `branches` is None for an end that does not score."""
        scored = branches if end == "completed" else None
        values: dict[str, Any] = {
            "episode_id": self.id,
            "attempt": attempt,
            "sweep": "made",
            "dataset": self.dataset,
            "target": self.target,
            "package": self.package,
            "strategy": self.strategy,
            "label": self.label or self.strategy,
            "strategy_config": self.config,
            "model": self.model,
            "seed": self.seed,
            "end": end,
            "error": None if end == "completed" else "it broke",
            "error_detail": None,
            "executions": self.executions,
            "passed": self.executions // 2,
            "branches": scored,
            "branches_total": 100,
            "lines": None if scored is None else 2 * scored,
            "lines_total": 300,
            "calls": 30,
            "prompt_tokens": 1000,
            "cached_tokens": 0,
            "completion_tokens": 500,
            "cost_usd": 0.01,
            "wall_s": 60.0,
            "model_s": 30.0,
            "sandbox_s": 20.0,
            "queue_s": 1.0,
            "started_at": START + timedelta(minutes=attempt),
            "finished_at": START + timedelta(minutes=attempt + 1),
            "node": "here",
            "image": "made:1",
            "image_digest": "sha256:made",
        }
        return EpisodeRow(**nulls(EpisodeRow) | values | changes)

    def step(self, number: int = 1, attempt: int = 1, **changes: Any) -> StepRow:
        values: dict[str, Any] = {
            "episode_id": self.id,
            "attempt": attempt,
            "step": number,
            "round": number,
            "kind": "script",
            "outcome": "passed",
            "duration_s": 0.1,
            "cpu_s": 0.1,
            "branch_delta": [{"src": number, "dst": number + 1}],
            "line_delta": [number],
            "coverage_complete": True,
            "calls": number,
            "elapsed_s": float(number),
            "at": START + timedelta(seconds=30 * number),
        }
        return StepRow(**nulls(StepRow) | values | changes)

    def call(self, number: int = 1, attempt: int = 1, **changes: Any) -> CallRow:
        values: dict[str, Any] = {
            "episode_id": self.id,
            "attempt": attempt,
            "call": number,
            "step": number,
            "role": "generate",
            "model": self.model,
            "temperature": 0.9,
            "max_tokens": 100,
            "prompt_sha": "p",
            "prompt": "[]",
            "response": "print()",
            "cost_usd": 0.001,
            "latency_s": 0.5,
            "tries": 1,
            "replayed": False,
            "at": START,
        }
        return CallRow(**nulls(CallRow) | values | changes)

    def mutant(self, attempt: int = 1, verdict: str = "killed") -> MutantRow:
        return MutantRow(
            episode_id=self.id,
            attempt=attempt,
            step=1,
            mutant_id="m1",
            operator="swap",
            line=1,
            end_line=1,
            original="a",
            replacement="b",
            verdict=verdict,
            killed_by=None,
            path="fast",
            functions=1,
            ran=True,
            duration_s=0.1,
        )

    def found(self, **changes: Any) -> TargetRow:
        values: dict[str, Any] = {
            "dataset": self.dataset,
            "target": self.target,
            "package": self.package,
            "version": "1.0",
            "image": "made:1",
            "image_digest": "sha256:made",
            "file": f"/site/{self.target}.py",
            "branches_total": 100,
            "lines_total": 300,
            "mutants_total": None,
            "source": "pass",
        }
        return TargetRow(**values | changes)


def code(text: str) -> CodeRow:
    return CodeRow(code_sha=code_sha(text), text=text)


def write(run: Run, rows: Iterable[Row]) -> None:
    """Put rows into one part of each of their tables."""
    by_table: dict[str, list[Row]] = {}
    for row in rows:
        by_table.setdefault(row.table, []).append(row)
    for table, some in by_table.items():
        run.folder.write(table, f"part-{secrets.token_hex(6)}{SUFFIX}", to_arrow(table, some))


def make(where: Path, rows: Iterable[Row], **manifest: Any) -> Path:
    """A run with these rows; where it is."""
    run = Run(where)
    run.write_manifest({"sweep": {"name": "made"}, "images": {}} | manifest)
    write(run, rows)
    return where


def scores(values: Sequence[int], **same: Any) -> list[Row]:
    """Planned and completed episodes of one strategy, one target after the other."""
    cells = [replace(Cell(**same), target=f"click.m{index}") for index in range(len(values))]
    return [
        row for cell, value in zip(cells, values, strict=True) for row in (cell.planned(), cell.ended(value))
    ]


def sample(where: Path, seed: int = 0, models: Sequence[str] = ("gpt-5.4-mini",), targets: int = 6) -> Path:
    """A small sweep of the four strategies, with everything that can happen to an episode."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for model in models:
        for index in range(targets):
            for strategy in SETTINGS:
                cell = Cell(target=f"click.m{index}", strategy=strategy, model=model)
                rows.append(cell.planned())
                rows.append(cell.found())
                for attempt in range(1, draw.randrange(0, 3) + 1):
                    rows += [cell.step(number, attempt) for number in (1, 2, 3)]
                    rows += [cell.call(number, attempt) for number in (1, 2, 3)]
                    end = draw.choice(["completed", "completed", "completed", "infra_error", "model_error"])
                    if draw.random() < 0.9:
                        rows.append(cell.ended(draw.randrange(60), attempt, end))
    return make(where, rows)
