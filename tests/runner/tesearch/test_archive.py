"""Niches, fronts and what they are worth; which suite the search delivers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.tesearch.archive import Archive, Entry, Niches, hypervolume, strongest

COUNTS = st.integers(0, 8)
MEASURED = st.lists(st.tuples(st.integers(1, 60), COUNTS, COUNTS), max_size=25)


def entry(size: int, coverage: float, mutation: float, key: str = "") -> Entry:
    return Entry(size, coverage, mutation, key or f"{size}/{coverage}/{mutation}")


def archive(*entries: Entry, niches: Niches | None = None) -> Archive:
    made = Archive(niches or Niches())
    for each in entries:
        made.add(each)
    return made


@pytest.mark.parametrize(
    ("size", "coverage", "mutation"),
    [(0, 0.5, 0.5), (1, 1.01, 0.5), (1, -0.01, 0.5), (1, 0.5, 1.01), (1, 0.5, -0.01), (1, float("nan"), 0.5)],
)
def test_an_impossible_suite_is_refused(size: int, coverage: float, mutation: float) -> None:
    with pytest.raises(ValueError, match=r"must be between|at least 1"):
        Entry(size, coverage, mutation, "x")


def test_hypervolume_of_a_suite_is_the_product() -> None:
    assert entry(3, 0.5, 0.25).hv == 0.125
    assert entry(1, 0.0, 1.0).hv == 0.0
    assert entry(1, 1.0, 1.0).hv == 1.0


@pytest.mark.parametrize(
    ("size", "niche"),
    [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2), (10, 2), (11, 3), (16, 3), (17, 4), (40, 5), (41, 6), (999, 6)],
)
def test_a_size_is_in_its_niche(size: int, niche: int) -> None:
    niches = Niches()
    assert niches.index(size) == niche
    low, high = niches.interval(niche)
    assert low <= size <= (high or size)


def test_intervals_meet_without_gap() -> None:
    niches = Niches()
    assert niches.count == 7
    assert [niches.interval(niche) for niche in range(7)] == [
        (1, 3),
        (4, 6),
        (7, 10),
        (11, 16),
        (17, 25),
        (26, 40),
        (41, None),
    ]
    assert Niches(()).interval(0) == (1, None)


def test_centres_are_geometric_means() -> None:
    assert [Niches().centre(niche) for niche in range(7)] == [2, 5, 8, 13, 21, 32, 56]
    assert Niches(()).centre(0) == 16


@given(st.sets(st.integers(1, 90), max_size=8))
def test_a_centre_lies_in_its_niche(bounds: set[int]) -> None:
    niches = Niches(tuple(sorted(bounds)))
    assert [niches.index(niches.centre(niche)) for niche in range(niches.count)] == list(range(niches.count))


@pytest.mark.parametrize("bounds", [(3, 3), (6, 3), (0, 3), (-1,)])
def test_bounds_that_do_not_grow_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must grow"):
        Niches(bounds)


def test_what_is_in_no_niche_is_refused() -> None:
    with pytest.raises(ValueError, match="no niche"):
        Niches().index(0)
    for niche in (-1, 7):
        with pytest.raises(IndexError, match="no niche"):
            Niches().centre(niche)
        with pytest.raises(IndexError, match="no niche"):
            archive().front(niche)


@pytest.mark.parametrize(
    ("points", "area"),
    [
        ([], 0.0),
        ([(1.0, 1.0)], 1.0),
        ([(0.5, 0.5)], 0.25),
        ([(1.0, 0.0), (0.0, 1.0)], 0.0),
        ([(0.75, 0.25), (0.25, 0.75)], 0.3125),  # two of 0.1875 share 0.0625
        ([(0.75, 0.25), (0.5, 0.5), (0.25, 0.75)], 0.375),
        ([(0.5, 0.5), (0.5, 0.5)], 0.25),
        ([(0.5, 0.5), (0.25, 0.25)], 0.25),
        ([(0.5, 0.25), (0.5, 0.5)], 0.25),
    ],
)
def test_hypervolume_of_points(points: list[tuple[float, float]], area: float) -> None:
    assert hypervolume(points) == area
    assert hypervolume(reversed(points)) == area


@given(st.lists(st.tuples(COUNTS, COUNTS), max_size=12))
def test_hypervolume_is_the_area_of_the_union(points: list[tuple[int, int]]) -> None:
    cells = {(x, y) for width, height in points for x in range(width) for y in range(height)}
    assert hypervolume((width / 8, height / 8) for width, height in points) == len(cells) / 64


def test_gain_is_the_rise_of_value() -> None:
    made = Archive(Niches())
    assert made.value == 0
    assert made.add(entry(8, 0.75, 0.25)) == 0.1875
    assert made.add(entry(9, 0.25, 0.75)) == 0.125
    assert made.add(entry(9, 0.25, 0.5)) == 0
    assert made.value == 0.3125
    assert made.add(entry(2, 0.25, 0.5)) == 0.125  # another niche: nobody there beats it
    assert made.value == 0.4375


def test_one_that_is_beaten_leaves() -> None:
    weak, side, strong = entry(7, 0.5, 0.5), entry(8, 0.25, 0.75), entry(10, 0.5, 0.625)
    made = archive(weak, side, strong)
    assert made.front(2) == (side, strong)
    assert made.entries() == (side, strong)


def test_size_does_not_beat() -> None:
    small, strong = entry(7, 0.5, 0.5), entry(10, 0.75, 0.75)
    assert archive(small, strong).front(2) == (strong,)
    assert archive(strong, small).front(2) == (strong,)


def test_of_equal_quality_the_smaller_stays_then_the_earlier() -> None:
    large, small, later = entry(9, 0.5, 0.5), entry(8, 0.5, 0.5, "first"), entry(8, 0.5, 0.5, "later")
    made = archive(large)
    assert made.add(small) == 0
    assert made.front(2) == (small,)
    assert made.add(later) == 0
    assert made.front(2) == (small,)
    assert made.add(large) == 0
    assert made.front(2) == (small,)


def test_one_niche_is_one_global_archive() -> None:
    made = archive(entry(2, 0.25, 0.5), entry(50, 0.5, 0.5), niches=Niches(()))
    assert made.entries() == (entry(50, 0.5, 0.5),)
    assert made.value == 0.25


def test_best_is_the_strongest_then_the_smaller() -> None:
    assert archive().best() is None
    weak, large, small = entry(2, 0.5, 0.5), entry(30, 0.75, 0.5), entry(12, 0.5, 0.75)
    assert archive(weak, large, small).best() == small


def test_products_that_round_apart_are_equal() -> None:
    # 0.07 both, which floats do not see: the smaller must win from either place.
    one, other = (0.1, 0.7), (0.07, 1.0)
    assert entry(9, *one).hv != entry(9, *other).hv
    for large, small in ((one, other), (other, one)):
        assert strongest([entry(9, *large), entry(8, *small)]) == entry(8, *small)


def test_the_smallest_of_maximal_hypervolume_is_delivered() -> None:
    assert archive().deliver() is None
    strong, small, smaller = entry(30, 0.75, 0.5), entry(12, 0.5, 0.75), entry(2, 0.5, 0.5)
    assert archive(strong, small, smaller).deliver() == small


def test_one_that_left_may_be_delivered() -> None:
    # Nothing kills a mutant: all hypervolumes are 0, and the smallest has the least coverage.
    small, covering = entry(1, 0.25, 0.0), entry(3, 0.75, 0.0)
    made = archive(small, covering)
    assert made.entries() == (covering,)
    assert made.best() == covering
    assert made.deliver() == small


def test_of_equal_deliverables_the_earlier_is_delivered() -> None:
    first, second = entry(8, 0.5, 0.75, "first"), entry(8, 0.75, 0.5, "second")
    assert archive(first, second).deliver() == first
    assert archive(second, first).deliver() == second


@given(MEASURED, st.randoms(use_true_random=False))
def test_an_archive_of_any_order(measured: list[tuple[int, int, int]], rng: random.Random) -> None:
    entries = [entry(size, coverage / 8, mutation / 8) for size, coverage, mutation in measured]
    made = Archive(Niches())
    gains = [made.add(each) for each in entries]
    assert min(gains, default=0) >= 0
    assert sum(gains) == made.value  # eighths: floats are exact here
    for niche in range(made.niches.count):
        there = [each for each in entries if made.niches.index(each.size) == niche]
        undominated = [each for each in there if not any(other.beats(each) for other in there)]
        assert {(each.coverage, each.mutation) for each in made.front(niche)} == {
            (each.coverage, each.mutation) for each in undominated
        }
        assert len({(each.coverage, each.mutation) for each in made.front(niche)}) == len(made.front(niche))
    shuffled = archive(*rng.sample(entries, len(entries)))
    assert set(shuffled.entries()) == set(made.entries())
    if measured:
        top = max(coverage * mutation for _, coverage, mutation in measured)
        smallest = min(size for size, coverage, mutation in measured if coverage * mutation == top)
        delivered = made.deliver()
        assert delivered is not None
        assert (delivered.size, delivered.hv) == (smallest, top / 64)
