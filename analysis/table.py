"""A table of results, and its formats.

A cell without a value is None, or Missing with the reason. Both print as a dash; reasons
stand below the table. Files for machines (json, csv) carry values as they are; the others
round, and never to 0 or 100 % what is not exactly that.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sandboxes.errors import UsageError

DASH = "–"
WIDEST = 120
"""Characters of a cell on a terminal."""
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Kind(enum.StrEnum):
    """What a column's values are, and so how they print."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SPREAD = "spread"
    """The standard error of the column before it, printed in that one's cells."""
    SHARE = "share"
    """From 0 to 1; printed in percent."""
    DOLLARS = "dollars"
    PROBABILITY = "probability"
    EXACT = "exact"
    """A number that is not rounded."""
    ANY = "any"
    """Whatever a query gave."""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table."""

    name: str
    """In json and csv."""
    kind: Kind
    meaning: str = ""
    title: str = ""
    """Above the column elsewhere; the name when empty."""
    digits: int = 1
    """After the point, of NUMBER, SPREAD and SHARE."""
    signed: bool = False
    machine: bool = False
    """Only in json and csv: too long for people."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Instead of a value: why there is none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A value, and how people read it where its column's kind does not say."""

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, rows of as many values, and remarks on them."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"columns share a name: {names}")
        if any(len(row) != len(names) for row in self.rows):
            raise ValueError(f"each row must have {len(names)} values")
        if self.columns and self.columns[0].kind is Kind.SPREAD:
            raise ValueError("a spread follows the column that it belongs to")

    @property
    def records(self) -> list[dict[str, Any]]:
        """Rows by column name; None where a value is missing."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(_bare, row), strict=True)) for row in self.rows]


def _bare(value: Any) -> Any:
    if isinstance(value, Missing):
        return None
    return value.value if isinstance(value, Quoted) else value


def render(table: Table, format: str = "table") -> str:
    """The table as text. Formats: those of FORMATS. Raises UsageError for another one."""
    if format not in FORMATS:
        raise UsageError(f"there is no format {format!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[format](table)


# -- for machines


def _json(table: Table) -> str:
    document = {
        "title": table.title,
        "columns": [
            {"name": column.name, "kind": column.kind, "meaning": column.meaning} for column in table.columns
        ],
        "rows": [{name: plain(value) for name, value in row.items()} for row in table.records],
        "missing": [
            {"row": index, "column": column.name, "reason": value.reason}
            for index, row in enumerate(table.rows)
            for column, value in zip(table.columns, row, strict=True)
            if isinstance(value, Missing)
        ],
        "notes": list(table.notes),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON can hold it: what is no JSON becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for record in table.records:
        writer.writerow([_csv_value(plain(value)) for value in record.values()])
    return text.getvalue().removesuffix("\n")


def _csv_value(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else value


# -- for people


@dataclass(frozen=True, slots=True)
class _Shown:
    """A table as its readers see it: text only, spreads in their cells, reasons among the notes."""

    title: str
    heads: list[str]
    right: list[bool]
    """Columns of numbers."""
    rows: list[list[str]]
    notes: list[str]


def _shown(table: Table) -> _Shown:
    reasons: dict[str, int] = {}
    rows: list[list[str]] = []
    for row in table.rows:
        cells: list[str] = []
        for column, value in zip(table.columns, row, strict=True):
            if column.machine:
                continue
            if isinstance(value, Missing):
                mark = reasons.setdefault(value.reason, len(reasons) + 1)
                text = DASH + str(mark).translate(_SUPERSCRIPT)
            elif isinstance(value, Quoted):
                text = value.text
            else:
                text = DASH if value is None else cell(value, column)
            if column.kind is not Kind.SPREAD:
                cells.append(text)
            elif _bare(value) is not None:
                cells[-1] += f" ± {text}"
        rows.append(cells)
    columns = [column for column in table.columns if column.kind is not Kind.SPREAD and not column.machine]
    notes = [f"{str(mark).translate(_SUPERSCRIPT)} {reason}" for reason, mark in reasons.items()]
    return _Shown(
        title=table.title,
        heads=[column.title or column.name for column in columns],
        right=[column.kind not in (Kind.TEXT, Kind.ANY) for column in columns],
        rows=rows,
        notes=[*notes, *table.notes],
    )


def cell(value: Any, column: Column) -> str:
    """A value that is there, as people read it."""
    sign = "+" if column.signed else ""
    match column.kind:
        case Kind.COUNT:
            return f"{value:,}"
        case Kind.NUMBER | Kind.SPREAD:
            return number(value, column.digits, sign)
        case Kind.SHARE:
            return percent(value, column.digits)
        case Kind.DOLLARS:
            return f"${number(value, 2)}"
        case Kind.PROBABILITY:
            return probability(value)
        case Kind.TEXT:
            return str(value)
        case _:
            kept = plain(value)
            return json.dumps(kept, ensure_ascii=False) if isinstance(kept, dict | list) else str(kept)


def number(value: float, digits: int, sign: str = "") -> str:
    """Rounded; to one digit that is not zero where rounding would leave nothing."""
    text = f"{value:{sign}.{digits}f}"
    if value and float(text) == 0:
        return f"{value:{sign}.1g}"
    return text


def percent(share: float, digits: int = 1) -> str:
    """A share in percent; 0 and 100 only where it is exactly that."""
    least = 10.0**-digits
    shown = 100 * share
    if 0 < share < 1:
        shown = min(max(shown, least), 100 - least)
    return f"{shown:.{digits}f} %"


def probability(value: float) -> str:
    """Four digits; what rounds to 0 or 1 without being it is said to lie above or below."""
    if 0 < value < 0.0001:
        return "<0.0001"
    if 0.9999 < value < 1:
        return ">0.9999"
    return f"{value:.4f}"


def _terminal(table: Table) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    shown = _shown(table)
    title = Text(shown.title) if shown.title else None
    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head, right in zip(shown.heads, shown.right, strict=True):
        grid.add_column(Text(head), justify="right" if right else "left", no_wrap=True)
    for row in shown.rows:
        grid.add_row(*(Text(printable(text)) for text in row))
    # As wide as its content: a wrapped row is harder to read than a long one, and can be piped.
    console = Console(file=io.StringIO(), width=1_000_000, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(grid)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join([*lines, *map(printable_line, shown.notes)])


def printable(text: str) -> str:
    """One short line: control characters as escapes, so that no program's output steers a terminal."""
    line = printable_line(text)
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"


