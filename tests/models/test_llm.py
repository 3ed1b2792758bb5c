from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest

from runner.failures import Failure, FailureKind, classify
from runner.limiter import COOLDOWN_S, Limiter
from runner.llm import CallFailed, open_model
from runner.nouns import Answer, Usage
from sandboxes.errors import ModelError, PrerequisiteError, UsageError
from tests.models.asking import LITELLM_WARNS, MARKER, PRICES, QUESTION, ask
from tests.models.clocks import FakeClock, InstantClock, settle
from tests.servers.openai_server import (
    CACHED,
    EMPTY_CHOICES,
    HANG,
    HTML,
    HUGE,
    INVALID_UTF8,
    MALFORMED_JSON,
    NO_USAGE,
    NULL_CONTENT,
    PROSE,
    RESET_AT_ONCE,
    RESET_MID_BODY,
    THREE_BLOCKS,
    TRUNCATED,
    Reply,
    answer,
    busy,
    echo_authorization,
    serving,
    status,
)

pytestmark = [LITELLM_WARNS, pytest.mark.usefixtures("key", "litellm")]


# -- answers


def test_an_answer() -> None:
    asked = ask([answer("pass")])
    assert asked.answer.text == "pass"
    assert asked.answer.finish_reason == "stop"
    assert asked.answer.usage == Usage(input=11, output=7)
    assert asked.answer.cost_usd == pytest.approx((11 * 1.0 + 7 * 2.0) / 1e6)
    assert asked.answer.tries == 1
    assert asked.clock.slept == []
    (request,) = asked.server.requests
    assert request.headers["authorization"] == f"Bearer {MARKER}"
    assert request.json == {
        "model": "served",
        "messages": [{"role": "system", "content": "You test."}, {"role": "user", "content": "Test json."}],
        "temperature": 0.9,
        "max_tokens": 64,
    }, "nothing is sent that nobody asked for"


@pytest.mark.parametrize(
    ("reply", "text", "reason"),
    [
        (NULL_CONTENT, "", "stop"),
        (EMPTY_CHOICES, "", ""),
        (PROSE, "I would start with the parser, because it has the most branches.", "stop"),
        (TRUNCATED, "```python\nimport json\n\ndef test_it():\n    assert json.lo", "length"),
        (THREE_BLOCKS, "First:\n```python\na = 1\n```\nor\n```\nb = 2\n```\nor\n```py\nc = 3\n```\n", "stop"),
        (HUGE, "x = 1\n" * 34_000, "stop"),
        (INVALID_UTF8, "caf\ufffd", "stop"),
        (answer("\ud800 \u0000 \U0001f40d"), "\ud800 \u0000 \U0001f40d", "stop"),
    ],
    ids=["null", "no choices", "prose", "truncated", "three blocks", "200 kB", "not UTF-8", "odd characters"],
)
def test_whatever_is_said_is_an_answer(reply: Reply, text: str, reason: str) -> None:
    asked = ask([reply])
    assert asked.answer.text == text
    assert asked.answer.finish_reason == reason
    assert asked.answer.usage == Usage(input=11, output=7)


def test_unknown_usage_has_no_cost() -> None:
    asked = ask([NO_USAGE])
    assert asked.answer.text == "pass"
    assert asked.answer.usage is None
    assert asked.answer.cost_usd is None


def test_unknown_price_has_no_cost() -> None:
    asked = ask([answer("pass")], name="openai/unpriced")
    assert asked.answer.usage == Usage(input=11, output=7)
    assert asked.answer.cost_usd is None


def test_cached_tokens_are_paid_once() -> None:
    asked = ask([CACHED])
    assert asked.answer.usage == Usage(input=86, cached=1920, output=300)
    assert asked.answer.cost_usd == pytest.approx((86 * 1.0 + 1920 * 0.5 + 300 * 2.0) / 1e6)


