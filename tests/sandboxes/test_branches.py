"""Branches and lines from raw arcs, against coverage.py's own report of the same run."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.probe.branches import Analysis
from sandboxes.probe.shared import DurableArcs, Shared, line_bits, pack_arcs, writer

SOURCE = '''\
"""Docstring."""
def choose(number, words=()):
    if number > 1:
        return "many"
    elif number == 1: return "one"
    for word in words:
        if (word
                and number):
            break
    else:
        with open(__file__) as file:
            while file.readline():
                continue
    try:
        return [one for one in words if one] or words[5]
    except IndexError:
        pass
    finally:
        number = (
            number,
            words,
        )

class Late:
    x = 1 if choose(0) else 2
'''

CALLS = {
    "nothing": "",
    "many": "choose(5)",
    "one and none": "choose(1); choose(0)",
    "words": "choose(0, ['', 'a', 'b', 'c', 'd', 'e'])",
    "negative": "choose(-1, ['a'])",
}


def pairs(data: bytes) -> list[tuple[int, int]]:
    flat = iter(array("i", data))
    return list(zip(flat, flat, strict=True))


class Measured:
    """A module, run under coverage.py, reported by it and by us."""

    def __init__(self, folder: Path, call: str) -> None:
        self.file = folder / "measured_module.py"
        self.file.write_text(SOURCE)
        measure = coverage.Coverage(
            data_file=str(folder / "data"), branch=True, include=[str(self.file)], config_file=False
        )
        measure.start()
        try:
            exec(compile(f"{SOURCE}\n{call}", str(self.file), "exec"), {"__file__": str(self.file)})
        finally:
            measure.stop()
        # What a step takes from its tracer, before coverage.py stores it away.
        bits = line_bits(coverage.version_info)
        self.arcs = pairs(pack_arcs(measure._collector.data[str(self.file)], bits))
        measure.save()
        measure.json_report(outfile=str(folder / "report.json"))
        report = json.loads((folder / "report.json").read_text())
        (self.report,) = report["files"].values()
        self.analysis = Analysis(measure, str(self.file))


@pytest.fixture(params=list(CALLS.values()), ids=list(CALLS))
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> Measured:
    return Measured(tmp_path, request.param)


def test_executed_is_what_the_json_report_lists(measured: Measured) -> None:
    branches, lines = measured.analysis.executed(measured.arcs)
    assert branches == sorted(tuple(arc) for arc in measured.report["executed_branches"])
    assert lines == measured.report["executed_lines"]
    assert len(branches) > 0


def test_totals_are_those_of_the_json_report(measured: Measured) -> None:
    analysis = measured.analysis
    assert analysis.branches_total == measured.report["summary"]["num_branches"]
    assert len(analysis.statements) == measured.report["summary"]["num_statements"]
    everything = measured.report["executed_branches"] + measured.report["missing_branches"]
    assert analysis.possible_branches() == sorted(tuple(arc) for arc in everything)


def test_arcs_that_the_module_does_not_have_are_left_out(measured: Measured) -> None:
    made_up = [(1, 999), (999, 1), (-5, 7), (3, 3), (2**31 - 1, -(2**31))]
    branches, lines = measured.analysis.executed(made_up)
    assert branches == []
    assert set(lines) <= measured.analysis.statements


def packed(arc: tuple[int, int], bits: int) -> int:
    """As CTracer_record_pair does it."""
    src, dst = arc
    return abs(src) | abs(dst) << bits | (src < 0) << 2 * bits | (dst < 0) << 2 * bits + 1


line = st.integers(-(2**20) + 1, 2**20 - 1)


@given(st.sets(st.tuples(line, line)), st.sampled_from([20, 28]))
def test_every_notation_of_arcs_reads_the_same(arcs: set[tuple[int, int]], bits: int) -> None:
    notations = [{packed(arc, bits) for arc in arcs}, arcs, dict.fromkeys(arcs)]
    for found in notations:
        assert set(pairs(pack_arcs(found, bits))) == arcs


@pytest.mark.parametrize(
    ("version", "bits"), [((6, 2), 20), ((7, 10, 7), 20), ((7, 13, 4), 28), ((7, 17, 5, "final", 0), 28)]
)
def test_line_bits(version: tuple[Any, ...], bits: int) -> None:
    assert line_bits(version) == bits


def test_a_durable_tracer_leaves_its_arcs_in_shared_memory() -> None:
    shared = Shared()
    shared.clear()
    arcs = DurableArcs(shared.memory)
    arcs.add((1, 2))
    arcs.add((1, 2))
    arcs[(-3, 4)] = None
    assert (1, 2) in arcs
    assert shared.read_log() == [(1, 2), (-3, 4)]
    shared.clear()
    assert shared.read_log() == []


@given(st.lists(st.tuples(line, line), max_size=50), st.text(max_size=20), st.text(max_size=20))
def test_a_report_survives_shared_memory(arcs: list[tuple[int, int]], name: str, text: str) -> None:
    shared = Shared()
    shared.clear()
    assert shared.read() is None
    data = pack_arcs(arcs, 28)
    writer(shared.memory)(3, True, False, data, name.encode(), text.encode())
    found = shared.read()
    assert found is not None
    assert found.arcs == arcs
    assert (found.exit_code, found.early, found.children, found.measured) == (3, True, False, True)
    assert (found.exception_class or "", found.exception or "") == (name, text)


@given(st.binary(max_size=64))
def test_a_forged_report_is_read_or_refused(scribble: bytes) -> None:
    shared = Shared()
    shared.memory[: 4 + len(scribble)] = b"STEP" + scribble
    shared.read()
    shared.read_log()


def test_what_does_not_fit_is_no_report() -> None:
    shared = Shared()
    shared.clear()
    writer(shared.memory)(0, False, False, bytes(4 * 1024 * 1024), b"", b"")
    assert shared.read() is None
