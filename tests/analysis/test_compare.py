from __future__ import annotations

import csv
import re
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from analysis import published
from analysis.compare import compare
from analysis.table import FORMATS, Table, render
from analysis.views import connect
from runner.schema import Row
from sandboxes.errors import UsageError
from tests.analysis.made_run import Cell, make

GEMINI = "gemini/gemini-3-flash-preview"
MODULES = {"click": 10, "flask": 10, "httpx": 10, "jinja2": 12, "pydantic": 10, "requests": 6}
MODULES |= {"rich": 12, "starlette": 11, "werkzeug": 12}
TARGETS = [f"{package}.m{index}" for package, count in MODULES.items() for index in range(count)]
PAPER = published.load("covqvalue")


def lines() -> list[dict[str, str]]:
    text = (resources.files("analysis") / "papers" / "covqvalue.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def ran(strategy: str, branches: int, **same: Any) -> list[Row]:
    """One strategy on all targets; the first target has one branch more."""
    rows: list[Row] = []
    for target in same.pop("targets", TARGETS):
        cell = Cell(target=target, strategy=strategy, **same)
        rows += [cell.planned(), cell.ended(branches + (target == TARGETS[0]))]
    return rows


def compared(where: Path, rows: list[Row]) -> Table:
    return compare(connect([make(where / "run", rows)]))


def pick(found: Table, setting: str, metric: str = "mean_branches", /, **more: str) -> dict[str, Any]:
    wanted = {"table": "main", "benchmark": "RepoExploreBench", "model": "Gemini 3 Flash"} | more
    wanted |= {"setting": setting, "metric": metric}
    (row,) = (row for row in found.records if all(row[key] == value for key, value in wanted.items()))
    return row


def test_every_published_cell_has_its_row_even_without_ours(tmp_path: Path) -> None:
    table = compared(tmp_path, [])
    keys = ("table", "setting", "benchmark", "model", "metric", "source")
    there = Counter(tuple(line[key] for key in keys) for line in lines())
    assert len(lines()) == 530
    assert Counter(tuple(row[key] for key in keys) for row in table.records) == there
    assert [row["published"] for row in table.records] == [
        published.number(line["value"]) for line in lines()
    ]
    assert all(row["ours"] is row["difference"] is None and row["mark"] for row in table.records)
    for format in FORMATS:
        assert render(table, format)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("43.2", 43.2),
        ("+30.6", 30.6),
        ("-1.5", -1.5),
        ("83%", 0.83),
        ("78/93", 78 / 93),
        ("146", 146),
        ("0.0", 0),
    ],
)
def test_published_numbers(text: str, value: float) -> None:
    assert published.number(text) == pytest.approx(value)


def test_a_whole_sweep_with_the_papers_settings_compares(tmp_path: Path) -> None:
    rows: list[Row] = []
    for strategy, branches in (("random", 10), ("greedy", 20), ("cov_greedy", 30), ("cov_qvalue", 50)):
        rows += ran(strategy, branches, model=GEMINI)
    table = compared(tmp_path, rows)
    row = pick(table, "Greedy")
    assert row["ours"] == pytest.approx(20 + 1 / 93)
    assert row["difference"] == pytest.approx(20 + 1 / 93 - 41.8)
    assert (row["published"], row["published_se"], row["n"], row["mark"]) == (41.8, 3.9, 93, "")
    assert row["our_model"] == GEMINI
    assert row["ours_se"] == pytest.approx(1 / 93)  # 92 equal values and one that is one larger
    lines_row = pick(table, "CovQValue", "mean_lines", table="lines+pass")
    assert (lines_row["ours"], lines_row["mark"]) == (pytest.approx(2 * (50 + 1 / 93)), "")
    package = pick(table, "CovGreedy | repo=click", table="per-repo")
    assert (package["ours"], package["n"], package["mark"]) == (pytest.approx(30.1), 10, "")
    delta = pick(table, "CovQValue - Greedy", "delta_branches")
    assert (delta["ours"], delta["n"], delta["mark"]) == (30, 93, "")
    assert delta["difference"] == pytest.approx(-0.6)
    assert pick(table, "CovQValue vs Greedy", "win_rate")["ours"] == 1
    shown = [" ".join(line.split()) for line in render(table).splitlines()]
    same = "RepoExploreBench Gemini 3 Flash"
    assert f"main CovQValue - Greedy {same} delta_branches +30.6 {GEMINI} 30.0 -0.6 93" in shown
    assert f"main CovQValue vs Greedy {same} win_rate 83% {GEMINI} 100.0 % +17.0 points 93" in shown
    d = pick(table, "CovQValue vs Greedy", "cohens_d")
    assert (d["ours"], d["mark"]) == (
        None,
        "not comparable: all differences are the same, or fewer than two pairs",
    )
    assert pick(table, "S=1 N=8 | CovQValue", table="ablation S matched rounds")["mark"] == (
        "not comparable: executions 24, not 8; steps_per_plan 3, not 1"
    )
    other = pick(table, "Random", model="GPT-5.4 Mini")
    assert (other["ours"], other["mark"]) == (None, "not comparable: no episodes with GPT-5.4 Mini")
    assert (
        pick(table, "Random", benchmark="TestGenEval Lite")["mark"]
        == "not comparable: no episodes on TestGenEval Lite"
    )
    assert len(table.rows) == 530