def printable_line(text: str) -> str:
    """One line: control characters as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _markdown(table: Table) -> str:
    shown = _shown(table)
    lines = [
        *([f"**{_md_text(shown.title)}**", ""] if shown.title else []),
        _md_row(shown.heads),
        "|" + "|".join(" ---: " if right else " --- " for right in shown.right) + "|",
        *(_md_row(row) for row in shown.rows),
    ]
    if shown.notes:
        lines += ["", *(f"- {_md_text(note)}" for note in shown.notes)]
    return "\n".join(lines)


def _md_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_md_text(text) for text in cells) + " |"


def _md_text(text: str) -> str:
    escaped = re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)
    return re.sub(r"\r\n|\r|\n", "<br>", escaped)


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "−": r"$-$",
    "≥": r"$\geq$",
    "<": r"$<$",
    ">": r"$>$",
    DASH: "--",
    "\n": " ",
} | {char: f"\\{char}" for char in "&%$#_{}"}


def _latex(table: Table) -> str:
    shown = _shown(table)
    end = r" \\"
    lines = [
        "% needs the package booktabs",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{_latex_text(shown.title)}}}"] if shown.title else []),
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in shown.right)}}}",
        r"\toprule",
        " & ".join(_latex_text(head) for head in shown.heads) + end,
        r"\midrule",
        *(" & ".join(_latex_text(text) for text in row) + end for row in shown.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {_latex_text(note)}" for note in shown.notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _latex_text(text: str) -> str:
    marked = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: f"\x00{found[0].translate(_FROM_SUPERSCRIPT)}\x01", text)
    escaped = "".join(_LATEX.get(char, char) for char in marked)
    return escaped.replace("\x00", r"\textsuperscript{").replace("\x01", "}")


_FROM_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

FORMATS: dict[str, Callable[[Table], str]] = {
    "table": _terminal,
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "latex": _latex,
}
