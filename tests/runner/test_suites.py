"""Suite strategies on a fake sandbox: what they ask, what they measure, what they deliver."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from runner.nouns import Budget, EpisodeEnd, Measure, Message, Question, Sampling
from runner.offline import SUITE_BIAS, Scout
from runner.schema import MutantRow, StepRow
from runner.store import Recording
from runner.strategies import suite_prompts
from runner.strategies.strategy import load
from sandboxes.fake import report
from sandboxes.sandbox import Measurement, MutantRun, StepOutcome, SuiteFunction, SuiteReport
from tests.runner.lab import FACTS, Lab, make_spec

STATEMENTS = sorted(FACTS.statements)


def suite_report(text: str) -> SuiteReport:
    """Each test function covers one more line and kills one more mutant of ten; 'bad' ones fail."""
    names = re.findall(r"def (test_\w+)", text)
    functions = tuple(
        SuiteFunction(
            name,
            "failed" if "bad" in name else "green",
            "AssertionError: at 0x7f00" if "bad" in name else None,
            0.1,
            0.1,
            [],
        )
        for name in names
    )
    green = sum(one.outcome == "green" for one in functions)
    mutants = tuple(
        MutantRun(
            f"number:1:{place}:0", "number", 1, 1, "1", "2",
            "killed" if place < green else "survived",
            ["test_0"] if place < green else [],
            "fast", ["test_0"], True, 0.01,
        )
        for place in range(10)
    )  # fmt: skip
    return SuiteReport(
        error=None if names else "CollectError: the suite has no test function",
        size=len(names),
        functions=functions,
        measurement=Measurement(frozenset(), frozenset(STATEMENTS[:green])),
        mutants=mutants,
        mutants_total=10,
        duration_s=0.1,
        cpu_s=0.1,
        baseline_s=0.1,
        fork_s=0.01,
    )


def suite(size: int, bad: int = 0) -> str:
    names = [f"test_{number}" for number in range(size - bad)] + [f"test_bad_{n}" for n in range(bad)]
    return "```python\n" + "\n".join(f"def {name}(): pass" for name in names) + "\n```"


def lab(strategy: str, said: Any, calls: int = 4, recording: Recording | None = None, **settings: Any) -> Lab:
    made = replace(
        make_spec(strategy),
        strategy=load(strategy, None, settings),
        budget=Budget(calls=calls),
        measure=Measure(10),
    )
    return Lab(made, said, [], recording, suites=lambda target, text: suite_report(text))


def details(one: Lab) -> list[dict[str, Any]]:
    return [json.loads(step.detail or "{}") for step in one.steps]


async def test_single_asks_once_and_delivers_it() -> None:
    one = lab("suite_single", [suite(3)])
    row = await one.run()
    assert (row.end, row.calls, row.executions) == (EpisodeEnd.COMPLETED, 1, 1)
    assert (row.suite_size, row.green, row.mutants_killed, row.mutants_total) == (3, 3, 3, 10)
    assert row.suite_lines == row.lines == 3


async def test_repeat_delivers_the_smallest_of_the_strongest() -> None:
    one = lab("suite_repeat", [suite(2), suite(5, bad=2), suite(3), suite(1)])
    row = await one.run()
    assert row.calls == 4
    assert row.suite_size == 3
    assert [step.suite_size for step in one.steps] == [2, 5, 3, 1]
    assert [step.outcome for step in one.steps] == ["passed", "failed", "passed", "passed"]
    assert row.passed == 3
    assert len(one.rows(MutantRow)) == 40


async def test_an_answer_without_code_is_a_step_and_a_suite_that_fails_is_not_delivered() -> None:
    one = lab("suite_repeat", ["I would rather not.", suite(2, bad=2), "I can't.", "No."])
    row = await one.run()
    assert row.end is EpisodeEnd.COMPLETED
    assert [step.outcome for step in one.steps] == ["no_code", "failed", "no_code", "no_code"]
    assert row.suite_size is None
    assert row.lines == 0


async def test_repair_shows_what_fails_and_what_is_missed() -> None:
    asked: list[Question] = []

    def said(question: Question) -> str:
        asked.append(question)
        return suite(3, bad=1)

    one = lab("suite_repair", said, calls=2)
    await one.run()
    first, second = (question.messages[-1].content for question in asked)
    assert "FAILING" not in first
    assert "def test_bad_0(): pass  # <-- FAILING: AssertionError: at 0x7f00" in second
    assert second.count("# <-- NOT COVERED YET") >= 1
    assert [question.role for question in asked] == ["seed", "breed"]
    plain = lab("suite_repair", said, calls=2, annotate=False)
    await plain.run()
    assert "# <-- NOT" not in asked[-1].messages[-1].content


async def test_tesearch_breeds_towards_sizes_and_notes_why() -> None:
    asked: list[tuple[str, int]] = []

    def said(question: Question) -> str:
        found = re.search(r"exactly (\d+) test functions", question.messages[-1].content)
        assert found is not None
        asked.append((question.role, int(found[1])))
        return suite(min(9, 2 * int(found[1])))

    one = lab("tesearch", said, calls=12)
    row = await one.run()
    assert row.calls == len(one.steps) == 12
    notes = details(one)
    assert [note["requested"] for note in notes] == [size for _, size in asked]
    assert notes[0]["mode"] == "seed"
    assert {note["mode"] for note in notes[1:]} <= {"compression", "extension"}
    assert all(step.action == note["mode"] for step, note in zip(one.steps, notes, strict=True))
    assert all(len(note["scores"]) == 7 for note in notes)
    assert all(abs(sum(note["landing"]) - 1) < 1e-6 for note in notes)
    strongest = max(note["hv"] for note in notes)
    sizes = [
        step.suite_size or 0 for step, note in zip(one.steps, notes, strict=True) if note["hv"] == strongest
    ]
    assert row.suite_size == min(sizes)


@pytest.mark.parametrize(
    ("settings", "holds"),
    [
        ({"kernel": False}, lambda notes: all(note["requested"] == note["target"] for note in notes)),
        ({"niches": []}, lambda notes: {note["niche"] for note in notes} == {0}),
        ({"policy": "random"}, lambda notes: all(note["scores"] == [] for note in notes)),
        ({"annealing": 0.0}, lambda notes: len(notes) == 8),
        ({"annotate": False}, lambda notes: len(notes) == 8),
    ],
)
async def test_each_piece_of_tesearch_can_be_switched_off(settings: dict[str, Any], holds: Any) -> None:
    one = lab("tesearch", lambda question: suite(4), calls=8, **settings)
    assert (await one.run()).end is EpisodeEnd.COMPLETED
    assert holds(details(one))


async def test_a_prompt_is_the_same_when_an_attempt_is_repeated() -> None:
    """Failing tests' exceptions hold addresses; what an earlier attempt showed is shown again."""
    first = lab("suite_repair", lambda question: suite(3, bad=1), calls=3)
    await first.run()
    recording = Recording(
        calls={row.call: row for row in first.calls}, steps={row.step: row for row in first.steps}
    )

    def other(target: str, text: str) -> SuiteReport:
        found = suite_report(text)
        functions = tuple(
            one._replace(exception=one.exception and "AssertionError: at 0x1234") for one in found.functions
        )
        return replace(found, functions=functions)

    again = lab("suite_repair", [], calls=3, recording=recording)
    again.backend.suites = other
    row = await again.run(attempt=2)
    assert row.end is EpisodeEnd.COMPLETED
    assert all(call.replayed for call in again.calls)
    assert [call.prompt_sha for call in again.calls] == [call.prompt_sha for call in first.calls]


