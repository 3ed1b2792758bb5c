"""Sandboxes that are containers.

The probe is the container's main process and speaks over the attached standard input
and output, so nothing is mounted and a remote engine serves as well. When the attached
client goes, the engine closes the input, the probe ends, and the container removes
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from sandboxes import cold
from sandboxes.bundle import BOOT
from sandboxes.client import ProbeSandbox
from sandboxes.errors import PrerequisiteError, SandboxError, SandboxLost
from sandboxes.owner import LABEL, Owner
from sandboxes.probe.messages import Limits, Settings
from sandboxes.sandbox import Cold, Image, TargetFacts

if TYPE_CHECKING:
    import docker

TMPFS_MIB = 512
SHM_MIB = 64
KEEPERS_MIB = 2048
"""Memory for the probe and its zygotes, on top of what a step may use."""
KEEPERS_PROCESSES = 64
LIFE_S = 6 * 3600
API_TIMEOUT_S = 180
SETTINGS = Settings(
    scratch=cold.SCRATCH, writable=["/tmp", "/dev/shm"], isolate="uid", tmpfs_mib=TMPFS_MIB, life_s=LIFE_S
)
DEFAULT_HOST = "unix:///var/run/docker.sock"
STDOUT, STDERR = 1, 2


class DockerBackend:
    """Containers of one engine."""

    name = "docker"

    def __init__(self, run: str = "", limits: Limits | None = None) -> None:
        """`run` labels the containers; `limits` sizes them."""
        self.run = run
        self.limits = limits or Limits()

    async def check(self) -> None:
        """See Backend.check."""
        client = await asyncio.to_thread(connect)
        client.close()

    async def open(self, image: Image) -> ProbeSandbox:
        """See Backend.open."""
        name = f"corridor-{secrets.token_hex(6)}"
        sandbox = ProbeSandbox(name, lambda: self._start(name, image), SETTINGS)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        """See Backend.cold: one `docker run`."""
        return await asyncio.to_thread(self._cold, image, facts, script, limits)

    def bare(self, image: Image) -> BareContainer:
        """A running container to execute scripts in without measuring; for benchmarks."""
        name = f"corridor-bare-{secrets.token_hex(6)}"
        return BareContainer(self.create(name, image, ["sleep", str(LIFE_S)], user="20000:20000"), image)

    def create(self, name: str, image: Image, command: list[str], user: str) -> Container:
        """A container that is ready to be attached and started.

        Raises PrerequisiteError when the engine or the image is not there, SandboxError otherwise.
        """
        client = connect()
        try:
            return Container(client, self._create(client, name, image, command, user))
        except BaseException:
            client.close()
            raise

    def _create(
        self, client: docker.DockerClient, name: str, image: Image, command: list[str], user: str
    ) -> str:
        import docker.errors
        from docker.types import LogConfig, Ulimit

        api = client.api
        mib = 1024 * 1024
        memory = (self.limits.memory_mib + TMPFS_MIB + KEEPERS_MIB) * mib
        labels = {LABEL: self.run or "-"} | Owner.me().labels(LIFE_S)
        try:
            host = api.create_host_config(
                auto_remove=True,
                init=True,
                network_mode="none",
                read_only=True,
                tmpfs={
                    "/tmp": f"mode=1777,size={TMPFS_MIB}m,nr_inodes=65536,exec",
                    # What the engine mounts there by itself may hold files without number.
                    "/dev/shm": f"mode=1777,size={SHM_MIB}m,nr_inodes=65536",
                },
                cap_drop=["ALL"],
                # What root needs to hand a step to another user, end it, and clear up after it.
                cap_add=["SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER"],
                security_opt=["no-new-privileges"],
                mem_limit=memory,
                memswap_limit=memory,
                pids_limit=self.limits.processes + KEEPERS_PROCESSES,
                nano_cpus=1_000_000_000,
                ulimits=[Ulimit(name="core", soft=0, hard=0)],
                log_config=LogConfig(type="none"),
            )
            made = api.create_container(
                image.ref,
                command=command,
                name=name,
                entrypoint=[],
                user=user,
                stdin_open=True,
                working_dir="/tmp",
                environment=cold.environment(image),
                labels=labels,
                host_config=host,
            )
        except docker.errors.ImageNotFound as error:
            raise PrerequisiteError(
                f"image {image.ref} is not on this engine; build it with: corridor images build DATASET"
            ) from error
        except (docker.errors.DockerException, OSError) as error:
            raise SandboxError(f"{name}: the engine would not create a container: {error}") from error
        return str(made["Id"])

    def _start(self, name: str, image: Image) -> AttachedStream:
        return self.create(name, image, [image.python, "-c", BOOT], user="0:0").attach()

    def _cold(self, image: Image, facts: TargetFacts, script: str, limits: Limits) -> Cold:
        data = cold.script_bytes(script)
        began = time.perf_counter()
        container = self.create(
            f"corridor-cold-{secrets.token_hex(6)}",
            image,
            cold.command(image, facts.target, data, limits),
            user="20000:20000",
        )
        stream = container.attach()
        try:
            stream.set_timeout(limits.timeout_s + API_TIMEOUT_S)
            stream.send(data)
            chunks = []
            while chunk := stream.receive(1 << 20):
                chunks.append(chunk)
            seconds = time.perf_counter() - began
            # Its removal burns a core for a while: what is measured next should not pay for it.
            container.wait_removed()
        except OSError as error:
            raise SandboxLost(f"the reference run of {facts.target}: {error}") from error
        finally:
            stream.stop()
            stream.close()
        return cold.parse(b"".join(chunks).decode("utf-8", "replace"), facts, seconds)


class Container:
    """One container, and the client that made it: clients are not to be shared between threads."""

    def __init__(self, client: docker.DockerClient, id: str) -> None:
        self._client = client
        self.id = id

    @property
    def api(self) -> Any:
        """The engine's."""
        return self._client.api

    def attach(self) -> AttachedStream:
        """Attach to it and start it. Raises SandboxError, and gives it up then."""
        import docker.errors

        try:
            attached = self.api.attach_socket(
                self.id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self.api.start(self.id)
        except (docker.errors.DockerException, OSError) as error:
            self.remove()
            self.close()
            raise SandboxError(f"container {self.id[:12]} did not start: {error}") from error
        return AttachedStream(self, attached)

    def wait_removed(self) -> None:
        """Until one that has ended has removed itself."""
        import docker.errors

        # Gone already, or slow to go: either way there is nothing left to wait for.
        with contextlib.suppress(docker.errors.DockerException, OSError):
            self.api.wait(self.id, timeout=30, condition="removed")

    def remove(self) -> None:
        """Kill and remove; one that is gone already is fine."""
        import docker.errors

        # Gone, or going: it removes itself, and `corridor clean` finds what does not.
        with contextlib.suppress(docker.errors.DockerException, OSError):
            self.api.remove_container(self.id, force=True)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class AttachedStream:
    """A container's standard streams (docker engine API, "Attach to a container", stream format)."""

    def __init__(self, container: Container, attached: Any) -> None:
        self.container = container
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._ready = b""
        self._errors = b""

    def send(self, data: bytes) -> None:
        """See client.Stream."""
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """See client.Stream: standard output only; standard error is kept for `why_ended`."""
        while not self._ready:
            head = self._exactly(8)
            if len(head) < 8:
                return b""
            kind, length = struct.unpack(">BxxxI", head)
            body = self._exactly(length)
            if kind == STDERR:
                self._errors = (self._errors + body)[-4000:]
            else:
                self._ready = body
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def set_timeout(self, seconds: float) -> None:
        """See client.Stream."""
        self._socket.settimeout(seconds)

    def why_ended(self) -> str:
        """See client.Stream."""
        said = self._errors.decode("utf-8", "replace").strip()
        return f"container {self.container.id[:12]} last said: {said[-800:]}" if said else "it said nothing"

    def stop(self) -> None:
        """See client.Stream."""
        with contextlib.suppress(OSError):  # the other end may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self.container.remove()

    def close(self) -> None:
        """See client.Stream."""
        self._attached.close()
        self._socket.close()
        self.container.close()

    def _exactly(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class BareContainer:
    """Scripts by exec in a running container, without coverage: the floor that benchmarks compare with."""

    def __init__(self, container: Container, image: Image) -> None:
        self._container = container
        self._image = image
        container.api.start(container.id)

    def put(self, script: str) -> str:
        """Write a script into the container; its path."""
        path = "/tmp/bare.py"
        made = self._exec(["sh", "-c", f'printf %s "$0" > {path}', script])
        if made != 0:
            raise SandboxError(f"the bare container refused a script: exit code {made}")
        return path

    def run(self, path: str) -> int:
        """`python path`; its exit code."""
        return self._exec([self._image.python, path])

    def close(self) -> None:
        """Remove it."""
        self._container.remove()
        self._container.close()

    def _exec(self, command: list[str]) -> int:
        api = self._container.api
        made = api.exec_create(self._container.id, command)
        api.exec_start(made["Id"])
        return int(api.exec_inspect(made["Id"])["ExitCode"])


def connect() -> docker.DockerClient:
    """A client of the engine that the environment names. Raises PrerequisiteError."""
    import docker
    import docker.errors

    where = os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    client = None
    try:
        if where.startswith("unix://"):
            # docker-py leaves a socket that could not connect to the garbage collector, which complains.
            with socket.socket(socket.AF_UNIX) as trial:
                trial.connect(where.removeprefix("unix://"))
        client = docker.from_env(timeout=API_TIMEOUT_S)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        if client is not None:
            client.close()
        raise PrerequisiteError(
            f"no Docker engine answers at {where} ({error}); start one, or use --sandbox local"
        ) from error
    return client
