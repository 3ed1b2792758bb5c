"""Refactorings of local variables: renamed, introduced, removed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from runner.rewrites.module import Module
from runner.rewrites.rewrite import Change, Edit
from runner.rewrites.scopes import Scope, blocks

GAP = re.compile(r"[ \t]*=[ \t]*")


def rename_local(module: Module) -> Iterator[Change]:
    """A local variable gets another name, in all places."""
    for scope in module.open_scopes:
        for name in sorted(scope.private):
            places = scope.names[name]
            if module.untouchable.isdisjoint(places):
                fresh = module.fresh(f"local_{name.strip('_') or 'value'}")
                edits = [module.text.replace(place, fresh) for place in places]
                yield module.change(places[0], edits, f"{name} is called {fresh}")


def extract_return(module: Module) -> Iterator[Change]:
    """`return f(x)` becomes `result = f(x)` and `return result`."""
    text = module.text
    for scope in module.open_scopes:
        for statement in _statements(scope):
            if not isinstance(statement, ast.Return) or isinstance(
                statement.value, ast.Name | ast.Constant | None
            ):
                continue
            indent = text.indent(statement)
            if indent is None or not text.ends_line(statement):
                continue
            fresh = module.fresh("result")
            start, after = text.start(statement), text.rows(statement.lineno, statement.end_lineno or 0)[1]
            edits = [
                text.put(start, start + len("return"), f"{fresh} ="),
                Edit(after, after, f"\n{indent}return {fresh}"),
            ]
            yield module.change(statement, edits, f"what is returned is first called {fresh}")


def extract_condition(module: Module) -> Iterator[Change]:
    """`if x is None:` becomes `missing = x is None` and `if missing:`.

    Only for conditions that are bools: of anything else the truth would be asked later, or
    twice, or it would live longer.
    """
    text = module.text
    for scope in module.open_scopes:
        for statement in _statements(scope):
            if not isinstance(statement, ast.If) or not _boolean(statement.test):
                continue
            indent = text.indent(statement)
            if indent is None or not text.source.startswith("if", text.start(statement)):
                continue
            fresh, start = module.fresh("condition"), text.start(statement)
            edits = [
                Edit(start, start, f"{fresh} = {text.wrapped(statement.test)}\n{indent}"),
                text.replace(statement.test, fresh),
            ]
            yield module.change(statement, edits, f"the condition is first called {fresh}")


def inline_temporary(module: Module) -> Iterator[Change]:
    """`x = f()` and `return x` become `return f()`. Not within a try, which might read x."""
    text = module.text
    for scope in module.open_scopes:
        for block in blocks(scope.function):
            for first, second in pairwise(block):
                name = _assigned_name(first)
                if name is None or name not in scope.private or name in scope.nested:
                    continue
                if not isinstance(second, ast.Return) or text.of(second) != f"return {name}":
                    continue
                if module.enclosing(first, ast.Try, ast.TryStar, within=scope.function):
                    continue
                stores = sum(isinstance(place.ctx, ast.Store) for place in scope.names[name])
                if stores == 1 and len(scope.names[name]) > 2:
                    continue  # what is left would be reads of a global
                edit = _assignment_to_return(module, first)
                line = second.lineno
                if edit is None or text.line(line).strip() != f"return {name}":
                    continue
                removed = Edit(text.rows(line - 1, line - 1)[1], text.rows(line, line)[1], "")
                yield module.change(first, [edit, removed], f"returned without being called {name}")


def _statements(scope: Scope) -> Iterator[ast.stmt]:
    for block in blocks(scope.function):
        yield from block


def _boolean(test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        return isinstance(inner, ast.Name | ast.Attribute | ast.Subscript | ast.Call) or (
            isinstance(inner, ast.Compare) and len(inner.ops) == 1
        )
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn)
    )


def _assigned_name(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _assignment_to_return(module: Module, statement: ast.stmt) -> Edit | None:
    """The edit that turns `x = ` or `x: T = ` into `return `."""
    text = module.text
    assert isinstance(statement, ast.Assign | ast.AnnAssign)
    head = statement.targets[0] if isinstance(statement, ast.Assign) else statement.annotation
    gap = GAP.match(text.source, text.end(head))
    if gap is None or isinstance(statement.value, ast.Yield | ast.YieldFrom):
        return None
    return text.put(text.start(statement), gap.end(), "return ")
