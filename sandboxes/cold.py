"""The reference: a script under plain `coverage run --branch` in a fresh place.

No probe, no fork, nothing preloaded, coverage.py's own JSON report. `corridor verify`
and the conformance suite hold the fast path to it; `corridor bench steps` times it.
"""

from __future__ import annotations

import json

from sandboxes.probe.messages import Limits
from sandboxes.sandbox import Arc, Cold, Image, Measurement, TargetFacts

SCRATCH = "/tmp/step"
"""Where a step's script stands, warm or cold, in containers and in mount namespaces of ours."""

SHELL = """\
mkdir -p "$1" && cd "$1" && head -c "$2" > script.py || exit 97
timeout -s KILL "$3" "$4" -m coverage run --branch --source="$5" script.py </dev/null >../step.out 2>&1
echo "exit $?"
"$4" -c "$6" 2>&1
"""
"""For `sh -c SHELL sh FOLDER BYTES TIMEOUT PYTHON TARGET REPORT`; the script comes on standard input."""

REPORT = """\
import sys
from coverage import cmdline, jsonreport, results
if not hasattr(results.Analysis, "executed_branch_arcs"):
    one = jsonreport.JsonReporter.report_one_file
    def report_one_file(self, data, analysis):
        report, lines = one(self, data, analysis), set(analysis._branch_lines())
        report["executed_branches"] = [arc for arc in analysis.arcs_executed() if arc[0] in lines]
        return report
    jsonreport.JsonReporter.report_one_file = report_one_file
sys.exit(cmdline.main(["json", "-q", "-o", "-"]))
"""
"""`coverage json`; before 6.5 that does not list executed branches. Here it does, as 6.5 counts them."""

_KILLED = (124, 137)


def environment(image: Image, home: str = "/tmp") -> dict[str, str]:
    """What a step finds in its environment, besides what the image sets. Never a secret."""
    return {
        "PYTHONPATH": image.kit,
        # Sets of strings are in the same order in every process: the same script, the same branches.
        "PYTHONHASHSEED": "0",
        "COVERAGE_RUN": "true",  # `coverage run` sets it
        "HOME": home,
        "TMPDIR": home,
    }


def command(image: Image, target: str, script: bytes, limits: Limits, folder: str = SCRATCH) -> list[str]:
    """The reference's command line."""
    return [
        "sh",
        "-c",
        SHELL,
        "sh",
        folder,
        str(len(script)),
        f"{limits.timeout_s:.1f}",
        image.python,
        target,
        REPORT,
    ]


def script_bytes(script: str) -> bytes:
    """A script as its file holds it; lone surrogates stay, for Python to refuse."""
    return script.encode("utf-8", "surrogatepass")


def parse(output: str, facts: TargetFacts, seconds: float) -> Cold:
    """What the command printed. A run that was killed left no data: measurement None."""
    head, _, rest = output.partition("\n")
    code = int(head.removeprefix("exit ")) if head.startswith("exit ") else -1
    start = rest.find("{")
    if start < 0:
        nothing_ran = "No data" in rest and code not in _KILLED
        empty = Measurement(frozenset(), frozenset())
        return Cold(empty if nothing_ran else None, code, seconds, output[-2000:])
    report = json.loads(rest[start:])["files"].get(facts.file)
    if report is None:
        return Cold(Measurement(frozenset(), frozenset()), code, seconds, output[-2000:])
    # Current coverage.py itself leaves out arcs that it holds impossible and lines that are no
    # statements; the older ones in older Pythons' kits list them.
    branches: frozenset[Arc] = frozenset((src, dst) for src, dst in report["executed_branches"])
    lines = frozenset(report["executed_lines"]) & facts.statements
    return Cold(Measurement(branches & facts.branches, lines), code, seconds, "")
