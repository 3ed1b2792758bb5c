from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis import views
from analysis.views import VIEWS, connect, query, sql
from runner.nouns import EpisodeEnd
from runner.parts import Folder
from runner.schema import Row, arrow_schema
from runner.store import Run
from sandboxes.errors import StoreError, UsageError
from tests.analysis.made_run import Cell, code, make, write

TABLE_OF = {
    "attempts": "episodes",
    "episodes": "episodes",
    "planned": "planned",
    "all_steps": "steps",
    "all_calls": "calls",
    "steps": "steps",
    "calls": "calls",
    "mutants": "mutants",
    "live_steps": "steps",
    "codes": "codes",
    "targets": "targets",
}


def values(con: duckdb.DuckDBPyConnection, statement: str) -> list[tuple[object, ...]]:
    return query(con, statement).rows


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    return connect([make(tmp_path_factory.mktemp("empty"), [])])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """A run with one row in each table."""
    cell = Cell()
    rows: list[Row] = [cell.planned(), cell.found(), cell.call(), cell.step(), cell.mutant(), cell.ended()]
    return connect([make(tmp_path_factory.mktemp("full"), [*rows, code("x")])])


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_its_columns_with_rows_and_without(
    view: str, empty: duckdb.DuckDBPyConnection, full: duckdb.DuckDBPyConnection
) -> None:
    without, found = query(empty, f"from {view}"), query(full, f"from {view}")
    assert (len(without.rows), len(found.rows)) == (0, 1)
    assert without.columns == found.columns
    assert without.types[1:] == found.types[1:]  # `run` is an enum of the runs' names
    if view == "progress":
        counts = ("planned", "done", "failed", "pending", "unplanned")
        assert found.columns == ("run", "strategy", "label", "model", *counts)
    else:
        assert found.columns == ("run", *arrow_schema(TABLE_OF[view]).names)


@pytest.mark.parametrize(
    ("ends", "counts"),
    [
        ([(1, "completed")], 1),
        ([(1, "infra_error")], 1),
        ([(1, "completed"), (2, "completed")], 2),
        ([(1, "completed"), (2, "infra_error")], 1),
        ([(1, "infra_error"), (2, "completed"), (3, "model_error")], 2),
        ([(1, "infra_error"), (2, "model_error")], 2),
        ([(2, "cancelled"), (10, "cancelled"), (9, "infra_error")], 10),
        ([(1, "budget_exhausted"), (2, "infra_error")], 2),
    ],
)
def test_the_attempt_that_counts(ends: list[tuple[int, str]], counts: int, tmp_path: Path) -> None:
    cell, other = Cell(), Cell(seed=43)
    rows: list[Row] = [cell.ended(attempt=attempt, end=end) for attempt, end in ends]
    con = connect([make(tmp_path / "run", [*rows, other.ended()])])
    assert values(con, f"select attempt from episodes where episode_id = '{cell.id}'") == [(counts,)]
    assert values(con, "select count(*) from attempts") == [(len(ends) + 1,)]
    assert values(con, "select count(*) from episodes") == [(2,)]


def test_only_ends_that_score_count_as_scores(tmp_path: Path) -> None:
    con = connect([make(tmp_path / "run", [])])
    for end in EpisodeEnd:
        assert values(con, f"select scores('{end}')") == [(end.scores,)]


def test_an_episode_of_two_runs_counts_once_in_the_first_where_it_scores(tmp_path: Path) -> None:
    both, failed_first, failed_twice = Cell(seed=1), Cell(seed=2), Cell(seed=3)
    a = make(
        tmp_path / "a",
        [both.ended(5), failed_first.ended(end="infra_error"), failed_twice.ended(end="infra_error")],
    )
    later = [
        both.ended(7, attempt=2),
        failed_first.ended(8),
        failed_twice.ended(end="model_error", attempt=4),
    ]
    b = make(tmp_path / "b", later)
    expected = {(1, 5, str(a)), (2, 8, str(b)), (3, None, str(a))}
    assert set(values(connect([a, b]), "select seed, branches, run from episodes")) == expected
    expected = {(1, 7, str(b)), (2, 8, str(b)), (3, None, str(b))}
    assert set(values(connect([b, a]), "select seed, branches, run from episodes")) == expected


