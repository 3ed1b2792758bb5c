"""One episode: what it may use, what it keeps, how it ends, and that a second attempt costs nothing."""

from __future__ import annotations

import dataclasses
import json

import pytest

from runner.episode import coverage_sha
from runner.failures import CallFailed, FailureKind
from runner.nouns import Answer, EpisodeEnd, Question, Usage
from runner.purse import Purse
from runner.replay import TIMES
from runner.schema import EpisodeRow, StepRow, TargetRow
from sandboxes.errors import SandboxLost, TargetError
from sandboxes.sandbox import StepOutcome, StepReport
from tests.runner.lab import FACTS, Lab, code, make_spec, report, word


def counting(target: str, script: str) -> StepReport:
    """The script of a number takes so many branches."""
    return report(*range(1, int(word(script)) + 1), output=f"ran {script}")


def numbers(question: Question) -> str:
    """Every generated script is the number of scripts shown so far, plus one."""
    shown = question.messages[-1].content.count("Script ")
    return code(str(shown + 1))


async def test_rows_of_an_episode() -> None:
    lab = Lab(make_spec(executions=3, candidates=1), [code("2"), code("5"), code("3")], counting)
    end = await lab.run()
    assert end.end == EpisodeEnd.COMPLETED
    assert (end.executions, end.passed, end.calls) == (3, 3, 3)
    assert (end.branches, end.branches_total) == (5, FACTS.branches_total)
    assert (end.lines, end.lines_total) == (5, len(FACTS.statements))
    assert end.cost_usd == 0.0
    assert [step.step for step in lab.steps] == [1, 2, 3]
    assert [step.new_branches for step in lab.steps] == [2, 3, 0]
    assert [step.branches for step in lab.steps] == [2, 5, 5]
    assert [step.branches_hit for step in lab.steps] == [2, 5, 3]
    assert lab.steps[1].branch_delta == [{"src": line, "dst": line + 1} for line in (3, 4, 5)]
    assert lab.steps[1].line_delta == [3, 4, 5]
    assert lab.steps[2].coverage_sha == coverage_sha(
        frozenset({(1, 2), (2, 3), (3, 4)}), frozenset({1, 2, 3})
    )
    assert [step.calls for step in lab.steps] == [1, 2, 3]
    (target,) = lab.rows(TargetRow)
    assert (target.version, target.branches_total, target.lines_total) == ("1.2", 198, 400)
    assert isinstance(lab.memory.rows[-1], EpisodeRow)


async def test_calls_are_recorded_before_their_answers_are_used() -> None:
    """The sandbox sees a script only after the call that gave it is among the durable rows."""
    durable: list[int] = []
    lab = Lab(make_spec(executions=2, candidates=1), [code("1"), code("2")], counting)

    async def note() -> None:
        durable.append(len(lab.calls))

    lab.memory.durable = note  # type: ignore[method-assign]  # to hear when it is called
    seen: list[int] = []

    def execute(target: str, script: str) -> StepReport:
        seen.append(durable[-1])
        return report(1)

    lab.backend._function = execute
    await lab.run()
    assert seen == [1, 2]


async def test_an_answer_without_code_uses_an_execution() -> None:
    lab = Lab(make_spec(executions=2, candidates=1), ["I would rather not.", code("4")], counting)
    end = await lab.run()
    assert [step.outcome for step in lab.steps] == [StepOutcome.NO_CODE, StepOutcome.PASSED]
    first = lab.steps[0]
    assert first.code_sha is None
    assert (first.new_branches, first.branches) == (0, 0)
    assert (end.executions, end.passed, end.branches) == (2, 1, 4)
    assert lab.scripts == ["4"]


async def test_what_is_not_measured_is_null() -> None:
    blind = dataclasses.replace(report(), measurement=None, outcome=StepOutcome.CRASHED)
    lab = Lab(make_spec(executions=2, candidates=1), [code("1"), code("2")], [report(1, 2), blind])
    end = await lab.run()
    step = lab.steps[1]
    assert (step.branches_hit, step.new_branches, step.new_lines, step.coverage_sha) == (None,) * 4
    assert step.branches == 2
    assert (end.branches, end.passed) == (2, 1)


async def test_a_model_that_refuses_ends_the_episode_without_a_score() -> None:
    refused = CallFailed("scripted: auth 401: wrong key", kind=FailureKind.AUTH, status=401)
    lab = Lab(make_spec(executions=3, candidates=1), [code("2"), refused], counting)
    end = await lab.run()
    assert end.end == EpisodeEnd.MODEL_ERROR
    assert end.error == "CallFailed: scripted: auth 401: wrong key"
    assert (end.branches, end.lines) == (None, None)
    assert (end.executions, end.branches_total) == (1, 198)
    failed = lab.calls[-1]
    assert (failed.response, failed.error, failed.cost_usd) == (None, "scripted: auth 401: wrong key", 0.0)


async def test_a_lost_answer_that_may_be_billed_has_no_known_cost() -> None:
    lost = CallFailed("scripted: timeout", kind=FailureKind.TIMEOUT, billed=True)
    lab = Lab(make_spec(executions=1, candidates=1), [lost], counting)
    end = await lab.run()
    assert end.cost_usd is None
    assert lab.calls[0].cost_usd is None


@pytest.mark.parametrize(
    "error",
    [SandboxLost("container gone"), TargetError("does not import")],
    ids=lambda one: type(one).__name__,
)
async def test_a_lost_sandbox_is_not_the_candidates_doing(error: SandboxLost) -> None:
    lab = Lab(make_spec(executions=3, candidates=1), [code("2"), code("3")], [report(1), error])
    end = await lab.run()
    assert end.end == EpisodeEnd.INFRA_ERROR
    assert end.branches is None
    assert len(lab.steps) == 1
    assert str(error) in (end.error or "")


