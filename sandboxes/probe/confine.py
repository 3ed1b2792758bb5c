"""What holds a step: limits, identity, namespaces.

Two ways, by what the place allows. In a container the probe is root with a few
capabilities and a step becomes another user without any: it can neither signal nor
read its keepers, and `kill(-1)` as that user ends all it left. In namespaces of our
own a step gets a PID namespace: it sees nobody else, and everything in it ends with
its first process.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import time
from typing import Callable, Iterable, List, NamedTuple, Optional, Tuple

from .messages import Limits

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
CLONE_NEWPID, CLONE_NEWNS = 0x20000000, 0x00020000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
SYS_MOUNT_SETATTR = 442
CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ENDER_UID = 60001
"""Who ends what a step's user left; above all that `some_uid` gives."""
ADDRESS_SPACE = 4
"""Times the memory limit. Nothing else holds shared mappings; what stacks reserve is mostly never used."""
IPC_RMID = 0

_libc = ctypes.CDLL(None, use_errno=True)


class Confinement(NamedTuple):
    """How this probe holds steps; decided once, at start."""

    uid: Optional[int]
    """Become this user for a step; None stays who we are."""
    pidns: bool
    """Give each step a PID namespace of its own."""

    @property
    def name(self) -> str:
        """As in messages.Hello.isolation."""
        parts = ["uid"] * (self.uid is not None) + ["pidns"] * self.pidns
        return "+".join(parts) or "none"

    @property
    def others(self) -> int:
        """Processes, at most, that are no step's and that the kernel counts as the step's user's."""
        if self.uid is not None:
            return 0
        # By user namespace from Linux 5.14: our keepers only. Else whatever else the user runs.
        return 64 if self.pidns else 4096


