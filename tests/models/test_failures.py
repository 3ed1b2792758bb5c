"""The pure parts: exceptions as LiteLLM raises them, headers, secrets. Real ones: test_llm.py."""

from __future__ import annotations

import urllib.parse
from datetime import UTC, datetime

import pytest

from runner.failures import CallFailed, FailureKind, classify, scrub

NOW = datetime(2029, 1, 1, tzinfo=UTC)


class Response:
    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


def raised(
    name: str,
    status: int | None,
    text: str,
    *,
    headers: dict[str, str] | None = None,
    body: object = None,
    cause: BaseException | None = None,
) -> Exception:
    """An exception of a class of this name, as LiteLLM decorates them."""
    error = made(name, f"litellm.{name}: {text}")
    vars(error).update(status_code=status, body=body)
    if headers is not None:
        vars(error).update(response=Response({"Content-Type": "application/json", **headers}))
    error.__cause__ = cause
    return error


def made(name: str, text: str = "beneath", base: type[Exception] = Exception) -> Exception:
    """An exception of a class of this name."""
    error: Exception = type(name, (base,), {})(text)
    return error


REPLIED: dict[str, str] = {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (raised("AuthenticationError", 401, "no", headers=REPLIED), FailureKind.AUTH),
        (raised("APIError", 403, "no", headers=REPLIED), FailureKind.AUTH),
        (raised("InternalServerError", 500, "OpenAIException - Missing credentials. Set"), FailureKind.AUTH),
        (raised("BadRequestError", 422, "no", headers=REPLIED), FailureKind.BAD_REQUEST),
        (raised("BadRequestError", 400, "LLM Provider NOT provided."), FailureKind.BAD_REQUEST),
        (raised("ContextWindowExceededError", 400, "long", headers=REPLIED), FailureKind.TOO_LONG),
        (raised("ContentPolicyViolationError", 400, "no", headers=REPLIED), FailureKind.REFUSED),
        (raised("APIError", 402, "pay", headers=REPLIED), FailureKind.QUOTA),
        (raised("RateLimitError", 429, "slow", headers=REPLIED), FailureKind.RATE_LIMIT),
        (
            raised("RateLimitError", 429, "gone", headers=REPLIED, body={"code": "insufficient_quota"}),
            FailureKind.QUOTA,
        ),
        (raised("Timeout", 408, "late"), FailureKind.TIMEOUT),
        (raised("Timeout", 408, "late", headers=REPLIED), FailureKind.TIMEOUT),
        (TimeoutError(), FailureKind.TIMEOUT),
        (
            raised("InternalServerError", 500, "Connection error.", cause=made("APIConnectionError")),
            FailureKind.CONNECTION,
        ),
        (
            raised(
                "InternalServerError",
                500,
                "x",
                cause=made("ReadError", base=type("TransportError", (Exception,), {})),
            ),
            FailureKind.CONNECTION,
        ),
        (raised("InternalServerError", 500, "x", cause=ConnectionResetError()), FailureKind.CONNECTION),
        (raised("InternalServerError", 500, "x", cause=ValueError("not JSON")), FailureKind.SERVER),
        (raised("APIError", 529, "overloaded", headers=REPLIED), FailureKind.SERVER),
        (AttributeError("a fault of LiteLLM's"), FailureKind.SERVER),
        # Look-alikes: words of one kind in a failure of another.
        (
            raised("BadRequestError", 400, "token 429 and insufficient_quota", headers=REPLIED),
            FailureKind.BAD_REQUEST,
        ),
        (
            raised("BadRequestError", 400, "Timeout must be a number", headers=REPLIED),
            FailureKind.BAD_REQUEST,
        ),
        (raised("InternalServerError", 500, "content_policy_violation", headers=REPLIED), FailureKind.SERVER),
        (raised("InternalServerError", 500, "Missing credentials", headers=REPLIED), FailureKind.SERVER),
        (raised("RateLimitError", 429, "401 404 403", headers=REPLIED), FailureKind.RATE_LIMIT),
        (
            raised("ServiceUnavailableError", 503, "x", headers=REPLIED, cause=made("APIConnectionError")),
            FailureKind.SERVER,
        ),
        (
            raised("InternalServerError", 500, "upstream", headers=REPLIED, cause=TimeoutError()),
            FailureKind.SERVER,
        ),
    ],
)
def test_kinds(error: Exception, kind: FailureKind) -> None:
    assert classify(error, NOW, {}).kind is kind


