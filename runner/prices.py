"""What a call costs: our own table, our own arithmetic, from the provider's raw token counts.

The table is the price list that LiteLLM ships as a data file, read without importing
LiteLLM (which takes ten seconds, and asks the network for a newer list by default: prices
that change under a run cannot be compared), below the prices of the sweep file. LiteLLM's
own cost figure is never used: it has counted cached tokens twice for several providers
(its issues 6215, 6575, 9812, 14849).

What is not known is None, never 0.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.nouns import Message, Price, Usage, content_id
from sandboxes.errors import PrerequisiteError, UsageError

FREE = ("offline/", "local/", "replay/", "scripted")
"""Models of ours: they ask no provider, and cost exactly nothing."""

_OWN_HARDWARE = frozenset(
    {"ollama", "ollama_chat", "lemonade", "lm_studio", "llamafile", "docker_model_runner"}
)
"""Providers that are a program on one's own machine: nobody bills a token."""

_UNCOUNTABLE = (
    "input_cost_per_request",
    "input_cost_per_second",
    "cost_per_second",
    "citation_cost_per_token",
)
"""A model that is billed by these too has no price in four token classes."""

_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")

_FRAME = 64
"""Tokens that a chat template may add for each message, and once more for the conversation."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """A model's prices. Some providers charge the whole call more when its prompt is long."""

    tiers: tuple[tuple[int, Price], ...]
    """(prompt tokens above which it holds, price), ascending, the first above -1."""

    def cost(self, usage: Usage) -> float:
        """US dollars of one call."""
        return next(price for above, price in reversed(self.tiers) if usage.prompt > above).of(usage)

    @property
    def free(self) -> bool:
        """Whether no token costs anything: then a call's cost is known without its usage."""
        return not any(any((p.input, p.cached, p.cache_write, p.output)) for _, p in self.tiers)


NOTHING = Tariff(((-1, Price(0.0, 0.0, 0.0, 0.0)),))


class Prices:
    """The price of every model that has a known one."""

    def __init__(
        self, listed: Mapping[str, Mapping[str, Any]], said: Mapping[str, Mapping[str, float]], version: str
    ) -> None:
        self.version = version
        """Names the list and what the sweep says over it; equal versions, equal prices."""
        self._listed = listed
        self._said = {model: _per_token(model, price) for model, price in said.items()}

    @classmethod
    def load(cls, said: Mapping[str, Mapping[str, float]]) -> Prices:
        """LiteLLM's list below what a sweep says. Raises UsageError for a negative price.

        `said[model]` holds input and output, and may hold cached and cache_write (which are as
        input where it does not), in US dollars for a million tokens.
        """
        listed, version = _bundled()
        if said:
            version = f"{version} + {content_id({name: dict(price) for name, price in said.items()})[:12]}"
        return cls(listed, said, version)

    def of(self, model: str) -> Tariff | None:
        """None for a model without a known price."""
        if model in self._said:
            return self._said[model]
        if model.startswith(FREE):
            return NOTHING
        provider, slash, rest = model.partition("/")
        if slash and provider in _OWN_HARDWARE and not rest.endswith("cloud"):
            return NOTHING
        entry = self._listed.get(model)
        if entry is None and slash:
            entry = self._listed.get(rest)
            if entry is not None and not _sells(provider, str(entry.get("litellm_provider"))):
                return None
        return _tariff(model, entry) if entry is not None else None

    def cost(self, model: str, usage: Usage | None) -> float | None:
        """US dollars of one call; None when the price or the usage is unknown."""
        tariff = self.of(model)
        if tariff is None:
            return None
        if tariff.free:
            return 0.0
        return tariff.cost(usage) if usage is not None else None

    def nearest(self, model: str) -> list[str]:
        """Priced models with a similar name, for an error message; the nearest first."""
        longer = sorted(name for name in self._listed if name.startswith(model))
        close = difflib.get_close_matches(model, self._listed, n=8, cutoff=0.7)
        return [name for name in dict.fromkeys(longer + close) if self.of(name) is not None][:3]


