"""Sweep files: what is refused, and with which words; what is resolved, and to what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.nouns import EpisodeSpec
from runner.sweep import PriceTable, from_table, planned_rows, read
from sandboxes.errors import UsageError
from sandboxes.sandbox import Image

IMAGE = Image("an-image", "sha256:1", "docker")


def table(**changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": "s",
        "dataset": "repo_explore_bench",
        "models": ["offline/scout"],
        "seeds": [1, 2],
        "targets": {"modules": ["werkzeug.http", "click.core"]},
        "strategy": [{"name": "random"}, {"name": "cov_qvalue", "plans": 2}],
    }
    return said | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategies": []}, ["unknown key 'strategies'", "did you mean 'strategy'?"]),
        ({"budget": {"execution": 3}}, ["[budget]", "unknown key 'execution'", "'executions'"]),
        ({"budget": {"executions": "many"}}, ["executions = 'many'", "a whole number"]),
        ({"budget": {"executions": True}}, ["executions = True", "a whole number"]),
        ({"budget": {"executions": 0}}, ["executions must be at least 1"]),
        ({"budget": {"usd": -1.0}}, ["usd must be above 0"]),
        ({"budget": {"step_timeout_s": 0}}, ["step_timeout_s must be above 0"]),
        ({"measure": {"mutant": 3}}, ["[measure]", "unknown key 'mutant'", "'mutants'"]),
        ({"measure": {"mutants": -1}}, ["measure.mutants must not be negative"]),
        ({"measure": {"test_timeout_s": 0}}, ["measure.test_timeout_s must be above 0"]),
        ({"limits": {"memory": 1}}, ["[limits]", "unknown key 'memory'", "'memory_mib'"]),
        ({"seeds": [1, "2"]}, ["seeds", "a list, each a whole number"]),
        ({"seeds": []}, ["nothing to run", "seeds"]),
        ({"models": []}, ["nothing to run", "models"]),
        ({"models": "gpt"}, ["models = 'gpt'", "a list"]),
        ({"strategy": []}, ["nothing to run", "strategies"]),
        ({"strategy": [{"plans": 3}]}, ["[[strategy]] 1", "'name'"]),
        ({"strategy": [{"name": "gredy"}]}, ["'gredy' is not known", "did you mean 'greedy'?"]),
        ({"strategy": [{"name": "greedy", "plan": 3}]}, ["no setting 'plan'", "known are"]),
        ({"strategy": [{"name": "cov_qvalue", "plan": 3}]}, ["no setting 'plan'", "did you mean 'plans'?"]),
        ({"strategy": [{"name": "cov_qvalue", "scoring": "best"}]}, ["scoring = 'best'", "'estimate'"]),
        ({"strategy": [{"name": "cov_qvalue", "plans": 0}]}, ["plans must be at least 1"]),
        ({"strategy": [{"name": "cov_qvalue", "discount": 2}]}, ["discount must be between 0 and 1"]),
        ({"strategy": [{"name": "random"}, {"name": "random"}]}, ["2 strategies are called 'random'"]),
        ({"dataset": "repo_explore"}, ["'repo_explore' is not known", "'repo_explore_bench'"]),
        ({"dataset": "./nowhere"}, ["nowhere", "dataset.toml"]),
        ({"targets": {"packages": ["werkzeg"]}}, ["no package 'werkzeg'", "'werkzeug'"]),
        ({"targets": {"modules": ["werkzeug.htp"]}}, ["no module 'werkzeug.htp'", "'werkzeug.http'"]),
        ({"targets": {"limit": 0}}, ["limit must be at least 1"]),
        ({"targets": []}, ["targets = [] is not a table"]),
        ({"max_infra_share": 2.0}, ["max_infra_share"]),
        ({"max_tokens": 0}, ["max_tokens"]),
        ({"prices": {"m": {"input": 1.0}}}, ['[prices."m"]', "'output' is missing"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        from_table(table(**changes), "my.toml")
    for word in ["my.toml" if "dataset" not in changes and "targets" not in changes else "", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("key", ["name", "dataset", "models", "strategy"])
def test_missing(key: str) -> None:
    said = table()
    del said[key]
    with pytest.raises(UsageError, match=f"the key '{key}' is missing"):
        from_table(said, "my.toml")


def test_no_targets_left(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to run: targets is empty"):
        from_table(table(targets={"packages": ["click"], "modules": ["werkzeug.http"]}), "my.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is not there"),
        (b"name = ", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
    ],
)
def test_unreadable_file(tmp_path: Path, text: bytes | None, words: str) -> None:
    file = tmp_path / "my.toml"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(UsageError, match=words):
        read(file)


FILE = """
name = "s"
dataset = "repo_explore_bench"
models = ["offline/scout"]
[budget]
executions = 24
[[strategy]]
name = "random"
[[strategy]]
name = "cov_qvalue"
label = "long"
"""


def test_set_and_model(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(FILE)
    sets = [
        "budget.executions=12",
        "strategy.long.steps_per_plan=5",
        "strategy.random.candidates=1",
        "name=t",
    ]
    sweep = read(file, [*sets, 'targets.packages=["flask"]'], ["offline/other"])
    assert sweep.budget.executions == 12
    assert [one.settings.get("steps_per_plan") for one in sweep.strategies] == [None, 5]
    assert sweep.strategies[0].settings["candidates"] == 1
    assert sweep.name == "t"
    assert sweep.models == ["offline/other"]
    assert {target.package for target in sweep.targets} == {"flask"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budget.executions", "must look like"),
        ("=3", "must look like"),
        ("budget.excutions=3", "did you mean 'executions'?"),
        ("strategy.lng.plans=3", "did you mean 'long'?"),
        ("strategy.plans=3", "say which strategy"),
        ("name.x=3", "not a table"),
    ],
)
def test_bad_set(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "my.toml"
    file.write_text(FILE)
    with pytest.raises(UsageError) as caught:
        read(file, [text])
    assert words in str(caught.value)


def test_episodes_are_the_whole_matrix() -> None:
    sweep = from_table(table(), "my.toml")
    specs = sweep.episodes(IMAGE)
    assert len(specs) == 2 * 2 * 2
    assert len({spec.id for spec in specs}) == len(specs)
    rows = planned_rows(sweep, specs)
    assert [EpisodeSpec.from_json(row.spec) for row in rows] == specs
    assert [row.episode_id for row in rows] == [spec.id for spec in specs]


def test_the_same_cell_twice_is_refused() -> None:
    twice = table(strategy=[{"name": "random"}, {"name": "random", "label": "again", "candidates": 3}])
    with pytest.raises(UsageError, match="asks twice for"):
        from_table(twice, "my.toml").episodes(IMAGE)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [3]},
        {"models": ["offline/other"]},
        {"budget": {"executions": 23}},
        {"measure": {"mutants": 100}},
        {"budget": {"step_timeout_s": 59}},
        {"limits": {"memory_mib": 1024}},
        {"max_tokens": 100},
        {"strategy": [{"name": "cov_qvalue", "plans": 3}]},
        {"strategy": [{"name": "greedy"}]},
    ],
    ids=str,
)
def test_what_decides_a_result_is_in_the_id(changes: dict[str, Any]) -> None:
    known = {spec.id for spec in from_table(table(), "my.toml").episodes(IMAGE)}
    assert known.isdisjoint({spec.id for spec in from_table(table(**changes), "my.toml").episodes(IMAGE)})


@pytest.mark.parametrize("changes", [{"name": "other"}, {"max_infra_share": 0.5}, {"budget": {"usd": 3.0}}])
def test_what_decides_nothing_is_not_in_the_id(changes: dict[str, Any]) -> None:
    known = {spec.id for spec in from_table(table(), "my.toml").episodes(IMAGE)}
    assert known == {spec.id for spec in from_table(table(**changes), "my.toml").episodes(IMAGE)}


def test_another_image_is_another_episode() -> None:
    sweep = from_table(table(), "my.toml")
    other = Image("an-image", "sha256:2", "docker")
    assert {spec.id for spec in sweep.episodes(IMAGE)}.isdisjoint({spec.id for spec in sweep.episodes(other)})


def test_prices() -> None:
    sweep = from_table(table(prices={"m": {"input": 1.0, "output": 2}}), "my.toml")
    assert sweep.prices == {"m": PriceTable(1.0, 2)}


@pytest.mark.parametrize("file", sorted(Path("examples").glob("*.toml")), ids=lambda file: file.name)
def test_examples_can_be_read(file: Path) -> None:
    assert read(file).episodes(IMAGE)


def test_the_demo_has_a_module_of_each_package() -> None:
    sweep = read(Path("examples/demo.toml"))
    assert {target.package for target in sweep.targets} == {
        target.package for target in sweep.dataset.targets
    }
    assert len(sweep.dataset.targets) == 93
