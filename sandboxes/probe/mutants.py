"""The mutants of a module: which there are, and the code of each.

Enumerated from the text by the target's own Python, in the order of the tree, the same
for the same text: an operator, the place of the node it changes, and which of that node's
replacements it takes give a mutant its id.
"""

import ast
import contextlib
import copy
import random
import warnings
from types import CodeType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .operators import OPERATORS, Replacement, constant, literal

Step = Tuple[str, Optional[int]]
Path = Tuple[Step, ...]
"""From the module's root to a node: field by field, with the place in a list."""

_BY_NAME = {operator.name: operator for operator in OPERATORS}
MARK = "corridor: the changed statement is reached"
_SHOWN = 120
"""Characters of a mutant's texts that are kept."""


class Mutant(NamedTuple):
    """One small change."""

    id: str
    """operator:line:column:number, stable for a text."""
    operator: str
    line: int
    end_line: int
    scope: str
    """Dotted name of the innermost function or class that holds the change; '' for the module."""
    original: str
    replacement: str
    path: Path
    number: int
    """Which replacement of the operator, at this node."""


def enumerate_mutants(source: str) -> List[Mutant]:
    """All of a module's mutants. Raises SyntaxError, ValueError for a text that is no module."""
    tree = ast.parse(source)
    seen: Dict[str, int] = {}
    found = []
    for node, path, scope, line, column in _walk(tree):
        for operator in OPERATORS:
            for number, replacement in enumerate(operator.mutate(node)):
                place = "%s:%d:%d" % (operator.name, line, column)
                seen[place] = seen.get(place, -1) + 1
                found.append(
                    Mutant(
                        id="%s:%d" % (place, seen[place]),
                        operator=operator.name,
                        line=line,
                        end_line=_end(node, line),
                        scope=scope,
                        original=text_of(node),
                        replacement=text_of(replacement),
                        path=path,
                        number=number,
                    )
                )
    return found


def sample(workshop: "Workshop", size: int, seed: str) -> List[Mutant]:
    """A fixed draw without repetition from the mutants that compile, in the order of the module."""
    mutants = enumerate_mutants(workshop.source)
    order = list(range(len(mutants)))
    random.Random(seed).shuffle(order)
    drawn: List[int] = []
    for index in order:
        if len(drawn) == size:
            break
        if workshop.valid(mutants[index]):
            drawn.append(index)
    return [mutants[index] for index in sorted(drawn)]


class Workshop:
    """One module's tree, in which mutants are made and undone one after the other.

    Before the statement that a mutant changes stands a mark, a call of the text MARK: who
    runs the code puts something callable in its place, and knows whether it was reached.
    """

    def __init__(self, name: str, source: str, file: str) -> None:
        """Of the module of that dotted name. Raises SyntaxError, ValueError for a text that is no module."""
        self.name = name
        self.file = file
        self.source = source
        self.tree = ast.parse(source)
        self._futures = [
            node
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        ]

    def original(self) -> CodeType:
        """The whole module's code, unchanged."""
        code: CodeType = compile(self.source, self.file, "exec", dont_inherit=True)
        return code

    def module(self, mutant: Mutant) -> CodeType:
        """The whole module's code with the change. Raises SyntaxError, ValueError: the mutant is invalid."""
        with self._changed(mutant):
            return self._compile(self.tree.body)

    def text(self, mutant: Mutant) -> Optional[str]:
        """The module's text with the one change, written anew; None before Python 3.9, which cannot."""
        if not hasattr(ast, "unparse"):
            return None
        with self._changed(mutant, marked=False):
            return str(ast.unparse(self.tree))

    def valid(self, mutant: Mutant) -> bool:
        """Whether it compiles."""
        place = mutant.path[0][1] if mutant.path else None
        with self._changed(mutant, marked=False):
            try:
                self._compile(self.tree.body if place is None else [*self._futures, self.tree.body[place]])
            except (SyntaxError, ValueError):
                return False
        return True

    def in_function(self, mutant: Mutant) -> bool:
        """Whether only calls of some function run the change, not the definition of anything."""
        return self._outermost(mutant) is not None

    def lines(self, mutant: Mutant) -> Set[int]:
        """Where the statement that it changes begins: its first line, its decorators', the change's own."""
        node: Any = self.tree
        found = {mutant.line}
        for name, place in mutant.path:
            node = _get(node, name, place)
            if isinstance(node, (ast.stmt, ast.ExceptHandler)):
                found = {mutant.line, _first_line(node), node.lineno}
        return found

    def definition(self, mutant: Mutant) -> Optional[Tuple[CodeType, int]]:
        """(code of a module that holds only the outermost function with the change, its first line).

        Classes around it are kept without their other members, so that names are mangled and
        `__class__` is a cell as before. None when the change is in no function's body. Raises
        SyntaxError, ValueError: the mutant is invalid.
        """
        found = self._outermost(mutant)
        if found is None:
            return None
        node, classes = found
        with self._changed(mutant):
            kept: ast.stmt = _bare(node)
            for outer in reversed(classes):
                kept = _bare(outer, [kept])
            return self._compile([*self._futures, kept]), _first_line(node)

    def _outermost(self, mutant: Mutant) -> Optional[Tuple[Any, List[Any]]]:
        """(the outermost function whose body holds the change, the classes around it)."""
        classes: List[Any] = []
        node: Any = self.tree
        for name, place in mutant.path:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return (node, classes) if name == "body" else None
            if name not in ("body", "orelse", "finalbody", "handlers") or place is None:
                return None  # a decorator, a default, a condition around: runs where it is defined
            node = _get(node, name, place)
            if isinstance(node, ast.ClassDef):
                classes.append(node)
        return None

    @contextlib.contextmanager
    def _changed(self, mutant: Mutant, marked: bool = True) -> Iterator[None]:
        parent: Any = self.tree
        block: Optional[Tuple[List[Any], int]] = None
        for name, place in mutant.path[:-1]:
            block = _block(parent, name, place) or block
            parent = _get(parent, name, place)
        name, place = mutant.path[-1]
        block = _block(parent, name, place) or block
        node = _get(parent, name, place)
        replacement: Any = _BY_NAME[mutant.operator].mutate(node)[mutant.number]
        _locate(replacement, node)
        mark = _mark(mutant.line)
        if marked and isinstance(replacement, ast.ExceptHandler):
            replacement.body = [mark, *replacement.body]
            block = None
        _put(parent, name, place, replacement)
        if marked and block is not None:
            block[0].insert(block[1], mark)
        try:
            yield
        finally:
            if marked and block is not None:
                del block[0][block[1]]
            _put(parent, name, place, node)

    def _compile(self, body: List[ast.stmt]) -> CodeType:
        module = copy.copy(self.tree)
        module.body = body
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a text is not callable: the mark will not stay a text
            code: CodeType = compile(module, self.file, "exec", dont_inherit=True)
        return code


