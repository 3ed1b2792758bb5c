"""The landing kernel: what size a model writes when a size is asked of it.

TeSearch (arXiv 2610.15964), section 1: the model is "a noisy actuator on the descriptor";
the kernel corrects its bias and predicts where each call lands. The form is the design's
(section 6): per mode, z = ln(landed / requested) is normal, its mean and spread are learnt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, Protocol, get_args

from runner.tesearch.archive import Niches

Mode = Literal["seed", "compression", "extension"]
"""How a suite is asked for: from nothing, smaller than the strongest parent, or not smaller."""

LARGEST_RATIO = 5.0
"""A landing further off than this counts as this far off.

An answer that its length limit cuts off lands as small however much is asked: without a
limit, requests would grow at each such answer.
"""
LEAST_SPREAD = 0.05
"""Of z: a model that has hit every request may still miss one."""
MEMORY = 0.95
"""What an error weighs at the next call; errors of some 20 calls count."""
PRIOR_CALLS = 2.0
"""Calls that the prior spread weighs as much as."""


class Kernel(Protocol):
    """What a search asks of its model of landings."""

    def request(self, mode: Mode, target: int) -> int:
        """The number of tests, at least 1, to ask for so that `target`, at least 1, come."""
        ...

    def landing(self, mode: Mode, requested: int, niches: Niches) -> tuple[float, ...]:
        """Probability of each niche that the answer to a request lands in it; the sum is 1."""
        ...

    def observe(self, mode: Mode, requested: int, landed: int) -> None:
        """Learn from a call. An answer of 0 tests is no landing, and nothing is learnt from it.

        Raises ValueError for a request below 1 or a landing below 0.
        """
        ...


class LandingKernel:
    """Learns bias and spread per mode, while the search goes on. Deterministic."""

    def __init__(self, rates: Sequence[float] = (0.02, 0.1, 0.3), prior_spread: float = 0.7) -> None:
        """From learning rates, each in (0, 1], and the spread of z that is believed before any call.

        A spread of 0.7 says that an answer of half or twice the request is nothing unusual.
        Raises ValueError.
        """
        if not rates or not all(0 < rate <= 1 for rate in rates):
            raise ValueError(f"learning rates must be above 0 and at most 1, they are {tuple(rates)}")
        if not prior_spread >= LEAST_SPREAD:
            raise ValueError(f"prior_spread must be at least {LEAST_SPREAD}, it is {prior_spread}")
        self._ratios: dict[Mode, _Ratio] = {mode: _Ratio(rates, prior_spread) for mode in get_args(Mode)}

    def mean(self, mode: Mode) -> float:
        """Of z; 0 before any call, below 0 for a model that writes fewer tests than asked."""
        return self._ratios[mode].mean

    def spread(self, mode: Mode) -> float:
        """Standard deviation of z, at least LEAST_SPREAD."""
        return self._ratios[mode].spread

    def request(self, mode: Mode, target: int) -> int:
        """max(1, round(target / exp(mean))) (design, section 6). See Kernel.request."""
        return max(1, round(target / math.exp(self.mean(mode))))

    def landing(self, mode: Mode, requested: int, niches: Niches) -> tuple[float, ...]:
        """Mass of requested * exp(z) in each niche; a size reaches half a test to both sides.

        What falls below 1 test is in the first niche. See Kernel.landing.
        """
        size = NormalDist(math.log(requested) + self.mean(mode), self.spread(mode))
        below = [0.0, *(size.cdf(math.log(bound + 0.5)) for bound in niches.bounds), 1.0]
        return tuple(high - low for low, high in itertools.pairwise(below))

    def observe(self, mode: Mode, requested: int, landed: int) -> None:
        """See Kernel.observe."""
        _check(requested, landed)
        if landed:
            limit = math.log(LARGEST_RATIO)
            self._ratios[mode].learn(max(-limit, min(limit, math.log(landed / requested))))


class Uncorrected:
    """The kernel switched off: asks for the target itself and expects to get it."""

    def request(self, mode: Mode, target: int) -> int:
        """The target. See Kernel.request."""
        return target

    def landing(self, mode: Mode, requested: int, niches: Niches) -> tuple[float, ...]:
        """Certainty of the request's own niche. See Kernel.landing."""
        expected = niches.index(requested)
        return tuple(float(niche == expected) for niche in range(niches.count))

    def observe(self, mode: Mode, requested: int, landed: int) -> None:
        """Checks, and learns nothing. See Kernel.observe."""
        _check(requested, landed)


class _Ratio:
    """Mean and spread of one mode's z.

    Least mean squares, once for each rate; the estimates are mixed by exp(-E / 2 spread^2), E
    an estimate's fading sum of squared errors: the likelihood of what each has said lately.
    A steady model is served by the slow rate, a drifting one by the fast. While 1 / (1 + calls)
    is above a rate it takes its place, so that the first calls give their plain mean with 0,
    the prior, as one of them.
    """

    def __init__(self, rates: Sequence[float], prior_spread: float) -> None:
        self._rates = tuple(rates)
        self._means = [0.0] * len(self._rates)
        self._errors = [0.0] * len(self._rates)
        self._weight = PRIOR_CALLS
        self._squares = PRIOR_CALLS * prior_spread**2
        self._calls = 0

    @property
    def mean(self) -> float:
        # Of the smallest error, so that one weight at least is 1 and none overflows.
        least = min(self._errors)
        weights = [math.exp((least - error) / (2 * self.spread**2)) for error in self._errors]
        return sum(weight * mean for weight, mean in zip(weights, self._means, strict=True)) / sum(weights)

    @property
    def spread(self) -> float:
        return max(LEAST_SPREAD, math.sqrt(self._squares / self._weight))

    def learn(self, z: float) -> None:
        self._squares = MEMORY * self._squares + (z - self.mean) ** 2
        self._weight = MEMORY * self._weight + 1
        self._calls += 1
        for index, rate in enumerate(self._rates):
            error = z - self._means[index]
            self._errors[index] = MEMORY * self._errors[index] + error**2
            self._means[index] += max(rate, 1 / (1 + self._calls)) * error


def _check(requested: int, landed: int) -> None:
    if requested < 1 or landed < 0:
        raise ValueError(f"no call asks for {requested} tests and gets {landed}")
