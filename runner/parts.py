"""The files of a table: how they are named, written whole, listed and merged.

A part is written under a name that readers skip and then renamed, or put whole on an
object store, so that a reader never meets half a file. Parts are only ever added. A
merged part says in its own metadata which parts it replaces; readers leave those out,
whether or not they are still there, so that a merge killed half way counts nothing
twice and loses nothing.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from runner.nouns import SCHEMA_VERSION
from runner.schema import arrow_schema
from sandboxes.errors import StoreError, UsageError

SUFFIX = ".parquet"
MERGED = "merged-"
TEMPORARY = ".tmp-"
REPLACES = b"corridor.replaces"
VERSION = b"corridor.schema"
ROW_GROUP = 122_880
"""Rows: DuckDB's own size, the unit of its parallelism."""
LARGEST_MERGED = 256 * 1024 * 1024
"""Bytes of parts that are merged into one file."""


class Folder:
    """A run's folder, on any file system that pyarrow knows."""

    def __init__(self, where: str | Path) -> None:
        """A local path, or a URI such as s3://bucket/prefix. Raises UsageError."""
        text = str(where)
        if "://" in text:
            try:
                self.fs, self.path = fs.FileSystem.from_uri(text)
            except (pa.ArrowInvalid, OSError) as error:
                raise UsageError(f"{text} is no place for a run: {error}") from error
        else:
            self.fs, self.path = fs.LocalFileSystem(), str(Path(text).absolute())
        self.uri = text

    @property
    def local(self) -> Path | None:
        """The folder, where it is one of this machine's file systems."""
        return Path(self.path) if isinstance(self.fs, fs.LocalFileSystem) else None

    def names(self, table: str) -> dict[str, int]:
        """Every finished file of a table, with its size in bytes."""
        selector = fs.FileSelector(f"{self.path}/{table}", allow_not_found=True)
        try:
            found = self.fs.get_file_info(selector)
        except FileNotFoundError:
            return {}  # it was made at this very moment
        return {
            info.base_name: info.size
            for info in found
            if info.base_name.endswith(SUFFIX) and not info.base_name.startswith(TEMPORARY)
        }

    def live(self, table: str) -> list[str]:
        """The names that count, sorted: those that no merged part replaces."""
        names = set(self.names(table))
        return sorted(names - self._replaced(table, names))

    def paths(self, table: str) -> list[str]:
        """Full paths of the live parts, as a local path or a URI without its scheme."""
        return [f"{self.path}/{table}/{name}" for name in self.live(table)]

    def write(self, table: str, name: str, rows: pa.Table, replaces: Sequence[str] = ()) -> None:
        """One part, whole or not at all. Raises StoreError."""
        metadata = dict(rows.schema.metadata or {})
        if replaces:
            metadata[REPLACES] = json.dumps(list(replaces)).encode()
        self._write_batches(table, name, rows.schema.with_metadata(metadata), [rows])

    def read(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """All live rows. Raises StoreError for a file of another schema version."""
        schema = arrow_schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
        tables = [self.read_part(table, name, columns) for name in self.live(table)]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def merge(self, table: str, names: Sequence[str] | None = None) -> list[str]:
        """Make few files of many: of `names`, or of all live ones; the new names. Raises StoreError."""
        made = []
        sizes = self.names(table)
        dead = self._replaced(table, set(sizes))
        self._delete(table, [name for name in dead if name in sizes])
        wanted = [name for name in (names or sorted(sizes)) if name in sizes and name not in dead]
        for group in _groups(wanted, sizes):
            schema = arrow_schema(table)
            metadata = dict(schema.metadata or {}) | {REPLACES: json.dumps(group).encode()}
            merged = f"{MERGED}{secrets.token_hex(8)}{SUFFIX}"
            parts = (self.read_part(table, name) for name in group)
            self._write_batches(table, merged, schema.with_metadata(metadata), parts)
            self._delete(table, group)
            made.append(merged)
        return made

    def get(self, name: str) -> bytes | None:
        """A small file of the run; None when it is not there."""
        try:
            with self.fs.open_input_stream(f"{self.path}/{name}") as stream:
                data: bytes = stream.read()
        except FileNotFoundError:
            return None
        return data

    def put(self, name: str, data: bytes) -> None:
        """Replace a small file whole. Raises StoreError."""
        try:
            self.fs.create_dir(self.path, recursive=True)
            there = f"{self.path}/{name}"
            if self.local is None:
                with self.fs.open_output_stream(there) as stream:
                    stream.write(data)
                return
            temporary = Path(f"{self.path}/{TEMPORARY}{secrets.token_hex(4)}")
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(there)
        except OSError as error:
            raise StoreError(f"{self.uri}/{name} could not be written: {error}") from error

    def _replaced(self, table: str, names: set[str]) -> set[str]:
        replaced: set[str] = set()
        for name in names:
            if name.startswith(MERGED):
                try:
                    metadata = pq.read_schema(f"{self.path}/{table}/{name}", filesystem=self.fs).metadata
                except FileNotFoundError:
                    continue  # merged into another meanwhile
                replaced.update(json.loads((metadata or {}).get(REPLACES, b"[]")))
        return replaced

    def read_part(self, table: str, name: str, columns: list[str] | None = None) -> pa.Table:
        """One file's rows. Raises StoreError when it is damaged or of another schema version."""
        path = f"{self.path}/{table}/{name}"
        try:
            part = pq.read_table(path, filesystem=self.fs, columns=columns)
        except (OSError, pa.ArrowInvalid) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        version = (part.schema.metadata or {}).get(VERSION, b"?").decode()
        if version != str(SCHEMA_VERSION):
            raise StoreError(
                f"{path} has schema version {version}; this Corridor reads version {SCHEMA_VERSION}"
            )
        schema = arrow_schema(table)
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns], metadata=schema.metadata)
        return part.cast(schema)

    def _write_batches(
        self, table: str, name: str, schema: pa.Schema, parts: Iterator[pa.Table] | Sequence[pa.Table]
    ) -> None:
        folder = f"{self.path}/{table}"
        final = f"{folder}/{name}"
        local = self.local
        there = f"{folder}/{TEMPORARY}{name}" if local is not None else final
        try:
            self.fs.create_dir(folder, recursive=True)
            with (
                self.fs.open_output_stream(there) as stream,
                pq.ParquetWriter(stream, schema, compression="zstd") as writer,
            ):
                for part in parts:
                    writer.write_table(
                        part.replace_schema_metadata(schema.metadata), row_group_size=ROW_GROUP
                    )
            if local is not None:
                _settle(Path(there), Path(final))
        except OSError as error:
            if local is not None:
                Path(there).unlink(missing_ok=True)
            raise StoreError(
                f"{final} could not be written: {error}; what was committed before is intact: "
                f"make room, then run the same command again"
            ) from error

    def _delete(self, table: str, names: Sequence[str]) -> None:
        for name in names:
            try:
                self.fs.delete_file(f"{self.path}/{table}/{name}")
            except FileNotFoundError:
                continue  # an earlier merge was killed after deleting it


def _settle(temporary: Path, final: Path) -> None:
    """Make a written file durable, and then visible."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(final)


def _groups(names: Sequence[str], sizes: dict[str, int]) -> Iterator[list[str]]:
    """Runs of names that make one file; a name alone is left as it is."""
    group: list[str] = []
    total = 0
    for name in names:
        if group and total + sizes[name] > LARGEST_MERGED:
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(name)
        total += sizes[name]
    if len(group) > 1:
        yield group
