"""The private channel between a step and its zygote: memory that both map.

No descriptor, so a script that closes or writes to every descriptor it can find
touches nothing of it; and memory that outlives the child, so what a durable tracer
has written stays when the child is killed. The reader takes only fixed-size
integers and text out of it: what a hostile script might forge there is at worst
wrong, never code, and never arcs that the module does not have.
"""

import mmap
import struct
from array import array
from typing import Any, Dict, List, NamedTuple, Optional

SIZE = 4 * 1024 * 1024
_HEAD = struct.Struct("<4sBBBxiIIII")
_MAGIC = b"STEP"
_FAILED = b"FAIL"
_PAIR = struct.Struct("<ii")
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
    arcs: List[Any]


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
        magic, early, children, measured, code, count, size, class_size, text_size = _HEAD.unpack_from(
            self.memory, 0
        )
        if magic != _MAGIC or count * size + class_size + text_size > _LOG - _HEAD.size or size not in (0, 8):
            return None
        start = _HEAD.size
        arcs = array("q")
        arcs.frombytes(self.memory[start : start + count * size])
        start += count * size
        name = self.memory[start : start + class_size].decode("utf-8", "replace")
        start += class_size
        text = self.memory[start : start + text_size].decode("utf-8", "replace")
        return Report(
            code, bool(early), bool(children), bool(measured), name or None, text or None, arcs.tolist()
        )

    def read_log(self) -> List[Any]:
        """The arcs that a durable tracer has written so far, as pairs."""
        (count,) = _COUNT.unpack_from(self.memory, _LOG)
        first = _LOG + _COUNT.size
        return [
            _PAIR.unpack_from(self.memory, first + index * _PAIR.size)
            for index in range(min(count, _LOG_SLOTS))
        ]


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
            magic, early, children, measured, code, length(data) // 8, 8, length(name), length(text)
        )

    return write


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


def pack_arcs(found: Any, as_array: Any = array) -> bytes:
    """A tracer's arcs for one file as signed 64-bit integers, in the C tracer's packing."""
    if not found:
        return b""
    for first in found:
        if first.__class__ is not int:
            return _pack_pairs(found)
        break
    packed = as_array("q", found)
    data: bytes = packed.tobytes()
    return data


def _pack_pairs(pairs: Dict[Any, Any]) -> bytes:
    packed = array("q")
    for src, dst in list(pairs):
        item = abs(src) | abs(dst) << 28
        if src < 0:
            item |= 1 << 56
        if dst < 0:
            item |= 1 << 57
        packed.append(item)
    return packed.tobytes()