def test_a_run_that_is_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a", [Cell().ended()])
    monkeypatch.chdir(tmp_path)
    assert values(connect(["a", "a/", tmp_path / "a"]), "select run, seed from attempts") == [("a", 42)]


def test_steps_calls_and_mutants_are_those_of_the_attempt_that_counts(tmp_path: Path) -> None:
    cell, running = Cell(), Cell(seed=43)
    rows: list[Row] = []
    for attempt in (1, 2, 3):
        rows += [cell.step(1, attempt), cell.step(2, attempt), cell.call(1, attempt), cell.mutant(attempt)]
    rows += [running.step(), running.call(), running.mutant()]
    rows += [cell.ended(end="infra_error", attempt=1), cell.ended(attempt=2)]  # the third attempt was lost
    con = connect([make(tmp_path / "run", rows)])
    for view, count in (("steps", 2), ("calls", 1), ("mutants", 1)):
        assert values(con, f"select episode_id, attempt from {view}") == [(cell.id, 2)] * count
    assert values(con, "select count(*) from all_steps") == [(7,)]
    assert values(con, "select count(*) from all_calls") == [(4,)]


def test_live_steps_are_those_of_the_newest_attempt_with_any(tmp_path: Path) -> None:
    cell, once = Cell(), Cell(seed=43)
    a = make(tmp_path / "a", [cell.step(1, 1), cell.step(1, 10), cell.step(2, 10), cell.ended(attempt=1)])
    b = make(tmp_path / "b", [cell.step(9, 11), once.step(5)])
    found = values(
        connect([a, b]),
        "select seed_of, attempt, step from (select episode_id as seed_of, * from live_steps) order by all",
    )
    assert sorted(found) == sorted([(cell.id, 10, 1), (cell.id, 10, 2), (once.id, 1, 5)])


def test_codes_are_distinct(tmp_path: Path) -> None:
    a = make(tmp_path / "a", [code("x"), code("y")])
    write(Run(a), [code("x")])
    b = make(tmp_path / "b", [code("y"), code("z")])
    found = values(connect([b, a]), "select text, run from codes order by text")
    assert found == [("x", str(a)), ("y", str(b)), ("z", str(b))]


def test_targets_are_the_planned_ones_with_what_a_worker_found(tmp_path: Path) -> None:
    seen, unseen, unplanned = Cell(target="a.b"), Cell(target="c.d"), Cell(target="e.f")
    rows: list[Row] = [seen.planned(), replace(seen, seed=1).planned(), unseen.planned(), unplanned.found()]
    run = make(tmp_path / "run", [*rows, seen.found(), seen.found(mutants_total=7)])
    found = values(
        connect([run]),
        "select target, package, version, branches_total, mutants_total from targets order by 1",
    )
    assert found == [("a.b", "a", "1.0", 100, 7), ("c.d", "c", None, None, None)]


def test_planned_has_one_row_per_episode(tmp_path: Path) -> None:
    cell = Cell()
    a = make(tmp_path / "a", [cell.planned()])
    b = make(tmp_path / "b", [cell.planned(), Cell(seed=1).planned()])
    found = values(connect([b, a]), "select seed, run from planned order by seed")
    assert found == [(1, str(b)), (42, str(b))]


CELLS = [Cell(seed=seed, strategy=strategy) for seed in (1, 2) for strategy in ("greedy", "random")]
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(CELLS),
        st.sampled_from(["planned", "step", *EpisodeEnd]),
        st.integers(1, 3),
        st.sampled_from(["a", "b"]),
    ),
    max_size=25,
    unique_by=lambda one: (one[0].id, one[2] if one[1] != "planned" else 0, one[3]),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HAPPENINGS)
