"""The probe as text: what is sent into a container when a sandbox opens."""

from __future__ import annotations

import functools
import json
from importlib import resources

from sandboxes.probe.messages import Settings

PACKAGE = "corridor_probe"
"""The probe's name inside; never installed, never importable by a script."""

BOOT = """\
import os, sys
def read(size):
    data = b""
    while len(data) < size:
        chunk = os.read(0, size - len(data))
        if not chunk: raise SystemExit("the host went away before the probe's code was there")
        data += chunk
    return data
import json, types
bundle = json.loads(read(int(read(8), 16)).decode("ascii"))
name = bundle["package"]
def module(full, text, package):
    made = types.ModuleType(full)
    made.__package__ = name
    if package: made.__path__ = []
    sys.modules[full] = made
    exec(compile(text, "<" + full + ">", "exec", dont_inherit=True), made.__dict__)
    return made
for part, text in bundle["modules"]:
    full = name + "." + part if part else name
    made = module(full, text, not part)
    if part: setattr(sys.modules[name], part, made)
server = sys.modules[name + ".server"]
server.main(server.Settings(**bundle["settings"]))
"""
"""Given to `python -c`. Reads eight hex digits, then that many bytes of JSON, from descriptor 0."""

_ORDER = (
    *("", "messages", "shared", "confine", "branches", "ahead", "inert", "operators", "mutants"),
    *("step", "swap", "suite", "zygote", "evaluate", "server"),
)
"""Each after what it imports."""


@functools.cache
def _sources() -> list[tuple[str, str]]:
    folder = resources.files("sandboxes.probe")
    return [(part, (folder / f"{part or '__init__'}.py").read_text()) for part in _ORDER]


def bundle(settings: Settings) -> bytes:
    """What BOOT reads."""
    body = json.dumps({"package": PACKAGE, "modules": _sources(), "settings": settings._asdict()}).encode(
        "ascii"
    )
    return b"%08x" % len(body) + body
