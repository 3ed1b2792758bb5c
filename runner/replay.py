"""`corridor replay`: an episode again, from its recorded calls, in a fresh sandbox.

Free, since no model is asked; and a proof that the run's numbers can be had again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

from runner.dataset import find
from runner.drive import SandboxKind
from runner.episode import Means, run_episode
from runner.nouns import EpisodeSpec
from runner.recorded import Recorded
from runner.schema import EpisodeRow, Row, StepRow, TargetRow
from runner.scripted import Silent
from runner.store import Recording, code_sha
from sandboxes.pool import Pool
from sandboxes.sandbox import Image

TIMES = frozenset(
    {"attempt", "duration_s", "cpu_s", "elapsed_s", "at", "node"}
    | {"wall_s", "model_s", "sandbox_s", "queue_s", "started_at", "finished_at"}
)
"""Columns that say when and how fast; every other one must come out the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replayed:
    """One episode, recorded and replayed."""

    episode_id: str
    target: str
    strategy: str
    steps: int
    differences: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether every number is the same."""
        return not self.differences


class Memory:
    """Rows that are kept, not written: what a Writer is to a run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Keep it."""
        self.rows.append(row)

    def add_code(self, text: str) -> str:
        """Its hash."""
        return code_sha(text)

    def add_target(self, row: TargetRow) -> None:
        """Keep it."""
        self.add(row)

    async def durable(self) -> None:
        """As durable as it gets."""


async def replay(
    where: str,
    starts: Sequence[str],
    sample: int | None,
    seed: int,
    sandbox: SandboxKind | None,
    trust: bool,
) -> list[Replayed]:
    """Replay the episodes named, or `sample` drawn ones. Raises UsageError, PrerequisiteError."""
    recorded = Recorded(where)
    episodes = recorded.find(starts)
    if sample is not None:
        known = sorted(set(recorded.specs) - set(episodes))
        episodes += random.Random(seed).sample(known, min(sample, len(known)))
    if not episodes:
        return []
    recordings = await asyncio.to_thread(recorded.run.recordings, set(episodes))
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in recorded.rows(set(episodes)):
        steps.setdefault(row["episode_id"], []).append(row)
    ends = {row["episode_id"]: row for row in recorded.episode_rows(set(episodes))}
    slots = os.cpu_count() or 1
    dataset = recorded.specs[episodes[0]].target.dataset
    backend, image = await recorded.place(find(dataset).recipe, dataset, sandbox, trust, slots)
    pool = Pool(backend, slots)
    try:
        return list(
            await asyncio.gather(
                *(
                    _one(pool, image, recorded.specs[one], recordings[one], steps.get(one, []), ends[one])
                    for one in episodes
                )
            )
        )
    finally:
        await pool.close()


async def _one(
    pool: Pool,
    image: Image,
    spec: EpisodeSpec,
    recording: Recording,
    steps: Sequence[Mapping[str, Any]],
    end: Mapping[str, Any],
) -> Replayed:
    memory = Memory()
    means = Means(
        slots=pool,
        image=image,
        model=Silent("replay"),
        writer=memory,
        purse=None,
        upper_bound_usd=lambda question: 0.0,
        sweep=end["sweep"],
    )
    row = (await run_episode(spec, end["attempt"], means, recording)).row
    again = [one for one in memory.rows if isinstance(one, StepRow)]
    differences = _differences("episode", end, row)
    if len(again) != len(steps):
        differences.append(f"{len(steps)} steps recorded, {len(again)} replayed")
    for known, new in zip(steps, again, strict=False):
        differences += _differences(f"step {known['step']}", known, new)
    return Replayed(spec.id, spec.target.module, spec.strategy.label, len(again), tuple(differences))


def _differences(what: str, known: Mapping[str, Any], new: EpisodeRow | StepRow) -> list[str]:
    found = []
    for field in dataclasses.fields(new):
        if field.name not in TIMES and known[field.name] != getattr(new, field.name):
            before, after = repr(known[field.name]), repr(getattr(new, field.name))
            found.append(f"{what}: {field.name} was {before:.120}, is {after:.120}")
    return found


def rendered(found: Sequence[Replayed], format: str) -> str:
    """As text, or one JSON document."""
    if format == "json":
        return json.dumps([dataclasses.asdict(one) | {"same": one.same} for one in found], indent=2)
    lines = []
    for one in found:
        verdict = "every number the same" if one.same else f"{len(one.differences)} differences"
        lines.append(f"{one.episode_id} {one.target} x {one.strategy}, {one.steps} steps: {verdict}")
        lines += [f"    {difference}" for difference in one.differences[:20]]
    lines.append(f"{sum(one.same for one in found)} of {len(found)} episodes the same")
    return "\n".join(lines)
