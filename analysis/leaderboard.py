"""The leaderboard: the columns of CovQValue's Tables 2 and 4 (arXiv 2604.05159) for any runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from analysis import stand_ins
from analysis.standings import SPLITS, Pairing, Standing, pairings, standings
from analysis.table import Column, Kind, Missing, Table
from analysis.views import allowed_infra_share, query
from sandboxes.errors import UsageError

MAX_INFRA_SHARE = 0.02
"""Of ended episodes: above it a table does not rank, unless the sweep says otherwise."""


def leaderboard(
    con: duckdb.DuckDBPyConnection,
    by: Sequence[str] = ("model",),
    baseline: str = "greedy",
    max_infra_share: float | None = None,
) -> Table:
    """Strategies (by label) of each split, best mean of branches first, each against the baseline.

    Only planned episodes count. Means are over the episodes that score; a pair is two scores
    of the same dataset, target, model and seed. `by` may hold SPLITS. `max_infra_share`: None
    takes the strictest of the runs' manifests, else MAX_INFRA_SHARE; above it, rows have no
    rank. Raises UsageError for another split, StoreError.
    """
    for name in by:
        if name not in SPLITS:
            raise UsageError(f"a leaderboard cannot be split by {name!r}; choose of {', '.join(SPLITS)}")
    by = tuple(dict.fromkeys(by))
    if max_infra_share is None:
        declared = allowed_infra_share(con)
        max_infra_share = MAX_INFRA_SHARE if declared is None else declared
    found = standings(con, by)
    paired = pairings(con, baseline, by)
    refusal = _refusal(found, max_infra_share)
    ordered = _ranked(found, ranking=refusal is None)
    with_suites = any(one.suites for one in found)
    flagged = any(stand_ins.is_stand_in(model) for one in found for model in one.models)
    rows = [
        _row(one, rank, paired[one.split, one.label], baseline, flagged, with_suites) for one, rank in ordered
    ]
    notes = [
        *([refusal] if refusal else []),
        *stand_ins.notes(model for one in found for model in one.models),
        *_gaps(found, paired.values(), baseline),
        *_unplanned(con),
    ]
    return Table("Leaderboard", _columns(by, baseline, flagged, with_suites), tuple(rows), tuple(notes))


_SUITE_COLUMNS = (
    Column("suite_size", Kind.NUMBER, "mean of test functions of an episode's final suite", title="size"),
    Column("mutation", Kind.SHARE, "mean share of the target's sample of mutants that a final suite kills"),
    Column(
        "hv",
        Kind.NUMBER,
        "mean of line coverage x mutation score of a final suite (TeSearch, section 3)",
        digits=3,
    ),
)


def _columns(by: Sequence[str], baseline: str, flagged: bool, with_suites: bool) -> tuple[Column, ...]:
    against = f"pairs with {baseline} on the same dataset, target, model and seed"
    return (
        Column("rank", Kind.COUNT, "by mean branches within the split; equal means share one"),
        *(Column(name, Kind.TEXT, "split") for name in by),
        *(
            [Column("stand_in", Kind.TEXT, "rows of models that are no LLM", title="stand-in")]
            if flagged
            else []
        ),
        Column("strategy", Kind.TEXT, "its label"),
        Column("n", Kind.COUNT, "episodes that score"),
        Column("missing", Kind.COUNT, "planned episodes without a score: failed or pending"),
        Column("branches", Kind.NUMBER, "mean of branches covered by an episode"),
        Column(
            "branches_se", Kind.SPREAD, "its standard error: sample standard deviation over the root of n"
        ),
        Column("lines", Kind.NUMBER, "mean of lines covered by an episode"),
        Column("pass_rate", Kind.SHARE, "scripts that passed, of those executed", title="passed"),
        Column(
            "branch_share",
            Kind.SHARE,
            "sum of branches covered, of the sum that the same modules have",
            title="covered",
        ),
        *(_SUITE_COLUMNS if with_suites else ()),
        Column("cost_usd", Kind.DOLLARS, "of the episodes that score; null when a price is unknown", "cost"),
        Column("pairs", Kind.COUNT, against),
        Column("unpaired", Kind.COUNT, "planned combinations of these that make no pair"),
        Column(
            "delta", Kind.NUMBER, f"mean difference of branches over {against}", f"Δ {baseline}", signed=True
        ),
        Column("win_rate", Kind.SHARE, "pairs with more branches, of all pairs; a tie is not won", "wins"),
        Column("p_value", Kind.PROBABILITY, "of the paired t-test, two-sided", "p"),
        Column(
            "cohens_d",
            Kind.NUMBER,
            "for paired samples: mean difference over the sample standard deviation of the differences",
            "d",
            digits=2,
        ),
    )


def _row(
    one: Standing, rank: int | None, pairing: Pairing, baseline: str, flagged: bool, with_suites: bool
) -> tuple[Any, ...]:
    mark = "stand-in" if any(map(stand_ins.is_stand_in, one.models)) else ""
    no_score = Missing("no episode has a score")
    return (
        rank,
        *one.split,
        *([mark] if flagged else []),
        one.label,
        one.done,
        one.planned - one.done,
        _or(one.mean_branches, no_score),
        one.se_branches,
        _or(one.mean_lines, no_score),
        _or(one.pass_rate, Missing("nothing was executed")),
        _or(one.branch_share, Missing("the modules' numbers of branches are unknown")),
        *(_suite(one) if with_suites else ()),
        _cost(one),
        *_against(one, pairing, baseline),
    )


def _suite(one: Standing) -> tuple[Any, ...]:
    unmeasured = Missing("no final suite was measured on mutants")
    return tuple(_or(value, unmeasured) for value in (one.mean_size, one.mean_mutation, one.mean_hv))


def _cost(one: Standing) -> float | Missing:
    if one.unpriced:
        known = f"; the others cost ${one.known_usd:.2f}" if one.known_usd is not None else ""
        return Missing(f"the price of {one.unpriced} of {one.done} episodes is unknown{known}")
    return _or(one.usd, Missing("no episode has a score"))


def _against(one: Standing, pairing: Pairing, baseline: str) -> tuple[Any, ...]:
    if one.label == baseline:
        itself = Missing("the baseline is not compared with itself")
        return (itself, itself, itself, itself, itself, itself)
    none = Missing(f"no pair with {baseline}")
    untested = none
    if pairing.pairs == 1:
        untested = Missing("one pair is too few for a test")
    elif pairing.pairs:
        untested = Missing("all differences are the same: there is no deviation to test against")
    return (
        pairing.pairs,
        pairing.cells - pairing.pairs,
        _or(pairing.mean_difference, none),
        _or(pairing.win_rate, none),
        _or(pairing.p_value, untested),
        _or(pairing.cohens_d, untested),
    )


def _or(value: float | None, reason: Missing) -> float | Missing:
    return reason if value is None else value


def _refusal(found: Sequence[Standing], allowed: float) -> str | None:
    """Why there is no ranking; None when there is one."""
    ended = sum(one.done + one.failed for one in found)
    infra = sum(one.infra for one in found)
    if not ended or infra / ended <= allowed:
        return None
    return (
        f"not ranked: {infra} of {ended} ended episodes failed for reasons of infrastructure, "
        f"{100 * infra / ended:.3g} %; at most {100 * allowed:.3g} % are allowed (max_infra_share). "
        f"Run the same command again to have them tried again"
    )


def _ranked(found: Iterable[Standing], ranking: bool) -> list[tuple[Standing, int | None]]:
    """In order of split and, when `ranking`, of mean branches; with the rank within the split."""
    if not ranking:
        return [(one, None) for one in sorted(found, key=lambda one: (one.split, one.label))]
    ordered = sorted(
        found,
        key=lambda one: (one.split, one.mean_branches is None, -(one.mean_branches or 0.0), one.label),
    )
    ranked: list[tuple[Standing, int | None]] = []
    for one in ordered:
        if one.mean_branches is None:
            ranked.append((one, None))
            continue
        better = sum(
            other.split == one.split
            and other.mean_branches is not None
            and other.mean_branches > one.mean_branches
            for other in ordered
        )
        ranked.append((one, better + 1))
    return ranked


def _gaps(found: Sequence[Standing], paired: Iterable[Pairing], baseline: str) -> list[str]:
    """What a reader of the means has to know about what is not in them."""
    notes = []
    planned = sum(one.planned for one in found)
    done = sum(one.done for one in found)
    failed = sum(one.failed for one in found)
    if done < planned:
        notes.append(
            f"{planned - done} of {planned} planned episodes have no score: {failed} failed, "
            f"{planned - done - failed} pending"
        )
    unmeasured = sum(one.done - one.measured for one in found)
    if unmeasured:
        notes.append(f"{unmeasured} episodes score without a number of branches: no mean holds them")
    labels = sorted({one.label for one in found})
    if found and baseline not in labels:
        notes.append(
            f"no strategy is labelled {baseline!r}: nothing to compare with; labels: {', '.join(labels)}"
        )
    shared = sum(one.shared for one in paired)
    if shared:
        notes.append(
            f"{shared} combinations of label, target, model and seed hold several episodes, with other "
            f"settings under one label: pairs take their mean"
        )
    return notes


def _unplanned(con: duckdb.DuckDBPyConnection) -> list[str]:
    ((count,),) = query(con, "select count(*) from episodes anti join planned using (episode_id)").rows
    return [f"{count} episodes have a row but were never planned: they do not count"] if count else []
