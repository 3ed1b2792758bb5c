"""Whose a container or a scratch folder is: what a dead run left, told from what a live one uses."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LABEL = "corridor.run"
OWNER = "corridor.owner"
LEASE = "corridor.lease"
_FOLDER = re.compile(r"corridor-(?P<host>.+)-(?P<pid>\d+)-(?P<started>\d*)-\w+")


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
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Self:
        """A process of this machine."""
        return cls(socket.gethostname(), pid, _started(pid))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From a label; None for one that is not ours."""
        host, _, rest = text.partition(" ")
        pid, _, started = rest.partition(" ")
        return cls(host, int(pid), started) if pid.isdigit() else None

    @classmethod
    def of_folder(cls, name: str) -> Self | None:
        """From a name that began with `scratch_prefix`; None for another."""
        found = _FOLDER.fullmatch(name)
        return cls(found["host"], int(found["pid"]), found["started"]) if found else None

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
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it lives, as somebody else's
        return _started(self.pid) == self.started


def abandoned(labels: Mapping[str, str], now: float) -> bool:
    """Whether a container with these labels has no owner any more, or outlived its lease."""
    if LABEL not in labels:
        return False
    owner = Owner.parse(labels.get(OWNER, ""))
    alive = owner.alive() if owner is not None else None
    lease = labels.get(LEASE, "")
    return alive is False or (lease.isdigit() and now > int(lease) + 60)


def scratch_prefix() -> str:
    """For the name of a temporary folder: it says whose it is, for `leftovers` to see."""
    me = Owner.me()
    return f"corridor-{me.host}-{me.pid}-{me.started}-"


def _started(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]  # one that has ended and was not waited for is dead
