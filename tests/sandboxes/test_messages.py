"""Frames: whatever is sent comes back the same, and what is no frame is refused."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.probe import messages
from sandboxes.probe.messages import (
    BadFrame,
    Evaluate,
    Evaluated,
    Hello,
    Limits,
    Message,
    MutantRun,
    Prepare,
    Prepared,
    Problem,
    Ran,
    Run,
    SuiteFunction,
    decode,
    encode,
    read_frame,
)

# Scripts and outputs may hold any code point, lone surrogates too.
texts = st.text(st.characters(exclude_categories=()))
lines = st.integers(-(2**28), 2**28)
arcs = st.lists(st.tuples(lines, lines))
seconds = st.floats(0, 1e9)
limits = st.builds(Limits, seconds, *[st.integers(0, 2**31)] * 4)

functions = st.builds(
    SuiteFunction, texts, texts, st.none() | texts, seconds, seconds, st.lists(lines, max_size=3)
)
names = st.lists(texts, max_size=3)
mutants = st.builds(
    MutantRun,
    *(texts, texts, lines, lines, texts, texts, texts, names, texts, names),
    st.none() | st.booleans(),
    seconds,
)

every_message = st.one_of(
    st.builds(Hello, st.integers(), texts, texts, texts),
    st.builds(Prepare, texts),
    st.builds(Prepared, texts, texts, texts, texts, st.lists(lines), arcs, st.integers(0), st.integers(0)),
    st.builds(Run, texts, texts, limits),
    st.builds(
        Ran,
        finished=st.booleans(),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        timed_out=st.booleans(),
        oom_killed=st.booleans(),
        exception=st.none() | texts,
        exception_class=st.none() | texts,
        output=texts,
        output_bytes=st.integers(0),
        duration_s=seconds,
        cpu_s=seconds,
        branches=arcs,
        lines=st.lists(lines),
        measured=st.booleans(),
        complete=st.booleans(),
        recovered=st.booleans(),
        start=texts,
    ),
    st.builds(
        Evaluate,
        *(texts, texts, limits, st.integers(0), texts, st.tuples(lines, lines), st.booleans(), texts),
        st.booleans(),
    ),
    st.builds(
        Evaluated,
        *(st.none() | texts, st.integers(0), st.lists(functions, max_size=3), arcs, st.lists(lines)),
        *(st.lists(mutants, max_size=3), st.integers(0), seconds, seconds, seconds, seconds),
    ),
    st.builds(Problem, texts, texts, st.booleans()),
)


def body_of(frame: bytes) -> bytes:
    body = read_frame(io.BytesIO(frame).read)
    assert body is not None
    return body


@given(every_message)
def test_a_message_survives_the_wire(message: Message) -> None:
    back = decode(body_of(encode(message)))
    assert back == message
    assert type(back) is type(message)


@given(every_message, st.integers(1, 7))
def test_a_frame_may_come_in_pieces(message: Message, size: int) -> None:
    stream = io.BytesIO(encode(message) + encode(message))

    def read(wanted: int) -> bytes:
        return stream.read(min(wanted, size))

    for _ in range(2):
        body = read_frame(read)
        assert body is not None
        assert decode(body) == message
    assert read_frame(read) is None


def test_every_kind_of_message_is_tried() -> None:
    assert set(messages.KINDS.values()) == {
        *(Hello, Prepare, Prepared, Run, Ran, Evaluate, Evaluated, Problem)
    }


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_frame(body: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_that_is_no_message_is_a_bad_frame(value: Any) -> None:
    with pytest.raises(BadFrame):
        decode(json.dumps(value).encode("ascii"))


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "Prepare"},
        {"kind": "Prepare", "target": "x", "more": 1},
        {"kind": "Limits"},
        {"kind": ["Prepare"], "target": "x"},
        {"kind": "Run", "target": "x", "script": "", "limits": None},
        {"kind": "Run", "target": "x", "script": "", "limits": {"speed": 1}},
        {"kind": "Problem", "where": "x", "message": "y", "branches": [[1]]},
    ],
    ids=str,
)
def test_a_message_with_other_fields_is_a_bad_frame(value: Any) -> None:
    with pytest.raises(BadFrame):
        decode(json.dumps(value).encode("ascii"))


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"\0", "inside a frame's length"),
        (struct.pack(">I", 5) + b"abc", "3 of 5 bytes"),
        (struct.pack(">I", messages.MAX_FRAME + 1), "claims"),
        (b"Traceback (most recent call last):", "claims"),
    ],
)
def test_a_broken_stream_is_a_bad_frame(stream: bytes, says: str) -> None:
    with pytest.raises(BadFrame, match=says):
        read_frame(io.BytesIO(stream).read)
