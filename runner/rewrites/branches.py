"""Refactorings of conditions: the same ways through the code, written the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from runner.rewrites.module import Module
from runner.rewrites.rewrite import Change, Edit
from runner.rewrites.text import Text

COLON = re.compile(r"(?:[\s)\\]|#.*)*+:")
ELSE = re.compile(r"[ \t\f]*else[ \t]*:[ \t]*(?:#.*)?")
BARE_ELSE = re.compile(r"[ \t\f]*else[ \t]*:[ \t]*")
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def invert_if(module: Module) -> Iterator[Change]:
    """`if c: A else: B` becomes `if not c: B else: A`."""
    text = module.text
    for node in module.nodes():
        if not isinstance(node, ast.If):
            continue
        header, middle = _header_line(text, node), _else_line(text, node, ELSE)
        if middle is None or header >= node.body[0].lineno:
            continue
        last = node.orelse[-1]
        body, orelse = text.rows(header + 1, middle - 1), text.rows(middle + 1, _last_line(last))
        edits = [
            *text.negated(node.test),
            Edit(*body, text.source[slice(*orelse)]),
            Edit(*orelse, text.source[slice(*body)]),
        ]
        yield module.change(node, edits, "the condition negated, its branches exchanged")


def invert_conditional(module: Module) -> Iterator[Change]:
    """`a if c else b` becomes `b if not c else a`."""
    text = module.text
    for node in module.nodes():
        if isinstance(node, ast.IfExp):
            edits = [
                text.replace(node.body, text.wrapped(node.orelse)),
                *text.negated(node.test),
                text.replace(node.orelse, text.wrapped(node.body)),
            ]
            yield module.change(node, edits, "the conditional expression negated, its values exchanged")


def split_conditional(module: Module) -> Iterator[Change]:
    """`return a if c else b`, or an assignment of it, becomes an if statement."""
    text = module.text
    for node in module.nodes():
        if isinstance(node, ast.Return):
            lead = "return "
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _simple(node.targets[0]):
            lead = f"{text.of(node.targets[0])} = "
        else:
            continue
        value, whole = node.value, text.of(node)
        if not isinstance(value, ast.IfExp) or not text.owns_lines(node) or "#" in whole:
            continue
        indent = text.indent(node)
        assert indent is not None
        step = "\t" if indent.startswith("\t") else "    "
        lines = [
            f"if {_standing(text, value.test)}:",
            f"{indent}{step}{lead}{_standing(text, value.body)}",
            f"{indent}else:",
            f"{indent}{step}{lead}{_standing(text, value.orelse)}",
        ]
        yield module.change(
            node, [text.replace(node, "\n".join(lines))], "a statement for the conditional expression"
        )


def merge_returns(module: Module) -> Iterator[Change]:
    """`if c: return a` and `return b` after it, or in its else, become `return a if c else b`."""
    text = module.text
    for block in module.all_blocks():
        for node, following in pairwise([*block, None]):
            if not isinstance(node, ast.If) or not _spelled(text, node, "if") or text.indent(node) is None:
                continue
            then = _returned(node.body)
            other = _returned(node.orelse or [following])
            if then is None or other is None:
                continue
            last = node.orelse[0] if node.orelse else following
            assert last is not None
            start, end = text.start(node), text.end(last)
            if "#" in text.source[start:end]:
                continue
            merged = f"return {text.wrapped(then)} if {text.wrapped(node.test)} else {text.wrapped(other)}"
            yield module.change(node, [Edit(start, end, merged)], "one conditional return for two")


def drop_else(module: Module) -> Iterator[Change]:
    """No `else` after a branch that has left: `elif` becomes `if`, an else's block moves out."""
    text = module.text
    for node in module.nodes():
        if not isinstance(node, ast.If) or not node.orelse or not isinstance(node.body[-1], LEAVES):
            continue
        if not _spelled(text, node, "if") or (indent := text.indent(node)) is None:
            continue
        first = node.orelse[0]
        if isinstance(first, ast.If) and _spelled(text, first, "elif"):
            start = text.start(first)
            yield module.change(
                node, [Edit(start, start + len("elif"), "if")], "if for elif: the branch before has left"
            )
            continue
        middle = _else_line(text, node, BARE_ELSE)
        deep = text.indent(first)
        if middle is not None and deep is not None:
            no_else = Edit(text.starts[middle - 1], text.starts[middle], "")
            edits = [no_else, *_dedented(text, node.orelse, middle, deep, indent)]
            yield module.change(node, edits, "no else: the branch before has left")


def _dedented(text: Text, block: list[ast.stmt], middle: int, deep: str, indent: str) -> Iterator[Edit]:
    inside_strings = {
        line
        for statement in block
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None
        for line in range(node.lineno + 1, node.end_lineno + 1)
    }
    for line in range(middle + 1, _last_line(block[-1]) + 1):
        if line not in inside_strings and text.line(line).startswith(deep):
            start = text.starts[line - 1]
            yield Edit(start, start + len(deep), indent)


def _header_line(text: Text, node: ast.If) -> int:
    colon = COLON.match(text.source, text.end(node.test))
    assert colon is not None
    assert node.test.end_lineno is not None
    return node.test.end_lineno + len(re.findall(r"\r\n|\r|\n", colon.group()))


def _else_line(text: Text, node: ast.If, shape: re.Pattern[str]) -> int | None:
    """The line that only says else, if there is one."""
    if not node.orelse:
        return None
    between = range(_last_line(node.body[-1]) + 1, node.orelse[0].lineno)
    return next((line for line in between if shape.fullmatch(text.line(line))), None)


def _last_line(statement: ast.stmt) -> int:
    assert statement.end_lineno is not None
    return statement.end_lineno


def _spelled(text: Text, node: ast.If, word: str) -> bool:
    return text.source.startswith(word, text.start(node))


def _simple(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    )


def _standing(text: Text, value: ast.expr) -> str:
    """A value's text as it stands alone after a keyword."""
    own = text.of(value)
    needs = isinstance(value, ast.NamedExpr | ast.Yield | ast.YieldFrom) or "\n" in own or "\r" in own
    return f"({own})" if needs else own


def _returned(block: list[ast.stmt] | list[ast.stmt | None]) -> ast.expr | None:
    """The value of a block that does nothing but return it."""
    only = block[0] if len(block) == 1 else None
    return only.value if isinstance(only, ast.Return) else None
