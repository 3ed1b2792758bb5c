"""What a command pays before it does anything."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ["duckdb", "numpy", "pyarrow", "rich", "scipy"]


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("analysis", []),
        ("analysis.table", []),
        ("analysis.published", []),
        ("analysis.leaderboard", ["duckdb", "numpy", "pyarrow"]),
        ("analysis.compare", ["duckdb", "numpy", "pyarrow"]),
        ("analysis.status", ["duckdb", "numpy", "pyarrow"]),
        ("analysis.sql", ["duckdb", "numpy", "pyarrow"]),
    ],
)
def test_a_module_imports_no_more_than_it_needs(module: str, allowed: list[str]) -> None:
    code = f"import {module}, sys, json; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(said.stdout)) <= set(allowed)
