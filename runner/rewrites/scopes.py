"""Which names belong to a function alone."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

SPIES = frozenset(
    {
        *("locals", "vars", "dir", "eval", "exec"),
        *("f_locals", "_getframe", "currentframe", "getframeinfo", "stack"),
        *("breakpoint", "set_trace"),
    }
)
"""Who says one of these may see the names of local variables."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names in a function, those of the scopes nested in it included."""

    function: Function
    parameters: frozenset[str]
    names: dict[str, list[ast.Name]]
    """Every place a name is read, bound or deleted at as a plain name."""
    locals: frozenset[str]
    """Bound by the function itself, plainly: by assignment, for, with or :=."""
    entangled: frozenset[str]
    """Bound in a nested scope, declared global or nonlocal, deleted, or bound without a plain name."""
    nested: frozenset[str]
    """Mentioned in a nested scope."""
    mentions: frozenset[str]
    """Plain names and attributes."""

    @property
    def private(self) -> frozenset[str]:
        """Local variables of which `names` has every occurrence. One with two underscores may be mangled."""
        own = self.locals - self.parameters - self.entangled
        return frozenset(name for name in own if not name.startswith("__"))


def scope_of(function: Function) -> Scope:
    """Analyse one function."""
    visitor = _Visitor()
    arguments = list(_arguments(function.args))
    for statement in function.body:
        visitor.visit(statement)
    return Scope(
        function,
        frozenset(argument.arg for argument in arguments),
        dict(visitor.names),
        frozenset(visitor.locals),
        frozenset(visitor.entangled),
        frozenset(visitor.nested),
        frozenset(visitor.mentions) | frozenset(visitor.names),
    )


def blocks(owner: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements in a scope or a statement, those of nested definitions not included."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(owner, field, None)
        if isinstance(block, list) and block:
            yield block
            for statement in block:
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from blocks(statement)
    for part in (*getattr(owner, "handlers", ()), *getattr(owner, "cases", ())):
        yield from blocks(part)


def sure_names(scope: Scope, parents: dict[ast.AST, ast.AST], statement: ast.stmt) -> frozenset[str]:
    """Names that are certainly bound when a statement of the function itself begins.

    Parameters, and what an earlier statement of its block, or of a block around it, has assigned.
    """
    found = set(scope.parameters)
    node: ast.AST = statement
    while node is not scope.function:
        parent = parents[node]
        if isinstance(parent, ast.For | ast.AsyncFor) and node in parent.body:
            found.update(_plain(parent.target))
        for block in _blocks_of(parent):
            if node in block:
                for earlier in block[: block.index(node)]:
                    found.update(_assigned(earlier))
        node = parent
    return frozenset(found) - scope.entangled


def pure(value: ast.expr, sure: frozenset[str]) -> bool:
    """Whether evaluating it runs nobody's code and cannot fail: constants, bound names, displays of them."""
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Name):
        return value.id in sure
    if isinstance(value, ast.Tuple | ast.List):
        return all(pure(element, sure) for element in value.elts)
    if isinstance(value, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in value.keys) and all(
            pure(element, sure) for element in value.values
        )
    if (
        isinstance(value, ast.UnaryOp)
        and isinstance(value.op, ast.USub)
        and isinstance(value.operand, ast.Constant)
    ):
        return type(value.operand.value) in (int, float)
    return False


def reads(value: ast.expr) -> frozenset[str]:
    """The plain names in an expression."""
    return frozenset(node.id for node in ast.walk(value) if isinstance(node, ast.Name))


class _Visitor(ast.NodeVisitor):
    """Walks a function's body and notes which names belong to it and which do not."""

    def __init__(self) -> None:
        self.names: defaultdict[str, list[ast.Name]] = defaultdict(list)
        self.locals: set[str] = set()
        self.entangled: set[str] = set()
        self.nested: set[str] = set()
        self.mentions: set[str] = set()
        self.depth = 0

    def visit_Name(self, node: ast.Name) -> None:
        self.names[node.id].append(node)
        if self.depth:
            self.nested.add(node.id)
        if isinstance(node.ctx, ast.Del) or (self.depth and isinstance(node.ctx, ast.Store)):
            self.entangled.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.locals.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.mentions.add(node.attr)
        self.visit(node.value)

    def visit_FunctionDef(self, node: Function) -> None:
        self.entangled.add(node.name)
        self._visit_all(node.decorator_list)
        self._visit_arguments(node.args)
        self._visit_all([node.returns])
        self._visit_nested(node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_arguments(node.args)
        self._visit_nested([node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.entangled.add(node.name)
        self._visit_all(node.decorator_list)
        self._visit_all(node.bases)
        self._visit_all(node.keywords)
        self._visit_nested(node.body)

    def visit_ListComp(self, node: Comprehension) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        inner: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner += [first.target, *first.ifs, *node.generators[1:]]
        self._visit_nested(inner)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self.visit_ListComp(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self.visit_ListComp(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self.visit_ListComp(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.entangled.add(node.asname or node.name.split(".")[0])

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.entangled.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.visit_Global(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.visit_MatchAs(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._bind(node.rest)
        self.generic_visit(node)

    def _bind(self, name: str | None) -> None:
        if name is not None:
            self.entangled.add(name)

    def _visit_arguments(self, arguments: ast.arguments) -> None:
        for argument in _arguments(arguments):
            self.entangled.add(argument.arg)
            self._visit_all([argument.annotation])
        self._visit_all(arguments.defaults)
        self._visit_all(arguments.kw_defaults)

    def _visit_nested(self, nodes: Sequence[ast.AST]) -> None:
        self.depth += 1
        self._visit_all(nodes)
        self.depth -= 1

    def _visit_all(self, nodes: Sequence[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None)


def _blocks_of(owner: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(owner, field, None)
        if isinstance(block, list):
            yield block


def _plain(target: ast.expr) -> frozenset[str]:
    if isinstance(target, ast.Name):
        return frozenset({target.id})
    if isinstance(target, ast.Tuple | ast.List):
        return frozenset().union(*(_plain(element) for element in target.elts))
    return frozenset()


def _assigned(statement: ast.stmt) -> frozenset[str]:
    if isinstance(statement, ast.Assign):
        return frozenset().union(*(_plain(target) for target in statement.targets))
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return _plain(statement.target)
    return frozenset()
