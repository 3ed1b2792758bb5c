"""Where the next call goes: hand-worked values, and each term of the formula on its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from runner.tesearch.archive import Niches
from runner.tesearch.arms import OPTIMISM, Arms, Choice
from runner.tesearch.kernel import LandingKernel

LANDINGS = ((0.75, 0.25), (0.1, 0.9))


def certain(count: int) -> list[list[float]]:
    return [[float(arm == niche) for niche in range(count)] for arm in range(count)]


def arms(*observed: tuple[int, int | None, float, float], count: int = 2, **knobs: Any) -> Arms:
    made = Arms(count, **({"budget": 10, "annealing": 0.5, "exploration": 0.3} | knobs))
    for each in observed:
        made.observe(*each)
    return made


def scores(made: Arms, landings: Sequence[Sequence[float]] = LANDINGS) -> tuple[float, ...]:
    return made.choose(landings, random.Random(0)).scores


def test_the_value_of_an_arm_is_the_worth_of_where_it_lands() -> None:
    made = arms((0, 0, 0.4, 0.5), (1, 1, 0.1, 0.3))
    assert not made.secured
    # t = 3, n = 1 and 1: 0.3 * sqrt(ln 3 / 2) = 0.2223456 on top of
    # 0.75 * 0.4 + 0.25 * 0.1 and 0.1 * 0.4 + 0.9 * 0.1
    assert scores(made) == pytest.approx((0.5473456, 0.3523456), abs=1e-7)
    assert made.choose(LANDINGS, random.Random(0)).arm == 0


def test_the_value_of_an_arm_once_size_counts() -> None:
    made = arms((0, 0, 0.4, 0.5), (1, 1, 0.1, 0.3), (1, 1, 0.1, 0.49))
    # t = 4, w_t = 0.5 * 4 / 10 = 0.2, small = 1 and 0, n = 1 and 2
    assert made.size_weight == pytest.approx(0.2)
    assert scores(made) == pytest.approx((0.7247664, 0.3539334), abs=1e-7)


def test_gain_is_a_mean_by_the_niche_landed_in() -> None:
    made = arms((0, 1, 0.4, 0.5), (0, 1, 0.1, 0.5))
    assert made.gain(1) == 0.25
    assert made.gain(0) == OPTIMISM


def test_a_call_without_a_suite_counts_against_its_target() -> None:
    made = arms((1, None, 0.0, 0.0))
    assert (made.gain(0), made.gain(1)) == (OPTIMISM, 0.0)
    assert made.call == 2
    assert made.choose(certain(2), random.Random(0)).arm == 0


def test_pulls_count_by_target_and_lower_the_bonus() -> None:
    # Everything lands in niche 1; arm 0 was pulled twice, arm 1 never: sqrt(ln 3 / 3) and sqrt(ln 3).
    made = arms((0, 1, 0.0, 0.0), (0, 1, 0.0, 0.0), exploration=1.0)
    assert scores(made, ((0.0, 1.0), (0.0, 1.0))) == pytest.approx((0.6051479, 1.0481470), abs=1e-7)


def test_smallness_falls_evenly() -> None:
    assert [arms(count=5).small(niche) for niche in range(5)] == [1, 0.75, 0.5, 0.25, 0]
    assert arms(count=1).small(0) == 1


@pytest.mark.parametrize(
    ("qualities", "secured"),
    [
        ([], False),
        ([0.8], False),  # the best is alone within epsilon of itself
        ([0.8, 0.7], False),
        ([0.8, 0.78], True),
        ([0.05, 0.03], True),  # as floats, 0.05 - 0.02 is above 0.03
        ([0.8, 0.7799], False),
        ([0.78, 0.8], True),
        ([0.8, 0.8], True),
        ([0.8, 0.79, 0.9], False),  # a leap unsettles it
        ([0.8, 0.79, 0.9, 0.89], True),
        ([0.0, 0.0], False),  # nothing is no quality
    ],
)
def test_quality_is_secured_by_a_second_suite(qualities: list[float], secured: bool) -> None:
    made = arms(*((0, 0, 0.1, hv) for hv in qualities), epsilon=0.02)
    assert made.secured is secured
    assert (made.size_weight > 0) is secured


def test_size_counts_more_with_every_call() -> None:
    made = arms((0, 0, 0.1, 0.5), (0, 0, 0.1, 0.5))
    weights = []
    for _ in range(8):
        weights.append(made.size_weight)
        made.observe(0, 0, 0.0, 0.5)
    assert weights == pytest.approx([0.5 * t / 10 for t in range(3, 11)])


def test_without_annealing_size_never_counts() -> None:
    observed = [(0, 0, 0.0, 0.5), (1, 1, 0.1, 0.5)]
    assert arms(*observed).choose(certain(2), random.Random(0)).arm == 0
    made = arms(*observed, annealing=0)
    assert made.secured
    assert made.size_weight == 0
    assert made.choose(certain(2), random.Random(0)).arm == 1


def test_equal_arms_are_drawn_by_the_rng() -> None:
    # Before any call all arms are equal but for what rounding does to sums of probabilities.
    kernel, niches = LandingKernel(), Niches()
    landings = [kernel.landing("seed", niches.centre(niche), niches)[::-1] for niche in range(niches.count)]
    assert len({sum(landing) for landing in landings}) > 1
    made = arms(count=7)
    assert {made.choose(landings, random.Random(seed)).arm for seed in range(200)} == set(range(7))
    assert made.choose(landings, random.Random(5)) == made.choose(landings, random.Random(5))


def test_a_better_arm_leaves_nothing_to_the_rng() -> None:
    made = arms((0, 0, 0.4, 0.5), (1, 1, 0.1, 0.3))
    assert {made.choose(certain(2), random.Random(seed)).arm for seed in range(50)} == {0}


def test_by_lot_every_niche_is_drawn() -> None:
    made = arms((0, 0, 0.9, 0.5), (1, 1, 0.0, 0.3), policy="random")
    drawn = [made.choose(certain(2), random.Random(seed)) for seed in range(200)]
    assert all(choice == Choice(choice.arm, ()) for choice in drawn)
    assert 60 < sum(choice.arm for choice in drawn) < 140


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ({"count": 0}, "count"),
        ({"budget": 0}, "budget"),
        ({"annealing": -0.1}, "annealing"),
        ({"exploration": -0.1}, "exploration"),
        ({"epsilon": float("nan")}, "epsilon"),
    ],
)
def test_impossible_knobs_are_refused(knobs: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        Arms(**({"count": 2, "budget": 10} | knobs))


@pytest.mark.parametrize("landings", [((1.0, 0.0),), ((1.0,), (0.0, 1.0)), ((1.0, 0.0, 0.0), (0.0, 1.0))])
def test_landings_of_other_niches_are_refused(landings: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError, match="2 arms"):
        arms().choose(landings, random.Random(0))


@pytest.mark.parametrize(("arm", "landed"), [(2, 0), (-1, 0), (0, 2), (0, -1)])
def test_calls_of_other_niches_are_refused(arm: int, landed: int) -> None:
    with pytest.raises(IndexError, match="among 2"):
        arms().observe(arm, landed, 0.1, 0.5)
