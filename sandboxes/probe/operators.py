"""Mutation operators: each says what it turns a node into, and carries samples of it.

An operator's `mutate` takes a node of a module's tree and returns its replacements, each a
new node (or None: the node is taken out of its list). It must not change the node itself.
Nodes are made by hand where older Pythons spell them differently.
"""

import ast
import copy
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type

Replacement = Optional[ast.AST]

OLD_CONSTANTS = sys.version_info < (3, 8)
"""Numbers, strings and names of constants have node classes of their own."""


class Operator(NamedTuple):
    """One way to make a program slightly wrong."""

    name: str
    mutate: Callable[[ast.AST], List[Replacement]]
    samples: Tuple[Tuple[str, Tuple[str, ...]], ...]
    """(program, what it may become), each replacement once, in order."""


def constant(node: Optional[ast.AST]) -> Tuple[bool, Any]:
    """(is it a literal, its value), whatever this Python calls it."""
    if OLD_CONSTANTS:
        kind = type(node).__name__
        if kind == "Num":
            return True, node.n  # type: ignore[union-attr]  # Python 3.7's Num
        if kind in ("Str", "Bytes"):
            return True, node.s  # type: ignore[union-attr]  # Python 3.7's Str, Bytes
        if kind == "NameConstant":
            return True, node.value  # type: ignore[union-attr]  # Python 3.7's NameConstant
        return False, None
    if isinstance(node, ast.Constant):
        return True, node.value
    return False, None


def literal(value: Any) -> ast.expr:
    """A literal's node."""
    if OLD_CONSTANTS:
        made: ast.expr = ast.parse(repr(value), mode="eval").body
        return made
    return ast.Constant(value=value, kind=None)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(op=ast.Not(), operand=test)


_ARITHMETIC: Dict[Type[ast.operator], Type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
}