def test_a_pass_rate_is_shown_and_said_to_be_another(tmp_path: Path) -> None:
    row = pick(compared(tmp_path, ran("greedy", 20, model=GEMINI)), "Greedy", "pass_rate", table="lines+pass")
    assert (row["ours"], row["difference"]) == (0.5, None)
    assert row["mark"].startswith("not comparable: theirs passes only scripts that also print something")


@pytest.mark.parametrize(
    ("same", "mark"),
    [
        ({"targets": TARGETS[:90]}, "90 of 93 targets"),
        ({"executions": 12}, "executions 12, not 24"),
        ({"changes": (("plans", 5),)}, "plans 5, not 3"),
        ({"changes": (("steps_per_plan", 1),)}, "steps_per_plan 1, not 3"),
        ({"changes": (("discount", 1.0),)}, "discount 1.0, not 0.5"),
        ({"changes": (("scoring", "none"),)}, 'scoring "none", not "estimate"'),
        ({"changes": (("source_chars", 0),)}, "source_chars 0, not 2500"),
    ],
)
def test_what_differs_is_said(same: dict[str, Any], mark: str, tmp_path: Path) -> None:
    row = pick(compared(tmp_path, ran("cov_qvalue", 50, model=GEMINI, **same)), "CovQValue")
    assert row["ours"] == pytest.approx(50, abs=0.1)
    assert (row["difference"], row["mark"]) == (None, f"not comparable: {mark}")


def test_an_ablation_is_compared_with_the_variant_that_has_its_settings(tmp_path: Path) -> None:
    rows = ran("cov_qvalue", 50, model=GEMINI)
    rows += ran("cov_qvalue", 60, model=GEMINI, changes=(("discount", 1.0),), label="gamma 1")
    rows += ran("cov_qvalue", 40, model=GEMINI, executions=8)
    rows += ran("cov_qvalue", 30, model=GEMINI, changes=(("scoring", "execute"),))
    rows += ran("random", 5, model=GEMINI, executions=8)
    table = compared(tmp_path, rows)
    sweep = {"table": "ablation sweep"}
    assert pick(table, "CovQValue")["ours"] == pytest.approx(50, abs=0.1)
    assert pick(table, "gamma=1.0 | CovQValue", **sweep)["ours"] == pytest.approx(60, abs=0.1)
    assert pick(table, "N=8 | CovQValue", **sweep)["ours"] == pytest.approx(40, abs=0.1)
    delta = pick(table, "N=8", "delta_branches", **sweep)
    assert (delta["ours"], delta["mark"]) == (35, "")
    wins = pick(table, "N=8", "wins", **sweep)
    assert (wins["ours"], wins["published"]) == (1, pytest.approx(75 / 93))
    assert pick(table, "N=16", "wins", **sweep)["mark"] == (
        "not comparable: executions 24, not 16; random: executions 8, not 16"
    )
    executed = pick(table, "CovBestExec", table="log: exec selection (n=93)")
    assert (executed["ours"], executed["mark"]) == (pytest.approx(30, abs=0.1), "")
    only = pick(table, "+ Q-value scoring", table="ablation components")
    assert only["mark"] == "not comparable: diversity_hints true, not false"


