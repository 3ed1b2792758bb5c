"""Why a call to a model failed, told from what LiteLLM raised; and texts without secrets.

One pure function decides (`classify`): what is final, what is worth another try, when, and
what a provider may bill although no answer came.
"""

from __future__ import annotations

import email.utils
import enum
import functools
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandboxes.errors import ModelError


class FailureKind(enum.StrEnum):
    """Why a call failed."""

    AUTH = "auth"
    """The key is missing, wrong, or may not use the model."""
    QUOTA = "quota"
    """The account has nothing left; waiting does not help."""
    NOT_FOUND = "not_found"
    """No such model."""
    TOO_LONG = "too_long"
    """The prompt does not fit the model's context."""
    REFUSED = "refused"
    """The provider's filter took offence at the prompt."""
    BAD_REQUEST = "bad_request"
    RATE_LIMIT = "rate_limit"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    """Nobody there, or gone in the middle."""
    SERVER = "server"
    """5xx, or an answer that is none."""

    @property
    def retryable(self) -> bool:
        """Whether another try may succeed."""
        return self in (
            FailureKind.RATE_LIMIT,
            FailureKind.TIMEOUT,
            FailureKind.CONNECTION,
            FailureKind.SERVER,
        )


class CallFailed(ModelError):
    """A call that has no answer, for good: it is not worth a try, or all tries are used."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        status: int | None = None,
        tries: int = 1,
        billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        """The provider's HTTP status, where there was one."""
        self.tries = tries
        self.cost_usd: float | None = None if billed else 0.0
        """None when a try was lost that the provider may have billed: then nobody knows."""

    @property
    def retryable(self) -> bool:
        """Whether it may work later."""
        return self.kind.retryable

    def __reduce__(self) -> tuple[Any, ...]:
        made = functools.partial(
            CallFailed, kind=self.kind, status=self.status, tries=self.tries, billed=self.cost_usd is None
        )
        return made, (str(self),)


@dataclass(frozen=True, slots=True)
class Failure:
    """One try that failed."""

    kind: FailureKind
    status: int | None
    said: str
    """By the provider, in one line, without secrets."""
    retry_after_s: float | None = None
    billed: bool = False
    """Whether the model may have answered all the same."""


_NO_KEY = ("missing credentials", "api_key client option must be set")
_GEMINI_DELAY = re.compile(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
_PREFIX = re.compile(r"^(?:(?:litellm\.)?\w*(?:Error|Timeout): |\w+(?:Exception|Error)(?: \w+Error)? - )+")
_UNREADABLE = ("Unable to get json response", "Error converting to valid response block")
"""LiteLLM's words, in errors of several classes, for a reply of 200 that is no JSON."""


def classify(error: BaseException, now: datetime, environment: Mapping[str, str]) -> Failure:
    """What a try failed of. `now` is where the reply does not say when it was sent.

    LiteLLM's own classes are half the truth: a refused connection, a reset and a body that is
    not JSON all come out as its InternalServerError with status 500, and 403 as plain APIError.
    So the status counts where there was an HTTP reply, and else what the error was made from.
    """
    names = {kind.__name__ for cause in _chain(error) for kind in type(cause).__mro__}
    headers = _headers(error)
    status = getattr(error, "status_code", None)
    replied = headers is not None
    # Of its own faults LiteLLM shows a traceback too.
    text = str(error).partition("\nTraceback (most recent call last)")[0]
    said = f"{text} {getattr(error, 'body', None) or ''}".lower()
    unreadable = any(words in text for words in _UNREADABLE)
    wait = None
    if unreadable:
        kind, replied = FailureKind.SERVER, False
    elif "ContextWindowExceededError" in names:
        kind = FailureKind.TOO_LONG
    elif "ContentPolicyViolationError" in names or (status == 400 and "content_policy_violation" in said):
        kind = FailureKind.REFUSED
    elif (
        status == 402
        or (status in (403, 429) and "insufficient_quota" in said)
        or (status == 400 and "credit balance is too low" in said)
    ):
        kind = FailureKind.QUOTA
    elif status in (401, 403) or (not replied and any(words in said for words in _NO_KEY)):
        kind = FailureKind.AUTH
    elif status == 404:
        kind = FailureKind.NOT_FOUND
    elif status == 408 or (not replied and names & {"Timeout", "TimeoutError"}):
        kind = FailureKind.TIMEOUT
    elif status in (425, 429):
        kind = FailureKind.RATE_LIMIT
    elif isinstance(status, int) and 400 <= status < 500:
        kind = FailureKind.BAD_REQUEST
    elif not replied and names & {"TransportError", "ClientError", "APIConnectionError", "ConnectionError"}:
        kind = FailureKind.CONNECTION
    else:
        kind = FailureKind.SERVER
    if kind.retryable:
        wait = _retry_after(headers or {}, now)
        delay = _GEMINI_DELAY.search(text)
        if wait is None and delay is not None:
            wait = float(delay[1])
    lost = kind in (FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.SERVER) and not replied
    return Failure(
        kind,
        status if replied else None,
        # Cut last: half a key would not be known for one.
        " ".join(scrub(_message(_PREFIX.sub("", text)), environment).split())[:500],
        wait,
        billed=lost and "ConnectError" not in names,
    )


def _message(text: str) -> str:
    """The message of an error that was passed on as JSON, as most providers' are."""
    if text.startswith("{"):
        try:
            message = json.JSONDecoder().raw_decode(text)[0]["error"]["message"]
        except (ValueError, KeyError, TypeError):
            return text
        return message if isinstance(message, str) else text
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _headers(error: BaseException) -> Mapping[str, str] | None:
    """Of the provider's reply; None when there was none. Names in lower case."""
    for cause in _chain(error):
        found = getattr(cause, "litellm_response_headers", None) or getattr(
            getattr(cause, "response", None), "headers", None
        )
        if found:
            return {name.lower(): value for name, value in found.items()}
    return None


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds, from Retry-After in any of its forms; None where it says nothing that can be read."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) * unit
    then = _http_date(headers.get("retry-after", ""))
    # By the provider's own clock where it tells the time: ours may be off by more than the wait.
    return max(0.0, (then - (_http_date(headers.get("date", "")) or now)).total_seconds()) if then else None


def _http_date(value: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)(_ID)?$", re.IGNORECASE)
_SECRET_LOOKS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',}]+"), r"\1 ***"),
    (re.compile(r"\bsk-[\w-]{8,}"), "sk-***"),
    (re.compile(r"([?&](?:api[_-]?)?key=)[^&\s\"']+"), r"\1***"),
)


def scrub(text: str, environment: Mapping[str, str]) -> str:
    """A text without what the environment keeps under names like *_KEY or *_TOKEN.

    And without what looks like a credential, wherever it came from.
    """
    secrets = {
        form: name
        for name, value in environment.items()
        # Shorter values are no secrets ("none", "EMPTY"), and words that a message needs.
        if _SECRET_NAME.search(name) and len(value) >= 8
        for form in (value, urllib.parse.quote(value, safe=""), json.dumps(value)[1:-1])
    }
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, f"<{secrets[value]}>")
    for looks, instead in _SECRET_LOOKS:
        text = looks.sub(instead, text)
    return text
