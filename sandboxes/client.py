"""The host's end of a probe's stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from sandboxes.bundle import bundle
from sandboxes.errors import SandboxError, SandboxLost, TargetError
from sandboxes.probe import messages
from sandboxes.probe.messages import (
    Evaluate,
    Evaluated,
    Hello,
    Limits,
    Prepare,
    Prepared,
    Problem,
    Ran,
    Run,
    Settings,
)
from sandboxes.sandbox import Mutation, StepReport, SuiteReport, TargetFacts, report, suite_report

P = ParamSpec("P")
T = TypeVar("T")

START_TIMEOUT_S = 60.0
PREPARE_TIMEOUT_S = 300.0
EVALUATE_TIMEOUT_S = 3600.0
"""A suite's functions and mutants have their own limits; this one only ends what went wrong."""
STEP_MARGIN_S = 90.0
"""On top of twice a step's own limit (a step may run again to recover its coverage)."""


class Stream(Protocol):
    """A blocking two-way stream to a probe."""

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        ...

    def receive(self, size: int) -> bytes:
        """At least one byte, or none at the end. Raises OSError, TimeoutError."""
        ...

    def set_timeout(self, seconds: float) -> None:
        """For the calls that follow."""
        ...

    def why_ended(self) -> str:
        """What is known of an end that nobody asked for."""
        ...

    def stop(self) -> None:
        """End the probe and everything below it, and with it a `receive` that waits. Never raises."""
        ...

    def close(self) -> None:
        """Give back what the stream holds; after `stop`, on the thread that sends and receives."""
        ...


class ProbeSandbox:
    """A Sandbox over a stream: the part that all real back ends share.

    Blocking work happens on one thread of its own, so that the event loop never waits
    for an engine.
    """

    def __init__(self, name: str, connect: Callable[[], Stream], settings: Settings) -> None:
        self.name = name
        self._connect = connect
        self._settings = settings
        self._stream: Stream | None = None
        self._closed = False
        self._thread = concurrent.futures.ThreadPoolExecutor(1, f"sandbox-{name}")
        self.hello: Hello | None = None
        self.dirty = False
        """It cannot promise a clean next step; the pool replaces it."""

    async def start(self) -> None:
        """Connect, send the probe, wait for its hello. Raises SandboxLost, PrerequisiteError."""
        await self._in_thread(self._start)

    async def prepare(self, target: str) -> TargetFacts:
        """See Sandbox.prepare."""
        answer = await self._in_thread(self._ask, Prepare(target), PREPARE_TIMEOUT_S)
        if not isinstance(answer, Prepared):
            raise SandboxError(f"{self.name}: asked to prepare {target}, it said {type(answer).__name__}")
        return TargetFacts.from_message(answer)

    async def execute(self, target: str, script: str, limits: Limits) -> StepReport:
        """See Sandbox.execute."""
        patience = PREPARE_TIMEOUT_S + 2 * limits.timeout_s + STEP_MARGIN_S
        answer = await self._in_thread(self._ask, Run(target, script, limits), patience)
        if not isinstance(answer, Ran):
            raise SandboxError(f"{self.name}: asked for a step, it said {type(answer).__name__}")
        return report(answer)

    async def evaluate(self, target: str, suite: str, limits: Limits, mutation: Mutation) -> SuiteReport:
        """See Sandbox.evaluate."""
        request = Evaluate(
            target=target,
            suite=suite,
            limits=limits,
            mutants=mutation.size,
            seed=mutation.seed,
            part=mutation.part,
            matrix=mutation.matrix,
            only=mutation.only,
            every_test=mutation.every_test,
        )
        answer = await self._in_thread(self._ask, request, PREPARE_TIMEOUT_S + EVALUATE_TIMEOUT_S)
        if not isinstance(answer, Evaluated):
            raise SandboxError(f"{self.name}: asked for a suite, it said {type(answer).__name__}")
        return suite_report(answer)

    async def close(self) -> None:
        """See Sandbox.close."""
        if self._closed:
            return
        self.dirty = self._closed = True
        # To the end, even when who closes is cancelled meanwhile.
        await asyncio.shield(asyncio.to_thread(self._end))

    def _end(self) -> None:
        # Not on our thread: it may be waiting for a step that this very call must end.
        if self._stream is not None:
            self._stream.stop()
        self._thread.submit(self._release).result()
        self._thread.shutdown(wait=False)

    def _release(self) -> None:
        # Last on our thread: what `_start` connected while `close` was called is found here.
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.stop()
            stream.close()

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise SandboxLost(f"{self.name}: it is closed")
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        except asyncio.CancelledError:
            await self.close()
            raise

    def _start(self) -> None:
        stream = self._stream = self._connect()
        try:
            stream.set_timeout(START_TIMEOUT_S)
            stream.send(bundle(self._settings))
            hello = self._receive(stream)
        except (OSError, messages.BadFrame) as error:
            raise self._lost(error) from error
        if not isinstance(hello, Hello) or hello.protocol != messages.PROTOCOL:
            raise SandboxError(f"{self.name}: its probe began with {hello!r:.200}")
        self.hello = hello

    def _ask(self, request: messages.Message, timeout_s: float) -> messages.Message:
        stream = self._stream
        if stream is None:
            raise SandboxLost(f"{self.name}: it is closed")
        try:
            stream.set_timeout(timeout_s)
            stream.send(messages.encode(request))
            answer = self._receive(stream)
        except (OSError, messages.BadFrame) as error:
            raise self._lost(error) from error
        if isinstance(answer, Problem):
            self.dirty = self.dirty or answer.dirty
            kind = TargetError if answer.where == "preparing the target" else SandboxError
            raise kind(f"{self.name}: {answer.where}: {answer.message}")
        return answer

    def _receive(self, stream: Stream) -> messages.Message:
        body = messages.read_frame(stream.receive)
        if body is None:
            raise OSError("its probe ended")
        return messages.decode(body)

    def _lost(self, error: Exception) -> SandboxLost:
        self.dirty = True
        why = self._stream.why_ended() if self._stream is not None else "it is closed"
        return SandboxLost(f"{self.name}: {str(error) or type(error).__name__}; {why}")
