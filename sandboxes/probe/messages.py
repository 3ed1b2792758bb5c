"""What the host and the probe say to each other, and how it is framed.

A frame is a big-endian unsigned 32-bit length, then that many bytes of ASCII
JSON: an object whose `kind` names one of the classes below and whose other keys
are its fields. ASCII, because scripts and outputs may hold lone surrogates.
"""

import json
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, Union

PROTOCOL = 2
"""Raised with every change of a message; both sides must agree."""

MAX_FRAME = 64 * 1024 * 1024
"""Bytes. A longer frame is a broken stream, not a message."""


class Limits(NamedTuple):
    """What one step may use. Part of an episode's identity: limits move scores."""

    timeout_s: float = 60.0
    """Wall clock from the fork to the end of the script, in seconds."""
    memory_mib: int = 2048
    """Private writable memory of each process (RLIMIT_DATA), in MiB; four times that in address space."""
    processes: int = 256
    """Processes and threads that may live at once."""
    file_mib: int = 256
    """Size of the largest file that may be written, in MiB."""
    output_chars: int = 2000
    """Characters of the script's output that are kept."""


class Settings(NamedTuple):
    """How the host wants the probe; sent with its code."""

    scratch: str
    """The folder that a step gets, made anew each time."""
    writable: List[str]
    """Emptied before each step: all that a step can write to, where it is isolated."""
    isolate: str
    """What of 'uid', 'pidns' and 'mounts' to use, joined by '+'; or 'none'."""
    tmpfs_mib: int = 512
    """Size of each writable place, where 'mounts' makes them."""
    visible: Tuple[str, ...] = ()
    """With 'mounts': the paths of the host that can be seen, read-only. Nothing else can."""
    command: Tuple[str, ...] = ()
    """Become this command, confined like a step, instead of serving."""
    limits: Limits = Limits()
    """Of the command."""
    life_s: int = 6 * 3600
    """The probe ends by itself after so long, whatever became of the host."""


class Hello(NamedTuple):
    """Probe to host, once: it is ready."""

    protocol: int
    python: str
    coverage: str
    isolation: str
    """How steps are held: 'uid' (own user), 'pidns' (own PID namespace), both joined by '+', or 'none'."""


class Prepare(NamedTuple):
    """Host to probe: get ready for steps on this module."""

    target: str


class Prepared(NamedTuple):
    """Probe to host: the module's file and its static totals."""

    target: str
    file: str
    source: str
    version: str
    """Version of the distribution that the module belongs to, or ''."""
    statements: List[int]
    """Lines that coverage.py counts as executable, sorted."""
    branches: List[Tuple[int, int]]
    """Possible arcs (src, dst) out of lines with more than one exit, sorted; dst < 0 is an exit."""
    branches_total: int
    """coverage.py's num_branches: the exits of all lines with more than one."""
    preloaded: int
    """Modules that the zygote has imported ahead."""


class Run(NamedTuple):
    """Host to probe: run a script under branch coverage of the target."""

    target: str
    script: str
    limits: Limits


class Ran(NamedTuple):
    """Probe to host: facts of one step. What they mean is `sandboxes.outcome`'s business."""

    finished: bool
    """The script came to its end (or called os._exit) and the child said so itself."""
    exit_code: Optional[int]
    """Of the child; None when a signal ended it."""
    signal: Optional[int]
    timed_out: bool
    oom_killed: bool
    exception: Optional[str]
    """'Class: first line' of what ended the script."""
    exception_class: Optional[str]
    output: str
    output_bytes: int
    """Everything the script wrote to descriptors 1 and 2, kept or not."""
    duration_s: float
    cpu_s: float
    """User and system time of the child and of the children it waited for."""
    branches: List[Tuple[int, int]]
    """Executed arcs out of lines with more than one exit, sorted."""
    lines: List[int]
    """Executed statements, sorted."""
    measured: bool
    """False when no coverage could be had at all: then branches and lines mean nothing."""
    complete: bool
    """False when a fresh `coverage run` would lose data here, or other processes ran."""
    recovered: bool
    """Coverage is from a second, slower run of the same script: the first died with its data."""
    start: str
    """'preloaded' or 'plain': which zygote the step was forked from."""


class Evaluate(NamedTuple):
    """Host to probe: run a pytest file, measure what it covers, and which mutants of the target it kills."""

    target: str
    suite: str
    limits: Limits
    """timeout_s bounds a test function alone, and a run of the whole suite."""
    mutants: int
    """Size of the target's sample; fewer when the module has not so many."""
    seed: str
    """Of the sample: the same seed, the same mutants of the same source."""
    part: Tuple[int, int] = (0, 1)
    """(i, n): only each n-th mutant of the sample, from the i-th."""
    matrix: bool = False
    """Run every function on every mutant, so that all its killers are known; else stop at the first."""
    only: str = ""
    """'slow' or 'copy': take that path for every mutant. For checks of the others."""
    every_test: bool = False
    """Run all green functions, not only those that reach the mutant. For checks."""


