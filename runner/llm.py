"""Ask a model: LiteLLM for any provider, with our own limits, retries, cost and words for failures.

LiteLLM does one thing here: turn a conversation into a provider's HTTP request and its
reply into one shape. Its retries, cost figures, callbacks and logs are off; it is imported
late, because that takes ten seconds.

Keys come from the environment, where LiteLLM finds them, and go nowhere else: what a
provider says is scrubbed before it becomes an error's text.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from runner.failures import CallFailed, Failure, FailureKind, classify
from runner.limiter import Clock, Limiter, LimiterPort, Pace, RealClock
from runner.nouns import Answer, Question, content_id
from runner.prices import Prices, prompt_bound, usage_of
from runner.providers import check_model, keys_of, provider_of
from sandboxes.errors import UsageError

if TYPE_CHECKING:
    import httpx

__all__ = [
    "CallFailed",
    "FailureKind",
    "LiteLLMModel",
    "Model",
    "check_model",
    "import_litellm",
    "open_model",
]

TIMEOUT_S = 300.0
"""Of one try, from sending to the last byte."""
TRIES = 8
PATIENCE_S = 3600.0
"""From a call's first try; the wait for its turn before that is not the provider's fault."""


class Model(Protocol):
    """What answers questions."""

    name: str
    """LiteLLM's name for it, or one of ours: offline/..., local/..., replay/..., scripted."""

    async def ask(self, question: Question, sample: int) -> Answer:
        """One answer; whatever a model says is one: nothing, prose, half a program.

        `sample` numbers the calls of an episode: a deterministic model answers by it.
        Raises ModelError (a CallFailed) when there is none, for good.
        """
        ...

    async def close(self) -> None:
        """Give back connections and processes. Raises nothing."""
        ...


