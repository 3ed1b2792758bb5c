"""A process that is ready to run steps on one module, and forks each of them.

It has imported what the target imports from elsewhere, never the target or its package,
so that a step measures the same import-time lines as a fresh interpreter. A `plain`
zygote has imported nothing ahead: for scripts that could see the difference.
"""

import gc
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import ahead, confine, step
from .branches import Analysis
from .messages import (
    BadFrame,
    Evaluate,
    Evaluated,
    Limits,
    Message,
    Prepared,
    Problem,
    Ran,
    Run,
    decode,
    encode,
    read_frame,
)
from .mutants import Mutant, Workshop
from .shared import Report, Shared, line_bits

IMPORT_TIMEOUT_S = 120.0
DEADLINE_GRACE_S = 1.0
"""After the deadline's signal, for a child that can still run Python to report."""
CLEANUP_TIMEOUT_S = 30.0
KEPT_OUTPUT = 16 * 1024
"""Bytes of output looked at; the rest is counted."""


class Place(NamedTuple):
    """Where this probe may put things."""

    scratch: str
    """Steps get a fresh folder here."""
    writable: Tuple[str, ...]
    """Emptied before each step. All that a step can write to, where it is isolated."""


class Ended(NamedTuple):
    """A step's child, seen from outside."""

    status: int
    """As from os.wait4."""
    timed_out: bool
    oom_killed: bool
    left_processes: bool
    output: bytes
    output_bytes: int
    duration_s: float
    cpu_s: float
    report: Optional[Report]


class Unready(Exception):
    """The target cannot be measured here; the text says why."""


class Dirty(Exception):
    """A step left something that cannot be cleared away."""


