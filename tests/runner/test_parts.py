"""Files of a table: whole or absent, merged without losing or doubling a row, whatever kills the merge."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from runner import parts
from runner.parts import Folder
from runner.schema import TABLES, arrow_schema, to_arrow
from sandboxes.errors import StoreError, UsageError
from tests.runner import rows


def steps(*numbers: int) -> pa.Table:
    return to_arrow("steps", [rows.step(number=number) for number in numbers])


def numbers(folder: Folder) -> list[int]:
    return sorted(folder.read("steps", ["step"])["step"].to_pylist())


def test_every_part_has_the_one_schema(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("steps", "part-1.parquet", steps(1))
    written = pq.read_schema(tmp_path / "steps" / "part-1.parquet")
    assert written.equals(arrow_schema("steps"))
    assert written.metadata[b"corridor.schema"] == b"1"


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_reads_as_its_schema(tmp_path: Path, table: str) -> None:
    read = Folder(tmp_path).read(table)
    assert read.schema.equals(arrow_schema(table))
    assert read.num_rows == 0


def test_unfinished_files_are_not_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("steps", "part-1.parquet", steps(1))
    (tmp_path / "steps" / ".tmp-part-2.parquet").write_bytes(b"PAR1 half a file")
    assert numbers(folder) == [1]


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("steps", "part-1.parquet", steps(1))
    (tmp_path / "steps" / "part-2.parquet").write_bytes(b"no magic bytes")
    with pytest.raises(StoreError, match=r"part-2\.parquet cannot be read"):
        folder.read("steps")


def test_a_part_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    table = steps(1)
    table = table.replace_schema_metadata({**table.schema.metadata, b"corridor.schema": b"99"})
    (tmp_path / "steps").mkdir()
    pq.write_table(table, tmp_path / "steps" / "part-1.parquet")
    with pytest.raises(StoreError, match="schema version 99"):
        folder.read("steps")


def test_merging_keeps_every_row_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in range(5):
        folder.write("steps", f"part-{number}.parquet", steps(number))
    (made,) = folder.merge("steps")
    assert folder.live("steps") == [made]
    assert numbers(folder) == [0, 1, 2, 3, 4]
    folder.write("steps", "part-5.parquet", steps(5))
    folder.merge("steps")
    assert len(folder.live("steps")) == 1
    assert numbers(folder) == [0, 1, 2, 3, 4, 5]


def test_merging_one_file_leaves_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("steps", "part-1.parquet", steps(1))
    assert folder.merge("steps") == []
    assert folder.live("steps") == ["part-1.parquet"]


class Killed(Exception):
    """Stands for SIGKILL at this very moment."""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deletions=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_a_merge_killed_at_any_deletion_counts_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, deletions: list[int]
) -> None:
    """Merges are killed after some deletions, again and again; then one goes through."""
    folder = Folder(tmp_path_factory.mktemp("run"))
    for number in range(6):
        folder.write("steps", f"part-{number}.parquet", steps(number))
    real = folder.fs
    for allowed in deletions:
        folder.fs = Dying(allowed)
        with contextlib.suppress(Killed):
            folder.merge("steps")
        folder.fs = real
        assert numbers(folder) == [0, 1, 2, 3, 4, 5]
    folder.merge("steps")
    assert numbers(folder) == [0, 1, 2, 3, 4, 5]
    assert len(folder.live("steps")) == 1


class Dying(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow ships no types
    """A file system that dies after some deletions."""

    def __init__(self, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed

    def delete_file(self, path: str) -> None:
        if not self.allowed:
            raise Killed
        self.allowed -= 1
        super().delete_file(path)


def test_merged_files_have_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    for number in range(6):
        folder.write("steps", f"part-{number}.parquet", steps(number))
    size = max(folder.names("steps").values())
    monkeypatch.setattr(parts, "LARGEST_MERGED", 2 * size + 1)
    assert len(folder.merge("steps")) == 3
    assert numbers(folder) == [0, 1, 2, 3, 4, 5]


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    folder.write("steps", "part-1.parquet", steps(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts, "_settle", full)
    with pytest.raises(StoreError, match=r"part-2.*No space left.*run the same command again"):
        folder.write("steps", "part-2.parquet", steps(2))
    assert [file.name for file in (tmp_path / "steps").iterdir()] == ["part-1.parquet"]
    assert numbers(folder) == [1]


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    assert folder.get("manifest.json") is None
    folder.put("manifest.json", b"one")
    folder.put("manifest.json", b"two")
    assert folder.get("manifest.json") == b"two"
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["manifest.json"]


def test_no_place_for_a_run() -> None:
    with pytest.raises(UsageError, match="nonsense://x is no place for a run"):
        Folder("nonsense://x")
