"""How fast a model may be asked: one limiter for each (provider, model) of a whole cluster.

Pure asyncio, with its clock and its dice handed in. It lives where it is made, or inside an
actor: whoever asks it needs a LimiterPort only, and all that crosses is small and picklable.

A call takes a lease, in order of arrival, when
- nobody has been told to come back later (Retry-After holds for all who wait for the model),
- the buckets of requests and tokens have enough in them, where rates are given, and
- fewer calls are under way than the window allows.

The window follows what the provider bears: 429 cuts it to four fifths, at most once in 15 s;
as many successes as it is wide, all while it was full, widen it by a twentieth. A lease ends
by itself when its holder died.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

START, MOST = 20, 100
CUT, RAISE = 0.8, 0.05
COOLDOWN_S = 15.0
"""After a cut the window rests: refusals of calls that were under way already say nothing new."""
BACKOFF_S, BACKOFF_MOST_S = 3.0, 1800.0
RAMP_S = 3.0
"""After a hold the window opens over this long, so that those who waited do not start as one."""
BURST_S = 10.0
"""A bucket holds what its rate yields in this time."""


class Clock(Protocol):
    """Time, so that tests can make it pass."""

    def now(self) -> float:
        """Seconds, monotonic."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class RealClock:
    """The machine's."""

    def now(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Pace:
    """What a provider is known to allow, and where the window starts."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    start: int = START
    most: int = MOST

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for name in ("requests_per_min", "tokens_per_min"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < math.inf:
                raise ValueError(f"{name} must be above 0, it is {rate}")
        if not 1 <= self.start <= self.most:
            raise ValueError(f"a window starts between 1 and its most, {self.most}; not at {self.start}")


class Grant(NamedTuple):
    """Leave to make one call, or not."""

    lease: str | None
    """None when the provider wants to be left alone for longer than the caller's patience."""
    held_s: float
    """How long that is; 0 with a lease."""


class Load(NamedTuple):
    """A limiter at one moment, for who watches."""

    window: int
    under_way: int
    """Calls, and places that are kept for a while after a refusal."""
    waiting: int
    held_s: float
    """Until the provider may be asked again."""


class LimiterPort(Protocol):
    """A limiter, here or in another process. A lease that was given back or ended is ignored."""

    async def acquire(self, tokens: int, patience_s: float, lease_s: float) -> Grant:
        """Wait for leave to send about so many tokens, prompt and answer.

        The lease ends `lease_s` after it was granted if it is not given back before.
        """
        ...

    async def release(self, lease: str, tokens: int | None) -> None:
        """Give a lease back: answered, with so many tokens really used.

        None: there was no answer, and nothing to learn from it.
        """
        ...

    async def back_off(self, lease: str, tries: int, retry_after_s: float | None, busy: bool) -> float:
        """Give a lease back after a failure that is worth another try; `tries` counts this one.

        Returns the seconds to wait before the next acquire. `busy`: the provider said that it
        was asked too much.
        """
        ...


class Line:
    """A fair queue: nobody goes before those who came earlier."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Event] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def go(self, attempt: Callable[[], float]) -> None:
        """Wait for one's turn, then until `attempt` returns 0: it has taken what it wanted.

        Otherwise it returns the seconds after which time alone may have changed that, and is
        called again then, or when something moved. What it raises ends the wait.
        """
        if not self._waiting and attempt() <= 0:
            return
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn:
                await turn.wait()
                turn.clear()
            while (delay := attempt()) > 0:
                await self._moved_or(turn, delay)
                turn.clear()
        finally:
            self._waiting.remove(turn)
            self.moved()

    def moved(self) -> None:
        """Something was given back: who is first may look again."""
        if self._waiting:
            self._waiting[0].set()

    async def _moved_or(self, turn: asyncio.Event, delay: float) -> None:
        if delay == math.inf:
            await turn.wait()
            return
        # A rounding error must not ask for a sleep that is too short to move the clock.
        sleep = self._clock.sleep(max(delay, 0.001))
        either = {asyncio.ensure_future(turn.wait()), asyncio.ensure_future(sleep)}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in either:
                task.cancel()


class _Bucket:
    """Yields a rate; what is larger than the bucket drains it below empty."""

    def __init__(self, per_min: float | None, now: float) -> None:
        self._rate = math.inf if per_min is None else per_min / 60
        self._size = max(1.0, self._rate * BURST_S)
        self._level, self._at = self._size, now

    def delay(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken."""
        if self._rate == math.inf:
            return 0.0
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, min(amount, self._size) - self._level) / self._rate

    def take(self, amount: float) -> None:
        """Out of it; a negative amount back in."""
        if self._rate < math.inf:
            self._level = min(self._size, self._level - amount)


