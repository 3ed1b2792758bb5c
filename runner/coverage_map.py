"""What an episode has covered so far: the state that exploration is guided by.

CovQValue (arXiv 2604.05159) section 3, "Coverage Maps as Exploration State": the set of
branches seen over all executions, C_t = C_(t-1) | B(a_t).
"""

from __future__ import annotations

from runner.nouns import Arc, Measurement, Step, TargetFacts


class CoverageMap:
    """Branches and lines covered, and how they came."""

    def __init__(self, facts: TargetFacts) -> None:
        self.branches: set[Arc] = set()
        self.lines: set[int] = set()
        self.branches_total = facts.branches_total
        self.lines_total = len(facts.statements)
        self.growth: list[int] = []
        """New branches of each step, in order."""

    def add(self, measurement: Measurement | None) -> tuple[frozenset[Arc], frozenset[int]]:
        """Count a step in; its (new branches, new lines). None, a step without coverage, adds nothing."""
        if measurement is None:
            measurement = Measurement(frozenset(), frozenset())
        new_branches = measurement.branches - self.branches
        new_lines = measurement.lines - self.lines
        self.branches |= new_branches
        self.lines |= new_lines
        self.growth.append(len(new_branches))
        return frozenset(new_branches), frozenset(new_lines)

    @property
    def stagnation(self) -> int:
        """Steps since the last that found a branch."""
        steps = 0
        for new in reversed(self.growth):
            if new:
                break
            steps += 1
        return steps

    def recent_rate(self, window: int = 5) -> float | None:
        """New branches a step over the last `window` steps; None before the first."""
        recent = self.growth[-window:]
        return sum(recent) / len(recent) if recent else None

    def best(self, history: list[Step], count: int = 3) -> list[Step]:
        """The steps that found the most new branches, first come first; only those that found any."""
        found = [step for step in history if step.new_branches]
        return sorted(found, key=lambda step: (-len(step.new_branches), step.number))[:count]
