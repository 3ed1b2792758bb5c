"""Few sandboxes for many episodes: a slot is a sandbox, lent for the length of one step.

A sandbox that has prepared a target keeps a zygote for it. So whoever waits for a target
that a freed sandbox knows is served before others, but nobody is overtaken more than
OVERTAKEN times.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sandboxes.errors import SandboxLost
from sandboxes.probe.server import MOST_ZYGOTES
from sandboxes.sandbox import Backend, Image, Sandbox

OVERTAKEN = 16
"""How often one who waits may see others served first."""


@dataclass(slots=True, eq=False)
class Place:
    """One of the pool's slots, and the sandbox in it."""

    image: Image | None = None
    sandbox: Sandbox | None = None
    knows: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Targets that its sandbox was lent for, least recently used first."""

    def suits(self, image: Image, target: str) -> int:
        """3: knows the target; 2: has the image; 1: has no sandbox yet; 0: has another image."""
        if self.sandbox is None:
            return 1
        if self.image != image:
            return 0
        return 3 if target in self.knows else 2

    def remember(self, target: str) -> None:
        """Its sandbox has a zygote for this target now, and may have given up its oldest."""
        self.knows[target] = None
        self.knows.move_to_end(target)
        while len(self.knows) > MOST_ZYGOTES:
            self.knows.popitem(last=False)

    async def empty(self) -> None:
        """Close its sandbox."""
        sandbox, self.sandbox = self.sandbox, None
        self.knows.clear()
        if sandbox is not None:
            await sandbox.close()


@dataclass(slots=True, eq=False)
class Request:
    """Somebody who waits for a slot."""

    image: Image
    target: str
    granted: asyncio.Future[Place]
    overtaken: int = 0


class Pool:
    """At most `slots` sandboxes of a back end: opened when needed, replaced when lost or dirty."""

    def __init__(self, backend: Backend, slots: int) -> None:
        self._backend = backend
        self._closed = False
        self._free = [Place() for _ in range(slots)]
        self._held: dict[Place, float] = {}
        self._queue: list[Request] = []
        self._busy_s = 0.0

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._queue)

    @property
    def open(self) -> int:
        """Sandboxes that are open, in use or not."""
        return sum(place.sandbox is not None for place in self._places())

    @property
    def busy_s(self) -> float:
        """Seconds that slots were held so far, summed over all."""
        now = time.monotonic()
        return self._busy_s + sum(now - since for since in self._held.values())

    @contextlib.asynccontextmanager
    async def slot(self, image: Image, target: str) -> AsyncIterator[Sandbox]:
        """A sandbox of `image` that nobody else uses meanwhile.

        Raises what Backend.open raises, and SandboxLost when the pool is closed. A sandbox
        that comes back dirty is closed.
        """
        place = await self._acquire(image, target)
        try:
            sandbox = await self._sandbox(place, image)
            place.remember(target)
            try:
                yield sandbox
            finally:
                if sandbox.dirty:
                    await place.empty()
        finally:
            self._release(place)

    async def close(self) -> None:
        """Close every sandbox; those in use are closed under their users' hands."""
        self._closed = True
        for request in self._queue:
            if not request.granted.done():
                request.granted.set_exception(_closed())
        self._queue.clear()
        await asyncio.gather(*(place.empty() for place in self._places()))

    def _places(self) -> list[Place]:
        return [*self._free, *self._held]

    async def _sandbox(self, place: Place, image: Image) -> Sandbox:
        """The place's sandbox of that image, opened now if need be."""
        if place.sandbox is not None and place.image == image:
            return place.sandbox
        await place.empty()
        sandbox = place.sandbox = await self._backend.open(image)
        place.image = image
        if self._closed:
            await place.empty()
            raise _closed()
        return sandbox

    async def _acquire(self, image: Image, target: str) -> Place:
        if self._closed:
            raise _closed()
        if self._free:
            place = max(self._free, key=lambda one: one.suits(image, target))
            self._free.remove(place)
        else:
            request = Request(image, target, asyncio.get_running_loop().create_future())
            self._queue.append(request)
            try:
                place = await request.granted
            except asyncio.CancelledError:
                if request in self._queue:
                    self._queue.remove(request)
                elif not request.granted.cancelled() and request.granted.exception() is None:
                    self._pass_on(request.granted.result())
                raise
        self._held[place] = time.monotonic()
        return place

    def _release(self, place: Place) -> None:
        self._busy_s += time.monotonic() - self._held.pop(place)
        self._pass_on(place)

    def _pass_on(self, place: Place) -> None:
        # Who was cancelled this very moment may still stand in the queue.
        self._queue = [request for request in self._queue if not request.granted.done()]
        if not self._queue:
            self._free.append(place)
            return
        request = self._next(place)
        position = self._queue.index(request)
        for earlier in self._queue[:position]:
            earlier.overtaken += 1
        self._queue.remove(request)
        request.granted.set_result(place)

    def _next(self, place: Place) -> Request:
        """Whom it suits best, the first of equals; nobody behind one who was overtaken enough."""
        candidates = []
        for request in self._queue:
            candidates.append(request)
            if request.overtaken >= OVERTAKEN:
                break
        return max(candidates, key=lambda one: place.suits(one.image, one.target))


def _closed() -> SandboxLost:
    return SandboxLost("the pool of sandboxes is closed")
