"""Whose a container is, so that what a dead run left can be told from what a live one uses."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LABEL = "corridor.run"
OWNER = "corridor.owner"
LEASE = "corridor.lease"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so named that another with the same number is not taken for it."""

    host: str
    pid: int
    started: str
    """The kernel's start time of the process, in clock ticks; '' where /proc does not tell."""

    @classmethod
    def me(cls) -> Self:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From a label; None for one that is not ours."""
        host, _, rest = text.partition(" ")
        pid, _, started = rest.partition(" ")
        return cls(host, int(pid), started) if pid.isdigit() else None

    def labels(self, life_s: int) -> dict[str, str]:
        """For a container that this process opens now."""
        return {
            OWNER: f"{self.host} {self.pid} {self.started}",
            LEASE: str(int(time.time()) + life_s),
        }

    def alive(self) -> bool | None:
        """Whether it lives; None when it is another machine's, which cannot be seen from here."""
        if self.host != socket.gethostname():
            return None
        return _started(self.pid) == self.started and Path(f"/proc/{self.pid}").exists()


def abandoned(labels: Mapping[str, str], now: float) -> bool:
    """Whether a container with these labels has no owner any more, or outlived its lease."""
    if LABEL not in labels:
        return False
    owner = Owner.parse(labels.get(OWNER, ""))
    alive = owner.alive() if owner is not None else None
    lease = labels.get(LEASE, "")
    return alive is False or (lease.isdigit() and now > int(lease) + 60)


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
