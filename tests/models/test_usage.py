"""Token counts as providers report them, through the installed LiteLLM, to four classes.

The bodies have the shape of each provider's documented reply, with usage objects as they were
recorded in the bug reports that are named. A LiteLLM that counts otherwise fails here.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import pytest

from runner.nouns import Price, Usage
from runner.prices import usage_of
from tests.models.asking import LITELLM_WARNS
from tests.servers.openai_server import Json, Reply, completion, serving

pytestmark = LITELLM_WARNS


def openai(**usage: Any) -> Json:
    return completion("pass", usage=usage)


def anthropic(**usage: Any) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "pass"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def gemini(**usage: Any) -> Json:
    return {
        "candidates": [
            {
                "content": {"parts": [{"text": "pass"}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash",
    }


class Golden(NamedTuple):
    model: str
    body: Json
    usage: Usage


GOLDEN = {
    "openai, cached (litellm 6215)": Golden(
        "openai/gpt-4o",
        openai(
            prompt_tokens=2006,
            completion_tokens=300,
            total_tokens=2306,
            prompt_tokens_details={"cached_tokens": 1920, "audio_tokens": 0},
            completion_tokens_details={"reasoning_tokens": 128, "audio_tokens": 0},
        ),
        Usage(input=86, cached=1920, output=300),
    ),
    "openai, plain": Golden(
        "openai/gpt-4o",
        openai(prompt_tokens=10, completion_tokens=4, total_tokens=14),
        Usage(input=10, output=4),
    ),
    "openai, cache written": Golden(
        "openai/gpt-4o",
        openai(
            prompt_tokens=5000,
            completion_tokens=10,
            total_tokens=5010,
            prompt_tokens_details={"cached_tokens": 1024, "cache_write_tokens": 2048},
        ),
        Usage(input=1928, cached=1024, cache_write=2048, output=10),
    ),
    "anthropic, cache written and read (litellm 6575, 9812)": Golden(
        "anthropic/claude-sonnet-4-5",
        anthropic(
            input_tokens=21,
            cache_creation_input_tokens=188_086,
            cache_read_input_tokens=1_500,
            output_tokens=393,
        ),
        Usage(input=21, cached=1_500, cache_write=188_086, output=393),
    ),
    "anthropic, plain": Golden(
        "anthropic/claude-sonnet-4-5",
        anthropic(input_tokens=2095, output_tokens=503),
        Usage(input=2095, output=503),
    ),
    "gemini, cached and thinking (litellm 14849)": Golden(
        "gemini/gemini-2.5-flash",
        gemini(
            promptTokenCount=21_265,
            cachedContentTokenCount=20_455,
            candidatesTokenCount=71,
            thoughtsTokenCount=1_024,
            totalTokenCount=22_360,
            promptTokensDetails=[{"modality": "TEXT", "tokenCount": 21_265}],
            cacheTokensDetails=[{"modality": "TEXT", "tokenCount": 20_455}],
        ),
        Usage(input=810, cached=20_455, output=1_095),
    ),
    "gemini, plain": Golden(
        "gemini/gemini-2.5-flash",
        gemini(promptTokenCount=8, candidatesTokenCount=5, totalTokenCount=13),
        Usage(input=8, output=5),
    ),
    "deepseek": Golden(
        "deepseek/deepseek-chat",
        openai(
            prompt_tokens=1400,
            completion_tokens=50,
            total_tokens=1450,
            prompt_cache_hit_tokens=1280,
            prompt_cache_miss_tokens=120,
            prompt_tokens_details={"cached_tokens": 1280},
        ),
        Usage(input=120, cached=1280, output=50),
    ),
    "xai, reasoning beside the completion": Golden(
        "xai/grok-4",
        openai(
            prompt_tokens=32,
            completion_tokens=9,
            total_tokens=135,
            prompt_tokens_details={"text_tokens": 32, "cached_tokens": 6},
            completion_tokens_details={"reasoning_tokens": 94},
        ),
        Usage(input=26, cached=6, output=103),
    ),
    "mistral": Golden(
        "mistral/mistral-small-latest",
        openai(prompt_tokens=15, completion_tokens=20, total_tokens=35),
        Usage(input=15, output=20),
    ),
    "openrouter, which names a cost": Golden(
        "openrouter/anthropic/claude-sonnet-4.5",
        openai(
            prompt_tokens=194,
            completion_tokens=2,
            total_tokens=196,
            cost=0.95,
            prompt_tokens_details={"cached_tokens": 64},
        ),
        Usage(input=130, cached=64, output=2),
    ),
    "llama.cpp": Golden(
        "openai/smollm2",
        openai(
            prompt_tokens=40,
            completion_tokens=200,
            total_tokens=240,
            prompt_tokens_details={"cached_tokens": 39},
        ),
        Usage(input=1, cached=39, output=200),
    ),
}


@pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)
def test_as_reported_on_the_wire(golden: Golden, litellm: Any) -> None:
    async def ask(address: str) -> Any:
        response = await litellm.acompletion(
            model=golden.model,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=10,
            api_base=address,
            api_key="none",
            num_retries=0,
            max_retries=0,
        )
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()
        return response

    with serving([Reply(body=json.dumps(golden.body).encode())]) as server:
        response = asyncio.run(ask(server.base_url))
    assert response.choices[0].message.content == "pass"
    assert usage_of(response.usage.model_dump()) == golden.usage


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
        ({"prompt_tokens": 0, "completion_tokens": 7}, None),
        ({"prompt_tokens": None, "completion_tokens": 7}, None),
        ({"prompt_tokens": 5, "completion_tokens": None}, Usage(input=5)),
        ({"prompt_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": None}, Usage(input=5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": None}}, Usage(input=5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(cached=5)),
        # A gateway that counts what it cached beside the prompt.
        ({"prompt_tokens": 5, "cache_read_input_tokens": 900}, Usage(input=5, cached=900)),
        ({"prompt_tokens": 9, "cache_creation_input_tokens": 4}, Usage(input=5, cache_write=4)),
        # The same tokens under two names are the same tokens.
        (
            {
                "prompt_tokens": 9,
                "prompt_tokens_details": {
                    "cached_tokens": 2,
                    "cache_write_tokens": 3,
                    "cache_creation_tokens": 3,
                },
                "cache_read_input_tokens": 2,
                "cache_creation_input_tokens": 3,
            },
            Usage(input=4, cached=2, cache_write=3),
        ),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -3}}, Usage(input=5)),
    ],
)
def test_odd_reports(reported: Json | None, usage: Usage | None) -> None:
    assert usage_of(reported) == usage


def test_the_bill_of_the_bug_report() -> None:
    """Issue 14849: LiteLLM asked $0.7642 for this call, Google $0.1849."""
    usage = usage_of(
        {
            "prompt_tokens": 550_000,
            "completion_tokens": 2_000,
            "prompt_tokens_details": {"cached_tokens": 520_000},
        }
    )
    assert usage is not None
    price = Price(input=1.25e-6, cached=3.125e-7, cache_write=1.25e-6, output=1e-5)
    assert price.of(usage) == pytest.approx(30_000 * 1.25e-6 + 520_000 * 3.125e-7 + 2_000 * 1e-5)
