"""Marks stand where they belong and never change the program."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json.decoder
import sys
import textwrap
import tokenize
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.tesearch.annotate import FAILING, NOT_COVERED, SURVIVING, annotate, annotate_failing

MODULES = [argparse, ast, dataclasses, inspect, json.decoder, textwrap, tokenize, typing]
SOURCES = {module.__name__: inspect.getsource(module) for module in MODULES}


def marked(source: str) -> list[int]:
    """Lines of a text that end in a mark."""
    return [number for number, line in enumerate(source.split("\n"), 1) if "# <-- " in line]


def same(one: str, other: str) -> bool:
    return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))


def test_marks_stand_at_the_end_of_their_lines() -> None:
    source = "def f(x):\n    if x > 1:\n        return 1\n    return 2\n"
    assert annotate(source, {3}, {2: ["> to >=", "1 to 2"], 3: ["1 to 0"]}) == (
        "def f(x):\n"
        "    if x > 1:  # <-- SURVIVING MUTANT: > to >=, 1 to 2\n"
        "        return 1  # <-- NOT COVERED YET  # <-- SURVIVING MUTANT: 1 to 0\n"
        "    return 2\n"
    )


@pytest.mark.parametrize(
    ("source", "line", "place"),
    [
        ("x = 1", 1, 1),
        ("x = 1\n", 1, 1),
        ("x = 1  # why\n", 1, 1),
        ("x = '#'\n", 1, 1),
        ("x = (\n    1,\n)\n", 1, 1),
        ("x = (\n    1,\n)\n", 2, 2),
        ("x = 1 + \\\n    2\ny = 3\n", 1, 2),
        ("x = 1 + \\\n    2 + \\\n    3\ny = 3\n", 1, 3),
        ("x = '''a\nb\nc'''\ny = 3\n", 1, 3),
        ("x = '''a\nb\nc'''\ny = 3\n", 2, 3),
        ("x = f'''a\n{\n1\n}\n'''\ny = 3\n", 2, 5),
        ("x = f'''a{1}\n{2}\n''' + \\\n'b'\ny = 3\n", 1, 4),
        ("x = ('''a\n''',\n    1)\n", 1, 2),
        ("x = 'a\\\nb'\ny = 3\n", 1, 2),
        ("def f():\n    '''Doc.\n\n    More.\n    '''\n    return 1\n", 2, 5),
        ("x = 1; y = '''\n'''; z = 3\n", 1, 2),
        ("# only\n\nx = 1\n", 1, 1),
        ("# only\n\nx = 1\n", 2, 2),
        ("x = '\x0c'\ny = '\x85'\nz = 1\n", 3, 3),
        ("x = 1\n\x0c\ny = 1\n", 3, 3),
        ("if x:\n\ty = 1\n", 2, 2),
    ],
)
def test_a_mark_moves_to_where_a_comment_may_stand(source: str, line: int, place: int) -> None:
    for said in (annotate(source, [line], {}), annotate(source, [], {line: ["+ to -"]})):
        assert marked(said) == [place]
        assert same(said, source)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_ends_of_lines_are_kept(ending: str) -> None:
    source = ending.join(["x = '''a", "b'''", "y = 1", ""])
    assert annotate(source, [1, 3], {}) == ending.join(
        ["x = '''a", "b'''  # <-- NOT COVERED YET", "y = 1  # <-- NOT COVERED YET", ""]
    )


def test_marks_that_meet_are_merged() -> None:
    source = "x = 1 + \\\n    2 - \\\n    3\n"
    assert annotate(source, [1, 2, 3], {2: ["- to +", "2 to 3"], 1: ["+ to -"], 3: ["- to +"]}) == (
        "x = 1 + \\\n    2 - \\\n"
        "    3  # <-- NOT COVERED YET  # <-- SURVIVING MUTANT: + to -, - to +, 2 to 3\n"
    )


def test_an_operator_is_put_on_one_line() -> None:
    said = annotate("x = 1\n", [], {1: ["1\nto\x002", "1 to 2"]})
    assert said == "x = 1  # <-- SURVIVING MUTANT: 1 to 2\n"


@pytest.mark.parametrize("line", [-1, 0, 3, 4])
def test_lines_that_there_are_not_are_left_out(line: int) -> None:
    assert annotate("x = 1\ny = 2\n", [line], {line: ["1 to 2"]}) == "x = 1\ny = 2\n"


def test_nothing_to_mark_changes_nothing() -> None:
    assert annotate("x = 1\n", [], {1: []}) == "x = 1\n"
    assert annotate("", [1], {1: ["1 to 2"]}) == ""
    assert annotate_failing("def test_x(): pass\n", {}) == "def test_x(): pass\n"


@pytest.mark.parametrize("source", ["def f(:\n", "x = '''\n", "x = '\x00'\n", "x = '\ud800'\n", "  x\n y\n"])
def test_what_is_not_python_is_unchanged(source: str) -> None:
    assert annotate(source, [1], {1: ["1 to 2"]}) == source
    assert annotate_failing(source, {"test_x": "E"}) == source


def test_source_with_a_doubtful_escape_is_read_quietly() -> None:
    assert annotate("x = '\\d'\n", [1], {}) == f"x = '\\d'  {NOT_COVERED}\n"


@pytest.mark.parametrize("name", SOURCES)
def test_every_line_of_a_real_module_may_be_marked(name: str) -> None:
    source = SOURCES[name]
    lines = range(1, source.count("\n") + 1)
    said = annotate(source, lines, {line: [f"op{line}"] for line in lines})
    assert same(said, source)
    before, after = source.split("\n"), said.split("\n")
    assert all(new.startswith(old) for old, new in zip(before, after, strict=True))
    marks = [new[len(old) :] for old, new in zip(before, after, strict=True) if new != old]
    assert said.count(NOT_COVERED) == said.count(SURVIVING) == len(marks) > len(lines) / 2
    assert [op for mark in marks for op in mark.rpartition(": ")[2].split(", ")] == [f"op{n}" for n in lines]


@settings(max_examples=30)
@given(st.sampled_from(["json.decoder", "textwrap"]), st.data())
def test_a_mark_is_as_near_as_python_allows(name: str, data: st.DataObject) -> None:
    source = SOURCES[name]
    line = data.draw(st.integers(1, source.count("\n")))
    [place] = marked(annotate(source, [line], {}))
    assert line <= place
    for nearer in range(line, place):
        texts = source.split("\n")
        texts[nearer - 1] += "  # here"
        with pytest.raises((SyntaxError, AssertionError)):
            assert same("\n".join(texts), source)


@settings(max_examples=30)
@given(st.sampled_from(["json.decoder", "textwrap"]), st.data())
def test_any_marks_on_a_real_module_change_nothing(name: str, data: st.DataObject) -> None:
    source = SOURCES[name]
    lines = st.integers(1, source.count("\n"))
    uncovered = data.draw(st.sets(lines, max_size=30))
    surviving = data.draw(st.dictionaries(lines, st.lists(st.text(max_size=8), max_size=3), max_size=10))
    said = annotate(source, uncovered, surviving)
    assert same(said, source)
    assert said.count("\n") == source.count("\n")
    assert bool(uncovered) <= said.count(NOT_COVERED) <= len(uncovered)
    assert any(surviving.values()) <= said.count(SURVIVING) <= len(surviving)


SUITE = '''import pytest


def helper():
    return 1


@pytest.mark.parametrize("x", [1, 2])
def test_a(
    x: int,
    y: dict[str, int] = {"a": 1},
) -> None:
    assert x == {1: 2}[1]


class TestC:
    async def test_b(self):  # slow
        assert self

    class TestD:
        def test_a(self): assert """
        """


if helper():
    def test_c(x=lambda: 1):
        def test_inner():
            pass
else:
    def test_e(): pass
'''


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("test_a", 12),
        ("test_a[1]", 12),
        ("TestC::test_b", 17),
        ("TestC::TestD::test_a", 22),
        ("test_c", 26),
        ("test_e", 30),
        ("test_b", None),
        ("TestC::test_a", None),
        ("test_inner", None),
        ("", None),
    ],
)
def test_a_failing_test_is_marked_where_its_header_ends(name: str, line: int | None) -> None:
    said = annotate_failing(SUITE, {name: "AssertionError: 1 != 2"})
    assert same(said, SUITE)
    before, after = SUITE.split("\n"), said.split("\n")
    changed = {number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]}
    assert changed == ({line} if line else set())
    if line:
        assert after[line - 1] == f"{before[line - 1]}  {FAILING} AssertionError: 1 != 2"


def test_of_a_test_defined_twice_the_last_is_marked() -> None:
    source = "def test_x():\n    pass\ndef test_x():\n    pass\n"
    assert marked(annotate_failing(source, {"test_x": "E"})) == [3]


def test_tests_in_any_statement_are_found() -> None:
    source = (
        "try:\n    import x\nexcept ImportError:\n    def test_a(): pass\n"
        "match 1:\n    case 1:\n        def test_b(): pass\n"
        "with x:\n    for _ in x:\n        class TestC:\n            def test_c(self): pass\n"
    )
    failing = {"test_a": "E", "test_b": "E", "TestC::test_c": "E"}
    assert marked(annotate_failing(source, failing)) == [4, 7, 11]


@pytest.mark.parametrize(
    ("exception", "shown"),
    [
        ("ValueError: x", " ValueError: x"),
        ("AssertionError: a\nassert b\n", " AssertionError: a"),
        ("\n\n  E   assert 1\r\nassert 2", " E assert 1"),
        ("a\tb\x0bc", " a b"),
        ("nul \x00 and \ud800 and \u2028x", " nul and and"),
        ("x" * 121, " " + "x" * 120),
        ("x" * 120, " " + "x" * 120),
        ("", ""),
    ],
)
def test_the_first_line_of_an_exception_is_shown(exception: str, shown: str) -> None:
    assert (
        annotate_failing("def test_x(): pass", {"test_x": exception})
        == f"def test_x(): pass  {FAILING}{shown}"
    )


def test_of_several_cases_the_first_is_shown() -> None:
    said = annotate_failing("def test_x(a): pass\n", {"test_x[1]": "First", "test_x[2]": "Second"})
    assert said == f"def test_x(a): pass  {FAILING} First\n"


@given(st.text())
def test_no_exception_changes_a_suite(exception: str) -> None:
    said = annotate_failing(SUITE, {"test_a": exception, "TestC::TestD::test_a": exception})
    assert same(said, SUITE)
    assert marked(said) == [12, 22]


def test_what_only_newer_python_reads_is_unchanged_by_older() -> None:
    source = "def f[T](x: T) -> T:\n    return x\n"
    assert (annotate(source, [1], {}) != source) is (sys.version_info >= (3, 12))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="f-strings have tokens from Python 3.12 on")
def test_what_an_f_string_quotes_of_itself_is_unchanged() -> None:
    source = "x = f'''{\n    y=\n}'''\n"
    said = annotate(source, [1, 2, 3], {})
    assert marked(said) == [3]
    assert same(said, source)
