"""One step, in the forked child: confine, start coverage, run the script, report.

The running follows coverage.py's own `coverage run` (coverage/execfile.py, PyRunner, and
cmdline.py, do_run), so that a fresh interpreter under that command executes the same
lines. After the script nothing here may lean on a name that a script can rebind:
builtins and functions are held from before, and this package is out of sys.modules.
"""

import builtins
import os
import resource
import signal
import sys
import traceback
import types
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from . import confine
from .messages import Limits
from .shared import DurableArcs, Shared, pack_arcs, writer

DEADLINE_SIGNAL = signal.SIGRTMAX - 3
"""Asks the child to report what it has and end. An unusual one, so that scripts leave it alone."""

SCRIPT = "script.py"
TEXT_LIMIT = 500
COLD_DEPTH = 7 if sys.version_info >= (3, 12) else 8
"""Frames below a script's own under `python -m coverage run`: runpy's two, coverage.py's five, and
the call of exec in runpy where calls of C functions count too."""

_BaseException, _Exception, _SystemExit = BaseException, Exception, SystemExit
_KeyboardInterrupt = KeyboardInterrupt
_getattr, _isinstance, _int, _str, _type = getattr, isinstance, int, str, type


class Job(NamedTuple):
    """What the child needs to know."""

    folder: str
    """Its scratch folder, which holds the script: working directory and first on sys.path."""
    limits: Limits
    confinement: confine.Confinement
    coverage: Any
    """A coverage.Coverage that has started and stopped once, in the zygote."""
    file: str
    """The target's file as the tracer names it."""
    shared: Shared
    line_bits: int
    """See shared.line_bits."""
    hidden: Tuple[str, ...]
    """The probe's own modules, which a script must not find in sys.modules."""
    durable: bool
    """Use the tracer whose arcs survive the process."""


def run(job: Job, output: int) -> None:
    """Never returns: ends the process. `output` becomes descriptors 1 and 2."""
    try:
        _settle(job, output)
        path, main, data = _set_stage(job)
        report = _reporter(job, data)
        _report_early(report)
        script, error = _compile(path)
        _start(job.coverage, data)
    except _BaseException:
        job.shared.mark_failed()
        traceback.print_exc()
        os_exit(1)
    code = 1
    try:
        if script is not None:
            code, error = _execute(script, main)
        report(code, False, error)
        _flush()
    finally:
        os_exit(code)


os_exit = os._exit


def _settle(job: Job, output: int, keep: Tuple[int, ...] = ()) -> None:
    """Cut the child off from its keepers and bind it to its limits. `keep` are descriptors that stay."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
    confine.first_victim()
    os.chdir(job.folder)
    confine.set_limits(job.limits, job.confinement)
    confine.drop_privileges(job.confinement)
    confine.die_with_parent()  # a change of user would have cleared it


def _set_stage(job: Job) -> Tuple[str, types.ModuleType, Dict[str, Any]]:
    """Make the interpreter look like one just started on the script: (its path, __main__, tracer data)."""
    sys.argv = [SCRIPT]
    sys.path[0] = job.folder
    # The zygote looked there when there was no such folder; a script may import what it writes.
    sys.path_importer_cache.pop(job.folder, None)
    # coverage.py names a script as Python itself does: absolutely from 3.9.
    path = os.path.join(job.folder, SCRIPT) if sys.version_info >= (3, 9) else SCRIPT
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = _Loader("__main__")  # type: ignore[assignment]  # coverage run gives no more than this
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    for name in job.hidden:
        sys.modules.pop(name, None)
    data: Dict[str, Any] = {}
    if job.durable:
        data[job.file] = DurableArcs(job.shared.memory)
    return path, main, data


class _Loader:
    """What `coverage run` sets as the script's __loader__."""

    def __init__(self, fullname: str) -> None:
        self.fullname = fullname


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]  # None is one of the things it may be
        except _BaseException:
            pass  # replaced or closed by the script: what it held is its own loss


def _start(coverage: Any, data: Dict[str, Any]) -> None:
    """Start coverage so that the tracer fills `data`."""
    coverage._collector.data = data
    coverage.start()


def _compile(path: str) -> Tuple[Optional[types.CodeType], Optional[BaseException]]:
    """(the script's code, or None and why it has none). As coverage/execfile.py's make_code_from_py.

    That does it while it traces; here it comes before, since tracing it takes a millisecond.
    """
    from coverage.python import get_python_source  # the zygote has it; the probe starts without

    try:
        return compile(get_python_source(path), path, "exec", dont_inherit=True), None
    except Exception as error:
        traceback.print_exception(type(error), error, None)
        return None, error


