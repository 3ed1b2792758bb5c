"""`corridor verify`: is what was recorded what plain `coverage run --branch` says?

Each sampled step's script runs in a fresh container and interpreter. Its branches and
lines must be the recorded ones; where the step says that its coverage is more than a
fresh run can see (coverage_complete false), they must be among them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from runner.dataset import find
from runner.drive import SandboxKind
from runner.episode import coverage_sha
from runner.recorded import Recorded, RecordedStep
from sandboxes.errors import UsageError
from sandboxes.pool import Pool
from sandboxes.sandbox import Backend, Cold, Image, Measurement


@dataclass(frozen=True, slots=True)
class Check:
    """One step, recorded and cold."""

    episode_id: str
    target: str
    step: int
    outcome: str
    complete: bool
    branches_agree: bool
    lines_agree: bool
    remark: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All sampled steps of a run."""

    run: str
    sampled: int
    equal: int
    """Complete steps whose branches and lines are equal to cold."""
    complete: int
    superset: int
    """Incomplete steps that hold all that cold saw."""
    incomplete: int
    branches_agree: int
    lines_agree: int
    disagreements: tuple[Check, ...]

    @property
    def agrees(self) -> bool:
        """Nothing disagrees."""
        return not self.disagreements


async def verify(
    where: str, sample: int, seed: int, sandbox: SandboxKind | None, trust: bool
) -> Verification:
    """Check `sample` steps of a run, drawn by `seed`. Raises UsageError, PrerequisiteError, SandboxError."""
    recorded = Recorded(where)
    steps = recorded.steps(set(recorded.specs))
    if not steps:
        raise UsageError(f"{where} has no executed step of a scored episode to verify")
    drawn = random.Random(seed).sample(steps, min(sample, len(steps)))
    drawn.sort(key=lambda step: step.spec.target.module)
    slots = os.cpu_count() or 1
    dataset = drawn[0].spec.target.dataset
    backend, image = await recorded.place(find(dataset).recipe, dataset, sandbox, trust, slots)
    pool = Pool(backend, slots)
    turns = asyncio.Semaphore(slots)
    try:
        checks = await asyncio.gather(*(_check(pool, backend, image, step, turns) for step in drawn))
    finally:
        await pool.close()
    return _summary(where, checks)


async def _check(
    pool: Pool, backend: Backend, image: Image, step: RecordedStep, turns: asyncio.Semaphore
) -> Check:
    target, row = step.spec.target.module, step.row
    async with turns:
        async with pool.slot(image, target) as sandbox:
            facts = await sandbox.prepare(target)
        cold = await backend.cold(image, facts, step.script, step.spec.limits)
        if _same(cold, row):
            return _made(step, True, True, "")
        # The record keeps what is new in a step, and a hash of the rest: run it warm to say what differs.
        async with pool.slot(image, target) as sandbox:
            warm = (await sandbox.execute(target, step.script, step.spec.limits)).measurement
    if not row["coverage_complete"]:
        return _superset(step, warm, cold)
    if warm is None or cold.measurement is None:
        missing = "warm" if warm is None else "cold"
        return _made(step, False, False, f"no {missing} coverage; cold exit code {cold.exit_code}")
    again = (
        "" if coverage_sha(warm.branches, warm.lines) == row["coverage_sha"] else "warm differs from record; "
    )
    return _made(
        step,
        warm.branches == cold.measurement.branches and not again,
        warm.lines == cold.measurement.lines and not again,
        again + _difference(warm, cold.measurement),
    )


def _same(cold: Cold, row: dict[str, object]) -> bool:
    found = cold.measurement
    return found is not None and coverage_sha(found.branches, found.lines) == row["coverage_sha"]


def _superset(step: RecordedStep, warm: Measurement | None, cold: Cold) -> Check:
    if cold.measurement is None:
        return _made(step, True, True, "cold lost its data")
    if warm is None:
        return _made(step, False, False, "no warm coverage")
    return _made(
        step,
        cold.measurement.branches <= warm.branches,
        cold.measurement.lines <= warm.lines,
        _difference(warm, cold.measurement),
    )


def _made(step: RecordedStep, branches: bool, lines: bool, remark: str) -> Check:
    row = step.row
    return Check(
        episode_id=row["episode_id"],
        target=step.spec.target.module,
        step=row["step"],
        outcome=row["outcome"],
        complete=row["coverage_complete"],
        branches_agree=branches,
        lines_agree=lines,
        remark=remark,
    )


def _difference(warm: Measurement, cold: Measurement) -> str:
    parts = []
    for name in ("branches", "lines"):
        ours, theirs = getattr(warm, name), getattr(cold, name)
        if ours - theirs:
            parts.append(f"{name} only warm: {sorted(ours - theirs)[:8]}")
        if theirs - ours:
            parts.append(f"{name} only cold: {sorted(theirs - ours)[:8]}")
    return "; ".join(parts)


def _summary(where: str, checks: Sequence[Check]) -> Verification:
    complete = [check for check in checks if check.complete]
    incomplete = [check for check in checks if not check.complete]
    wrong = tuple(check for check in checks if not (check.branches_agree and check.lines_agree))
    return Verification(
        run=where,
        sampled=len(checks),
        equal=sum(check.branches_agree and check.lines_agree for check in complete),
        complete=len(complete),
        superset=sum(check.branches_agree and check.lines_agree for check in incomplete),
        incomplete=len(incomplete),
        branches_agree=sum(check.branches_agree for check in checks),
        lines_agree=sum(check.lines_agree for check in checks),
        disagreements=wrong,
    )


def rendered(found: Verification, format: str) -> str:
    """As text, or one JSON document."""
    if format == "json":
        return json.dumps(asdict(found) | {"agrees": found.agrees}, indent=2)
    lines = [
        f"{found.run}: {found.sampled} steps run again in a fresh container and interpreter",
        f"complete steps equal to cold:        {found.equal} of {found.complete}",
        f"incomplete steps that hold all of it: {found.superset} of {found.incomplete}",
        f"branch sets agree: {found.branches_agree} of {found.sampled}",
        f"line sets agree:   {found.lines_agree} of {found.sampled}",
    ]
    lines += [
        f"DISAGREES: {check.episode_id} step {check.step} on {check.target} ({check.outcome}): {check.remark}"
        for check in found.disagreements
    ]
    return "\n".join(lines)