def _mark(line: int) -> ast.Expr:
    mark = ast.Expr(value=ast.Call(func=literal(MARK), args=[], keywords=[]))
    for part in ast.walk(mark):
        if "lineno" in part._attributes:
            part.lineno = part.end_lineno = line  # type: ignore[attr-defined]  # it has them
            part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]  # it has them
    return mark


def _block(parent: Any, name: str, place: Optional[int]) -> Optional[Tuple[List[Any], int]]:
    """The list of statements that this step leads into, and where."""
    if place is None or name not in ("body", "orelse", "finalbody"):
        return None
    statements = getattr(parent, name)
    return (statements, place) if isinstance(statements[place], ast.stmt) else None


def _get(parent: Any, name: str, place: Optional[int]) -> Any:
    return getattr(parent, name) if place is None else getattr(parent, name)[place]


def _first_line(node: Any) -> int:
    return min([int(node.lineno)] + [int(one.lineno) for one in getattr(node, "decorator_list", [])])


def _put(parent: Any, name: str, place: Optional[int], node: ast.AST) -> None:
    if place is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[place] = node


def _bare(node: Any, body: Optional[List[ast.stmt]] = None) -> Any:
    """A definition that runs nothing where it is defined: no decorators, bases, defaults, annotations."""
    bare = copy.copy(node)
    bare.decorator_list = []
    if isinstance(node, ast.ClassDef):
        bare.bases, bare.keywords, bare.body = [], [], body
    return bare


def text_of(node: Replacement) -> str:
    """A node as source text, where this Python can write it; else as its tree, short."""
    if node is None:
        return ""
    if hasattr(ast, "unparse"):
        try:
            ready = ast.fix_missing_locations(node) if not hasattr(node, "lineno") else node
            return str(ast.unparse(ready))[:_SHOWN]
        except (AttributeError, ValueError, RecursionError):
            pass  # a node that is no program of its own: an `arguments`, a `comprehension`
    return ast.dump(node, annotate_fields=False)[:_SHOWN]


def _walk(tree: ast.Module) -> Iterator[Tuple[ast.AST, Path, str, int, int]]:
    """(node, path, scope, line, column) of every node that may be changed, parents first."""
    stack: List[Tuple[ast.AST, Path, str, int, int]] = [(tree, (), "", 1, 0)]
    while stack:
        node, path, scope, line, column = stack.pop()
        line, column = getattr(node, "lineno", line), getattr(node, "col_offset", column)
        yield node, path, scope, line, column
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope = "%s.%s" % (scope, node.name) if scope else node.name
        children = [
            (child, path + (step,), scope, line, column)
            for child, step in _children(node)
            if not _hands_off(node, child, step)
        ]
        stack.extend(reversed(children))


def _children(node: ast.AST) -> Iterator[Tuple[ast.AST, Step]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield value, (name, None)
        elif isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield item, (name, place)


def _hands_off(parent: ast.AST, child: ast.AST, step: Step) -> bool:
    """Whether a change here would change no behaviour that a test could see, or belongs to the parent."""
    name, place = step
    if name in ("annotation", "returns", "type_comment", "type_params"):
        return True
    if isinstance(parent, ast.JoinedStr) and constant(child)[0]:
        return True
    if name == "format_spec":
        return True
    return (
        name == "body"
        and place == 0
        and isinstance(parent, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and isinstance(child, ast.Expr)
        and isinstance(constant(child.value)[1], str)
    )


def _end(node: ast.AST, line: int) -> int:
    """The last line of a node; of a block, that of its head, which is all that a change there touches."""
    end = getattr(node, "end_lineno", None) or line
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        return max(line, min(end, body[0].lineno - 1))
    return int(end)


def _locate(replacement: ast.AST, node: ast.AST) -> None:
    """Give every new node a position: that of the node it replaces."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    for part in ast.walk(replacement):
        if "lineno" in part._attributes:
            if not hasattr(part, "lineno"):
                part.lineno, part.col_offset = line, column  # type: ignore[attr-defined]  # it has them
            if "end_lineno" in part._attributes and getattr(part, "end_lineno", None) is None:
                part.end_lineno, part.end_col_offset = part.lineno, part.col_offset  # type: ignore[attr-defined]
