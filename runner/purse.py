"""A sweep's dollar cap: what is not in the purse is not spent, whoever asks at the same time.

Before a call, its upper bound is set aside; after it, its real cost is
taken and the rest put back. So the cap holds however many calls are under way.
"""

from __future__ import annotations

import itertools
import math
from typing import Protocol

from runner.limiter import Clock, Line, RealClock
from runner.nouns import Question
from runner.prices import Tariff, prompt_bound
from sandboxes.errors import BudgetSpent

RESERVED_S = 7200.0
"""A reservation that nobody settled for this long is of a process that died."""


class PursePort(Protocol):
    """A purse, here or in another process."""

    async def reserve(self, bound_usd: float) -> str:
        """Set aside what a call can cost at most; a reservation to settle.

        Waits while only the reservations of others are in the way, in order of arrival.
        Raises BudgetSpent when it cannot fit even if all of them came back whole.
        """
        ...

    async def settle(self, reservation: str, actual_usd: float | None) -> None:
        """Take what the call cost and put the rest back. None, unknown: it cost its bound."""
        ...

    async def left(self) -> float:
        """US dollars that are neither spent nor set aside."""
        ...


def upper_bound_usd(question: Question, tariff: Tariff) -> float:
    """US dollars that one call can cost at most, before it is made.

    A token of any tokenizer that falls back to bytes stands for at least one byte, so the
    UTF-8 bytes and what a chat template adds bound the prompt's tokens. Each is taken at the
    dearest class of the dearest tier within reach, and the answer at its full length.
    """
    prompt = prompt_bound(question.messages)
    reachable = [price for above, price in tariff.tiers if prompt > above]
    dearest = max(max(price.input, price.cached, price.cache_write) for price in reachable)
    return prompt * dearest + question.sampling.max_tokens * max(price.output for price in reachable)


class Purse:
    """A PursePort."""

    def __init__(self, cap_usd: float, spent_usd: float = 0.0, *, clock: Clock | None = None) -> None:
        """`spent_usd`: what earlier runs of the sweep spent, from the recorded calls."""
        if not 0 <= cap_usd < math.inf or not 0 <= spent_usd < math.inf:
            raise ValueError(f"a cap of {cap_usd} with {spent_usd} spent is none")
        self._cap = cap_usd
        self._spent = spent_usd
        self._clock = clock or RealClock()
        self._line = Line(self._clock)
        self._ids = itertools.count(1)
        self._aside: dict[str, tuple[float, float]] = {}
        """Reservation -> (bound, when it ends)."""
        self._lapsed: dict[str, float] = {}
        """Reservation -> the bound that was taken for it, should it be settled yet."""

    async def reserve(self, bound_usd: float) -> str:
        """See PursePort."""
        reservation = str(next(self._ids))

        def attempt() -> float:
            now = self._clock.now()
            self._lapse(now)
            if bound_usd > self._cap - self._spent:
                raise BudgetSpent(
                    f"the sweep's cap of ${self._cap:.2f} is reached: ${self._spent:.4f} are spent, and one "
                    f"more call may cost ${bound_usd:.4f}; raise budget.usd and run the same command again"
                )
            if bound_usd > self._free():
                return min(ends for _, ends in self._aside.values()) - now
            self._aside[reservation] = (bound_usd, now + RESERVED_S)
            return 0.0

        await self._line.go(attempt)
        return reservation

    async def settle(self, reservation: str, actual_usd: float | None) -> None:
        """See PursePort. A reservation that is not known, or was settled, is ignored."""
        if reservation in self._aside:
            bound, _ = self._aside.pop(reservation)
            self._spent += bound if actual_usd is None else actual_usd
        elif reservation in self._lapsed:
            bound = self._lapsed.pop(reservation)
            self._spent += 0.0 if actual_usd is None else actual_usd - bound
        self._line.moved()

    async def left(self) -> float:
        """See PursePort."""
        self._lapse(self._clock.now())
        return max(0.0, self._free())

    def _free(self) -> float:
        return self._cap - self._spent - math.fsum(bound for bound, _ in self._aside.values())

    def _lapse(self, now: float) -> None:
        for reservation in [name for name, (_, ends) in self._aside.items() if ends <= now]:
            bound, _ = self._aside.pop(reservation)
            self._spent += bound
            self._lapsed[reservation] = bound
