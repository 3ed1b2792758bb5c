"""Suites under evaluation: what is green, what kills a mutant, and what a suite can do to its keeper."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxes.cache import cache
from sandboxes.sandbox import Image, Limits, Mutation, SuiteReport
from sandboxes.wheels import let_all_read
from tests.sandboxes.conformance import Stand
from tests.sandboxes.conftest import Rig
from tests.sandboxes.specimens.suites import COLLECTING, FULL

SHORT = Limits(timeout_s=5, memory_mib=512)
NONE = Mutation(size=0)
ALL = Mutation(size=10**6)
SPECIMEN = Path(__file__).parent / "specimens" / "specimen.py.txt"


@pytest.fixture(scope="module")
def specimen_image(local_image: Image) -> Iterator[Image]:
    """The local image with modules of ours beside its kit, on every PYTHONPATH."""
    # Not below /tmp, of which a step gets its own.
    with tempfile.TemporaryDirectory(dir=cache(), prefix="specimens-") as folder:
        kit = Path(folder) / "kit"
        shutil.copytree(local_image.kit, kit)
        shutil.copy(SPECIMEN, kit / "specimen.py")
        (kit / "broken.py").write_text("def f(:\n")
        (kit / "hollow.py").write_text("VALUE = 1\n")
        let_all_read(Path(folder))
        yield Image(local_image.ref, local_image.digest, "local", local_image.python, str(kit))


@pytest.fixture(scope="module")
def lab(local_stand: Stand, specimen_image: Image) -> Iterator[Rig]:
    made = Rig(Stand(local_stand.backend, specimen_image, local_stand.guards))
    yield made
    asyncio.run(made.close())


async def evaluated(rig: Rig, suite: str, mutation: Mutation = NONE, target: str = "specimen") -> SuiteReport:
    sandbox = await rig.sandbox()
    report = await sandbox.evaluate(target, suite, SHORT, mutation)
    assert await rig.sandbox() is sandbox, "it had to be replaced"
    return report


def verdicts(report: SuiteReport) -> dict[str, str]:
    """By mutant. Which of two limits an endless list meets first is a matter of speed."""
    return {mutant.id: mutant.verdict.replace("oom", "timeout") for mutant in report.mutants}


# -- what a suite may be


@dataclass(frozen=True)
class Case:
    """A suite, and what is to be said of each of its functions."""

    name: str
    suite: str
    outcomes: dict[str, str] = field(default_factory=dict)
    error: str = ""
    """Begins the reason why nothing was collected."""
    says: str = ""
    """In the exception of the functions that are not green."""


GOOD = "from specimen import plain\ndef test_good(): assert plain(1) == 3\n"

CASES = [
    Case("no-syntax", "def test_a(:\n", error="SyntaxError"),
    Case("no-tests", "import specimen\n", error="CollectError: the suite has no test function"),
    Case("no-module", "import nowhere_at_all\ndef test_a(): pass\n", error="ModuleNotFoundError"),
    Case(
        "raises-when-collected",
        "raise RuntimeError('early')\ndef test_a(): pass\n",
        error="RuntimeError: early",
    ),
    Case("exits-when-collected", "import os\nos._exit(0)\ndef test_a(): pass\n", error="CollectError"),
    Case("only-failing", "def test_a(): assert 1 == 2\n", {"test_a": "failed"}, says="AssertionError"),
    Case(
        "one-failing",
        GOOD + "def test_bad(): raise KeyError('k')\n",
        {"test_good": "green", "test_bad": "failed"},
        says="KeyError: 'k'",
    ),
    Case(
        "skipped",
        GOOD + "import pytest\n@pytest.mark.skip\ndef test_s(): pass\n",
        {"test_good": "green", "test_s": "skipped"},
    ),
    Case(
        "expected-to-fail",
        GOOD + "import pytest\n@pytest.mark.xfail\ndef test_x(): assert 0\n",
        {"test_good": "green", "test_x": "skipped"},
    ),
    Case(
        "one-case-fails",
        "import pytest\n@pytest.mark.parametrize('a', [1, 2])\ndef test_p(a): assert a == 1\n",
        {"test_p": "failed"},
    ),
    Case(
        "fails-in-teardown",
        GOOD + "import pytest\n@pytest.fixture\ndef f():\n    yield\n    raise OSError('late')\n"
        "def test_t(f): pass\n",
        {"test_good": "green", "test_t": "failed"},
        says="OSError: late",
    ),
    Case(
        "alone-yes-together-no",
        "STATE = []\ndef test_a(): STATE.append(1)\ndef test_b(): assert not STATE\n",
        {"test_a": "green", "test_b": "dependent"},
    ),
    Case(
        "needs-the-one-before",
        "STATE = []\ndef test_a(): STATE.append(1)\ndef test_b(): assert STATE\n",
        {"test_a": "green", "test_b": "failed"},
    ),
    Case(
        "module-state-and-cwd",
        GOOD + "import os, sys\ndef test_cwd(): os.chdir('/'); sys.modules.pop('specimen')\n",
        {"test_good": "green", "test_cwd": "green"},
    ),
    Case(
        "threads-that-stay",
        GOOD + "from threading import Thread\nfrom time import sleep\n"
        "def test_t(): Thread(target=sleep, args=(99,), daemon=True).start()\n",
        {"test_good": "green", "test_t": "green"},
    ),
    Case(
        "exits", GOOD + "import os\ndef test_e(): os._exit(0)\n", {"test_good": "green", "test_e": "crashed"}
    ),
    Case(
        "exits-early",
        GOOD + "import sys\ndef test_e(): sys.exit(0)\n",
        {"test_good": "green", "test_e": "failed"},
    ),
    Case(
        "pytest-exits",
        GOOD + "import pytest\ndef test_e(): pytest.exit('enough')\n",
        {"test_good": "green", "test_e": "failed"},
    ),
    Case(
        "loops", GOOD + "def test_l():\n    while True: pass\n", {"test_good": "green", "test_l": "timeout"}
    ),
    Case(
        "waits",
        GOOD + "import threading\ndef test_w(): threading.Event().wait()\n",
        {"test_good": "green", "test_w": "timeout"},
    ),
    Case("eats", GOOD + "def test_m(): bytearray(10**10)\n", {"test_good": "green", "test_m": "oom"}),
    Case(
        "patches-builtins",
        GOOD + "import builtins\ndef test_p():\n    builtins.len = None\n    builtins.open = None\n",
        {"test_good": "green", "test_p": "failed"},
    ),
    Case(
        "kills-its-parent",
        GOOD + "import os, signal\ndef test_k(): os.kill(os.getppid(), signal.SIGKILL)\n",
        {"test_good": "green", "test_k": "timeout"},
    ),
    Case(
        "leaves-files",
        GOOD
        + "import os\ndef test_f():\n    assert not os.path.exists('left')\n    open('left', 'w').close()\n",
        {"test_good": "green", "test_f": "green"},
    ),
    Case(
        "unittest",
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.a = 1\n"
        "    def test_u(self): self.assertEqual(self.a, 1)\n    def test_v(self): self.fail('no')\n",
        {"T::test_u": "green", "T::test_v": "failed"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_suite_of_that_kind(lab: Rig, case: Case) -> None:
    report = await evaluated(lab, case.suite)
    if case.error:
        assert report.error is not None
        assert report.error.startswith(case.error)
        assert not report.functions
    else:
        assert report.error is None
    assert {one.name: one.outcome for one in report.functions} == case.outcomes
    assert report.size == (
        case.suite.count("def test_") if report.error != "SyntaxError" and case.outcomes else report.size
    )
    for one in report.functions:
        if one.outcome not in ("green", "skipped") and case.says:
            assert case.says in (one.exception or "")
    if not report.green:
        assert not report.measurement.lines
    after = await evaluated(lab, GOOD)
    assert after.green == ("test_good",)


async def test_a_suite_that_is_green_by_chance_is_not_believed(lab: Rig) -> None:
    suite = GOOD + "import os\ndef test_odd(): assert os.urandom(1)[0] < 128\n"
    seen = Counter()  # type: Counter[str]
    for _ in range(6):
        (odd,) = [one for one in (await evaluated(lab, suite)).functions if one.name == "test_odd"]
        seen[odd.outcome] += 1
    # Each time it is asked three times over.
    assert set(seen) <= {"failed", "dependent", "flaky", "green"}
    assert seen["green"] < 6


@pytest.mark.parametrize("target", ["broken", "nowhere_at_all"])
async def test_a_target_that_cannot_be_imported_is_refused(lab: Rig, target: str) -> None:
    from sandboxes.errors import TargetError

    with pytest.raises(TargetError, match=target):
        await (await lab.sandbox()).evaluate(target, GOOD, SHORT, NONE)


async def test_a_target_without_functions_has_mutants_of_its_import(lab: Rig) -> None:
    report = await evaluated(lab, "import hollow\ndef test_it(): assert hollow.VALUE == 1\n", ALL, "hollow")
    assert {(one.id, one.verdict, one.path) for one in report.mutants} == {
        ("number:1:8:0", "killed", "slow"),
        ("statement:1:0:0", "killed", "slow"),
    }


# -- coverage


async def test_coverage_is_that_of_the_green_functions_together(lab: Rig) -> None:
    suite = "import specimen as s\ndef test_a(): s.plain(1)\ndef test_b():\n    s.plain(9)\n    assert 0\n"
    report = await evaluated(lab, suite)
    source = SPECIMEN.read_text().splitlines()
    reached = {source[line - 1].strip() for line in report.measurement.lines}
    assert "return a + b" in reached
    assert "return a - b" not in reached
    assert {source[line - 1].strip() for line in report.functions[0].lines} == {"if a > b:", "return a + b"}


# -- mutants


@pytest.fixture(scope="module")
def fast(lab: Rig) -> SuiteReport:
    return asyncio.run(evaluated(lab, FULL, ALL))


def test_the_whole_suite_is_green(fast: SuiteReport) -> None:
    assert {one.name: one.exception for one in fast.functions if one.outcome != "green"} == {}
    assert len(fast.mutants) == fast.mutants_total > 100
    assert {one.path for one in fast.mutants} == {"fast", "slow", "copy"}


def test_every_mutant_that_was_run_was_reached(fast: SuiteReport) -> None:
    assert [
        one
        for one in fast.mutants
        if one.path in ("fast", "slow") and not one.ran and one.verdict == "survived"
    ] == []


async def test_fast_and_slow_agree_on_every_mutant(lab: Rig, fast: SuiteReport) -> None:
    slow = await evaluated(lab, FULL, Mutation(size=10**6, only="slow"))
    assert "fast" not in {one.path for one in slow.mutants}
    assert verdicts(slow) == verdicts(fast)


async def test_the_whole_suite_changes_no_verdict(lab: Rig, fast: SuiteReport) -> None:
    every = await evaluated(lab, FULL, Mutation(size=50, seed="e", every_test=True))
    assert len(every.mutants) == 50
    assert verdicts(every).items() <= verdicts(fast).items()


async def test_parts_make_up_the_whole(lab: Rig, fast: SuiteReport) -> None:
    parts = [await evaluated(lab, FULL, Mutation(size=50, seed="p", part=(place, 3))) for place in range(3)]
    assert [len(part.mutants) for part in parts] == [17, 17, 16]
    assert {part.mutants_total for part in parts} == {50}
    found = {key: value for part in parts for key, value in verdicts(part).items()}
    assert len(found) == 50
    assert found.items() <= verdicts(fast).items()


async def test_the_sample_is_fixed_by_its_seed(lab: Rig) -> None:
    def ids(report: SuiteReport) -> list[str]:
        return [one.id for one in report.mutants]

    one = await evaluated(lab, GOOD, Mutation(size=20, seed="a"))
    again = await evaluated(lab, FULL, Mutation(size=20, seed="a"))
    other = await evaluated(lab, GOOD, Mutation(size=20, seed="b"))
    assert ids(one) == ids(again)
    assert len(ids(one)) == 20
    assert ids(one) != ids(other)


async def test_all_killers_are_known_when_asked(lab: Rig, fast: SuiteReport) -> None:
    matrix = await evaluated(lab, FULL, Mutation(size=50, seed="m", matrix=True))
    assert verdicts(matrix).items() <= verdicts(fast).items()
    found = {one.id: one.killed_by for one in matrix.mutants}
    for mutant in fast.mutants:
        if mutant.id in found and mutant.killed_by:
            assert mutant.killed_by[0] in found[mutant.id]
    assert max(len(killers) for killers in found.values()) > 1


async def test_code_that_ran_while_the_suite_was_collected_takes_the_slow_path(lab: Rig) -> None:
    report = await evaluated(lab, COLLECTING, ALL)
    inside = [one for one in report.mutants if 11 <= one.line <= 14 and one.verdict != "no_coverage"]
    assert inside
    assert {one.path for one in inside} == {"slow"}
    assert "killed" in {one.verdict for one in inside}


async def test_what_only_another_process_would_see_is_changed_on_disk(lab: Rig) -> None:
    suite = (
        "import subprocess, sys\ndef test_p():\n"
        "    said = subprocess.run([sys.executable, '-c', 'import specimen; print(specimen.plain(3))'],"
        " stdout=subprocess.PIPE, universal_newlines=True)\n    assert said.stdout == '1\\n'\n"
    )
    # Each is run on the slow path too, where what the function reaches at import is changed.
    report = await evaluated(lab, suite, Mutation(size=60, seed="p"))
    killed = [one for one in report.mutants if one.verdict == "killed" and 11 <= one.line <= 14]
    assert killed
    assert {one.path for one in killed} == {"copy"}


async def test_a_mutant_that_loops_waits_or_eats(lab: Rig) -> None:
    suite = "from specimen import countdown\ndef test_c(): assert len(list(countdown(3))) == 3\n"
    report = await evaluated(lab, suite, ALL)
    assert {"timeout", "oom"} & {one.verdict for one in report.mutants}
    assert report.killed >= 3


@pytest.mark.parametrize("where", ["docker", "local"])
async def test_a_real_module_on_both_back_ends(where: str, request: pytest.FixtureRequest) -> None:
    rig = Rig(request.getfixturevalue(f"{where}_stand"))
    suite = (
        "from werkzeug.http import parse_options_header, quote_etag\n"
        "def test_etag(): assert quote_etag('a') == '\"a\"'\n"
        "def test_options():\n    assert parse_options_header('a; b=c') == ('a', {'b': 'c'})\n"
    )
    try:
        report = await evaluated(rig, suite, Mutation(size=150, seed="s"), "werkzeug.http")
    finally:
        await rig.close()
    counted = Counter(one.verdict for one in report.mutants)
    assert report.green == ("test_etag", "test_options")
    assert sum(counted.values()) == 150
    assert counted["killed"] >= 5
    assert all(one.ran for one in report.mutants if one.path == "fast")
