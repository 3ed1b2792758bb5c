"""Models' answers, read tolerantly: code out of fences and prose, a choice, two numbers.

What holds no code, no choice, no number gives nothing; it is an outcome, never an error.
"""

from __future__ import annotations

import ast
import re
import warnings

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_PYTHON = {"", "py", "python", "python3", "py3", "pycon", "ipython"}
_DIVIDER = re.compile(r"^#[ \t#=*-]*(?:script|test|step)[ \t#]*\d+\b[^\n]*$", re.MULTILINE | re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_SALVAGED_LINES = 400
"""How much of a broken end is given up, at most, to save the code before it."""


def one_script(text: str) -> str | None:
    """The script that an answer holds; None when it holds no code.

    Of several blocks, the longest that compiles; of none that does, the longest. Code that
    an answer's end cut off is kept up to its last whole statement.
    """
    blocks = _blocks(text)
    if not blocks:
        return None
    whole = [block for block in blocks if compiles(block)]
    return max(whole or blocks, key=len)


def several_scripts(text: str) -> list[str]:
    """The scripts of a plan, in order: one a block, or one block divided by '# Script 2' lines."""
    blocks = _blocks(text)
    if len(blocks) != 1:
        return blocks
    parts = [part.strip("\n") for part in _DIVIDER.split(blocks[0])]
    return [part for part in parts if _has_code(part)]


def choice(text: str, count: int) -> int | None:
    """The index, from 0, of the one among `count` that an answer names by its number from 1."""
    for number in numbers(text):
        if number == int(number) and 1 <= number <= count:
            return int(number) - 1
    return None


def numbers(text: str) -> list[float]:
    """The numbers in an answer, in order; what the model thought aloud is left out."""
    return [float(found) for found in _NUMBER.findall(_THOUGHT.sub(" ", text))]


def parsed(text: str) -> ast.Module | None:
    """The tree of code that is not ours; None where this Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own run will show them
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def compiles(script: str) -> bool:
    """Whether this Python can read it. The target's may differ: this only chooses, it never refuses."""
    return parsed(script) is not None


def _blocks(text: str) -> list[str]:
    """Python code blocks; unfenced text only if it is code throughout."""
    text = _THOUGHT.sub("", text)
    blocks: list[tuple[str, str]] = []
    position, opened = 0, None
    for fence in _FENCE.finditer(text):
        mark, language = fence[1], fence[2].lower()
        if opened is None:
            opened, position = (mark, language), fence.end() + 1
        elif mark[0] == opened[0][0] and len(mark) >= len(opened[0]) and not language:
            blocks.append((opened[1], text[position : fence.start()]))
            opened = None
    if opened is not None:
        blocks.append((opened[1], _salvage(text[position:])))
    elif not blocks and compiles(text):
        blocks.append(("", text))
    return [code.strip("\n") for language, code in blocks if language in _PYTHON and _has_code(code)]


def _salvage(code: str) -> str:
    """Cut-off code up to its last whole statement; all of it when nothing can be saved."""
    lines = code.split("\n")
    for end in range(len(lines), max(0, len(lines) - _SALVAGED_LINES), -1):
        kept = "\n".join(lines[:end])
        if _has_code(kept) and compiles(kept):
            return kept
    return code


def _has_code(text: str) -> bool:
    """Whether there is more than comments, and more than bare words that happen to be an expression."""
    tree = parsed(text)
    if tree is None:
        return bool(text.strip())
    return any(not (isinstance(node, ast.Expr) and _idle(node.value)) for node in tree.body)


def _idle(value: ast.expr) -> bool:
    return isinstance(value, (ast.Name, ast.Constant, ast.Tuple, ast.Attribute, ast.Compare, ast.BinOp))
