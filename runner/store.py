"""A run on disk: its manifest, its lock, what is committed, and the writer of rows.

    manifest.json                        the sweep as resolved, versions, image digests
    planned/ targets/ codes/ calls/ steps/ mutants/ episodes/      parts (runner/parts.py)

The store is the queue: an episode without a committed row is pending. An episode's row
is written after everything else of its attempt; that is the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from runner.nouns import SCHEMA_VERSION, EpisodeEnd, EpisodeSpec
from runner.parts import SUFFIX, Folder
from runner.schema import TABLES, CallRow, CodeRow, PlannedRow, Row, StepRow, TargetRow, to_arrow
from sandboxes.errors import StoreError, UsageError

R = TypeVar("R", CallRow, StepRow)

MANIFEST = "manifest.json"
FLUSH_S = 2.0
"""Rows are on disk this long after they happened, at most."""
GROUP_S = 0.1
"""Waiting for a durable write, others may join for this long since the last one."""
MERGE_AT = 48
"""Parts of one writer and size class that become one."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What earlier attempts at an episode left."""

    calls: dict[int, CallRow] = field(default_factory=dict)
    """Answered ones, by number."""
    steps: dict[int, StepRow] = field(default_factory=dict)
    """By number."""
    dice: str | None = None
    """The episode whose random draws are to be repeated; None for one's own."""


class Run:
    """One run's folder."""

    def __init__(self, where: str | Path) -> None:
        """Raises UsageError for a place that cannot be one."""
        self.folder = Folder(where)

    @property
    def name(self) -> str:
        """Where it is, as it was given."""
        return self.folder.uri

    # -- the manifest

    def manifest(self) -> dict[str, Any] | None:
        """None for a run that has not begun. Raises StoreError, UsageError."""
        data = self.folder.get(MANIFEST)
        if data is None:
            return None
        try:
            manifest: dict[str, Any] = json.loads(data)
        except ValueError as error:
            raise StoreError(f"{self.name}/{MANIFEST} is not JSON: {error}") from error
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise UsageError(
                f"{self.name} has schema version {manifest.get('schema_version')}; this Corridor writes "
                f"version {SCHEMA_VERSION}: use another --out"
            )
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Raises StoreError."""
        text = json.dumps({"schema_version": SCHEMA_VERSION} | manifest, indent=2, sort_keys=True)
        self.folder.put(MANIFEST, text.encode())

    def must_exist(self) -> dict[str, Any]:
        """The manifest of a run that has begun. Raises UsageError."""
        manifest = self.manifest()
        if manifest is None:
            raise UsageError(f"{self.name} is not a run: there is no {MANIFEST} in it")
        return manifest

    # -- what is there

    def planned(self) -> set[str]:
        """Ids of the planned episodes."""
        return set(self.folder.read("planned", ["episode_id"])["episode_id"].to_pylist())

    def plan(self, rows: Iterable[PlannedRow]) -> None:
        """Add what is not planned yet. Raises StoreError."""
        known = self.planned()
        new = [row for row in rows if row.episode_id not in known]
        if new:
            self.folder.write("planned", f"part-{secrets.token_hex(6)}{SUFFIX}", to_arrow("planned", new))

    def ends(self) -> dict[str, list[tuple[int, EpisodeEnd]]]:
        """(attempt, end) of every committed attempt, by episode."""
        rows = self.folder.read("episodes", ["episode_id", "attempt", "end"])
        found: dict[str, list[tuple[int, EpisodeEnd]]] = {}
        for row in rows.to_pylist():
            found.setdefault(row["episode_id"], []).append((row["attempt"], EpisodeEnd(row["end"])))
        return found

    def committed(self, episode: str, attempt: int) -> dict[str, Any] | None:
        """The row of one committed attempt; None when there is none."""
        rows = self.folder.read("episodes")
        mask = pc.and_(pc.equal(rows["episode_id"], episode), pc.equal(rows["attempt"], attempt))
        found = rows.filter(mask).to_pylist()
        return found[0] if found else None

    def attempts(self) -> dict[str, int]:
        """The highest attempt that left any row, by episode: committed or not, its number is taken."""
        highest: dict[str, int] = {}
        for table in ("episodes", "steps", "calls"):
            rows = self.folder.read(table, ["episode_id", "attempt"])
            grouped = rows.group_by("episode_id").aggregate([("attempt", "max")])
            for row in grouped.to_pylist():
                key = row["episode_id"]
                highest[key] = max(highest.get(key, 0), row["attempt_max"])
        return highest

    def spent(self) -> float:
        """US dollars of all recorded calls that were really made."""
        rows = self.folder.read("calls", ["cost_usd", "replayed"])
        total = pc.sum(rows.filter(pc.invert(rows["replayed"]))["cost_usd"]).as_py()
        return float(total or 0.0)

    def episodes_like(self, spec: EpisodeSpec) -> list[str]:
        """Planned episodes that differ from a spec in nothing but model, image and limits."""
        wanted = _kind(spec)
        rows = self.folder.read("planned", ["episode_id", "spec"]).to_pylist()
        return [row["episode_id"] for row in rows if _kind(EpisodeSpec.from_json(row["spec"])) == wanted]

    def recordings(self, episodes: set[str]) -> dict[str, Recording]:
        """What earlier attempts at these episodes left; of several, the newest attempt's counts."""
        found = {episode: Recording() for episode in episodes}
        for row in self._rows_of("calls", CallRow, episodes):
            calls = found[row.episode_id].calls
            known = calls.get(row.call)
            if row.response is not None and (known is None or known.attempt < row.attempt):
                calls[row.call] = row
        for step in self._rows_of("steps", StepRow, episodes):
            steps = found[step.episode_id].steps
            before = steps.get(step.step)
            if before is None or before.attempt < step.attempt:
                steps[step.step] = step
        return found

    def _rows_of(self, table: str, kind: type[R], episodes: set[str]) -> Iterator[R]:
        """A part at a time, so that memory holds one."""
        wanted = pa.array(sorted(episodes), pa.string())
        for name in self.folder.live(table):
            part = self.folder.read_part(table, name)
            for values in part.filter(pc.is_in(part["episode_id"], value_set=wanted)).to_pylist():
                yield kind(**values)

    def compact(self) -> None:
        """Make few files of many, table by table. Raises StoreError."""
        for table in TABLES:
            self.folder.merge(table)

    # -- one driver at a time

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the run's only driver. Raises UsageError when another is. Only where files can be locked."""
        local = self.folder.local
        if local is None:
            yield
            return
        local.mkdir(parents=True, exist_ok=True)
        with (local / ".driver").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"{self.name} is being run by another process; stop that one first"
                ) from error
            yield

    @contextlib.contextmanager
    def working(self, exclusive: bool = False) -> Iterator[None]:
        """Held, shared, by whoever writes rows; exclusively, it waits for a dead driver's workers to go."""
        local = self.folder.local
        if local is None:
            yield
            return
        local.mkdir(parents=True, exist_ok=True)
        with (local / ".workers").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield


class Writer:
    """Rows of one process, on their way to a run.

    `add` buffers. A part of each table is written every FLUSH_S; `durable` returns when
    everything added so far is on disk, sharing its write with whoever waits too.
    """

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        self._nonce = secrets.token_hex(6)
        self._sequence = 0
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._codes: set[str] = set()
        self._targets: set[tuple[str, str]] = set()
        self._own: dict[tuple[str, int], list[str]] = {}
        self._wake = asyncio.Event()
        self._flushed = asyncio.Condition()
        self._added = self._written = 0
        self._closing = False
        self._failure: StoreError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """As in the names of its parts."""
        return self._nonce

    async def __aenter__(self) -> Writer:
        """Start the flushing."""
        self._task = asyncio.create_task(self._keep_flushing())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Flush what is left."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        if self._failure is not None:
            raise self._failure

    def add(self, row: Row) -> None:
        """Raises StoreError when an earlier write failed: nothing later may seem written."""
        if self._failure is not None:
            raise self._failure
        self._rows[row.table].append(row)
        self._added += 1

    def add_code(self, text: str) -> str:
        """Keep a script or suite once; its hash."""
        sha = code_sha(text)
        if sha not in self._codes:
            self._codes.add(sha)
            self.add(CodeRow(code_sha=sha, text=storable(text)))
        return sha

    def add_target(self, row: TargetRow) -> None:
        """Keep a target's facts once."""
        key = (row.dataset, row.target)
        if key not in self._targets:
            self._targets.add(key)
            self.add(row)

    async def durable(self) -> None:
        """Until everything added so far is on disk. Raises StoreError."""
        mark = self._added
        self._wake.set()
        async with self._flushed:
            await self._flushed.wait_for(lambda: self._written >= mark or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    async def _keep_flushing(self) -> None:
        while not self._closing or self._written < self._added:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), FLUSH_S)
            self._wake.clear()
            if self._written < self._added:
                await self._flush()
            if self._failure is not None:
                return
            if not self._closing:
                await asyncio.sleep(GROUP_S)

    async def _flush(self) -> None:
        mark = self._added
        taken, self._rows = self._rows, {table: [] for table in TABLES}
        try:
            await asyncio.to_thread(self._write, taken)
        except (StoreError, pa.ArrowException, OSError) as error:
            self._failure = (
                error
                if isinstance(error, StoreError)
                else StoreError(f"rows for {self._folder.uri} could not be written: {error}")
            )
        async with self._flushed:
            if self._failure is None:
                self._written = mark
            self._flushed.notify_all()

    def _write(self, taken: dict[str, list[Row]]) -> None:
        self._sequence += 1
        for table, rows in taken.items():
            if rows:
                name = f"part-{self._nonce}-{self._sequence:08d}{SUFFIX}"
                self._folder.write(table, name, to_arrow(table, rows))
                self._merge_own(table, 0, name)

    def _merge_own(self, table: str, size_class: int, name: str) -> None:
        """Merge this writer's parts of one class when there are many, and so on upwards."""
        own = self._own.setdefault((table, size_class), [])
        own.append(name)
        if len(own) >= MERGE_AT:
            made = self._folder.merge(table, own)
            own.clear()
            for merged in made:
                self._merge_own(table, size_class + 1, merged)


def _kind(spec: EpisodeSpec) -> tuple[object, ...]:
    target, strategy = spec.target, spec.strategy
    return target.dataset, target.module, strategy.name, strategy.config, spec.seed, spec.budget


def code_sha(text: str) -> str:
    """Of a script or suite."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def storable(text: str) -> str:
    """Text that Parquet can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