class _Lease(NamedTuple):
    ends: float
    tokens: int


class Limiter:
    """The limiter of one model. See the module's docstring; a LimiterPort."""

    def __init__(self, model: str, pace: Pace | None = None, *, clock: Clock | None = None) -> None:
        """Its dice are seeded by the model's name."""
        self._pace = pace or Pace()
        self._clock = clock or RealClock()
        self._dice = random.Random(model)
        self._line = Line(self._clock)
        self._leases: dict[str, _Lease] = {}
        self._ids = itertools.count(1)
        self._window = float(self._pace.start)
        self._successes = 0
        self._rests_until = self._held_until = -math.inf
        self._requests = _Bucket(self._pace.requests_per_min, self._clock.now())
        self._tokens = _Bucket(self._pace.tokens_per_min, self._clock.now())

    async def acquire(self, tokens: int, patience_s: float, lease_s: float) -> Grant:
        """See LimiterPort."""
        granted: list[Grant] = []

        def attempt() -> float:
            now = self._clock.now()
            held = self._held_until - now
            if held > patience_s:
                granted.append(Grant(None, held))
                return 0.0
            delay = max(
                held, self._requests.delay(1, now), self._tokens.delay(tokens, now), self._room_in(now), 0.0
            )
            if not delay:
                self._requests.take(1)
                self._tokens.take(tokens)
                lease = str(next(self._ids))
                self._leases[lease] = _Lease(now + lease_s, tokens)
                granted.append(Grant(lease, 0.0))
            return delay

        await self._line.go(attempt)
        return granted[0]

    async def release(self, lease: str, tokens: int | None) -> None:
        """See LimiterPort."""
        full = len(self._leases) >= int(self._window)
        ended = self._end(lease)
        if ended is None or tokens is None:
            return
        self._tokens.take(tokens - ended.tokens)
        if full and self._clock.now() >= self._rests_until:
            self._successes += 1
            if self._successes >= int(self._window):
                self._successes = 0
                self._window = min(float(self._pace.most), self._window + max(1.0, RAISE * self._window))
                self._line.moved()

    async def back_off(self, lease: str, tries: int, retry_after_s: float | None, busy: bool) -> float:
        """See LimiterPort. Without a Retry-After: anything up to 3 s, 6 s, 12 s ... 30 min."""
        now = self._clock.now()
        known = self._end(lease) is not None
        if busy and known and now >= self._rests_until:
            self._window = max(1.0, CUT * self._window)
            self._successes = 0
            self._rests_until = now + COOLDOWN_S
        if retry_after_s is not None:
            # Whoever comes back waits in line for the hold to end, with all the others.
            self._held_until = max(self._held_until, now + retry_after_s)
            return 0.0
        wait = self._dice.uniform(0.0, min(BACKOFF_MOST_S, BACKOFF_S * 2.0 ** (tries - 1)))
        if busy and known:
            # It keeps its place in the window for a while: a provider that refuses at once would
            # otherwise be sent the whole line before the window has narrowed.
            self._leases[lease] = _Lease(now + min(wait, COOLDOWN_S), 0)
        return wait

    async def load(self) -> Load:
        """What is going on."""
        held = max(0.0, self._held_until - self._clock.now())
        return Load(int(self._window), len(self._leases), len(self._line), held)

    def _end(self, lease: str) -> _Lease | None:
        ended = self._leases.pop(lease, None)
        self._line.moved()
        return ended

    def _room_in(self, now: float) -> float:
        """Seconds until one more call may be under way, as far as time alone decides."""
        for lease in [lease for lease, held in self._leases.items() if held.ends <= now]:
            del self._leases[lease]
        window = int(self._window)
        under_way = len(self._leases)
        if under_way >= window:
            return min(lease.ends for lease in self._leases.values()) - now
        # Since a hold ended, one more call each RAMP_S / window.
        opens = self._held_until + under_way * RAMP_S / window
        return max(0.0, opens - now)