def test_planned_is_done_failed_and_pending(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[Cell, str, int, str]]
) -> None:
    where = tmp_path_factory.mktemp("progress")
    for run in ("a", "b"):
        rows: list[Row] = []
        for cell, what, attempt, name in happenings:
            if name == run:
                ended = what in list(EpisodeEnd)
                rows.append(
                    cell.ended(attempt=attempt, end=what)
                    if ended
                    else cell.planned()
                    if what == "planned"
                    else cell.step(1, attempt)
                )
        make(where / run, rows)
    con = connect([where / "a", where / "b"])
    planned = {cell.id for cell, what, _, _ in happenings if what == "planned"}
    ends = {(cell.id, EpisodeEnd(what).scores) for cell, what, _, _ in happenings if what in list(EpisodeEnd)}
    scored = {episode for episode, scores in ends if scores}
    failed = {episode for episode, _ in ends} - scored
    counts = "planned, done, failed, pending, unplanned"
    assert values(con, "select count(*) from progress where planned <> done + failed + pending") == [(0,)]
    total = values(
        con, "select " + ", ".join(f"sum({name})" for name in counts.split(", ")) + " from progress"
    )
    expected = (
        len(planned),
        len(planned & scored),
        len(planned & failed),
        len(planned - scored - failed),
        len((scored | failed) - planned),
    )
    assert [tuple(int(str(count or 0)) for count in row) for row in total] == [expected]
    assert values(con, "select count(*), count(distinct episode_id) from episodes") == [
        (len(scored | failed),) * 2
    ]


def test_progress_goes_by_label_and_model(tmp_path: Path) -> None:
    plain, wide = (
        Cell(strategy="cov_qvalue"),
        Cell(strategy="cov_qvalue", label="S=5", changes=(("plans", 5),)),
    )
    lost = Cell(strategy="random")
    rows: list[Row] = [plain.planned(), wide.planned(), plain.ended(), lost.ended(), lost.step()]
    con = connect([make(tmp_path / "run", rows)])
    columns = "strategy, label, planned, done, failed, pending, unplanned"
    assert values(con, f"select {columns} from progress order by label") == [
        ("cov_qvalue", "S=5", 1, 0, 0, 1, 0),
        ("cov_qvalue", "cov_qvalue", 1, 1, 0, 0, 0),
        ("random", "random", 0, 0, 0, 0, 1),
    ]


@pytest.mark.parametrize("name", ["model=gpt/run", "odd [a-z]* it's?", "ein Lauf ü"])
def test_a_run_may_lie_anywhere(name: str, tmp_path: Path) -> None:
    run = make(tmp_path / name, [Cell().ended()])
    make(tmp_path / "odd b it's!", [Cell(seed=1).ended()])  # what such a name would match as a pattern
    found = query(connect([run]), "from attempts")
    assert found.columns == ("run", *arrow_schema("episodes").names)
    assert [(row["run"], row["model"]) for row in found.dicts()] == [(str(run), "gpt-5.4-mini")]


def test_a_path_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = (
        make(tmp_path / "run [ab]", [Cell().ended()]),
        make(tmp_path / "run a", [Cell(seed=1).ended()]),
    )
    (part,) = Run(run).folder.paths("episodes")
    con = connect([run])
    monkeypatch.setattr(Folder, "paths", lambda folder, table: [part] if table == "episodes" else [])
    monkeypatch.setattr(views, "RELISTINGS", 0)
    Path(part).rename(other / "episodes" / Path(part).name)
    with pytest.raises(StoreError):
        query(con, "from episodes")


def test_times_are_utc_wherever_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    con = connect([make(tmp_path / "run", [Cell().step()])])
    assert values(con, 'select "at"::varchar from steps union select "at"::varchar from all_steps') == [
        ("2026-01-02 03:04:35+00",)
    ]


def test_a_query_goes_on_after_a_merge(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [Cell(seed=0).ended()])
    con = connect([run])
    write(Run(run), [Cell(seed=1).ended(), Cell(seed=0).ended(attempt=2)])
    Run(run).compact()
    with pytest.raises(duckdb.IOException):
        con.execute("select count(*) from episodes").fetchall()
    assert values(con, "select seed, attempt from episodes order by seed") == [(0, 2), (1, 1)]


