"""Values out of files and command lines: checked against types, refused with the nearest name."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from sandboxes.errors import UsageError

T = TypeVar("T")


def read_table(kind: type[T], table: object, where: str) -> T:
    """A dataclass from a TOML table. Raises UsageError naming `where`, the key and the value."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} must be a table, it is {table!r}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for key, value in table.items():
        if key not in fields:
            raise UsageError(f"{where}: unknown key {key!r}; {nearest(key, fields)}")
        if not fits(value, hints[key]):
            raise UsageError(f"{where}: {key} = {value!r} is not {described(hints[key])}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise UsageError(f"{where}: the key {name!r} is missing")
    try:
        return kind(**table)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """For an error message: the nearest known name, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known) or 'none'}"


def fits(value: object, hint: Any) -> bool:
    """Whether a TOML value is of a knob's type: int is a float, bool is no int."""
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return isinstance(value, list) and all(fits(one, item) for one in value)
    if typing.get_origin(hint) is dict or hint is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def described(hint: Any) -> str:
    """A knob's type, for people."""
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(value) for value in typing.get_args(hint))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return f"a list, each {described(item)}"
    if isinstance(hint, types.UnionType):
        return " or ".join(described(part) for part in typing.get_args(hint) if part is not type(None))
    words = {dict: "a table", int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words.get(hint, str(hint))
