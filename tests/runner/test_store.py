"""A run on disk: what is committed, what may be replayed, who may write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import store
from runner.nouns import EpisodeEnd
from runner.parts import Folder
from runner.schema import TABLES, arrow_schema, to_arrow
from runner.store import MERGE_AT, Run, Writer, code_sha, storable
from sandboxes.errors import StoreError, UsageError
from tests.runner import rows


async def test_durable_rows_are_on_disk(tmp_path: Path) -> None:
    run = Run(tmp_path)
    async with Writer(run) as writer:
        writer.add(rows.call(number=1))
        writer.add(rows.call(number=2))
        await writer.durable()
        assert sorted(run.folder.read("calls", ["call"])["call"].to_pylist()) == [1, 2]


async def test_waiting_together_shares_a_write(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def one(number: int) -> None:
        writer.add(rows.call(number=number))
        await writer.durable()

    async with Writer(run) as writer:
        await asyncio.gather(*(one(number) for number in range(20)))
    assert len(run.folder.names("calls")) <= 2
    assert run.folder.read("calls").num_rows == 20


async def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    run = Run(tmp_path)
    async with Writer(run) as writer:
        writer.add(rows.step())
        sha = writer.add_code("print()")
        assert writer.add_code("print()") == sha
    assert run.folder.read("steps").num_rows == 1
    assert run.folder.read("codes").to_pylist() == [{"code_sha": sha, "text": "print()"}]


async def test_an_episodes_row_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = Folder.write

    def note(self: Folder, table: str, name: str, table_rows: pa.Table) -> None:
        written.append(table)
        write(self, table, name, table_rows)

    monkeypatch.setattr(Folder, "write", note)
    async with Writer(Run(tmp_path)) as writer:
        writer.add(rows.episode())
        writer.add(rows.step())
        writer.add(rows.call())
        writer.add_code("x")
    assert written[-1] == "episodes"
    assert set(written) == {"episodes", "steps", "calls", "codes"}


async def test_a_failed_write_stops_everything_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(Folder, "write", full)
    with pytest.raises(StoreError, match="no room"):
        async with Writer(Run(tmp_path)) as writer:
            writer.add(rows.step())
            with pytest.raises(StoreError):
                await writer.durable()
            with pytest.raises(StoreError):
                writer.add(rows.step(number=2))
            with pytest.raises(StoreError):
                await writer.durable()


async def test_a_value_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not be written"):
        async with Writer(Run(tmp_path)) as writer:
            writer.add(rows.step(number=2**40))
            await writer.durable()


async def test_many_small_parts_become_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "GROUP_S", 0.0)
    run = Run(tmp_path)
    count = MERGE_AT * 2 + 3
    async with Writer(run) as writer:
        for number in range(count):
            writer.add(rows.step(number=number))
            await writer.durable()
    assert len(run.folder.live("steps")) <= 2 + 3 + 1
    assert sorted(run.folder.read("steps", ["step"])["step"].to_pylist()) == list(range(count))


def test_ends_and_attempts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.folder.write(
        "episodes",
        "part-1.parquet",
        to_arrow("episodes", [rows.episode("a", 1, end="infra_error"), rows.episode("a", 2)]),
    )
    run.folder.write("steps", "part-1.parquet", to_arrow("steps", [rows.step("b", 3)]))
    run.folder.write("calls", "part-1.parquet", to_arrow("calls", [rows.call("c", 1)]))
    assert run.ends() == {"a": [(1, EpisodeEnd.INFRA_ERROR), (2, EpisodeEnd.COMPLETED)]}
    assert run.attempts() == {"a": 2, "b": 3, "c": 1}


def test_recordings_take_the_newest_answer(tmp_path: Path) -> None:
    run = Run(tmp_path)
    calls = [
        rows.call("a", 1, 1, response="old"),
        rows.call("a", 2, 1, response="new"),
        rows.call("a", 1, 2, response="only"),
        rows.call("a", 2, 3, response=None, error="429"),
        rows.call("b", 1, 1),
    ]
    run.folder.write("calls", "part-1.parquet", to_arrow("calls", calls[::-1]))
    run.folder.write("steps", "part-1.parquet", to_arrow("steps", [rows.step("a", 1, 1, output="seen")]))
    found = run.recordings({"a", "nobody"})
    assert {number: call.response for number, call in found["a"].calls.items()} == {1: "new", 2: "only"}
    assert found["a"].steps[1].output == "seen"
    assert found["nobody"].calls == {}
    assert "b" not in found


def test_spent_counts_real_calls_only(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.spent() == 0.0
    calls = [
        rows.call(number=1, cost_usd=0.25),
        rows.call(number=2, cost_usd=0.5),
        rows.call(number=3, cost_usd=None),
        rows.call(number=1, attempt=2, cost_usd=0.25, replayed=True),
    ]
    run.folder.write("calls", "part-1.parquet", to_arrow("calls", calls))
    assert run.spent() == 0.75


def test_planning_adds_only_what_is_new(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.plan([rows.planned("a"), rows.planned("b")])
    run.plan([rows.planned("b"), rows.planned("c")])
    assert sorted(run.folder.read("planned")["episode_id"].to_pylist()) == ["a", "b", "c"]


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with (
        run.locked(),
        pytest.raises(UsageError, match="is being run by another process"),
        Run(tmp_path).locked(),
    ):
        pass
    with run.locked():
        pass


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run"):
        Run(tmp_path).must_exist()


def test_a_manifest_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(UsageError, match="schema version 99"):
        Run(tmp_path).manifest()


def test_a_damaged_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="not JSON"):
        Run(tmp_path).manifest()


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_stored(text: str) -> None:
    kept = storable(text)
    assert pa.array([kept], pa.string()).to_pylist() == [kept]
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert kept == text
    assert len(code_sha(text)) == 64


@pytest.mark.parametrize("table", TABLES)
def test_schemas_say_what_a_column_means(table: str) -> None:
    schema = arrow_schema(table)
    assert schema.metadata[b"corridor.table"].decode() == table
    assert all(b"meaning" in field.metadata for field in schema)
