from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.sql import run_sql
from runner.store import Run
from sandboxes.errors import StoreError, UsageError
from tests.analysis.made_run import Cell, make, scores


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sql"), [*scores([1, 3]), Cell().step()])


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("select max(branches) from episodes", [3]),
        ("with best as (select max(branches) b from episodes) select b from best;", [3]),
        ("from episodes select count(*)", [2]),
        ("(select 1) union all (select 1)", [1]),
        ("describe progress", ["run"]),
        ("show tables", ["all_calls"]),
        ("summarize select branches from episodes", ["branches"]),
        ("-- a remark\nselect 5 -- another", [5]),
        ("select ';'", [";"]),
    ],
)
def test_reading_statements(statement: str, first: list[object], run: Path) -> None:
    rows = json.loads(run_sql([run], statement, "json"))["rows"]
    assert list(rows[0].values())[:1] == first


@pytest.mark.parametrize(
    "statement",
    [
        "drop view episodes",
        "insert into runs values (null)",
        "create table x as select 1",
        "copy (select 1) to 'out.csv'",
        "attach 'other.db'",
        "set threads = 1",
        "pragma database_list",
        "install httpfs",
        "load httpfs",
        "export database 'x'",
        "with x as (select 1) insert into runs select * from x",
        "explain analyze select 1",
        "select 1; drop view episodes",
        "select 1; select 2",
        "",
        "-- nothing",
        "selekt 1",
    ],
)
def test_everything_else_is_refused(
    statement: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"one statement|only read|no SQL"):
        run_sql([run], statement)
    assert list(tmp_path.iterdir()) == []


def test_a_faulty_query_is_the_users(run: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        run_sql([run], "select * from nowhere")
    with pytest.raises(UsageError, match="the query failed"):
        run_sql([run], "select 'a'::int")


def test_formats(run: Path) -> None:
    query = "select target, branches, null as nothing, [1, 2] as list from episodes order by 1"
    assert run_sql([run], query).splitlines()[-1].split() == ["click.m1", "3", "–", "[1,", "2]"]
    assert list(csv.reader(io.StringIO(run_sql([run], query, "csv"))))[1] == ["click.m0", "1", "", "[1, 2]"]
    assert "| click.m0 | 1 | – | \\[1, 2\\] |" in run_sql([run], query, "md")
    assert json.loads(run_sql([run], query, "json"))["rows"][1] == {
        "target": "click.m1",
        "branches": 3,
        "nothing": None,
        "list": [1, 2],
    }
    with pytest.raises(UsageError, match=r"'yaml'; choose one of .*parquet"):
        run_sql([run], query, "yaml")


def test_columns_of_one_name_are_kept_apart(run: Path) -> None:
    assert json.loads(run_sql([run], 'select 1 as x, 2 as x, 3 as "x_2"', "json"))["rows"] == [
        {"x": 1, "x_2": 2, "x_2_2": 3}
    ]


def test_parquet(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert run_sql(
        [run], "select target, branch_delta from episodes join steps using (episode_id)", "parquet", out
    )
    said = run_sql([run], "from episodes", "parquet", out)
    assert said == f"2 rows in {out}"
    table = pq.read_table(out)
    assert sorted(table["branches"].to_pylist()) == [1, 3]
    assert list(tmp_path.iterdir()) == [out]


def test_parquet_needs_a_file_that_can_be_written(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--out"):
        run_sql([run], "select 1", "parquet")
    with pytest.raises(UsageError, match="is no folder"):
        run_sql([run], "select 1", "parquet", tmp_path / "nowhere" / "out.parquet")
    with pytest.raises(UsageError, match="nowhere"):
        run_sql([run], "from nowhere", "parquet", tmp_path / "out.parquet")
    with pytest.raises(UsageError, match="only read"):
        run_sql([run], "drop view episodes", "parquet", tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_text_goes_to_a_file_too(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert run_sql([run], "select 1 as x", "csv", out) == f"written to {out}"
    assert out.read_text() == "x\n1\n"
    with pytest.raises(UsageError, match="cannot be written"):
        run_sql([run], "select 1 as x", "csv", tmp_path)


def test_a_damaged_part_is_not_the_users_fault(tmp_path: Path) -> None:
    run = make(tmp_path / "run", scores([1]))
    Path(Run(run).folder.paths("planned")[0]).write_bytes(b"damaged")
    with pytest.raises(StoreError, match="cannot be read"):
        run_sql([run], "from planned")
