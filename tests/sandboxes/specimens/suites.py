"""A suite for the specimen, as text: it is run in a sandbox, not here."""

FULL = """\
import asyncio
import inspect
import multiprocessing
import subprocess
import sys
import unittest

import pytest

import specimen
from specimen import *


@pytest.mark.parametrize("a, b, expected", [(1, 2, 3), (5, 2, 3), (2, 2, 4)])
def test_plain(a, b, expected):
    assert specimen.plain(a, b) == expected


def test_default():
    assert plain(1) == 3


def test_copies_and_wrappers():
    assert a_copy(2) == 7
    assert behind(9) == 5


def test_closures():
    assert specimen.add_five(1) == 6
    assert adder(2)(2) == 4
    assert frees(True) == 1
    assert frees(False) == 0


def test_generator():
    assert list(countdown(3)) == [3, 2, 1]


def test_async():
    assert asyncio.run(later(4)) == 8


class TestClasses:
    @pytest.fixture
    def slotted(self):
        return Slotted(4)

    def test_slots(self, slotted):
        assert slotted.double == 8
        slotted.double = 6
        assert slotted.value == 3
        assert Slotted.make(1).value == 2
        assert Slotted.half(3) == 1.5

    def test_meta(self):
        assert Tagged(1).tagged
        assert not Tagged().tagged
        assert Child(1, 2).count() == 30

    def test_dataclass(self):
        assert Point().sum() == 3
        assert Point(2, 2) == Point(2, 2)


class Old(unittest.TestCase):
    def setUp(self):
        self.name = "a"

    def test_table(self):
        self.assertEqual(looked_up(self.name), 2)
        self.assertEqual(looked_up("none"), -1)


def test_cache():
    assert cached(4) == 3
    assert cached(10) == 9


def test_handler():
    assert handler("3") == 3
    assert handler("x") == -1


def test_loops():
    assert skip_odd([1, 2, 4, 8, 2]) == [2, 4]


def test_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert spoken("a", 2) == "a x  2!!"
    assert spoken("b") == "b x  1!"


def test_identity():
    assert same(plain)
    assert travels() == 4
    assert key((1, 2)) == 2
    assert here() == "specimen.py"


def test_lazy():
    assert specimen.lazy == 7
    with pytest.raises(AttributeError):
        specimen.other


def test_process():
    script = "import specimen; print(specimen.plain(3))"
    said = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, universal_newlines=True)
    assert said.stdout == "1\\n"


def test_source():
    assert "return len(self.args) + 1" in inspect.getsource(Tagged.count)
"""

COLLECTING = """\
import pytest
from specimen import plain

EXPECTED = plain(7)


@pytest.mark.parametrize("a", [plain(1), plain(2)])
def test_it(a):
    assert a in (3, 4)
    assert EXPECTED == 5
"""
"""It uses the target while it is collected."""
