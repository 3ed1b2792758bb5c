from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

from runner.nouns import Usage
from runner.prices import Prices, Tariff, litellm_file, prompt_bound
from sandboxes.errors import PrerequisiteError, UsageError


def shown(tariff: Tariff | None) -> tuple[float, ...] | None:
    """Input, cached, cache write and output of a tariff of one tier, in US dollars for a million tokens."""
    if tariff is None:
        return None
    ((_, price),) = tariff.tiers
    return tuple(
        round(value * 1e6, 6) for value in (price.input, price.cached, price.cache_write, price.output)
    )


def listing(**entry: Any) -> Prices:
    """A table of one model, `p/m`."""
    return Prices({"p/m": {"litellm_provider": "p", **entry}}, {}, "test")


PRICED = {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}


def test_the_bundled_table_is_read_without_litellm() -> None:
    code = (
        "import sys; from runner.prices import Prices; prices = Prices.load({}); "
        "assert prices.of('openai/gpt-4o'); assert 'litellm' not in sys.modules; print(prices.version)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == Prices.load({}).version
    assert said.startswith("litellm 1.")


def test_every_listed_price_is_one() -> None:
    """Of the thousands of the real table: above nothing, tiers ascending, or not known."""
    table = json.loads(litellm_file("model_prices_and_context_window_backup.json"))
    prices = Prices.load({})
    chat = [name for name, entry in table.items() if entry.get("mode") == "chat"]
    known = [tariff for name in chat if (tariff := prices.of(name)) is not None]
    assert len(known) > 0.8 * len(chat)
    for tariff in known:
        if tariff.free:
            continue
        bounds = [above for above, _ in tariff.tiers]
        assert bounds == sorted(set(bounds))
        assert bounds[0] == -1
        for _, price in tariff.tiers:
            assert 0 <= price.cached <= 2 * price.input
            assert 0 < price.input < 1e-2
            assert 0 < price.output < 1e-2


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o"])
def test_a_known_model_with_and_without_its_provider(name: str) -> None:
    assert shown(Prices.load({}).of(name)) == (2.5, 1.25, 2.5, 10.0)


@pytest.mark.parametrize(
    "name",
    ["openai/served-by-me", "nobody/gpt-4o", "groq/gpt-4o", "mistral/claude-sonnet-4-5", "perplexity/sonar"],
)
def test_unknown_is_none(name: str) -> None:
    prices = Prices.load({})
    assert prices.of(name) is None
    assert prices.cost(name, Usage(10, 0, 0, 10)) is None


@pytest.mark.parametrize(
    "name", ["offline/scout", "local/smollm2", "scripted", "replay/run", "ollama/qwen3:8b"]
)
def test_ours_cost_nothing_whatever_they_report(name: str) -> None:
    prices = Prices.load({})
    assert prices.cost(name, Usage(10, 0, 0, 10)) == 0.0
    assert prices.cost(name, None) == 0.0


def test_unknown_usage_has_no_cost() -> None:
    assert Prices.load({}).cost("gpt-4o", None) is None


def test_a_sweeps_price_comes_first() -> None:
    prices = Prices.load(
        {"gpt-4o": {"input": 1.0, "output": 2.0}, "openai/mine": {"input": 0.0, "output": 0.0}}
    )
    assert shown(prices.of("gpt-4o")) == (1.0, 1.0, 1.0, 2.0)
    assert shown(prices.of("openai/gpt-4o")) == (2.5, 1.25, 2.5, 10.0), "another name, another price"
    assert prices.cost("openai/mine", None) == 0.0, "said to be free"


def test_a_sweeps_cache_prices() -> None:
    said = {"input": 3.0, "cached": 0.3, "cache_write": 3.75, "output": 15.0}
    cost = Prices.load({"m": said}).cost("m", Usage(input=1000, cached=20_000, cache_write=400, output=200))
    assert cost == pytest.approx((1000 * 3 + 20_000 * 0.3 + 400 * 3.75 + 200 * 15) / 1e6)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_impossible_prices(value: float) -> None:
    with pytest.raises(UsageError, match=r'\[prices\."m"\]: output'):
        Prices.load({"m": {"input": 1.0, "output": value}})


def test_the_version_says_what_was_changed() -> None:
    plain, one = Prices.load({}), Prices.load({"m": {"input": 1.0, "output": 2.0}})
    other = Prices.load({"m": {"input": 1.0, "output": 3.0}})
    assert one.version.startswith(plain.version)
    assert len({plain.version, one.version, other.version}) == 3
    assert one.version == Prices.load({"m": {"output": 2.0, "input": 1.0}}).version


# -- what the list says, and what it does not


def test_cache_prices_are_the_inputs_where_it_has_none() -> None:
    assert shown(listing(**PRICED).of("p/m")) == (1, 1, 1, 4)
    assert shown(listing(**PRICED, cache_read_input_token_cost=1e-7).of("p/m")) == (1, 0.1, 1, 4)
    assert shown(listing(**PRICED, cache_creation_input_token_cost=0.0).of("p/m")) == (1, 1, 1, 4)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"input_cost_per_token": 1e-6},
        {"input_cost_per_token": 0, "output_cost_per_token": 0},
        {"input_cost_per_token": 1e-6, "output_cost_per_token": 0},
        {**PRICED, "input_cost_per_request": 0.005},
        {**PRICED, "output_cost_per_reasoning_token": 9e-6},
    ],
    ids=[
        "nothing",
        "no output",
        "free or unknown",
        "output free or unknown",
        "by request",
        "reasoning apart",
    ],
)
def test_not_a_price(entry: dict[str, float]) -> None:
    assert listing(**entry).of("p/m") is None


