from __future__ import annotations

import subprocess
import sys

import pytest

from runner.providers import check_model, keys_of, provider_of
from sandboxes.errors import CorridorError, PrerequisiteError, UsageError

SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("openai/served", "openai"),
        ("gpt-5.4-mini", "openai"),
        ("gemini/gemini-3-flash", "gemini"),
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("claude-sonnet-4-5", "anthropic"),
        ("claude-nextone-9", "anthropic"),
        ("mistral/mistral-large-latest", "mistral"),
        ("openrouter/anthropic/claude-sonnet-4.5", "openrouter"),
        ("together_ai/meta-llama/Llama-3-70b", "together_ai"),
        ("hosted_vllm/mine", "hosted_vllm"),
        ("vertex_ai/gemini-2.5-pro", "vertex_ai"),
        ("nano-gpt/x", "nano-gpt"),
    ],
)
def test_who_sells_it(name: str, provider: str) -> None:
    assert provider_of(name) == provider


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opnai/gpt-4o", ["'opnai/gpt-4o'", "unknown provider 'opnai'", "did you mean 'openai'?"]),
        ("mistrall/large", ["did you mean 'mistral'?"]),
        ("openai/", ["'openai/'", "lacks a name"]),
        ("gpt-5.4-minni", ["names no provider", "openai/gpt-5.4-minni", "did you mean 'gpt-5.4-mini'?"]),
        ("my-own-thing-entirely", ["names no provider", "openai/my-own-thing-entirely"]),
        ("", ["''", "names no provider"]),
        ("offline/scuot", ["did you mean 'offline/scout'?"]),
        ("local/llama", ["'local/llama'"]),
        ("replay/", ["'replay"]),
    ],
)
def test_names_that_mean_nothing(name: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        check_model(name, {})
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("openai/served", ["OPENAI_API_KEY"]),
        ("gpt-5.4-mini", ["OPENAI_API_KEY"]),
        ("gemini/gemini-3-flash", ["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("claude-sonnet-4-5", ["ANTHROPIC_API_KEY"]),
        ("mistral/mistral-large-latest", ["MISTRAL_API_KEY"]),
        ("nano-gpt/x", ["NANOGPT_API_KEY"]),
    ],
)
def test_a_missing_key_is_named(name: str, variables: list[str]) -> None:
    for environment in ({}, {"OTHER_API_KEY": SECRET, variables[0]: ""}):
        with pytest.raises(PrerequisiteError) as caught:
            check_model(name, environment)
        assert repr(name) in str(caught.value)
        for variable in variables:
            assert variable in str(caught.value)
        assert SECRET not in str(caught.value)
    for variable in variables:
        check_model(name, {variable: SECRET})


@pytest.mark.parametrize(
    "name",
    [
        "offline/scout",
        "scripted",
        "replay/runs/table2",
        "ollama/qwen3",
        "hosted_vllm/mine",
        "bedrock/x",
        "vertex_ai/y",
    ],
)
def test_what_needs_no_key_here(name: str) -> None:
    check_model(name, {})


def test_errors_are_corridors() -> None:
    """A caller prints them without a traceback."""
    with pytest.raises(CorridorError):
        check_model("nonsense/x", {})


def test_without_litellm() -> None:
    code = (
        "import sys; from runner.llm import check_model; check_model('gpt-4o', {'OPENAI_API_KEY': 'x'}); "
        "check_model('openai/x', {'OPENAI_API_KEY': 'x'}); assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keys_of_an_unknown_provider() -> None:
    assert keys_of("nobody") == ()
