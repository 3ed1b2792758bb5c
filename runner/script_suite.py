"""A script strategy's passed scripts as a pytest file: what such an episode delivers."""

from __future__ import annotations

from collections.abc import Sequence

HEAD = """\
def _run(script):
    try:
        exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        assert not end.code, end.code
"""


def script_suite(scripts: Sequence[tuple[int, str]]) -> str:
    """One test function for each (step, script); each runs as a main module of its own.

    A script asserts only what it asserts, and one that asserts nothing kills a mutant only
    by an exception.
    """
    parts = [HEAD]
    for number, script in scripts:
        parts.append(f"\n\ndef test_step_{number}():\n    _run({script!r})\n")
    return "".join(parts)