def _execute(code: types.CodeType, main: types.ModuleType) -> Tuple[int, Optional[BaseException]]:
    """(exit code, what ended it). As coverage/execfile.py's PyRunner.run."""
    try:
        _level_recursion()
        exec(code, main.__dict__)
    except _SystemExit as exit:
        return _exit_code(exit), exit
    except _Exception as error:
        typ, trace = _type(error), error.__traceback__
        if trace is not None:
            trace = trace.tb_next
            error.__traceback__ = trace
        try:
            sys.excepthook(typ, error, trace)
        except _SystemExit as exit:
            return _exit_code(exit), error
        except _Exception:
            traceback.print_exc()
        return 1, error
    except _BaseException as error:
        trace = error.__traceback__
        traceback.print_exception(_type(error), error, trace and trace.tb_next)
        return 130 if _isinstance(error, _KeyboardInterrupt) else 1, error
    return 0, None


def _level_recursion() -> None:
    """Let the caller's script recurse exactly as deep as it could in a fresh run."""
    frames = 0
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        frames += 1
        frame = frame.f_back
    sys.setrecursionlimit(sys.getrecursionlimit() + frames - COLD_DEPTH)


def _exit_code(exit: SystemExit) -> int:
    if exit.code is None:
        return 0
    code: Any = exit.code
    if _isinstance(code, _int):
        number: int = code & 0xFF
        return number
    try:
        sys.stderr.write("%s\n" % (code,))
    except _BaseException:
        pass  # the script took stderr away; its exit code still says it failed
    return 1


Reporter = Callable[[int, bool, Optional[BaseException]], None]


def _reporter(job: Job, data: Dict[str, Any]) -> Reporter:
    """A function (exit code, early, error) that reports, once, from this process only."""
    write = writer(job.shared.memory)
    me = os.getpid()
    file = job.file
    durable, bits = job.durable, job.line_bits

    def report(
        code: int,
        early: bool,
        error: Optional[BaseException],
        getpid: Callable[[], int] = os.getpid,
        pack: Callable[[Any, int], bytes] = pack_arcs,
        describe: Callable[[BaseException], Tuple[bytes, bytes]] = _describe,
        had_children: Callable[[], bool] = _had_children(),
    ) -> None:
        if getpid() != me:
            return  # a child that the script forked has come to the end of it too
        # First of all: describing an error may run code of the target.
        arcs = pack(data.get(file), bits) if not durable else b""
        children = had_children()
        name, text = describe(error) if error is not None else (b"", b"")
        write(code, early, children, arcs, name, text)

    return report


def _report_early(report: Reporter) -> None:
    """Report at os._exit and at the deadline, where a fresh run would lose its data."""

    def _exit(status: int, leave: Callable[[int], None] = os._exit) -> None:
        report(status, True, None)
        leave(status)

    def deadline(
        signum: int,
        frame: Any,
        flush: Callable[[], None] = _flush,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        report(1, True, None)
        flush()
        leave(1)

    posix = sys.modules["posix"]
    posix._exit = os._exit = _exit  # type: ignore[attr-defined, assignment]  # ours returns for the checker
    signal.signal(DEADLINE_SIGNAL, deadline)


def _had_children() -> Callable[[], bool]:
    """A function that tells whether this process has, or has waited for, any child."""
    usage, waitid = resource.getrusage, os.waitid
    who, everyone = resource.RUSAGE_CHILDREN, os.P_ALL
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    none = ChildProcessError

    def had_children() -> bool:
        if usage(who).ru_maxrss > 0:
            return True
        try:
            waitid(everyone, 0, look)
        except none:
            return False
        return True

    return had_children


def _describe(error: BaseException, cut: int = TEXT_LIMIT) -> Tuple[bytes, bytes]:
    """('Class', 'first line of its text') of an exception, whatever its own methods do."""
    name = text = ""
    try:
        name = _str(_type(error).__qualname__)[:cut]
        lines = _str(error).splitlines()
        text = lines[0][:cut] if lines else ""
    except _BaseException:
        pass  # its __str__ failed or was patched away: the class alone has to do
    return name.encode("utf-8", "replace"), text.encode("utf-8", "replace")
