"""Asking a real HTTP server through LiteLLM."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from unittest import mock

import pytest

from runner.limiter import Limiter
from runner.llm import CallFailed, open_model
from runner.nouns import Answer, Message, Question, Sampling
from runner.prices import Prices
from tests.models.clocks import InstantClock
from tests.servers.openai_server import Script, Server, serving

MARKER = "sk-MARKER-0123456789abcdef"
"""A key that must not come back."""

LITELLM_WARNS = pytest.mark.filterwarnings(r"ignore:.*`ReadOnly` qualifier:UserWarning")
"""LiteLLM builds pydantic types whose ReadOnly fields pydantic says it cannot enforce. LiteLLM
ignores that warning itself, when it is imported; pytest sets all filters anew for each test."""

QUESTION = Question(
    "generate", [Message("system", "You test."), Message("user", "Test json.")], Sampling(0.9, 64)
)
PRICES = Prices.load({"openai/served": {"input": 1.0, "cached": 0.5, "output": 2.0}})


@dataclass
class Asked:
    """What came of one question."""

    outcome: Answer | CallFailed
    server: Server
    clock: InstantClock
    limiter: Limiter

    @property
    def answer(self) -> Answer:
        assert isinstance(self.outcome, Answer), self.outcome
        return self.outcome

    @property
    def failure(self) -> CallFailed:
        assert isinstance(self.outcome, CallFailed), self.outcome
        return self.outcome


def ask(
    script: Script,
    *,
    name: str = "openai/served",
    question: Question = QUESTION,
    timeout_s: float = 20.0,
    tries: int = 8,
    patience_s: float = 3600.0,
) -> Asked:
    """One question to a server that follows a script. Sleeps are kept, not slept."""
    clock = InstantClock()
    limiter = Limiter(name, clock=clock)

    async def run() -> Answer | CallFailed:
        model = await open_model(
            name,
            limiter=limiter,
            prices=PRICES,
            timeout_s=timeout_s,
            tries=tries,
            patience_s=patience_s,
            clock=clock,
        )
        try:
            return await model.ask(question, 1)
        except CallFailed as failure:
            return failure
        finally:
            await model.close()

    with serving(script) as server, mock.patch.dict(os.environ, {"OPENAI_API_BASE": server.base_url}):
        outcome = asyncio.run(run())
    assert not server.overrun, "it asked more often than the script has replies"
    return Asked(outcome, server, clock, limiter)
