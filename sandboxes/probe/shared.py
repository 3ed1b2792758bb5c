"""The private channel between a step and its zygote: memory that both map.

No descriptor, so a script that closes or writes to every descriptor it can find
touches nothing of it; and memory that outlives the child, so what a durable tracer
has written stays when the child is killed. The reader takes only fixed-size
integers and text out of it: what a hostile script might forge there is at worst
wrong, never code, and never arcs that the module does not have.
"""

import json
import mmap
import struct
from array import array
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

SIZE = 4 * 1024 * 1024
_HEAD = struct.Struct("<4sBBBxiIII")
_MAGIC = b"STEP"
_FAILED = b"FAIL"
_PAIR = struct.Struct("=ii")
_COUNT = struct.Struct("<Q")
_LOG = SIZE // 2
"""Where the durable log begins: a count, then pairs of lines."""
_LOG_SLOTS = (SIZE - _LOG - _COUNT.size) // _PAIR.size


class Report(NamedTuple):
    """What a step's child says at its end."""

    exit_code: int
    early: bool
    """Through os._exit or at the deadline, not at the end of the script."""
    children: bool
    """Other processes ran below it."""
    measured: bool
    exception_class: Optional[str]
    exception: Optional[str]
    arcs: List[Tuple[int, int]]


class Shared:
    """One step's shared memory. Made by the zygote, written by the child, read by the zygote."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, SIZE)

    def clear(self) -> None:
        """Ready for the next step."""
        self.memory[: _HEAD.size] = b"\0" * _HEAD.size
        _COUNT.pack_into(self.memory, _LOG, 0)

    def mark_failed(self) -> None:
        """By the child: it could not be set up, and has not run a line of the script."""
        self.memory[: len(_FAILED)] = _FAILED

    def failed_to_start(self) -> bool:
        """See mark_failed."""
        return self.memory[: len(_FAILED)] == _FAILED

    def read(self) -> Optional[Report]:
        """The child's report; None when it left none that holds together."""
        magic, early, children, measured, code, count, class_size, text_size = _HEAD.unpack_from(
            self.memory, 0
        )
        arcs_size = count * _PAIR.size
        if magic != _MAGIC or arcs_size + class_size + text_size > _LOG - _HEAD.size:
            return None
        start = _HEAD.size
        arcs = list(_PAIR.iter_unpack(self.memory[start : start + arcs_size]))
        start += arcs_size
        name = self.memory[start : start + class_size].decode("utf-8", "replace")
        start += class_size
        text = self.memory[start : start + text_size].decode("utf-8", "replace")
        return Report(code, bool(early), bool(children), bool(measured), name or None, text or None, arcs)

    def read_log(self) -> List[Tuple[int, int]]:
        """The arcs that a durable tracer has written so far."""
        (count,) = _COUNT.unpack_from(self.memory, _LOG)
        first = _LOG + _COUNT.size
        log = self.memory[first : first + min(count, _LOG_SLOTS) * _PAIR.size]
        return list(_PAIR.iter_unpack(log))


def writer(memory: Any) -> Any:
    """A function that leaves a Report's parts in `memory`.

    It works after the script has run, and maybe patched builtins and half the standard
    library: everything it calls was looked up before.
    """

    def write(
        code: int,
        early: bool,
        children: bool,
        arcs: Optional[bytes],
        name: bytes,
        text: bytes,
        pack: Any = _HEAD.pack,
        head: int = _HEAD.size,
        pair: int = _PAIR.size,
        limit: int = _LOG,
        length: Any = len,
        magic: bytes = _MAGIC,
    ) -> None:
        measured = arcs is not None
        data = arcs or b""
        body = data + name + text
        if head + length(body) > limit:
            return
        memory[head : head + length(body)] = body
        memory[:head] = pack(
            magic, early, children, measured, code, length(data) // pair, length(name), length(text)
        )

    return write


class Board:
    """Where a suite's process leaves what it found: JSON, and the function it is at, in shared memory.

    Like `Shared` it is no descriptor, and outlives who writes; what is read from it is data only.
    """

    SIZE = 32 * 1024 * 1024
    """Bytes of address space; what is not written takes no memory."""
    _HEAD = struct.Struct("<4sII")
    _MAGIC = b"SAID"

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, self.SIZE)

    def clear(self) -> None:
        """Ready for the next process."""
        self.memory[: self._HEAD.size] = b"\0" * self._HEAD.size

    def at(self, place: int, pack_into: Any = struct.pack_into) -> None:
        """By the process: it now runs the function at this place of its list."""
        pack_into("<I", self.memory, 4, place)

    def write(self, said: Dict[str, Any], dumps: Any = json.dumps, length: Any = len) -> None:
        """By the process, last: all it found. Too much of it is as if nothing was said."""
        body = dumps(said).encode("ascii")
        first = self._HEAD.size
        if first + length(body) <= self.SIZE:
            self.memory[first : first + length(body)] = body
            self.memory[8:12] = self._LENGTH.pack(length(body))
            self.memory[:4] = self._MAGIC

    _LENGTH = struct.Struct("<I")

    def read(self) -> Tuple[int, Optional[Dict[str, Any]]]:
        """(the function it was at, what it said at its end, or None)."""
        magic, place, size = self._HEAD.unpack_from(self.memory, 0)
        if magic != self._MAGIC or size > self.SIZE - self._HEAD.size:
            return place, None
        first = self._HEAD.size
        try:
            said = json.loads(self.memory[first : first + size].decode("ascii"))
        except ValueError:
            return place, None
        return place, said if isinstance(said, dict) else None


class DurableArcs(set):  # type: ignore[type-arg]  # set[...] is no base class on Python 3.6
    """A tracer's set of arcs that writes each new one to shared memory as it is added.

    Slower than a set, and it survives the process. Both notations of coverage.py's
    Python tracer are understood: a set of pairs, and the older dict of pairs.
    """

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self._memory = memory
        self._count = 0

    def add(self, arc: Any) -> None:
        """As set.add."""
        if arc in self or self._count >= _LOG_SLOTS:
            return
        super().add(arc)
        _PAIR.pack_into(self._memory, _LOG + _COUNT.size + self._count * _PAIR.size, arc[0], arc[1])
        self._count += 1
        _COUNT.pack_into(self._memory, _LOG, self._count)

    def __setitem__(self, arc: Any, value: None) -> None:
        self.add(arc)


def line_bits(version: Tuple[Any, ...]) -> int:
    """How many bits each line takes in an arc that this coverage.py's C tracer packed into an integer.

    From coverage/ctracer/tracer.c, CTracer_record_pair: 28 from 7.13.4, 20 in the older ones of our kits.
    """
    return 28 if version >= (7, 13, 4) else 20


def pack_arcs(found: Any, bits: int, array: Any = array, integer: Any = int, listed: Any = list) -> bytes:
    """A tracer's arcs for one file, in any of its notations, as pairs of 32-bit integers.

    Like `writer`'s function it works when builtins are patched away.
    """
    pairs = array("i")
    add = pairs.append
    mask = (1 << bits) - 1
    for arc in listed(found or ()):
        if arc.__class__ is integer:
            src = arc & mask
            dst = arc >> bits & mask
            # The lines' signs are the next two bits.
            signs = arc >> 2 * bits
            if signs & 1:
                src = -src
            if signs & 2:
                dst = -dst
        else:
            src, dst = arc
        add(src)
        add(dst)
    data: bytes = pairs.tobytes()
    return data
