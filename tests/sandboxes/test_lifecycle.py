"""However a sandbox ends, nothing of it stays; however it is lost, its user hears of it at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import leftovers
from sandboxes.client import ProbeSandbox
from sandboxes.docker import SETTINGS, DockerBackend, connect
from sandboxes.errors import SandboxError, SandboxLost
from sandboxes.local import LocalBackend
from sandboxes.probe.confine import descendants
from sandboxes.sandbox import Limits, StepReport
from tests.sandboxes.conformance import PLENTY, PRELUDES, Stand

TARGET = "werkzeug.http"
LONG = Limits(timeout_s=600)

_marks = itertools.count(os.getpid() * 1000)

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may kill a step's keepers from outside")


@pytest.fixture(params=["docker", "local", "bare"])
def stand(request: pytest.FixtureRequest) -> Stand:
    made = request.getfixturevalue(f"{request.param}_stand")
    assert isinstance(made, Stand)
    return made


class Step:
    """A step that lasts, known by a process of its own that this machine's /proc shows."""

    def __init__(self) -> None:
        self._command = ["sleep", str(next(_marks))]
        self.script = f"import subprocess\nsubprocess.run({self._command})\n"

    def processes(self) -> list[int]:
        """Its process, if it runs."""
        wanted = "\0".join(self._command).encode() + b"\0"
        return [pid for pid in descendants(1) if _read(pid, "cmdline") == wanted]

    async def begin(self, sandbox: ProbeSandbox) -> asyncio.Task[StepReport]:
        """Run it; return when it is under way."""
        task = asyncio.create_task(sandbox.execute(TARGET, self.script, LONG))
        await until(lambda: bool(self.processes()) or task.done())
        assert not task.done(), task.result()
        return task


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def parent(pid: int) -> int:
    return int(_read(pid, "stat").rsplit(b")", 1)[1].split()[1])


async def until(condition: Callable[[], bool]) -> None:
    """Poll; a condition that does not come true fails the test."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # other processes bring it about: no event tells
            await asyncio.sleep(0.01)


async def open_on(stand: Stand) -> ProbeSandbox:
    sandbox = await stand.backend.open(stand.image)
    assert isinstance(sandbox, ProbeSandbox)
    return sandbox


def container_exists(name: str) -> bool:
    client = connect()
    try:
        return bool(client.api.containers(all=True, filters={"name": name}))
    finally:
        client.close()


async def check_gone(stand: Stand, name: str, step: Step) -> None:
    await until(lambda: not step.processes())
    if isinstance(stand.backend, DockerBackend):
        await until(lambda: not container_exists(name))


async def test_close_in_the_middle_of_a_step(stand: Stand) -> None:
    sandbox, step = await open_on(stand), Step()
    task = await step.begin(sandbox)
    await sandbox.close()
    with pytest.raises(SandboxLost):
        await task
    await check_gone(stand, sandbox.name, step)


async def test_cancelling_a_step_ends_its_sandbox(stand: Stand) -> None:
    sandbox, step = await open_on(stand), Step()
    task = await step.begin(sandbox)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sandbox.dirty
    with pytest.raises(SandboxLost, match="closed"):
        await sandbox.prepare(TARGET)
    await check_gone(stand, sandbox.name, step)


async def test_cancelling_an_opening_leaves_nothing(stand: Stand) -> None:
    before = set(descendants(os.getpid()))
    run = f"cancelled-{next(_marks)}"
    backend: DockerBackend | LocalBackend
    if isinstance(stand.backend, DockerBackend):
        backend = DockerBackend(run)
    else:
        backend = LocalBackend(run, isolated=stand.isolated)

    def containers() -> int:
        client = connect()
        try:
            return len(client.api.containers(all=True, filters={"label": f"corridor.run={run}"}))
        finally:
            client.close()

    def begun() -> bool:
        if isinstance(backend, DockerBackend):
            return containers() > 0
        return set(descendants(os.getpid())) > before

    # At once, and when the engine or the kernel has begun to make it.
    for wait in (False, True):
        task = asyncio.create_task(backend.open(stand.image))
        await asyncio.sleep(0)
        if wait:
            await until(begun)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).close()
        if isinstance(backend, DockerBackend):
            await until(lambda: containers() == 0)
        await until(lambda: set(descendants(os.getpid())) <= before)


CHILD = """\
import asyncio, pickle, sys
stand, target, script, limits = pickle.load(sys.stdin.buffer)
async def main():
    sandbox = await stand.backend.open(stand.image)
    print(sandbox.name, flush=True)
    await sandbox.execute(target, script, limits)
