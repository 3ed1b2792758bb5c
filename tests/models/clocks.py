"""Clocks for tests: time that passes when a test says so, or at once."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class FakeClock:
    """Time stands still until a test lets it pass."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._slept = asyncio.Event()

    def now(self) -> float:
        return self._now

    async def somebody_sleeps(self) -> None:
        """Wait until somebody waits for time to pass."""
        await self._slept.wait()

    async def sleep(self, seconds: float) -> None:
        due = self._now + seconds
        assert due > self._now, f"a sleep of {seconds} s does not move the clock"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), future))
        self._slept.set()
        await future

    async def pass_(self, seconds: float) -> None:
        """Let time pass; whoever's sleep ends in it goes on at its moment."""
        until = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.cancelled():
                self._now = due
                future.set_result(None)
                await settle()
        self._now = until
        await settle()


class InstantClock:
    """Sleeps take no time and are kept; the clock believes them."""

    def __init__(self) -> None:
        self._now = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)


async def settle() -> None:
    """Until every task that can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)
