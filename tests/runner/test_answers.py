"""Reading models' answers: every shape that models give them, and none of them an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import answers
from runner.strategies.cov_qvalue import estimate

SCRIPT = "import click\nprint(click.style('x'))"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (f"```python\n{SCRIPT}\n```", SCRIPT),
        (f"```py\n{SCRIPT}\n```\nThis covers style().", SCRIPT),
        (f"Sure! Here it is:\n\n```\n{SCRIPT}\n```", SCRIPT),
        (f"~~~python\n{SCRIPT}\n~~~", SCRIPT),
        (f"````python\n{SCRIPT}\n````", SCRIPT),
        (SCRIPT, SCRIPT),
        (f"<think>```python\nwrong()\n```</think>\n```python\n{SCRIPT}\n```", SCRIPT),
        (f"```bash\npip install click\n```\n```python\n{SCRIPT}\n```", SCRIPT),
        (f"```python\nx = 1\n```\nand better\n```python\n{SCRIPT}\n```\n```python\ny = 2\n```", SCRIPT),
        (
            f"```python\nthis is no python at all, and it is long, long\n```\n```python\n{SCRIPT}\n```",
            SCRIPT,
        ),
        ("```python\nonly = broken(\n```", "only = broken("),
        (f"```python\n{SCRIPT}\nresult = click.echo('cut o", SCRIPT),
        (f"```python\r\n{SCRIPT}\r\n```", SCRIPT + "\r"),
        ("", None),
        ("I cannot help with that.", None),
        ("No tests are needed.", None),
        ("```python\n# nothing but a comment\n```", None),
        ("```python\n```", None),
        ('```json\n{"a": 1}\n```', None),
        ("yes", None),
        ("42", None),
    ],
    ids=range(21),
)
def test_one_script(text: str, script: str | None) -> None:
    assert answers.one_script(text) == script


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"```python\n{SCRIPT}\n```\n" * 3, 3),
        (f"1.\n```python\n{SCRIPT}\n```\n2.\n```python\n{SCRIPT}\n```", 2),
        (f"```python\n# Script 1\n{SCRIPT}\n# Script 2\n{SCRIPT}\n# === Script 3 ===\n{SCRIPT}\n```", 3),
        (f"```python\n{SCRIPT}\n```", 1),
        (f"```python\n{SCRIPT}\n```\n```python\n{SCRIPT}\nprint(click.ech", 2),
        ("Nothing to plan.", 0),
        ("", 0),
    ],
)
def test_several_scripts(text: str, count: int) -> None:
    found = answers.several_scripts(text)
    assert len(found) == count
    assert all("click.style" in script for script in found)


@pytest.mark.parametrize(
    ("text", "count", "index"),
    [
        ("2", 3, 1),
        ("Candidate 3.", 3, 2),
        ("I would take number 1, since 2 repeats it", 3, 0),
        ("<think>1 or 2?</think> 3", 3, 2),
        ("0", 3, None),
        ("4", 3, None),
        ("1.5", 3, None),
        ("the first", 3, None),
        ("", 3, None),
    ],
)
def test_choice(text: str, count: int, index: int | None) -> None:
    assert answers.choice(text, count) == index


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("12, 20", (12.0, 20.0)),
        ("12\n20", (12.0, 20.0)),
        ("1. 12\n2. 20", (12.0, 20.0)),
        ("1) 12\n2) 20", (12.0, 20.0)),
        ("gain 12/50, reach 20/50", (12.0, 20.0)),
        ("<think>maybe 40, 40</think>12, 20", (12.0, 20.0)),
        ("3.5, 0", (3.5, 0.0)),
        ("-4, 90", (0.0, 50.0)),
        ("12", None),
        ("a dozen and a score", None),
        ("", None),
    ],
)
def test_estimate(text: str, numbers: tuple[float, float] | None) -> None:
    assert estimate(text) == numbers


@given(st.text())
def test_no_answer_is_an_error(text: str) -> None:
    answers.one_script(text)
    answers.several_scripts(text)
    answers.choice(text, 3)
    estimate(text)


def test_a_long_answer_is_read() -> None:
    prose = "word " * 40_000
    assert answers.one_script(prose) is None
    assert answers.one_script(f"{prose}\n```python\n{SCRIPT}\n```") == SCRIPT