# -- what is final


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (status(401, "bad key"), FailureKind.AUTH, ["401", "bad key", "check OPENAI_API_KEY"]),
        (status(403, "not for you"), FailureKind.AUTH, ["403", "not for you", "check OPENAI_API_KEY"]),
        (status(402, "pay"), FailureKind.QUOTA, ["402", "pay", "top the account up"]),
        (status(404, "no such model"), FailureKind.NOT_FOUND, ["404", "no such model", "the model's name"]),
        (status(400, "temperature"), FailureKind.BAD_REQUEST, ["400", "temperature"]),
        (status(422, "what?"), FailureKind.BAD_REQUEST, ["422", "what?"]),
        (
            status(400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
            FailureKind.TOO_LONG,
            ["maximum context length", "longer context"],
        ),
        (
            Reply(
                429, body=b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
            ),
            FailureKind.QUOTA,
            ["429", "You exceeded your quota", "top the account up"],
        ),
        (
            Reply(400, body=b'{"error": {"message": "no", "code": "content_policy_violation"}}'),
            FailureKind.REFUSED,
            ["400", "no"],
        ),
    ],
    ids=lambda value: value.value if isinstance(value, FailureKind) else "",
)
def test_final_at_once(reply: Reply, kind: FailureKind, words: list[str]) -> None:
    asked = ask([reply])
    failure = asked.failure
    assert isinstance(failure, ModelError)
    assert (failure.kind, failure.retryable, failure.tries) == (kind, False, 1)
    assert failure.status == reply.status
    assert failure.cost_usd == 0.0
    assert "\n" not in str(failure)
    for word in ["openai/served", *words]:
        assert word in str(failure)
    assert asked.clock.slept == []


# -- what is tried again


@pytest.mark.parametrize(
    "reply",
    [
        status(408),
        status(500),
        status(502),
        status(503),
        status(529),
        busy(),
        HTML,
        RESET_MID_BODY,
        RESET_AT_ONCE,
        MALFORMED_JSON,
        Reply(body=b""),
        Reply(body=b'"hi"'),
        Reply(body=b'{"object": "chat.completion"}'),
    ],
    ids=[
        "408", "500", "502", "503", "529", "429", "html", "reset in the body", "reset before it",
        "half a json", "nothing", "not an object", "no choices at all",
    ],
)  # fmt: skip
def test_tried_again(reply: Reply) -> None:
    asked = ask([reply, reply, answer("pass")])
    assert asked.answer.text == "pass"
    assert asked.answer.tries == 3
    assert len(asked.server.requests) == 3, "nobody else tries again"
    first, second = asked.clock.slept
    assert 0 <= first <= 3
    assert 0 <= second <= 6 + COOLDOWN_S


def test_a_server_that_is_silent() -> None:
    asked = ask([HANG, answer("pass")], timeout_s=0.2)
    assert asked.answer.tries == 2


@pytest.mark.parametrize(
    ("reply", "kind", "cost"),
    [
        (status(500, "oh"), FailureKind.SERVER, 0.0),
        (busy(), FailureKind.RATE_LIMIT, 0.0),
        (RESET_MID_BODY, FailureKind.CONNECTION, None),
        (MALFORMED_JSON, FailureKind.SERVER, None),
    ],
    ids=["500", "429", "reset", "half a json"],
)
def test_all_tries_used(reply: Reply, kind: FailureKind, cost: float | None) -> None:
    asked = ask([reply] * 3, tries=3)
    assert asked.failure.kind is kind
    assert asked.failure.retryable
    assert asked.failure.tries == 3
    assert "after 3 tries" in str(asked.failure)
    assert asked.failure.cost_usd == cost


def test_nobody_there() -> None:
    with serving([]) as server:
        nobody = server.base_url
    with mock.patch("tests.servers.openai_server.Server.base_url", nobody):
        asked = ask([], tries=2)
    assert asked.failure.kind is FailureKind.CONNECTION
    assert asked.failure.cost_usd == 0.0, "what was never sent is not billed"
    assert "check the network" in str(asked.failure)


def test_patience_ends_before_the_tries() -> None:
    asked = ask([status(500)] * 30, tries=30, patience_s=600.0)
    assert 5 <= asked.failure.tries < 30
    assert sum(asked.clock.slept) <= 600.0


def test_retry_after_is_kept() -> None:
    asked = ask([busy("40"), answer("pass")])
    assert asked.answer.tries == 2
    assert sum(asked.clock.slept) == pytest.approx(40.0, abs=0.01)


def test_retry_after_as_a_date_by_the_providers_clock() -> None:
    headers = {"Date": "Mon, 01 Jan 2029 00:00:00 GMT", "Retry-After": "Mon, 01 Jan 2029 00:01:30 GMT"}
    asked = ask([status(503, headers=headers), answer("pass")])
    assert sum(asked.clock.slept) == pytest.approx(90.0, abs=0.01)


def test_retry_after_beyond_patience() -> None:
    asked = ask([busy("86400")], patience_s=3600.0)
    assert asked.failure.kind is FailureKind.RATE_LIMIT
    assert asked.failure.tries == 1
    assert "left alone for 86400 s" in str(asked.failure)
    assert asked.clock.slept == []


