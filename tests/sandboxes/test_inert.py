"""Which scripts may find modules imported ahead: those that could not tell."""

from __future__ import annotations

import pytest

from sandboxes.probe.inert import LONGEST, starts_inert

INERT = [
    "from package.module import name",
    "import package",
    "import package.module as module\nimport sys\nsys.path.append('x')",
    '"""Docstring."""\nimport json, os\nfrom package import module',
    "# comment\nNAME = 'x'\nTABLE = {'a': [1, 2]}\nprint('start', 1)\nimport package",
    "def helper(a, b=1, *, c=None):\n    import os\n    os.environ['X'] = '1'\nimport package\nhelper(1)",
    "try:\n    import package.module\nexcept ImportError:\n    pass",
    "async def work(): pass\npass\nfrom package.deep import er",
    "import string",
    "",
    # They will not run a line.
    "import package\n)(",
    "\0",
]

TELLING = [
    "import sys\nsys.path.insert(0, '.')\nimport package",
    "import warnings\nwarnings.simplefilter('error')\nimport package",
    "import os\nos.environ['X'] = '1'\nimport package",
    "from unittest import mock\nwith mock.patch('os.stat'):\n    import package",
    "print(open('x'))\nimport package",
    "print('x', file=f())\nimport package",
    "x = f()\nimport package",
    "x.y = 1\nimport package",
    "x[0] = 1\nimport package",
    "@decorate\ndef helper(): pass\nimport package",
    "def helper(a=f()): pass\nimport package",
    "def helper(*, a=f()): pass\nimport package",
    "class Odd(metaclass=Meta): pass\nimport package",
    "if True:\n    import package",
    "try:\n    f()\n    import package\nexcept Exception: pass",
    "import packages\nf()\nimport package",
    # Telltales, wherever they stand.
    "import package\nimport sys\nprint(len(sys.modules))",
    "import package\nfrom sys import modules",
    "import package\nimport sys as system\nprint(system.modules)",
    "import package, importlib\nimportlib.reload(package)",
    "import package\nfrom importlib import reload",
    "import package, gc\ngc.collect()",
    "import package, sys\nsys.settrace(None)",
    "import package, threading\nthreading.setprofile(None)",
    "import sys\nsys.meta_path.clear()\nimport package",
    "import package\n" + "#" * LONGEST,
]


@pytest.mark.parametrize("script", INERT)
def test_cannot_tell(script: str) -> None:
    assert starts_inert(script, "package.module")


@pytest.mark.parametrize("script", TELLING)
def test_could_tell(script: str) -> None:
    assert not starts_inert(script, "package.module")


@pytest.mark.parametrize(
    "script", ["(" * 5000, "-" * 15_000 + "1", "1" + "+1" * 9000, "\udc80", "\ufeffx = 1"]
)
def test_no_text_is_too_odd_to_judge(script: str) -> None:
    starts_inert(script, "package.module")
