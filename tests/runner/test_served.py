"""Sweeps on a model behind HTTP: usage, money, refusals, secrets; through LiteLLM, like any provider's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.store import Run
from tests.runner.runs import corridor, started, stop_when, write
from tests.runner.test_runs import SANDBOX
from tests.servers.openai_server import INVALID_UTF8, Reply, Request, Server, answer, busy, serving, status

KEY = "sk-do-not-show-this-to-anybody"
SCRIPT = "```python\nimport click.types\nprint(click.types.INT.convert('1', None, None))\n```"

SWEEP = """
name = "served"
dataset = "repo_explore_bench"
models = ["openai/served"]
[targets]
modules = ["click.types"]
[measure]
mutants = 0
[budget]
executions = 3
[[strategy]]
name = "random"
candidates = 1
[[strategy]]
name = "cov_greedy"
candidates = 2
"""

PRICES = '[prices."openai/served"]\ninput = 1.0\noutput = 10000.0\n'


def environment(server: Server) -> dict[str, str]:
    return {"OPENAI_API_BASE": server.base_url, "OPENAI_API_KEY": KEY}


def command(folder: Path, *more: str, text: str = SWEEP) -> list[str | Path]:
    return ["run", write(folder, text), "--out", folder / "run", "--inline", "--sandbox", SANDBOX, *more]


def test_usage_comes_from_the_provider_and_cost_from_us(tmp_path: Path) -> None:
    with serving(lambda request: answer(SCRIPT)) as server:
        done = corridor(*command(tmp_path, text=SWEEP + PRICES), env=environment(server))
    assert done.returncode == 0, done.stderr
    calls = Run(tmp_path / "run").folder.read("calls").to_pylist()
    assert len(calls) == len(server.requests) == 3 + 6
    assert {(call["prompt_tokens"], call["completion_tokens"]) for call in calls} == {(11, 7)}
    price = 11 * 1e-6 + 7 * 10000e-6
    assert all(call["cost_usd"] == pytest.approx(price) for call in calls)
    episodes = Run(tmp_path / "run").folder.read("episodes").to_pylist()
    assert sorted(row["calls"] for row in episodes) == [3, 6]
    assert sum(row["cost_usd"] for row in episodes) == pytest.approx(9 * price)
    assert all(row["branches"] > 0 for row in episodes)
    assert {request.json["temperature"] for request in server.requests} == {0.9}


def test_an_unknown_price_is_null(tmp_path: Path) -> None:
    with serving(lambda request: answer(SCRIPT)) as server:
        done = corridor(*command(tmp_path), env=environment(server))
    assert done.returncode == 0, done.stderr
    assert {row["cost_usd"] for row in Run(tmp_path / "run").folder.read("episodes").to_pylist()} == {None}
    shown = json.loads(corridor("leaderboard", tmp_path / "run", "--format", "json").stdout)
    assert [row["cost_usd"] for row in shown["rows"]] == [None, None]


def test_a_cap_without_a_price_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with serving([]) as server:
        done = corridor(*command(tmp_path, "--set", "budget.usd=1.0"), env=environment(server))
    assert done.returncode == 2
    assert "the price of openai/served is not known" in done.stderr
    assert server.requests == []


def test_a_cap_holds_across_restarts(tmp_path: Path) -> None:
    """A call costs 0.07 and could cost 1.01, which must fit before it is made: five calls, not six."""
    cap = "--set=budget.usd=1.3"
    text = SWEEP + PRICES + "\n"
    spent = []
    with serving(lambda request: answer(SCRIPT)) as server:
        for _ in range(3):
            done = corridor(
                *command(tmp_path, cap, "--set=max_tokens=100", text=text), env=environment(server)
            )
            spent.append(Run(tmp_path / "run").spent())
            assert done.returncode in (0, 1), done.stderr
    assert "the sweep's dollars are spent" in done.stderr
    assert spent == [pytest.approx(5 * 0.070011)] * 3
    assert len(server.requests) == 5


def test_a_wrong_key_stops_the_sweep_and_is_shown_to_nobody(tmp_path: Path) -> None:
    def refuse(request: Request) -> Reply:
        return status(401, f"Incorrect API key provided: {request.headers['authorization']}")

    with serving(refuse) as server:
        done = corridor(*command(tmp_path), env=environment(server))
    assert done.returncode == 3
    assert "check OPENAI_API_KEY" in done.stderr
    assert KEY not in done.stderr + done.stdout
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    assert KEY not in json.dumps(Run(tmp_path / "run").folder.read("calls").to_pylist(), default=str)
    assert KEY not in json.dumps(Run(tmp_path / "run").folder.read("episodes").to_pylist(), default=str)


def test_a_missing_key_is_a_missing_prerequisite(tmp_path: Path) -> None:
    done = corridor(*command(tmp_path), env={"OPENAI_API_KEY": ""})
    assert done.returncode == 3
    assert "OPENAI_API_KEY" in done.stderr


def test_an_unknown_provider_is_refused(tmp_path: Path) -> None:
    done = corridor(*command(tmp_path, "--model", "opnai/gpt"))
    assert done.returncode == 2
    assert "openai" in done.stderr


SAID = (
    (answer(""), "no_code"),
    (answer(None), "no_code"),
    (answer("I cannot help with that."), "no_code"),
    (answer("```python\nimport click.types\nprint('cut", finish="length"), "passed"),
    (answer("```python\nx = (\n```"), "failed"),
    (answer(f"{SCRIPT}\n```python\ny = 1\n```\n```\nz = 2\n```"), "passed"),
    (answer("word " * 40_000), "no_code"),
    (answer(f"```python\n# {'x' * 200_000}\nimport click.types\n```"), "passed"),
    (INVALID_UTF8, "no_code"),
)


def test_whatever_a_model_says_is_an_outcome(tmp_path: Path) -> None:
    only = [f"--set=budget.executions={len(SAID)}", '--set=strategy=[{name="random", candidates=1}]']
    with serving([said for said, _ in SAID]) as server:
        done = corridor(*command(tmp_path, *only), env=environment(server))
    assert done.returncode == 0, done.stderr
    steps = Run(tmp_path / "run").folder.read("steps").to_pylist()
    assert [step["outcome"] for step in sorted(steps, key=lambda step: step["step"])] == [
        outcome for _, outcome in SAID
    ]


def test_a_busy_provider_is_waited_for(tmp_path: Path) -> None:
    replies: list[Callable[[], Reply]] = [lambda: busy("0"), lambda: status(500), lambda: busy("0")]

    def say(request: Request) -> Reply:
        return replies.pop()() if replies else answer(SCRIPT)

    with serving(say) as server:
        done = corridor(*command(tmp_path, "--set=budget.executions=1"), env=environment(server))
    assert done.returncode == 0, done.stderr
    calls = Run(tmp_path / "run").folder.read("calls").to_pylist()
    assert sum(call["tries"] for call in calls) == len(server.requests) == 3 + 3


def test_killed_in_the_middle_it_asks_no_recorded_call_again(tmp_path: Path) -> None:
    """What the server was asked is what was recorded, and at most what was under way at the kill."""
    with serving(lambda request: answer(SCRIPT)) as server:
        arguments = command(tmp_path)
        env = environment(server)
        import os

        os.environ.update(env)
        try:
            process = started(*arguments)
            assert stop_when(process, lambda: len(server.requests) >= 4)
            process.communicate()
            run = Run(tmp_path / "run")
            recorded = run.folder.read("calls", ["response"]).num_rows
            before = len(server.requests)
            assert corridor(*arguments).returncode == 0
        finally:
            for name in env:
                del os.environ[name]
    calls = run.folder.read("calls").to_pylist()
    assert sum(not call["replayed"] for call in calls) == recorded + len(server.requests) - before
    assert len(server.requests) == 9 + (before - recorded)