def test_retry_after_holds_for_calls_that_were_not_refused() -> None:
    clock = FakeClock()

    async def run() -> None:
        model = await open_model(
            "openai/served", limiter=Limiter("m", clock=clock), prices=PRICES, clock=clock
        )
        try:
            first = asyncio.create_task(model.ask(QUESTION, 1))
            await server.received(1)
            await clock.somebody_sleeps()
            second = asyncio.create_task(model.ask(QUESTION, 2))
            await settle()
            await clock.pass_(59.0)
            assert len(server.requests) == 1
            await clock.pass_(5.0)
            assert [(await first).text, (await second).text] == ["pass", "pass"]
        finally:
            await model.close()

    with (
        serving([busy("60"), answer("pass"), answer("pass")]) as server,
        mock.patch.dict(os.environ, {"OPENAI_API_BASE": server.base_url}),
    ):
        asyncio.run(run())


def test_success_and_refusal_reach_the_limiter() -> None:
    asked = ask([busy(), answer("pass")])
    load = asyncio.run(asked.limiter.load())
    assert load.window == 16
    assert load.under_way == 0


@pytest.mark.parametrize("reply", [answer("pass"), status(401), status(500)], ids=["answer", "401", "500"])
def test_no_lease_is_kept(reply: Reply) -> None:
    asked = ask([reply], tries=1)
    assert asyncio.run(asked.limiter.load()).under_way == 0


def test_a_cancelled_call_gives_its_lease_back() -> None:
    async def run() -> None:
        limiter = Limiter("m")
        model = await open_model("openai/served", limiter=limiter, prices=PRICES)
        task = asyncio.create_task(model.ask(QUESTION, 1))
        await server.received(1)
        assert (await limiter.load()).under_way == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await limiter.load()).under_way == 0
        await model.close()

    with serving([HANG]) as server, mock.patch.dict(os.environ, {"OPENAI_API_BASE": server.base_url}):
        asyncio.run(run())


