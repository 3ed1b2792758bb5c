"""Which worker runs which episode when, and what becomes of one that failed.

Knows workers only as handles, so it is tested without a cluster. Decisions are here;
where workers live is `runner.fleet`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runner.nouns import EpisodeEnd, EpisodeSpec
from sandboxes.errors import CorridorError, PrerequisiteError

ATTEMPTS = {EpisodeEnd.INFRA_ERROR: 3, EpisodeEnd.MODEL_ERROR: 2}
"""Attempts at an episode in one run of the command, by how they end; all other ends are final."""
LOSSES = 5
"""Attempts that may go down with their worker before an episode is given up for this run."""
PATIENCE_S = 600.0
"""Without any worker for so long, the run stops."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at one episode."""

    spec: EpisodeSpec
    attempt: int
    replay: bool
    """Whether earlier attempts may have left calls that answer for nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the driver is told of a committed attempt."""

    episode_id: str
    attempt: int
    end: EpisodeEnd
    error: str | None
    label: str
    model: str
    executions: int
    branches: int | None
    calls: int
    cost_usd: float | None
    hopeless: bool = False
    """It failed of something that every episode of its model would fail of."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any], hopeless: bool = False) -> Outcome:
        """From an episode's row."""
        names = (
            "episode_id",
            "attempt",
            "error",
            "label",
            "model",
            "executions",
            "branches",
            "calls",
            "cost_usd",
        )
        return cls(**{name: row[name] for name in names}, end=EpisodeEnd(row["end"]), hopeless=hopeless)


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """How a worker fares."""

    name: str
    in_flight: int
    waiting: int
    """Steps that wait for a sandbox."""
    slots: int
    busy_s: float
    """Seconds that its slots were held, summed."""
    alive_s: float
    rss_mib: float


class WorkerLost(CorridorError):
    """A worker is gone with everything it was doing."""


class Handle(Protocol):
    """A worker, wherever it is."""

    name: str

    async def run(self, assignment: Assignment) -> Outcome:
        """Raises WorkerLost, StoreError, PrerequisiteError."""
        ...

    async def check(self) -> None:
        """Raises PrerequisiteError when it can open no sandboxes any more, WorkerLost."""
        ...

    async def stats(self) -> WorkerStats:
        """Raises WorkerLost."""
        ...

    async def close(self) -> None:
        """End it, its rows flushed. Raises StoreError; a lost one is closed already."""
        ...


class Dispatcher:
    """Gives assignments to workers until all are done, or something forbids to go on."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        in_flight: int,
        on_outcome: Callable[[Outcome, bool], None],
        committed: Callable[[Assignment], Outcome | None] = lambda assignment: None,
    ) -> None:
        """`in_flight` episodes at a worker at once; `on_outcome` hears (outcome, is it tried again).

        `committed` tells what a lost worker has committed of an assignment after all.
        """
        self._queue = deque(assignments)
        self._in_flight = in_flight
        self._on_outcome = on_outcome
        self._committed = committed
        self._handles: list[Handle] = []
        self._lost_handles: set[str] = set()
        self._tasks: dict[asyncio.Task[Outcome], tuple[Handle, Assignment]] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self._changed = asyncio.Event()
        self._on_loss: Callable[[Handle], None] = lambda handle: None
        self._failure: Exception | None = None
        self.gave_up: list[Assignment] = []
        """Episodes whose workers were lost too often: they stay pending."""
        self.refused: str | None = None
        """Why a model answers nobody; its other episodes were not begun."""
        self.stopped: str | None = None
        """Why no new episode was begun before all were done; None when all were."""

    @property
    def handles(self) -> list[Handle]:
        """Workers that live, as far as is known."""
        return [handle for handle in self._handles if handle.name not in self._lost_handles]

    def on_loss(self, call: Callable[[Handle], None]) -> None:
        """Have `call` hear of each lost worker, once."""
        self._on_loss = call

    def add(self, handle: Handle) -> None:
        """A worker has come."""
        self._handles.append(handle)
        self._changed.set()

    def stop(self, why: str) -> None:
        """Begin nothing new."""
        self.stopped = self.stopped or why
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """No worker can be had, for this reason: `run` raises it."""
        self._failure = error
        self._changed.set()

    async def run(self) -> None:
        """Until all assignments have ended, or `stop`. Raises PrerequisiteError, StoreError."""
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                self._fill()
                if not self._tasks and (self.stopped or not self._queue):
                    return
                await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        """Keep every living worker at its number; the least loaded first."""
        while self._queue and not self.stopped:
            load = Counter(handle.name for handle, _ in self._tasks.values())
            free = [handle for handle in self.handles if load[handle.name] < self._in_flight]
            if not free:
                return
            handle = min(free, key=lambda one: load[one.name])
            assignment = self._queue.popleft()
            task = asyncio.create_task(handle.run(assignment))
            self._tasks[task] = (handle, assignment)

    async def _wait(self) -> None:
        self._changed.clear()
        change = asyncio.create_task(self._changed.wait())
        waiting: set[asyncio.Task[Any]] = {change, *self._tasks}
        timeout = None if self._tasks else PATIENCE_S
        done, _ = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        change.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await change
        if not done:
            raise PrerequisiteError(
                f"no worker has come for {PATIENCE_S:.0f} s; {len(self._queue)} episodes are pending: "
                f"run the same command again when the cluster has room"
            )
        for task in done & self._tasks.keys():
            handle, assignment = self._tasks.pop(task)
            await self._settle(task, handle, assignment)

    async def _settle(self, task: asyncio.Task[Outcome], handle: Handle, assignment: Assignment) -> None:
        try:
            outcome = task.result()
        except WorkerLost:
            if handle.name not in self._lost_handles:
                self._lost_handles.add(handle.name)
                self._on_loss(handle)
            found = await asyncio.to_thread(self._committed, assignment)
            if found is None:
                self._again(assignment, "lost", LOSSES)
                return
            outcome = found
        limit = ATTEMPTS.get(outcome.end, 1)
        retry = outcome.end in ATTEMPTS and not outcome.hopeless
        again = retry and self._again(assignment, outcome.end, limit)
        if outcome.hopeless:
            self.refused = outcome.error
            self._queue = deque(one for one in self._queue if one.spec.model != outcome.model)
        if outcome.end is EpisodeEnd.BUDGET_EXHAUSTED:
            self.stop("the sweep's dollars are spent")
        self._on_outcome(outcome, again)
        if outcome.end is EpisodeEnd.INFRA_ERROR:
            with contextlib.suppress(WorkerLost):
                await handle.check()

    def _again(self, assignment: Assignment, why: str, limit: int) -> bool:
        """Queue the next attempt unless there were enough of this kind."""
        key = (assignment.spec.id, why)
        self._tries[key] += 1
        if self._tries[key] >= limit:
            if why == "lost":
                self.gave_up.append(assignment)
            return False
        # At the front: what is prepared for its target may still be there.
        self._queue.appendleft(Assignment(assignment.spec, assignment.attempt + 1, replay=True))
        return True