class SuiteFunction(NamedTuple):
    """A test function of a suite; its parametrised cases are one with it."""

    name: str
    """'test_x' or 'TestC::test_x'."""
    outcome: str
    """green; or why not: failed, skipped, timeout, crashed, oom, dependent (alone it passed), flaky."""
    exception: Optional[str]
    duration_s: float
    cpu_s: float
    lines: List[int]
    """Statements of the target that it executes alone, import and collection left out; sorted."""


class MutantRun(NamedTuple):
    """A mutant, and what became of it."""

    id: str
    operator: str
    line: int
    end_line: int
    original: str
    replacement: str
    verdict: str
    """killed, survived, timeout, no_coverage, crashed, oom."""
    killed_by: List[str]
    """Functions that were not green on it: the first, with `matrix` all; '<collection>' for an import."""
    path: str
    """fast, slow, copy; none without coverage. See suite.py."""
    functions: List[str]
    """Test functions chosen for it, in the order in which they run."""
    ran: Optional[bool]
    """Whether the changed statement was executed; None where another process may have done it."""
    duration_s: float


class Evaluated(NamedTuple):
    """Probe to host: what a suite is worth."""

    error: Optional[str]
    """Why nothing could be collected: 'Class: first line'."""
    size: int
    """Test functions as written."""
    functions: List[SuiteFunction]
    branches: List[Tuple[int, int]]
    """Covered by the green functions, run together; sorted."""
    lines: List[int]
    mutants: List[MutantRun]
    """Of the sample (or the part asked for), in the order of the module."""
    mutants_total: int
    """Size of the whole sample."""
    duration_s: float
    cpu_s: float
    baseline_s: float
    """Of duration_s, for the runs on the unchanged module."""
    fork_s: float
    """What starting and ending a process that has collected the suite takes; the median."""


class Problem(NamedTuple):
    """Probe to host: the request could not be served, through no fault of the script."""

    where: str
    message: str
    dirty: bool = False
    """The container cannot promise a clean next step: open a new one."""


Message = Union[Hello, Prepare, Prepared, Run, Ran, Evaluate, Evaluated, Problem]

KINDS: Dict[str, Type[Any]] = {
    kind.__name__: kind for kind in (Hello, Prepare, Prepared, Run, Ran, Evaluate, Evaluated, Problem)
}


class BadFrame(ValueError):
    """The bytes are not a frame that this protocol knows."""


def encode(message: Message) -> bytes:
    """The frame's bytes, length included."""
    fields = dict(message._asdict())
    if isinstance(message, (Run, Evaluate)):
        fields["limits"] = dict(message.limits._asdict())
    fields["kind"] = type(message).__name__
    body = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(body)) + body


def decode(body: bytes) -> Message:
    """A message from a frame's body. Raises BadFrame."""
    try:
        fields = json.loads(body.decode("ascii"))
        kind = KINDS[fields.pop("kind")]
        if kind in (Run, Evaluate):
            fields["limits"] = Limits(**fields["limits"])
        if kind is Evaluate:
            fields["part"] = tuple(fields["part"])
        if kind is Evaluated:
            fields["functions"] = [SuiteFunction(*values) for values in fields["functions"]]
            fields["mutants"] = [MutantRun(*values) for values in fields["mutants"]]
        if "branches" in fields:
            fields["branches"] = [(src, dst) for src, dst in fields["branches"]]
        message: Message = kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFrame("not a Corridor message: %s: %.80r" % (error, body)) from error
    return message


def read_frame(read: Callable[[int], bytes]) -> Optional[bytes]:
    """The next frame's body from a `read(size)` that may return less; None at the end of the stream.

    Raises BadFrame for a stream that ends inside a frame or claims an absurd length.
    """
    head = _read_exactly(read, 4)
    if not head:
        return None
    if len(head) < 4:
        raise BadFrame("the stream ended inside a frame's length: %r" % head)
    (size,) = struct.unpack(">I", head)
    if size > MAX_FRAME:
        raise BadFrame("a frame claims %d bytes; first bytes %r" % (size, head))
    body = _read_exactly(read, size)
    if len(body) < size:
        raise BadFrame("the stream ended after %d of %d bytes" % (len(body), size))
    return body


def _read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    chunks = []
    left = size
    while left:
        chunk = read(left)
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
