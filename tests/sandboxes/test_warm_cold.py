"""Warm equals cold: the probe's numbers are those of `coverage run --branch` in a fresh place."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from sandboxes.sandbox import StepOutcome
from tests.sandboxes.conformance import PLENTY
from tests.sandboxes.conftest import Rig


@dataclass(frozen=True)
class Case:
    """A script as people and models write them."""

    name: str
    target: str
    script: str
    complete: bool = True
    """False: cold loses something, and is held to a subset."""
    empty: bool = False
    """Nothing of the target runs."""


CASES = [
    Case(
        "threads",
        "werkzeug.http",
        """\
import threading
from werkzeug.http import parse_options_header, quote_etag, unquote_etag
def work(number):
    parse_options_header(f"text/html; charset=utf-8; q={number}")
    unquote_etag(quote_etag(str(number), weak=number % 2 == 0))
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    ),
    Case(
        "imports-in-functions",
        "flask.app",
        """\
def make():
    from flask import Flask, abort
    app = Flask("made")
    @app.route("/<int:number>")
    def show(number):
        if number > 3: abort(404)
        return {"number": number}
    return app
def test_it():
    client = make().test_client()
    assert client.get("/2").json == {"number": 2}
    assert client.get("/7").status_code == 404
if __name__ == "__main__":
    test_it()
""",
    ),
    Case(
        "edits-sys-path-before-the-import",
        "click.core",
        """\
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
os.mkdir("lib")
open("lib/helper.py", "w").write("import click\\n@click.group()\\ndef cli(): pass\\n")
from helper import cli
try: cli.main(["--help"])
except SystemExit as end: print(end.code)
""",
    ),
    Case(
        "patches-before-the-import",
        "werkzeug.http",
        """\
from unittest import mock
import os
with mock.patch("time.time", return_value=0), mock.patch.object(os, "stat", side_effect=OSError):
    import werkzeug.http
print(werkzeug.http.http_date(0))
""",
    ),
    Case(
        "uncaught-exception-in-the-target",
        "jinja2.lexer",
        """\
from jinja2 import Environment
environment = Environment(line_statement_prefix="#")
try: list(environment.lex("{{ 'unfinished }}"))
except Exception as error: print(type(error).__name__)
list(environment.lex("{{ ( ] }}"))
""",
    ),
    Case(
        "generators-left-in-the-middle",
        "jinja2.lexer",
        """\
from jinja2 import Environment
lexer = Environment().lexer
tokens = lexer.tokeniter("a {{ b }} {% raw %} c {% endraw %} d", "name")
print(next(tokens), next(tokens))
other = lexer.tokeniter("a {# b #}", "name")
next(other)
other.close()
""",
    ),
    Case(
        "asyncio",
        "jinja2.environment",
        """\
import asyncio
from jinja2 import Environment
async def render(number):
    template = Environment(enable_async=True).from_string("{% for x in y %}{{ x }}{% endfor %}")
    return await template.render_async(y=range(number))
async def main():
    print(await asyncio.gather(*(render(number) for number in range(4))))
asyncio.run(main())
""",
    ),
    Case(
        "excepthook",
        "click.core",
        """\
import sys, click
def hook(kind, error, trace):
    click.Context(click.Command("late")).get_help()
    sys.exit(7)
sys.excepthook = hook
click.Context(click.Command("early")).fail("no")
""",
    ),
    Case(
        "atexit-and-a-thread-that-stays",
        "werkzeug.http",
        """\
import atexit, threading, werkzeug.http as http
atexit.register(http.parse_accept_header, "text/html;q=0.5")
http.parse_set_header("a, b")
ended = threading.Event()
threading.Thread(target=ended.wait, args=(0.2,)).start()
""",
    ),
    Case(
        "looks-at-sys-modules-and-imports-anew",
        "werkzeug.http",
        """\
import sys
assert "werkzeug" not in sys.modules and "werkzeug.http" not in sys.modules
import werkzeug.http
first = sys.modules.pop("werkzeug.http")
import werkzeug.http as second
assert first is not sys.modules["werkzeug.http"]
sys.modules["werkzeug.http"].parse_age("3")
""",
    ),
    Case(
        "reload",
        "jinja2.lexer",
        """\
import importlib, jinja2.lexer
jinja2.lexer = importlib.reload(jinja2.lexer)
from jinja2 import Environment
print(list(jinja2.lexer.Lexer(Environment()).tokeniter("{{ 1.5 }}", None)))
""",
    ),
    Case(
        "warnings-are-errors",
        "rich.console",
        """\
import warnings
warnings.simplefilter("error")
from rich.console import Console
console = Console(width=40, record=True)
console.print("[bold]hello[/bold]", style="red")
console.export_html()
""",
    ),
    Case(
        "unittest-main",
        "werkzeug.http",
        """\
import unittest
from werkzeug.http import parse_range_header
class Ranges(unittest.TestCase):
    def test_good(self): self.assertEqual(parse_range_header("bytes=0-4").ranges, [(0, 5)])
    def test_odd(self): self.assertIsNone(parse_range_header("bytes=4-0"))
    def test_wrong(self): self.assertEqual(parse_range_header("nonsense"), 3)
unittest.main()
""",
    ),
    Case(
        "recursion-to-the-limit",
        "jinja2.parser",
        """\
from jinja2 import Environment
for depth in (50, 120, 10_000):
    try: print(len(str(Environment().parse("{{ " + "(" * depth + "1" + ")" * depth + " }}"))))
    except RecursionError: print("too deep")
""",
    ),
    Case(
        "trace-function-taken-away-half-way",
        "rich.console",
        """\
import sys
from rich.console import Console
Console(width=30).print({"a": [1, 2]})
sys.settrace(None)
Console(width=30, stderr=True).rule("not seen")
""",
    ),
    Case(
        "module-of-the-same-name-in-the-folder",
        "werkzeug.http",
        """\
import os
os.mkdir("werkzeug")
open("werkzeug/__init__.py", "w").close()
open("werkzeug/http.py", "w").write("def dump_age(age):\\n    if age: return 1\\n    return 0\\n")
from werkzeug.http import dump_age
dump_age(3)
""",
        empty=True,
    ),
    Case(
        "lone-surrogate-in-the-source",
        "werkzeug.http",
        "import werkzeug.http\nprint(len('\udc80'), werkzeug.http.quote_header_value('\udc80 x'))\n",
    ),
    Case(
        "surroundings-of-a-fresh-interpreter",
        "werkzeug.http",
        """\
import os, signal, sys, threading
import werkzeug.http
for number in (signal.SIGALRM, signal.SIGCHLD, signal.SIGTERM):
    assert signal.getsignal(number) is signal.SIG_DFL, number
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.set_wakeup_fd(-1) == -1 and signal.alarm(0) == 0
assert sys.argv == ["script.py"] and __name__ == "__main__" and __spec__ is None and __package__ is None
assert __file__ == os.path.abspath("script.py") and sys.path[0] == os.getcwd()
assert sys.stdin.read() == "" and not sys.stdout.isatty()
assert os.environ["COVERAGE_RUN"] == "true" and os.environ["HOME"] == os.environ["TMPDIR"] == "/tmp"
assert threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
assert [name for name in sys.modules if name.startswith("corridor")] == []
assert os.getuid() != 0
try: os.wait()
except ChildProcessError: pass
else: raise AssertionError("a child from before")
""",
    ),
    Case(
        "forks",
        "werkzeug.http",
        """\
import multiprocessing
from werkzeug.http import parse_age, dump_age
with multiprocessing.get_context("fork").Pool(2) as pool: pool.map(parse_age, ["1", "-1", "x"])
dump_age(3)
""",
        complete=False,
    ),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
