from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from analysis.leaderboard import leaderboard
from analysis.standings import Pairing
from analysis.table import Table, render
from analysis.views import connect
from runner.schema import Row
from sandboxes.errors import UsageError
from tests.analysis.made_run import Cell, make, sample, scores


def board(where: Path, rows: Sequence[Row], by: Sequence[str] = (), **options: Any) -> Table:
    return leaderboard(connect([make(where / "run", rows)]), by=by, **options)


def by_strategy(table: Table) -> dict[str, dict[str, Any]]:
    return {row["strategy"]: row for row in table.records}


@pytest.mark.parametrize(
    ("values", "mean", "error"),
    [
        ([0], 0, None),
        ([7], 7, None),
        ([0, 0, 0], 0, 0),
        ([5, 5], 5, 0),
        ([1, 3], 2, 1),  # sample deviation sqrt(2), over the root of 2
        ([2, 4, 4, 4, 5, 5, 7, 9], 5, math.sqrt(32 / 7 / 8)),
    ],
)
def test_mean_branches_and_lines(values: list[int], mean: float, error: float | None, tmp_path: Path) -> None:
    row = by_strategy(board(tmp_path, scores(values)))["greedy"]
    assert (row["branches"], row["lines"], row["n"], row["missing"]) == (mean, 2 * mean, len(values), 0)
    assert row["branches_se"] == (None if error is None else pytest.approx(error))


@pytest.mark.parametrize(
    ("runs", "rate", "share"),
    [
        ([(0, 0, 0, 100)], None, 0),
        ([(0, 24, 0, 100)], 0, 0),
        ([(24, 24, 100, 100)], 1, 1),
        ([(23, 24, 99, 100), (24, 24, 100, 100)], 47 / 48, 199 / 200),
        ([(1, 1, 1, 2), (0, 9, 0, 8)], 1 / 10, 1 / 10),  # sums, not means of rates (1/2, 1/4)
        ([(1, 2, 5, None)], 1 / 2, None),
        ([(1, 2, 5, None), (1, 2, 5, 10)], 1 / 2, 1 / 2),
        ([(1, 2, 0, 0)], 1 / 2, None),
    ],
)
def test_rates_come_from_sums(
    runs: list[tuple[int, int, int, int | None]], rate: float | None, share: float | None, tmp_path: Path
) -> None:
    rows: list[Row] = []
    for seed, (passed, executions, branches, total) in enumerate(runs):
        cell = Cell(seed=seed)
        counts: dict[str, Any] = {"passed": passed, "executions": executions, "branches_total": total}
        rows += [cell.planned(), cell.ended(branches, **counts)]
    row = by_strategy(board(tmp_path, rows))["greedy"]
    assert (row["pass_rate"], row["branch_share"]) == (rate, share)


def test_only_ends_that_score_enter(tmp_path: Path) -> None:
    cells = [Cell(seed=seed) for seed in range(5)]
    rows: list[Row] = [cell.planned() for cell in cells]
    rows += [cells[0].ended(10), cells[1].ended(end="infra_error", passed=24, cost_usd=99.0)]
    rows += [cells[2].ended(end="budget_exhausted"), cells[3].ended(end="cancelled")]
    table = board(tmp_path, rows, max_infra_share=1.0)
    row = by_strategy(table)["greedy"]
    assert (row["n"], row["missing"], row["branches"], row["pass_rate"], row["cost_usd"]) == (
        1,
        4,
        10,
        0.5,
        0.01,
    )
    assert "4 of 5 planned episodes have no score: 3 failed, 1 pending" in table.notes


