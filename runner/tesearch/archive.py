"""Suites by size niche, in each a Pareto front over coverage and mutation score.

TeSearch (arXiv 2610.15964), section 3: size is the behavior descriptor, quality decides
inside a niche. Bounds and the archive's value are the design's (section 6).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass

TIE = 1e-9
"""Hypervolumes closer than this are equal: they are products of ratios of counts, and those round."""

_UNBOUNDED_CENTRE = 1.4
"""What is asked of the niche without an upper bound, in terms of the last bound."""
_ONLY_CENTRE = 16
"""What is asked of one niche that holds every size: the middle one of the default bounds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A measured suite."""

    size: int
    """Test functions, at least 1."""
    coverage: float
    """c: the share of the module's executable lines that it executes, in [0, 1]."""
    mutation: float
    """m: the share of the module's mutant sample that it kills, in [0, 1]."""
    key: str
    """Names the suite to whoever holds its text; opaque here."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.size < 1:
            raise ValueError(f"a suite has at least 1 test, this one has {self.size}")
        for name in ("coverage", "mutation"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, it is {getattr(self, name)}")

    @property
    def hv(self) -> float:
        """Hypervolume c * m with the origin as reference, in [0, 1] (TeSearch, section 3)."""
        return self.coverage * self.mutation

    def beats(self, other: Entry) -> bool:
        """Pareto dominance over (c, m): at least as good in both and better in one."""
        return (
            self.coverage >= other.coverage
            and self.mutation >= other.mutation
            and (self.coverage, self.mutation) != (other.coverage, other.mutation)
        )


@dataclass(frozen=True, slots=True)
class Niches:
    """Intervals of suite size, numbered from 0 by growing size."""

    bounds: tuple[int, ...] = (3, 6, 10, 16, 25, 40)
    """Largest size of each niche but the last, which has none. () is one niche for all sizes."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if list(self.bounds) != sorted(set(self.bounds)) or min(self.bounds, default=1) < 1:
            raise ValueError(f"bounds of niches must grow, from at least 1; they are {self.bounds}")

    @property
    def count(self) -> int:
        """How many niches there are, at least 1."""
        return len(self.bounds) + 1

    def index(self, size: int) -> int:
        """The niche of a size. Raises ValueError for a size below 1."""
        if size < 1:
            raise ValueError(f"a suite of {size} tests is in no niche")
        return bisect.bisect_left(self.bounds, size)

    def interval(self, niche: int) -> tuple[int, int | None]:
        """(smallest, largest size) of a niche; None when it has no largest. Raises IndexError."""
        if not 0 <= niche < self.count:
            raise IndexError(f"there is no niche {niche} among {self.count}")
        low = self.bounds[niche - 1] + 1 if niche else 1
        return low, self.bounds[niche] if niche < len(self.bounds) else None

    def centre(self, niche: int) -> int:
        """The size to aim at, inside the niche. Raises IndexError.

        The geometric mean of the interval's ends, since landings miss by a factor and not
        by a number of tests; 1.4 times the last bound where there is no upper end.
        """
        low, high = self.interval(niche)
        if high is not None:
            return round(math.sqrt(low * high))
        return max(low, round(_UNBOUNDED_CENTRE * self.bounds[-1])) if self.bounds else _ONLY_CENTRE


class Archive:
    """The non-dominated suites of each niche. `Archive(Niches(()))` is one global front."""

    def __init__(self, niches: Niches) -> None:
        self.niches = niches
        self._fronts: list[list[Entry]] = [[] for _ in range(niches.count)]
        self._added: list[Entry] = []

    def add(self, entry: Entry) -> float:
        """Put a suite in; the rise of `value` that it brings, in [0, 1].

        It stays out when one in its niche beats it, or has equal c and m and is not larger.
        """
        self._added.append(entry)
        niche = self.niches.index(entry.size)
        front = self._fronts[niche]
        if any(other.beats(entry) or (_equal(other, entry) and other.size <= entry.size) for other in front):
            return 0.0
        kept = [other for other in front if not (entry.beats(other) or _equal(entry, other))]
        self._fronts[niche] = [*kept, entry]
        return max(0.0, _area(self._fronts[niche]) - _area(front))

    @property
    def value(self) -> float:
        """Sum over the niches of their fronts' hypervolume, in [0, niches.count]."""
        return sum(_area(front) for front in self._fronts)

    def front(self, niche: int) -> tuple[Entry, ...]:
        """A niche's suites, in the order they came. Raises IndexError."""
        self.niches.interval(niche)
        return tuple(self._fronts[niche])

    def entries(self) -> tuple[Entry, ...]:
        """Every suite that is kept, by niche and then in the order they came."""
        return tuple(entry for front in self._fronts for entry in front)

    def best(self) -> Entry | None:
        """The strongest suite that is kept; None when there is none."""
        return strongest(self.entries())

    def deliver(self) -> Entry | None:
        """The result of the search; None when nothing was added.

        The smallest suite of maximal hypervolume (TeSearch, section 3, definition 1) among
        all that were added. Those kept are not enough: with c or m at 0 a suite that is
        beaten has the same hypervolume, and may be the smaller one.
        """
        return strongest(self._added)


def strongest(entries: Iterable[Entry]) -> Entry | None:
    """The smallest of those of maximal hypervolume, of equal ones the first; None of none."""
    entries = list(entries)
    top = max((entry.hv for entry in entries), default=0.0)
    return min(
        (entry for entry in entries if entry.hv >= top - TIE), key=lambda entry: entry.size, default=None
    )


def hypervolume(points: Iterable[tuple[float, float]]) -> float:
    """Area of the union of the rectangles between (0, 0) and each point."""
    area = height = 0.0
    for width, top in sorted(points, reverse=True):
        if top > height:
            area += width * (top - height)
            height = top
    return area


def _area(front: Iterable[Entry]) -> float:
    return hypervolume((entry.coverage, entry.mutation) for entry in front)


def _equal(one: Entry, other: Entry) -> bool:
    return (one.coverage, one.mutation) == (other.coverage, other.mutation)