class LiteLLMModel:
    """A Model behind LiteLLM."""

    def __init__(
        self,
        name: str,
        litellm: Any,
        *,
        limiter: LimiterPort,
        prices: Prices,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
        served: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`served`: how a server of our own is called, in LiteLLM's arguments.

        It is asked for the same answer to the same sample. `max_tokens` caps what questions
        ask for; `closing` is awaited by close.
        """
        self.name = name
        self._litellm = litellm
        self._limiter = limiter
        self._prices = prices
        self._timeout_s = timeout_s
        self._tries = tries
        self._patience_s = patience_s
        self._clock = clock or RealClock()
        self._served = served
        self._max_tokens = max_tokens
        self._closing = closing

    async def ask(self, question: Question, sample: int) -> Answer:
        """See Model. The cost is of the try that answered."""
        first: float | None = None
        billed = False
        for tries in itertools.count(1):
            patience = self._patience_s - (0.0 if first is None else self._clock.now() - first)
            grant = await self._limiter.acquire(self._expected(question), patience, self._timeout_s + 60.0)
            if grant.lease is None:
                failure = Failure(
                    FailureKind.RATE_LIMIT, 429, f"it asks to be left alone for {grant.held_s:.0f} s"
                )
                raise self._failed(failure, tries - 1, billed)
            began = self._clock.now()
            first = began if first is None else first
            try:
                outcome = await self._try(question, sample)
            except BaseException:
                await self._limiter.release(grant.lease, None)
                raise
            if isinstance(outcome, Answer):
                used = outcome.usage
                await self._limiter.release(grant.lease, 0 if used is None else used.prompt + used.output)
                latency = self._clock.now() - began
                return Answer(outcome.text, outcome.finish_reason, used, latency, tries, outcome.cost_usd)
            billed = billed or outcome.billed
            if not outcome.kind.retryable:
                await self._limiter.release(grant.lease, None)
                raise self._failed(outcome, tries, billed)
            busy = outcome.kind is FailureKind.RATE_LIMIT
            delay = await self._limiter.back_off(grant.lease, tries, outcome.retry_after_s, busy)
            if tries >= self._tries or self._clock.now() + delay > first + self._patience_s:
                raise self._failed(outcome, tries, billed)
            if delay:
                await self._clock.sleep(delay)
        raise AssertionError("counting ended")

    async def close(self) -> None:
        """See Model."""
        await _close_clients(self._litellm)
        if self._closing is not None:
            await self._closing()

    def _expected(self, question: Question) -> int:
        """Tokens of a call, for the limiter's bucket; the real number is put right afterwards."""
        # Code has three to four bytes a token, and providers count the room for the answer too.
        return prompt_bound(question.messages) // 3 + self._answer_tokens(question)

    def _answer_tokens(self, question: Question) -> int:
        asked = question.sampling.max_tokens
        return asked if self._max_tokens is None else min(asked, self._max_tokens)

    async def _try(self, question: Question, sample: int) -> Answer | Failure:
        try:
            # LiteLLM's timeout is for each read: a server that trickles would never meet it.
            async with asyncio.timeout(self._timeout_s):
                response = await self._litellm.acompletion(**self._arguments(question, sample))
            return self._answer(response)
        except Exception as error:
            return classify(error, datetime.now(UTC), os.environ)

    def _arguments(self, question: Question, sample: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": message.role, "content": message.content} for message in question.messages],
            "temperature": question.sampling.temperature,
            "max_tokens": self._answer_tokens(question),
            "timeout": self._timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            # Some models know one temperature only and refuse to be told any.
            "drop_params": True,
        }
        if self._served is not None:
            # Not for providers: they treat it as a wish, and n equal prompts want n answers.
            arguments["seed"] = int(content_id([question.seed, sample]), 16) % 2**31
            arguments |= self._served
        return arguments

    def _answer(self, response: Any) -> Answer:
        choice = response.choices[0] if response.choices else None
        text = (choice.message.content if choice is not None else None) or ""
        reason = (choice.finish_reason if choice is not None else None) or ""
        reported = getattr(response, "usage", None)
        usage = usage_of(reported.model_dump() if reported is not None else None)
        return Answer(text, reason, usage, 0.0, cost_usd=self._prices.cost(self.name, usage))

    def _failed(self, failure: Failure, tries: int, billed: bool) -> CallFailed:
        variables = () if self._served is not None else keys_of(provider_of(self.name))
        advice = {
            FailureKind.AUTH: f"check {' or '.join(variables) or 'the credentials in the environment'}",
            FailureKind.QUOTA: "top the account up, or use another key",
            FailureKind.NOT_FOUND: "check the model's name and the account's access to it",
            FailureKind.TOO_LONG: "use a model with a longer context, or leave this target out",
            FailureKind.CONNECTION: "check the network and the provider's address",
        }.get(failure.kind)
        status = f" {failure.status}" if failure.status is not None else ""
        after = f" after {tries} tries" if tries > 1 else ""
        message = f"{self.name}: {failure.kind.replace('_', ' ')}{status}{after}: {failure.said}"
        if advice:
            message += f"; {advice}"
        return CallFailed(message, kind=failure.kind, status=failure.status, tries=tries, billed=billed)


async def open_model(
    name: str,
    *,
    limiter: LimiterPort,
    prices: Prices,
    timeout_s: float = TIMEOUT_S,
    tries: int = TRIES,
    patience_s: float = PATIENCE_S,
    clock: Clock | None = None,
) -> Model:
    """A model by its name; close it. `limiter` is the cluster's for this model.

    A server for OpenAI's language is openai/NAME, with its address in OPENAI_API_BASE, as
    LiteLLM has it. Raises UsageError, PrerequisiteError.
    """
    check_model(name, os.environ)
    if name == "offline/scout":
        from runner.offline import Scout

        return Scout()
    if name == "scripted" or name.startswith("replay/"):
        raise UsageError(
            f"the model {name!r} is not opened by name: make it where its script or run is at hand"
        )
    litellm = await asyncio.to_thread(import_litellm)
    served: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    closing: Callable[[], Awaitable[None]] | None = None
    if name == "local/smollm2":
        from runner import smollm2

        server = await smollm2.Server.start()
        served, max_tokens, closing = server.arguments, smollm2.MAX_TOKENS, server.stop
        # Ours is one a node, and a CPU's work is not spread over a cluster.
        limiter = Limiter(name, Pace(start=1, most=1), clock=clock)
        timeout_s = max(timeout_s, smollm2.TIMEOUT_S)
    _lend_client(litellm)
    return LiteLLMModel(
        name,
        litellm,
        limiter=limiter,
        prices=prices,
        timeout_s=timeout_s,
        tries=tries,
        patience_s=patience_s,
        clock=clock,
        served=served,
        max_tokens=max_tokens,
        closing=closing,
    )


@functools.cache
def import_litellm() -> Any:
    """LiteLLM, silent, and asking nobody but the provider of a call. Takes ten seconds, once."""
    # At import it reads a .env file of the current folder, and asks the network for newer lists.
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_OFFLINE_MODE"] = "true"
    import litellm

    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.num_retries = 0
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


_lent = 0
"""Models that use the one HTTP client."""


def _lend_client(litellm: Any) -> None:
    """One HTTP client for all models of this process, which bears bytes that are not UTF-8."""
    global _lent
    if not _lent:
        litellm.aclient_session = _client()
    _lent += 1


async def _close_clients(litellm: Any) -> None:
    global _lent
    _lent -= 1
    if _lent:
        return
    session, litellm.aclient_session = litellm.aclient_session, None
    await session.aclose()
    await litellm.close_litellm_async_clients()
    # It would hand out its closed clients to the next model of this process.
    litellm.in_memory_llm_clients_cache.flush_cache()


def _client() -> httpx.AsyncClient:
    import httpx

    class Tolerant(httpx.AsyncClient):
        """Puts the replacement character for what is not UTF-8, as in everything that models say."""

        async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            response = await super().send(request, **options)
            if options.get("stream"):
                return response
            try:
                response.content.decode()
            except UnicodeDecodeError:
                headers = [
                    (name, value)
                    for name, value in response.headers.multi_items()
                    if name not in ("content-encoding", "content-length", "transfer-encoding")
                ]
                repaired = httpx.Response(
                    response.status_code,
                    headers=headers,
                    content=response.content.decode(errors="replace").encode(),
                    request=request,
                )
                repaired.elapsed = response.elapsed
                return repaired
            return response

    # The limiter says how many calls are under way; a pool with an opinion would only hide it.
    return Tolerant(
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100), follow_redirects=True
    )
