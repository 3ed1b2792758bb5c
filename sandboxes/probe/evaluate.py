"""What a test suite is worth: its green functions, what they cover, which mutants they kill.

The zygote's side: it starts the processes, believes none of them more than it must, and judges.

1. The suite is collected once, in a process that stays. Each function then runs alone, in
   a fork of it, under coverage: what a function reaches, and that it needs no other.
2. Those that passed run together in a fresh process under coverage; what fails there is
   left out, and the rest runs again. What the last, green run covers is the suite's coverage.
3. They run once more, as a mutant would have them run, without one.
4. Mutants. One that no green function reaches is free. Fast: a fork of the collected
   process swaps the function's code. Slow, for code that ran when the module was imported
   or the suite collected: a fork of the zygote imports the changed module and collects
   anew. Copy, for functions that start processes or read the module's source: as slow,
   from a changed copy of the package.

A function kills a mutant when it is not green on it. Functions run fastest first; one that
fails behind others is run again alone before it counts, and so is each timeout, with more time.
"""

import ast
import json
import os
import select
import signal
import socket
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import confine, suite
from .messages import Evaluate, Evaluated, MutantRun, SuiteFunction
from .mutants import Mutant, Workshop, sample
from .shared import Board
from .zygote import drain

MOST_REPEATS = 4
"""Runs together, each without what failed in the one before, until one is green."""
CPU_FLOOR_S = 0.25
CPU_FACTOR = 10.0
"""A mutant may use CPU_FLOOR_S + CPU_FACTOR times what its functions used alone, under coverage."""
PATIENCE = 3.0
"""Times that, when it is tried once more."""
WALL_FLOOR_S = 5.0
WALL_FACTOR = 20.0
"""Wall clock only ends what waits for something: twice as generous, and measured on a busy machine."""
COLLECT_CPU_S = 2.0
"""On top, on the slow path."""


class Seen(NamedTuple):
    """One run of some functions under a mutant."""

    verdict: str
    """survived, killed, timeout, crashed, oom; or unswappable."""
    at: int
    """Which function it ended at; -1 for the collection."""
    ran: Optional[bool]
    duration_s: float


class Plan(NamedTuple):
    """How a mutant is judged: on which path, by which functions; then by those that need a copy."""

    path: str
    functions: Tuple[str, ...]
    copy_functions: Tuple[str, ...]


class Collected:
    """A process that has collected the suite and forks for each request, from outside."""

    def __init__(self, evaluation: "Evaluation") -> None:
        """Raises OSError when it could not be set up."""
        self.zygote = evaluation.zygote
        self.board = evaluation.board
        self.board.clear()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = ours
        task = evaluation.task._replace(sample=evaluation.sample)

        def child(output: int) -> None:
            ours.close()
            suite.run(task, output, control=theirs.fileno())

        self.pid, self.out = self.zygote.start(child)
        theirs.close()
        self.poll = select.poll()
        self.poll.register(ours, select.POLLIN)
        self.poll.register(self.out, select.POLLIN)
        self.printed: List[bytes] = []
        self.printed_bytes = 0
        self.alive = True
        self.hello = self._answer(evaluation.request.limits.timeout_s)
        """What it collected; None when it ended or took too long."""

    def ask(self, request: suite.Request, timeout_s: float) -> Optional[Tuple[int, float, float]]:
        """(wait status, seconds, CPU seconds) of a run; None when it waited too long: then this has ended."""
        self.board.clear()
        self.channel.send(json.dumps(request._asdict()).encode("ascii"))
        answer = self._answer(timeout_s)
        return (answer[0], answer[1], answer[2]) if isinstance(answer, list) else None

    def end(self) -> None:
        """It, and all that it started. Raises Dirty."""
        if self.alive:
            self.alive = False
            self.channel.close()
            self.zygote.end_others()
            os.close(self.out)

    def _answer(self, timeout_s: float) -> Any:
        until = time.monotonic() + timeout_s
        while True:
            left = until - time.monotonic()
            ready = [fd for fd, _ in self.poll.poll(max(0.0, left) * 1000)]
            if not ready:
                self.end()
                return None
            if self.out in ready:
                self.printed_bytes, open_ = drain(self.out, self.printed, self.printed_bytes)
                if not open_:
                    self.poll.unregister(self.out)
            if self.channel.fileno() in ready:
                said = self.channel.recv(1 << 17)
                if not said:
                    self.end()
                    return None
                return json.loads(said.decode("ascii"))


