"""Mutation operators by their samples, and the enumeration: complete, stable, undone after use."""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import subprocess
from pathlib import Path

import pytest

from sandboxes.images import interpreter
from sandboxes.probe import mutants
from sandboxes.probe.mutants import Workshop, enumerate_mutants, sample
from sandboxes.probe.operators import OPERATORS
from sandboxes.probe.swap import planted

MODULES = [mutants, ast, argparse]
SAMPLES = [
    pytest.param(operator.name, before, afters, id=f"{operator.name}: {before}")
    for operator in OPERATORS
    for before, afters in operator.samples
]


def shop(source: str) -> Workshop:
    return Workshop("made", source, "made.py")


def mutated(source: str, mutant: mutants.Mutant) -> str:
    text = shop(source).text(mutant)
    assert text is not None
    return text


@pytest.mark.parametrize(("operator", "before", "afters"), SAMPLES)
def test_an_operator_does_what_its_samples_say(operator: str, before: str, afters: tuple[str, ...]) -> None:
    found = [mutant for mutant in enumerate_mutants(before) if mutant.operator == operator]
    made = [mutated(before, mutant) for mutant in found]
    assert made == [ast.unparse(ast.parse(after)) for after in afters]


def test_every_operator_has_samples_that_change_and_a_name_of_its_own() -> None:
    assert len({operator.name for operator in OPERATORS}) == len(OPERATORS)
    for operator in OPERATORS:
        assert any(afters for _, afters in operator.samples), operator.name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_mutants_are_distinct_compile_or_not_and_leave_no_trace(module: object) -> None:
    source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]  # a module has it
    found = enumerate_mutants(source)
    assert found == enumerate_mutants(source)
    assert len({mutant.id for mutant in found}) == len(found) > 100
    workshop = shop(source)
    before = ast.dump(workshop.tree)
    for mutant in found[:: max(1, len(found) // 15)]:
        if workshop.valid(mutant):
            assert ast.dump(ast.parse(mutated(source, mutant))) != ast.dump(ast.parse(source))
            workshop.module(mutant)
            workshop.definition(mutant)
    assert ast.dump(workshop.tree) == before


def test_a_docstring_an_annotation_and_a_future_are_left_alone() -> None:
    source = '"""Doc."""\nfrom __future__ import annotations\ndef f(a: "int" = 1) -> "str":\n    """Doc."""\n'
    assert {mutant.operator for mutant in enumerate_mutants(source)} == {"default", "number"}


def test_the_sample_is_drawn_from_what_compiles() -> None:
    source = "while True:\n    try:\n        break\n    finally:\n        x = 1\nprint(x)\n"
    workshop = shop(source)
    everything = sample(workshop, 1000, "s")
    assert all(workshop.valid(mutant) for mutant in everything)
    few = sample(workshop, 3, "s")
    assert len(few) == 3
    assert few == sample(workshop, 3, "s")
    assert [mutant for mutant in everything if mutant in few] == few


RUNS = [
    ("a module", "x = 1\ny = x + 1\n", "arithmetic", 1),
    ("a function", "def f(a):\n    b = a + 1\n    return b\nf(1)\nf(2)\n", "arithmetic", 2),
    ("not reached", "def f(a):\n    if a:\n        return 1\n    return a + 1\nf(1)\n", "arithmetic", 0),
    ("a handler", "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n", "handler", 1),
    ("a loop", "for n in range(3):\n    if n == 1:\n        continue\n", "jump", 1),
    ("an elif", "a = 2\nif a == 1:\n    pass\nelif a == 2:\n    a = 3\n", "comparison", 1),
]


@pytest.mark.parametrize(("what", "source", "operator", "times"), RUNS, ids=[run[0] for run in RUNS])
def test_the_mark_is_called_where_the_changed_statement_is_reached(
    what: str, source: str, operator: str, times: int
) -> None:
    mutant = [one for one in enumerate_mutants(source) if one.operator == operator][-1]
    counter = itertools.count()
    code = planted(shop(source).module(mutant), counter.__next__)
    if what == "a handler":
        with pytest.raises(ZeroDivisionError):
            exec(code, {})
    else:
        exec(code, {})
    assert next(counter) == times


def test_a_method_is_compiled_alone_as_it_is_in_its_class() -> None:
    source = (
        "class A:\n    def __f(self): return 1\nclass B(A):\n    x = 5\n    @property\n    def g(self):\n"
        "        self.__h = super().g\n        return self.__h + 1\n"
    )
    (mutant,) = [one for one in enumerate_mutants(source) if one.operator == "arithmetic"]
    found = shop(source).definition(mutant)
    assert found is not None
    code, line = found
    assert line == 5
    (klass,) = [const for const in code.co_consts if hasattr(const, "co_consts")]
    (method,) = [const for const in klass.co_consts if hasattr(const, "co_consts")]
    assert method.co_freevars == ("__class__",)
    assert "_B__h" in method.co_names
    assert method.co_firstlineno == 6


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13"])
def test_every_python_finds_the_same_mutants_of_plain_code(version: str) -> None:
    """Their texts differ where a Python cannot write a tree as source; places and operators do not."""
    python = interpreter(version)
    if not python.version.startswith(f"{version}."):
        pytest.skip(f"there is no Python {version} here")
    # Before 3.8 a comprehension is where its first element is, a decorated def where its decorator is.
    source = "\n".join(
        before
        for operator in OPERATORS
        for before, _ in operator.samples
        if operator.name not in ("format", "slice", "decorator") and "[a for" not in before
    )
    wanted = [mutant.id for mutant in enumerate_mutants(source)]
    done = subprocess.run(
        [
            python.path,
            "-c",
            "import sys, json\nfrom sandboxes.probe.mutants import *\n"
            "print(json.dumps([one.id for one in enumerate_mutants(sys.stdin.read())]))",
        ],
        input=source,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout) == wanted
