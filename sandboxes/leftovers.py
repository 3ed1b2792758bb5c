"""What dead runs left on this machine and its engine, and its removal."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from sandboxes.docker import connect
from sandboxes.errors import PrerequisiteError
from sandboxes.owner import LABEL, Owner, abandoned


def remove(everything: bool = False) -> list[str]:
    """Remove containers and scratch folders without an owner, or of living runs too; what was removed."""
    return [*remove_containers(everything), *remove_folders(everything)]


def remove_containers(everything: bool = False) -> list[str]:
    """Their names. None where no engine answers."""
    import docker.errors

    try:
        client = connect()
    except PrerequisiteError:
        return []
    removed = []
    try:
        for one in client.api.containers(all=True, filters={"label": LABEL}):
            if everything or abandoned(one["Labels"], time.time()):
                try:
                    client.api.remove_container(one["Id"], force=True)
                except docker.errors.APIError:
                    continue  # it is going, or was gone, by itself
                removed.append(f"container {one['Names'][0].lstrip('/')}")
    finally:
        client.close()
    return removed


def remove_folders(everything: bool = False) -> list[str]:
    """Their paths."""
    removed = []
    for path in sorted(Path(tempfile.gettempdir()).glob("corridor-*")):
        owner = Owner.of_folder(path.name)
        if owner is not None and (everything or owner.alive() is False):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                removed.append(str(path))
    return removed
