"""A worker: one process that keeps many episodes going over few sandboxes.

Episodes wait for models most of the time and burn a core only in steps, so a worker
holds many of the first and few of the second. It writes its rows itself; what it tells
the driver of an episode is a few numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from runner.dispatch import Assignment, Outcome, WorkerStats
from runner.episode import Means, run_episode
from runner.failures import CallFailed, FailureKind
from runner.nouns import Answer, EpisodeSpec, Limits, Question
from runner.scripted import Silent
from runner.store import Recording, Run, Writer
from sandboxes.errors import UsageError
from sandboxes.pool import Pool
from sandboxes.sandbox import Backend, Image

if TYPE_CHECKING:
    from runner.limiter import LimiterPort
    from runner.llm import Model
    from runner.prices import Prices
    from runner.purse import PursePort


HOPELESS = frozenset({FailureKind.AUTH, FailureKind.QUOTA, FailureKind.NOT_FOUND})
"""Failures of a model that every other episode would meet too."""

REPLAY = "replay/"
"""How the name of a model begins that is a recorded run."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """All that a worker needs to know; sent to wherever it starts."""

    run: str
    sweep: str
    image: Image
    sandbox: Literal["docker", "local"]
    isolated: bool | None
    """As LocalBackend's."""
    slots: int
    limits: Limits
    prices: Prices
    model_timeout_s: float = 600.0
    latency_s: float = 0.0
    """Added to each answer: benchmarks simulate a slow model with it."""
    resuming: frozenset[str] = frozenset()
    """Episodes that left calls before this run of the sweep began."""


class Worker:
    """Runs assignments; start it before, close it after."""

    def __init__(
        self,
        config: WorkerConfig,
        purse: PursePort | None,
        limiters: Callable[[str], LimiterPort],
    ) -> None:
        """`limiters` gives a model its limiter, which all workers share."""
        self.config = config
        self._purse = purse
        self._limiters = limiters
        self._run = Run(config.run)
        self._stack = contextlib.AsyncExitStack()
        self._models: dict[str, asyncio.Task[Model]] = {}
        self._recorded: asyncio.Task[dict[str, Recording]] | None = None
        self._in_flight = 0
        self._began = time.monotonic()

    async def start(self) -> None:
        """Raises PrerequisiteError when sandboxes cannot be opened here."""
        self.backend = make_backend(self.config)
        await self.backend.check()
        self._stack.enter_context(self._run.working())
        self._writer = await self._stack.enter_async_context(Writer(self._run))
        self._pool = Pool(self.backend, self.config.slots)
        self._stack.push_async_callback(self._pool.close)
        self._began = time.monotonic()

    async def close(self) -> None:
        """Flush, and end sandboxes and models. Raises StoreError when rows could not be written."""
        for task in self._models.values():
            with contextlib.suppress(Exception):  # it never opened: its episodes have said so
                await (await task).close()
        await self._stack.aclose()

    async def check(self) -> None:
        """Raises PrerequisiteError when this worker's back end does not serve any more."""
        await self.backend.check()

    async def run(self, assignment: Assignment) -> Outcome:
        """One attempt, committed. Raises StoreError, PrerequisiteError."""
        self._in_flight += 1
        try:
            spec = assignment.spec
            model = await self._model(spec.model)
            recording = await self._recording(assignment)
            means = Means(
                slots=self._pool,
                image=self.config.image,
                model=model,
                writer=self._writer,
                purse=self._purse,
                upper_bound_usd=self._upper_bound(spec.model),
                sweep=self.config.sweep,
            )
            row, error = await run_episode(spec, assignment.attempt, means, recording)
        finally:
            self._in_flight -= 1
        hopeless = isinstance(error, CallFailed) and error.kind in HOPELESS
        return Outcome.of_row(asdict(row), hopeless)

    def stats(self) -> WorkerStats:
        """Now."""
        return WorkerStats(
            name=self._writer.name,
            in_flight=self._in_flight,
            waiting=self._pool.waiting,
            slots=self.config.slots,
            busy_s=self._pool.busy_s,
            alive_s=time.monotonic() - self._began,
            rss_mib=rss_mib(),
        )

    async def _model(self, name: str) -> Model:
        task = self._models.get(name)
        if task is None:
            task = self._models[name] = asyncio.create_task(self._open(name))
        return await asyncio.shield(task)

    async def _open(self, name: str) -> Model:
        if name.startswith(REPLAY):
            return Silent(name)
        from runner.llm import open_model

        model = await open_model(
            name,
            limiter=self._limiters(name),
            prices=self.config.prices,
            timeout_s=self.config.model_timeout_s,
        )
        return Delayed(model, self.config.latency_s) if self.config.latency_s else model

    def _upper_bound(self, model: str) -> Callable[[Question], float]:
        from runner.purse import upper_bound_usd

        tariff = self.config.prices.of(model)

        def bound(question: Question) -> float:
            if tariff is None:
                raise UsageError(f"the price of {model} is not known, so no cap can hold")
            return upper_bound_usd(question, tariff)

        return bound

    async def _replayed(self, spec: EpisodeSpec) -> Recording:
        run = Run(spec.model.removeprefix(REPLAY))
        like = await asyncio.to_thread(run.episodes_like, spec)
        if len(like) != 1:
            raise UsageError(
                f"{run.name} has {len(like)} episodes of {spec.target.module} x {spec.strategy.label} x "
                f"seed {spec.seed} with these settings: to be replayed, it must have one"
            )
        found = await asyncio.to_thread(run.recordings, set(like))
        return replace(found[like[0]], dice=like[0])

    async def _recording(self, assignment: Assignment) -> Recording:
        """What the episode's earlier attempts left, or the run that its model replays."""
        if assignment.spec.model.startswith(REPLAY):
            return await self._replayed(assignment.spec)
        if not assignment.replay:
            return Recording()
        spec_id = assignment.spec.id
        if spec_id in self.config.resuming:
            if self._recorded is None:
                ids = set(self.config.resuming)
                self._recorded = asyncio.create_task(asyncio.to_thread(self._run.recordings, ids))
            found = (await asyncio.shield(self._recorded)).pop(spec_id, None)
            if found is not None:
                return found
        await self._writer.durable()
        return (await asyncio.to_thread(self._run.recordings, {spec_id}))[spec_id]


class Delayed:
    """A model with latency added, for benchmarks of the engine."""

    def __init__(self, model: Model, seconds: float) -> None:
        self.name = model.name
        self._model = model
        self._seconds = seconds

    async def ask(self, question: Question, sample: int) -> Answer:
        """As the model, later."""
        await asyncio.sleep(self._seconds)
        answer = await self._model.ask(question, sample)
        return replace(answer, latency_s=answer.latency_s + self._seconds)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def make_backend(config: WorkerConfig) -> Backend:
    """Raises PrerequisiteError when isolation is asked for and cannot be had."""
    if config.sandbox == "docker":
        from sandboxes.docker import DockerBackend

        return DockerBackend(run=config.run, limits=config.limits)
    from sandboxes.local import LocalBackend

    return LocalBackend(run=config.run, limits=config.limits, isolated=config.isolated)


def rss_mib() -> float:
    """Resident memory of this process, in MiB."""
    with open("/proc/self/statm") as file:  # noqa: PTH123  # read often: no Path object for it
        pages = int(file.read().split()[1])
    return pages * resource.getpagesize() / (1024 * 1024)
