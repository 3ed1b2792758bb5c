"""`corridor bench`: what this machine does, against the bare and the cold way, in one run.

Figures are ratios of things measured side by side, interleaved, medians; never a promise
about seconds. The JSON is described in docs/benchmarks.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.dataset import find
from runner.drive import QUICK_IN_FLIGHT, Options, SandboxKind, images_for, run_sweep
from runner.progress import View
from runner.store import Run
from runner.sweep import from_table
from sandboxes.docker import DockerBackend
from sandboxes.errors import SandboxError, UsageError
from sandboxes.sandbox import Image, Limits, StepOutcome

DATASET = "repo_explore_bench"

STEP_CASES = {
    "werkzeug.http": """\
from werkzeug.http import dump_cookie, parse_etags, parse_options_header
print(parse_options_header('text/html; charset=utf-8; boundary="x y"'))
print(parse_etags('W/"weak", "strong"').contains_weak("weak"))
print(dump_cookie("session", "a b c", httponly=True, samesite="Lax"))
""",
    "flask.app": """\
from flask import Flask, jsonify
app = Flask("bench")
@app.route("/<int:number>")
def show(number):
    return jsonify(number=number)
client = app.test_client()
print(client.get("/7").json, client.get("/x").status_code)
""",
    "rich.console": """\
from rich.console import Console
console = Console(width=60, force_terminal=True)
with console.capture() as captured:
    console.print("[bold red]corridor[/]", [1, 2, 3], justify="center")
    console.rule("end")
print(len(captured.get()))
""",
}
"""One script of ordinary size for each of the three modules."""


def run(what: Literal["steps", "sweep"], repeat: int, sandbox: SandboxKind | None, format: str) -> str:
    """One benchmark; its result as text or as one JSON document. Raises UsageError, PrerequisiteError."""
    if what == "steps":
        if sandbox == "local":
            raise UsageError("corridor bench steps compares with containers: it has no --sandbox local")
        rows = asyncio.run(_steps(repeat))
    else:
        rows = [asyncio.run(_sweep(case, sandbox)) for case in SWEEP_CASES]
    if format == "json":
        return json.dumps({"bench": what, "machine": machine(), "rows": rows}, indent=2)
    return "\n".join(
        "  ".join(
            f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
        )
        for row in rows
    )


def machine() -> dict[str, Any]:
    """What was measured on."""
    with Path("/proc/meminfo").open() as file:
        memory_kib = int(file.readline().split()[1])
    return {
        "cpus": os.cpu_count(),
        "memory_mib": memory_kib // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


# -- steps


async def _steps(repeat: int) -> list[dict[str, Any]]:
    recipe = find(DATASET).recipe
    image = await asyncio.to_thread(images_for("docker").build, recipe)
    backend = DockerBackend("bench")
    return [await _step_case(backend, image, target, script, repeat) for target, script in STEP_CASES.items()]


async def _step_case(
    backend: DockerBackend, image: Image, target: str, script: str, repeat: int
) -> dict[str, Any]:
    """Warm, bare and cold, one after the other, `repeat` times; medians. Raises SandboxError."""
    limits = Limits()
    sandbox = await backend.open(image)
    bare = await asyncio.to_thread(backend.bare, image)
    try:
        facts = await sandbox.prepare(target)
        path = await asyncio.to_thread(bare.put, script)
        await sandbox.execute(target, script, limits)
        await asyncio.to_thread(bare.run, path)
        times: dict[str, list[float]] = {"warm": [], "bare": [], "cold": []}
        for _ in range(repeat):
            began = time.perf_counter()
            report = await sandbox.execute(target, script, limits)
            times["warm"].append(time.perf_counter() - began)
            if report.outcome is not StepOutcome.PASSED or report.measurement is None:
                raise SandboxError(f"the benchmark's script on {target}: {report.outcome} {report.exception}")
            began = time.perf_counter()
            code = await asyncio.to_thread(bare.run, path)
            times["bare"].append(time.perf_counter() - began)
            if code != 0:
                raise SandboxError(f"the benchmark's script on {target} failed bare: exit code {code}")
            cold = await backend.cold(image, facts, script, limits)
            times["cold"].append(cold.seconds)
            if cold.measurement != report.measurement:
                raise SandboxError(f"the benchmark's script on {target}: warm and cold coverage differ")
    finally:
        await asyncio.to_thread(bare.close)
        await sandbox.close()
    warm, naked, frozen = (statistics.median(times[kind]) for kind in ("warm", "bare", "cold"))
    return {
        "case": target,
        "n": repeat,
        "warm_s": warm,
        "bare_s": naked,
        "cold_s": frozen,
        "warm_over_bare": warm / naked,
        "cold_over_warm": frozen / warm,
    }


# -- sweep


@dataclass(frozen=True, slots=True)
class SweepCase:
    """One way to load the engine."""

    name: str
    latency_s: float
    in_flight: int | None
    limit: int


SWEEP_CASES = (
    SweepCase("scout", latency_s=0.0, in_flight=None, limit=24),
    SweepCase("latency", latency_s=2.0, in_flight=64, limit=32),
)


async def _sweep(case: SweepCase, sandbox: SandboxKind | None) -> dict[str, Any]:
    sweep = from_table(
        {
            "name": f"bench-{case.name}",
            "dataset": DATASET,
            "models": ["offline/scout"],
            "targets": {"limit": case.limit},
            "budget": {"executions": 12},
            "measure": {"mutants": 0},
            "strategy": [{"name": "random"}, {"name": "cov_greedy"}],
        },
        "bench",
    )
    with tempfile.TemporaryDirectory(prefix="corridor-bench-") as folder:
        view = View(quiet=True)
        options = Options(
            out=folder, sandbox=sandbox, workers=1, in_flight=case.in_flight, latency_s=case.latency_s
        )
        await run_sweep(sweep, options, view)
        return _sweep_row(case, Run(folder), view)


def _sweep_row(case: SweepCase, run: Run, view: View) -> dict[str, Any]:
    """From the episodes' rows and the workers' own clocks."""
    rows = run.folder.read("episodes", ["started_at", "finished_at"]).to_pylist()
    calls = run.folder.read("calls", ["episode_id", "step", "role"]).to_pylist()
    executions = run.folder.read("steps", ["step"]).num_rows
    ended = max(row["finished_at"] for row in rows)
    wall = (ended - min(row["started_at"] for row in rows)).total_seconds()
    first = next(sample for sample in view.samples if sample)
    last = view.samples[-1]
    slots = sum(one.slots for one in last)
    busy = sum(one.busy_s for one in last)
    in_flight = case.in_flight or slots * QUICK_IN_FLIGHT
    # Calls of one step and role are asked at the same time: together they wait once.
    waits = len({(call["episode_id"], call["step"], call["role"]) for call in calls})
    bound = max(waits * case.latency_s / in_flight, busy / slots)
    return {
        "case": case.name,
        "executions": executions,
        "wall_s": wall,
        "slots": slots,
        "in_flight": in_flight,
        "sandbox_busy_share": busy / (slots * wall),
        "bound_s": bound,
        "wall_over_bound": wall / bound,
        "executions_per_s": executions / wall,
        "worker_rss_start_mib": max(one.rss_mib for one in first),
        "worker_rss_end_mib": max(one.rss_mib for one in last),
    }
