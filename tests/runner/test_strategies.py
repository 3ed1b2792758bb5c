"""The paper's strategies and their knobs: what they ask, what they show, what they execute."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from runner.nouns import Question
from runner.strategies import prompting, strategy
from sandboxes.errors import UsageError
from sandboxes.sandbox import StepOutcome, StepReport
from tests.runner.lab import FACTS, Lab, code, make_spec, report, word


def taking(target: str, script: str) -> StepReport:
    """The script of '3 4' takes those branches; that of 'x' fails."""
    if word(script) == "x":
        return report(outcome=StepOutcome.FAILED, exception="E: boom")
    return report(*map(int, word(script).split()))


def roles(lab: Lab) -> dict[str, int]:
    return dict(Counter(question.role for question in lab.model.asked))


def prompts(lab: Lab, role: str) -> list[str]:
    return [question.messages[-1].content for question in lab.model.asked if question.role == role]


def details(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(step.detail or "{}") for step in lab.steps]


def by_role(generate: str, other: str = "1") -> Any:
    return lambda question: generate if question.role == "generate" else other


async def test_random_chooses_by_lot_among_k() -> None:
    lab = Lab(
        make_spec("random", executions=60), lambda question: code(str(len(lab.model.asked) % 3 + 1)), taking
    )
    await lab.run()
    assert roles(lab) == {"generate": 180}
    chosen = Counter(step.action for step in lab.steps)
    assert set(chosen) == {"1", "2", "3"}
    assert min(chosen.values()) >= 10


async def test_the_lot_is_drawn_by_the_episode() -> None:
    drawn = []
    for seed in (1, 1, 2):
        spec = make_spec("random", executions=20)
        lab = Lab(type(spec)(**{**_fields(spec), "seed": seed}), by_role(code("1")), taking)
        await lab.run()
        drawn.append([step.action for step in lab.steps])
    assert drawn[0] == drawn[1] != drawn[2]


def _fields(spec: Any) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__slots__}


async def test_random_shows_history_and_no_coverage() -> None:
    lab = Lab(make_spec("random", executions=8, history=2), by_role(code("1")), taking)
    await lab.run()
    last = prompts(lab, "generate")[-1]
    assert "The last 2 scripts:" in last
    assert "Script 7: passed" in last
    assert "Script 5" not in last
    assert "branches" not in last


@pytest.mark.parametrize(
    ("said", "index", "by"), [("2", 1, "model"), ("Candidate 3", 2, "model"), ("?", None, "lot")]
)
async def test_greedy_executes_what_the_model_names(said: str, index: int | None, by: str) -> None:
    answers = iter(range(100))

    def say(question: Question) -> str:
        return code(str(next(answers) % 3 + 1)) if question.role == "generate" else said

    lab = Lab(make_spec("greedy", executions=1), say, taking)
    await lab.run()
    assert roles(lab) == {"generate": 3, "select": 1}
    assert details(lab)[0]["chosen_by"].startswith(by)
    if index is not None:
        assert lab.scripts == [str(index + 1)]
    (asked,) = prompts(lab, "select")
    assert all(f"Candidate {number}:" in asked for number in (1, 2, 3))
    assert "branches" not in asked.split("Which one")[0]


async def test_greedy_does_not_ask_about_one_candidate() -> None:
    lab = Lab(make_spec("greedy", executions=1), [code("1"), "no code", "none"], taking)
    await lab.run()
    assert roles(lab) == {"generate": 3}
    assert lab.scripts == ["1"]


async def test_temperatures() -> None:
    lab = Lab(make_spec("greedy", executions=1), by_role(code("1")), taking)
    await lab.run()
    assert [question.sampling.temperature for question in lab.model.asked] == [0.9, 0.9, 0.9, 0.3]
    lab = Lab(
        make_spec("cov_qvalue", executions=1, generate_temperature=0.5), by_role(code("1"), "1, 1"), taking
    )
    await lab.run()
    assert [question.sampling.temperature for question in lab.model.asked] == [0.5] * 3 + [0.3] * 3


async def test_cov_greedy_shows_the_coverage_map() -> None:
    scripts = iter(["1 2", "x", "3 4 5", "1", "1", "1", "1"])
    lab = Lab(
        make_spec("cov_greedy", executions=7, candidates=1), lambda question: code(next(scripts)), taking
    )
    await lab.run()
    first, *_, last = prompts(lab, "generate")
    assert "Branches discovered: 0 in 0 scripts." in first
    assert "STAGNATION" not in first
    assert "Branches discovered: 5 in 6 scripts." in last
    assert "New branches a script, lately: 0.6." in last
    assert "STAGNATION: the last 3 scripts discovered nothing." in last
    best = last.split("discovered the most:")[1]
    assert best.index("Script 3: passed, 3 new") < best.index("Script 1: passed, 2 new")
    assert "E: boom" in last
    assert roles(lab) == {"generate": 7}


@pytest.mark.parametrize(("characters", "shown"), [(2500, 2500), (100, 100), (0, len(FACTS.source))])
async def test_the_source_is_cut_where_the_paper_cuts_it(characters: int, shown: int) -> None:
    lab = Lab(make_spec("random", executions=1, source_chars=characters), by_role(code("1")), taking)
    await lab.run()
    text = prompts(lab, "generate")[0].split("<source>\n")[1].split("\n</source>")[0]
    assert text == FACTS.source[:shown]


async def test_cov_qvalue_executes_the_plan_of_the_highest_q() -> None:
    plans = iter([code("1", "2", "3"), code("4", "5", "6"), code("7", "8", "9")])
    scores = iter(["10, 0", "4, 20", "11, 2"])

    def say(question: Question) -> str:
        return next(plans) if question.role == "generate" else next(scores)

    lab = Lab(make_spec("cov_qvalue", executions=3, discount=0.5), say, taking)
    await lab.run()
    assert lab.scripts == ["4", "5", "6"]
    assert details(lab)[0]["q"] == {"1": 10.0, "2": 14.0, "3": 12.0}
    assert [step.action for step in lab.steps] == ["plan 2"] * 3
    assert [step.round for step in lab.steps] == [1, 1, 1]


@pytest.mark.parametrize(("discount", "best"), [(0.0, "7"), (0.5, "4"), (1.0, "4")])
async def test_the_discount_weighs_what_comes_within_reach(discount: float, best: str) -> None:
    plans = iter([code("1"), code("4"), code("7")])
    scores = iter(["10, 0", "4, 20", "11, 2"])

    def say(question: Question) -> str:
        return next(plans) if question.role == "generate" else next(scores)

    lab = Lab(make_spec("cov_qvalue", executions=1, discount=discount), say, taking)
    await lab.run()
    assert lab.scripts == [best]


async def test_each_plan_has_its_own_direction() -> None:
    lab = Lab(make_spec("cov_qvalue", executions=1, plans=7), by_role(code("1"), "1, 1"), taking)
    await lab.run()
    asked = prompts(lab, "generate")
    found = [[hint for hint in prompting.HINTS if hint in prompt] for prompt in asked]
    assert [len(hints) for hints in found] == [1] * 7
    assert len({hints[0] for hints in found}) == len(prompting.HINTS)
    plain = Lab(
        make_spec("cov_qvalue", executions=1, diversity_hints=False), by_role(code("1"), "1, 1"), taking
    )
    await plain.run()
    assert not any(hint in prompt for hint in prompting.HINTS for prompt in prompts(plain, "generate"))
    assert len(set(prompts(plain, "generate"))) == 1


async def test_the_map_is_updated_once_a_round() -> None:
    lab = Lab(make_spec("cov_qvalue", executions=6), by_role(code("1", "2", "3"), "1, 1"), taking)
    await lab.run()
    assert roles(lab) == {"generate": 6, "score": 6}
    assert all("in 0 scripts" in prompt for prompt in prompts(lab, "generate")[:3])
    assert all("Branches discovered: 3 in 3 scripts" in prompt for prompt in prompts(lab, "generate")[3:])
    assert [step.round for step in lab.steps] == [1, 1, 1, 2, 2, 2]


async def test_a_plan_ends_with_the_budget() -> None:
    lab = Lab(make_spec("cov_qvalue", executions=5), by_role(code("1", "2", "3"), "1, 1"), taking)
    end = await lab.run()
    assert lab.scripts == ["1", "2", "3", "1", "2"]
    assert end.end == "completed"


async def test_plan_length_and_number() -> None:
    lab = Lab(
        make_spec("cov_qvalue", executions=10, plans=2, steps_per_plan=5),
        by_role(code(*"1234567"), "1, 1"),
        taking,
    )
    await lab.run()
    assert lab.scripts == list("12345") * 2
    assert roles(lab) == {"generate": 4, "score": 4}
    assert "exactly 5 Python code blocks" in prompts(lab, "generate")[0]


async def test_scores_that_cannot_be_read_leave_it_to_the_lot() -> None:
    lab = Lab(make_spec("cov_qvalue", executions=3), by_role(code("1", "2", "3"), "many"), taking)
    await lab.run()
    assert details(lab)[0]["chosen_by"].startswith("lot")
    assert details(lab)[0]["q"] == {"1": None, "2": None, "3": None}


async def test_one_readable_score_wins_over_none() -> None:
    plans = iter([code("1"), code("4"), code("7")])
    scores = iter(["?", "0, 0", "?"])
    lab = Lab(
        make_spec("cov_qvalue", executions=1),
        lambda question: next(plans) if question.role == "generate" else next(scores),
        taking,
    )
    await lab.run()
    assert lab.scripts == ["4"]


async def test_without_scoring_a_plan_is_drawn() -> None:
    plans = [code("1"), code("4"), code("7")]
    turn = iter(range(10_000))
    lab = Lab(
        make_spec("cov_qvalue", executions=60, steps_per_plan=1, scoring="none"),
        lambda question: plans[next(turn) % 3],
        taking,
    )
    await lab.run()
    assert "score" not in roles(lab)
    chosen = Counter(lab.scripts)
    assert set(chosen) == {"1", "4", "7"}
    assert min(chosen.values()) >= 10


async def test_scoring_by_execution_counts_every_execution() -> None:
    """First steps take 1 2, 1 2 3, 3: against the state before the round the second is best."""
    plans = [code("1 2", "10"), code("1 2 3", "20", "21"), code("3", "30")]
    turn = iter(range(10_000))
    lab = Lab(
        make_spec("cov_qvalue", executions=5, scoring="execute"),
        lambda question: plans[next(turn) % 3],
        taking,
    )
    await lab.run()
    assert lab.scripts == ["1 2", "1 2 3", "3", "20", "21"]
    assert "score" not in roles(lab)
    assert details(lab)[3]["gains"] == {"1": 2, "2": 3, "3": 1}
    assert [step.action for step in lab.steps] == ["plan 1", "plan 2", "plan 3", "plan 2", "plan 2"]


async def test_scoring_by_execution_within_a_small_budget() -> None:
    lab = Lab(make_spec("cov_qvalue", executions=2, scoring="execute"), by_role(code("1", "2")), taking)
    end = await lab.run()
    assert lab.scripts == ["1", "1"]
    assert end.end == "completed"


@pytest.mark.parametrize("name", ["random", "greedy", "cov_greedy", "cov_qvalue"])
async def test_a_model_that_only_talks_uses_the_budget(name: str) -> None:
    lab = Lab(make_spec(name, executions=4), lambda question: "Let me think about that.", taking)
    end = await lab.run()
    assert end.end == "completed"
    assert [step.outcome for step in lab.steps] == [StepOutcome.NO_CODE] * 4
    assert (end.executions, end.passed, end.branches) == (4, 0, 0)


def test_strategies_are_found_by_entry_point() -> None:
    assert {"random", "greedy", "cov_greedy", "cov_qvalue"} <= set(strategy.names())


def test_defaults_are_the_papers() -> None:
    settings = strategy.load("cov_qvalue").settings
    assert (settings["plans"], settings["steps_per_plan"], settings["discount"]) == (3, 3, 0.5)
    assert settings["source_chars"] == 2500
    assert strategy.load("random").settings["candidates"] == 3


def test_another_prompt_text_is_another_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.strategies.scripts import Random

    before = make_spec("random").id
    monkeypatch.setattr(Random, "prompts", ("another text",))
    assert make_spec("random").id != before


def test_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'cov_greedy'"):
        strategy.load("covgreedy")


def test_prompt_parts_are_taken_literally() -> None:
    messages = prompting.conversation(
        "$module\n$source\n$history\n", module="$source", source="$x {y}", history=""
    )
    assert messages[1].content == "$source\n$x {y}"
