"""How strategies stand: counts and moments by strategy, and of pairs with a baseline.

The sums are SQL's (sql/standings.sql, sql/pairs.sql); rates and tests are derived here, each
None where there is nothing to derive it from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis.views import literal, query, sql

SPLITS = ("model", "dataset", "package")
"""What a leaderboard can be split by."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One strategy's planned episodes of one split. Those that score: `done`."""

    split: tuple[str, ...]
    label: str
    models: tuple[str, ...]
    planned: int
    done: int
    failed: int
    infra: int
    """Of the failed ones, for reasons of infrastructure."""
    targets: int
    """Distinct, with a score."""
    measured: int
    """Of the done ones, those that have a number of branches."""
    mean_branches: float | None
    sd_branches: float | None
    """Of the sample (n - 1); None for fewer than two."""
    mean_lines: float | None
    passed: int
    executions: int
    covered: int | None
    coverable: int | None
    suites: int
    """Of the done ones, those whose final suite was measured on mutants."""
    mean_size: float | None
    """Test functions of the final suites."""
    mean_mutation: float | None
    """Mean share of the sample's mutants that a final suite kills, in [0, 1]."""
    mean_hv: float | None
    """Mean of line coverage x mutation score, both of the final suite (TeSearch, section 3)."""
    known_usd: float | None
    unpriced: int
    """Of the done ones, those whose price is unknown."""

    @property
    def se_branches(self) -> float | None:
        """Standard error of the mean: the sample's standard deviation over the root of n."""
        if self.sd_branches is None:
            return None
        return self.sd_branches / math.sqrt(self.measured)

    @property
    def pass_rate(self) -> float | None:
        """Scripts and suites that passed, of those executed."""
        return self.passed / self.executions if self.executions else None

    @property
    def branch_share(self) -> float | None:
        """Branches covered, of those that the same modules have; each module weighs by its branches."""
        if self.covered is None or not self.coverable:
            return None
        return self.covered / self.coverable

    @property
    def usd(self) -> float | None:
        """US dollars of all done episodes; None when one of them has no price."""
        return None if self.unpriced else self.known_usd


@dataclass(frozen=True, slots=True)
class Pairing:
    """One strategy against the baseline on the same dataset, target, model and seed.

    CovQValue's Table 2 (arXiv 2604.05159) has the same statistics for CovQValue vs. Greedy.
    """

    cells: int
    """Planned combinations of dataset, target, model and seed."""
    pairs: int
    """Those of them where both have a score."""
    shared: int
    """Cells that are the mean of several episodes."""
    wins: int
    ties: int
    mean_difference: float | None
    sd_difference: float | None
    """Of the sample of differences (n - 1); None for fewer than two pairs."""

    @property
    def win_rate(self) -> float | None:
        """Pairs that it wins, of all pairs; a tie is a pair that is not won.

        The paper's tables count so: its first version prints wins over 93 or 140 targets.
        """
        return self.wins / self.pairs if self.pairs else None

    @property
    def cohens_d(self) -> float | None:
        """Cohen's d of paired samples (d_z): mean difference over the standard deviation of differences.

        This is the paper's d. From its means and standard errors, d of two samples (pooled
        standard deviation) would be 0.59, 0.33, 0.52, 0.38, 0.41 where Table 2 has 0.77, 0.49,
        0.68, 0.49, 0.51; and its published scripts divide by the differences' deviation (one
        with n - 1, one with n: 0.5 % apart for 93 pairs). None for fewer than two pairs, or
        when all differences are the same.
        """
        if self.mean_difference is None or not self.sd_difference or self.pairs < 2:
            return None
        return self.mean_difference / self.sd_difference

    @property
    def p_value(self) -> float | None:
        """Two-sided p of the paired t-test: that of scipy.stats.ttest_rel. None where d is None."""
        d = self.cohens_d
        if d is None:
            return None
        from scipy.special import stdtr  # scipy.stats would take seconds to import

        return float(2 * stdtr(self.pairs - 1, -abs(d) * math.sqrt(self.pairs)))


def standings(
    con: duckdb.DuckDBPyConnection, by: Sequence[str] = (), planned: str = "planned"
) -> list[Standing]:
    """Every strategy that has planned episodes, for each split by `by`.

    `planned` is a query in parentheses that stands in for the view, to put other labels on
    strategies. Raises StoreError.
    """
    found = []
    for row in query(con, sql("standings", by=_by(by), planned=planned)).dicts():
        counts = {name: int(row[name] or 0) for name in ("passed", "executions")}
        found.append(Standing(**_without_split(row, by) | counts | {"models": tuple(row["models"])}))
    return found


def pairings(
    con: duckdb.DuckDBPyConnection, baseline: str, by: Sequence[str] = (), planned: str = "planned"
) -> dict[tuple[tuple[str, ...], str], Pairing]:
    """By (split, label): each strategy against the one labelled `baseline`. See `standings`."""
    text = sql("pairs", by=_by(by), planned=planned, baseline=literal(baseline))
    found = {}
    for row in query(con, text).dicts():
        values = _without_split(row, by)
        split, label = values.pop("split"), values.pop("label")
        found[split, label] = Pairing(**values)
    return found


def _by(by: Sequence[str]) -> str:
    return ", ".join(f"p.{name}" for name in by) or "null as everything"


def _without_split(row: dict[str, Any], by: Sequence[str]) -> dict[str, Any]:
    values = {name: value for name, value in row.items() if name not in (*by, "everything")}
    return values | {"split": tuple(str(row[name]) for name in by)}
