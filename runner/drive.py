"""What `corridor run` does: from a sweep and a folder to committed episodes.

Running the same command again resumes: what is committed stays, what failed is tried
again, what was asked of models is not asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

from runner import llm
from runner.dispatch import Assignment, Dispatcher, Outcome
from runner.nouns import EpisodeEnd, EpisodeSpec
from runner.prices import Prices
from runner.progress import View
from runner.store import Run
from runner.sweep import Sweep, planned_rows
from runner.worker import WorkerConfig
from sandboxes import leftovers
from sandboxes.errors import PrerequisiteError, UsageError
from sandboxes.images import DockerImages, Images, LocalImages
from sandboxes.local import isolation
from sandboxes.sandbox import Image

PACKAGES = ("corridor-bench", "coverage", "docker", "duckdb", "litellm", "pyarrow", "ray")

QUICK_IN_FLIGHT, SLOW_IN_FLIGHT = 6, 32
"""Episodes for each slot: enough to keep it busy while the others are written down, or wait for a model."""

SandboxKind = Literal["docker", "local"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run; none of it decides a result."""

    out: str
    sandbox: SandboxKind | None = None
    """None takes Docker when an engine answers."""
    trust: bool = False
    """Run any model's scripts on the local back end even without isolation."""
    workers: int | None = None
    slots: int | None = None
    """Sandboxes of each worker; its cores."""
    in_flight: int | None = None
    """Episodes of each worker at once."""
    address: str | None = None
    inline: bool = False
    keep_failed: bool = False
    """Leave episodes that failed before as they are."""
    latency_s: float = 0.0
    """Simulated latency of models, for benchmarks."""


@dataclass(slots=True)
class Tally:
    """How a run stands."""

    planned: int = 0
    done: int = 0
    failed: int = 0
    spent_usd: float = 0.0
    stopped: str | None = None
    refused: str | None = None
    """What a model said that answers nobody."""
    interrupted: bool = False
    last_errors: dict[str, str] = field(default_factory=dict)
    """The last error of each way to fail."""

    @property
    def pending(self) -> int:
        """Planned, and neither done nor failed."""
        return self.planned - self.done - self.failed


def choose_sandbox(wanted: SandboxKind | None) -> tuple[SandboxKind, str | None]:
    """(the back end, a remark for people when it is not the usual one)."""
    if wanted is not None:
        return wanted, None
    from sandboxes.docker import connect

    try:
        connect().close()
    except PrerequisiteError as error:
        held = "isolated by namespaces" if isolation() is not None else "WITHOUT isolation"
        return "local", f"{str(error).split(';')[0]}; running on the local sandbox, {held}"
    return "docker", None


def images_for(sandbox: SandboxKind) -> Images:
    """Where a back end's images come from."""
    return DockerImages() if sandbox == "docker" else LocalImages()


def isolated_for(sandbox: SandboxKind, models: Sequence[str], trust: bool) -> bool | None:
    """LocalBackend's `isolated` for these models. Raises PrerequisiteError when it cannot be and must.

    Scripts of Corridor's own model may run without namespaces where the system has none.
    """
    if sandbox == "docker" or trust:
        return None
    own = all(model.startswith("offline/") for model in models)
    return None if own and isolation() is None else True


def check_sweep(sweep: Sweep, prices: Prices) -> None:
    """Refuse what cannot work before anything is spent. Raises UsageError, PrerequisiteError."""
    for model in sweep.models:
        llm.check_model(model, os.environ)
        if sweep.usd is not None and prices.of(model) is None:
            near = prices.nearest(model)
            raise UsageError(
                f"sweep {sweep.name!r} has budget.usd = {sweep.usd}, but the price of {model} is not known"
                + (f" (did you mean {near[0]}?)" if near else "")
                + f': give it in a table [prices."{model}"], or leave budget.usd out'
            )


def prices_for(sweep: Sweep) -> Prices:
    """LiteLLM's table, under the sweep's own prices."""
    said = {
        model: {name: value for name, value in asdict(price).items() if value is not None}
        for model, price in sweep.prices.items()
    }
    return Prices.load(said)


async def run_sweep(sweep: Sweep, options: Options, view: View) -> Tally:
    """Run until all is done or something forbids to go on. Raises CorridorError."""
    prices = prices_for(sweep)
    check_sweep(sweep, prices)
    sandbox, remark = choose_sandbox(options.sandbox)
    if remark:
        view.say(remark)
    isolated = isolated_for(sandbox, sweep.models, options.trust)
    for gone in await asyncio.to_thread(leftovers.remove):
        view.say(f"removed {gone}, which a dead run had left")
    run = Run(options.out)
    with run.locked():
        view.say(f"image of {sweep.dataset.name}: looking, or building it ({sandbox})")
        image = await asyncio.to_thread(images_for(sandbox).build, sweep.dataset.recipe)
        specs = sweep.episodes(image)
        _write_manifest(run, sweep, image, sandbox, prices)
        await asyncio.to_thread(_wait_for_old_workers, run)
        run.plan(planned_rows(sweep, specs))
        assignments, tally = _pending(run, specs, options.keep_failed)
        slots = options.slots or min(os.cpu_count() or 1, 8)
        config = WorkerConfig(
            run=str(run.folder.local or options.out),
            sweep=sweep.name,
            image=image,
            sandbox=sandbox,
            isolated=isolated,
            slots=slots,
            limits=sweep.limits,
            prices=prices,
            latency_s=options.latency_s,
            resuming=frozenset(one.spec.id for one in assignments if one.replay),
        )
        tally.spent_usd = run.spent()
        cap = (sweep.usd, tally.spent_usd) if sweep.usd is not None else None
        await _dispatch(assignments, config, cap, options, tally, view, sweep.models)
        if not tally.interrupted:
            view.say("compacting")
            await asyncio.to_thread(run.compact)
    return tally


