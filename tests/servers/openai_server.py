"""A real HTTP server that speaks OpenAI's chat completions, and goes wrong as it is told.

    with serving([status(500), answer("pass")]) as server:
        ...                     # point OPENAI_API_BASE at server.base_url
        server.requests[0].json["messages"]

A script is a list of replies, one a request in the order of arrival, or a function of a
request. When a list runs out the server answers 418 and `server.overrun` counts it, so
that a test that asks too often fails by name. Nothing sleeps: a reply that hangs does so
until the client has gone or the server closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    json: Json


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does with one request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Callable[[Request], bytes] = b""
    cut_at: int | None = None
    """Send so many bytes of the body, then reset the connection."""
    hang: bool = False
    """Say nothing until the client has gone or the server closes."""


Script = Sequence[Reply] | Callable[[Request], Reply]

USAGE: Json = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def completion(
    text: str | None, *, finish: str = "stop", usage: Json | None = USAGE, choices: list[Json] | None = None
) -> Json:
    """The body of an answer. `usage` None leaves it out."""
    said = [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}]
    body: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "served",
        "choices": said if choices is None else choices,
    }
    return body if usage is None else body | {"usage": usage}


def answer(
    text: str | None, *, finish: str = "stop", usage: Json | None = USAGE, choices: list[Json] | None = None
) -> Reply:
    """200 and a text."""
    return Reply(body=json.dumps(completion(text, finish=finish, usage=usage, choices=choices)).encode())


def status(code: int, message: str = "as told", *, headers: Mapping[str, str] | None = None) -> Reply:
    """An error as OpenAI words it."""
    error = {"error": {"message": message, "type": "scripted", "param": None, "code": None}}
    return Reply(code, headers or {}, json.dumps(error).encode())


def busy(retry_after: str | None = None) -> Reply:
    """429, and when to come back."""
    return status(
        429, "Rate limit reached", headers={} if retry_after is None else {"Retry-After": retry_after}
    )


def echo_authorization(code: int) -> Reply:
    """An error whose body and headers repeat the caller's credentials, as broken gateways do."""

    def body(request: Request) -> bytes:
        said = f"Incorrect API key provided: {request.headers.get('authorization')}"
        return json.dumps({"error": {"message": said, "type": "invalid_request_error"}}).encode()

    return Reply(code, body=body)


HANG = Reply(hang=True)
RESET_MID_BODY = Reply(body=json.dumps(completion("x" * 1000)).encode(), cut_at=40)
RESET_AT_ONCE = Reply(body=b"x", cut_at=0)
EMPTY_CHOICES = answer(None, choices=[])
NULL_CONTENT = answer(None)
PROSE = answer("I would start with the parser, because it has the most branches.")
TRUNCATED = answer("```python\nimport json\n\ndef test_it():\n    assert json.lo", finish="length")
THREE_BLOCKS = answer("First:\n```python\na = 1\n```\nor\n```\nb = 2\n```\nor\n```py\nc = 3\n```\n")
HUGE = answer("x = 1\n" * 34_000)
"""200 kB."""
INVALID_UTF8 = Reply(body=json.dumps(completion("caf@")).encode().replace(b"@", b"\xe9"))
MALFORMED_JSON = Reply(body=b'{"choices": [{"message": ')
HTML = Reply(502, {"Content-Type": "text/html"}, b"<html><body>Bad Gateway</body></html>")
NO_USAGE = answer("pass", usage=None)
CACHED = answer(
    "pass",
    usage={
        "prompt_tokens": 2006,
        "completion_tokens": 300,
        "total_tokens": 2306,
        "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 128},
    },
)


class Server:
    """A running server, and what it was asked."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self.overrun = 0
        """Requests that came after the end of the script."""
        self.closing = threading.Event()
        self._script = script
        self._arrival = threading.Condition()
        self._http = _Http(self)

    @property
    def base_url(self) -> str:
        """What OPENAI_API_BASE says."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def reply_to(self, request: Request) -> Reply:
        """The next of the script."""
        with self._arrival:
            number = len(self.requests)
            self.requests.append(request)
            self._arrival.notify_all()
            if callable(self._script):
                return self._script(request)
            if number < len(self._script):
                return self._script[number]
            self.overrun += 1
            return status(418, "the script has run out")

    async def received(self, count: int) -> None:
        """Wait until so many requests have come. Raises TimeoutError after ten seconds."""

        def wait() -> None:
            with self._arrival:
                if not self._arrival.wait_for(lambda: len(self.requests) >= count, timeout=10.0):
                    raise TimeoutError(f"{len(self.requests)} requests came, not {count}")

        await asyncio.to_thread(wait)

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve in threads until the block ends."""
        thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self._http.shutdown()
            thread.join()
            self._http.server_close()


@contextlib.contextmanager
def serving(script: Script) -> Iterator[Server]:
    """A server that follows a script."""
    with Server(script).running() as server:
        yield server


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: Server) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is part of many scripts."""


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(data))
        self._send(request, self.server.owner.reply_to(request))

    def _send(self, request: Request, reply: Reply) -> None:
        # One connection a request: an idle one would keep its thread, and the server, waiting.
        self.close_connection = True
        if reply.hang:
            self._wait_for_hang_up()
            return
        body = reply.body(request) if callable(reply.body) else reply.body
        self.send_response_only(reply.status)  # without a Date, which a script may want to set
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body if reply.cut_at is None else body[: reply.cut_at])
        self.wfile.flush()
        if reply.cut_at is not None:
            # A linger time of zero turns the close into a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _wait_for_hang_up(self) -> None:
        self.connection.settimeout(0.05)
        while not self.server.owner.closing.is_set():
            with contextlib.suppress(TimeoutError):
                if not self.connection.recv(1):
                    return

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: pytest shows what a test printed."""
