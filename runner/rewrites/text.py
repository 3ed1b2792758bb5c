"""Where the nodes of an AST are in its source text."""

from __future__ import annotations

import ast
import re
from itertools import accumulate

from runner.rewrites.rewrite import Edit

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""As the tokenizer sees lines. str.splitlines also ends them at form feeds and the like."""

REST = re.compile(r"[ \t\f]*(?:#.*)?")

Placed = ast.expr | ast.stmt | ast.keyword | ast.alias

ATOMS = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict, ast.Set,
    ast.ListComp, ast.SetComp, ast.DictComp,
)  # fmt: skip
"""Expressions that stand anywhere without parentheses."""


class Text:
    """A source text, addressed by line and by node. Columns of the AST count UTF-8 bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: list[str] = LINE.findall(source)
        self.starts = [0, *accumulate(len(line) for line in self.lines)]

    def offset(self, line: int, column: int) -> int:
        """Characters ahead of a place."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return self.starts[line - 1] + len(text.encode()[:column].decode())

    def start(self, node: Placed) -> int:
        """Where a node begins, its decorators and parentheses not included."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Placed) -> int:
        """Where a node ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: Placed) -> str:
        """The node's own text."""
        return self.source[self.start(node) : self.end(node)]

    def between(self, first: Placed, second: Placed) -> str:
        """What stands between the end of one node and the start of another."""
        return self.source[self.end(first) : self.start(second)]

    def line(self, number: int) -> str:
        """A line without its end."""
        return self.lines[number - 1].rstrip("\r\n")

    def rows(self, first: int, last: int) -> tuple[int, int]:
        """[start, end) of whole lines, the end of the last not included."""
        return self.starts[first - 1], self.starts[last - 1] + len(self.line(last))

    def indent(self, node: Placed) -> str | None:
        """The white space ahead of a node; None when something else is on its line ahead of it."""
        ahead = self.source[self.starts[node.lineno - 1] : self.start(node)]
        return ahead if not ahead.strip(" \t\f") else None

    def ends_line(self, node: Placed) -> bool:
        """Whether nothing but a comment follows in the node's last line."""
        assert node.end_lineno is not None
        return bool(REST.fullmatch(self.source, self.end(node), self.rows(node.lineno, node.end_lineno)[1]))

    def owns_lines(self, node: ast.stmt) -> bool:
        """Whether a statement has its lines for itself."""
        return self.indent(node) is not None and self.ends_line(node)

    def put(self, start: int, end: int, text: str) -> Edit:
        """A replacement that does not grow together with the words around it."""
        before, after = self.source[start - 1 : start], self.source[end : end + 1]
        left = " " if _wordy(before) and _wordy(text[:1]) else ""
        right = " " if _wordy(text[-1:]) and _wordy(after) else ""
        return Edit(start, end, left + text + right)

    def replace(self, node: Placed, text: str) -> Edit:
        """Another text in a node's place."""
        return self.put(self.start(node), self.end(node), text)

    def wrapped(self, node: ast.expr) -> str:
        """A node's text as it may stand at any place of an expression or a line."""
        text = self.of(node)
        return text if isinstance(node, ATOMS) and "\n" not in text and "\r" not in text else f"({text})"

    def negated(self, test: ast.expr) -> list[Edit]:
        """Edits that turn a condition into its opposite. Either way its truth is asked once."""
        start, end = self.start(test), self.end(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            word = re.compile(r"not[ \t]*").match(self.source, start)
            assert word is not None
            return [self.put(start, word.end(), "")]
        if isinstance(test, ATOMS):
            return [self.put(start, start, "not ")]
        return [self.put(start, start, "not ("), Edit(end, end, ")")]


def _wordy(text: str) -> bool:
    return text.isalnum() or text in {"_", '"', "'"}
