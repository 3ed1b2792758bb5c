"""What every sandbox must do, as data: one suite for all back ends (test_conformance.py runs it).

Most of it is hostile: a prelude that uses a target, then a line that attacks. What ran
before the line must count, and a control step on the same target, in the same sandbox,
must then give exactly the numbers that a fresh interpreter gives.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxes.errors import SandboxLost, TargetError
from sandboxes.sandbox import Backend, Image, Limits, StepOutcome

DATASET = Path(__file__).parents[2] / "datasets" / "repo_explore_bench"

PLENTY = Limits(timeout_s=30)
SHORT = Limits(timeout_s=1.5)
SMALL = Limits(timeout_s=30, memory_mib=256)
FEW = Limits(timeout_s=30, processes=50)

PASSED, FAILED = StepOutcome.PASSED, StepOutcome.FAILED
TIMEOUT, CRASHED, OOM = StepOutcome.TIMEOUT, StepOutcome.CRASHED, StepOutcome.OOM


class Guard(enum.Enum):
    """What a back end can protect; the value says why a case is skipped where it cannot."""

    FILES = "it runs as us: nothing keeps a step from the files of this machine"
    PROCESSES = "it runs as us: nothing keeps a step from our processes, or counts its own"
    NETWORK = "it has the network of this machine"


@dataclass(frozen=True)
class Stand:
    """A back end under test."""

    backend: Backend
    image: Image
    guards: frozenset[Guard] = frozenset()

    @property
    def isolated(self) -> bool:
        """Whether it may hold code that nobody has read."""
        return Guard.FILES in self.guards


async def check_protocol(backend: Backend, image: Image, target: str) -> None:
    """What holds whatever a sandbox is made of, and whether or not it executes anything."""
    await backend.check()
    sandbox = await backend.open(image)
    facts = await sandbox.prepare(target)
    assert facts.target == target
    assert facts.source
    assert 0 < len(facts.branches) <= facts.branches_total
    assert {line for line, _ in facts.branches} <= facts.statements
    assert await sandbox.prepare(target) == facts
    for unknown in ("no_such_package.module", "itertools", "a-b", ""):
        with pytest.raises(TargetError, match=unknown or None):
            await sandbox.prepare(unknown)
        with pytest.raises(TargetError, match=unknown or None):
            await sandbox.execute(unknown, "", PLENTY)
    assert not sandbox.dirty
    await sandbox.close()
    await sandbox.close()
    assert sandbox.dirty
    for call in (sandbox.prepare(target), sandbox.execute(target, "", PLENTY)):
        with pytest.raises(SandboxLost, match="closed"):
            await call


class Kept(enum.Enum):
    """How a hostile step's coverage stands to its prelude's."""

    ALL = "the same"
    NONE = "none: not a line ran"
    ANY = "what it could not destroy"


@dataclass(frozen=True)
class Hostile:
    """A script that attacks, and what must come of it."""

    name: str
    line: str
    """Runs after the prelude; `TARGET` in it becomes the target's name."""
    outcome: StepOutcome
    complete: bool = True
    kept: Kept = Kept.ALL
    limits: Limits = PLENTY
    needs: frozenset[Guard] = frozenset()
    says: str = ""
    """Must be in its output, or in what ended it."""
    never_says: str = ""
    alone: bool = field(default=False)
    """`line` is the whole script; `PRELUDE` in it becomes the prelude."""

    def script(self, target: str) -> str:
        """The whole of it."""
        prelude = PRELUDES[target]
        text = self.line.replace("PRELUDE", prelude) if self.alone else prelude + self.line
        return text.replace("TARGET", target)


PRELUDES = {
    "werkzeug.http": """\
from werkzeug.http import dump_cookie, parse_options_header
parse_options_header('text/html; charset=utf-8; boundary="x"')
dump_cookie("session", "a b c", max_age=3600, httponly=True)
""",
    "jinja2.lexer": """\
from jinja2 import Environment
list(Environment().lex("{% for x in y %}{{ x|upper }}{# note #}{% endfor %}"))
""",
    "click.core": """\
import click
@click.command()
@click.option("--count", default=1)
def hello(count): click.echo("hi " * count)
hello.main(["--count", "2"], standalone_mode=False)
""",
}
"""Use a target, and end the same way each time."""

MARK = "a secret of the host"
"""Stands in the environment of the tests' own process."""

FILES = frozenset({Guard.FILES})
PROCESSES = frozenset({Guard.PROCESSES})
NETWORK = frozenset({Guard.NETWORK})