@pytest.mark.parametrize(
    ("costs", "total", "reason"),
    [
        ([0.5, 0.25], 0.75, None),
        ([0.0], 0.0, None),
        ([0.5, None], None, "the price of 1 of 2 episodes is unknown; the others cost $0.50"),
        ([None], None, "the price of 1 of 1 episodes is unknown"),
    ],
)
def test_cost_is_null_when_a_price_is_unknown(
    costs: list[float | None], total: float | None, reason: str | None, tmp_path: Path
) -> None:
    rows: list[Row] = []
    for seed, cost in enumerate(costs):
        rows += [Cell(seed=seed).planned(), Cell(seed=seed).ended(cost_usd=cost)]
    table = board(tmp_path, rows)
    assert by_strategy(table)["greedy"]["cost_usd"] == total
    missing = json.loads(render(table, "json"))["missing"]
    assert [one["reason"] for one in missing if one["column"] == "cost_usd"] == ([reason] if reason else [])


# own scores, the baseline's, then what the differences make: mean, wins of all, d
PAIRED = [
    ([3, 5, 10], [1, 5, 12], 0, 1 / 3, 0.0),  # +2, 0, -2: a tie is not won
    ([2, 4], [1, 1], 2, 1, 2 / math.sqrt(2)),  # +1, +3
    ([1, 2, 3, 4], [2, 2, 3, 4], -0.25, 0, -0.5),  # -1, 0, 0, 0: deviation 0.5
    ([9, 9, 9], [8, 8, 8], 1, 1, None),  # no deviation
    ([7, 7], [7, 7], 0, 0, None),
    ([4], [1], 3, 1, None),  # one pair
]


@pytest.mark.parametrize(("own", "base", "delta", "wins", "d"), PAIRED)
def test_pairs_with_the_baseline(
    own: list[int], base: list[int], delta: float, wins: float, d: float | None, tmp_path: Path
) -> None:
    rows = [*scores(own, strategy="random"), *scores(base)]
    row = by_strategy(board(tmp_path, rows))["random"]
    assert (row["pairs"], row["unpaired"]) == (len(own), 0)
    assert row["delta"] == pytest.approx(delta)
    assert row["win_rate"] == pytest.approx(wins)
    if d is None:
        assert row["cohens_d"] is row["p_value"] is None
    else:
        assert row["cohens_d"] == pytest.approx(d)
        assert row["p_value"] == pytest.approx(ttest_rel(own, base).pvalue)


def test_the_baseline_and_a_lonely_strategy_have_no_pairs(tmp_path: Path) -> None:
    table = board(tmp_path, [*scores([1, 2]), *scores([3, 4], strategy="random", seed=1)])
    rows = by_strategy(table)
    assert rows["greedy"]["pairs"] is rows["greedy"]["delta"] is None
    assert (rows["random"]["pairs"], rows["random"]["unpaired"], rows["random"]["delta"]) == (0, 2, None)
    assert "no pair with greedy" in render(table)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=60))
def test_p_is_that_of_the_paired_t_test(pairs: list[tuple[int, int]]) -> None:
    differences = [own - base for own, base in pairs]
    if len(set(differences)) == 1:
        return
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    wins, ties = sum(one > 0 for one in differences), sum(one == 0 for one in differences)
    pairing = Pairing(len(pairs), len(pairs), 0, wins, ties, mean, deviation)
    expected = ttest_rel(*zip(*pairs, strict=True)).pvalue
    assert pairing.p_value == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_pairing_is_by_target_model_seed_and_dataset(tmp_path: Path) -> None:
    rows: list[Row] = []
    changes: list[dict[str, Any]] = [
        {},
        {"target": "a.b"},
        {"model": "m2"},
        {"seed": 1},
        {"dataset": "other"},
    ]
    for change in changes:
        own, base = Cell(strategy="random", **change), Cell(**change)
        rows += [own.planned(), own.ended(10 + len(rows)), base.planned(), base.ended(5)]
    row = by_strategy(board(tmp_path, rows))["random"]
    assert (row["pairs"], row["unpaired"], row["win_rate"]) == (5, 0, 1)