def test_reasoning_at_the_price_of_output_is_no_obstacle() -> None:
    assert shown(listing(**PRICED, output_cost_per_reasoning_token=4e-6).of("p/m")) == (1, 1, 1, 4)


LONG = {
    **PRICED,
    "cache_read_input_token_cost": 1e-7,
    "input_cost_per_token_above_200k_tokens": 2e-6,
    "output_cost_per_token_above_200k_tokens": 6e-6,
    "cache_read_input_token_cost_above_200k_tokens": 2e-7,
    "input_cost_per_token_above_32k_tokens": 1.5e-6,
    "output_cost_per_token_above_32k_tokens": 5e-6,
    "input_cost_per_token_above_200k_tokens_batches": 9e-6,
}


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(32_000, 0, 0, 100), 32_000 * 1.0 + 100 * 4),
        (Usage(32_001, 0, 0, 100), 32_001 * 1.5 + 100 * 5),
        (Usage(1, 32_000, 0, 100), 1.5 + 32_000 * 1.5 + 100 * 5),
        (Usage(150_000, 50_000, 1, 100), 150_000 * 2 + 50_000 * 0.2 + 2 + 100 * 6),
        (Usage(0, 0, 0, 0), 0.0),
    ],
)
def test_long_prompts_cost_more_as_a_whole(usage: Usage, dollars: float) -> None:
    assert listing(**LONG).cost("p/m", usage) == pytest.approx(dollars / 1e6)


def test_tiers_given_as_ranges() -> None:
    tariff = listing(
        tiered_pricing=[
            {"range": [32000.0, 128000.0], "input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6},
            {"range": [0, 32000.0], "input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6},
        ]
    ).of("p/m")
    assert tariff is not None
    assert [(above, price.input) for above, price in tariff.tiers] == [(-1, 1e-6), (32_000, 2e-6)]


def test_nearest_names_are_priced_ones() -> None:
    assert Prices.load({}).nearest("gemini/gemini-2.5-flas")[0] == "gemini/gemini-2.5-flash"
    assert Prices.load({}).nearest("zzzz") == []


def test_it_crosses_to_workers() -> None:
    prices = Prices.load({"m": {"input": 1.0, "output": 2.0}})
    data = pickle.dumps(prices)
    assert pickle.loads(data).of("m") == prices.of("m")
    assert len(data) < 1_000_000


def test_a_missing_data_file_is_named() -> None:
    with pytest.raises(PrerequisiteError, match=r"litellm 1\..* has no file nothing\.json"):
        litellm_file("nothing.json")


def test_prompt_bound_of_lone_surrogates() -> None:
    from runner.nouns import Message

    assert prompt_bound([Message("user", "\ud800")]) == 3 + 2 * 64