async def test_script_strategies_end_with_their_passed_scripts_as_a_suite() -> None:
    made = replace(make_spec("random"), measure=Measure(10))
    executions = made.budget.executions
    answers = [report(lines=STATEMENTS[:1], outcome=StepOutcome.PASSED)] + [
        report(outcome=StepOutcome.FAILED, exception="E") for _ in range(executions - 1)
    ]
    one = Lab(
        made, lambda question: "```python\nprint('''x''')\n```", answers,
        suites=lambda target, text: suite_report(text),
    )  # fmt: skip
    row = await one.run()
    assert row.executions == executions
    assert (row.suite_size, row.mutants_killed) == (1, 1)
    final: StepRow = one.steps[-1]
    assert (final.kind, final.action, final.step) == ("suite", "final", executions + 1)
    assert final.suite_size == 1


async def test_without_mutants_script_strategies_end_as_they_are() -> None:
    made = replace(make_spec("random"), measure=Measure(0))
    answers = [report(outcome=StepOutcome.PASSED) for _ in range(made.budget.executions)]
    row = await Lab(made, lambda question: "```python\nprint(1)\n```", answers).run()
    assert row.suite_size is None
    assert row.mutants_total is None


async def test_the_scouts_suites_are_of_a_size_that_is_off() -> None:
    """It has a bias and a spread for the kernel to learn."""
    logs = []
    source = "def some(text, count): ...\ndef other(value, key): ...\nclass Thing:\n    def act(self): ...\n"
    for sample in range(200):
        prompt = (
            f"Module under test: json\nSource:\n<source>\n{source}</source>\n{suite_prompts.size_line(10)}"
        )
        question = Question("seed", (Message("user", prompt),), Sampling(0.8, 1000), 7)
        answer = await Scout().ask(question, sample)
        logs.append(math.log(max(1, answer.text.count("def test_")) / 10))
    mean = sum(logs) / len(logs)
    spread = (sum((one - mean) ** 2 for one in logs) / len(logs)) ** 0.5
    assert abs(mean - SUITE_BIAS) < 0.1
    assert 0.1 < spread < 0.4
