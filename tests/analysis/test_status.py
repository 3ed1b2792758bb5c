from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.status import FAILURES, status
from analysis.table import render
from analysis.views import connect
from runner.nouns import EpisodeEnd
from runner.schema import Row
from tests.analysis.made_run import Cell, make, sample


def lines(where: Path, rows: list[Row]) -> dict[str, dict[str, Any]]:
    return {row["strategy"]: row for row in status(connect([make(where / "run", rows)])).records}


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    found = lines(tmp_path, [])
    assert list(found) == ["all"]
    assert (found["all"]["planned"], found["all"]["usd"], found["all"]["steps_per_min"]) == (0, 0, None)


def test_counts_by_end_and_strategy(tmp_path: Path) -> None:
    ends = list(EpisodeEnd)
    cells = [Cell(seed=seed) for seed in range(len(ends) + 1)]
    rows: list[Row] = [cell.planned() for cell in cells]
    rows += [cell.ended(8, end=end) for cell, end in zip(cells, ends, strict=False)]
    rows += [Cell(strategy="random").planned(), Cell(strategy="random", seed=1).ended(99)]
    found = lines(tmp_path, rows)
    greedy = found["greedy"]
    assert (greedy["planned"], greedy["done"], greedy["failed"], greedy["pending"]) == (6, 1, 4, 1)
    assert {end: greedy[end] for end in FAILURES} == dict.fromkeys(FAILURES, 1)
    assert greedy["branches"] == 8
    everything = found["all"]
    assert (everything["planned"], everything["done"], everything["failed"], everything["pending"]) == (
        7,
        1,
        4,
        2,
    )
    assert everything["branches"] == 8


def test_rates_steps_and_dollars_hold_uncommitted_attempts(tmp_path: Path) -> None:
    done, running = Cell(), Cell(seed=1)
    rows: list[Row] = [done.planned(), running.planned(), done.ended(10, attempt=2)]
    rows += [done.step(1, 1), done.step(1, 2), running.step(3)]  # at 30 s, 30 s and 90 s
    rows += [done.call(cost_usd=0.5), done.call(attempt=2, cost_usd=0.5, replayed=True)]
    rows += [running.call(cost_usd=0.25), running.call(2, cost_usd=None, error="no answer", response=None)]
    found = lines(tmp_path, rows)["greedy"]
    assert (found["steps"], found["steps_per_min"], found["episodes_per_h"], found["usd"]) == (3, 3, 60, 0.75)


def test_dollars_are_null_when_a_price_is_unknown(tmp_path: Path) -> None:
    cell = Cell()
    rows: list[Row] = [cell.planned(), cell.call(cost_usd=0.5), cell.call(2, cost_usd=None)]
    run = make(tmp_path / "run", rows)
    table = status(connect([run]))
    assert [row["usd"] for row in table.records] == [None, None]
    assert "the price of 1 of 2 calls is unknown; the others cost $0.50" in render(table)


def test_stand_ins_and_unplanned_episodes_are_said(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [Cell(model="offline/scout").planned(), Cell(model="x").ended()])
    notes = status(connect([run])).notes
    assert "offline/scout is a stand-in, not an LLM" in notes
    assert "1 episodes have a row but were never planned: they do not count" in notes


@pytest.mark.parametrize("seed", range(3))
def test_every_line_adds_up(seed: int, tmp_path: Path) -> None:
    con = connect([sample(tmp_path / "run", seed, models=["a", "b"])])
    table = status(con)
    *parts, everything = table.records
    assert len(parts) == 8
    for row in table.records:
        assert row["planned"] == row["done"] + row["failed"] + row["pending"]
        assert row["failed"] == sum(row[end] for end in FAILURES)
    for name in ("planned", "done", "failed", "pending", "steps", *FAILURES):
        assert everything[name] == sum(row[name] for row in parts)
    assert everything["planned"] == 48