def prctl(option: int, value: int) -> None:
    """Raises OSError."""
    _check(_libc.prctl(option, value, 0, 0, 0), "prctl(%d, %d)" % (option, value))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies. Raises OSError."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Raises OSError."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def own_root(visible: Iterable[str], writable: Iterable[str], size_mib: int) -> None:
    """Move this process, in a mount namespace of its own, to a root that holds little.

    `visible` paths of the old root, read-only; a few devices; /proc; an empty tmpfs on
    each of `writable`. No home folder, no sockets of services, no block devices.
    Raises OSError. Needs Linux 5.12 (mount_setattr).
    """
    _mount("none", "/", None, MS_REC | MS_PRIVATE, None)
    root = "/tmp"
    kept = [(path, os.open(path, os.O_PATH)) for path in visible if os.path.exists(path)]
    devices = [(path, os.open(path, os.O_PATH)) for path in DEVICES if os.path.exists(path)]
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path, handle in kept + devices:
        there = root + path
        os.makedirs(os.path.dirname(there), exist_ok=True)
        source = "/proc/self/fd/%d" % handle
        if os.path.isdir(source):
            os.makedirs(there, exist_ok=True)
        else:
            os.close(os.open(there, os.O_CREAT))
        _mount(source, there, None, MS_BIND | MS_REC, None)
        os.close(handle)
    for place in ("/proc",) + tuple(writable):
        os.makedirs(root + place, exist_ok=True)
    os.symlink("/proc/self/fd", root + "/dev/fd")
    attr = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        ctypes.c_char_p(root.encode()),
        ctypes.c_uint(AT_RECURSIVE),
        ctypes.c_char_p(attr),
        ctypes.c_size_t(len(attr)),
    )
    _check(result, "mount_setattr(%s, read-only)" % root)
    for place in writable:
        options = "mode=1777,size=%dm,nr_inodes=65536" % size_mib
        _mount("tmpfs", root + place, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.chdir(root)
    os.chroot(root)
    mount_proc()


def loopback_up() -> None:
    """In a network namespace of its own: 127.0.0.1 works. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)


def some_uid() -> int:
    """A user for steps: no name, no files; below 65536, where rootless engines end.

    Another in each container, since the kernel counts a user's processes over all of them.
    """
    return 20000 + int.from_bytes(os.urandom(4), "big") % 40000


def new_pid_namespace() -> None:
    """The next child is the first process of a new PID namespace, with mounts of its own. Raises OSError."""
    _check(_libc.unshare(CLONE_NEWPID | CLONE_NEWNS), "unshare(CLONE_NEWPID | CLONE_NEWNS)")


def mount_proc() -> None:
    """Show this PID namespace, and no other, under /proc. Raises OSError."""
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV, None)


def set_limits(limits: Limits, confinement: Confinement) -> None:
    """For this process and its descendants. Raises OSError, ValueError."""
    mib = 1024 * 1024
    for what, value in (
        (resource.RLIMIT_DATA, limits.memory_mib * mib),
        (resource.RLIMIT_AS, limits.memory_mib * mib * ADDRESS_SPACE),
        (resource.RLIMIT_FSIZE, limits.file_mib * mib),
        (resource.RLIMIT_NPROC, limits.processes + confinement.others),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),  # POSIX message queues would outlive the step
    ):
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(what, (value, value))


def first_victim() -> None:
    """Let the kernel's out-of-memory killer choose this process, not its keepers."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def drop_privileges(confinement: Confinement) -> None:
    """Become the step's user, for good, without capabilities. Raises OSError."""
    if confinement.uid is not None:
        os.setgroups([])
        os.setgid(confinement.uid)
        os.setuid(confinement.uid)
    elif confinement.pidns:
        for capability in range(64):
            if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break
        header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
        _check(_libc.capset(header, b"\0" * 24), "capset(none)")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    # A change of user makes /proc/self root's; a script started afresh would own it.
    prctl(PR_SET_DUMPABLE, 1)


def kill_all() -> None:
    """End every process that the caller may signal, but itself and the first of its PID namespace.

    The kernel signals them under one lock, so a fork bomb cannot outrun it.
    """
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass


def become_ender(uid: int) -> None:
    """From root, for good: somebody with a user's right to signal, whom that user may not signal."""
    os.setresuid(ENDER_UID, uid, ENDER_UID)


def system_v() -> List[Tuple[str, int]]:
    """(kind, id) of all shared memory, queues and semaphores of System V here: they outlive processes."""
    found = []
    for kind in ("shm", "msg", "sem"):
        try:
            lines = _contents("/proc/sysvipc/" + kind).splitlines()
        except OSError:
            continue  # this kernel has none
        found += [(kind, int(line.split()[1])) for line in lines[1:]]
    return found


def remove_system_v() -> None:
    """All that `system_v` tells, as far as they are the caller's."""
    for kind, number in system_v():
        if kind == "sem":
            _libc.semctl(number, 0, IPC_RMID)
        else:
            getattr(_libc, kind + "ctl")(number, IPC_RMID, None)


def kill_descendants() -> None:
    """End what runs below this process, where nothing better holds it; a fork bomb may outrun it."""
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass  # it ended by itself


def end_children(kill: Callable[[], None], timeout_s: float) -> bool:
    """`kill` and reap until this process has no children; whether it had any. Raises TimeoutError."""
    had = False
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        try:
            reaped, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return had
        had = True
        if reaped == 0:
            kill()
            os.waitpid(-1, 0)
    raise TimeoutError("processes outlive %.0f s of killing" % timeout_s)


def descendants(root: int) -> List[int]:
    """Living processes below `root`, from /proc; children whose parent died count where they were adopted."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = _contents("/proc/%s/stat" % name).rsplit(b")", 1)[1].split()
            except (OSError, IndexError):
                continue  # it ended meanwhile
            parents[int(name)] = int(fields[1])
    found: List[int] = []
    layer = [root]
    while layer:
        layer = [pid for pid, parent in parents.items() if parent in layer]
        found.extend(layer)
    return found


def oom_kills() -> int:
    """How often the kernel's memory limit has killed in this container, so far; 0 where it does not say."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            for line in _contents(path).splitlines():
                name, _, count = line.partition(b" ")
                if name == b"oom_kill":
                    return int(count)
        except (OSError, ValueError):
            continue
    return 0


def _contents(path: str) -> bytes:
    """Of one of the kernel's small files; five times faster than a file object. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        chunks: List[bytes] = []
        while True:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
    finally:
        os.close(fd)


def _mount(source: str, target: str, kind: Optional[str], flags: int, options: Optional[str]) -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(result, "mount %s on %s" % (source, target))


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))