def test_a_stand_in_is_shown_and_never_compared(tmp_path: Path) -> None:
    table = compared(tmp_path, ran("greedy", 20, model="offline/scout"))
    for model in ("Gemini 3 Flash", "GPT-5.4 Mini", "Mistral Large 3"):
        row = pick(table, "Greedy", model=model)
        assert (row["our_model"], row["ours"]) == ("offline/scout", pytest.approx(20, abs=0.1))
        assert (row["difference"], row["mark"]) == (None, "not comparable: stand-in model")
    assert "offline/scout is a stand-in, not an LLM" in table.notes


def test_another_model_is_shown_where_the_papers_is_missing(tmp_path: Path) -> None:
    rows = ran("greedy", 20, model="gpt-4o") + ran("greedy", 9, model=f"replay/{GEMINI}")
    rows += ran("greedy", 30, model=GEMINI)
    table = compared(tmp_path, rows)
    assert pick(table, "Greedy")["our_model"] == GEMINI
    beside = [
        row
        for row in table.records
        if (row["table"], row["setting"], row["model"]) == ("main", "Greedy", "GPT-5.4 Mini")
    ]
    marks = {row["our_model"]: row["mark"] for row in beside if row["benchmark"] == "RepoExploreBench"}
    assert marks == {
        "gpt-4o": "not comparable: another model",
        f"replay/{GEMINI}": "not comparable: stand-in model",
    }


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("gemini/gemini-3-flash", "Gemini 3 Flash"),
        ("gemini/gemini-3-flash-preview", "Gemini 3 Flash"),
        ("vertex_ai/gemini-3-flash-preview", "Gemini 3 Flash"),
        ("gemini/gemini-3-flash-lite", None),
        ("gemini/gemini-2.5-flash", None),
        ("gpt-5.4-mini", "GPT-5.4 Mini"),
        ("azure/gpt-5.4-mini-2026-03-17", "GPT-5.4 Mini"),
        ("gpt-5.4", None),
        ("gpt-5x4-mini", None),
        ("mistral/mistral-large-3", "Mistral Large 3"),
        ("mistral/mistral-large-2512", "Mistral Large 3"),
        ("mistral/mistral-large-2411", None),
        ("mistral/mistral-large-latest", None),
    ],
)
def test_models_by_their_litellm_names(ours: str, theirs: str | None) -> None:
    assert PAPER.model(ours) == theirs


def test_cells_of_other_datasets_and_missing_episodes(tmp_path: Path) -> None:
    rows = ran("greedy", 20, model=GEMINI, dataset="something_else")
    lost = [Cell(target=target, strategy="random", model=GEMINI).planned() for target in TARGETS]
    table = compared(tmp_path, [*rows, *lost])
    assert pick(table, "Greedy")["mark"] == "not comparable: no episodes of greedy"
    assert pick(table, "Random")["mark"] == "not comparable: no episodes with a score"
    assert pick(table, "Random | repo=click", table="per-repo")["mark"] == (
        "not comparable: no episodes of click with a score"
    )


def test_every_cell_is_understood() -> None:
    for cell in PAPER.cells:
        if cell.metric == "default":
            continue
        assert cell.variant is not None
        assert (cell.against is not None) == (
            cell.metric in ("delta_branches", "wins", "win_rate", "cohens_d")
        )
        assert (cell.repository is not None) == ("repo=" in cell.setting)
        if cell.benchmark == "RepoExploreBench":
            assert cell.targets in (93, *MODULES.values())
        said = re.search(r"\(n=(\d+)\)$", cell.setting)
        if said:
            assert cell.targets == int(said[1])
    assert sum(cell.targets == 160 for cell in PAPER.cells) == 15


def test_the_declared_tables_fit_the_dataset() -> None:
    declared = Path(__file__).parents[2] / "datasets" / "repo_explore_bench"
    assert (
        f'benchmark = "{PAPER.benchmarks["repo_explore_bench"]}"' in (declared / "dataset.toml").read_text()
    )
    with (declared / "targets.csv").open(encoding="utf-8") as file:
        assert Counter(row["package"] for row in csv.DictReader(file)) == MODULES


def test_an_unknown_paper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'nature'; choose of covqvalue"):
        compare(connect([make(tmp_path / "run", [])]), paper="nature")