def anthropic(code: int, message: str, **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": "api_error", "message": message}}
    return Reply(code, headers, json.dumps(body).encode())


def gemini(code: int, message: str) -> Reply:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    body = {"error": {"code": code, "message": message, "status": "X", "details": [delay]}}
    return Reply(code, body=json.dumps(body).encode())


@pytest.mark.parametrize(
    ("name", "reply", "failure"),
    [
        ("anthropic/claude-sonnet-4-5", anthropic(401, "bad key"), Failure(FailureKind.AUTH, 401, "bad key")),
        ("anthropic/claude-sonnet-4-5", anthropic(403, "no"), Failure(FailureKind.AUTH, 403, "no")),
        ("anthropic/claude-sonnet-4-5", anthropic(404, "no"), Failure(FailureKind.NOT_FOUND, 404, "no")),
        ("anthropic/claude-sonnet-4-5", anthropic(529, "busy"), Failure(FailureKind.SERVER, 500, "busy")),
        (
            "anthropic/claude-sonnet-4-5",
            anthropic(429, "slow", **{"Retry-After": "17"}),
            Failure(FailureKind.RATE_LIMIT, 429, "slow", 17.0),
        ),
        (
            "anthropic/claude-sonnet-4-5",
            anthropic(400, "prompt is too long: 210000 tokens > 200000 maximum"),
            Failure(FailureKind.TOO_LONG, 400, "prompt is too long: 210000 tokens > 200000 maximum"),
        ),
        (
            "anthropic/claude-sonnet-4-5",
            anthropic(400, "Your credit balance is too low to access the Anthropic API."),
            Failure(FailureKind.QUOTA, 400, "Your credit balance is too low to access the Anthropic API."),
        ),
        ("gemini/gemini-2.5-flash", gemini(403, "no"), Failure(FailureKind.AUTH, 403, "no")),
        ("gemini/gemini-2.5-flash", gemini(400, "bad"), Failure(FailureKind.BAD_REQUEST, 400, "bad")),
        ("gemini/gemini-2.5-flash", gemini(429, "slow"), Failure(FailureKind.RATE_LIMIT, 429, "slow", 34.0)),
        (
            "gemini/gemini-2.5-flash",
            gemini(400, "API key not valid. Please pass a valid API key."),
            Failure(FailureKind.AUTH, 401, "API key not valid. Please pass a valid API key."),
        ),
        ("mistral/mistral-small-latest", status(429, "slow"), Failure(FailureKind.RATE_LIMIT, 429, "slow")),
        ("deepseek/deepseek-chat", status(402, "pay"), Failure(FailureKind.QUOTA, 402, "pay")),
        *(
            (name, reply, Failure(kind, None, "", billed=True))
            for name in ("anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash", "deepseek/deepseek-chat")
            for reply, kind in (
                (RESET_MID_BODY, FailureKind.CONNECTION),
                (MALFORMED_JSON, FailureKind.SERVER),
                (INVALID_UTF8, FailureKind.SERVER),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "kind", ""),
)
def test_other_providers_failures(name: str, reply: Reply, failure: Failure, litellm: Any) -> None:
    """They do not come by OpenAI's client: other classes, other words."""

    async def fail(address: str) -> Exception:
        try:
            await litellm.acompletion(
                model=name,
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=5,
                api_base=address,
                api_key=MARKER,
                num_retries=0,
                max_retries=0,
            )
        except Exception as error:
            return error
        finally:
            await litellm.close_litellm_async_clients()
            litellm.in_memory_llm_clients_cache.flush_cache()
        raise AssertionError("it did not fail")

    with serving([reply]) as server:
        error = asyncio.run(fail(server.base_url))
    found = classify(error, datetime.now(UTC), {})
    assert found == dataclasses.replace(failure, said=failure.said or found.said)


# -- secrets


@pytest.mark.parametrize("code", [400, 401, 429, 500])
def test_no_key_in_what_a_failure_says(code: int, capfd: Any, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        failure = ask([echo_authorization(code)] * 2, tries=2).failure
    assert "Incorrect API key provided: Bearer ***" in str(failure)
    told = "".join(traceback.format_exception(failure)) + repr(failure) + repr(vars(failure))
    told += repr(failure.__cause__) + repr(failure.__context__) + repr(pickle.dumps(failure))
    out, err = capfd.readouterr()
    for place in (told, out, err, caplog.text):
        assert "MARKER" not in place
    assert out == ""
    assert err == ""


def test_a_failure_crosses_to_other_processes() -> None:
    failure = ask([RESET_MID_BODY], tries=1).failure
    copy = pickle.loads(pickle.dumps(failure))
    assert isinstance(copy, CallFailed)
    assert str(copy) == str(failure)
    assert vars(copy) == vars(failure)


# -- opening


def test_importing_us_does_not_import_litellm_or_ask_the_network() -> None:
    code = (
        "import sys; import runner.llm, runner.smollm2, runner.scripted; assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_models_share_a_client_until_the_last_is_closed(litellm: Any) -> None:
    async def run() -> None:
        first = await open_model("openai/served", limiter=Limiter("a"), prices=PRICES)
        second = await open_model("openai/other", limiter=Limiter("b"), prices=PRICES)
        assert (await first.ask(QUESTION, 1)).text == "1"
        await first.close()
        assert (await second.ask(QUESTION, 1)).text == "2"
        await second.close()
        assert litellm.aclient_session is None
        third = await open_model("openai/served", limiter=Limiter("a"), prices=PRICES)
        assert (await third.ask(QUESTION, 1)).text == "3"
        await third.close()

    with (
        serving([answer("1"), answer("2"), answer("3")]) as server,
        mock.patch.dict(os.environ, {"OPENAI_API_BASE": server.base_url}),
    ):
        asyncio.run(run())


def test_a_missing_key_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(PrerequisiteError, match="OPENAI_API_KEY"):
        asyncio.run(open_model("openai/served", limiter=Limiter("m"), prices=PRICES))


@pytest.mark.parametrize("name", ["scripted", "replay/runs/x"])
def test_not_opened_by_name(name: str) -> None:
    with pytest.raises(UsageError, match="not opened by name"):
        asyncio.run(open_model(name, limiter=Limiter("m"), prices=PRICES))


def test_the_offline_model_needs_nothing() -> None:
    async def run() -> Answer:
        model = await open_model("offline/scout", limiter=Limiter("m"), prices=PRICES)
        try:
            return await model.ask(QUESTION, 1)
        finally:
            await model.close()

    assert asyncio.run(run()).cost_usd == 0.0


def test_a_model_that_knows_one_temperature_is_not_told_another() -> None:
    asked = ask([answer("pass")], name="openai/o3-mini")
    assert asked.answer.text == "pass"
    (request,) = asked.server.requests
    assert "temperature" not in request.json
    assert request.json["max_completion_tokens"] == 64


def test_many_at_once() -> None:
    async def run() -> list[Answer]:
        clock = InstantClock()
        model = await open_model("openai/served", limiter=Limiter("m"), prices=PRICES, clock=clock)
        try:
            return await asyncio.gather(*(model.ask(QUESTION, sample) for sample in range(40)))
        finally:
            await model.close()

    with (
        serving(lambda request: answer("pass")) as server,
        mock.patch.dict(os.environ, {"OPENAI_API_BASE": server.base_url}),
    ):
        answers = asyncio.run(run())
    assert [answer.text for answer in answers] == ["pass"] * 40