class Evaluation:
    """One request, from its file to its figures."""

    def __init__(self, zygote: Any, request: Evaluate) -> None:
        self.zygote = zygote
        self.request = request
        self.board = Board()
        self.workshop, self.sample = _sample(zygote, request)
        self.task = suite.Task(
            job=zygote.job(request.limits, durable=False),
            pytest=zygote.pytest,
            board=self.board,
            workshop=self.workshop,
        )
        self.collected: Optional[Collected] = None
        self.functions: Dict[str, SuiteFunction] = {}
        self.touched: Dict[str, Set[int]] = {}
        """By function: first lines of the statements it reaches alone."""
        self.at_import: Set[int] = set()
        """First lines of the statements that import and collection reach."""
        self.outsiders: Set[str] = set()
        """Functions that start processes or read the target's source."""
        self.collect_cpu_s = 0.0
        self.forks: List[float] = []
        self.cpu_s = 0.0

    def run(self) -> Evaluated:
        """Raises OSError, Dirty."""
        began = time.monotonic()
        self.zygote.lay_out(suite.FILE, self.request.suite)
        try:
            return self._run(began)
        finally:
            self._end_collected()
            self.zygote.tidy()

    def _run(self, began: float) -> Evaluated:
        hello = self._collect()
        error = self._why_nothing(hello)
        branches: List[Tuple[int, int]] = []
        lines: List[int] = []
        if error is None:
            for name in hello["functions"]:
                self._alone(name, hello["read_source"])
            self._end_collected()
            branches, lines = self._together()
            if self._green():
                self._collect()
                self._unchanged()
        baseline_s = time.monotonic() - began
        mutants = self._mutants() if error is None else []
        return Evaluated(
            error=error,
            size=len(self.functions) if error is None else size_as_written(self.request.suite),
            functions=list(self.functions.values()),
            branches=branches if self._green() else [],
            lines=lines if self._green() else [],
            mutants=mutants,
            mutants_total=len(self.sample),
            duration_s=time.monotonic() - began,
            cpu_s=self.cpu_s,
            baseline_s=baseline_s,
            fork_s=sorted(self.forks)[len(self.forks) // 2] if self.forks else 0.0,
        )

    # -- the baseline

    def _collect(self) -> Any:
        """A fresh collected process, and what it says of the suite."""
        self._end_collected()
        self._keep_only_the_suite()
        self.collected = Collected(self)
        return self.collected.hello

    def _end_collected(self) -> None:
        if self.collected is not None:
            self.collected.end()
            self.collected = None

    def _why_nothing(self, hello: Any) -> Optional[str]:
        if hello is None:
            assert self.collected is not None
            _refuse_broken(self.board.read()[1])
            if self.zygote.shared.failed_to_start():
                printed = b"".join(self.collected.printed).decode("utf-8", "replace")
                raise OSError("a suite's process could not be set up: %s" % printed[-800:])
            return "CollectError: the process that collected the suite ended, or took too long"
        if hello["error"] is not None:
            return str(hello["error"])
        if not hello["functions"]:
            return "CollectError: the suite has no test function"
        if hello["file"] is not None and os.path.realpath(hello["file"]) != os.path.realpath(
            self.workshop.file
        ):
            return "CollectError: %s was imported from %s" % (self.request.target, hello["file"])
        return None

    def _alone(self, name: str, reads_source: bool) -> None:
        """Run one function by itself, under coverage."""
        limit = self.request.limits.timeout_s
        seen, said = self._fast((name,), None, traced=True, cpu_s=limit, wall_s=limit)
        outcome, exception = "failed", None  # type: Tuple[str, Optional[str]]
        duration, cpu, lines, touched = seen.duration_s, 0.0, [], set()  # type: Tuple[float, float, List[int], Set[int]]
        if said is None:
            outcome = seen.verdict if seen.verdict in ("timeout", "oom") else "crashed"
        else:
            ((_, kind, exception, duration, cpu),) = said["found"]
            outcome = "green" if kind == "passed" else kind
            if outcome == "failed" and (exception or "").startswith("MemoryError"):
                outcome = "oom"
            arcs = _pairs(said["arcs"])
            lines = self.zygote.analysis.executed(arcs)[1]
            touched = self.zygote.analysis.touched(arcs)
            if said["children"] or said["read_source"] or reads_source:
                self.outsiders.add(name)
        self.functions[name] = SuiteFunction(name, outcome, exception, duration, cpu, lines)
        self.touched[name] = touched

    def _together(self) -> Tuple[List[Tuple[int, int]], List[int]]:
        """(branches, lines) of the green functions run together; what is not green there is marked."""
        for _ in range(MOST_REPEATS):
            names = self._green()
            if not names:
                return [], []
            _, said = self._fresh(self.task._replace(functions=names, traced=True))
            bad: Dict[str, Optional[str]] = {}
            if said is None:
                at = self.board.read()[0]
                bad[names[min(at, len(names) - 1)]] = "the process ended in it when others had run before"
            else:
                bad = {row[0]: row[2] for row in said["found"] if row[1] != "passed"}
                if said["error"] is not None:
                    bad = {name: said["error"] for name in names}
            if not bad and said is not None:
                collected = _pairs(said["collected"])
                self.at_import = self.zygote.analysis.touched(collected)
                self.collect_cpu_s = said["collect_cpu_s"]
                branches, lines = self.zygote.analysis.executed(collected + _pairs(said["arcs"]))
                return branches, lines
            for name, why in bad.items():
                self._mark(name, "dependent", why)
        for name in self._green():
            self._mark(name, "flaky", "no %d runs of the suite together were alike" % MOST_REPEATS)
        return [], []

    def _unchanged(self) -> None:
        """As a mutant would have them run, without one: what fails now is not to be believed."""
        left = self._by_speed(self._green())
        while left:
            seen, _ = self._fast(left, None, traced=False, cpu_s=self._cpu(left), wall_s=self._wall(left))
            if seen.verdict == "survived":
                return
            self._mark(left[seen.at], "flaky", "it was green, and then %s" % seen.verdict)
            left = left[seen.at + 1 :]

    def _mark(self, name: str, outcome: str, exception: Optional[str]) -> None:
        self.functions[name] = self.functions[name]._replace(outcome=outcome, exception=exception)

    def _green(self) -> Tuple[str, ...]:
        return tuple(name for name, found in self.functions.items() if found.outcome == "green")

    def _by_speed(self, names: Tuple[str, ...]) -> Tuple[str, ...]:
        return tuple(sorted(names, key=lambda name: self.functions[name].cpu_s))

    # -- mutants

    def _mutants(self) -> List[MutantRun]:
        """Fast ones first: the slow paths end the process that the fast one needs."""
        first, of = self.request.part
        places = list(range(len(self.sample)))[first::of]
        found: Dict[int, MutantRun] = {}
        later: List[Tuple[int, Plan]] = []
        for place in places:
            plan = self.plan(self.sample[place])
            if plan.path == "none":
                found[place] = _run(self.sample[place], plan, "no_coverage", [], False, 0.0)
            elif plan.path == "fast":
                made = self._judge(place, plan)
                if made is None:
                    later.append((place, plan._replace(path="slow")))
                else:
                    found[place] = made
                    if made.verdict == "survived" and plan.copy_functions:
                        later.append((place, plan._replace(path="copy", functions=plan.copy_functions)))
            else:
                later.append((place, plan))
        self._end_collected()
        for place, plan in later:
            made = self._judge(place, plan)
            assert made is not None
            if made.verdict == "survived" and plan.path == "slow" and plan.copy_functions:
                plan = plan._replace(path="copy", functions=plan.copy_functions)
                made = self._judge(place, plan)
                assert made is not None
            found[place] = made
        return [found[place] for place in places]

    def plan(self, mutant: Mutant) -> Plan:
        """Which path, which functions."""
        green = self._by_speed(self._green())
        wanted = {self.zygote.analysis.first_line(line) for line in self.workshop.lines(mutant)}
        imported = bool(wanted & self.at_import)
        reach = tuple(name for name in green if imported or wanted & self.touched[name])
        outsiders = tuple(name for name in green if name in self.outsiders)
        if not green or not (reach or outsiders):
            return Plan("none", (), ())
        if self.request.every_test:
            reach = green
        only = self.request.only
        if only == "copy":
            return Plan("copy", reach, ())
        if not reach:
            return Plan("copy", outsiders, ())
        if only == "slow" or imported or not self.workshop.in_function(mutant):
            return Plan("slow", reach, outsiders)
        return Plan("fast", reach, outsiders)

    def _judge(self, place: int, plan: Plan) -> Optional[MutantRun]:
        """Its verdict on one path; None when the fast one cannot have it."""
        mutant = self.sample[place]
        left = plan.functions
        killers: List[str] = []
        verdict = "survived"
        ran: Optional[bool] = None if plan.path == "copy" else False
        spent = 0.0
        while left:
            now = left[:1] if self.request.matrix else left
            seen = self._attempt(place, plan.path, now, 1.0)
            spent += seen.duration_s
            if seen.verdict == "unswappable":
                return None
            ran = seen.ran if ran is None else ran or bool(seen.ran)
            if seen.verdict != "survived" and (seen.at > 0 or seen.verdict == "timeout"):
                # It may have failed because of those before it, or for want of time.
                now = now[max(0, seen.at) :][:1]
                again = self._attempt(place, plan.path, now, PATIENCE)
                spent += again.duration_s
                left = left[left.index(now[0]) + 1 :]
                seen = again._replace(at=min(again.at, 0))
                if seen.verdict == "survived":
                    continue
            elif seen.verdict == "survived":
                left = left[len(now) :]
                continue
            else:
                left = left[1:]
            verdict = seen.verdict if verdict == "survived" else verdict
            killers.append(now[0] if seen.at >= 0 else suite.COLLECTION)
            if not self.request.matrix or seen.at < 0:
                break
        if plan.path == "fast" and verdict == "survived" and not ran:
            return None  # what runs is not what was swapped: only a changed source will tell
        return _run(mutant, plan, verdict, killers, ran, spent)

    def _attempt(self, place: int, path: str, names: Tuple[str, ...], patience: float) -> Seen:
        cpu_s, wall_s = self._cpu(names) * patience, self._wall(names) * patience
        if path == "fast":
            return self._fast(names, place, traced=False, cpu_s=cpu_s, wall_s=wall_s)[0]
        extra = COLLECT_CPU_S + CPU_FACTOR * self.collect_cpu_s
        task = self.task._replace(
            functions=names,
            stop=True,
            cpu_s=cpu_s + extra * patience,
            mutant=self.sample[place],
            copy=path == "copy",
        )
        return self._slow(task, wall_s + WALL_FACTOR * extra * patience)

    def _cpu(self, names: Tuple[str, ...]) -> float:
        return CPU_FLOOR_S + CPU_FACTOR * sum(self.functions[name].cpu_s for name in names)

    def _wall(self, names: Tuple[str, ...]) -> float:
        return WALL_FLOOR_S + WALL_FACTOR * sum(self.functions[name].duration_s for name in names)

    # -- processes

    def _fast(
        self, names: Tuple[str, ...], place: Optional[int], traced: bool, cpu_s: float, wall_s: float
    ) -> Tuple[Seen, Optional[Dict[str, Any]]]:
        """A fork of the collected process: (what it came to, all that it said). Raises OSError."""
        lost = self.collected is None or not self.collected.alive
        if lost and self._collect() is None:
            raise OSError("the suite was collected once, and then no more")
        process = self.collected
        assert process is not None
        kills = confine.oom_kills()
        request = suite.Request(names, traced, True, cpu_s, place)
        answer = process.ask(request, wall_s)
        at, said = self.board.read()
        if answer is None:
            return Seen("timeout", min(at, len(names) - 1), None, wall_s), None
        status, duration, cpu = answer
        self.cpu_s += cpu
        _refuse_broken(said)
        if said is None:
            self._end_collected()  # what it started may still run
            verdict = _death(status, confine.oom_kills() > kills)
            return Seen(verdict, min(at, len(names) - 1), None, duration), None
        if "unswappable" in said:
            return Seen("unswappable", 0, False, duration), said
        self.forks.append(duration - sum(row[3] for row in said["found"]))
        if said["children"]:
            self._end_collected()
        self._keep_only_the_suite()
        return _seen(said, names, duration), said

    def _slow(self, task: suite.Task, wall_s: float) -> Seen:
        ended, said = self._fresh(task, wall_s)
        if said is None:
            verdict = "timeout" if ended.timed_out else _death(ended.status, ended.oom_killed)
            assert task.functions is not None
            return Seen(verdict, min(self.board.read()[0], len(task.functions) - 1), None, ended.duration_s)
        return _seen(said, task.functions or (), ended.duration_s)

    def _fresh(self, task: suite.Task, wall_s: float = 0.0) -> Tuple[Any, Optional[Dict[str, Any]]]:
        """(how it ended, what it said) of a fork of the zygote that collects and runs. Raises OSError."""
        self._end_collected()
        self._keep_only_the_suite()
        self.board.clear()
        ended = self.zygote.to_its_end(
            lambda output: suite.run(task, output), wall_s or self.request.limits.timeout_s, ask=False
        )
        self.cpu_s += ended.cpu_s
        said = self.board.read()[1]
        _refuse_broken(said)
        return ended, said

    def _keep_only_the_suite(self) -> None:
        """So that each run finds the files that the first one found."""
        self.zygote.clear(keep=self.zygote.place.scratch)
        self.zygote.clear_scratch(keep=suite.FILE)


def size_as_written(text: str) -> int:
    """Test functions of a suite that was not collected, as far as its text tells; 0 if it does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return 0
    size = 0
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for item in inner:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name.startswith("test"):
                size += 1
    return size


def _sample(zygote: Any, request: Evaluate) -> Tuple[Workshop, Tuple[Mutant, ...]]:
    """The target's, made once for a zygote."""
    key = (request.mutants, request.seed)
    if zygote.workshop is None:
        zygote.workshop = Workshop(request.target, zygote.analysis.source, zygote.analysis.file)
    if key not in zygote.samples:
        zygote.samples[key] = tuple(sample(zygote.workshop, request.mutants, request.seed))
    return zygote.workshop, zygote.samples[key]


def _refuse_broken(said: Optional[Dict[str, Any]]) -> None:
    """What went wrong in our own code is no verdict. Raises OSError."""
    if said is not None and "broken" in said:
        raise OSError("a suite's process broke: %s" % said["broken"][-1500:])


def _seen(said: Dict[str, Any], names: Tuple[str, ...], duration: float) -> Seen:
    ran = said.get("ran")
    if said.get("error") is not None:
        verdict = "oom" if said["error"].startswith("MemoryError") else "killed"
        return Seen(verdict, -1, ran, duration)
    for name, outcome, exception, _, _ in said["found"]:
        if outcome != "passed":
            verdict = "oom" if (exception or "").startswith("MemoryError") else "killed"
            return Seen(verdict, names.index(name), ran, duration)
    return Seen("survived", len(names), ran, duration)


def _death(status: int, oom: bool) -> str:
    """What the end of a process that reported nothing means."""
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGPROF:
            return "timeout"
        if oom and os.WTERMSIG(status) == signal.SIGKILL:
            return "oom"
    return "crashed"


def _run(
    mutant: Mutant, plan: Plan, verdict: str, killers: List[str], ran: Optional[bool], duration: float
) -> MutantRun:
    return MutantRun(
        id=mutant.id,
        operator=mutant.operator,
        line=mutant.line,
        end_line=mutant.end_line,
        original=mutant.original,
        replacement=mutant.replacement,
        verdict=verdict,
        killed_by=killers,
        path=plan.path,
        functions=list(plan.functions),
        ran=ran,
        duration_s=duration,
    )


def _pairs(flat: List[int]) -> List[Tuple[int, int]]:
    return [(flat[place], flat[place + 1]) for place in range(0, len(flat), 2)]
