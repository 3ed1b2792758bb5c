"""Sandboxes without an engine: the same probe in namespaces of this machine.

Where Linux gives namespaces (to root, or to users), a step sees the system's libraries,
its interpreter and its packages, read-only, and nothing else: no home folder, no
network, no other process. Where it does not, only scripts of Corridor's own model run,
unless `trust` says otherwise.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from sandboxes import cold
from sandboxes.bundle import BOOT, bundle
from sandboxes.client import ProbeSandbox
from sandboxes.errors import PrerequisiteError, SandboxError
from sandboxes.owner import scratch_prefix
from sandboxes.probe.messages import Limits, Settings
from sandboxes.sandbox import Cold, Image, TargetFacts

SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc")
"""What of the host a step can read, besides its interpreter and packages."""
WRITABLE = ("/tmp", "/dev/shm")
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
USER_NAMESPACE = ("--user", "--map-root-user")
END_TIMEOUT_S = 10.0
"""What a probe may take to end by itself."""


@functools.cache
def isolation() -> tuple[str, ...] | None:
    """The command prefix that gives namespaces here; None where the system has none to give."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return None
    prefix = NAMESPACES if os.geteuid() == 0 else NAMESPACES[:1] + USER_NAMESPACE + NAMESPACES[1:]
    settings = Settings(
        cold.SCRATCH, ["/tmp"], _isolate(), visible=_visible(Path(sys.executable)), command=("true",)
    )
    trial = subprocess.run(
        [*prefix, sys.executable, "-c", BOOT], input=bundle(settings), capture_output=True, check=False
    )
    return prefix if trial.returncode == 0 else None


class LocalBackend:
    """Processes of this machine."""

    name = "local"

    def __init__(self, run: str = "", limits: Limits | None = None, isolated: bool | None = None) -> None:
        """`isolated` False forgoes namespaces; None uses them where they are."""
        self.run = run
        self.limits = limits or Limits()
        self.prefix = None if isolated is False else isolation()
        if isolated and self.prefix is None:
            raise PrerequisiteError(
                "this system gives no namespaces (Linux 5.14 and util-linux' unshare are needed, and user "
                "namespaces unless you are root); use --sandbox docker, or --trust to run without isolation"
            )

    @property
    def isolated(self) -> bool:
        """Whether steps are held by namespaces."""
        return self.prefix is not None

    async def check(self) -> None:
        """See Backend.check. Nothing beyond the operating system is needed."""

    async def open(self, image: Image) -> ProbeSandbox:
        """See Backend.open."""
        name = f"corridor-local-{secrets.token_hex(6)}"
        home, settings = self._place(image)
        sandbox = ProbeSandbox(name, lambda: self._start(image, home), settings)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        """See Backend.cold."""
        return await asyncio.to_thread(self._cold, image, facts, script, limits)

    def _place(self, image: Image) -> tuple[str, Settings]:
        """(home folder, settings): where steps may write."""
        if not Path(image.python).exists():
            raise PrerequisiteError(
                f"the environment {image.ref} is not here; make it with: corridor images build DATASET"
            )
        if self.prefix is not None:
            for needed in (image.python, image.kit):
                if needed.startswith(tuple(f"{place}/" for place in WRITABLE)):
                    raise PrerequisiteError(
                        f"a step gets an empty {' and '.join(WRITABLE)} and would not find {needed}; "
                        "set CORRIDOR_CACHE to another place"
                    )
            return "/tmp", Settings(
                cold.SCRATCH,
                list(WRITABLE),
                _isolate(),
                visible=(*_visible(Path(image.python)), image.kit),
            )
        home = tempfile.mkdtemp(prefix=scratch_prefix())
        return home, Settings(f"{home}/step", [home], "none")

    def _start(self, image: Image, home: str) -> PipeStream:
        command = [*(self.prefix or ()), image.python, "-c", BOOT]
        return PipeStream(command, _environment(image, home), home if self.prefix is None else None)

    def _cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        data = cold.script_bytes(script)
        home, settings = self._place(image)
        began = time.perf_counter()
        command = cold.command(image, facts.target, data, limits, settings.scratch)
        entering = b""
        if self.prefix is not None:
            entering = bundle(settings._replace(command=tuple(command), limits=limits))
            command = [*self.prefix, image.python, "-c", BOOT]
        environment = _environment(image, home)
        try:
            done = subprocess.run(
                command,
                input=entering + data,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=limits.timeout_s + 120,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SandboxError(f"the reference run of {facts.target} did not end: {error}") from error
        finally:
            if self.prefix is None:
                shutil.rmtree(home, ignore_errors=True)
        return cold.parse(done.stdout.decode("utf-8", "replace"), facts, time.perf_counter() - began)


class PipeStream:
    """A child process' standard input and output."""

    def __init__(self, command: list[str], environment: dict[str, str], home: str | None) -> None:
        """`home` is removed at the end; None has nothing to remove."""
        self._home = home
        self._timeout = 60.0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()

    def send(self, data: bytes) -> None:
        """See client.Stream."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._in, view) :]

    def receive(self, size: int) -> bytes:
        """See client.Stream."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if not poll.poll(self._timeout * 1000):
            raise TimeoutError(f"no answer in {self._timeout:.0f} s")
        return os.read(self._out, size)

    def set_timeout(self, seconds: float) -> None:
        """See client.Stream."""
        self._timeout = seconds

    def why_ended(self) -> str:
        """See client.Stream."""
        code = self._process.poll()
        self._errors.seek(0)
        said = self._errors.read()[-800:].decode("utf-8", "replace").strip()
        return f"exit code {code}; it last said: {said or 'nothing'}"

    def stop(self) -> None:
        """See client.Stream. A probe that is left time to end reaps its zygotes; `init` need not."""
        # Led elsewhere, not closed: the thread that sends may be about to use the number.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._in, inheritable=False)
        os.close(null)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """See client.Stream."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)


def _isolate() -> str:
    return "uid+pidns+mounts" if os.geteuid() == 0 else "pidns+mounts"


def _visible(python: Path) -> tuple[str, ...]:
    """The interpreter of a virtual environment, and what it leans on."""
    environment = python.parent.parent
    base = python.resolve().parent.parent
    return (*SYSTEM, str(environment), str(base))


def _environment(image: Image, home: str) -> dict[str, str]:
    path = f"{Path(image.python).parent}:{os.defpath}"
    return {"PATH": path, "LANG": "C.UTF-8"} | cold.environment(image, home)