async def test_a_fault_of_ours_keeps_its_trace() -> None:
    lab = Lab(make_spec(executions=3, candidates=1), [code("2")], counting)
    end = await lab.run()
    assert end.end == EpisodeEnd.INFRA_ERROR
    assert "ScriptRanOut" in (end.error or "")
    assert "Traceback" in (end.error_detail or "")


async def test_spent_dollars_end_it_without_a_score() -> None:
    purse = Purse(1.0, 0.5)
    lab = Lab(make_spec(executions=3, candidates=1), numbers, counting, purse=purse, bound_usd=0.6)
    end = await lab.run()
    assert end.end == EpisodeEnd.BUDGET_EXHAUSTED
    assert end.branches is None
    assert lab.model.asked == []


async def test_dollars_are_settled_at_their_real_cost() -> None:
    purse = Purse(1.0)

    class Dear:
        name = "dear"

        async def ask(self, question: Question, sample: int) -> Answer:
            return Answer(code("1"), "stop", Usage(input=10, output=5), 0.1, cost_usd=0.25)

        async def close(self) -> None:
            return None

    lab = Lab(make_spec(executions=3, candidates=1), [], counting, purse=purse, bound_usd=0.5)
    lab.model = Dear()  # type: ignore[assignment]  # another model of the protocol
    end = await lab.run()
    assert end.end == EpisodeEnd.COMPLETED
    assert end.cost_usd == pytest.approx(0.75)
    assert await purse.left() == pytest.approx(0.25)
    assert (end.prompt_tokens, end.completion_tokens) == (30, 15)


async def test_texts_that_parquet_cannot_hold_are_kept_as_escapes() -> None:
    lab = Lab(
        make_spec(executions=1, candidates=1),
        ["```python\nx = '\ud800'\n```"],
        [report(1, output="\udcff", exception="E: \ud800", outcome=StepOutcome.FAILED)],
    )
    await lab.run()
    assert lab.steps[0].output == "\\udcff"
    assert lab.steps[0].exception == "E: \\ud800"
    assert "\\ud800" in (lab.calls[0].response or "")


def plain(step: StepRow) -> dict[str, object]:
    """What must not depend on when or how often it ran."""
    values = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
    return {name: value for name, value in values.items() if name not in TIMES}


@pytest.mark.parametrize("name", ["random", "greedy", "cov_greedy", "cov_qvalue"])
async def test_a_second_attempt_asks_nothing_again(name: str) -> None:
    def say(question: Question) -> str:
        if question.role == "select":
            return "2"
        return "7, 3" if question.role == "score" else code("3", "1", "2")

    first = Lab(make_spec(name, executions=7), say, counting)
    await first.run()
    second = Lab(make_spec(name, executions=7), [], counting, first.recording())
    end = await second.run(attempt=2)
    assert end.end == EpisodeEnd.COMPLETED
    assert second.model.asked == []
    assert all(call.replayed for call in second.calls)
    assert [plain(step) for step in second.steps] == [plain(step) for step in first.steps]
    assert [call.response for call in second.calls] == [call.response for call in first.calls]


async def test_a_cut_record_is_replayed_and_then_gone_on_from() -> None:
    first = Lab(make_spec(executions=6), numbers, counting)
    await first.run()
    whole = first.recording()
    for kept in range(len(whole.calls) + 1):
        calls = {number: call for number, call in whole.calls.items() if number <= kept}
        steps = {number: step for number, step in whole.steps.items() if number <= kept // 3}
        second = Lab(make_spec(executions=6), numbers, counting, type(whole)(calls, steps))
        await second.run(attempt=2)
        assert len(second.model.asked) == len(whole.calls) - kept
        assert [plain(step) for step in second.steps] == [plain(step) for step in first.steps]


async def test_a_gap_in_the_record_is_asked_and_the_rest_is_not() -> None:
    first = Lab(make_spec(executions=2), numbers, counting)
    await first.run()
    recording = first.recording()
    del recording.calls[2]
    second = Lab(make_spec(executions=2), numbers, counting, recording)
    await second.run(attempt=2)
    assert [call.replayed for call in second.calls] == [True, False, True, True, True, True]


async def test_printed_times_do_not_divert_a_replay() -> None:
    """A step prints something else the second time; the model is shown what it saw then."""
    clock = iter(range(100))

    def execute(target: str, script: str) -> StepReport:
        return report(1, output=f"at {next(clock)}")

    first = Lab(make_spec(executions=4), numbers, execute)
    await first.run()
    second = Lab(make_spec(executions=4), [], execute, first.recording())
    await second.run(attempt=2)
    assert second.model.asked == []
    assert [step.output for step in second.steps] == ["at 0", "at 1", "at 2", "at 3"]


async def test_another_prompt_goes_on_live_for_good() -> None:
    first = Lab(make_spec(executions=3), numbers, counting)
    await first.run()
    recording = first.recording()
    recording.calls[4] = dataclasses.replace(recording.calls[4], prompt_sha="another")
    second = Lab(make_spec(executions=3), numbers, counting, recording)
    await second.run(attempt=2)
    assert [call.replayed for call in second.calls] == [True] * 3 + [False] * 6


async def test_the_same_spec_gives_the_same_rows() -> None:
    labs = [Lab(make_spec(executions=5), numbers, counting) for _ in range(2)]
    for lab in labs:
        await lab.run()
    assert [plain(step) for step in labs[0].steps] == [plain(step) for step in labs[1].steps]
    assert json.loads(labs[0].steps[0].detail or "") == {"candidates": 3}