async def _dispatch(
    assignments: list[Assignment],
    config: WorkerConfig,
    cap: tuple[float, float] | None,
    options: Options,
    tally: Tally,
    view: View,
    models: Sequence[str],
) -> None:
    if not assignments:
        return
    from runner.fleet import Fleet, InlineFleet, RayFleet

    in_flight = options.in_flight or config.slots * (
        QUICK_IN_FLIGHT if _quick(models, config) else SLOW_IN_FLIGHT
    )

    def hear(outcome: Outcome, again: bool) -> None:
        if outcome.end.scores:
            tally.done += 1
        elif not again:
            tally.failed += 1
        if outcome.error is not None:
            tally.last_errors[outcome.end] = outcome.error
        view.outcome(outcome, again)

    def committed(assignment: Assignment) -> Outcome | None:
        row = Run(config.run).committed(assignment.spec.id, assignment.attempt)
        return Outcome.of_row(row) if row is not None else None

    dispatcher = Dispatcher(assignments, in_flight, hear, committed)
    fleet: Fleet = (
        InlineFleet(config, cap)
        if options.inline
        else RayFleet(config, cap, options.workers, options.address, in_flight)
    )
    interrupt = asyncio.Event()
    with _interrupts(interrupt, dispatcher, tally):
        async with fleet.serving(dispatcher):
            watching = asyncio.create_task(view.watch(dispatcher, tally))
            running = asyncio.create_task(dispatcher.run())
            interrupted = asyncio.create_task(interrupt.wait())
            try:
                await asyncio.wait({running, interrupted}, return_when=asyncio.FIRST_COMPLETED)
                if tally.interrupted:
                    running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
            finally:
                await view.read(dispatcher)
                for task in (watching, interrupted):
                    task.cancel()
                await asyncio.gather(watching, interrupted, return_exceptions=True)
    tally.stopped = tally.stopped or dispatcher.stopped
    tally.refused = dispatcher.refused


def _quick(models: Sequence[str], config: WorkerConfig) -> bool:
    """Whether episodes hardly wait for answers, so that few at once keep the slots busy."""
    return config.latency_s == 0 and all(model.startswith(("offline/", "replay/")) for model in models)


@contextlib.contextmanager
def _interrupts(interrupt: asyncio.Event, dispatcher: Dispatcher, tally: Tally) -> Iterator[None]:
    """Ctrl-C once: nothing new, what runs is dropped, rows are flushed. Twice: at once."""
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if tally.interrupted:
            os._exit(130)
        tally.interrupted = True
        dispatcher.stop("interrupted")
        interrupt.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _wait_for_old_workers(run: Run) -> None:
    with run.working(exclusive=True):
        pass


def _write_manifest(run: Run, sweep: Sweep, image: Image, sandbox: str, prices: Prices) -> None:
    """Raises UsageError when the run was made with another image: its numbers would not compare."""
    known = run.manifest()
    images = {sweep.dataset.name: {"ref": image.ref, "digest": image.digest, "sandbox": sandbox}}
    if known is not None:
        for dataset, other in known["images"].items():
            if dataset in images and images[dataset]["digest"] != other["digest"]:
                raise UsageError(
                    f"{run.name} was made with image {other['ref']} ({other['sandbox']}, {other['digest']}); "
                    f"now {dataset} has {image.ref} ({sandbox}, {image.digest}): numbers of two images do "
                    f"not mix. Use another --out, or bring that image back"
                )
        images = known["images"] | images
    manifest = {
        "sweep": sweep.resolved(),
        "images": images,
        "max_infra_share": sweep.max_infra_share,
        "packages": {name: version(name) for name in PACKAGES},
        "prices": prices.version,
        "begun_at": (known or {}).get("begun_at") or datetime.now(UTC).isoformat(),
    }
    if known is not None and known["sweep"] != manifest["sweep"]:
        manifest["earlier_sweeps"] = [*known.get("earlier_sweeps", []), known["sweep"]]
    elif known is not None:
        manifest["earlier_sweeps"] = known.get("earlier_sweeps", [])
    run.write_manifest(manifest)


def _pending(run: Run, specs: Sequence[EpisodeSpec], keep_failed: bool) -> tuple[list[Assignment], Tally]:
    """What is to be done, and how the run stands."""
    ends = run.ends()
    attempts = run.attempts()
    tally = Tally(planned=len(run.planned()))
    for found in ends.values():
        tally.done += any(end.scores for _, end in found)
        tally.failed += not any(end.scores for _, end in found)
    assignments = []
    for spec in specs:
        committed: list[EpisodeEnd] = [end for _, end in ends.get(spec.id, [])]
        if any(end.scores for end in committed) or (committed and keep_failed):
            continue
        tally.failed -= bool(committed)
        taken = attempts.get(spec.id, 0)
        assignments.append(Assignment(spec, taken + 1, replay=taken > 0))
    return assignments, tally
