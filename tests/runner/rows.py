"""Rows for tests: a complete one of each kind, to be changed where it matters."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from runner.nouns import content_id
from runner.schema import CallRow, EpisodeRow, PlannedRow, StepRow

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

_PLANNED: dict[str, Any] = dict.fromkeys(
    ("sweep", "dataset", "target", "package", "strategy", "label", "strategy_config", "model", "spec"), "x"
) | {"episode_id": "e", "seed": 1, "executions": 1, "calls": 1, "iterations": 1}


def planned(episode: str = "e", **changes: Any) -> PlannedRow:
    return PlannedRow(**_PLANNED | {"image": "i", "image_digest": "d", "episode_id": episode} | changes)


def episode(episode: str = "e", attempt: int = 1, **changes: Any) -> EpisodeRow:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(EpisodeRow):
        values[field.name] = None if "None" in str(field.type) else _some(str(field.type))
    return EpisodeRow(**values | {"episode_id": episode, "attempt": attempt, "end": "completed"} | changes)


def step(episode: str = "e", attempt: int = 1, number: int = 1, **changes: Any) -> StepRow:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(StepRow):
        values[field.name] = None if "None" in str(field.type) else _some(str(field.type))
    values |= {"episode_id": episode, "attempt": attempt, "step": number, "outcome": "passed"}
    return StepRow(**values | changes)


def call(episode: str = "e", attempt: int = 1, number: int = 1, **changes: Any) -> CallRow:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(CallRow):
        values[field.name] = None if "None" in str(field.type) else _some(str(field.type))
    values |= {"episode_id": episode, "attempt": attempt, "call": number, "response": f"answer {number}"}
    return CallRow(**values | {"prompt_sha": content_id(f"prompt {number}")} | changes)


def _some(kind: str) -> Any:
    """A value of a column's declared type."""
    values = {"str": "x", "int": 1, "float": 0.5, "bool": False, "datetime": AT}
    return values.get(kind, [])