@pytest.mark.parametrize("kind", FailureKind)
def test_what_may_succeed_later(kind: FailureKind) -> None:
    later = {FailureKind.RATE_LIMIT, FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.SERVER}
    assert kind.retryable == (kind in later)
    assert CallFailed("x", kind=kind).retryable == (kind in later)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "30"}, 30.0),
        ({"retry-after": "0"}, 0.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Mon, 01 Jan 2029 00:02:00 GMT"}, 120.0),
        ({"Retry-After": "Sun, 31 Dec 2028 23:00:00 GMT"}, 0.0),
        ({"Retry-After": "Mon, 01 Jan 2029 01:01:00 +0100"}, 60.0),
        ({"Retry-After": "Mon, 01 Jan 2029 00:02:00 GMT", "Date": "Mon, 01 Jan 2029 00:01:50 GMT"}, 10.0),
        ({"Retry-After": "Mon, 01 Jan 2029 00:02:00 GMT", "Date": "yesterday"}, 120.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": ""}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert classify(raised("RateLimitError", 429, "slow", headers=headers), NOW, {}).retry_after_s == seconds


def test_geminis_delay_is_in_the_body() -> None:
    text = 'GeminiException - {"error": {"code": 429, "details": [{"retryDelay": "34.07s"}]}}'
    assert classify(raised("RateLimitError", 429, text, headers=REPLIED), NOW, {}).retry_after_s == 34.07


def test_final_failures_have_nothing_to_wait_for() -> None:
    error = raised("AuthenticationError", 401, "no", headers={"Retry-After": "30"})
    assert classify(error, NOW, {}).retry_after_s is None


@pytest.mark.parametrize(
    ("error", "billed"),
    [
        (raised("RateLimitError", 429, "slow", headers=REPLIED), False),
        (raised("InternalServerError", 500, "x", headers=REPLIED), False),
        (raised("AuthenticationError", 401, "no", headers=REPLIED), False),
        (raised("InternalServerError", 500, "x", cause=made("ConnectError", base=ConnectionError)), False),
        (raised("InternalServerError", 500, "x", cause=made("ReadError", base=ConnectionError)), True),
        (raised("InternalServerError", 500, "x", cause=ValueError("not JSON")), True),
        (raised("Timeout", 408, "late"), True),
    ],
)
def test_what_a_provider_may_have_billed(error: Exception, billed: bool) -> None:
    assert classify(error, NOW, {}).billed is billed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RateLimitError: OpenAIException - Rate limit", "Rate limit"),
        ("litellm.BadRequestError: ContextWindowExceededError: OpenAIException - 9 of 8", "9 of 8"),
        ("Note: this - that", "Note: this - that"),
        ('AnthropicException - {"error": {"message": "bad"}}. Handle with x', "bad"),
        ('GeminiException BadRequestError - {"error": "odd"}', '{"error": "odd"}'),
        ("litellm.Timeout: AnthropicException - litellm.Timeout: Read timed out", "Read timed out"),
        ("OpenAIException - two\n  lines", "two lines"),
        ("a fault\nTraceback (most recent call last):\n  File ...", "a fault"),
        ("x" * 900, "x" * 500),
        ("", ""),
    ],
)
def test_what_was_said_in_one_line(text: str, said: str) -> None:
    assert classify(raised("RateLimitError", 429, text, headers=REPLIED), NOW, {}).said == said


def test_a_secret_at_the_cut_is_not_cut() -> None:
    text = "x" * 490 + " sk-MARKER-0123456789abcdef"
    error = raised("AuthenticationError", 401, text, headers=REPLIED)
    assert "MARKER" not in classify(error, NOW, {"OPENAI_API_KEY": "sk-MARKER-0123456789abcdef"}).said
    assert "MARKER" not in classify(error, NOW, {}).said


# -- secrets

SECRET = "q/w+e=r t.y0123"


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "aws_access_key_id", "DB_PASSWORD", "X_SECRET"],
)
def test_values_of_such_variables_do_not_pass(name: str) -> None:
    text = f"a {SECRET} b {urllib.parse.quote(SECRET, safe='')} c"
    assert scrub(text, {name: SECRET}) == f"a <{name}> b <{name}> c"


def test_a_secret_within_another() -> None:
    environment = {"A_KEY": "0123456789", "B_KEY": "0123456789abcdef"}
    assert scrub("0123456789abcdef 0123456789", environment) == "<B_KEY> <A_KEY>"


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Authorization: Bearer abc.def-ghi!", "Authorization: Bearer ***"),
        ('{"authorization": "Basic dXNlcg=="}', '{"authorization": "Basic ***"}'),
        ("key sk-proj-abcdefgh1234 is wrong", "key sk-*** is wrong"),
        ("https://h/v1?key=AIzaSyA&alt=json", "https://h/v1?key=***&alt=json"),
        ("https://h/v1?a=1&api_key=AIzaSyA", "https://h/v1?a=1&api_key=***"),
    ],
)
def test_what_looks_like_a_credential_does_not_pass(text: str, scrubbed: str) -> None:
    assert scrub(text, {}) == scrubbed


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("the key is none", {"OPENAI_API_KEY": "none"}),
        ("the home is /home/person", {"HOME": "/home/person"}),
        ("the task is-ask-able", {}),
        ("a bearer of news", {"OPENAI_API_KEY": ""}),
    ],
)
def test_what_is_no_secret_stays(text: str, environment: dict[str, str]) -> None:
    assert scrub(text, environment).replace("bearer ***", "bearer of") == text