def test_what_makes_no_pair_is_counted(tmp_path: Path) -> None:
    rows = [*scores([5, 6, 7], strategy="random"), *scores([1, 1, 1])]
    lost = Cell(target="click.m3", strategy="random")
    failed = Cell(target="click.m4")
    rows += [lost.planned(), failed.planned(), failed.ended(end="model_error")]
    for cell in (Cell(target="click.m4", strategy="random"), Cell(target="click.m3")):
        rows += [cell.planned(), cell.ended(50)]
    row = by_strategy(board(tmp_path, rows))["random"]
    assert (row["pairs"], row["unpaired"], row["n"], row["missing"], row["delta"]) == (3, 2, 4, 1, 5)


def test_several_episodes_of_one_cell_make_one_pair(tmp_path: Path) -> None:
    short, long, base = Cell(strategy="random", executions=12), Cell(strategy="random"), Cell()
    rows: list[Row] = []
    for cell, value in ((short, 4), (long, 8), (base, 5)):
        rows += [cell.planned(), cell.ended(value)]
    table = board(tmp_path, rows)
    row = by_strategy(table)["random"]
    assert (row["n"], row["pairs"], row["delta"]) == (2, 1, 1)
    assert any(
        note.startswith("1 combinations of label, target, model and seed hold several")
        for note in table.notes
    )


def test_ranks_within_a_split_with_ties(tmp_path: Path) -> None:
    rows: list[Row] = []
    for model in ("m1", "m2"):
        for strategy, value in (("greedy", 5), ("random", 9), ("cov_greedy", 9), ("cov_qvalue", 1)):
            cell = Cell(strategy=strategy, model=model)
            rows += [cell.planned(), cell.ended(value)]
    waiting = Cell(strategy="cov_qvalue", label="waiting", model="m2", executions=1)
    table = board(tmp_path, [*rows, waiting.planned()], by=("model",))
    assert [(row["model"], row["rank"], row["strategy"]) for row in table.records] == [
        ("m1", 1, "cov_greedy"),
        ("m1", 1, "random"),
        ("m1", 3, "greedy"),
        ("m1", 4, "cov_qvalue"),
        ("m2", 1, "cov_greedy"),
        ("m2", 1, "random"),
        ("m2", 3, "greedy"),
        ("m2", 4, "cov_qvalue"),
        ("m2", None, "waiting"),
    ]


def infra(failed: int, done: int) -> list[Row]:
    rows: list[Row] = []
    for seed in range(failed + done):
        cell = Cell(seed=seed)
        rows += [cell.planned(), cell.ended(end="infra_error") if seed < failed else cell.ended()]
    return rows


@pytest.mark.parametrize(
    ("failed", "done", "declared", "ranks"),
    [
        (0, 10, None, True),
        (1, 49, None, True),  # just the 2 % that are allowed
        (2, 49, None, False),
        (2, 49, 0.5, True),
        (1, 49, 0.0, False),
        (1, 0, None, False),
        (0, 0, 0.0, True),
    ],
)
def test_above_the_allowed_share_of_infrastructure_failures_nothing_is_ranked(
    failed: int, done: int, declared: float | None, ranks: bool, tmp_path: Path
) -> None:
    manifest = {} if declared is None else {"max_infra_share": declared}
    run = make(tmp_path / "run", infra(failed, done), **manifest)
    table = leaderboard(connect([run]))
    assert (not any(note.startswith("not ranked: ") for note in table.notes)) == ranks
    if not ranks:
        assert all(row["rank"] is None for row in table.records)
        assert len(table.rows) == 1
    elif done:
        assert table.records[0]["rank"] == 1


def test_the_refusal_says_why_and_an_argument_goes_before_the_manifest(tmp_path: Path) -> None:
    run = make(tmp_path / "run", infra(5, 95), max_infra_share=0.5)
    assert leaderboard(connect([run])).records[0]["rank"] == 1
    table = leaderboard(connect([run]), max_infra_share=0.04)
    assert table.notes[0].startswith(
        "not ranked: 5 of 100 ended episodes failed for reasons of infrastructure, 5 %; at most 4 % are"
    )


