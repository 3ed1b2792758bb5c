"""The landing kernel: hand-worked values, and that it lands closer on models of known bias and spread."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tesearch.archive import Niches
from runner.tesearch.kernel import LEAST_SPREAD, Kernel, LandingKernel, Mode, Uncorrected

NICHES = Niches()
CALLS = 1000
MODELS = [(-0.6, 0.15), (-0.3, 0.3), (0.25, 0.1), (0.5, 0.4), (0.9, 0.2)]
"""(mean, spread) of the log of landed / requested."""


class Fit(NamedTuple):
    """How close a run of calls came to its targets."""

    error: float
    """Mean |ln(landed / target)|."""
    hits: float
    """Share of calls that landed in the target's niche."""


def run(
    kernel: Kernel, bias: Callable[[int], float], sigma: float, seed: int, mode: Mode = "seed", first: int = 0
) -> Fit:
    """Calls of a simulated model; its fit from call `first` on."""
    rng = random.Random(seed)
    errors, hits = [], []
    for call in range(CALLS):
        niche = rng.randrange(NICHES.count)
        target = NICHES.centre(niche)
        requested = kernel.request(mode, target)
        landed = max(1, round(requested * math.exp(rng.gauss(bias(call), sigma))))
        kernel.observe(mode, requested, landed)
        errors.append(abs(math.log(landed / target)))
        hits.append(NICHES.index(landed) == niche)
    return Fit(fmean(errors[first:]), fmean(hits[first:]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("mu", "sigma"), MODELS)
def test_corrected_requests_land_closer(mu: float, sigma: float, seed: int) -> None:
    corrected = run(LandingKernel(), lambda _: mu, sigma, seed)
    uncorrected = run(Uncorrected(), lambda _: mu, sigma, seed)
    assert corrected.error < 0.85 * uncorrected.error
    assert corrected.hits > uncorrected.hits + 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sigma", [0.1, 0.3])
def test_a_model_without_bias_is_left_alone(sigma: float, seed: int) -> None:
    corrected = run(LandingKernel(), lambda _: 0.0, sigma, seed)
    uncorrected = run(Uncorrected(), lambda _: 0.0, sigma, seed)
    assert corrected.error < 1.1 * uncorrected.error
    assert corrected.hits > uncorrected.hits - 0.04


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "after"), [(-0.5, 0.4), (0.6, -0.3), (0.0, 0.7)])
def test_a_drift_is_followed(before: float, after: float, seed: int) -> None:
    def drifting(call: int) -> float:
        return before if call < CALLS // 2 else after

    second = CALLS // 2
    corrected = run(LandingKernel(), drifting, 0.2, seed, first=second)
    uncorrected = run(Uncorrected(), drifting, 0.2, seed, first=second)
    assert corrected.error < 0.8 * uncorrected.error
    assert corrected.hits > uncorrected.hits + 0.05


@pytest.mark.parametrize("seed", range(3))
def test_a_drift_is_followed_within_some_calls(seed: int) -> None:
    kernel, rng = LandingKernel(), random.Random(seed)
    for mu, calls in ((-0.5, 500), (0.5, 25)):
        for _ in range(calls):
            kernel.observe("seed", 1000, round(1000 * math.exp(rng.gauss(mu, 0.2))))
    assert kernel.mean("seed") == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("sigma", [0.1, 0.4])
def test_a_steady_model_is_known_well(sigma: float) -> None:
    kernel, rng = LandingKernel(), random.Random(1)
    off, spreads = [], []
    for call in range(CALLS):
        kernel.observe("seed", 10_000, round(10_000 * math.exp(rng.gauss(-0.3, sigma))))
        if call >= 100:
            off.append((kernel.mean("seed") + 0.3) ** 2)
            spreads.append(kernel.spread("seed"))
    # The fast rate alone would be off by 0.42 sigma.
    assert math.sqrt(fmean(off)) < 0.3 * sigma
    assert fmean(spreads) == pytest.approx(sigma, rel=0.15)


def test_within_a_search_the_bias_is_found() -> None:
    kernel = LandingKernel()
    for _ in range(6):
        kernel.observe("extension", 20, 12)
    assert kernel.mean("extension") == pytest.approx(math.log(0.6), rel=0.15)
    assert kernel.request("extension", 21) in (33, 34)


def test_the_first_calls_by_hand() -> None:
    kernel = LandingKernel(prior_spread=0.7)
    assert kernel.mean("seed") == 0
    assert kernel.spread("seed") == pytest.approx(0.7)
    assert kernel.request("seed", 8) == 8
    kernel.observe("seed", 10, 5)
    # z = -ln 2; half of it, 0 being the other call; squares 0.95 * 2 * 0.49 + 0.480453 over 2.9.
    assert kernel.mean("seed") == pytest.approx(-0.3465736)
    assert kernel.spread("seed") == pytest.approx(0.6976448)
    assert kernel.request("seed", 8) == 11  # 8 * sqrt 2 = 11.3
    kernel.observe("seed", 10, 10)
    # Of 0, -ln 2 and 0 for the two slow rates and for the fast, whose 0.3 is still below 1 / 3.
    assert kernel.mean("seed") == pytest.approx(-0.2310491)
    kernel.observe("seed", 10, 10)
    # The two slow have -ln 2 / 4, the fast 0.7 of -ln 2 / 3; the weights are equal still.
    assert kernel.mean("seed") == pytest.approx(-0.6931472 * (0.25 + 0.25 + 0.7 / 3) / 3)