HOSTILE = [
    # -- never ending
    Hostile("endless-loop", "print('so far')\nwhile True: pass", TIMEOUT, False, limits=SHORT, says="so far"),
    Hostile("loop-in-c", "import itertools\nsum(itertools.repeat(1))", TIMEOUT, False, limits=SHORT),
    Hostile(
        "deaf-to-signals",
        "import signal\n"
        "for number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass",
        TIMEOUT,
        False,
        limits=SHORT,
    ),
    Hostile("stopped", "import os\nos.kill(os.getpid(), 19)", TIMEOUT, False, limits=SHORT),
    Hostile(
        "endless-text-of-an-error",
        "class Endless(Exception):\n"
        "    def __str__(self):\n"
        "        while True: pass\n"
        "import sys\nsys.excepthook = lambda *found: None\nraise Endless",
        TIMEOUT,
        False,
        limits=SHORT,
    ),
    Hostile(
        "threads-that-never-end",
        "import threading, time\n"
        "def wait():\n"
        "    while True: time.sleep(0.01)\n"
        "for _ in range(5): threading.Thread(target=wait).start()",
        PASSED,
    ),
    # -- too much
    Hostile("recursion", "def f(): f()\nf()", FAILED, says="RecursionError"),
    Hostile(
        "recursion-in-c",
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "class Mirror:\n    def __repr__(self): return repr(self)\nrepr(Mirror())",
        CRASHED,
        False,
    ),
    Hostile("ten-gigabytes-at-once", "bytearray(10 << 30)", OOM, says="MemoryError"),
    Hostile(
        "ten-gigabytes-bit-by-bit",
        "held = []\nwhile True: held.append(bytearray(1 << 20))",
        OOM,
        limits=SMALL,
        says="MemoryError",
    ),
    Hostile(
        "out-of-memory-and-carrying-on",
        "try: bytearray(10 << 30)\nexcept MemoryError: print('went on')",
        PASSED,
        says="went on",
    ),
    Hostile(
        "ten-gigabytes-shared", "import mmap\nmmap.mmap(-1, 10 << 30)", OOM, says="Cannot allocate memory"
    ),
    Hostile(
        "ten-gigabytes-in-a-mapped-file",
        "import mmap, os\nfile = os.open('m', os.O_RDWR | os.O_CREAT)\nos.ftruncate(file, 10 << 30)",
        FAILED,
        says="File too large",
    ),
    Hostile(
        "ten-gigabytes-in-a-file",
        "with open('big', 'wb') as file:\n    for _ in range(10240): file.write(bytes(1 << 20))",
        FAILED,
        says="File too large",
    ),
    Hostile(
        "ten-gigabytes-in-many-files",
        "for number in range(10240):\n"
        "    with open(f'big{number}', 'wb') as file: file.write(bytes(1 << 20))",
        FAILED,
        says="No space left",
        needs=FILES,
    ),
    Hostile(
        "files-without-number",
        "for number in range(10**6): open(f'/dev/shm/{number}', 'w').close()",
        FAILED,
        says="No space left",
        needs=FILES,
    ),
    Hostile("one-gigabyte-printed", "for _ in range(1024): print('x' * (1 << 20))", PASSED, says="xxx"),
    Hostile(
        "fork-bomb",
        "import os\nwhile True: os.fork()",
        FAILED,
        False,
        says="BlockingIOError",
        needs=PROCESSES,
    ),
    Hostile(
        "fork-bomb-that-does-not-mind",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        TIMEOUT,
        False,
        limits=SHORT,
        needs=PROCESSES,
    ),
    # -- processes
    Hostile(
        "daemon",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 100)\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()",
        PASSED,
        False,
    ),
    Hostile(
        "daemon-that-clings",
        "import ctypes, os, signal, time\n"
        "ctypes.CDLL(None).prctl(1, 0)\n"
        "if os.fork() == 0:\n"
        "    for number in range(1, 65):\n"
        "        try: signal.signal(number, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n"
        "    os.setsid()\n"
        "    time.sleep(1000)",
        PASSED,
        False,
    ),
    Hostile(
        "daemon-that-kills-whom-it-may",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        try: os.kill(-1, 9)\n"
        "        except OSError: pass\n"
        "time.sleep(1000)",
        CRASHED,
        False,
        needs=PROCESSES,
    ),
    Hostile(
        "orphans-without-end",
        "import os\n"
        "for _ in range(100):\n"
        "    read, write = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "        os._exit(0)\n"
        "    os.close(write)\n"
        "    os.read(read, 1)\n"
        "    os.close(read)\n"
        "    assert os.wait()[1] == 0",
        PASSED,
        False,
        limits=FEW,
    ),
    Hostile(
        "pool",
        "import multiprocessing\nwith multiprocessing.Pool(2) as pool: print(pool.map(len, ['a', 'bb']))",
        PASSED,
        False,
        says="[1, 2]",
    ),
    Hostile(
        "exec", "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo another'])", PASSED, False, says="another"
    ),
    Hostile(
        "kill-parent",
        "import os\ntry: os.kill(os.getppid(), 9)\nexcept OSError: print('refused')",
        PASSED,
        needs=PROCESSES,
    ),
    Hostile("kill-all", "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass", PASSED, needs=PROCESSES),
    Hostile(
        "no-other-process-to-be-seen",
        "import os\nfor name in os.listdir('/proc'):\n"
        "    if name.isdigit():\n"
        "        try: print(open(f'/proc/{name}/environ').read(), open(f'/proc/{name}/maps').read())\n"
        "        except OSError: pass",
        PASSED,
        never_says=MARK,
        needs=PROCESSES,
    ),
    # -- ways to end
    Hostile("exit-0", "import sys\nsys.exit(0)", PASSED),
    Hostile("exit-3", "import sys\nsys.exit(3)", FAILED),
    Hostile("exit-256", "import sys\nsys.exit(256)", PASSED),
    Hostile("exit-with-a-text", "import sys\nsys.exit('a text')", FAILED, says="a text"),
    Hostile("hard-exit-0", "import os\nos._exit(0)", PASSED, False),
    Hostile("hard-exit-3", "import os\nos._exit(3)", FAILED, False),
    Hostile("keyboard-interrupt", "raise KeyboardInterrupt", FAILED),
    Hostile("base-exception", "raise BaseException('odd')", FAILED, says="odd"),
    Hostile("kill-itself", "import os\nos.kill(os.getpid(), 9)", CRASHED, False),
    Hostile("terminate-itself", "import os\nos.kill(os.getpid(), 15)", CRASHED, False),
    Hostile("segmentation-fault", "import ctypes\nctypes.string_at(0)", CRASHED, False),
    Hostile(
        "error-that-cannot-be-shown",
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        FAILED,
        says="Odd",
    ),
    Hostile(
        "error-with-a-huge-name", "raise type('A' * (8 << 20), (Exception,), {})", FAILED, says="A" * 500
    ),
    Hostile("no-stdout", "import sys\nsys.stdout = sys.stderr = None\nraise ValueError('lost')", FAILED),
    # -- descriptors and our own workings
    Hostile("close-every-descriptor", "import os\nos.closerange(0, 4096)", PASSED),
    Hostile(
        "write-to-every-descriptor",
        "import os\nfor number in range(4096):\n"
        "    try: os.write(number, b'junk' * 100)\n"
        "    except OSError: pass",
        PASSED,
        says="junk",
    ),
    Hostile(
        "patch-everything",
        "import array, builtins, coverage, json, os, struct\n"
        "coverage.Coverage.stop = coverage.Coverage.save = json.dumps = os.write = os._exit = None\n"
        "array.array = struct.pack = os.getpid = os.waitid = None\n"
        "for name in ('len', 'int', 'list', 'str', 'type', 'isinstance', 'getattr', 'open', 'print',\n"
        "             'Exception', 'BaseException', 'SystemExit'):\n"
        "    setattr(builtins, name, None)",
        PASSED,
    ),
    Hostile("no-builtins-left", "import builtins\nbuiltins.__dict__.clear()", PASSED),
    Hostile("no-modules-left", "import sys\nsys.modules.clear()", PASSED),
    Hostile("stop-tracing", "import sys\nsys.settrace(None)", PASSED),
    Hostile("trace-itself", "import sys\nsys.settrace(lambda *found: None)", PASSED),
    Hostile(
        "scribble-over-shared-memory",
        "import os\n"
        "with open('/proc/self/mem', 'r+b', 0) as memory:\n"
        "    for line in open('/proc/self/maps'):\n"
        "        span, rights = line.split()[:2]\n"
        "        if rights == 'rw-s':\n"
        "            first, last = (int(end, 16) for end in span.split('-'))\n"
        "            memory.seek(first)\n"
        "            memory.write(b'STEP' + b'\\xff' * (last - first - 4))\n"
        "os.kill(os.getpid(), 9)",
        CRASHED,
        False,
        kept=Kept.ANY,
    ),
    Hostile(
        "report-what-never-ran",
        "import ctypes, struct\n"
        "for line in open('/proc/self/maps'):\n"
        "    span, rights = line.split()[:2]\n"
        "    if rights == 'rw-s':\n"
        "        body = b'STEP' + struct.pack('<BBBxiIII', 0, 0, 1, 0, 2, 0, 0)\n"
        "        body += struct.pack('=iiii', 10**6, 10**6 + 1, -5, 2**31 - 1)\n"
        "        ctypes.memmove(int(span.split('-')[0], 16), body, len(body))\n"
        "import os\nos.kill(os.getpid(), 9)",
        CRASHED,
        False,
        kept=Kept.NONE,
    ),
    # -- files and surroundings
    Hostile(
        "delete-the-target",
        "import os, TARGET as target\n"
        "try: os.unlink(target.__file__)\n"
        "except OSError as error: print(error.strerror)",
        PASSED,
        says="Read-only file system",
        needs=FILES,
    ),
    Hostile(
        "delete-everything",
        "import os, shutil\nfor name in ('/tmp', '/etc', '/opt', '/dev'):\n"
        "    shutil.rmtree(name, ignore_errors=True)",
        PASSED,
        needs=FILES,
    ),
    Hostile("delete-itself", "import os, shutil\nos.unlink('script.py')\nshutil.rmtree(os.getcwd())", PASSED),
    Hostile("deep-folders", "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')", PASSED),
    Hostile(
        "unreadable-files",
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nopen('u', 'w').close()\n"
        "for name in ('a/b/c', 'a/b', 'a', 'u', '.'): os.chmod(name, 0)",
        PASSED,
    ),
    Hostile(
        "links-out-of-scratch",
        "import os, TARGET as target\n"
        "os.symlink(os.path.dirname(target.__file__), 'folder')\n"
        "os.symlink(target.__file__, 'file')\n"
        "os.symlink('loop', 'loop')",
        PASSED,
    ),
    Hostile(
        "other-surroundings",
        "import locale, os\nos.chdir('/')\nos.environ.clear()\nos.umask(0o777)\n"
        "locale.setlocale(locale.LC_ALL, 'C')",
        PASSED,
    ),
    Hostile("environment", "import os\nprint(dict(os.environ))", PASSED, says="PATH", never_says=MARK),
    Hostile(
        "network",
        "import socket\nsocket.create_connection(('1.1.1.1', 53), 5)",
        FAILED,
        says="Network is unreachable",
        needs=NETWORK,
    ),
    Hostile(
        "sockets-of-services",
        "import os\nnames = '/run/docker.sock', '/var/run/docker.sock', '/dev/kvm', '/dev/sda', '/dev/mem'\n"
        "print([name for name in names if os.path.exists(name)])",
        PASSED,
        says="[]",
        needs=FILES,
    ),
    Hostile(
        "namespaces-of-its-own",
        "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000), ctypes.CDLL(None).unshare(0x20000))",
        PASSED,
        says="-1 -1",
        needs=PROCESSES,
    ),
    # -- text that is no script, or an odd one
    Hostile("no-script", "", PASSED, kept=Kept.NONE, alone=True),
    Hostile("nul-byte", "PRELUDE\0", FAILED, kept=Kept.NONE, alone=True),
    Hostile("byte-order-mark", "\ufeffPRELUDE", PASSED, alone=True),
    Hostile("mixed-tabs", "if True:\n\tx = 1\n        y = 2", FAILED, kept=Kept.NONE, says="TabError"),
    Hostile("print-statement", "print 'x'", FAILED, kept=Kept.NONE, says="SyntaxError"),
    Hostile("match-statement", "match 1:\n    case 1: print('matched')", PASSED, says="matched"),
    Hostile("lone-surrogate-printed", "print('\\udc80')", PASSED),
    Hostile("another-encoding", "# coding: latin-1\nPRELUDE", PASSED, alone=True),
    Hostile("unknown-encoding", "# coding: klingon\nPRELUDE", FAILED, kept=Kept.NONE, alone=True),
    Hostile("too-deep-to-parse", "1" + "+1" * 200_000, FAILED, kept=Kept.NONE),
]

LEAVES_NOTHING = [
    # (name, a script that leaves something, a script that fails when it is still there)
    ("a-file", "open('/tmp/left', 'w').close()", "import os\nassert not os.path.exists('/tmp/left')"),
    (
        "a-file-in-shared-memory",
        "open('/dev/shm/left', 'w').close()",
        "import os\nassert not os.path.exists('/dev/shm/left')",
    ),
    (
        "shared-memory-of-system-v",
        "import ctypes\nassert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0",
        "assert len(open('/proc/sysvipc/shm').readlines()) == 1",
    ),
    (
        "semaphores-of-system-v",
        "import ctypes\nassert ctypes.CDLL(None).semget(0, 1, 0o1600) >= 0",
        "assert len(open('/proc/sysvipc/sem').readlines()) == 1",
    ),
    (
        "a-message-queue",
        "import ctypes, os\nctypes.CDLL('librt.so.1').mq_open(b'/left', os.O_CREAT | os.O_RDWR, 0o600, None)",
        "import ctypes, os\nassert ctypes.CDLL('librt.so.1').mq_open(b'/left', os.O_RDWR) == -1",
    ),
    (
        "an-imported-module",
        "import string\nstring.left = True",
        "import string\nassert not hasattr(string, 'left')",
    ),
]
