"""Refactorings of order: what is independent changes places."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from runner.rewrites.module import Module
from runner.rewrites.rewrite import Change, Edit
from runner.rewrites.scopes import Function, blocks, pure, reads, sure_names


def swap_statements(module: Module) -> Iterator[Change]:
    """`a = 1` and `b = x` change places: different local names, values that run nobody's code."""
    text = module.text
    for scope in module.open_scopes:
        for block in blocks(scope.function):
            for first, second in pairwise(block):
                one, two = _plain_assignment(first), _plain_assignment(second)
                if one is None or two is None:
                    continue
                (name, value), (other_name, other_value) = one, two
                if name == other_name or name in reads(other_value) or other_name in reads(value):
                    continue
                if not {name, other_name} <= scope.private | scope.parameters:
                    continue
                sure = sure_names(scope, module.parents, first)
                if not (pure(value, sure) and pure(other_value, sure)):
                    continue
                if not (text.owns_lines(first) and text.owns_lines(second)):
                    continue
                spans = [
                    text.rows(statement.lineno, statement.end_lineno or 0) for statement in (first, second)
                ]
                texts = [text.source[slice(*span)] for span in spans]
                edits = [Edit(*spans[0], texts[1]), Edit(*spans[1], texts[0])]
                yield module.change(first, edits, f"{name} and {other_name} are assigned in the other order")


def reorder_keywords(module: Module) -> Iterator[Change]:
    """Two neighbours among a call's keyword arguments change places.

    Only in calls of the module's own functions, known to be those, that name all these
    keywords: what is collected in **kwargs keeps its order, and a class might do that.
    """
    text = module.text
    callees = _callees(module)
    owners = {
        statement: scope for scope in module.scopes for block in blocks(scope.function) for statement in block
    }
    for node in module.nodes():
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Name)
            or node.func.id not in callees
        ):
            continue
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            continue
        if not {keyword.arg for keyword in node.keywords} <= callees[node.func.id]:
            continue
        statement = _statement(module, node)
        scope = owners.get(statement)
        sure = sure_names(scope, module.parents, statement) if scope else frozenset[str]()
        for first, second in pairwise(node.keywords):
            if pure(first.value, sure) and pure(second.value, sure):
                edits = [text.replace(first, text.of(second)), text.replace(second, text.of(first))]
                yield module.change(first, edits, f"{second.arg} is passed before {first.arg}")


def _plain_assignment(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return None
    return (target.id, value) if isinstance(target, ast.Name) else None


def _callees(module: Module) -> dict[str, frozenset[str | None]]:
    """Functions that a name certainly means, with the keywords that they name."""
    bindings = Counter(_bindings(module.tree))
    return {
        statement.name: frozenset(
            argument.arg for argument in (*statement.args.args, *statement.args.kwonlyargs)
        )
        for statement in module.tree.body
        if isinstance(statement, Function) and bindings[statement.name] == 1 and not statement.decorator_list
    }


def _bindings(tree: ast.Module) -> Iterator[str]:
    """Every binding of a name, in whatever scope."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        else:
            for field in ("name", "rest"):
                name = getattr(node, field, None)
                if isinstance(name, str):
                    yield name


def _statement(module: Module, node: ast.AST) -> ast.stmt:
    while not isinstance(node, ast.stmt):
        node = module.parents[node]
    return node
