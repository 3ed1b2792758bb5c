"""The probe on every Python that it claims: the same numbers as that Python's coverage.py gives."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import wheels
from sandboxes.cache import cache
from sandboxes.errors import PrerequisiteError
from sandboxes.images import interpreter
from sandboxes.local import LocalBackend
from sandboxes.sandbox import Image, StepOutcome
from tests.sandboxes.conformance import PLENTY, Stand
from tests.sandboxes.conftest import Rig

VERSIONS = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]
TARGET = "tiny.module"

MODULE = '''\
"""Branches of many kinds, on every Python from 3.6."""
import threading

def classify(thing, flag=True):
    """Say something of a thing."""
    if thing.value if hasattr(thing, "value") else thing:
        for index in range(3):
            if index == 1:
                continue
            try:
                if thing[index]:
                    return "item"
            except TypeError:
                flag = not flag
            finally:
                flag = bool(flag)
        else:
            return ("big" if flag
                    else "odd")
    while flag:
        flag = False
    assert not flag or thing
    return [one for one in range(3) if one]

def deepest(depth=0):
    try:
        return deepest(depth + 1)
    except RecursionError:
        return depth

def leave_early():
    for _ in iter(int, 1):
        try:
            break
        finally:
            pass
    with threading.Lock():
        if threading:
            return 1

if False:  # pragma: no cover
    never = 1

def mark(number):
''' + "".join(f"    if number % 16 == {n}:\n        number = number\n" for n in range(16))

STARTS_A_THREAD = """\
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

USE = """\
from tiny.module import classify, deepest, leave_early, mark
class Odd:
    value = property(lambda self: [][0])
for thing in (0, 1, "ab", [], [0], Odd()):
    try: print(classify(thing))
    except Exception as error: print(type(error).__name__)
leave_early()
"""


@pytest.fixture(scope="module", params=VERSIONS)
def python_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    found = interpreter(request.param)
    if found.minor != request.param:
        pytest.skip(f"no Python {request.param} on this machine")
    try:
        kit = wheels.kit(found.minor, wheels.this_machine())
    except PrerequisiteError as error:
        pytest.skip(str(error))
    # Not in the temporary folder: a step in namespaces has an empty one of its own.
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        subprocess.run([found.path, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = Path(folder).glob("lib/python3*/site-packages")
        (packages / "tiny").mkdir()
        (packages / "tiny" / "__init__.py").touch()
        (packages / "tiny" / "module.py").write_text(MODULE)
        (packages / "tiny" / "threaded.py").write_text(
            "import string, starts_a_thread\nif string:\n    x = 1\n"
        )
        (packages / "starts_a_thread.py").write_text(STARTS_A_THREAD)
        image = Image(folder, found.version, "local", f"{folder}/bin/python", str(kit))
        wheels.let_all_read(Path(folder))
        rig = Rig(Stand(LocalBackend("tests"), image))
        yield rig
        asyncio.run(rig.close())


async def test_the_kit_is_the_one_for_this_python(python_rig: Rig) -> None:
    sandbox = await python_rig.sandbox()
    assert sandbox.hello is not None
    assert sandbox.hello.python == python_rig.stand.image.digest
    assert sandbox.hello.coverage == wheels.coverage_version(sandbox.hello.python)


@pytest.mark.parametrize("start", ["preloaded", "plain"])
async def test_warm_equals_cold(python_rig: Rig, start: str) -> None:
    script = USE if start == "preloaded" else f"import sys\nlen(sys.modules)\n{USE}"
    facts = await python_rig.prepare(TARGET)
    warm = await (await python_rig.sandbox()).execute(TARGET, script, PLENTY)
    assert warm.outcome is StepOutcome.PASSED, warm.output
    assert warm.start == start
    assert warm.coverage_complete
    cold = await python_rig.cold(TARGET, script)
    assert warm.measurement is not None
    assert warm.measurement == cold.measurement, cold.output
    assert 10 < len(warm.measurement.branches) < facts.branches_total
    assert 20 < len(warm.measurement.lines) < len(facts.statements)


async def test_recursion_ends_at_the_same_depth(python_rig: Rig) -> None:
    script = "from tiny.module import deepest, mark\nmark(deepest())\n"
    await python_rig.prepare(TARGET)
    warm = await (await python_rig.sandbox()).execute(TARGET, script, PLENTY)
    assert warm.measurement == (await python_rig.cold(TARGET, script)).measurement


async def test_a_killed_step_keeps_its_coverage(python_rig: Rig) -> None:
    await python_rig.prepare(TARGET)
    sandbox = await python_rig.sandbox()
    whole = await sandbox.execute(TARGET, USE, PLENTY)
    killed = await sandbox.execute(TARGET, USE + "import os\nos.kill(os.getpid(), 9)", PLENTY)
    assert killed.outcome is StepOutcome.CRASHED
    assert killed.measurement == whole.measurement
    assert killed.recovered


async def test_what_starts_threads_is_not_imported_ahead(python_rig: Rig) -> None:
    script = "import tiny.threaded, threading\nassert threading.active_count() == 2\n"
    facts = await python_rig.prepare("tiny.threaded")
    found = await (await python_rig.sandbox()).execute("tiny.threaded", script, PLENTY)
    assert found.outcome is StepOutcome.PASSED, found.output
    assert found.start == "preloaded"
    assert found.measurement is not None
    assert found.measurement.lines == facts.statements


async def test_no_script_kills_who_reads_it(python_rig: Rig) -> None:
    await python_rig.prepare(TARGET)
    sandbox = await python_rig.sandbox()
    for text in ("1" + "+1" * 500_000, "(" * 9000, "-" * 19_000 + "1", "f" + "()" * 9000):
        await sandbox.execute(TARGET, text, PLENTY)
    assert (await sandbox.execute(TARGET, USE, PLENTY)).outcome is StepOutcome.PASSED
