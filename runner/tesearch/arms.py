"""Which niche the next call aims at: size-annealing UCB over the niches as arms.

TeSearch (arXiv 2610.15964), section 1: allocate calls across niches from the kernel's
predictions, "turning toward smaller suites only once quality is secured". The formula is
the design's (section 6).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

from runner.tesearch.archive import TIE

OPTIMISM = 1.0
"""gain_i of a niche without a call: the most that a call can add to one niche."""


class Choice(NamedTuple):
    """An arm, and why."""

    arm: int
    """The niche to aim at."""
    scores: tuple[float, ...]
    """U_j of every arm; empty when the arm was drawn by lot."""


class Arms:
    """One arm for each niche, and what pulling them brought."""

    def __init__(
        self,
        count: int,
        budget: int,
        *,
        annealing: float = 0.2,
        exploration: float = 0.2,
        epsilon: float = 0.02,
        policy: Literal["ucb", "random"] = "ucb",
    ) -> None:
        """`count` arms for `budget` calls, B. Raises ValueError.

        Args:
            count: Niches, at least 1.
            budget: B, at least 1.
            annealing: w, what a small suite is worth at the end, in archive value; 0 turns annealing off.
            exploration: beta, at least 0.
            epsilon: How far below the best hypervolume a suite may be and still secure its quality.
            policy: 'random' draws each niche with equal probability.
        """
        for name, value, least in (
            ("count", count, 1),
            ("budget", budget, 1),
            ("annealing", annealing, 0),
            ("exploration", exploration, 0),
            ("epsilon", epsilon, 0),
        ):
            if not value >= least:
                raise ValueError(f"{name} must be at least {least}, it is {value}")
        self._count = count
        self._budget = budget
        self._annealing = annealing
        self._exploration = exploration
        self._epsilon = epsilon
        self._policy = policy
        self._pulls = [0] * count
        self._gains: list[list[float]] = [[] for _ in range(count)]
        self._qualities: list[float] = []

    @property
    def call(self) -> int:
        """t: the number of the call that is chosen next, from 1."""
        return 1 + sum(self._pulls)

    @property
    def secured(self) -> bool:
        """Whether quality is secured, so that size may count.

        The design asks that some suite be within epsilon of the best hypervolume seen. The
        best one always is, so here it takes another: the suites of two calls agree that
        about this is what can be had. A new best by more than epsilon unsettles it again.
        """
        best = max(self._qualities, default=0.0)
        return best > 0 and sum(hv >= best - self._epsilon - TIE for hv in self._qualities) > 1

    @property
    def size_weight(self) -> float:
        """w_t = w * t / B once quality is secured, else 0."""
        return self._annealing * self.call / self._budget if self.secured else 0.0

    def gain(self, niche: int) -> float:
        """gain_i: the running mean archive gain of the calls that landed in a niche."""
        gains = self._gains[niche]
        return sum(gains) / len(gains) if gains else OPTIMISM

    def small(self, niche: int) -> float:
        """small_i: 1 for the niche of the smallest suites, evenly down to 0 for that of the largest."""
        return 1 - niche / max(1, self._count - 1)

    def choose(self, landings: Sequence[Sequence[float]], rng: random.Random) -> Choice:
        """The arm of highest U_j, of equal ones any.

        U_j = sum_i P(i|j) (gain_i + w_t small_i) + beta sqrt(ln t / (1 + n_j)) (design, section 6).

        Args:
            landings: P(i|j): for each arm j, the probability of each niche i that its call lands there.
            rng: Breaks ties, and draws the arm when the policy is 'random'.

        Raises:
            ValueError: `landings` is not one probability for each arm and niche.
        """
        if [len(landing) for landing in landings] != [self._count] * self._count:
            raise ValueError(f"{self._count} arms need {self._count} probabilities each")
        if self._policy == "random":
            return Choice(rng.randrange(self._count), ())
        weight = self.size_weight
        worth = [self.gain(niche) + weight * self.small(niche) for niche in range(self._count)]
        scores = tuple(
            sum(p * value for p, value in zip(landing, worth, strict=True))
            + self._exploration * math.sqrt(math.log(self.call) / (1 + pulls))
            for landing, pulls in zip(landings, self._pulls, strict=True)
        )
        # Equal scores differ in their last digits: probabilities sum to 1 only about.
        top = max(scores) - TIE
        return Choice(rng.choice([arm for arm, score in enumerate(scores) if score >= top]), scores)

    def observe(self, arm: int, landed: int | None, gain: float, hv: float) -> None:
        """Count a call in. Raises IndexError for an arm or niche that there is none of.

        Args:
            arm: The niche that it aimed at.
            landed: The niche that its suite landed in. None for a call without a suite: its gain
                counts in the niche it aimed at, else one that never answers would stay attractive.
            gain: What its suite added to the archive's value; 0 without a suite.
            hv: Its suite's hypervolume; 0 without a suite.
        """
        niche = arm if landed is None else landed
        if not (0 <= arm < self._count and 0 <= niche < self._count):
            raise IndexError(f"there is no arm {arm} or no niche {niche} among {self._count}")
        self._pulls[arm] += 1
        self._gains[niche].append(gain)
        self._qualities.append(hv)
