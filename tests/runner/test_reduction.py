"""Reduced suites keep what the whole suite does, with no test too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.reduction import Covers, reduce


def covers(lines: str = "", kills: str = "", duration_s: float = 0.0) -> Covers:
    return Covers(frozenset(map(int, lines.split())), frozenset(kills.split()), duration_s)


SUITES = st.lists(
    st.builds(
        Covers,
        st.frozensets(st.integers(1, 9), max_size=5),
        st.frozensets(st.sampled_from("abcdef"), max_size=4),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    max_size=9,
).map(lambda tests: {f"test_{number}": test for number, test in enumerate(tests)})


@pytest.mark.parametrize(
    ("tests", "kept"),
    [
        ({}, []),
        ({"a": covers()}, []),
        ({"a": covers("1 2"), "b": covers("1")}, ["a"]),
        ({"a": covers("1"), "b": covers("1 2")}, ["b"]),
        # Kills count: b executes no line that a does not.
        ({"a": covers("1 2"), "b": covers("1", "m")}, ["a", "b"]),
        # A line and a mutant weigh the same: c's two beat b's one, and a line that is alone is kept.
        ({"a": covers("1"), "b": covers("2"), "c": covers("2", "m")}, ["a", "c"]),
        # The order is the suite's, whatever was taken first.
        ({"a": covers("1"), "b": covers("2 3 4")}, ["a", "b"]),
        # Line 1 and mutant "1" are two items.
        ({"a": covers("1"), "b": covers("", "1")}, ["a", "b"]),
    ],
)
def test_by_hand(tests: dict[str, Covers], kept: list[str]) -> None:
    assert reduce(tests) == kept


def test_of_equal_ones_the_faster_is_taken() -> None:
    assert reduce({"slow": covers("1", "m", 2.0), "fast": covers("1", "m", 1.0)}) == ["fast"]
    assert reduce({"fast": covers("1", "m", 1.0), "slow": covers("1", "m", 2.0)}) == ["fast"]


def test_of_equally_fast_ones_the_earlier_is_taken() -> None:
    assert reduce({"z": covers("1"), "a": covers("1")}) == ["z"]


def test_what_later_ones_make_redundant_is_dropped() -> None:
    # The greedy first choice, of four lines, is covered by the two that its rest needs anyway.
    tests = {"greedy": covers("2 3 4 5"), "left": covers("1 2 3"), "right": covers("4 5 6")}
    assert reduce(tests) == ["left", "right"]


def test_what_is_dropped_no_longer_makes_others_redundant() -> None:
    # All four are taken. Each of a and b could go for the other's line 7, but not both.
    tests = {"a": covers("1 4 7"), "b": covers("3 6 7"), "c": covers("1 5 6"), "d": covers("2 3 4")}
    assert reduce(tests) == ["b", "c", "d"]


def test_a_new_item_counts_not_one_that_is_had() -> None:
    tests = {"a": covers("1 2 3 4"), "b": covers("1 2 3 5"), "c": covers("5 6")}
    assert reduce(tests) == ["a", "c"]


@given(SUITES)
def test_nothing_is_lost_and_nothing_is_redundant(tests: dict[str, Covers]) -> None:
    kept = reduce(tests)
    assert kept == [name for name in tests if name in kept]
    everything = _union(tests, list(tests))
    assert _union(tests, kept) == everything
    for name in kept:
        assert _union(tests, [other for other in kept if other != name]) != everything


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="duration_s"):
        covers("1", "", -1.0)


def _union(tests: dict[str, Covers], names: list[str]) -> tuple[set[int], set[str]]:
    return (
        {line for name in names for line in tests[name].lines},
        {mutant for name in names for mutant in tests[name].kills},
    )