class Zygote:
    """Made in the process that will fork the steps."""

    def __init__(
        self, target: str, preload: bool, with_pytest: bool, confinement: confine.Confinement, place: Place
    ) -> None:
        """`with_pytest`: to run suites, not scripts. Raises Unready."""
        self.target = target
        self.confinement = confinement
        self.place = place
        self.shared = Shared()
        self.waker = _wake_on_child()
        self.workshop: Optional[Workshop] = None
        self.samples: Dict[Tuple[int, str], Tuple[Mutant, ...]] = {}
        """By (size, seed)."""
        self.clear()
        # As a step will have it: coverage.py looks everything up anew when sys.path changes.
        sys.path[0] = place.scratch
        self.pytest = self._pytest() if with_pytest else None
        found = self._look()
        self.file: str = found["file"]
        self.kind = "preloaded" if preload else "plain"
        self.preloaded = self._preload(found["needs"]) if preload else 0
        if preload:
            ahead.compile_patterns(found["patterns"])
        ahead.keep_code(found["own"])
        self._others = [file for _, file in found["own"] if file.endswith(".py") and file != self.file]
        self.coverage = self._coverage(timid=False)
        self.durable_coverage: Any = None
        from coverage import version_info
        from coverage.files import canonical_filename

        self.line_bits = line_bits(version_info)
        ours = __name__.split(".")[0]
        self.hidden = tuple(name for name in sys.modules if name.split(".")[0] == ours)

        self.analysis = Analysis(self.coverage, canonical_filename(self.file))
        self.prepared = Prepared(
            target=target,
            file=self.analysis.file,
            source=self.analysis.source,
            version=found["version"],
            statements=sorted(self.analysis.statements),
            branches=self.analysis.possible_branches(),
            branches_total=self.analysis.branches_total,
            preloaded=self.preloaded,
        )
        # Bytes that a step reads through the zygote's memory stay shared if nobody counts them.
        gc.collect()
        if hasattr(gc, "freeze"):
            gc.freeze()

    def serve(self, channel: int) -> None:
        """Answer Run frames on a socket until the other end closes."""
        while True:
            body = read_frame(lambda size: os.read(channel, size))
            if body is None:
                return
            try:
                request = decode(body)
                answer: Message
                if isinstance(request, Run):
                    answer = self.run(request)
                elif isinstance(request, Evaluate):
                    answer = self.evaluate(request)
                else:
                    raise BadFrame("a zygote runs steps; it was sent %s" % type(request).__name__)
            except Dirty as error:
                answer = Problem("cleaning up after a step", str(error), dirty=True)
            except BadFrame as error:
                answer = Problem("a step on %s" % self.target, str(error))
            except Exception as error:
                traceback.print_exc()
                text = "%s: %s" % (type(error).__name__, error)
                answer = Problem("a step on %s" % self.target, text, dirty=True)
            _write_all(channel, encode(answer))

    def run(self, request: Run) -> Ran:
        """One step. Raises OSError when it could not be started, Dirty when it cannot be cleared away."""
        ended = self._fork(request, durable=False)
        arcs = ended.report.arcs if ended.report else []
        measured = ended.report is not None and ended.report.measured
        recovered = False
        if ended.report is None:
            # What the script did the first time is what counts; this run only gives its arcs.
            self.durable_coverage = self.durable_coverage or self._coverage(timid=True)
            self._fork(request, durable=True)
            arcs, measured, recovered = self.shared.read_log(), True, True
        taken, lines = self.analysis.executed(arcs)
        report = ended.report
        exit_code, sig = _ending(ended, report)
        text = ended.output.decode("utf-8", "replace")
        return Ran(
            finished=report is not None and not ended.timed_out,
            exit_code=exit_code,
            signal=sig,
            timed_out=ended.timed_out,
            oom_killed=ended.oom_killed,
            exception=_exception(report),
            exception_class=report.exception_class if report else None,
            output=text[: request.limits.output_chars],
            output_bytes=ended.output_bytes,
            duration_s=ended.duration_s,
            cpu_s=ended.cpu_s,
            branches=taken,
            lines=lines,
            measured=measured,
            complete=(
                report is not None
                and sig is None
                and not ended.timed_out
                and not report.early
                and not report.children
                and not ended.left_processes
            ),
            recovered=recovered,
            start=self.kind,
        )

    def evaluate(self, request: Evaluate) -> Evaluated:
        """One suite. Raises OSError when it could not be started, Dirty when it cannot be cleared away."""
        from . import evaluate  # it is made of zygotes

        return evaluate.Evaluation(self, request).run()

    def clear(self, keep: str = "") -> None:
        """Empty the writable places, but for that path. Raises Dirty."""
        for place in self.place.writable:
            try:
                with os.scandir(place) as entries:
                    found = [entry.path for entry in entries]
            except OSError as error:
                raise Dirty("cannot list %s: %s" % (place, error)) from error
            for path in found:
                if path != keep:
                    _remove(path)

    def clear_scratch(self, keep: str) -> None:
        """Empty the scratch folder, but for that file. Raises Dirty."""
        for name in os.listdir(self.place.scratch):
            if name != keep:
                _remove(os.path.join(self.place.scratch, name))

    # -- forks

    def lay_out(self, name: str, text: str) -> None:
        """Make the scratch folder anew, with that file in it. Raises Dirty, OSError."""
        self.clear()
        folder = self.place.scratch
        os.mkdir(folder, 0o700)
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogatepass"))
        if self.confinement.uid is not None:
            for owned in (path, folder):
                os.chown(owned, self.confinement.uid, self.confinement.uid)

    def job(self, limits: Limits, durable: bool) -> step.Job:
        """What a child needs to know."""
        return step.Job(
            folder=self.place.scratch,
            limits=limits,
            confinement=self.confinement,
            coverage=self.durable_coverage if durable else self.coverage,
            file=self.analysis.file,
            shared=self.shared,
            line_bits=self.line_bits,
            hidden=self.hidden,
            durable=durable,
        )

    def start(self, child: Callable[[int], None]) -> Tuple[int, int]:
        """(pid, its output to read) of a fork that calls `child` with what becomes its output."""
        self.shared.clear()
        out_read, out_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(out_write)
        os.close(out_write)
        os.set_blocking(out_read, False)
        return pid, out_read

    def to_its_end(self, child: Callable[[int], None], timeout_s: float, ask: bool) -> Ended:
        """Such a fork, until it and all it started have ended. `ask`: let it report before it is killed.

        Raises OSError when it could not be set up, Dirty when something of it stays.
        """
        kills = confine.oom_kills()
        began = time.monotonic()
        pid, out = self.start(child)
        try:
            ended = self._watch(pid, out, began, timeout_s, ask)
        finally:
            os.close(out)
        self._refuse_unstarted(ended)
        if confine.oom_kills() > kills:
            ended = ended._replace(oom_killed=True)
        return ended

    def _fork(self, request: Run, durable: bool) -> Ended:
        self.lay_out(step.SCRIPT, request.script)
        job = self.job(request.limits, durable)
        # A durable run has written down all it has to say.
        ended = self.to_its_end(
            lambda output: step.run(job, output), request.limits.timeout_s, ask=not durable
        )
        self.tidy()
        return ended

    def tidy(self) -> None:
        """Clear away what a step left. Raises Dirty."""
        if self.confinement.name != "none" and confine.system_v():
            self._in_ender(confine.remove_system_v)
        self.clear()

    def _watch(self, pid: int, out: int, began: float, timeout_s: float, ask: bool) -> Ended:
        """Until the child and all it started have ended. `ask` it to report before it is killed."""
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(self.waker, select.POLLIN)
        kept: List[bytes] = []
        total = 0
        timed_out = others = False
        until = began + timeout_s
        while True:
            left = until - time.monotonic()
            if left <= 0:
                timed_out = True
                os.kill(pid, step.DEADLINE_SIGNAL if ask else signal.SIGKILL)
                until, ask = time.monotonic() + DEADLINE_GRACE_S, False
                continue
            ready = [fd for fd, _ in poll.poll(left * 1000)]
            if out in ready:
                total, open_ = drain(out, kept, total)
                if not open_:
                    poll.unregister(out)
            if self.waker in ready:
                os.read(self.waker, 512)
                ended, status, usage = os.wait4(-1, os.WNOHANG)
                while ended not in (0, pid):
                    others = True  # it was left to us by a parent that ended
                    ended, status, usage = os.wait4(-1, os.WNOHANG)
                if ended == pid:
                    break
        duration = time.monotonic() - began
        left_processes = self.end_others() or others
        total, _ = drain(out, kept, total)
        return Ended(
            status=status,
            timed_out=timed_out,
            oom_killed=False,
            left_processes=left_processes,
            output=b"".join(kept),
            output_bytes=total,
            duration_s=duration,
            cpu_s=usage.ru_utime + usage.ru_stime,
            report=self.shared.read(),
        )

    def _refuse_unstarted(self, ended: Ended) -> None:
        if self.shared.failed_to_start():
            raise OSError(
                "a step's process could not be set up: %s" % ended.output.decode("utf-8", "replace")[-800:]
            )

    def end_others(self) -> bool:
        """Kill and reap what a step left behind; whether there was anything. Raises Dirty."""
        try:
            return confine.end_children(self._kill_others, CLEANUP_TIMEOUT_S)
        except TimeoutError as error:
            raise Dirty(str(error)) from error

    def _kill_others(self) -> None:
        if self.confinement.pidns:
            confine.kill_all()
        elif self.confinement.uid is not None:
            self._in_ender(confine.kill_all)
        else:
            confine.kill_descendants()

    def _in_ender(self, work: Callable[[], None]) -> None:
        """In a child that may do to the step's leavings what the step's user may."""
        pid = os.fork()
        if pid == 0:
            try:
                if self.confinement.uid is not None:
                    confine.become_ender(self.confinement.uid)
                work()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    # -- getting ready

    def _pytest(self) -> Any:
        """pytest, configured: the image's own, else the kit's. Raises Unready."""
        from . import suite

        kit = os.path.dirname(os.path.dirname(importlib.import_module("coverage").__file__ or ""))
        sys.path.append(os.path.join(kit, "suite"))
        os.mkdir(self.place.scratch)
        os.chdir(self.place.scratch)
        try:
            made = suite.configure(self.place.scratch, os.path.join(self.place.writable[0], "corridor-tests"))
        except Exception as error:
            raise Unready("pytest does not start: %s: %s" % (type(error).__name__, error)) from error
        finally:
            os.chdir("/")
            self.clear()
        # What pytest imported of the target's package has run unmeasured: the suite imports it anew.
        package = self.target.split(".")[0]
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            del sys.modules[name]
        return made

    def _look(self) -> Dict[str, Any]:
        """Import the target in a child: its file, its distribution's version, what else it imports."""
        answer = self._in_child(ahead.look_at, self.target)
        if "error" in answer:
            raise Unready("%s does not import: %s" % (self.target, answer["error"]))
        return answer

    def _preload(self, names: List[str]) -> int:
        """Import what is safe, tried in a child first; how many modules that was."""
        package = self.target.split(".")[0]
        while names:
            answer = self._in_child(ahead.try_imports, names, package)
            if "bad" not in answer:
                break
            names = [name for name in names if name != answer["bad"]]
        for name in names:
            importlib.import_module(name)
        return len(names)

    def _coverage(self, timid: bool) -> Any:
        import coverage

        measure = coverage.Coverage(
            data_file=None, branch=True, source=[self.target], config_file=False, timid=timid
        )
        measure._warn_no_data = measure._warn_unimported_source = False
        measure._warn_preimported_source = False  # it looks through all modules at each start
        # Everything a first start looks up is then there before the fork.
        measure.start()
        measure.stop()
        # The tracer asks about each file that it meets; of all but the target's own we know the answer.
        known = measure._collector.should_trace_cache
        for file in self._others + _source_files():
            if file not in known and file != self.file:
                known[file] = measure._should_trace(file, None)
        return measure

    def _in_child(self, work: Any, *arguments: Any) -> Dict[str, Any]:
        """What `work` returns in a fork, confined like a step. Raises Unready."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(null, fd)
                os.chdir(self.place.writable[0])
                confine.drop_privileges(self.confinement)
                _write_all(write, json.dumps(work(*arguments)).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        chunks: List[bytes] = []
        poll = select.poll()
        poll.register(read, select.POLLIN)
        until = time.monotonic() + IMPORT_TIMEOUT_S
        while poll.poll(max(0, until - time.monotonic()) * 1000):
            chunk = os.read(read, 1 << 16)
            if not chunk:
                break
            chunks.append(chunk)
        else:
            os.kill(pid, signal.SIGKILL)
        os.close(read)
        _, status = os.waitpid(pid, 0)
        self.end_others()
        if status != 0:
            raise Unready(
                "%s did not import in a process of its own: wait status %d after %.0f s at most"
                % (self.target, status, IMPORT_TIMEOUT_S)
            )
        answer: Dict[str, Any] = json.loads(b"".join(chunks).decode())
        return answer


def _source_files() -> List[str]:
    """The files of all modules that are loaded here."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in files if file is not None and file.endswith(".py")]


