"""A test suite under pytest, in the forked child: collect it, run functions of it, say what became of them.

pytest is configured once, in the zygote; each child begins its own session from there. One
child stays when it has collected (`serve`) and forks for each run it is asked for: that is
what a mutant costs on the fast path. The other children end after one run.
"""

import itertools
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import confine, step, swap
from .mutants import Mutant, Workshop
from .shared import Board, pack_arcs

FILE = "test_suite.py"
COLLECTION = "<collection>"
_CHANGED = ".changed"
"""Folder, beside the suite, of the package with a mutant in its source."""


class Pytest(NamedTuple):
    """A pytest that has read its options and plugins and begun a session, and has seen nothing of a suite."""

    config: Any
    session: Any
    plugin: "Plugin"


class Task(NamedTuple):
    """What a child is to do."""

    job: step.Job
    pytest: Pytest
    board: Board
    workshop: Workshop
    functions: Optional[Tuple[str, ...]] = None
    """Which to run, in this order; None: all, as written."""
    traced: bool = False
    """Under coverage, from the collection on."""
    stop: bool = False
    """At the first that fails."""
    cpu_s: float = 0.0
    """Limit from here on; 0 is none."""
    sample: Tuple[Mutant, ...] = ()
    """What requests name by their place in it."""
    mutant: Optional[Mutant] = None
    """The one that the module is collected with."""
    copy: bool = False
    """The mutant stands in a copy of the package, for other processes and readers of the source too."""


class Request(NamedTuple):
    """One run of a child that has collected."""

    functions: Tuple[str, ...]
    traced: bool
    stop: bool
    cpu_s: float
    mutant: Optional[int]
    """Its place in the sample."""


def configure(folder: str, basetemp: str) -> Pytest:
    """Pytest as the children need it. Raises ImportError when there is none."""
    from _pytest.config import _prepareconfig
    from _pytest.main import Session as PytestSession

    plugin = Plugin()
    arguments = [os.path.join(folder, FILE), "--rootdir", folder, "--confcutdir", folder, "-c", os.devnull]
    arguments += ["--basetemp", basetemp, "--capture=sys", "--assert=plain", "--tb=no", "--color=no"]
    for name in _LEFT_OUT:
        arguments += ["-p", "no:" + name]
    options = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        config = _prepareconfig(arguments, [plugin])
        config._do_configure()
    finally:
        if options is not None:
            os.environ["PYTEST_ADDOPTS"] = options
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.unregister(reporter)
    session = PytestSession.from_config(config)
    config.hook.pytest_sessionstart(session=session)
    return Pytest(config, session, plugin)


_LEFT_OUT = (
    *("cacheprovider", "faulthandler", "threadexception", "unraisableexception", "junitxml", "pastebin"),
    *("stepwise", "doctest", "setuponly", "setupplan", "randomly", "random_order", "xdist", "cov", "timeout"),
    *("rerunfailures", "html", "metadata", "sugar", "benchmark", "forked"),
)
"""Plugins that report, reorder, retry, spread or limit: what this module does, or nobody reads."""


