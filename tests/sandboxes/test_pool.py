"""Slots: one user at a time, never more than there are, known targets first, nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sandboxes.errors import PrerequisiteError, SandboxLost
from sandboxes.pool import OVERTAKEN, Pool
from sandboxes.sandbox import Cold, Image, Limits, StepReport, TargetFacts

IMAGE, OTHER = Image("a", "1", "plain"), Image("b", "2", "plain")


class Box:
    """A sandbox that only exists."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.dirty = False
        self.closed = False

    async def prepare(self, target: str) -> TargetFacts:
        raise AssertionError("the pool prepares nothing")

    async def execute(self, target: str, script: str, limits: Limits) -> StepReport:
        raise AssertionError("the pool executes nothing")

    async def close(self) -> None:
        self.closed = True


class Boxes:
    """A back end that counts what it opened."""

    name = "plain"

    def __init__(self) -> None:
        self.opened: list[Box] = []
        self.refuses = False

    async def open(self, image: Image) -> Box:
        if self.refuses:
            raise PrerequisiteError("no engine")
        self.opened.append(Box(image))
        return self.opened[-1]

    async def cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        raise AssertionError("the pool runs nothing")

    async def check(self) -> None:
        return None


async def test_sandboxes_are_opened_when_needed_and_kept() -> None:
    boxes = Boxes()
    pool = Pool(boxes, 3)
    for _ in range(5):
        async with pool.slot(IMAGE, "m"):
            pass
    assert len(boxes.opened) == 1
    await pool.close()
    assert boxes.opened[0].closed


async def test_no_more_than_there_are_and_each_has_one_user() -> None:
    boxes = Boxes()
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
    assert pool.busy_s > 0


async def hold(pool: Pool, image: Image, target: str) -> contextlib.AsyncExitStack:
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(pool.slot(image, target))
    return stack


async def test_whoever_needs_what_a_sandbox_knows_goes_first() -> None:
    pool = Pool(Boxes(), 1)
    order: list[str] = []
    first = await hold(pool, IMAGE, "known")

    async def wait(target: str) -> None:
        async with pool.slot(IMAGE, target):
            order.append(target)

    tasks = [asyncio.create_task(wait(target)) for target in ("new", "known")]
    while pool.waiting < 2:  # noqa: ASYNC110  # two turns of the loop
        await asyncio.sleep(0)
    await first.aclose()
    await asyncio.gather(*tasks)
    assert order == ["known", "new"]


async def test_nobody_is_overtaken_for_ever() -> None:
    pool = Pool(Boxes(), 1)
    served: list[str] = []
    first = await hold(pool, IMAGE, "known")

    async def wait(target: str) -> None:
        async with pool.slot(IMAGE, target):
            served.append(target)

    patient = asyncio.create_task(wait("new"))
    await asyncio.sleep(0)
    eager = [asyncio.create_task(wait("known")) for _ in range(3 * OVERTAKEN)]
    await asyncio.sleep(0)
    await first.aclose()
    await asyncio.gather(patient, *eager)
    assert served.index("new") == OVERTAKEN


async def test_a_dirty_or_lost_sandbox_is_replaced() -> None:
    boxes = Boxes()
    pool = Pool(boxes, 1)
    with pytest.raises(SandboxLost):
        async with pool.slot(IMAGE, "m") as box:
            box.dirty = True
            raise SandboxLost("gone")
    assert boxes.opened[0].closed
    async with pool.slot(IMAGE, "m") as box:
        assert box is boxes.opened[1]


async def test_another_image_takes_the_place() -> None:
    boxes = Boxes()
    pool = Pool(boxes, 1)
    async with pool.slot(IMAGE, "m"):
        pass
    async with pool.slot(OTHER, "m"):
        pass
    assert [(box.image, box.closed) for box in boxes.opened] == [(IMAGE, True), (OTHER, False)]


async def test_a_place_that_cannot_be_opened_is_not_lost() -> None:
    boxes = Boxes()
    pool = Pool(boxes, 1)
    boxes.refuses = True
    for _ in range(3):
        with pytest.raises(PrerequisiteError, match="no engine"):
            async with pool.slot(IMAGE, "m"):
                pass
    boxes.refuses = False
    async with pool.slot(IMAGE, "m") as box:
        assert box is boxes.opened[0]


async def test_who_stops_waiting_loses_no_slot() -> None:
    pool = Pool(Boxes(), 1)
    first = await hold(pool, IMAGE, "m")

    async def use() -> None:
        async with pool.slot(IMAGE, "m"):
            pass

    waiting = [asyncio.create_task(use()) for _ in range(4)]
    while pool.waiting < 4:  # noqa: ASYNC110  # a few turns of the loop
        await asyncio.sleep(0)
    waiting[0].cancel()
    release = asyncio.create_task(first.aclose())
    waiting[1].cancel()
    await release
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(5), pool.slot(IMAGE, "m"):
        assert pool.waiting == 0