def _exception(report: Optional[Report]) -> Optional[str]:
    if report is None or report.exception_class is None:
        return None
    return "%s: %s" % (report.exception_class, report.exception or "")


def _ending(ended: Ended, report: Optional[Report]) -> Tuple[Optional[int], Optional[int]]:
    """(exit code, signal) of a step's child; one of them is None."""
    if os.WIFSIGNALED(ended.status):
        return None, os.WTERMSIG(ended.status)
    return os.WEXITSTATUS(ended.status), None


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(write)
    return read


def drain(fd: int, kept: List[bytes], total: int) -> Tuple[int, bool]:
    """Read what is there; (bytes so far, whether more may come)."""
    for _ in range(64):
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return total, True
        if not chunk:
            return total, False
        if total < KEPT_OUTPUT:
            kept.append(chunk[: KEPT_OUTPUT - total])
        total += len(chunk)
    return total, True


def _remove(path: str) -> None:
    """Raises Dirty."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                shutil.rmtree(path)
            except (OSError, RecursionError):
                # Deeper than a path may be long, or without the rights to list: rm knows how.
                subprocess.call(["chmod", "-R", "u+rwx", path], stderr=subprocess.DEVNULL)
                subprocess.check_call(["rm", "-rf", path], stderr=subprocess.DEVNULL)
        else:
            os.unlink(path)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Dirty("cannot remove %s: %s" % (path, error)) from error


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