asyncio.run(main())
"""


async def test_nothing_outlives_a_host_that_is_killed(stand: Stand) -> None:
    step = Step()
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write(pickle.dumps((stand, TARGET, step.script, LONG)))
    host.stdin.close()
    name = (await host.stdout.readline()).decode().strip()
    await until(lambda: bool(step.processes()) or host.returncode is not None)
    assert host.returncode is None
    host.kill()
    await host.wait()
    await check_gone(stand, name, step)
    if not stand.isolated:
        # Its scratch folder is on this machine's disk, and nobody is left to remove it.
        prefix = f"corridor-{socket.gethostname()}-{host.pid}-"
        assert any(prefix in folder for folder in leftovers.remove_folders())


@only_root
async def test_a_dead_zygote_is_told_and_the_sandbox_not_used_again(stand: Stand) -> None:
    sandbox, step = await open_on(stand), Step()
    task = await step.begin(sandbox)
    (process,) = step.processes()
    zygote = parent(parent(process))
    os.kill(zygote, signal.SIGKILL)
    with pytest.raises(SandboxError, match="zygote ended"):
        await task
    assert sandbox.dirty
    await sandbox.close()
    await check_gone(stand, sandbox.name, step)


@only_root
async def test_a_dead_probe_is_a_lost_sandbox(stand: Stand) -> None:
    sandbox, step = await open_on(stand), Step()
    task = await step.begin(sandbox)
    (process,) = step.processes()
    keeper = parent(parent(process))
    # The zygote, then the process that keeps a PID namespace company if there is one, then the server.
    server = parent(parent(keeper)) if stand.backend.name == "local" and stand.isolated else parent(keeper)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(SandboxLost):
        await task
    assert sandbox.dirty
    await sandbox.close()
    if stand.isolated:
        await check_gone(stand, sandbox.name, step)
    else:
        # Nobody is left who could: that is what a container or a namespace is for.
        for pid in step.processes():
            os.kill(pid, signal.SIGKILL)


async def test_a_container_removed_from_outside_is_a_lost_sandbox(docker_stand: Stand) -> None:
    sandbox, step = await open_on(docker_stand), Step()
    task = await step.begin(sandbox)
    client = connect()
    client.api.remove_container(sandbox.name, force=True)
    client.close()
    async with asyncio.timeout(20):
        with pytest.raises(SandboxLost, match=sandbox.name):
            await task
    assert sandbox.dirty
    await sandbox.close()


async def test_a_probe_ends_when_its_life_is_over(stand: Stand) -> None:
    backend = stand.backend
    if isinstance(backend, DockerBackend):
        name, settings = "corridor-short-life", SETTINGS
        made = ProbeSandbox(name, lambda: backend._start(name, stand.image), settings._replace(life_s=1))
    else:
        assert isinstance(backend, LocalBackend)
        home, settings = backend._place(stand.image)
        made = ProbeSandbox(
            "short-life", lambda: backend._start(stand.image, home), settings._replace(life_s=1)
        )
    await made.start()
    async with asyncio.timeout(20):
        with pytest.raises(SandboxLost):
            await made.execute(TARGET, "import time\ntime.sleep(600)", LONG)
    await made.close()


@pytest.mark.parametrize("kind", ["local", "bare"])
async def test_a_closed_sandbox_leaves_no_process_for_init_to_reap(
    request: pytest.FixtureRequest, kind: str
) -> None:
    before = set(descendants(os.getpid()))
    sandbox = await open_on(request.getfixturevalue(f"{kind}_stand"))
    for target, prelude in PRELUDES.items():
        await sandbox.execute(target, prelude, PLENTY)
        await sandbox.execute(target, f"import sys\nlen(sys.modules)\n{prelude}", PLENTY)
    ours = set(descendants(os.getpid())) - before
    assert len(ours) > 2 * len(PRELUDES)
    await sandbox.close()
    assert [pid for pid in ours if _read(pid, "stat")] == []


async def test_a_sandbox_without_namespaces_removes_its_folder(bare_stand: Stand) -> None:
    sandbox = await open_on(bare_stand)
    said = await sandbox.execute(TARGET, "import os\nprint(os.getcwd())", PLENTY)
    home = Path(said.output.strip()).parent
    assert home.is_dir()
    assert home.name.startswith("corridor-")
    await sandbox.close()
    assert not home.exists()
