from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Awaitable, Callable

import pytest

from runner.limiter import (
    BACKOFF_MOST_S,
    BACKOFF_S,
    COOLDOWN_S,
    RAMP_S,
    Grant,
    Limiter,
    LimiterPort,
    Load,
    Pace,
)
from tests.models.clocks import FakeClock, settle

FOREVER = 1e9


class Stage:
    """A limiter, a clock, and clients that acquire and tell when they got their lease."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.clock = FakeClock()
        self.limiter = Limiter("openai/m", pace, clock=self.clock)
        self.granted: list[tuple[str, float]] = []
        """(client, when)."""
        self.tasks: dict[str, asyncio.Task[Grant]] = {}

    def come(self, name: str, tokens: int = 1, patience_s: float = FOREVER, lease_s: float = FOREVER) -> None:
        async def client() -> Grant:
            grant = await self.limiter.acquire(tokens, patience_s, lease_s)
            self.granted.append((name, self.clock.now() - 1000.0))
            return grant

        self.tasks[name] = asyncio.create_task(client())

    def lease(self, name: str) -> str:
        lease = self.tasks[name].result().lease
        assert lease is not None
        return lease

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.granted]

    async def fill(self, name: str, count: int) -> list[str]:
        """So many leases at once."""
        for number in range(count):
            self.come(f"{name}{number}")
        await settle()
        return [self.lease(f"{name}{number}") for number in range(count)]

    async def window(self) -> int:
        return (await self.limiter.load()).window


def staged(act: Callable[[Stage], Awaitable[None]], pace: Pace | None = None) -> None:
    async def run() -> None:
        stage = Stage(pace)
        try:
            await act(stage)
        finally:
            for task in stage.tasks.values():
                task.cancel()
            await asyncio.gather(*stage.tasks.values(), return_exceptions=True)

    asyncio.run(run())


def test_it_is_a_port() -> None:
    async def run() -> None:
        port: LimiterPort = Limiter("m")
        grant = await port.acquire(1, 1.0, 1.0)
        assert pickle.loads(pickle.dumps(grant)) == grant == Grant("1", 0.0)

    asyncio.run(run())


def test_window_then_turns_in_order_of_arrival() -> None:
    async def act(stage: Stage) -> None:
        for name in "abcde":
            stage.come(name)
        await settle()
        assert stage.names == ["a", "b"]
        assert await stage.limiter.load() == Load(window=2, under_way=2, waiting=3, held_s=0.0)
        await stage.limiter.release(stage.lease("b"), 1)
        stage.come("late")
        await settle()
        assert stage.names == ["a", "b", "c"]
        await stage.limiter.release(stage.lease("a"), None)
        await settle()
        assert stage.names == ["a", "b", "c", "d"]

    staged(act, Pace(start=2, most=2))


def test_a_large_call_is_not_overtaken_by_small_ones() -> None:
    async def act(stage: Stage) -> None:
        stage.come("first", tokens=100)
        stage.come("large", tokens=90)
        stage.come("small", tokens=1)
        await settle()
        assert stage.names == ["first"]
        await stage.clock.pass_(8.9)
        assert stage.names == ["first"]
        await stage.clock.pass_(0.3)
        assert stage.names == ["first", "large", "small"]

    staged(act, Pace(tokens_per_min=600))


def test_who_gives_up_waiting_leaves_the_line() -> None:
    async def act(stage: Stage) -> None:
        for name in "abcd":
            stage.come(name)
        await settle()
        stage.tasks["b"].cancel()
        stage.tasks["c"].cancel()
        await settle()
        await stage.limiter.release(stage.lease("a"), 1)
        await settle()
        assert stage.names == ["a", "d"]

    staged(act, Pace(start=1, most=1))


# -- rates


def test_request_rate() -> None:
    async def act(stage: Stage) -> None:
        for number in range(14):
            stage.come(str(number))
        await stage.clock.pass_(3.5)
        assert stage.granted[:10] == [(str(number), 0.0) for number in range(10)]
        assert [name for name, _ in stage.granted[10:]] == ["10", "11", "12"]
        assert [when for _, when in stage.granted[10:]] == pytest.approx([1.0, 2.0, 3.0], abs=0.01)

    staged(act, Pace(requests_per_min=60))


def test_tokens_are_put_right_when_the_answer_tells_them() -> None:
    async def act(stage: Stage) -> None:
        stage.come("a", tokens=100)
        await settle()
        stage.come("b", tokens=60)
        await settle()
        assert stage.names == ["a"]
        await stage.limiter.release(stage.lease("a"), 30)
        await settle()
        assert stage.names == ["a", "b"]
        await stage.limiter.release(stage.lease("b"), 110)
        stage.come("c", tokens=100)
        await stage.clock.pass_(13.9)
        assert stage.names == ["a", "b"], "40 too many were used: the bucket is at -40"
        await stage.clock.pass_(0.2)
        assert stage.names == ["a", "b", "c"]

    staged(act, Pace(tokens_per_min=600))


def test_a_call_larger_than_the_bucket_goes_when_it_is_full_and_all_pay_for_it() -> None:
    async def act(stage: Stage) -> None:
        stage.come("giant", tokens=250)
        stage.come("next", tokens=50)
        await stage.clock.pass_(19.9)
        assert stage.granted == [("giant", 0.0)]
        await stage.clock.pass_(0.2)
        assert stage.names == ["giant", "next"]

    staged(act, Pace(tokens_per_min=600))


# -- the window


def test_a_refusal_cuts_the_window_once_in_a_cooldown() -> None:
    async def act(stage: Stage) -> None:
        leases = await stage.fill("a", 20)
        for lease in leases[:10]:
            await stage.limiter.back_off(lease, 1, None, busy=True)
        assert await stage.window() == 16
        await stage.clock.pass_(COOLDOWN_S - 0.1)
        await stage.limiter.back_off(leases[10], 1, None, busy=True)
        assert await stage.window() == 16
        await stage.clock.pass_(0.2)
        await stage.limiter.back_off(leases[11], 1, None, busy=True)
        assert await stage.window() == 12

    staged(act)


def test_nobody_goes_while_more_are_under_way_than_the_cut_window_holds() -> None:
    async def act(stage: Stage) -> None:
        leases = await stage.fill("a", 10)
        await stage.limiter.back_off(leases.pop(), 1, None, busy=True)
        stage.come("next")
        await stage.clock.pass_(BACKOFF_S)
        assert "next" not in stage.names, "nine are under way, eight may be"
        await stage.limiter.release(leases.pop(), None)
        await settle()
        assert "next" not in stage.names
        await stage.limiter.release(leases.pop(), None)
        await settle()
        assert "next" in stage.names

    staged(act, Pace(start=10))


def test_the_window_never_closes() -> None:
    async def act(stage: Stage) -> None:
        for number in range(40):
            stage.come(str(number))
            await settle()
            await stage.limiter.back_off(stage.lease(str(number)), 1, None, busy=True)
            await stage.clock.pass_(COOLDOWN_S + 0.1)
        assert await stage.window() == 1

    staged(act)


def test_a_refused_call_keeps_its_place_while_it_waits() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        stage.come("next")
        wait = await stage.limiter.back_off(lease, 1, None, busy=True)
        await stage.clock.pass_(wait - 0.01)
        assert stage.names == ["a0"]
        await stage.clock.pass_(0.02)
        assert stage.names == ["a0", "next"]
        wait = await stage.limiter.back_off(stage.lease("next"), 9, None, busy=True)
        stage.come("last")
        assert wait > COOLDOWN_S
        await stage.clock.pass_(COOLDOWN_S + 0.01)
        assert stage.names == ["a0", "next", "last"], "but not for ever"

    staged(act, Pace(start=1, most=1))


def test_only_a_refusal_cuts() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        await stage.limiter.back_off(lease, 1, None, busy=False)
        assert await stage.window() == 20

    staged(act)


async def answered(stage: Stage, count: int, name: str) -> None:
    """So many successes, the window full at each."""
    width = await stage.window()
    held = await stage.fill(f"{name}-", width)
    for number in range(count):
        await stage.limiter.release(held.pop(), 1)
        stage.come(f"{name}+{number}")
        await settle()
        held.append(stage.lease(f"{name}+{number}"))
    for lease in held:
        await stage.limiter.release(lease, None)


@pytest.mark.parametrize(
    ("start", "most", "successes", "wider"),
    [
        (20, 100, 19, 20),
        (20, 100, 20, 21),
        (100, 200, 99, 100),
        (100, 200, 100, 105),
        (1, 10, 1, 2),
        (20, 20, 60, 20),
    ],
)
def test_a_window_of_successes_widens_it_by_a_twentieth(
    start: int, most: int, successes: int, wider: int
) -> None:
    async def act(stage: Stage) -> None:
        await answered(stage, successes, "a")
        assert await stage.window() == wider

    staged(act, Pace(start=start, most=most))


def test_successes_of_a_window_that_is_not_full_prove_nothing() -> None:
    async def act(stage: Stage) -> None:
        for number in range(100):
            (lease,) = await stage.fill(f"{number}-", 1)
            await stage.limiter.release(lease, 1)
        assert await stage.window() == 20

    staged(act)


def test_failures_that_teach_nothing_do_not_widen_it() -> None:
    async def act(stage: Stage) -> None:
        for number in range(60):
            leases = await stage.fill(f"{number}-", 20)
            for lease in leases:
                await stage.limiter.release(lease, None)
        assert await stage.window() == 20

    staged(act)


def test_it_rests_after_a_cut() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("x", 1)
        await stage.limiter.back_off(lease, 1, None, busy=True)
        await stage.clock.pass_(BACKOFF_S)
        await answered(stage, 40, "in")
        assert await stage.window() == 16
        await stage.clock.pass_(COOLDOWN_S)
        await answered(stage, 16, "after")
        assert await stage.window() == 17

    staged(act)


# -- Retry-After


def test_retry_after_holds_for_everybody() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        assert await stage.limiter.back_off(lease, 3, 30.0, busy=True) == 0.0
        for name in "bcd":
            stage.come(name)
        await stage.clock.pass_(29.9)
        assert stage.names == ["a0"]
        assert (await stage.limiter.load()).held_s == pytest.approx(0.1)
        await stage.clock.pass_(0.2 + RAMP_S)
        assert stage.names == ["a0", "b", "c", "d"]
        assert all(30.0 <= when <= 30.0 + RAMP_S for _, when in stage.granted[1:])

    staged(act)


def test_those_who_waited_for_it_do_not_start_as_one() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        await stage.limiter.back_off(lease, 1, 10.0, busy=False)
        for number in range(30):
            stage.come(str(number))
        await stage.clock.pass_(10.0 + RAMP_S + 1.0)
        times = [when for _, when in stage.granted[1:]]
        assert len(times) == 20
        assert len(set(times)) == 20

    staged(act)


def test_the_longest_hold_counts() -> None:
    async def act(stage: Stage) -> None:
        first, second = await stage.fill("a", 2)
        await stage.limiter.back_off(first, 1, 60.0, busy=True)
        await stage.limiter.back_off(second, 1, 5.0, busy=True)
        stage.come("b")
        await stage.clock.pass_(59.0)
        assert "b" not in stage.names
        await stage.clock.pass_(2.0)
        assert "b" in stage.names

    staged(act)


def test_a_hold_longer_than_patience_is_told_at_once() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        await stage.limiter.back_off(lease, 1, 7200.0, busy=True)
        stage.come("patient", patience_s=10_000.0)
        stage.come("impatient", patience_s=60.0)
        await settle()
        assert stage.names == ["a0"], "in order of arrival, even to be refused"
        stage.tasks["patient"].cancel()
        await settle()
        assert stage.tasks["impatient"].result() == Grant(None, 7200.0)

    staged(act)


def test_a_hold_that_comes_while_one_waits_is_told_too() -> None:
    async def act(stage: Stage) -> None:
        (lease,) = await stage.fill("a", 1)
        stage.come("b", patience_s=60.0)
        await settle()
        await stage.limiter.back_off(lease, 1, 7200.0, busy=True)
        await settle()
        assert stage.tasks["b"].result().lease is None

    staged(act, Pace(start=1))


# -- back-off


def test_back_off_is_full_jitter_up_to_half_an_hour() -> None:
    async def run() -> None:
        limiter = Limiter("m", clock=FakeClock())
        for tries in range(1, 14):
            most = min(BACKOFF_MOST_S, BACKOFF_S * 2 ** (tries - 1))
            waits = [await limiter.back_off("none", tries, None, busy=False) for _ in range(300)]
            assert all(0 <= wait <= most for wait in waits)
            assert min(waits) < 0.05 * most
            assert max(waits) > 0.95 * most
            assert sum(waits) / 300 == pytest.approx(most / 2, rel=0.15)

    asyncio.run(run())


def test_the_dice_are_the_models() -> None:
    async def waits(model: str) -> list[float]:
        limiter = Limiter(model, clock=FakeClock())
        return [await limiter.back_off("none", 5, None, busy=False) for _ in range(5)]

    assert asyncio.run(waits("a")) == asyncio.run(waits("a")) != asyncio.run(waits("b"))


# -- leases


def test_a_dead_client_does_not_keep_its_lease() -> None:
    async def act(stage: Stage) -> None:
        stage.come("dead", lease_s=120.0)
        stage.come("next")
        await stage.clock.pass_(119.9)
        assert stage.names == ["dead"]
        await stage.clock.pass_(0.2)
        assert stage.names == ["dead", "next"]
        await stage.limiter.release(stage.lease("dead"), 1)
        stage.come("third")
        await settle()
        assert stage.names == ["dead", "next"], "giving back what had ended frees nothing"

    staged(act, Pace(start=1, most=1))


def test_unknown_leases_are_ignored() -> None:
    async def act(stage: Stage) -> None:
        await stage.limiter.release("7", 100)
        await stage.limiter.back_off("7", 1, None, busy=True)
        assert await stage.limiter.load() == Load(20, 0, 0, 0.0)

    staged(act)


@pytest.mark.parametrize(
    "settings",
    [{"requests_per_min": 0}, {"tokens_per_min": -1}, {"start": 0}, {"start": 5, "most": 4}],
)
def test_impossible_paces(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be above 0|starts between"):
        Pace(**settings)


def test_a_provider_that_bears_eight_at_once() -> None:
    """All of 300 calls are answered, and the window settles around what the provider bears."""

    async def act(stage: Stage) -> None:
        dice = random.Random(7)
        done: list[int] = []
        busy = 0
        refused = 0

        async def client(number: int) -> None:
            nonlocal busy, refused
            for tries in range(1, 60):
                grant = await stage.limiter.acquire(1, FOREVER, 300.0)
                assert grant.lease is not None
                assert (await stage.limiter.load()).under_way <= 40
                busy += 1
                overload = busy > 8
                await stage.clock.sleep(0.1 if overload else dice.uniform(1.0, 5.0))
                busy -= 1
                if not overload:
                    await stage.limiter.release(grant.lease, 1)
                    done.append(number)
                    return
                refused += 1
                wait = await stage.limiter.back_off(grant.lease, tries, None, busy=True)
                await stage.clock.sleep(max(wait, 0.01))

        clients = [asyncio.create_task(client(number)) for number in range(300)]
        await stage.clock.pass_(1200.0)
        await asyncio.gather(*clients)
        assert sorted(done) == list(range(300))
        assert 4 <= await stage.window() <= 12
        assert refused < 300

    staged(act, Pace(start=20, most=40))
