"""docs/tables.md, made from the declarations: `python -m analysis.tables_doc > docs/tables.md`."""

from __future__ import annotations

import pyarrow as pa

from analysis.views import VIEWS, sql
from runner.nouns import SCHEMA_VERSION
from runner.schema import TABLES, arrow_schema

_HEAD = f"""\
# Tables

Made from `runner/schema.py` and `analysis/sql/`; `make docs` makes it anew.

A run holds a folder of Parquet files for each of these tables; the schema's version is
{SCHEMA_VERSION}. `corridor sql RUN "select ..."` asks the views at the end of this page: they
read the same tables, choose the attempt that counts, and put a column `run` in front. A type
with a question mark may be null: the value is then unknown or does not apply, and never zero.
`end` is a word of SQL: write `"end"`.
"""


def document() -> str:
    """The page."""
    parts = [_HEAD]
    for table, kind in TABLES.items():
        parts.append(f"## {table}\n\n{kind.__doc__}\n\n| column | type | meaning |\n|---|---|---|")
        parts[-1] += "".join(f"\n| {_row(field)} |" for field in arrow_schema(table)) + "\n"
    parts.append("## Views\n\n| view | rows |\n|---|---|")
    parts[-1] += "".join(f"\n| `{view}` | {_meaning(view)} |" for view in VIEWS)
    parts[-1] += "\n| `runs` | One row per run: its path, `max_infra_share`, and its manifest as JSON. |\n"
    return "\n".join(parts)


def _row(field: pa.Field) -> str:
    meaning = (field.metadata or {}).get(b"meaning", b"").decode()
    optional = "?" if field.nullable else ""
    return f"`{field.name}` | {_type(field.type)}{optional} | {meaning}"


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_type(kind.value_type)}"
    if pa.types.is_struct(kind):
        return f"({', '.join(f'{field.name} {_type(field.type)}' for field in kind)})"
    return {"double": "float64", "timestamp[us, tz=UTC]": "timestamp (us, UTC)"}.get(str(kind), str(kind))


def _meaning(view: str) -> str:
    """The comment at the head of the view's file."""
    lines = []
    for line in sql(view).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


if __name__ == "__main__":
    print(document(), end="")
