"""What a strategy is, and how one is found by name.

To add one: a frozen dataclass whose fields are its knobs, with an `explore`; an entry
point of the group `corridor.strategies` that names it. Knobs given in a sweep file are
checked against the fields, and all of them are part of an episode's identity.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import typing
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from runner.checks import described, fits, nearest
from runner.nouns import StrategySpec
from sandboxes.errors import PrerequisiteError, UsageError

if TYPE_CHECKING:
    from runner.episode import Episode

GROUP = "corridor.strategies"


class Strategy(Protocol):
    """One way to explore a module. Implementations are dataclasses; the fields are the knobs."""

    unit: ClassVar[Literal["executions", "calls", "iterations"]]
    """What its budget counts."""
    prompts: ClassVar[tuple[str, ...]]
    """Texts that its prompts are made of; their hash is part of an episode's identity."""

    async def explore(self, episode: Episode) -> None:
        """Use the episode's budget. Raises what the episode's methods raise, and catches none of it."""
        ...


def names() -> list[str]:
    """Every registered strategy."""
    return sorted(_registered())


def load(name: str, label: str | None = None, settings: Mapping[str, Any] | None = None) -> StrategySpec:
    """A strategy with all knobs resolved. Raises UsageError for an unknown name or knob, or a wrong value."""
    kind = _class(name)
    strategy = _make(kind, name, settings or {})
    resolved = {field.name: getattr(strategy, field.name) for field in dataclasses.fields(kind)}
    digest = hashlib.sha256("\0".join(kind.prompts).encode()).hexdigest()[:12]
    return StrategySpec(name, label or name, resolved, digest)


def build(spec: StrategySpec) -> Strategy:
    """The strategy itself."""
    return _make(_class(spec.name), spec.name, spec.settings)


@functools.cache
def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _class(name: str) -> Any:
    registered = _registered()
    if name not in registered:
        raise UsageError(f"strategy {name!r} is not known; {nearest(name, registered)}")
    try:
        return registered[name].load()
    except ImportError as error:
        raise PrerequisiteError(
            f"strategy {name!r} is registered as {registered[name].value} but does not import: {error}"
        ) from error


def _make(kind: Any, name: str, settings: Mapping[str, Any]) -> Strategy:
    hints = typing.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    for key, value in settings.items():
        if key not in known:
            raise UsageError(f"strategy {name!r} has no setting {key!r}; {nearest(key, known)}")
        if not fits(value, hints[key]):
            raise UsageError(f"strategy {name!r}: {key} = {value!r} is not {described(hints[key])}")
    try:
        strategy: Strategy = kind(**settings)
    except ValueError as error:
        raise UsageError(f"strategy {name!r}: {error}") from error
    return strategy
