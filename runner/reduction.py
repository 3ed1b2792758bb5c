"""A suite made smaller after it was written: as few tests as keep what all of them do.

Greedy set cover over lines and killed mutants, the classic of test-suite reduction that
TeSearch (arXiv 2610.15964, section 2) compares itself with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Covers:
    """What one test does."""

    lines: frozenset[int] = frozenset()
    """Of the module, that it executes."""
    kills: frozenset[str] = frozenset()
    """Ids of the mutants that it kills."""
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not self.duration_s >= 0:
            raise ValueError(f"duration_s must be at least 0, it is {self.duration_s}")

    @property
    def items(self) -> frozenset[int | str]:
        """Lines and mutants together; one counts as much as the other."""
        return self.lines | self.kills


def reduce(covers: Mapping[str, Covers]) -> list[str]:
    """Names of tests that execute every line and kill every mutant that all of them do.

    Takes, as long as anything is missing, the test that adds the most items, of equal ones
    the faster and then the earlier; then drops, in the order they were taken, those that
    the rest has made redundant. No test of the result can be left out. The names come in
    the mapping's order.
    """
    missing = frozenset[int | str]().union(*(test.items for test in covers.values()))
    taken: list[str] = []
    while missing:
        # The first of equal ones wins: max keeps it.
        best = max(covers, key=lambda name: (len(covers[name].items & missing), -covers[name].duration_s))
        taken.append(best)
        missing -= covers[best].items
    holders = Counter(item for name in taken for item in covers[name].items)
    kept = set(taken)
    for name in taken:
        items = covers[name].items
        if all(holders[item] > 1 for item in items):
            kept.remove(name)
            holders.subtract(items)
    return [name for name in covers if name in kept]