def test_binding_anew_shows_what_was_written_since(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [Cell(seed=0).ended(), Cell(seed=0).planned()])
    con = connect([run])
    write(Run(run), [Cell(seed=0).ended(attempt=2), Cell(seed=1).ended()])
    assert values(con, "select seed, attempt from episodes") == [(0, 1)]
    views.bind(con)
    assert values(con, "select seed, attempt from episodes order by seed") == [(0, 2), (1, 1)]


def test_rows_are_complete_while_parts_are_being_merged(tmp_path: Path) -> None:
    count = 30
    run = make(tmp_path / "run", [])
    for seed in range(count):
        write(Run(run), [Cell(seed=seed).ended()])
    con = connect([run])
    stop = threading.Event()

    def keep_merging() -> None:
        seed = count
        while not stop.is_set():
            write(Run(run), [Cell(seed=seed).step()])
            write(Run(run), [Cell(seed=seed).step(2)])
            Run(run).folder.merge("steps")
            Run(run).folder.merge("episodes", Run(run).folder.live("episodes")[:3])
            seed += 1
            time.sleep(0.1)

    merging = threading.Thread(target=keep_merging)
    merging.start()
    try:
        for _ in range(15):
            assert values(con, "select count(*) from episodes") == [(count,)]
            views.retrying(con, lambda: views.bind(con))
    finally:
        stop.set()
        merging.join()
    assert len(Run(run).folder.live("episodes")) < count


def test_a_listing_that_a_merge_fell_into_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "run", [Cell(seed=0).ended(), Cell(seed=1).ended()])
    honest, calls = Folder.paths, []

    def torn_at_first(folder: Folder, table: str) -> list[str]:
        calls.append(table)
        return [] if calls.count(table) == 1 else honest(folder, table)

    monkeypatch.setattr(Folder, "paths", torn_at_first)
    assert values(connect([run]), "select count(*) from episodes") == [(2,)]


def test_a_part_that_stays_away_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path / "run", [Cell().ended()])
    con = connect([run])
    parts = Run(run).folder.paths("episodes")
    monkeypatch.setattr(Folder, "paths", lambda folder, table: parts if table == "episodes" else [])
    Path(parts[0]).unlink()
    with pytest.raises(StoreError, match=r"run cannot be read: IO Error"):
        query(con, "from episodes")


@pytest.mark.parametrize("damage", [b"", b"no parquet at all, but long enough to be some"])
def test_a_damaged_part_is_an_error(damage: bytes, tmp_path: Path) -> None:
    run = make(tmp_path / "run", [Cell().ended()])
    con = connect([run])
    Path(Run(run).folder.paths("episodes")[0]).write_bytes(damage)
    with pytest.raises(StoreError, match=r"run cannot be read: Invalid Input"):
        query(con, "select count(branches) from episodes")


def test_faulty_sql_is_left_to_the_caller(tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error):
        query(connect([make(tmp_path / "run", [])]), "from nowhere")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run"):
        connect([])
    with pytest.raises(UsageError, match=r"nothing is not a run: there is no manifest\.json"):
        connect([tmp_path / "nothing"])
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match="file"):
        connect([file])
    other = make(tmp_path / "other", [])
    (other / "manifest.json").write_text('{"schema_version": 0}')
    with pytest.raises(UsageError, match="schema version 0"):
        connect([other])
    (other / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="not JSON"):
        connect([other])


def test_manifests_are_a_table(tmp_path: Path) -> None:
    runs = [make(tmp_path / "b", [], max_infra_share=0.1), make(tmp_path / "a", [], max_infra_share=0.05)]
    con = connect(runs)
    assert values(con, "select run, max_infra_share from runs order by run") == [
        (str(runs[0]), 0.1),
        (str(runs[1]), 0.05),
    ]
    assert values(con, "select manifest->>'$.sweep.name' from runs limit 1") == [("made",)]
    assert views.allowed_infra_share(con) == 0.05
    assert views.allowed_infra_share(connect([make(tmp_path / "c", [])])) is None


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_says_what_it_holds(view: str) -> None:
    assert sql(view).startswith("-- ")
