"""Refactorings of one statement or expression: the same thing said otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from runner.rewrites.module import Module
from runner.rewrites.rewrite import Change, Edit
from runner.rewrites.scopes import Function, Scope, blocks

NEGATION = re.compile(r"([\s)]*)(?:(is)\s+not|not\s+(in))([\s(]*)")
AUGMENTED = re.compile(r"[ \t]*([-+*])=[ \t]*")
SENTENCE = " See also the module."
READS_DOCSTRINGS = re.compile(r"__doc__|\bgetdoc\b|\bdocopt\b|\bpydoc\b|\bdoctest\b")


def edit_docstring(module: Module) -> Iterator[Change]:
    """A sentence more in a function's docstring.

    Not where somebody might read it: decorators, bases that are not known (cmd.Cmd prints
    it), modules that mention __doc__, and docstrings with examples.
    """
    text = module.text
    if READS_DOCSTRINGS.search(text.source):
        return
    for scope in module.scopes:
        function = scope.function
        first = function.body[0]
        docstring = ast.get_docstring(function, clean=False)
        if docstring is None or ">>>" in docstring or function.decorator_list or _has_bases(module, function):
            continue
        assert isinstance(first, ast.Expr)
        literal = text.of(first.value)
        quote = literal[-3:] if literal.endswith(('"""', "'''")) else literal[-1:]
        if literal.count(quote) == 2:
            end = text.end(first.value) - len(quote)
            note = f"a sentence more in the docstring of {function.name}"
            yield module.change(first, [Edit(end, end, SENTENCE)], note)


def drop_annotation(module: Module) -> Iterator[Change]:
    """`x: int = 1` becomes `x = 1` in a function, where annotations are never evaluated."""
    text = module.text
    for scope in module.scopes:
        for statement in _statements(scope):
            if not isinstance(statement, ast.AnnAssign) or statement.value is None:
                continue
            if text.between(statement.target, statement.annotation).strip() != ":":
                continue
            edit = Edit(text.end(statement.target), text.end(statement.annotation), "")
            yield module.change(statement, [edit], f"no annotation of {text.of(statement.target)}")


def expand_augmented(module: Module) -> Iterator[Change]:
    """`x += 1` becomes `x = x + 1`, where x is never anything but an int, or never but a str."""
    text = module.text
    for scope in module.scopes:
        for name in sorted(scope.private):
            statements = [
                module.parents[place] for place in scope.names[name] if isinstance(place.ctx, ast.Store)
            ]
            kinds = {_kind(statement) for statement in statements}
            if len(kinds) != 1 or None in kinds:
                continue
            for statement in statements:
                if not isinstance(statement, ast.AugAssign):
                    continue
                gap = AUGMENTED.match(text.source, text.end(statement.target))
                if gap is not None:
                    edit = Edit(gap.start(), gap.end(), f" = {name} {gap[1]} ")
                    yield module.change(statement, [edit], f"{name} is assigned its old value and more")


def respell_negation(module: Module) -> Iterator[Change]:
    """`a is not b` becomes `not a is b`, `a not in b` becomes `not a in b`."""
    text = module.text
    for node in module.nodes():
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        gap = NEGATION.fullmatch(text.between(node.left, node.comparators[0]))
        if gap is None:
            continue
        operator = gap[2] or gap[3]
        edits = [
            text.put(text.start(node), text.start(node), "(not "),
            text.put(text.end(node.left), text.start(node.comparators[0]), f"{gap[1]}{operator}{gap[4]}"),
            Edit(text.end(node), text.end(node), ")"),
        ]
        yield module.change(node, edits, f"the negation stands before the comparison with {operator}")


def swap_identity(module: Module) -> Iterator[Change]:
    """`x is None` becomes `None is x`."""
    text = module.text
    for node in module.nodes():
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = node.left, node.comparators[0]
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and _singleton(right):
            edits = [text.replace(left, text.of(right)), text.replace(right, text.wrapped(left))]
            yield module.change(node, edits, f"{text.of(right)} stands on the left")


def explicit_none(module: Module) -> Iterator[Change]:
    """`return` becomes `return None`. An asynchronous generator may not say so."""
    for scope in module.scopes:
        if isinstance(scope.function, ast.AsyncFunctionDef):
            continue
        for statement in _statements(scope):
            if isinstance(statement, ast.Return) and statement.value is None:
                end = module.text.end(statement)
                yield module.change(statement, [Edit(end, end, " None")], "None is returned explicitly")


def split_import(module: Module) -> Iterator[Change]:
    """`import a, b` becomes `import a` and `import b`; also `from m import a, b`."""
    text = module.text
    for block in module.all_blocks():
        for statement in block:
            if not isinstance(statement, ast.Import | ast.ImportFrom) or len(statement.names) < 2:
                continue
            indent = text.indent(statement)
            if indent is None or not text.ends_line(statement) or "#" in text.of(statement):
                continue
            lead = "import"
            if isinstance(statement, ast.ImportFrom):
                lead = f"from {'.' * statement.level}{statement.module or ''} import"
                if statement.module == "__future__":
                    continue
            first, rest = (
                text.of(statement.names[0]),
                ", ".join(text.of(name) for name in statement.names[1:]),
            )
            edit = text.replace(statement, f"{lead} {first}\n{indent}{lead} {rest}")
            yield module.change(statement, [edit], f"{first} has its own import")


def _statements(scope: Scope) -> Iterator[ast.stmt]:
    for block in blocks(scope.function):
        yield from block


def _has_bases(module: Module, function: Function) -> bool:
    """Whether a class around a function has a base, a metaclass or a decorator."""
    parent = module.parents[function]
    while not isinstance(parent, ast.Module):
        if isinstance(parent, ast.ClassDef) and (parent.bases or parent.keywords or parent.decorator_list):
            return True
        parent = module.parents[parent]
    return False


def _kind(statement: ast.AST) -> str | None:
    """What a statement makes of the name it binds: "int", "str", or None when that is not sure."""
    value = getattr(statement, "value", None)
    plain = (
        (ast.Add,)
        if isinstance(statement, ast.AugAssign) and _type(value) == "str"
        else (ast.Add, ast.Sub, ast.Mult)
    )
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, plain):
        return _type(value)
    return _type(value) if isinstance(statement, ast.Assign) else None


def _type(value: ast.expr | None) -> str | None:
    if isinstance(value, ast.JoinedStr):
        return "str"
    kind = type(value.value) if isinstance(value, ast.Constant) else None
    return kind.__name__ if kind in (int, str) else None


def _singleton(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool))
