"""The probe's first process: answers the host's frames, keeps zygotes, runs nothing itself.

    host --frames over stdin/stdout--> server --frames over a socket--> zygote --fork--> step

When the host goes away the stream ends, and with it the server, its zygotes and their
steps, in the middle of one too: nothing of a dead run stays.
"""

import os
import platform
import select
import signal
import socket
import traceback
from collections import OrderedDict
from typing import Any, Callable, NamedTuple, Tuple

from . import confine
from .inert import starts_inert
from .messages import (
    PROTOCOL,
    BadFrame,
    Evaluate,
    Hello,
    Limits,
    Message,
    Prepare,
    Prepared,
    Problem,
    Run,
    Settings,
    decode,
    encode,
    read_frame,
)
from .zygote import Dirty, Place, Unready, Zygote, _write_all

MOST_ZYGOTES = 24
"""Kept at once; each holds about 20 MiB of its own."""
END_TIMEOUT_S = 5.0


class HostGone(Exception):
    """Nobody waits for an answer any more."""


class Kind(NamedTuple):
    """Which zygote a request needs."""

    target: str
    preload: bool
    with_pytest: bool


class Child(NamedTuple):
    """A zygote, from the server's side."""

    pid: int
    channel: socket.socket
    prepared: Prepared


def main(settings: Settings) -> None:
    """Serve until the host's stream ends; or become the settings' command."""
    # A handler, since the first process of a PID namespace is deaf to what it does not handle.
    signal.signal(signal.SIGALRM, _life_is_over)
    signal.alarm(settings.life_s)
    wanted = settings.isolate.split("+")
    if "mounts" in wanted:
        confine.own_root(settings.visible, settings.writable, settings.tmpfs_mib)
        confine.loopback_up()
    confinement = confine.Confinement(
        uid=confine.some_uid() if "uid" in wanted else None, pidns="pidns" in wanted
    )
    if settings.command:
        confine.set_limits(Limits(*settings.limits), confinement)
        confine.drop_privileges(confinement)
        os.execvp(settings.command[0], settings.command)
    confine.adopt_orphans()
    requests, answers = _take_over_stdio()
    server = Server(confinement, Place(settings.scratch, tuple(settings.writable)), requests)
    import coverage

    hello = Hello(PROTOCOL, platform.python_version(), coverage.__version__, confinement.name)
    try:
        _write_all(answers, encode(hello))
        while True:
            body = read_frame(lambda size: os.read(requests, size))
            if body is None:
                return
            _write_all(answers, encode(server.answer(body)))
    except (HostGone, BrokenPipeError):
        return
    finally:
        server.close()


class Server:
    """Finds or makes the zygote that a request needs."""

    def __init__(self, confinement: confine.Confinement, place: Place, requests: int) -> None:
        """`requests` is the descriptor that the host's frames come from."""
        self.confinement = confinement
        self.place = place
        self.requests = requests
        self.zygotes: OrderedDict[Kind, Child] = OrderedDict()
        """Least recently used first."""

    def answer(self, body: bytes) -> Message:
        """To one frame of the host. Raises HostGone, and nothing for what a request or a zygote does."""
        try:
            request = decode(body)
            if isinstance(request, Prepare):
                return self.zygote(Kind(request.target, preload=True, with_pytest=False)).prepared
            if isinstance(request, Run):
                preload = starts_inert(request.script, request.target)
                return self._pass_on(body, Kind(request.target, preload, with_pytest=False))
            if isinstance(request, Evaluate):
                preload = starts_inert(request.suite, request.target)
                return self._pass_on(body, Kind(request.target, preload, with_pytest=True))
            return Problem("reading a request", "the probe does not serve %s" % type(request).__name__)
        except BadFrame as error:
            return Problem("reading a request", str(error))
        except Unready as error:
            return Problem("preparing the target", str(error))
        except OSError as error:
            return Problem("starting a zygote", "%s: %s" % (type(error).__name__, error), dirty=True)

    def zygote(self, kind: Kind) -> Child:
        """Raises Unready, OSError."""
        found = self.zygotes.get(kind)
        if found is None:
            while len(self.zygotes) >= MOST_ZYGOTES:
                _, oldest = self.zygotes.popitem(last=False)
                _end(oldest.pid, oldest.channel)
            found = self._start(kind)
        self.zygotes[kind] = found
        self.zygotes.move_to_end(kind)
        return found

    def close(self) -> None:
        """End all zygotes, and what their steps left where no namespace or container ends with us."""
        for child in self.zygotes.values():
            _end(child.pid, child.channel)
        self.zygotes.clear()
        confine.end_children(confine.kill_descendants, END_TIMEOUT_S)

    def _pass_on(self, body: bytes, kind: Kind) -> Message:
        child = self.zygote(kind)
        try:
            _write_all(child.channel.fileno(), len(body).to_bytes(4, "big") + body)
            answer = read_frame(self._from(child.channel))
        except (OSError, BadFrame):
            answer = None
        if answer is None:
            del self.zygotes[kind]
            _end(child.pid, child.channel)
            return Problem("a step on %s" % kind.target, "its zygote ended", dirty=True)
        return decode(answer)

    def _start(self, kind: Kind) -> Child:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_zygote(ours, theirs, kind)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        try:
            body = read_frame(self._from(ours))
        except HostGone:
            _end(pid, ours)
            raise
        answer = decode(body) if body is not None else None
        if isinstance(answer, Prepared):
            return Child(pid, ours, answer)
        _end(pid, ours)
        if isinstance(answer, Problem):
            raise Unready(answer.message)
        raise Unready("the zygote for %s ended before it was ready" % kind.target)

    def _from(self, channel: socket.socket) -> Callable[[int], bytes]:
        """A `read` of a zygote's answer that does not outwait the host: it raises HostGone."""
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        poll.register(self.requests, 0)  # which still tells when its other end is closed

        def read(size: int) -> bytes:
            if any(fd == self.requests for fd, _ in poll.poll()):
                raise HostGone
            return channel.recv(size)

        return read

    def _become_zygote(self, ours: socket.socket, theirs: socket.socket, kind: Kind) -> None:
        ours.close()
        for child in self.zygotes.values():
            child.channel.close()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as a fresh interpreter has it
        confine.die_with_parent()
        if self.confinement.pidns:
            confine.new_pid_namespace()
            first = os.fork()
            if first:
                # Only keeps the namespace's first process company, and goes when it goes.
                theirs.close()
                os.waitpid(first, 0)
                return
            confine.die_with_parent()
            confine.mount_proc()
        else:
            confine.adopt_orphans()
        channel = theirs.fileno()
        try:
            zygote = Zygote(kind.target, kind.preload, kind.with_pytest, self.confinement, self.place)
        except (Unready, Dirty) as error:
            _write_all(channel, encode(Problem("preparing the target", str(error))))
            return
        except Exception as error:
            text = "preparing %s failed: %s: %s" % (kind.target, type(error).__name__, error)
            _write_all(channel, encode(Problem("preparing the target", text)))
            return
        _write_all(channel, encode(zygote.prepared))
        zygote.serve(channel)


def _life_is_over(signum: int, frame: Any) -> None:
    os._exit(1)


def _end(pid: int, channel: socket.socket) -> None:
    """A zygote and its channel to us."""
    channel.close()
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it had ended, and was reaped


def _take_over_stdio() -> Tuple[int, int]:
    """(requests, answers): the host's stream on descriptors of our own; 0, 1, 2 lead nowhere near it."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return requests, answers
