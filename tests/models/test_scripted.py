from __future__ import annotations

import asyncio

import pytest

from runner.llm import Model
from runner.nouns import Message, Question, Sampling
from runner.scripted import Scripted, ScriptRanOut
from sandboxes.errors import BudgetSpent, CorridorError, ModelError
from tests.models.asking import QUESTION


def test_answers_in_order_and_keeps_the_questions() -> None:
    scripted = Scripted(["a", "b"])
    model: Model = scripted
    said = [asyncio.run(model.ask(QUESTION, number)) for number in (1, 2)]
    assert [answer.text for answer in said] == ["a", "b"]
    assert {answer.cost_usd for answer in said} == {0.0}
    assert scripted.asked == [QUESTION, QUESTION]
    asyncio.run(model.close())


def test_a_function_of_the_question() -> None:
    model = Scripted(lambda question: question.messages[-1].content.upper())
    assert asyncio.run(model.ask(QUESTION, 1)).text == "TEST JSON."


def test_it_fails_loudly_when_the_script_runs_out() -> None:
    model = Scripted(["a"])
    asyncio.run(model.ask(QUESTION, 1))
    long = Question("score", [Message("user", "Which plan? " * 50)], Sampling(0.3, 10))
    with pytest.raises(ScriptRanOut) as caught:
        asyncio.run(model.ask(long, 7))
    for word in ["1 answers", "question 2", "'score'", "sample 7", "Which plan?"]:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, CorridorError)
    assert not isinstance(caught.value, (ModelError, BudgetSpent)), "no episode may end of it in peace"


def test_an_exception_in_the_script_is_raised() -> None:
    with pytest.raises(ModelError, match="gone"):
        asyncio.run(Scripted([ModelError("gone")]).ask(QUESTION, 1))