class Plugin:
    """What pytest calls of ours. Each function of a suite is one, its parametrised cases in it."""

    def __init__(self) -> None:
        self.error: Optional[str] = None
        """The first that collecting ended with."""
        self.exception: Optional[str] = None
        """The last that a phase of a test ended with."""
        self.outcomes: List[str] = []
        """Of the phases of the case that runs."""

    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """As pytest's own, without the failure's text: nobody reads it, and it takes longer than a test."""
        import pytest

        outcome, text = "passed", None  # type: Tuple[Any, Any]
        if call.excinfo is not None:
            if isinstance(call.excinfo.value, pytest.skip.Exception):
                outcome, text = "skipped", (item.location[0], item.location[1] or 0, str(call.excinfo.value))
            else:
                outcome = "failed"
                text = self.exception = described(call.excinfo.value)
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, text, call.when)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Other plugins have had their say: an expected failure is skipped by now."""
        self.outcomes.append("skipped" if hasattr(report, "wasxfail") else report.outcome)

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        """Of an error while collecting: only here the exception itself is to be had."""
        if report.when == "collect" and self.error is None:
            error = call.excinfo.value
            self.error = described(error.__cause__ or error)

    def pytest_collectreport(self, report: Any) -> None:
        """Of the file, of each class in it."""
        if report.failed and self.error is None:
            self.error = "CollectError: " + str(report.longrepr)[:200]


def described(error: BaseException) -> str:
    """'Class: first line', whatever its own methods do."""
    name, text = step._describe(error)
    return (name + b": " + text).decode("utf-8", "replace")


class Session:
    """A suite in this process."""

    def __init__(self, task: Task, clock: Callable[[], float] = time.perf_counter) -> None:
        self.task = task
        self.plugin = task.pytest.plugin
        self.clock, self.cpu = clock, time.process_time
        self.groups: Dict[str, List[Any]] = {}
        self.data: Dict[str, Any] = {}
        self.read_source = [False]

    def collect(self) -> None:
        """Fill `groups`; plugin.error tells what went wrong."""
        session = self.task.pytest.session
        try:
            self.task.pytest.config.hook.pytest_collection(session=session)
        except Exception as error:
            self.plugin.error = self.plugin.error or described(error)
        items: List[Any] = session.items
        for item in items:
            chain = item.parent.nodeid.split("::")[1:]
            name = "::".join(chain + [getattr(item, "originalname", None) or item.name])
            self.groups.setdefault(name, []).append(item)

    def run(self, names: Tuple[str, ...], stop: bool) -> List[List[Any]]:
        """[name, outcome, exception, seconds, cpu seconds] of each, to the first that failed if `stop`."""
        board, clock, cpu = self.task.board, self.clock, self.cpu
        cases = [(place, item) for place, name in enumerate(names) for item in self.groups[name]]
        found: List[List[Any]] = []
        begin, begin_cpu = clock(), cpu()
        kinds: List[str] = []
        exception: Optional[str] = None
        for number, (place, item) in enumerate(cases):
            following = cases[number + 1] if number + 1 < len(cases) else (len(names), None)
            if not kinds:
                board.at(place)
                begin, begin_cpu = clock(), cpu()
            kind, why = self._case(item, following[1])
            kinds.append(kind)
            exception = exception or why
            if following[0] != place or kind == "failed":
                found.append([names[place], _joined(kinds), exception, clock() - begin, cpu() - begin_cpu])
                if kind == "failed" and stop:
                    break
                kinds, exception = [], None
        return found

    def _case(self, item: Any, following: Any) -> Tuple[str, Optional[str]]:
        """(passed, failed or skipped; the exception)."""
        plugin = self.plugin
        plugin.outcomes, plugin.exception = [], None
        try:
            self.task.pytest.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException as error:
            return "failed", described(error)
        if "failed" in plugin.outcomes:
            return "failed", plugin.exception
        return ("skipped" if "skipped" in plugin.outcomes else "passed"), None

    def watch_source(self) -> None:
        """Notice who opens the target's own source: only a changed file will do for such a test."""
        if not hasattr(sys, "addaudithook"):
            return  # before Python 3.8 nobody tells
        file, seen = self.task.job.file, self.read_source

        def hook(event: str, arguments: Tuple[Any, ...]) -> None:
            if event == "open" and arguments[0] == file:
                seen[0] = True

        sys.addaudithook(hook)

    def take_arcs(self) -> List[int]:
        """What the tracer has of the target since the last time: src, dst, src, dst ..."""
        from array import array

        found = self.data.get(self.task.job.file)
        pairs = array("i")
        pairs.frombytes(pack_arcs(found, self.task.job.line_bits))
        if found is not None:
            found.clear()
        return pairs.tolist()


def _joined(kinds: List[str]) -> str:
    if "failed" in kinds:
        return "failed"
    return "passed" if "passed" in kinds else "skipped"


def run(task: Task, output: int, control: Optional[int] = None) -> None:
    """Never returns: ends the process. With `control`, a socket, it serves requests until that closes."""
    try:
        step._settle(task.job, output, keep=(control,) if control is not None else ())
        step._set_stage(task.job)
        sys.argv = ["pytest", FILE]
        sys.dont_write_bytecode = True
        session = Session(task)
        leave = os._exit
        if task.copy:
            _change_source(task)
        elif task.mutant is not None:
            counter = itertools.count()
            _change_loaded(task, counter.__next__)
        if task.cpu_s:
            _limit_cpu(task.cpu_s)
        if task.traced:
            step._start(task.job.coverage, session.data)
    except BaseException:
        task.job.shared.mark_failed()
        traceback.print_exc()
        os._exit(1)
    try:
        if control is not None:
            _serve(session, control)
        else:
            said = _once(session)
            if task.mutant is not None and not task.copy:
                said["ran"] = next(counter) > 0
            task.board.write(said)
    except BaseException:
        task.board.write({"broken": traceback.format_exc()})
        traceback.print_exc()
    finally:
        leave(0)


