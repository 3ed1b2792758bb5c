from __future__ import annotations

import re
from pathlib import Path

from analysis.tables_doc import document
from analysis.views import VIEWS
from runner.schema import TABLES, arrow_schema

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_page_is_what_the_declarations_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "make docs"


def test_the_page_names_every_column_and_view() -> None:
    sections = re.split(r"^## ", document(), flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections] == [*TABLES, "Views"]
    for table, section in zip(TABLES, sections, strict=False):
        assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == arrow_schema(table).names
    assert re.findall(r"^\| `(\w+)` \| \w", sections[-1], re.MULTILINE) == [*VIEWS, "runs"]


def test_types_are_those_of_the_schema() -> None:
    page = document()
    for line in (
        "| `seed` | int64 |  |",
        "| `cost_usd` | float64? | of all calls; null when a price is unknown |",
        "| `branch_delta` | list of (src int32, dst int32) | the new ones, sorted; ",
        "| `started_at` | timestamp (us, UTC) |  |",
    ):
        assert line in page
