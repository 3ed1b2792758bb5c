"""Slots: one user at a time, never more than there are, known targets first, nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from sandboxes.errors import PrerequisiteError, SandboxLost
from sandboxes.fake import IMAGE, FakeBackend
from sandboxes.pool import OVERTAKEN, Pool
from sandboxes.sandbox import Image, Limits, StepOutcome
from tests.sandboxes.conformance import PRELUDES, Stand
from tests.sandboxes.test_fake import FACTS

OTHER = replace(IMAGE, digest="other")
LIMITS = Limits()


def fake() -> FakeBackend:
    """The pool prepares and executes nothing: no targets, no answers."""
    return FakeBackend([], [])


async def test_sandboxes_are_opened_when_needed_and_kept() -> None:
    boxes = fake()
    pool = Pool(boxes, 3)
    for _ in range(5):
        async with pool.slot(IMAGE, "m"):
            pass
    assert len(boxes.opened) == pool.open == 1
    await pool.close()
    assert boxes.opened[0].closed
    assert pool.open == 0


async def test_no_more_than_there_are_and_each_has_one_user() -> None:
    boxes = fake()
    pool = Pool(boxes, 2)
    using: list[object] = []
    most = 0

    async def use(number: int) -> None:
        nonlocal most
        async with pool.slot(IMAGE, f"m{number % 3}") as box:
            assert box not in using
            using.append(box)
            most = max(most, len(using))
            await asyncio.sleep(0)
            using.remove(box)

    await asyncio.gather(*(use(number) for number in range(30)))
    assert most == 2
    assert len(boxes.opened) == 2
    assert pool.waiting == 0


async def test_only_slots_that_are_held_are_busy() -> None:
    pool = Pool(fake(), 2)
    assert pool.busy_s == 0
    async with pool.slot(IMAGE, "m"):
        some = pool.busy_s
        async with pool.slot(IMAGE, "m"):
            pass
        assert pool.busy_s > some > 0
    after = pool.busy_s
    assert after > some
    assert pool.busy_s == after


async def hold(pool: Pool, image: Image, target: str) -> contextlib.AsyncExitStack:
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(pool.slot(image, target))
    return stack


def waits(pool: Pool, image: Image, target: str, served: list[str]) -> asyncio.Task[None]:
    """Somebody who is served, which `served` tells, and leaves."""

    async def wait() -> None:
        async with pool.slot(image, target):
            served.append(target)

    return asyncio.create_task(wait())


async def all_wait(pool: Pool, number: int) -> None:
    while pool.waiting < number:  # noqa: ASYNC110  # a few turns of the loop
        await asyncio.sleep(0)


async def test_whoever_needs_what_a_sandbox_knows_goes_first() -> None:
    pool = Pool(fake(), 1)
    served: list[str] = []
    first = await hold(pool, IMAGE, "known")
    tasks = [waits(pool, IMAGE, target, served) for target in ("new", "known")]
    await all_wait(pool, 2)
    await first.aclose()
    await asyncio.gather(*tasks)
    assert served == ["known", "new"]


async def test_others_are_served_in_order() -> None:
    pool = Pool(fake(), 1)
    served: list[str] = []
    first = await hold(pool, IMAGE, "known")
    targets = [f"m{number}" for number in range(20)]
    tasks = [waits(pool, IMAGE, target, served) for target in targets]
    await all_wait(pool, 20)
    await first.aclose()
    await asyncio.gather(*tasks)
    assert served == targets


async def test_nobody_is_overtaken_more_than_the_bound() -> None:
    pool = Pool(fake(), 1)
    served: list[str] = []
    first = await hold(pool, IMAGE, "known")
    patient = [waits(pool, IMAGE, f"new{number}", served) for number in range(3)]
    await all_wait(pool, 3)
    eager = [waits(pool, IMAGE, "known", served) for _ in range(3 * OVERTAKEN)]
    await all_wait(pool, 3 + len(eager))
    await first.aclose()
    await asyncio.gather(*patient, *eager)
    # Served by the bound, one after the other: who stands behind is overtaken no more than the first.
    assert [served.index(f"new{number}") for number in range(3)] == [OVERTAKEN, OVERTAKEN + 1, OVERTAKEN + 2]


async def test_the_sandbox_that_knows_the_target_is_taken_before_others() -> None:
    boxes = fake()
    pool = Pool(boxes, 3)
    both = [await hold(pool, IMAGE, target) for target in ("a", "b")]
    for one in both:
        await one.aclose()
    for target, index in (("b", 1), ("a", 0), ("b", 1)):
        async with pool.slot(IMAGE, target) as box:
            assert box is boxes.opened[index]
    async with pool.slot(IMAGE, "new"):
        assert len(boxes.opened) == 2, "an open sandbox serves before another is opened"


async def test_a_lost_sandbox_is_replaced() -> None:
    boxes = FakeBackend([FACTS], [SandboxLost("gone")])
    pool = Pool(boxes, 1)
    with pytest.raises(SandboxLost, match="gone"):
        async with pool.slot(IMAGE, FACTS.target) as box:
            await box.execute(FACTS.target, "", LIMITS)
    assert boxes.opened[0].closed
    async with pool.slot(IMAGE, "m") as box:
        assert box is boxes.opened[1]


async def test_another_image_takes_the_place() -> None:
    boxes = fake()
    pool = Pool(boxes, 1)
    async with pool.slot(IMAGE, "m"):
        pass
    async with pool.slot(OTHER, "m"):
        pass
    assert [(box.image, box.closed) for box in boxes.opened] == [(IMAGE, True), (OTHER, False)]


async def test_a_place_that_cannot_be_opened_is_not_lost() -> None:
    boxes = fake()
    pool = Pool(boxes, 1)
    boxes.refusal = PrerequisiteError("no engine")
    for _ in range(3):
        with pytest.raises(PrerequisiteError, match="no engine"):
            async with pool.slot(IMAGE, "m"):
                pass
    boxes.refusal = None
    async with pool.slot(IMAGE, "m") as box:
        assert box is boxes.opened[0]


async def test_who_stops_waiting_loses_no_slot() -> None:
    pool = Pool(fake(), 1)
    first = await hold(pool, IMAGE, "m")

    async def use() -> None:
        async with pool.slot(IMAGE, "m"):
            pass

    waiting = [asyncio.create_task(use()) for _ in range(4)]
    await all_wait(pool, 4)
    waiting[0].cancel()
    release = asyncio.create_task(first.aclose())
    waiting[1].cancel()
    await release
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(5), pool.slot(IMAGE, "m"):
        assert pool.waiting == 0


async def test_a_closed_pool_lends_nothing() -> None:
    boxes = fake()
    pool = Pool(boxes, 1)
    held = await hold(pool, IMAGE, "m")
    served: list[str] = []
    waiting = waits(pool, IMAGE, "m", served)
    await all_wait(pool, 1)
    await pool.close()
    for refused in (waiting, waits(pool, IMAGE, "m", served)):
        with pytest.raises(SandboxLost, match="pool"):
            await refused
    await held.aclose()
    assert served == []
    assert boxes.opened[0].closed
    assert (pool.open, pool.waiting) == (0, 0)


async def test_it_lends_containers(docker_stand: Stand) -> None:
    pool = Pool(docker_stand.backend, 2)
    (target, prelude), *_ = PRELUDES.items()

    async def use() -> object:
        async with pool.slot(docker_stand.image, target) as sandbox:
            report = await sandbox.execute(target, prelude, LIMITS)
            assert report.outcome is StepOutcome.PASSED
            return report.measurement

    try:
        found = await asyncio.gather(*(use() for _ in range(6)))
        assert len(set(found)) == 1
        assert pool.open == 2
    finally:
        await pool.close()
