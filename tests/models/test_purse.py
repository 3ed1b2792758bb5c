from __future__ import annotations

import asyncio
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.nouns import Message, Price, Question, Sampling, Usage
from runner.prices import Tariff
from runner.purse import RESERVED_S, Purse, PursePort, upper_bound_usd
from sandboxes.errors import BudgetSpent
from tests.models.clocks import FakeClock, settle


def test_reserve_and_settle() -> None:
    async def run() -> None:
        purse: PursePort = Purse(10.0, spent_usd=4.0)
        assert await purse.left() == 6.0
        first = await purse.reserve(2.0)
        assert await purse.left() == 4.0
        await purse.settle(first, 0.5)
        assert await purse.left() == 5.5
        await purse.settle(first, 0.5)
        assert await purse.left() == 5.5, "a reservation is settled once"

    asyncio.run(run())


def test_unknown_cost_is_the_bound() -> None:
    async def run() -> None:
        purse = Purse(10.0)
        await purse.settle(await purse.reserve(2.0), None)
        assert await purse.left() == 8.0

    asyncio.run(run())


@pytest.mark.parametrize(("cap", "spent", "bound"), [(1.0, 0.0, 1.01), (1.0, 1.0, 0.01), (0.0, 0.0, 0.01)])
def test_what_cannot_fit_is_refused_at_once(cap: float, spent: float, bound: float) -> None:
    async def run() -> None:
        purse = Purse(cap, spent)
        with pytest.raises(BudgetSpent, match=rf"cap of \${cap:.2f} is reached.*budget.usd") as caught:
            await purse.reserve(bound)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    asyncio.run(run())


def test_exactly_what_is_left_fits() -> None:
    async def run() -> None:
        purse = Purse(1.0, 0.25)
        await purse.reserve(0.75)
        assert await purse.left() == 0.0

    asyncio.run(run())


def test_waits_for_the_reservations_of_others_in_order() -> None:
    async def run() -> None:
        purse = Purse(10.0)
        held = await purse.reserve(9.0)
        large = asyncio.create_task(purse.reserve(5.0))
        small = asyncio.create_task(purse.reserve(0.5))
        await settle()
        assert not large.done()
        assert not small.done(), "though it would fit: the large one would wait for ever"
        await purse.settle(held, 1.0)
        await settle()
        assert large.done()
        assert small.done()

    asyncio.run(run())


def test_one_that_waited_in_vain_is_refused_and_the_next_served() -> None:
    async def run() -> None:
        purse = Purse(10.0)
        held = await purse.reserve(9.0)
        large = asyncio.create_task(purse.reserve(5.0))
        small = asyncio.create_task(purse.reserve(1.0))
        await settle()
        await purse.settle(held, 9.0)
        await settle()
        with pytest.raises(BudgetSpent):
            await large
        assert await small

    asyncio.run(run())


def test_a_reservation_of_a_dead_process_is_taken_as_spent() -> None:
    async def run() -> None:
        clock = FakeClock()
        purse = Purse(10.0, clock=clock)
        dead = await purse.reserve(6.0)
        waiting = asyncio.create_task(purse.reserve(5.0))
        await clock.pass_(RESERVED_S + 1)
        with pytest.raises(BudgetSpent):
            await waiting
        assert await purse.left() == 4.0
        await purse.settle(dead, 1.0)
        assert await purse.left() == 9.0, "it was alive after all"

    asyncio.run(run())


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
def test_impossible_caps(cap: float) -> None:
    with pytest.raises(ValueError, match="is none"):
        Purse(cap)


@given(
    calls=st.lists(st.tuples(st.integers(1, 40), st.one_of(st.none(), st.integers(0, 40))), max_size=40),
    cap=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_the_cap_holds_and_nothing_hangs(calls: list[tuple[int, int | None]], cap: int, seed: int) -> None:
    async def run() -> None:
        purse = Purse(float(cap))
        dice = random.Random(seed)
        spent: list[int] = []

        async def call(bound: int, actual: int | None) -> None:
            try:
                reservation = await purse.reserve(float(bound))
            except BudgetSpent:
                return
            for _ in range(dice.randrange(5)):
                await asyncio.sleep(0)
            cost = None if actual is None else min(actual, bound)
            spent.append(bound if cost is None else cost)
            assert sum(spent) <= cap
            await purse.settle(reservation, cost)

        await asyncio.gather(*(call(bound, actual) for bound, actual in calls))
        assert await purse.left() == cap - sum(spent)

    asyncio.run(run())


# -- the bound of a call

CHEAP = Price(1e-6, 1e-7, 2e-6, 1e-5)
DEAR = Price(5e-6, 5e-7, 1e-5, 5e-5)


def question(text: str, max_tokens: int = 100) -> Question:
    return Question("generate", [Message("user", text)], Sampling(0.9, max_tokens))


def test_bound_is_by_bytes_at_the_dearest_way_to_read() -> None:
    tariff = Tariff(((-1, CHEAP),))
    assert upper_bound_usd(question("é" * 1000), tariff) == pytest.approx((2000 + 128) * 2e-6 + 100 * 1e-5)


def test_bound_knows_the_tier_that_a_long_prompt_may_reach() -> None:
    tariff = Tariff(((-1, CHEAP), (1000, DEAR)))
    assert upper_bound_usd(question("x" * 800), tariff) == pytest.approx(928 * 2e-6 + 100 * 1e-5)
    assert upper_bound_usd(question("x" * 900), tariff) == pytest.approx(1028 * 1e-5 + 100 * 5e-5)


@given(
    text=st.text(max_size=60),
    parts=st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(0, 400)),
    output=st.integers(0, 50),
    prices=st.tuples(*[st.floats(0, 1e-4)] * 4),
    above=st.integers(10, 300),
)
def test_no_call_costs_more_than_its_bound(
    text: str, parts: tuple[int, int, int], output: int, prices: tuple[float, ...], above: int
) -> None:
    input, cached, cache_write, dear_output = prices
    tariff = Tariff(((-1, CHEAP), (above, Price(input, cached, cache_write, dear_output))))
    asked = question(text, max_tokens=50)
    # As many tokens as bytes, and a template's, in any classes.
    total = len(text.encode()) + 128
    scale = total / max(sum(parts), 1)
    read, known, written = (int(part * min(scale, 1.0)) for part in parts)
    usage = Usage(read, known, written, output)
    assert tariff.cost(usage) <= upper_bound_usd(asked, tariff) * (1 + 1e-9)
