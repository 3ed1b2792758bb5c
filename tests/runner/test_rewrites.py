"""Rewrites that keep behaviour: what each kind does, where it must not, and that real suites accept them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.rewrites.preserving import REFACTORINGS, preserving
from runner.rewrites.rewrite import Change, Edit, Label, Rewrite, apply_text

LIB = Path(ast.__file__).parent

SAMPLES = {
    "rename_local": [
        (
            "def f(a):\n    x = a  # x\n    return [x for a in x], lambda: x",
            "def f(a):\n    local_x = a  # x\n    return [local_x for a in local_x], lambda: local_x",
        ),
        (
            "def f():\n    for é, x in g(x=1):\n        é.x(x, 'x')",
            "def f():\n    for é, local_x in g(x=1):\n        é.x(local_x, 'x')",
        ),
        (
            "def f():\n    class A:\n        y = x\n    x = local_x",
            "def f():\n    class A:\n        y = local_x_2\n    local_x_2 = local_x",
        ),
    ],
    "swap_statements": [
        (
            "def f(p):\n    a = 1  # one\n    # between\n    b = (p, -2)\n    return a, b",
            "def f(p):\n    b = (p, -2)\n    # between\n    a = 1  # one\n    return a, b",
        ),
        (
            "def f():\n    for i in g():\n        a = i\n        b: list = []",
            "def f():\n    for i in g():\n        b: list = []\n        a = i",
        ),
    ],
    "reorder_keywords": [
        (
            "def f(p, a, b): ...\ndef g(x):\n    f(h(), a=x, b=(\n        1))",
            "def f(p, a, b): ...\ndef g(x):\n    f(h(), b=(\n        1), a=x)",
        ),
    ],
    "invert_if": [
        (
            "if a:\n    b()  # c\n    d()\nelse:\n    e()",
            "if not a:\n    e()\nelse:\n    b()  # c\n    d()",
        ),
        (
            "def f():\n    if (not a and\n        b  # x: y\n    ):\n"
            "        s = '''\n'''\n    else:  # else\n        t()\n",
            "def f():\n    if (not (not a and\n        b)  # x: y\n"
            "    ):\n        t()\n    else:  # else\n        s = '''\n'''\n",
        ),
        (
            "if a: b()\nelif not (c or d):\n    e()\nelse:\n    f()",
            "if a: b()\nelif (c or d):\n    f()\nelse:\n    e()",
        ),
    ],
    "invert_conditional": [
        ("x = a if c else b, d", "x = b if not c else a, d"),
        ("f('1'if not c else(lambda: 2))", "f((lambda: 2)if c else('1'))"),
        ("f(a if c else'1')", "f('1' if not c else a)"),
        ("f('1'if(not c)else d)", "f(d if(c)else '1')"),
        ('x = "é" if c or d else (a, b)', 'x = ((a, b)) if not (c or d) else "é"'),
    ],
    "split_conditional": [
        (
            "def f():\n    return a if c else b  # why",
            "def f():\n    if c:\n        return a\n    else:\n        return b  # why",
        ),
        ("x = (a or b if c\n     else d)", "if c:\n    x = a or b\nelse:\n    x = d"),
    ],
    "merge_returns": [
        (
            "def f():\n    if a:\n        return 1\n    return b or c\n",
            "def f():\n    return 1 if a else (b or c)\n",
        ),
        (
            "def f():\n    if a and d:\n        return 1, 2\n    else:\n        return b",
            "def f():\n    return (1, 2) if (a and d) else b",
        ),
        (
            "def f():\n    if a:\n        return (b\n            .c)\n    return d",
            "def f():\n    return (b\n            .c) if a else d",
        ),
    ],
    "drop_else": [
        (
            "def f():\n    if a:\n        return 1\n    elif b:\n        g()\n    else:\n        h()",
            "def f():\n    if a:\n        return 1\n    if b:\n        g()\n    else:\n        h()",
        ),
        (
            "def f():\n  if a:\n    raise b\n  # why\n  else:\n"
            "    s = '''\n    x\n    '''\n    return (s,\n            1)",
            "def f():\n  if a:\n    raise b\n  # why\n  s = '''\n    x\n    '''\n  return (s,\n          1)",
        ),
    ],
    "extract_return": [
        (
            "def f(result):\n    return (g() +\n            1)  # why\n",
            "def f(result):\n    result_2 = (g() +\n            1)  # why\n    return result_2\n",
        ),
    ],
    "extract_condition": [
        (
            "def f(a):\n    if (not g(a)):  # why\n        h()",
            "def f(a):\n    condition = (not g(a))\n    if (condition):  # why\n        h()",
        ),
        (
            "def f(a):\n    if a not in b:\n        h()\n    elif a in c:\n        i()",
            "def f(a):\n    condition = (a not in b)\n    if condition:\n"
            "        h()\n    elif a in c:\n        i()",
        ),
    ],
    "inline_temporary": [
        ("def f():\n    x = g(\n        1)\n    return x\n", "def f():\n    return g(\n        1)\n"),
        (
            "def f():\n    x = 0\n    for y in x:\n        x: int = (1, y)\n        return x\n",
            "def f():\n    x = 0\n    for y in x:\n        return (1, y)\n",
        ),
    ],
    "edit_docstring": [
        ('def f():\n    """What."""', 'def f():\n    """What. See also the module."""'),
        (
            "class A:\n    def f(self):\n        r'It\\s'",
            "class A:\n    def f(self):\n        r'It\\s See also the module.'",
        ),
    ],
    "drop_annotation": [
        ("def f():\n    x: dict[str, int] = {}", "def f():\n    x = {}"),
        ("def f(a):\n    a.b : int = 1", "def f(a):\n    a.b = 1"),
    ],
    "expand_augmented": [
        (
            "def f():\n    n = 0\n    while g():\n        n += (1)\n    return n",
            "def f():\n    n = 0\n    while g():\n        n = n + (1)\n    return n",
        ),
        ("def f():\n    s = ''\n    s += f'{g()}'", "def f():\n    s = ''\n    s = s + f'{g()}'"),
    ],
    "respell_negation": [
        ("return_ = a if b.c is  not d else e", "return_ = a if (not b.c is d) else e"),
        ("x = (a or b)not in(c)", "x = (not (a or b)in(c))"),
    ],
    "swap_identity": [
        ("x = a is None", "x = None is a"),
        ("x = (a or b) is not True", "x = (True) is not (a or b)"),
    ],
    "explicit_none": [
        ("def f():\n    return  # why", "def f():\n    return None  # why"),
        ("def f():\n    yield\n    if a: return", "def f():\n    yield\n    if a: return None"),
    ],
    "split_import": [
        ("import a.b as c, d, e  # why", "import a.b as c\nimport d, e  # why"),
        (
            "def f():\n    from ..m import (\n        a,\n        b as c,\n    )",
            "def f():\n    from ..m import a\n    from ..m import b as c",
        ),
    ],
}
"""Of each kind: sources, and what becomes of the first place that it takes."""

UNTOUCHED = {
    "rename_local": {
        "a parameter, perhaps passed by keyword": "def f(x):\n    x = 1",
        "locals() shows it": "def f():\n    x = 1\n    return locals()",
        "locals() of a nested function shows it": (
            "def f():\n    x = 1\n    def g():\n        x\n        eval('x')"
        ),
        "a function of the module looks at its caller": (
            "def f():\n    x = 1\n    h()\ndef h():\n    return g()\ndef g():\n    return sys._getframe(2)"
        ),
        "a class of the module looks at its caller": (
            "class A:\n    def __init__(self):\n        self.a = inspect.stack()\ndef f():\n    x = A()"
        ),
        "a global": "def f():\n    global x\n    x = 1",
        "bound by a nested function": "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2",
        "another in a nested function": "def f():\n    x = 1\n    def g(x):\n        return x",
        "another in a comprehension": "def f():\n    x = 1\n    return [x for x in y]",
        "another in a nested class": "def f():\n    x = 1\n    class A:\n        x = x",
        "bound within a comprehension": "def f():\n    x = 1\n    return [(x := y) for y in z]",
        "deleted": "def f():\n    x = 1\n    del x",
        "also an import": "def f():\n    x = 1\n    import x",
        "also a function": "def f():\n    x = 1\n    def x(): ...",
        "also an exception": "def f():\n    x = 1\n    try: ...\n    except E as x: ...",
        "also a capture": "def f():\n    x = 1\n    match y:\n        case [x, *z]: ...",
        "also the rest of a mapping": "def f():\n    x = 1\n    match y:\n        case {**x}: ...",
        "in an f-string, where positions are wrong": "def f():\n    x = 1\n    return f'{x=}'",
        "in an annotation, kept as text": (
            "from __future__ import annotations\ndef f():\n    x = 1\n    def g(a: x): ..."
        ),
        "mangled": "class A:\n    def f(self):\n        __x = 1",
    },
    "swap_statements": {
        "the second reads the first": "def f(a):\n    a = 1\n    b = a",
        "the first reads the second": "def f(b):\n    a = b\n    b = 1",
        "the same name": "def f():\n    a = 1\n    a = 2",
        "a call": "def f():\n    a = 1\n    b = g()",
        "an attribute": "def f(x):\n    a = 1\n    b = x.y",
        "a global, perhaps missing": "def f():\n    a = 1\n    b = C",
        "a local, perhaps not bound": "def f():\n    if g():\n        c = 1\n    a = 1\n    b = c",
        "a local, bound later": "def f():\n    a = 1\n    b = c\n    c = 2",
        "a loop that perhaps never ran": (
            "def f():\n    for c in d: ...\n    else:\n        a = 1\n        b = c"
        ),
        "a parameter, perhaps deleted": (
            "def f(c):\n    for i in c:\n        a = 1\n        b = c\n        del c"
        ),
        "an item": "def f(c):\n    c[0] = 1\n    b = 2",
        "an attribute's setter": "def f(c):\n    c.a = 1\n    c.b = 2",
        "more targets": "def f(c):\n    a = c.a = 1\n    b = 2",
        "a class's namespace": "class A:\n    a = 1\n    b = 2",
        "globals": "def f():\n    global a\n    a = 1\n    b = 2",
        "other statements in the line": "def f():\n    a = 1; b = 2",
        "hashing a key": "def f(c):\n    a = 1\n    b = {c: 1}",
        "unpacking": "def f(c):\n    a = 1\n    b = (*c,)",
    },
    "reorder_keywords": {
        "**kwargs sees the order": "def f(**k): ...\nf(a=1, b=2)",
        "a function unknown": "g(a=1, b=2)",
        "a method": "def f(a, b): ...\nx.f(a=1, b=2)",
        "a decorated function": "@d\ndef f(a, b): ...\nf(a=1, b=2)",
        "defined twice": "def f(a, b): ...\ndef f(**k): ...\nf(a=1, b=2)",
        "shadowed": "def f(a, b): ...\ndef g(f):\n    f(a=1, b=2)",
        "perhaps imported": "def f(a, b): ...\nfrom m import f\nf(a=1, b=2)",
        "the first unexpected is in the message": "def f(): ...\nf(a=1, b=2)",
        "unpacked": "def f(a, b): ...\nf(a=1, **c)",
        "unpacked later": "def f(a, b, c): ...\nf(a=1, b=2, *d)",
        "a call": "def f(a, b): ...\nf(a=1, b=g())",
        "a global, perhaps missing": "def f(a, b): ...\nf(a=1, b=c)",
        "a variable of another scope": "def f(a, b): ...\ndef g(x):\n    return [f(a=x, b=1) for x in y]",
    },
    "invert_if": {
        "no else": "if a:\n    b",
        "elif": "if a:\n    b\nelif c:\n    d",
        "on one line": "if a: b\nelse:\n    c",
        "else on one line": "if a:\n    b\nelse: c",
        "an else of a loop": "for x in y:\n    if a:\n        b\nelse:\n    c",
    },
    "invert_conditional": {
        "in an f-string, where positions are wrong": "f'{a if b else c}'",
        "a comprehension's filter": "[a for a in b if c]",
    },
    "split_conditional": {
        "part of the value": "x = 1 + (a if b else c)",
        "two targets": "x = y = a if b else c",
        "a comment would be lost": "x = (a if b  # why\n  else c)",
        "not alone in its line": "if d: x = a if b else c",
        "an item, whose index is evaluated later": "x[i()] = a if b else c",
    },
    "merge_returns": {
        "a comment would be lost": "def f():\n    if a:\n        # why\n        return b\n    return c",
        "nothing follows": "def f():\n    if a:\n        return b",
        "nothing returned": "def f():\n    if a:\n        return\n    return c",
        "elif": "def f():\n    if x:\n        y\n    elif a:\n        return b\n    else:\n        return c",
        "more before": "def f():\n    if a:\n        g()\n        return b\n    return c",
        "something between": "def f():\n    if a:\n        return b\n    g()\n    return c",
    },
    "drop_else": {
        "the branch goes on": "if a:\n    b\nelse:\n    c",
        "leaves only sometimes": (
            "def f():\n    if a:\n        if b:\n            return\n    else:\n        c"
        ),
        "a branch before goes on": (
            "def f():\n    if a:\n        b\n    elif c:\n        return\n    else:\n        d"
        ),
        "a comment would be lost": "def f():\n    if a:\n        return\n    else:  # why\n        c",
    },
    "extract_return": {
        "a name": "def f():\n    return x",
        "a constant": "def f():\n    return 1",
        "nothing": "def f():\n    return",
        "more in its line": "def f():\n    return a(); b()",
        "locals() shows it": "def f():\n    return locals()",
        "not alone in its line": "def f():\n    if a: return b()",
        "a return of a lambda": "f = lambda: g()",
    },
    "extract_condition": {
        "truth asked later, and the value kept": "def f():\n    if a:\n        b",
        "a comparison may return anything": "def f():\n    if a == b:\n        c",
        "truth asked twice": "def f():\n    if not (a and b):\n        c",
        "truth asked twice of a chain": "def f():\n    if a in b in c:\n        d",
        "elif": "def f():\n    if a:\n        b\n    elif not c:\n        d",
        "while": "def f():\n    while not a:\n        b",
        "a module's name": "if not a:\n    b",
        "locals() shows it": "def f():\n    if not a:\n        locals()",
    },
    "inline_temporary": {
        "a handler reads it": (
            "def f():\n    x = 0\n    try:\n        x = g()\n        return x\n    finally:\n        h(x)"
        ),
        "a nested function reads it": "def f():\n    x = 0\n    x = lambda: x\n    return x",
        "global": "def f():\n    global x\n    x = 1\n    return x",
        "reads before would be of a global": "def f():\n    if g:\n        x\n    x = 1\n    return x",
        "another": "def f():\n    x = 1\n    return y",
        "more than it": "def f():\n    x = 1\n    return x.y",
        "a comment would be lost": "def f():\n    x = 1\n    return x  # why",
        "locals() shows it": "def f():\n    x = locals()\n    return x",
        "part of a tuple": "def f():\n    x, y = g()\n    return x",
        "also another's": "def f(a):\n    x = a.b = g()\n    return x",
        "yield needs parentheses": "def f():\n    x = yield\n    return x",
    },
    "edit_docstring": {
        "a decorator may read it": "@d\ndef f():\n    'What.'",
        "a base may read it": "class A(cmd.Cmd):\n    def do_a(self):\n        'What.'",
        "a class's": "class A:\n    'What.'",
        "a module's": "'What.'",
        "an example": "def f():\n    '''>>> 1\n    1'''",
        "the module reads it": "def f():\n    'What.'\nprint(f.__doc__)",
        "no docstring": "def f():\n    f'What.'",
        "in pieces": "def f():\n    'What' '.'",
        "escaped": "def f():\n    'What\\'s'",
    },
    "drop_annotation": {
        "a dataclass's": "class A:\n    x: int = 1",
        "a class's in a function": "def f():\n    class A:\n        x: int = 1",
        "a module's": "x: int = 1",
        "without it there would be no local": "def f():\n    x: int",
        "in parentheses": "def f():\n    x: (int) = 1\n    (y): int = 1",
        "a parameter's": "def f(x: int = 1): ...",
    },
    "expand_augmented": {
        "a list, changed in place": "def f():\n    x = []\n    x += [1]",
        "a parameter": "def f(x):\n    x += 1",
        "unknown": "def f():\n    x = g()\n    x += 1",
        "sometimes another": "def f():\n    x = 0\n    x += 1\n    for x in y: ...",
        "becomes another": "def f():\n    x = 0\n    x += g()",
        "the message of the error differs": "def f():\n    x = 0\n    x += 'a'",
        "of another function": (
            "def f():\n    x = 0\n    def g():\n        nonlocal x\n        x = []\n    x += 1"
        ),
        "a global": "def f():\n    global x\n    x = 0\n    x += 1",
        "an attribute": "def f(x):\n    x.y = 0\n    x.y += 1",
    },
    "respell_negation": {
        "__ne__ is not the opposite of __eq__": "a != b",
        "a chain": "a is not b is not c",
        "affirmed": "a is b",
        "in an f-string, where positions are wrong": "f'{a is not b}'",
        "in an annotation, kept as text": "def f(x: a is not b): ...",
    },
    "swap_identity": {
        "__eq__ of the other is asked": "a == None",
        "names, of which the second may fail": "a is b",
        "a chain": "a is b is None",
        "in an f-string, where positions are wrong": "f'{a is None}'",
    },
    "explicit_none": {
        "an asynchronous generator": "async def f():\n    yield\n    return",
        "explicit already": "def f():\n    return None",
    },
    "split_import": {
        "one name": "from a import b",
        "an order to the compiler": "from __future__ import annotations, division",
        "a comment would be lost": "from a import (b,  # why\n c)",
        "not alone in its line": "if a: import b, c",
        "star": "from a import *",
    },
}
"""Of each kind: why it must not, and where."""


def made(kind: str, source: str) -> list[Rewrite]:
    return [rewrite for rewrite in preserving(source, 1000, "any") if rewrite.kind == kind]


def shown(source: str) -> str:
    """What Python sees of a source: its AST, positions left out."""
    return ast.dump(ast.parse(source))


@pytest.mark.parametrize(
    ("kind", "before", "after"), [(kind, *sample) for kind, samples in SAMPLES.items() for sample in samples]
)
def test_samples(kind: str, before: str, after: str) -> None:
    rewrites = sorted(made(kind, before), key=lambda rewrite: rewrite.id)
    assert after in [rewrite.source for rewrite in rewrites]
    assert all(rewrite.label == "preserving" and rewrite.note for rewrite in rewrites)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param(kind, source, id=f"{kind}: {why}")
        for kind, sources in UNTOUCHED.items()
        for why, source in sources.items()
    ],
)
def test_not_offered(kind: str, source: str) -> None:
    compile(source, "sample", "exec")
    assert [rewrite.source for rewrite in made(kind, source)] == []


def test_every_kind_has_samples_of_both_sorts() -> None:
    assert SAMPLES.keys() == UNTOUCHED.keys() == REFACTORINGS.keys()


class TestRewrite:
    def test_a_label_of_neither_kind(self) -> None:
        with pytest.raises(ValueError, match="no such label"):
            Rewrite("drop_else:1:0:0", "drop_else", "unsure", 1, "", "")  # type: ignore[arg-type]  # the point

    @pytest.mark.parametrize(
        "name", ["drop_else", "drop_else:2:0:0", "swap_identity:1:0:0", "drop_else:1:0", "drop_else:1:0:0 "]
    )
    def test_an_id_of_something_else(self, name: str) -> None:
        with pytest.raises(ValueError, match="not an id"):
            Rewrite(name, "drop_else", "preserving", 1, "", "")

    def test_a_line_before_the_first(self) -> None:
        with pytest.raises(ValueError, match="count from 1"):
            Rewrite("drop_else:0:0:0", "drop_else", "preserving", 0, "", "")

    @pytest.mark.parametrize("label", ["changing", "preserving"])
    def test_both_labels(self, label: Label) -> None:
        assert Rewrite("drop_else:1:0:0", "drop_else", label, 1, "", "").label == label

    def test_a_change_of_nothing(self) -> None:
        with pytest.raises(ValueError, match="without edits"):
            Change(1, 0, 1, (), "")


class TestEdits:
    def test_in_whatever_order(self) -> None:
        assert apply_text("abcd", [Edit(3, 4, "D"), Edit(0, 1, ""), Edit(1, 1, "-")]) == "-bcD"

    def test_insertions_at_one_place_keep_their_order(self) -> None:
        assert apply_text("ab", [Edit(1, 1, "2"), Edit(1, 1, "1")]) == "a21b"

    @pytest.mark.parametrize("edits", [[Edit(0, 2, ""), Edit(1, 3, "")], [Edit(3, 5, "")], [Edit(2, 1, "")]])
    def test_overlap_and_outside(self, edits: list[Edit]) -> None:
        with pytest.raises(ValueError, match="an edit of"):
            apply_text("abcd", edits)

    @given(st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=4))
    def test_replaces_just_what_it_says(self, head: str, parts: list[tuple[str, str]]) -> None:
        source, expected, edits = head, head, []
        for kept, new in parts:
            edits.append(Edit(len(source), len(source) + len(kept), new))
            source, expected = source + kept + head, expected + new + head
        assert apply_text(source, edits) == expected


TWO_FUNCTIONS = (
    "def f(a):\n    x = a is None\n    return [x]\n\n\ndef g(a):\n    if not a:\n        return\n    y = 1\n"
)


def test_more_asked_for_begins_with_the_same() -> None:
    assert preserving(TWO_FUNCTIONS, 3, "a") == preserving(TWO_FUNCTIONS, 9, "a")[:3]


def test_the_seed_decides_which() -> None:
    source = (LIB / "textwrap.py").read_text()
    assert preserving(source, 40, "a") == preserving(source, 40, "a")
    drawn = [preserving(source, 150, seed) for seed in ("a", "b")]
    first = [{rewrite.id for rewrite in rewrites[:40]} for rewrites in drawn]
    composites = [{rewrite.id for rewrite in rewrites if rewrite.kind == "composite"} for rewrites in drawn]
    assert first[0] != first[1]
    assert composites[0] != composites[1]


def test_ids_do_not_depend_on_the_seed() -> None:
    every = [
        {rewrite.id: rewrite.source for rewrite in preserving(TWO_FUNCTIONS, 1000, seed)} for seed in "ab"
    ]
    assert every[0] == every[1]


def test_kinds_take_turns() -> None:
    rewrites = preserving((LIB / "argparse.py").read_text(), 60, "any")
    counts = Counter(rewrite.kind for rewrite in rewrites)
    most = max(counts.values())
    assert len(counts) >= 10
    assert sum(count >= most - 1 for count in counts.values()) >= 5


def test_a_module_of_1400_lines_has_200() -> None:
    rewrites = preserving((LIB / "configparser.py").read_text(), 200, "any")
    assert len({rewrite.source for rewrite in rewrites}) == 200


def test_composites_follow_when_singles_run_out() -> None:
    kinds = [rewrite.kind for rewrite in preserving(TWO_FUNCTIONS, 1000, "any")]
    assert len(preserving((LIB / "textwrap.py").read_text(), 400, "any")) == 400
    singles = kinds.index("composite")
    assert singles >= 5
    assert set(kinds[singles:]) == {"composite"}


def test_a_composite_is_of_different_functions() -> None:
    singles = {rewrite.note: rewrite.line for rewrite in preserving(TWO_FUNCTIONS, 1000, "any")}
    for rewrite in preserving(TWO_FUNCTIONS, 1000, "any"):
        if rewrite.kind == "composite":
            notes = [part.rpartition(" (line ")[0] for part in rewrite.note.split("; ")]
            assert sorted(singles[note] > 5 for note in notes) == [False, True]


def test_methods_of_a_class_are_different_functions() -> None:
    source = "class A:\n    def f(self):\n        a = self\n    def g(self):\n        return self + 1\n"
    kinds = [rewrite.kind for rewrite in preserving(source, 1000, "any")]
    assert kinds == ["rename_local", "extract_return", "composite"]


@pytest.mark.parametrize("source", ["", "x = 1\n", "'Docstring.'\n"])
def test_nothing_to_rewrite(source: str) -> None:
    assert preserving(source, 10, "any") == []


def test_a_negative_count() -> None:
    with pytest.raises(ValueError, match="-1"):
        preserving("", -1, "any")


def test_not_python() -> None:
    with pytest.raises(SyntaxError):
        preserving("def", 1, "any")


def test_lines_end_in_any_way() -> None:
    source = "def f(a):\n    '\x0c\u2028'\n    if a:\n        b = 'é'\n    else:\n        b = a is None\n"
    source = source.replace("\n", "\r\n")
    rewrites = {rewrite.kind: rewrite.source for rewrite in preserving(source, 1000, "any")}
    assert rewrites["invert_if"].splitlines()[-3:] == [
        "        b = a is None",
        "    else:",
        "        b = 'é'",
    ]
    assert "b = None is a" in rewrites["swap_identity"]


@pytest.mark.parametrize(
    "name", ["configparser", "difflib", "functools", "shlex", "textwrap", "http.cookies"]
)
def test_rewrites_of_real_modules(name: str) -> None:
    source = (LIB / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    rewrites = preserving(source, 20, "any")
    assert len(rewrites) == 20
    assert len({rewrite.source for rewrite in rewrites} | {source}) == 21
    assert len({rewrite.id for rewrite in rewrites}) == 20
    original = shown(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of the modules' own making
        original_code = bytecode(compile(source, name, "exec"))
        for rewrite in rewrites:
            code = bytecode(compile(rewrite.source, name, "exec"))
            assert shown(rewrite.source) != original
            if rewrite.kind in SAME_BYTECODE:
                assert code == original_code, rewrite.id


SAME_BYTECODE = {"drop_annotation", "respell_negation", "explicit_none"}


def bytecode(code: CodeType) -> list[bytes]:
    """Instructions of all code objects in a module, wherever they say that they come from."""
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code.co_code, *(inner for constant in nested for inner in bytecode(constant))]


RUN = """
import os, sys, unittest
name, tests = sys.argv[1:]
suite = unittest.defaultTestLoader.loadTestsFromName(tests)
result = unittest.TextTestRunner(stream=sys.stderr).run(suite)
assert sys.modules[name].__file__ == os.path.join(sys.path[0], name + ".py")
sys.exit(not result.wasSuccessful() or not result.testsRun)
"""


@pytest.mark.skipif(not (LIB / "test" / "test_textwrap.py").exists(), reason="Python without its tests")
@pytest.mark.parametrize("name", ["textwrap", "shlex", "string"])
def test_the_standard_library_accepts_rewrites_of_itself(tmp_path: Path, name: str) -> None:
    source = (LIB / f"{name}.py").read_text(encoding="utf-8")
    (tmp_path / "run.py").write_text(RUN)
    for rewrite in preserving(source, 12, "any"):
        (tmp_path / f"{name}.py").write_text(rewrite.source, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-B", "run.py", name, f"test.test_{name}"],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{rewrite.id}: {rewrite.note}\n{done.stderr}"
