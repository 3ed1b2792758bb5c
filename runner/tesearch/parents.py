"""The suites that a prompt shows for a target, and what it asks to do with them.

TeSearch (arXiv 2610.15964), appendix on the breeding prompts: parents from weakest to
strongest, the last one annotated; "compression" when the target is below its size. Which
niches supply them is the design's (section 6).
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.tesearch.archive import Archive, Entry, strongest
from runner.tesearch.kernel import Mode


@dataclass(frozen=True, slots=True)
class Parents:
    """None, one or two suites, and the mode that follows from them."""

    mode: Mode
    entries: tuple[Entry, ...]
    """Weaker first, stronger last; of equal hypervolume the smaller is the stronger."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if len(self.entries) > 2 or (self.mode == "seed") == bool(self.entries):
            raise ValueError(f"{self.mode} does not go with {len(self.entries)} parents")

    @property
    def strongest(self) -> Entry | None:
        """The last one; None for a seed."""
        return self.entries[-1] if self.entries else None


def choose(archive: Archive, niche: int, target: int) -> Parents:
    """Parents for a call that aims at `target` tests, in `niche`. Raises IndexError.

    The best suite of the nearest occupied niche on each side. An occupied target niche is the
    nearest on both; its best suite then takes one place, and the other goes to the stronger
    of the two neighbours: a niche that bred only with itself would never learn what the
    others have found. Without any suite: seed.
    """
    own = strongest(archive.front(niche))
    below = _nearest(archive, range(niche - 1, -1, -1))
    above = _nearest(archive, range(niche + 1, archive.niches.count))
    neighbours = [entry for entry in (below, above) if entry is not None]
    if own is not None:
        neighbour = strongest(neighbours)
        neighbours = [own] if neighbour is None else [own, neighbour]
    last = strongest(neighbours)
    if last is None:
        return Parents("seed", ())
    mode: Mode = "compression" if target < last.size else "extension"
    return Parents(mode, (*(entry for entry in neighbours if entry is not last), last))


def _nearest(archive: Archive, niches: range) -> Entry | None:
    """The best suite of the first niche that holds any."""
    return next((best for niche in niches if (best := strongest(archive.front(niche)))), None)
