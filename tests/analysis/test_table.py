from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.table import (
    FORMATS,
    Column,
    Kind,
    Missing,
    Quoted,
    Table,
    cell,
    number,
    percent,
    plain,
    probability,
    render,
)
from sandboxes.errors import UsageError

TABLE = Table(
    "A title",
    (
        Column("strategy", Kind.TEXT, "its label"),
        Column("n", Kind.COUNT),
        Column("branches", Kind.NUMBER, "mean"),
        Column("branches_se", Kind.SPREAD),
        Column("rate", Kind.SHARE, title="passed"),
        Column("cost", Kind.DOLLARS),
        Column("p", Kind.PROBABILITY),
        Column("source", Kind.TEXT, machine=True),
    ),
    (
        ("a|b_c", 12345, 43.25, 4.5, 0.99996, 0.004, 1e-9, "here"),
        ("d", 0, Missing("no score"), None, None, Missing("no price"), 1.0, "there"),
        ("e", 1, Missing("no score"), None, Quoted(0.5, "1/2"), 0.0, 0.0, "there"),
    ),
    ("a remark",),
)


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0, 1, "0.0 %"),
        (1, 1, "100.0 %"),
        (0.5, 1, "50.0 %"),
        (0.0001, 1, "0.1 %"),
        (1e-12, 0, "1 %"),
        (0.9999, 1, "99.9 %"),
        (1 - 1e-12, 0, "99 %"),
        (0.99949, 1, "99.9 %"),
        (92 / 93, 1, "98.9 %"),
        (1 / 93, 0, "1 %"),
    ],
)
def test_percent(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 3))
def test_percent_says_0_and_100_only_of_just_that(total: int, part: int, digits: int) -> None:
    share = min(part, total) / total
    shown = float(percent(share, digits).removesuffix(" %"))
    assert (shown == 0) == (share == 0)
    assert (shown == 100) == (share == 1)


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (0, 1, "", "0.0"),
        (0.04, 1, "", "0.04"),
        (-0.004, 1, "+", "-0.004"),
        (30.6, 1, "+", "+30.6"),
        (0.0, 1, "+", "+0.0"),
        (0.05, 1, "", "0.1"),
        (1234.56, 1, "", "1234.6"),
    ],
)
def test_number_never_rounds_to_nothing(value: float, digits: int, sign: str, text: str) -> None:
    assert number(value, digits, sign) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0000"),
        (1, "1.0000"),
        (1e-300, "<0.0001"),
        (0.0001, "0.0001"),
        (0.04999, "0.0500"),
        (0.99999, ">0.9999"),
    ],
)
def test_probability(value: float, text: str) -> None:
    assert probability(value) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (Decimal("1.5"), 1.5),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ([{"src": 1, "dst": None}], [{"src": 1, "dst": None}]),
        (b"\x01\xff", "01ff"),
        (True, True),
        (None, None),
    ],
)
def test_plain_values_are_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_a_table_on_a_terminal() -> None:
    lines = render(TABLE).splitlines()
    assert lines[0] == "A title"
    assert [line.split() for line in lines if line.startswith((" a|b_c", " d", " e"))] == [
        ["a|b_c", "12,345", "43.2", "±", "4.5", "99.9", "%", "$0.004", "<0.0001"],
        ["d", "0", "–¹", "–", "–²", "1.0000"],
        ["e", "1", "–¹", "1/2", "$0.00", "0.0000"],
    ]
    assert lines[-3:] == ["¹ no score", "² no price", "a remark"]
    assert "here" not in render(TABLE)
    assert "branches_se" not in render(TABLE)
    assert "passed" in render(TABLE)


def test_a_terminal_is_not_steered_and_lines_stay_lines() -> None:
    hostile = "\x1b[2Jgone\nnext" + "x" * 500
    table = Table("t", (Column("output", Kind.ANY),), ((hostile,),), ("note \x1b[2J",))
    text = render(table)
    assert "\x1b" not in text
    assert r"\x1b[2Jgone\nnextxxx" in text
    assert max(map(len, text.splitlines())) < 130
    assert render(Table("t", (Column("[red]x", Kind.TEXT),), (("[bold]y",),))).count("[") == 2


def test_markdown() -> None:
    lines = render(TABLE, "md").splitlines()
    assert lines[2] == "| strategy | n | branches | passed | cost | p |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[4] == r"| a\|b\_c | 12,345 | 43.2 ± 4.5 | 99.9 % | $0.004 | \<0.0001 |"
    assert lines[-3:] == ["- ¹ no score", "- ² no price", "- a remark"]


def test_csv_has_values_as_they_are() -> None:
    rows = list(csv.DictReader(io.StringIO(render(TABLE, "csv"))))
    assert rows[0]["branches"] == "43.25"
    assert rows[0]["rate"] == "0.99996"
    assert rows[0]["source"] == "here"
    assert rows[1]["branches"] == rows[1]["rate"] == ""
    assert rows[2]["rate"] == "0.5"
    assert len(rows) == 3


def test_json_is_one_document() -> None:
    document = json.loads(render(TABLE, "json"))
    assert document["title"] == "A title"
    assert document["columns"][0] == {"name": "strategy", "kind": "text", "meaning": "its label"}
    assert document["rows"][0] == {
        "strategy": "a|b_c",
        "n": 12345,
        "branches": 43.25,
        "branches_se": 4.5,
        "rate": 0.99996,
        "cost": 0.004,
        "p": 1e-9,
        "source": "here",
    }
    assert document["rows"][1]["branches"] is None
    assert document["rows"][2]["rate"] == 0.5
    assert document["missing"][0] == {"row": 1, "column": "branches", "reason": "no score"}
    assert document["notes"] == ["a remark"]


def test_latex() -> None:
    text = render(TABLE, "latex")
    assert r"\begin{tabular}{lrrrrr}" in text
    assert r"a|b\_c & 12,345 & 43.2 $\pm$ 4.5 & 99.9 \% & \$0.004 & $<$0.0001 \\" in text
    assert r"d & 0 & --\textsuperscript{1} & -- & --\textsuperscript{2} & 1.0000 \\" in text
    assert r"\par\footnotesize \textsuperscript{2} no price" in text


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_table_renders(format: str) -> None:
    assert render(Table("nothing", (Column("x", Kind.TEXT),), ()), format)


def test_a_table_without_title_begins_with_its_columns() -> None:
    table = Table("", (Column("x", Kind.TEXT),), (("y",),))
    assert render(table, "md").splitlines()[0] == "| x |"
    assert render(table).split() == ["x", "─", "y"]
    assert "caption" not in render(table, "latex")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="'yaml'; choose one of table, md, csv, json, latex"):
        render(TABLE, "yaml")


def test_exact_numbers_are_not_rounded() -> None:
    assert cell(0.1 + 0.2, Column("x", Kind.EXACT)) == "0.30000000000000004"


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ((Column("x", Kind.TEXT), Column("x", Kind.TEXT)), ()),
        ((Column("x", Kind.TEXT),), (("a", "b"),)),
        ((Column("x", Kind.SPREAD),), ()),
    ],
)
def test_impossible_tables_are_refused(
    columns: tuple[Column, ...], rows: tuple[tuple[str, ...], ...]
) -> None:
    with pytest.raises(ValueError, match=r"column|values"):
        Table("t", columns, rows)
