"""The command line as a process: what `--help` loads, and how errors end."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "litellm", "duckdb", "pyarrow", "docker", "scipy", "rich", "coverage", "asyncio", "httpx")


def corridor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command, and then names on its error stream which heavy modules it loaded."""
    code = (
        "import sys\n"
        "from runner.cli import main\n"
        "try:\n"
        "    code = main()\n"
        "except SystemExit as exit:\n"
        "    code = exit.code\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("bench", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    done = corridor(*arguments)
    assert done.returncode == 0
    assert "usage" in done.stdout.lower()
    assert done.stderr == "LOADED []\n"


def test_an_unknown_command_is_named_and_is_a_usage_error() -> None:
    done = corridor("lederboard")
    assert done.returncode == 2
    assert "lederboard" in done.stderr
    assert "Traceback" not in done.stderr
