"""Who runs what when, and what a failure leads to: with workers that are plain objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from runner import dispatch
from runner.dispatch import ATTEMPTS, LOSSES, Assignment, Dispatcher, Outcome, WorkerLost, WorkerStats
from runner.nouns import Budget, EpisodeEnd, EpisodeSpec, Limits, StrategySpec, Target
from sandboxes.errors import PrerequisiteError, StoreError

Script = Callable[[Assignment], Awaitable[EpisodeEnd] | EpisodeEnd]


def spec(number: int) -> EpisodeSpec:
    return EpisodeSpec(
        target=Target("d", "some.module", "some", "1"),
        image_ref="i",
        image_digest="d",
        strategy=StrategySpec("random", "random", {}, ""),
        model="offline/scout",
        seed=number,
        budget=Budget(),
        limits=Limits(),
        max_tokens=10,
    )


def assignments(count: int) -> list[Assignment]:
    return [Assignment(spec(number), 1, replay=False) for number in range(count)]


class PlainHandle:
    """A worker that does what a function says."""

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self.ran: list[tuple[int, int]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._script = script
        self.engine: PrerequisiteError | None = None

    async def run(self, assignment: Assignment) -> Outcome:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            end = self._script(assignment)
            if not isinstance(end, EpisodeEnd):
                end = await end
        finally:
            self._at_once -= 1
        self.ran.append((assignment.spec.seed, assignment.attempt))
        error = None if end.scores else "because"
        return Outcome(
            assignment.spec.id, assignment.attempt, end, error, "l", assignment.spec.model, 1, 1, 1, 0.0
        )

    async def check(self) -> None:
        if self.engine is not None:
            raise self.engine

    async def stats(self) -> WorkerStats:
        return WorkerStats(self.name, 0, 0, 1, 0.0, 1.0, 1.0)

    async def close(self) -> None:
        return None


def fine(assignment: Assignment) -> EpisodeEnd:
    return EpisodeEnd.COMPLETED


def dispatcher(count: int, in_flight: int = 4) -> tuple[Dispatcher, list[tuple[Outcome, bool]]]:
    heard: list[tuple[Outcome, bool]] = []
    return Dispatcher(assignments(count), in_flight, lambda one, again: heard.append((one, again))), heard


async def test_everything_runs_once() -> None:
    one, heard = dispatcher(20)
    handles = [PlainHandle("a", fine), PlainHandle("b", fine)]
    for handle in handles:
        one.add(handle)
    await one.run()
    assert sorted(seed for handle in handles for seed, _ in handle.ran) == list(range(20))
    assert len(heard) == 20
    assert not any(again for _, again in heard)
    assert all(handle.ran for handle in handles)
    assert all(handle.most_at_once <= 4 for handle in handles)
    assert one.stopped is None


async def test_nothing_to_do_needs_no_worker() -> None:
    one, heard = dispatcher(0)
    await one.run()
    assert heard == []


@pytest.mark.parametrize(("end", "limit"), ATTEMPTS.items())
async def test_failures_are_tried_again_so_often(end: EpisodeEnd, limit: int) -> None:
    one, heard = dispatcher(1)
    handle = PlainHandle("a", lambda assignment: end)
    one.add(handle)
    await one.run()
    assert handle.ran == [(0, attempt) for attempt in range(1, limit + 1)]
    assert [again for _, again in heard] == [True] * (limit - 1) + [False]


async def test_a_later_attempt_replays() -> None:
    seen: list[tuple[int, bool]] = []

    def script(assignment: Assignment) -> EpisodeEnd:
        seen.append((assignment.attempt, assignment.replay))
        return EpisodeEnd.COMPLETED if assignment.attempt == 2 else EpisodeEnd.INFRA_ERROR

    one, _ = dispatcher(1)
    one.add(PlainHandle("a", script))
    await one.run()
    assert seen == [(1, False), (2, True)]


async def test_a_lost_worker_costs_its_episodes_an_attempt() -> None:
    lost: list[str] = []
    gone = asyncio.Event()

    async def dies(assignment: Assignment) -> EpisodeEnd:
        gone.set()
        raise WorkerLost("node gone")

    one, heard = dispatcher(12)
    survivor = PlainHandle("b", fine)
    one.on_loss(lambda handle: lost.append(handle.name))
    one.add(PlainHandle("a", dies))
    one.add(survivor)
    await one.run()
    assert lost == ["a"]
    assert [handle.name for handle in one.handles] == ["b"]
    assert sorted(seed for seed, _ in survivor.ran) == list(range(12))
    second = [seed for seed, attempt in survivor.ran if attempt == 2]
    assert 1 <= len(second) <= 4
    assert len(heard) == 12


async def test_what_a_lost_worker_had_committed_is_not_run_again() -> None:
    """It died between the commit and its answer."""

    async def dies(assignment: Assignment) -> EpisodeEnd:
        raise WorkerLost("killed")

    def committed(assignment: Assignment) -> Outcome | None:
        if assignment.spec.seed != 0:
            return None
        return Outcome(assignment.spec.id, 1, EpisodeEnd.COMPLETED, None, "l", "m", 1, 1, 1, 0.0)

    heard: list[Outcome] = []
    one = Dispatcher(assignments(2), 2, lambda outcome, again: heard.append(outcome), committed)
    fresh = PlainHandle("b", fine)
    one.on_loss(lambda handle: one.add(fresh))
    one.add(PlainHandle("a", dies))
    await one.run()
    assert fresh.ran == [(1, 2)]
    assert len(heard) == 2


async def test_a_replacement_takes_over() -> None:
    async def dies(assignment: Assignment) -> EpisodeEnd:
        raise WorkerLost("node gone")

    one, heard = dispatcher(6)
    fresh = PlainHandle("b", fine)
    one.on_loss(lambda handle: one.add(fresh))
    one.add(PlainHandle("a", dies))
    await one.run()
    assert len(heard) == 6
    assert {attempt for _, attempt in fresh.ran} == {1, 2}


async def test_an_episode_that_takes_its_workers_along_is_given_up() -> None:
    count = 0

    def another(handle: dispatch.Handle) -> None:
        nonlocal count
        count += 1
        one.add(PlainHandle(f"w{count}", poison))

    async def poison(assignment: Assignment) -> EpisodeEnd:
        if assignment.spec.seed == 0:
            raise WorkerLost("out of memory")
        return EpisodeEnd.COMPLETED

    one, heard = dispatcher(3, in_flight=1)
    one.on_loss(another)
    one.add(PlainHandle("w", poison))
    await one.run()
    assert [assignment.spec.seed for assignment in one.gave_up] == [0]
    assert count == LOSSES
    assert sorted(outcome.episode_id for outcome, _ in heard) == sorted([spec(1).id, spec(2).id])


async def test_spent_dollars_stop_the_rest() -> None:
    one, heard = dispatcher(50, in_flight=2)
    one.add(PlainHandle("a", lambda assignment: EpisodeEnd.BUDGET_EXHAUSTED))
    await one.run()
    assert 1 <= len(heard) <= 4
    assert one.stopped == "the sweep's dollars are spent"


async def test_a_model_that_answers_nobody_is_left_alone() -> None:
    class Refused(PlainHandle):
        async def run(self, assignment: Assignment) -> Outcome:
            return replace(await super().run(assignment), hopeless=True)

    one, heard = dispatcher(50, in_flight=2)
    one.add(Refused("a", lambda assignment: EpisodeEnd.MODEL_ERROR))
    await one.run()
    assert 1 <= len(heard) <= 3
    assert not any(again for _, again in heard)
    assert one.refused == "because"


async def test_a_dead_engine_ends_the_run() -> None:
    one, _ = dispatcher(50)
    handle = PlainHandle("a", lambda assignment: EpisodeEnd.INFRA_ERROR)
    handle.engine = PrerequisiteError("no Docker engine answers")
    one.add(handle)
    with pytest.raises(PrerequisiteError, match="no Docker engine"):
        await one.run()
    assert len(handle.ran) <= 8


async def test_a_full_disk_ends_the_run() -> None:
    async def full(assignment: Assignment) -> EpisodeEnd:
        raise StoreError("no room")

    one, _ = dispatcher(50)
    one.add(PlainHandle("a", full))
    with pytest.raises(StoreError, match="no room"):
        await one.run()


async def test_no_worker_can_be_had() -> None:
    one, _ = dispatcher(5)
    running = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    one.fail(PrerequisiteError("the image is missing"))
    with pytest.raises(PrerequisiteError, match="image is missing"):
        await running


async def test_no_worker_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PATIENCE_S", 0.01)
    one, _ = dispatcher(5)
    with pytest.raises(PrerequisiteError, match=r"no worker has come.*5 episodes are pending"):
        await one.run()


async def test_stopping_finishes_what_runs_and_begins_nothing() -> None:
    begun: list[int] = []
    both, release = asyncio.Event(), asyncio.Event()

    async def slow(assignment: Assignment) -> EpisodeEnd:
        begun.append(assignment.spec.seed)
        if len(begun) == 2:
            both.set()
        await release.wait()
        return EpisodeEnd.COMPLETED

    one, heard = dispatcher(10, in_flight=2)
    one.add(PlainHandle("a", slow))
    running = asyncio.create_task(one.run())
    await both.wait()
    one.stop("interrupted")
    release.set()
    await running
    assert len(begun) == len(heard) == 2


async def test_cancelling_ends_what_runs() -> None:
    cancelled: list[int] = []
    begun = asyncio.Event()

    async def slow(assignment: Assignment) -> EpisodeEnd:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(assignment.spec.seed)
            raise
        return EpisodeEnd.COMPLETED

    one, heard = dispatcher(10, in_flight=3)
    one.add(PlainHandle("a", slow))
    running = asyncio.create_task(one.run())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(cancelled) == 3
    assert heard == []