def test_modes_are_learnt_apart() -> None:
    kernel = LandingKernel()
    kernel.observe("compression", 10, 20)
    assert kernel.mean("compression") > 0
    assert kernel.mean("seed") == kernel.mean("extension") == 0
    assert kernel.spread("seed") == kernel.spread("extension") == pytest.approx(0.7)


def test_a_request_is_at_least_one() -> None:
    kernel = LandingKernel()
    for _ in range(20):
        kernel.observe("seed", 10, 40)
    assert kernel.request("seed", 1) == 1


def test_an_answer_without_tests_teaches_nothing() -> None:
    kernel = LandingKernel()
    kernel.observe("seed", 10, 0)
    assert kernel.mean("seed") == 0
    assert kernel.spread("seed") == pytest.approx(0.7)


def test_cut_off_answers_do_not_make_requests_run_away() -> None:
    kernel = LandingKernel()
    for _ in range(200):
        kernel.observe("extension", kernel.request("extension", 56), 5)
    assert kernel.request("extension", 56) <= 281
    for _ in range(200):
        kernel.observe("extension", 1, 10_000)
    assert kernel.request("extension", 56) >= 11


def test_landing_by_hand() -> None:
    kernel = LandingKernel(prior_spread=0.7)
    # Up to 10.5: Phi(ln 1.05 / 0.7) = Phi(0.0697002)
    assert kernel.landing("seed", 10, Niches((10,))) == pytest.approx((0.5277838, 0.4722162), abs=1e-6)
    # Phi(-1) at half of the request, where ln 2 is the spread.
    even = LandingKernel(prior_spread=math.log(2))
    assert even.landing("seed", 9, Niches((4, 17)))[0] == pytest.approx(0.1586553, abs=1e-6)
    assert kernel.landing("seed", 10, Niches(())) == (1.0,)


def test_landing_counts_the_bias_in() -> None:
    kernel = LandingKernel()
    for _ in range(400):
        kernel.observe("seed", 20, 10)
    assert kernel.spread("seed") == LEAST_SPREAD
    assert kernel.landing("seed", 40, NICHES)[4] == pytest.approx(1, abs=1e-3)
    assert kernel.landing("compression", 40, NICHES)[4] < 0.5


@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90)), max_size=20),
    st.integers(1, 500),
    st.sets(st.integers(1, 90), max_size=8),
)
def test_landing_is_a_distribution(calls: list[tuple[int, int]], requested: int, bounds: set[int]) -> None:
    for kernel in (LandingKernel(), Uncorrected()):
        for call in calls:
            kernel.observe("extension", *call)
        landing = kernel.landing("extension", requested, Niches(tuple(sorted(bounds))))
        assert len(landing) == len(bounds) + 1
        assert min(landing) >= 0
        assert sum(landing) == pytest.approx(1)


@pytest.mark.parametrize("sigma", [0.15, 0.4])
def test_landing_predicts_where_calls_land(sigma: float) -> None:
    kernel, rng = LandingKernel(), random.Random(3)
    predicted, landings = [0.0] * NICHES.count, [0] * NICHES.count
    for call in range(CALLS):
        landed = max(1, round(18 * math.exp(rng.gauss(-0.2, sigma))))
        if call >= 100:
            predicted = [p + q for p, q in zip(predicted, kernel.landing("seed", 18, NICHES), strict=True)]
            landings[NICHES.index(landed)] += 1
        kernel.observe("seed", 18, landed)
    assert predicted == pytest.approx(landings, abs=45)


def test_uncorrected_asks_for_the_target_and_is_certain() -> None:
    kernel = Uncorrected()
    kernel.observe("seed", 10, 5)
    assert kernel.request("seed", 21) == 21
    assert kernel.landing("seed", 21, NICHES) == (0, 0, 0, 0, 1, 0, 0)


@pytest.mark.parametrize(("requested", "landed"), [(0, 5), (5, -1)])
@pytest.mark.parametrize("kernel", [LandingKernel(), Uncorrected()], ids=["corrected", "uncorrected"])
def test_impossible_calls_are_refused(kernel: Kernel, requested: int, landed: int) -> None:
    with pytest.raises(ValueError, match="no call asks"):
        kernel.observe("seed", requested, landed)


@pytest.mark.parametrize("rates", [(), (0.0,), (0.1, 1.1)])
def test_impossible_rates_are_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="learning rates"):
        LandingKernel(rates)


def test_a_prior_without_spread_is_refused() -> None:
    with pytest.raises(ValueError, match="prior_spread"):
        LandingKernel(prior_spread=0.0)