def _once(session: Session) -> Dict[str, Any]:
    """Collect and run: what there is to say of it."""
    task = session.task
    begin = session.cpu()
    session.collect()
    said: Dict[str, Any] = {"error": session.plugin.error, "collect_cpu_s": session.cpu() - begin}
    said["collected"] = session.take_arcs() if task.traced else []
    missing = [name for name in task.functions or () if name not in session.groups]
    if missing and said["error"] is None:
        said["error"] = "LookupError: %s is not collected" % missing[0]
    names = tuple(session.groups) if task.functions is None else task.functions
    said["found"] = session.run(names, task.stop) if said["error"] is None else []
    said["arcs"] = session.take_arcs() if task.traced else []
    return said


def _serve(session: Session, control: int) -> None:
    """Collect, then fork for each request. Ends when the control socket does."""
    channel = socket.socket(fileno=control)
    session.watch_source()
    task = session.task
    mutants = task.sample
    session.collect()
    swapper = swap.Swapper(task.workshop)
    import gc

    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()
    hello = {
        "error": session.plugin.error,
        "functions": list(session.groups),
        "read_source": session.read_source[0],
        "file": getattr(sys.modules.get(task.workshop.name), "__file__", None),
    }
    channel.send(json.dumps(hello).encode("ascii", "replace")[: 1 << 16])
    while True:
        asked = channel.recv(1 << 20)
        if not asked:
            return
        fields = json.loads(asked.decode("ascii"))
        request = Request(**fields)._replace(functions=tuple(fields["functions"]))
        counter = itertools.count()
        exchanges: List[Tuple[Any, Any]] = []
        begin = session.clock()
        if request.mutant is not None:
            # Here, and not in the fork, where each page that is written to is copied first.
            try:
                exchanges = swapper.exchanges(mutants[request.mutant], counter.__next__)
            except swap.Unswappable as error:
                task.board.write({"unswappable": str(error)})
                channel.send(json.dumps([0, 0.0, 0.0]).encode("ascii"))
                continue
        pid = os.fork()
        if pid == 0:
            for function, code in exchanges:
                function.__code__ = code
            _fork_of(session, channel, request, counter)
        _, status, usage = os.wait4(pid, 0)
        answer = [status, session.clock() - begin, usage.ru_utime + usage.ru_stime]
        channel.send(json.dumps(answer).encode("ascii"))


def _fork_of(
    session: Session, channel: socket.socket, request: Request, counter: "itertools.count[int]"
) -> None:
    """One request, in its own process. Never returns."""
    leave, board, had_children = os._exit, session.task.board, step._had_children()
    try:
        channel.close()
        confine.die_with_parent()
        said: Dict[str, Any] = {}
        _limit_cpu(request.cpu_s)
        if request.traced:
            step._start(session.task.job.coverage, session.data)
        said["found"] = session.run(request.functions, request.stop)
        said["arcs"] = session.take_arcs() if request.traced else []
        said["ran"] = next(counter) > 0
        said["children"] = had_children()
        said["read_source"] = session.read_source[0]
        board.write(said)
    except BaseException:
        board.write({"broken": traceback.format_exc()})
    finally:
        leave(0)


def _limit_cpu(seconds: float) -> None:
    """A signal that ends the process when it has used so much; no child inherits it."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _change_loaded(task: Task, ran: Callable[[], int]) -> None:
    """Have the loader of source files hand out the mutant's code in the place of the target's."""
    import importlib.machinery

    assert task.mutant is not None
    code = swap.planted(task.workshop.module(task.mutant), ran)
    file = task.job.file
    loader_class = importlib.machinery.SourceFileLoader
    load = loader_class.get_code

    def get_code(self: Any, fullname: str, load: Any = load) -> Any:
        return code if self.path == file else load(self, fullname)

    loader_class.get_code = get_code  # type: ignore[method-assign]  # for this process


def _change_source(task: Task) -> None:
    """A copy of the target's package with the mutant in its file, found first by us and by our children."""
    assert task.mutant is not None
    text = task.workshop.text(task.mutant)
    if text is None:
        raise RuntimeError("this Python cannot write a mutant's source: 3.9 and newer can")
    parts = task.workshop.name.split(".")
    file = task.job.file
    # A package's own file is one level deeper than its name says.
    levels = len(parts) - (0 if os.path.basename(file) == "__init__.py" else 1)
    root = file
    for _ in range(levels):
        root = os.path.dirname(root)
    place = os.path.join(os.getcwd(), _CHANGED)
    if levels:
        shutil.copytree(root, os.path.join(place, parts[0]), ignore=shutil.ignore_patterns("__pycache__"))
    else:
        os.mkdir(place)
    changed = os.path.join(place, os.path.relpath(file, os.path.dirname(root)))
    with open(changed, "w", encoding="utf-8") as written:
        written.write(text)
    sys.path.insert(0, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))
