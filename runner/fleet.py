"""Where workers live: in this process, or as actors of a Ray cluster. The only file that imports ray."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from runner.dispatch import Assignment, Dispatcher, Outcome, WorkerLost, WorkerStats
from runner.limiter import Grant, Limiter, LimiterPort
from runner.purse import Purse
from runner.worker import Worker, WorkerConfig
from sandboxes.errors import PrerequisiteError, UsageError


class Fleet(Protocol):
    """A way to have workers."""

    def serving(self, dispatcher: Dispatcher) -> contextlib.AbstractAsyncContextManager[None]:
        """Give the dispatcher workers, and new ones for lost ones, until the context ends."""
        ...


class InlineHandle:
    """A worker in this process."""

    def __init__(self, worker: Worker) -> None:
        self.name = "inline"
        self._worker = worker

    async def run(self, assignment: Assignment) -> Outcome:
        """See Handle."""
        return await self._worker.run(assignment)

    async def check(self) -> None:
        """See Handle."""
        await self._worker.check()

    async def stats(self) -> WorkerStats:
        """See Handle."""
        return self._worker.stats()

    async def close(self) -> None:
        """See Handle."""
        await self._worker.close()


class InlineFleet:
    """One worker in this process: a plain loop, no cluster."""

    def __init__(self, config: WorkerConfig, cap: tuple[float, float] | None) -> None:
        """`cap` is (US dollars of the sweep, US dollars spent before)."""
        self._config = config
        self._cap = cap

    @contextlib.asynccontextmanager
    async def serving(self, dispatcher: Dispatcher) -> AsyncIterator[None]:
        """See Fleet."""
        purse = Purse(*self._cap) if self._cap is not None else None
        limiters: Callable[[str], LimiterPort] = functools.cache(Limiter)
        worker = Worker(self._config, purse, limiters)
        try:
            await worker.start()
            dispatcher.add(InlineHandle(worker))
            yield
        finally:
            await worker.close()


class RayHandle:
    """A worker that is an actor."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self._actor = actor

    async def run(self, assignment: Assignment) -> Outcome:
        """See Handle."""
        outcome: Outcome = await _answered(self._actor.run.remote(assignment))
        return outcome

    async def check(self) -> None:
        """See Handle."""
        await _answered(self._actor.check.remote())

    async def stats(self) -> WorkerStats:
        """See Handle."""
        stats: WorkerStats = await _answered(self._actor.stats.remote())
        return stats

    async def close(self) -> None:
        """See Handle."""
        with contextlib.suppress(WorkerLost):
            await _answered(self._actor.close.remote())