def test_pending_episodes_do_not_thin_out_the_share(tmp_path: Path) -> None:
    rows = infra(2, 49) + [Cell(seed=seed).planned() for seed in range(1000, 1100)]
    assert board(tmp_path, rows).records[0]["rank"] is None


def test_pending_and_other_failures_do_not_count_as_infrastructure(tmp_path: Path) -> None:
    rows = infra(1, 49)
    rows += [Cell(seed=seed).planned() for seed in range(1000, 1100)]
    for seed in range(2000, 2010):
        rows += [Cell(seed=seed).planned(), Cell(seed=seed).ended(end="model_error")]
    assert board(tmp_path, rows).records[0]["rank"] == 1


@pytest.mark.parametrize("model", ["offline/scout", "local/smollm2", "replay/runs/x", "scripted"])
@pytest.mark.parametrize("by", [(), ("model",)])
def test_stand_ins_are_marked(model: str, by: tuple[str, ...], tmp_path: Path) -> None:
    table = board(
        tmp_path, [*scores([1, 2], model=model), *scores([3], model="gpt-5.4-mini", strategy="random")], by=by
    )
    rows = by_strategy(table)
    assert (rows["greedy"]["stand_in"], rows["random"]["stand_in"]) == ("stand-in", "")
    assert any(note.startswith(f"{model} is a stand-in, not an LLM") for note in table.notes)


def test_models_of_the_papers_kind_are_not_marked(tmp_path: Path) -> None:
    table = board(tmp_path, scores([1, 2], model="gemini/gemini-3-flash-preview"))
    assert "stand_in" not in table.records[0]
    assert not any("stand-in" in note for note in table.notes)


def test_the_scout_is_said_to_be_no_llm(tmp_path: Path) -> None:
    assert (
        "offline/scout is a stand-in, not an LLM" in board(tmp_path, scores([1], model="offline/scout")).notes
    )


def test_episodes_that_were_never_planned_do_not_count_and_are_said(tmp_path: Path) -> None:
    table = board(tmp_path, [*scores([10]), Cell(seed=1).ended(99)])
    assert by_strategy(table)["greedy"]["branches"] == 10
    assert "1 episodes have a row but were never planned: they do not count" in table.notes


def test_a_score_without_branches_is_said(tmp_path: Path) -> None:
    table = board(tmp_path, [*scores([10]), Cell(seed=1).planned(), Cell(seed=1).ended(None)])
    row = by_strategy(table)["greedy"]
    assert (row["n"], row["branches"], row["branches_se"]) == (2, 10, None)
    assert any(note.startswith("1 episodes score without a number of branches") for note in table.notes)


def test_a_baseline_that_is_not_there(tmp_path: Path) -> None:
    table = board(tmp_path, scores([1, 2]), baseline="nothing")
    assert "no strategy is labelled 'nothing': nothing to compare with; labels: greedy" in table.notes
    assert by_strategy(table)["greedy"]["delta"] is None


def test_splits(tmp_path: Path) -> None:
    run = sample(tmp_path / "run", models=["a", "b"])
    con = connect([run])
    table = leaderboard(con, by=("package", "model", "dataset", "model"))
    assert table.records[0].keys() >= {"model", "dataset", "package"}
    assert len(table.rows) == 8
    with pytest.raises(UsageError, match="'seed'; choose of model, dataset, package"):
        leaderboard(con, by=("seed",))


def test_a_run_in_which_nothing_is_planned_makes_an_empty_table(tmp_path: Path) -> None:
    assert board(tmp_path, []).rows == ()


def test_two_runs_make_one_board(tmp_path: Path) -> None:
    a = make(tmp_path / "a", scores([1, 3]))
    b = make(tmp_path / "b", [*scores([9, 9]), *scores([5, 6], strategy="random")])
    rows = by_strategy(leaderboard(connect([a, b]), by=()))
    assert (rows["greedy"]["n"], rows["greedy"]["branches"]) == (2, 2)  # the same episodes count once, in a
    assert rows["random"]["delta"] == 3.5