_BITWISE: Dict[Type[ast.operator], Type[ast.operator]] = {
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

_COMPARISON: Dict[Type[ast.cmpop], Tuple[Type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""The neighbour over the boundary, and the opposite."""


def _swapped(table: Dict[Any, Any]) -> Callable[[ast.AST], List[Replacement]]:
    def mutate(node: ast.AST) -> List[Replacement]:
        if not isinstance(node, (ast.BinOp, ast.AugAssign)):
            return []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            is_literal, value = constant(node.left)
            if is_literal and isinstance(value, (str, bytes)):
                return []  # formatting: the string operator changes it
        other = table.get(type(node.op))
        return [_with(node, op=other())] if other else []

    return mutate


def _comparison(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.Compare):
        return []
    made: List[Replacement] = []
    for place, op in enumerate(node.ops):
        for other in _COMPARISON[type(op)]:
            made.append(_with(node, ops=node.ops[:place] + [other()] + node.ops[place + 1 :]))
    return made


def _connective(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.BoolOp):
        return []
    return [_with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())]


def _negation(node: ast.AST) -> List[Replacement]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return [_with(node, test=_negated(node.test))] if _worth_negating(node.test) else []
    if isinstance(node, ast.comprehension):
        return [
            _with(node, ifs=node.ifs[:place] + [_negated(test)] + node.ifs[place + 1 :])
            for place, test in enumerate(node.ifs)
            if _worth_negating(test)
        ]
    return []


def _worth_negating(test: ast.expr) -> bool:
    """Whether no other operator makes the very same program."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return False
    return not isinstance(constant(test)[1], bool)


def _unary(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.UnaryOp):
        return []
    return [node.operand]


def _number(node: ast.AST) -> List[Replacement]:
    is_literal, value = constant(node)
    if not is_literal or isinstance(value, bool) or not isinstance(value, (int, float)):
        return []
    return [literal(value + 1)]


def _string(node: ast.AST) -> List[Replacement]:
    is_literal, value = constant(node)
    if not is_literal or not isinstance(value, (str, bytes)):
        return []
    mark: Any = "XX" if isinstance(value, str) else b"XX"
    return [literal(mark + value + mark if value else mark)]


def _boolean(node: ast.AST) -> List[Replacement]:
    is_literal, value = constant(node)
    return [literal(not value)] if is_literal and isinstance(value, bool) else []


def _none(node: ast.AST) -> List[Replacement]:
    is_literal, value = constant(node)
    return [literal(0)] if is_literal and value is None else []


def _returned(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.Return) or node.value is None or constant(node.value) == (True, None):
        return []
    return [_with(node, value=literal(None))]


def _default(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.arguments):
        return []
    made: List[Replacement] = []
    for name in ("defaults", "kw_defaults"):
        values = getattr(node, name)
        for place, value in enumerate(values):
            if value is not None and constant(value) != (True, None):
                made.append(_with(node, **{name: values[:place] + [literal(None)] + values[place + 1 :]}))
    return made


def _keyword(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.Call):
        return []
    return [
        _with(node, keywords=node.keywords[:place] + node.keywords[place + 1 :])
        for place, one in enumerate(node.keywords)
        if one.arg is not None
    ]


def _deleted(node: ast.AST) -> List[Replacement]:
    kinds = (ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Assert)
    if isinstance(node, kinds):
        return [ast.Pass()]
    if isinstance(node, ast.Expr) and not constant(node.value)[0]:
        return [ast.Pass()]
    return []


def _handler(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.ExceptHandler):
        return []
    only = node.body[0] if len(node.body) == 1 else None
    if isinstance(only, ast.Raise):
        return []  # deleting that statement is the other way round
    return [_with(node, body=[ast.Raise(exc=None, cause=None)])]


def _jump(node: ast.AST) -> List[Replacement]:
    if isinstance(node, ast.Break):
        return [ast.Continue()]
    return [ast.Break()] if isinstance(node, ast.Continue) else []


def _slice(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.Slice):
        return []
    return [
        _with(node, **{name: None}) for name in ("lower", "upper", "step") if getattr(node, name) is not None
    ]


def _decorator(node: ast.AST) -> List[Replacement]:
    decorators = getattr(node, "decorator_list", [])
    return [
        _with(node, decorator_list=decorators[:place] + decorators[place + 1 :])
        for place in range(len(decorators))
    ]


def _format(node: ast.AST) -> List[Replacement]:
    if not isinstance(node, ast.JoinedStr):
        return []
    return [
        _with(node, values=node.values[:place] + node.values[place + 1 :])
        for place in range(len(node.values))
    ]


OPERATORS = (
    Operator(
        "arithmetic",
        _swapped(_ARITHMETIC),
        (
            ("a + b", ("a - b",)),
            ("a - b", ("a + b",)),
            ("a * b", ("a / b",)),
            ("a / b", ("a * b",)),
            ("a // b", ("a / b",)),
            ("a % b", ("a // b",)),
            ("a ** b", ("a * b",)),
            ("a @ b", ("a * b",)),
            ("a += b", ("a -= b",)),
            ("'%s' % b", ()),
        ),
    ),
    Operator(
        "bitwise",
        _swapped(_BITWISE),
        (
            ("a & b", ("a | b",)),
            ("a | b", ("a & b",)),
            ("a ^ b", ("a & b",)),
            ("a << b", ("a >> b",)),
            ("a >> b", ("a << b",)),
            ("a |= b", ("a &= b",)),
        ),
    ),
    Operator(
        "comparison",
        _comparison,
        (
            ("a < b", ("a <= b", "a >= b")),
            ("a <= b", ("a < b", "a > b")),
            ("a > b", ("a >= b", "a <= b")),
            ("a >= b", ("a > b", "a < b")),
            ("a == b", ("a != b",)),
            ("a != b", ("a == b",)),
            ("a is b", ("a is not b",)),
            ("a is not b", ("a is b",)),
            ("a in b", ("a not in b",)),
            ("a not in b", ("a in b",)),
            ("a == b == c", ("a != b == c", "a == b != c")),
        ),
    ),
    Operator("connective", _connective, (("a and b and c", ("a or b or c",)), ("a or b", ("a and b",)))),
    Operator(
        "negation",
        _negation,
        (
            ("if a: b()", ("if not a: b()",)),
            ("while a: b()", ("while not a: b()",)),
            ("a if b else c", ("a if not b else c",)),
            ("assert a", ("assert not a",)),
            ("[a for a in b if a]", ("[a for a in b if not a]",)),
            ("if a and b: c()", ("if not (a and b): c()",)),
            ("if a == b: c()", ()),
            ("if not a: b()", ()),
            ("while True: b()", ()),
        ),
    ),
    Operator("unary", _unary, (("-a", ("a",)), ("+a", ("a",)), ("~a", ("a",)), ("not a", ("a",)))),
    Operator("number", _number, (("1", ("2",)), ("0", ("1",)), ("2.5", ("3.5",)), ("True", ()))),
    Operator(
        "string",
        _string,
        (
            ("a = 'b'", ("a = 'XXbXX'",)),
            ("a = ''", ("a = 'XX'",)),
            ("a = b'b'", ("a = b'XXbXX'",)),
            ("'doc'", ()),
        ),
    ),
    Operator("boolean", _boolean, (("True", ("False",)), ("False", ("True",)), ("None", ()))),
    Operator("none", _none, (("None", ("0",)), ("False", ()))),
    Operator(
        "return",
        _returned,
        (
            ("def f(): return a", ("def f(): return None",)),
            ("def f(): return", ()),
            ("def f(): return None", ()),
        ),
    ),
    Operator(
        "default",
        _default,
        (
            ("def f(a, b=c): pass", ("def f(a, b=None): pass",)),
            ("def f(*, a, b=1): pass", ("def f(*, a, b=None): pass",)),
            ("def f(a=None): pass", ()),
            ("lambda a=b: a", ("lambda a=None: a",)),
        ),
    ),
    Operator("keyword", _keyword, (("f(a, b=c, d=e)", ("f(a, d=e)", "f(a, b=c)")), ("f(**a)", ()))),
    Operator(
        "statement",
        _deleted,
        (
            ("a = b", ("pass",)),
            ("a += b", ("pass",)),
            ("f()", ("pass",)),
            ("del a", ("pass",)),
            ("raise a", ("pass",)),
            ("assert a", ("pass",)),
            ("'text'", ()),
        ),
    ),
    Operator(
        "handler",
        _handler,
        (
            ("try: a()\nexcept B: c()", ("try: a()\nexcept B: raise",)),
            ("try: a()\nexcept B: raise", ()),
        ),
    ),
    Operator(
        "jump",
        _jump,
        (
            ("while a: break", ("while a: continue",)),
            ("while a: continue", ("while a: break",)),
        ),
    ),
    Operator("slice", _slice, (("a[b:c]", ("a[:c]", "a[b:]")), ("a[::b]", ("a[:]",)), ("a[:]", ()))),
    Operator(
        "decorator",
        _decorator,
        (
            ("@a\n@b\ndef f(): pass", ("@b\ndef f(): pass", "@a\ndef f(): pass")),
            ("@a\nclass B: pass", ("class B: pass",)),
        ),
    ),
    Operator("format", _format, (("f'{a}b{c}'", ("f'b{c}'", "f'{a}{c}'", "f'{a}b'")),)),
)