class RayFleet:
    """Workers on a Ray cluster: one started here, or one that is there already."""

    def __init__(
        self,
        config: WorkerConfig,
        cap: tuple[float, float] | None,
        workers: int | None,
        address: str | None,
        concurrency: int,
    ) -> None:
        """`workers` None fills the cluster. `concurrency` calls may be at a worker at once."""
        self._config = config
        self._cap = cap
        self._workers = workers
        self._address = address
        self._concurrency = concurrency
        self._recruits: set[asyncio.Task[None]] = set()
        self._count = 0

    @contextlib.asynccontextmanager
    async def serving(self, dispatcher: Dispatcher) -> AsyncIterator[None]:
        """See Fleet."""
        import ray

        await asyncio.to_thread(self._connect)
        everybody = {"max_concurrency": 10_000}
        purse = _remote(Purse).options(**everybody).remote(*self._cap) if self._cap is not None else None
        desk = _remote(Desk).options(**everybody).remote()
        wanted = self._workers or self._room()
        recruit = functools.partial(self._recruit, dispatcher, purse, desk)
        dispatcher.on_loss(lambda handle: self._start(recruit()))
        for _ in range(wanted):
            self._start(recruit())
        try:
            yield
        finally:
            for task in self._recruits:
                task.cancel()
            await asyncio.gather(*self._recruits, return_exceptions=True)
            closing = [handle.close() for handle in dispatcher.handles]
            failures = await asyncio.gather(*closing, return_exceptions=True)
            await asyncio.to_thread(ray.shutdown)
            for failure in failures:
                if isinstance(failure, Exception):
                    raise failure

    def _connect(self) -> None:
        """Raises PrerequisiteError."""
        import ray

        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=self._address or "local",
                include_dashboard=False if self._address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                namespace="corridor",
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise PrerequisiteError(
                f"no Ray cluster at {self._address or 'this machine'}: {error}; start one, or use --inline"
            ) from error

    def _room(self) -> int:
        """Workers that fit into the cluster as it is."""
        import ray

        cores = ray.cluster_resources().get("CPU", 0)
        fit = int(cores // self._config.slots)
        if fit < 1:
            raise UsageError(
                f"the cluster has {cores:.0f} cores, too few for one worker of {self._config.slots} slots; "
                f"use --slots"
            )
        return fit

    def _start(self, recruiting: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(recruiting)
        self._recruits.add(task)
        task.add_done_callback(self._recruits.discard)

    async def _recruit(self, dispatcher: Dispatcher, purse: Any, desk: Any) -> None:
        """Ask the cluster for a worker; when it has come and is ready, hand it to the dispatcher."""
        self._count += 1
        name = f"worker-{self._count}"
        actor = (
            _remote(RayWorker)
            .options(
                num_cpus=self._config.slots,
                max_concurrency=self._concurrency + 8,
                # A lost worker is replaced by us: a restarted one would keep calls waiting for room.
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
            )
            .remote(self._config, purse, desk)
        )
        try:
            await _answered(actor.start.remote())
        except WorkerLost:
            self._start(self._recruit(dispatcher, purse, desk))
            return
        except Exception as error:
            dispatcher.fail(error)
            return
        dispatcher.add(RayHandle(name, actor))


class Desk:
    """The actor that holds the limiter of every model, for all workers."""

    def __init__(self) -> None:
        self._limiters: dict[str, Limiter] = {}

    async def acquire(self, model: str, tokens: int, patience_s: float, lease_s: float) -> Grant:
        """As LimiterPort.acquire."""
        return await self._of(model).acquire(tokens, patience_s, lease_s)

    async def release(self, model: str, lease: str, tokens: int | None) -> None:
        """As LimiterPort.release."""
        await self._of(model).release(lease, tokens)

    async def back_off(
        self, model: str, lease: str, tries: int, retry_after_s: float | None, busy: bool
    ) -> float:
        """As LimiterPort.back_off."""
        return await self._of(model).back_off(lease, tries, retry_after_s, busy)

    def _of(self, model: str) -> Limiter:
        if model not in self._limiters:
            self._limiters[model] = Limiter(model)
        return self._limiters[model]


class RemoteLimiter:
    """A LimiterPort: the desk's limiter of one model."""

    def __init__(self, desk: Any, model: str) -> None:
        self._desk = desk
        self._model = model

    async def acquire(self, tokens: int, patience_s: float, lease_s: float) -> Grant:
        """See LimiterPort."""
        grant: Grant = await _answered(self._desk.acquire.remote(self._model, tokens, patience_s, lease_s))
        return grant

    async def release(self, lease: str, tokens: int | None) -> None:
        """See LimiterPort."""
        await _answered(self._desk.release.remote(self._model, lease, tokens))

    async def back_off(self, lease: str, tries: int, retry_after_s: float | None, busy: bool) -> float:
        """See LimiterPort."""
        asked = self._desk.back_off.remote(self._model, lease, tries, retry_after_s, busy)
        wait: float = await _answered(asked)
        return wait


class RemotePurse:
    """A PursePort: the actor that holds the sweep's dollars."""

    def __init__(self, purse: Any) -> None:
        self._purse = purse

    async def reserve(self, bound_usd: float) -> str:
        """See PursePort."""
        reservation: str = await _answered(self._purse.reserve.remote(bound_usd))
        return reservation

    async def settle(self, reservation: str, actual_usd: float | None) -> None:
        """See PursePort."""
        await _answered(self._purse.settle.remote(reservation, actual_usd))

    async def left(self) -> float:
        """See PursePort."""
        left: float = await _answered(self._purse.left.remote())
        return left


class RayWorker:
    """The actor around a Worker. Its methods run as one event loop's tasks."""

    def __init__(self, config: WorkerConfig, purse: Any, desk: Any) -> None:
        port = RemotePurse(purse) if purse is not None else None
        self._worker = Worker(config, port, lambda model: RemoteLimiter(desk, model))

    async def start(self) -> None:
        """As Worker.start."""
        await self._worker.start()

    async def run(self, assignment: Assignment) -> Outcome:
        """As Worker.run."""
        return await self._worker.run(assignment)

    async def check(self) -> None:
        """As Worker.check."""
        await self._worker.check()

    async def stats(self) -> WorkerStats:
        """As Worker.stats."""
        return self._worker.stats()

    async def close(self) -> None:
        """As Worker.close."""
        await self._worker.close()


@functools.cache
def _remote(kind: type) -> Any:
    import ray

    return ray.remote(num_cpus=0)(kind)


async def _answered(reference: Any) -> Any:
    """An actor's answer; its own exceptions as they were. Raises WorkerLost when the actor is gone."""
    import ray.exceptions

    try:
        return await reference
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
    except (
        ray.exceptions.RayActorError,
        ray.exceptions.RaySystemError,
        ray.exceptions.ObjectLostError,
    ) as error:
        raise WorkerLost(f"a worker is gone: {error}") from error
