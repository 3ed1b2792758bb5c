"""What a sweep would run, before anything is spent."""

from __future__ import annotations

import json
import os

from runner import llm
from runner.drive import SandboxKind, choose_sandbox, images_for, prices_for
from runner.strategies import strategy
from runner.sweep import Sweep
from sandboxes.errors import PrerequisiteError
from sandboxes.sandbox import Image


def plan(sweep: Sweep, wanted: SandboxKind | None, format: str) -> str:
    """The plan, as text or as one JSON document. Raises UsageError where the sweep cannot be."""
    sandbox, remark = choose_sandbox(wanted)
    found = _find(sweep, sandbox)
    prices = prices_for(sweep)
    episodes = sweep.episodes(found or Image(sweep.dataset.recipe.base, "not built", sandbox))
    said = {
        "sweep": sweep.name,
        "dataset": sweep.dataset.name,
        "targets": len(sweep.targets),
        "strategies": [one.label for one in sweep.strategies],
        "models": {
            model: {
                "ready": _ready(model),
                "price_known": prices.of(model) is not None,
            }
            for model in sweep.models
        },
        "seeds": sweep.seeds,
        "episodes": len(episodes),
        "executions_at_most": sum(
            one.budget.executions for one in episodes if strategy.build(one.strategy).unit == "executions"
        ),
        "suites_at_most": sum(
            one.budget.calls for one in episodes if strategy.build(one.strategy).unit == "calls"
        ),
        "mutants_per_suite": sweep.measure.mutants,
        "usd_at_most": sweep.usd,
        "sandbox": sandbox,
        "sandbox_remark": remark,
        "image": found.ref if found else None,
        "image_digest": found.digest if found else None,
        "image_state": "present" if found else "missing: `corridor run` builds it",
    }
    if format == "json":
        return json.dumps(said, indent=2)
    return "\n".join(f"{key.replace('_', ' '):20} {_shown(value)}" for key, value in said.items())


def _find(sweep: Sweep, sandbox: SandboxKind) -> Image | None:
    try:
        return images_for(sandbox).find(sweep.dataset.recipe)
    except PrerequisiteError:
        return None  # no engine: the plan says "missing", `run` says why


def _ready(model: str) -> str:
    """'ready', or what is missing."""
    try:
        llm.check_model(model, os.environ)
    except PrerequisiteError as error:
        return str(error)
    return "ready"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
