"""Which suites a prompt shows, in which order, and what it asks for."""

from __future__ import annotations

import pytest

from runner.tesearch.archive import Archive, Entry, Niches
from runner.tesearch.kernel import Mode
from runner.tesearch.parents import Parents, choose


def suite(size: int, quality: float) -> Entry:
    return Entry(size, quality, 1.0, f"suite of {size}")


def sizes(*suites: Entry, niche: int, niches: Niches | None = None) -> list[int]:
    archive = Archive(niches or Niches())
    for each in suites:
        archive.add(each)
    return [entry.size for entry in choose(archive, niche, archive.niches.centre(niche)).entries]


def test_an_empty_archive_seeds() -> None:
    chosen = choose(Archive(Niches()), 3, 13)
    assert chosen == Parents("seed", ())
    assert chosen.strongest is None


def test_both_sides_of_an_empty_niche_give_one() -> None:
    assert sizes(suite(5, 0.5), suite(30, 0.75), niche=3) == [5, 30]


def test_the_stronger_is_last() -> None:
    assert sizes(suite(5, 0.75), suite(30, 0.5), niche=3) == [30, 5]


def test_of_equal_ones_the_smaller_is_last() -> None:
    assert sizes(suite(5, 0.5), suite(30, 0.5), niche=3) == [30, 5]


def test_the_nearest_occupied_niches_give_them() -> None:
    far = suite(2, 1.0), suite(50, 1.0)
    assert sizes(*far, suite(8, 0.25), suite(20, 0.5), niche=3) == [8, 20]


@pytest.mark.parametrize(("niche", "other"), [(0, 5), (6, 30)])
def test_one_side_alone_gives_one(niche: int, other: int) -> None:
    assert sizes(suite(5, 0.75), suite(30, 0.75), niche=niche) == [other]


def test_the_best_of_a_niche_is_taken() -> None:
    front = Entry(7, 0.25, 1.0, "weak"), Entry(8, 0.75, 0.75, "best"), Entry(9, 1.0, 0.25, "weak")
    assert sizes(*front, niche=3) == [8]


def test_an_occupied_niche_gives_its_own_and_the_stronger_neighbour() -> None:
    own = suite(12, 0.5)
    assert sizes(own, suite(8, 0.25), suite(50, 0.75), niche=3) == [12, 50]
    assert sizes(own, suite(8, 0.375), suite(20, 0.25), niche=3) == [8, 12]
    assert sizes(own, suite(8, 0.25), niche=3) == [8, 12]
    assert sizes(own, niche=3) == [12]


def test_one_global_archive_gives_its_best() -> None:
    assert sizes(suite(12, 0.5), suite(50, 0.75), niche=0, niches=Niches(())) == [50]


@pytest.mark.parametrize(("target", "mode"), [(11, "compression"), (12, "extension"), (13, "extension")])
def test_the_mode_compares_the_target_with_the_strongest(target: int, mode: Mode) -> None:
    archive = Archive(Niches())
    archive.add(suite(30, 0.5))
    archive.add(suite(12, 0.75))
    chosen = choose(archive, 4, target)
    assert [entry.size for entry in chosen.entries] == [30, 12]
    assert chosen.mode == mode
    assert chosen.strongest == suite(12, 0.75)


def test_an_unknown_niche_is_refused() -> None:
    with pytest.raises(IndexError, match="no niche"):
        choose(Archive(Niches()), 7, 60)


@pytest.mark.parametrize(
    ("mode", "entries"),
    [
        ("seed", (suite(3, 0.5),)),
        ("extension", ()),
        ("compression", (suite(3, 0.5), suite(4, 0.5), suite(5, 0.5))),
    ],
)
def test_impossible_parents_are_refused(mode: Mode, entries: tuple[Entry, ...]) -> None:
    with pytest.raises(ValueError, match="does not go with"):
        Parents(mode, entries)