def usage_of(reported: Mapping[str, Any] | None) -> Usage | None:
    """What a provider reported, through LiteLLM, as four classes that do not overlap.

    LiteLLM's `prompt_tokens` includes tokens read from and written to a cache, for every
    provider (it adds them for Anthropic, which reports them beside), and `completion_tokens`
    includes reasoning. It names the parts in `prompt_tokens_details`, and again on top.

    None when nothing was reported: LiteLLM fills in zeros then, and no prompt has no tokens.
    """
    if not reported or not _count(reported, "prompt_tokens"):
        return None
    prompt = _count(reported, "prompt_tokens")
    details = reported.get("prompt_tokens_details") or {}
    cached = (
        _count(details, "cached_tokens")
        or _count(reported, "cache_read_input_tokens")
        or _count(reported, "prompt_cache_hit_tokens")
    )
    written = (
        _count(details, "cache_write_tokens")
        or _count(details, "cache_creation_tokens")
        or _count(reported, "cache_creation_input_tokens")
    )
    # More in the cache than in the prompt: this gateway counts them beside it, not within.
    fresh = prompt - cached - written if cached + written <= prompt else prompt
    return Usage(fresh, cached, written, _count(reported, "completion_tokens"))


def prompt_bound(messages: Sequence[Message]) -> int:
    """Tokens that a conversation can have at most."""
    said = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    return said + _FRAME * (len(messages) + 1)


def litellm_file(name: str) -> bytes:
    """A data file of the installed LiteLLM, without importing it. Raises PrerequisiteError."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise PrerequisiteError("the package litellm is not installed: pip install litellm")
    try:
        return (Path(spec.origin).parent / name).read_bytes()
    except OSError as error:
        version = importlib.metadata.version("litellm")
        raise PrerequisiteError(f"litellm {version} has no file {name}: install another version") from error


@functools.cache
def _bundled() -> tuple[Mapping[str, Mapping[str, Any]], str]:
    data = litellm_file("model_prices_and_context_window_backup.json")
    listed = {
        model: {key: value for key, value in entry.items() if "cost" in key or key in _KEPT}
        for model, entry in json.loads(data).items()
        if isinstance(entry, dict) and entry.get("mode") in ("chat", "completion", "responses")
    }
    version = importlib.metadata.version("litellm")
    return listed, f"litellm {version} {hashlib.sha256(data).hexdigest()[:12]}"


_KEPT = frozenset({"litellm_provider", "tiered_pricing"})


def _sells(provider: str, listed: str) -> bool:
    """Whether a list entry without a prefix is what `provider/` in front of its name means."""
    return (
        listed == provider
        or listed.startswith(f"{provider}-")
        or listed in (f"{provider}_converse", f"{provider}_chat")
    )


def _tariff(model: str, entry: Mapping[str, Any]) -> Tariff | None:
    """From the list's entry; None where it does not say all that a call costs."""
    fee = any(entry.get(key) for key in _UNCOUNTABLE)
    # These search the web for every call, which is billed by the search.
    searches = entry.get("litellm_provider") == "perplexity" or "-search-" in model
    tiers = _tiers(entry)
    if fee or searches or not tiers or any(price is None for _, price in tiers):
        return None
    return Tariff(tuple((above, price) for above, price in tiers if price is not None))


def _tiers(entry: Mapping[str, Any]) -> list[tuple[int, Price | None]]:
    parts = entry.get("tiered_pricing")
    if parts and all("range" in part for part in parts):
        return sorted(
            ((int(part["range"][0]) or -1, _price(part, "")) for part in parts), key=lambda tier: tier[0]
        )
    above = sorted(int(found[1]) for key in entry if (found := _ABOVE.fullmatch(key)))
    return [
        (-1, _price(entry, "")),
        *((size * 1000, _price(entry, f"_above_{size}k_tokens")) for size in above),
    ]


def _price(entry: Mapping[str, Any], suffix: str) -> Price | None:
    """One tier; None where input or output has none, or is 0: free trials and unknowns look alike."""
    read = entry.get(f"input_cost_per_token{suffix}")
    output = entry.get(f"output_cost_per_token{suffix}")
    if not read or not output:
        return None
    if entry.get("output_cost_per_reasoning_token", output) != output and not suffix:
        # Reasoning is part of what a provider reports as written: it has no class of its own.
        return None
    cached = entry.get(f"cache_read_input_token_cost{suffix}")
    # 0 says that there is no surcharge for writing, not that the tokens are not read.
    written = entry.get(f"cache_creation_input_token_cost{suffix}") or read
    return Price(read, read if cached is None else cached, written, output)


def _per_token(model: str, said: Mapping[str, float]) -> Tariff:
    for key, value in said.items():
        if not 0 <= value < math.inf:
            raise UsageError(
                f'[prices."{model}"]: {key} must be US dollars for a million tokens, it is {value}'
            )
    price = {key: said.get(key, said["input"]) / 1e6 for key in ("input", "cached", "cache_write")}
    return Tariff(((-1, Price(**price, output=said["output"] / 1e6)),))


def _count(reported: Mapping[str, Any], key: str) -> int:
    value = reported.get(key)
    return value if isinstance(value, int) and value > 0 else 0
