"""What a rewrite is, and how edits of a text are applied.

Edit      a stretch of a source text and what takes its place
Change    the edits of one refactoring, found but not yet applied
Rewrite   the whole module after one or more changes, with its label
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

Label = Literal["changing", "preserving"]
"""What a rewrite does to the module's behaviour, and so what a suite should say of it: reject, accept."""

ID = re.compile(r"[a-z_]+:\d+:\d+:[0-9a-z]+")


class Edit(NamedTuple):
    """Characters [start, end) of a source and the text in their place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """One refactoring at one place."""

    line: int
    """From 1."""
    column: int
    """From 0, in bytes as in the AST."""
    home: int
    """Line of the function or statement it happens in. Changes with different homes are independent."""
    edits: tuple[Edit, ...]
    note: str

    def __post_init__(self) -> None:
        if not self.edits:
            raise ValueError(f"a change without edits: {self}")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A module's source, rewritten."""

    id: str
    """kind:line:column:k, the same whatever else was asked for."""
    kind: str
    """Name of the refactoring or of the mutation."""
    label: Label
    line: int
    """Where it begins, in the original."""
    source: str
    """The whole module after it."""
    note: str

    def __post_init__(self) -> None:
        if self.label not in get_args(Label):
            raise ValueError(f"no such label: {self.label!r}")
        if not ID.fullmatch(self.id) or not self.id.startswith(f"{self.kind}:{self.line}:"):
            raise ValueError(f"not an id of {self.kind!r} in line {self.line}: {self.id!r}")
        if self.line < 1:
            raise ValueError(f"lines count from 1: {self.line}")


def apply_text(source: str, edits: Iterable[Edit]) -> str:
    """The source with all edits made. Insertions at one place keep their order.

    Raises:
        ValueError: two edits overlap, or one is not within the source.
    """
    pieces: list[str] = []
    done = 0
    for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
        if not done <= start <= end <= len(source):
            raise ValueError(
                f"an edit of [{start}, {end}) after one up to {done}, in {len(source)} characters"
            )
        pieces += source[done:start], text
        done = end
    return "".join((*pieces, source[done:]))
