"""Marks at the ends of lines: what a suite still misses of a module, which of its tests fail.

TeSearch (arXiv 2610.15964), appendix, "Feedback signal": models align a mark that sits next
to the code far more reliably than a position given apart from it.
"""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from runner.answers import parsed

NOT_COVERED = "# <-- NOT COVERED YET"
SURVIVING = "# <-- SURVIVING MUTANT:"
FAILING = "# <-- FAILING:"
LONGEST_EXCEPTION = 120
"""Characters."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""Of Python: str.splitlines knows ends of lines that the language does not."""
_OPENING, _CLOSING = "([{", ")]}"


def annotate(source: str, uncovered: Collection[int], surviving: Mapping[int, Sequence[str]]) -> str:
    """A module's source with a mark on each line that is uncovered or has surviving mutants.

    A mark stands at the end of the exact line. Where no comment may stand, inside a string or
    before a backslash's continuation, it moves to the first later line of the same statement
    that takes one. Marks that meet on a line are merged. The program stays the same.

    Args:
        source: The module. One that this Python cannot read is returned unchanged.
        uncovered: Line numbers from 1; those that the source does not have are left out.
        surviving: Operators of the mutants that survive on a line, by its number.
    """
    page = _Page.read(source)
    if page is None:
        return source
    operators: dict[int, dict[str, None]] = {}
    for line in sorted(surviving):
        for place in page.places([line]):
            operators.setdefault(place, {}).update(dict.fromkeys(map(_plain, surviving[line])))
    marks: dict[int, list[str]] = {place: [NOT_COVERED] for place in page.places(uncovered)}
    for place, found in operators.items():
        if found:
            marks.setdefault(place, []).append(f"{SURVIVING} {', '.join(found)}")
    return page.marked(marks)


def annotate_failing(suite_source: str, failing: Mapping[str, str]) -> str:
    """A suite's source with a mark on each failing test, at the end of its def header.

    The header may have several lines; the mark stands where it ends. Names that the suite
    does not define are left out; of a name that it defines twice, the last counts, as it does
    for Python. The program stays the same.

    Args:
        suite_source: The suite. One that this Python cannot read is returned unchanged.
        failing: By test, 'test_x' or 'TestC::test_x', its exception, of which the first line
            is shown up to LONGEST_EXCEPTION characters. A case of a parametrised test,
            'test_x[1-2]', counts as the test; the first of several is shown.
    """
    page = _Page.read(suite_source)
    if page is None:
        return suite_source
    tests = dict(_tests(page.tree, ""))
    marks: dict[int, list[str]] = {}
    for name, exception in failing.items():
        test = tests.get(name.partition("[")[0])
        if test is not None:
            first = next((line for line in map(_plain, exception.splitlines()) if line), "")
            mark = f"{FAILING} {first[:LONGEST_EXCEPTION]}".rstrip()
            for place in page.places([page.header_end(test.lineno)]):
                marks.setdefault(place, [mark])
    return page.marked(marks)


class _Page:
    """Source text by its lines, which are numbered from 1, and where comments may go."""

    def __init__(self, lines: list[str], tree: ast.Module, tokens: list[tokenize.TokenInfo]) -> None:
        self.tree = tree
        self._lines = lines
        self._tokens = tokens
        self._open_ends = list(_open_ends(tokens))

    @classmethod
    def read(cls, source: str) -> _Page | None:
        """None for what is not Python."""
        tree = parsed(source)
        if tree is None:
            return None
        lines = _LINE.findall(source)
        normal = "".join(line.rstrip("\r\n") + "\n" for line in lines)
        try:
            return cls(lines, tree, list(tokenize.generate_tokens(io.StringIO(normal).readline)))
        except (tokenize.TokenError, SyntaxError):
            return None  # the tokenizer of the standard library is stricter here and there

    def places(self, lines: Iterable[int]) -> Iterator[int]:
        """For each line, the one that takes its mark: itself, or the next that a comment may end."""
        for line in lines:
            index = bisect.bisect_left(self._open_ends, line)
            if line >= 1 and index < len(self._open_ends):
                yield self._open_ends[index]

    def header_end(self, line: int) -> int:
        """The line of the colon that ends the header which starts at a line."""
        depth = 0
        for token in self._tokens:
            if token.start[0] >= line and token.type == tokenize.OP:
                depth += (token.string in _OPENING) - (token.string in _CLOSING)
                if token.string == ":" and not depth:
                    return token.start[0]
        raise AssertionError(f"no header starts at line {line}")  # a parsed def has one

    def marked(self, marks: Mapping[int, Sequence[str]]) -> str:
        """The text with marks at the ends of lines."""
        lines = list(self._lines)
        for number, found in marks.items():
            text = lines[number - 1].rstrip("\r\n")
            ending = lines[number - 1][len(text) :]
            lines[number - 1] = "  ".join([text, *found]) + ending
        return "".join(lines)


def _open_ends(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[int]:
    """Lines whose end the tokenizer sees as one: not in a string, not before a continuation."""
    strings = 0
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        # From Python 3.12 on, f-strings have tokens, and ends of lines, inside them.
        strings += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        if kind in ("NEWLINE", "NL") and not strings:
            yield token.start[0]


def _tests(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function by the name that pytest gives it, those in functions left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _tests(child, f"{prefix}{child.name}::")
        elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _tests(child, prefix)


def _plain(text: str) -> str:
    """One line without what could end a comment or spoil a source file."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
