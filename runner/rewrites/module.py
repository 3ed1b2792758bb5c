"""A module under refactoring: its tree, its text, and what may be known of its names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from runner.rewrites.rewrite import Change, Edit
from runner.rewrites.scopes import SPIES, Function, Scope, blocks, scope_of
from runner.rewrites.text import Placed, Text


class Module:
    """One module's source, parsed once for all refactorings.

    Raises:
        SyntaxError: it is not a module.
    """

    def __init__(self, source: str) -> None:
        self.text = Text(source)
        self.tree = ast.parse(source)
        self.parents: dict[ast.AST, ast.AST] = {
            child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)
        }

    @cached_property
    def untouchable(self) -> frozenset[ast.AST]:
        """Nodes in f-strings, where Python 3.11 gives wrong positions, and in annotations, kept as text."""
        roots: list[ast.AST] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr):
                roots += node.values
            for field in ("annotation", "returns"):
                annotation = getattr(node, field, None)
                if annotation is not None:
                    roots.append(annotation)
        return frozenset(node for root in roots for node in ast.walk(root))

    @cached_property
    def scopes(self) -> list[Scope]:
        """Of all functions, in the order of the text."""
        functions = [
            node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return [
            scope_of(function)
            for function in sorted(functions, key=lambda node: (node.lineno, node.col_offset))
        ]

    @cached_property
    def open_scopes(self) -> list[Scope]:
        """Of functions whose local variables nobody looks at.

        Left out is who mentions one of SPIES, or, by name, a function of the module that is left out.
        """
        closed = set(SPIES)
        while (
            spying := {self._called(scope.function) for scope in self.scopes if scope.mentions & closed}
            - closed
        ):
            closed |= spying
        return [scope for scope in self.scopes if not scope.mentions & closed]

    def nodes(self) -> Iterator[ast.AST]:
        """All that may be edited, in the order of the text."""
        placed = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.expr | ast.stmt) and node not in self.untouchable
        ]
        yield from sorted(placed, key=lambda node: (node.lineno, node.col_offset))

    def all_blocks(self) -> Iterator[list[ast.stmt]]:
        """All lists of statements: the module's, its classes' and its functions'."""
        for node in (self.tree, *self.nodes()):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from blocks(node)

    def fresh(self, base: str) -> str:
        """A name like `base` that is no word of the source. No base is a builtin."""
        name, number = base, 1
        while name in self._words:
            number += 1
            name = f"{base}_{number}"
        return name

    def change(self, node: Placed, edits: list[Edit], note: str) -> Change:
        """A change that begins at a node."""
        return Change(node.lineno, node.col_offset, self._home(node), tuple(edits), note)

    def enclosing(self, node: ast.AST, *kinds: type[ast.AST], within: Function) -> bool:
        """Whether a node of one of these kinds is around a node, in its function."""
        while node is not within:
            node = self.parents[node]
            if isinstance(node, kinds):
                return True
        return False

    def _called(self, function: Function) -> str:
        """What a caller says: the function's name, the class's for __init__ and other methods like it."""
        parent = self.parents[function]
        return (
            parent.name
            if isinstance(parent, ast.ClassDef) and function.name.startswith("__")
            else function.name
        )

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(re.findall(r"\w+", self.text.source))

    def _home(self, node: ast.AST) -> int:
        path: list[ast.AST] = [node]
        while (parent := self.parents.get(path[-1])) is not None:
            path.append(parent)
        inner = next(
            step for step in reversed(path) if not isinstance(step, ast.Module | ast.ClassDef) or step is node
        )
        return getattr(inner, "lineno", 0)
