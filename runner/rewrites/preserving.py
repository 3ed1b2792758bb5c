"""Rewrites of a module that keep its behaviour: a test suite should accept them all.

Each is a refactoring at one place, made in the text: comments, layout and, where no line is
added or removed, line numbers stay. A place is taken only where the rule is safe by what the
module itself shows; where it is in doubt, there is no rewrite.

Behaviour is what a module does when it is imported and called. These can tell a rewrite all
the same, and a test that uses them may reject it rightly: inspect.getsource and other readers
of the source; __doc__ and the names of local variables read from elsewhere (frames, tracebacks
that show locals); line numbers in tracebacks and warnings; bytecode, co_names and the like;
the order in which objects that variables let go are finalised; the texts of UnboundLocalError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from random import Random

from runner.nouns import content_id
from runner.rewrites import branches, order, spelling, temporaries
from runner.rewrites.module import Module
from runner.rewrites.rewrite import Change, Rewrite, apply_text

Refactoring = Callable[[Module], Iterator[Change]]

REFACTORINGS: dict[str, Refactoring] = {
    refactoring.__name__: refactoring
    for refactoring in (
        temporaries.rename_local,
        order.swap_statements,
        order.reorder_keywords,
        branches.invert_if,
        branches.invert_conditional,
        branches.split_conditional,
        branches.merge_returns,
        branches.drop_else,
        temporaries.extract_return,
        temporaries.extract_condition,
        temporaries.inline_temporary,
        spelling.edit_docstring,
        spelling.drop_annotation,
        spelling.expand_augmented,
        spelling.respell_negation,
        spelling.swap_identity,
        spelling.explicit_none,
        spelling.split_import,
    )
}
"""By kind."""

FUTILE = 100
"""Composites drawn in a row that were all there already: there are no more to be found."""


@dataclass(frozen=True, slots=True)
class _Single:
    id: str
    kind: str
    change: Change


def preserving(source: str, count: int, seed: str) -> list[Rewrite]:
    """Up to `count` different rewrites of a module that keep its behaviour.

    The kinds take turns as long as they last; composites of two to four singles in different
    functions follow when all singles are used. More asked for begins with the same.

    Raises:
        SyntaxError: the source is not a module.
        ValueError: `count` is negative.
    """
    if count < 0:
        raise ValueError(f"cannot make {count} rewrites")
    return list(islice(_rewrites(source, seed), count))


def _rewrites(source: str, seed: str) -> Iterator[Rewrite]:
    singles = _singles(Module(source))
    seen = {source}
    for single in _in_turns(singles, seed):
        rewrite = _composed(source, [single])
        if rewrite.source not in seen:
            seen.add(rewrite.source)
            yield rewrite
    random, futile = Random(f"composite:{seed}"), 0
    while futile < FUTILE:
        parts = _drawn(singles, random)
        futile += 1
        if len(parts) > 1 and (rewrite := _composed(source, parts)).source not in seen:
            futile = 0
            seen.add(rewrite.source)
            yield rewrite


def _singles(module: Module) -> list[_Single]:
    """All that can be done to a module, by kind and place."""
    singles: dict[str, _Single] = {}
    for kind, refactoring in REFACTORINGS.items():
        for change in refactoring(module):
            place, k = f"{kind}:{change.line}:{change.column}", 0
            while f"{place}:{k}" in singles:
                k += 1
            singles[f"{place}:{k}"] = _Single(f"{place}:{k}", kind, change)
    return list(singles.values())


def _in_turns(singles: list[_Single], seed: str) -> Iterator[_Single]:
    by_kind: dict[str, list[_Single]] = {}
    for single in singles:
        by_kind.setdefault(single.kind, []).append(single)
    for kind, group in by_kind.items():
        Random(f"{kind}:{seed}").shuffle(group)
    for turn in zip_longest(*by_kind.values()):
        yield from (single for single in turn if single is not None)


def _drawn(singles: list[_Single], random: Random) -> list[_Single]:
    """Two to four singles in different functions, in the order of the text; fewer where there are none."""
    if not singles:
        return []
    drawn = random.sample(singles, min(len(singles), random.randint(2, 4)))
    apart = {single.change.home: single for single in drawn}
    return sorted(apart.values(), key=lambda single: (single.change.line, single.id))


def _composed(source: str, parts: list[_Single]) -> Rewrite:
    first = parts[0].change
    kind, name, note = parts[0].kind, parts[0].id, first.note
    if len(parts) > 1:
        kind = "composite"
        name = f"{kind}:{first.line}:{first.column}:{content_id([part.id for part in parts])[:8]}"
        note = "; ".join(f"{part.change.note} (line {part.change.line})" for part in parts)
    text = apply_text(source, [edit for part in parts for edit in part.change.edits])
    return Rewrite(name, kind, "preserving", first.line, text, note)