async def test_warm_equals_cold(isolated_rig: Rig, case: Case) -> None:
    await isolated_rig.prepare(case.target)
    sandbox = await isolated_rig.sandbox()
    warm = await sandbox.execute(case.target, case.script, PLENTY)
    again, cold = await asyncio.gather(
        sandbox.execute(case.target, case.script, PLENTY), isolated_rig.cold(case.target, case.script)
    )
    assert warm.measurement is not None
    assert cold.measurement is not None, cold.output
    assert again.measurement == warm.measurement
    assert warm.coverage_complete is case.complete
    assert (warm.outcome is StepOutcome.PASSED) == (cold.exit_code == 0), warm.output
    assert case.empty or warm.measurement.branches
    if case.complete:
        assert warm.measurement.branches == cold.measurement.branches
        assert warm.measurement.lines == cold.measurement.lines
    else:
        assert warm.measurement.branches >= cold.measurement.branches
        assert warm.measurement.lines >= cold.measurement.lines


async def test_cold_loses_what_warm_keeps(isolated_rig: Rig) -> None:
    script = "import os, werkzeug.http\nwerkzeug.http.parse_age('3')\n"
    await isolated_rig.prepare("werkzeug.http")
    sandbox = await isolated_rig.sandbox()
    whole = await sandbox.execute("werkzeug.http", script, PLENTY)
    for end in ("os._exit(3)", "os.kill(os.getpid(), 9)"):
        cold = await isolated_rig.cold("werkzeug.http", script + end)
        assert cold.measurement is None or not cold.measurement.lines
        assert cold.exit_code != 0
        warm = await sandbox.execute("werkzeug.http", script + end, PLENTY)
        assert warm.measurement == whole.measurement
        assert not warm.coverage_complete
