"""Test functions taken out of a suite's text."""

from __future__ import annotations

import pytest

from runner.delivered import without

SUITE = """\
import pytest

X = 1


@pytest.mark.parametrize("a", [1, 2])
def test_a(a):
    assert a


def helper():
    return 1


class TestC:
    @staticmethod
    def test_d():
        pass

    def test_e(self):
        pass


class Plain:
    pass


async def test_f():
    pass
"""


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        ({"test_a"}, ["parametrize", "test_a", "assert a"]),
        ({"TestC::test_d"}, ["staticmethod", "test_d"]),
        ({"TestC::test_d", "TestC::test_e"}, ["TestC", "staticmethod", "test_d", "test_e"]),
        ({"test_f"}, ["test_f"]),
        ({"test_d", "helper", "Plain"}, []),
        (set(), []),
    ],
)
def test_functions_go_with_their_decorators_and_empty_classes(names: set[str], gone: list[str]) -> None:
    text = without(SUITE, names)
    compile(text, "suite", "exec")
    words = ["parametrize", "test_a", "assert a", "helper", "TestC", "staticmethod", "test_d", "test_e"]
    words += ["Plain", "test_f", "X = 1"]
    assert [word for word in words if word not in text] == [word for word in words if word in gone]
