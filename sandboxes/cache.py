"""Where wheels, environments and locks are kept between runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache() -> Path:
    """CORRIDOR_CACHE, or corridor/ under XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("CORRIDOR_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "corridor"


@contextlib.contextmanager
def only_one(name: str) -> Iterator[None]:
    """Hold a machine-wide lock; others wait. Freed by the kernel when its holder dies."""
    folder = cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
