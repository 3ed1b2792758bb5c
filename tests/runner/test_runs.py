"""Whole sweeps: on each back end, killed and resumed, interrupted, replayed, refused."""

from __future__ import annotations

import functools
import json
import random
import signal
from pathlib import Path

import pytest

from runner.store import Run
from sandboxes.docker import connect
from sandboxes.errors import PrerequisiteError
from tests.runner.runs import SCRIPTS, asked_twice, corridor, outcome, parts, started, stop_when, write


def engine() -> bool:
    try:
        connect().close()
    except PrerequisiteError:
        return False
    return True


SANDBOX = "docker" if engine() else "local"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    done = corridor("run", write(folder), "--out", folder / "run", "--inline", "--sandbox", SANDBOX)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def enough_calls(run: Path, goal: int) -> bool:
    return parts(run, "calls") >= goal


def covered(run: Path) -> list[tuple[str, str, int, int]]:
    """What each episode covered, whatever it is called."""
    return sorted(
        (row["target"], row["label"], row["branches"], row["lines"]) for row in outcome(run)["episodes"]
    )


def test_a_run_is_complete(whole: Path) -> None:
    rows = outcome(whole)
    assert len(rows["episodes"]) == 6
    assert len(rows["steps"]) == 26
    assert all(row["end"] == "completed" for row in rows["episodes"])
    assert all(row["branches"] is not None for row in rows["episodes"])
    assert asked_twice(whole) == []
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest["images"]["repo_explore_bench"]["sandbox"] == SANDBOX
    assert "litellm" in manifest["packages"]


def test_running_it_again_changes_nothing(whole: Path) -> None:
    before = outcome(whole)
    again = corridor("run", write(whole.parent), "--out", whole, "--inline", "--sandbox", SANDBOX)
    assert again.returncode == 0, again.stderr
    assert "6 done, 0 failed, 0 pending of 6 planned" in again.stderr
    assert outcome(whole) == before


def test_a_wider_sweep_adds_to_a_run(whole: Path, tmp_path: Path) -> None:
    file = write(tmp_path)
    corridor("run", file, "--out", tmp_path / "run", "--inline", "--sandbox", SANDBOX)
    wider = corridor(
        "run", file, "--out", tmp_path / "run", "--inline", "--sandbox", SANDBOX, "--set", "seeds=[1, 2]"
    )
    assert "12 done, 0 failed, 0 pending of 12 planned" in wider.stderr
    known = {row["episode_id"] for row in outcome(whole)["episodes"]}
    assert known < {row["episode_id"] for row in outcome(tmp_path / "run")["episodes"]}


@pytest.mark.parametrize("seed", range(3))
def test_killed_and_resumed(whole: Path, tmp_path: Path, seed: int) -> None:
    """The driver dies by SIGKILL, three times, whenever a drawn number of calls is on disk."""
    run, draw, kills = tmp_path / "run", random.Random(seed), 0
    command = ("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX)
    for _ in range(3):
        seen = parts(run, "calls")
        goal = seen + draw.randint(1, 6)
        process = started(*command)
        kills += stop_when(process, functools.partial(enough_calls, run, goal))
        process.communicate()
    assert kills >= 1
    last = corridor(*command)
    assert last.returncode == 0, last.stderr
    assert outcome(run) == outcome(whole)
    assert asked_twice(run) == []
    assert len(Run(run).planned()) == 6


def test_ctrl_c_loses_nothing(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX)
    process = started(*command)
    assert stop_when(process, lambda: parts(run, "calls") >= 3, signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "run the same command again to go on" in said
    assert corridor(*command).returncode == 0
    assert outcome(run) == outcome(whole)
    assert asked_twice(run) == []


def test_a_worker_on_ray_gives_the_same_rows(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = corridor("run", write(tmp_path), "--out", run, "--sandbox", SANDBOX)
    assert done.returncode == 0, done.stderr
    assert outcome(run) == outcome(whole)


def test_killed_on_ray_and_resumed(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("run", write(tmp_path), "--out", run, "--sandbox", SANDBOX)
    process = started(*command)
    assert stop_when(process, lambda: parts(run, "calls") >= 3)
    process.communicate()
    last = corridor(*command)
    assert last.returncode == 0, last.stderr
    assert outcome(run) == outcome(whole)
    assert asked_twice(run) == []


def test_verify_and_replay(whole: Path) -> None:
    found = corridor("verify", whole, "--sample", "4", "--json")
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert (said["sampled"], said["branches_agree"], said["lines_agree"]) == (4, 4, 4)
    again = corridor("replay", whole, "--sample", "4", "--json")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [one["same"] for one in json.loads(again.stdout)] == [True] * 4


def test_a_delivered_suite_is_explained_and_reduced(whole: Path, tmp_path: Path) -> None:
    (row,) = [
        row
        for row in outcome(whole)["episodes"]
        if (row["target"], row["label"]) == ("click.types", "tesearch")
    ]
    said = corridor("mutants", whole, row["episode_id"], "--json")
    assert said.returncode == 0, said.stderr
    mutants = json.loads(said.stdout)
    assert len(mutants) == row["mutants_total"] == 6
    assert all((one["path"] == "none") == (one["functions"] == []) for one in mutants)
    smaller = tmp_path / "smaller.py"
    said = corridor("reduce", whole, row["episode_id"], "--out", smaller, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["before"]["hv"] == found["after"]["hv"]
    assert found["after"]["green"] == found["after"]["size"] <= found["before"]["size"] == row["suite_size"]
    assert smaller.read_text().count("def test_") == found["after"]["size"]


def test_verify_finds_a_wrong_number(whole: Path, tmp_path: Path) -> None:
    """A record that coverage.py would not confirm."""
    import shutil

    import pyarrow as pa

    run = tmp_path / "run"
    shutil.copytree(whole, run)
    folder = Run(run).folder
    steps = folder.read("steps")
    wrong = pa.array(["0" * 20] * steps.num_rows)
    place = steps.schema.get_field_index("coverage_sha")
    steps = steps.set_column(place, steps.schema.field(place), wrong)
    for name in folder.live("steps"):
        (run / "steps" / name).unlink()
    folder.write("steps", "part-1.parquet", steps)
    found = corridor("verify", run, "--sample", "2")
    assert found.returncode == 1
    assert "DISAGREES" in found.stdout
    assert "branch sets agree: 0 of 2" in found.stdout


def test_a_recorded_run_is_a_model(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = f"replay/{whole}"
    done = corridor("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX, "--model", model)
    assert done.returncode == 0, done.stderr
    assert covered(run) == covered(whole)
    assert all(row["model"] == model for row in outcome(run)["episodes"])


def test_another_image_does_not_mix(whole: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(whole, run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["images"]["repo_explore_bench"]["digest"] = "sha256:other"
    (run / "manifest.json").write_text(json.dumps(manifest))
    refused = corridor("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX)
    assert refused.returncode == 2
    assert "numbers of two images do not mix" in refused.stderr
    assert "sha256:other" in refused.stderr


def test_a_run_has_one_driver(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("run", write(tmp_path), "--out", run, "--inline", "--sandbox", SANDBOX)
    first = started(*command)
    try:
        assert stop_when(first, lambda: parts(run, "calls") >= 1, signal.SIGSTOP)
        second = corridor(*command)
        assert second.returncode == 2
        assert "is being run by another process" in second.stderr
    finally:
        first.kill()
        first.communicate()


def test_the_local_sandbox_gives_the_same_numbers(whole: Path, tmp_path: Path) -> None:
    """The recorded answers and draws, on the other back end."""
    run = tmp_path / "run"
    command = ("run", write(tmp_path, SCRIPTS), "--out", run, "--inline", "--sandbox", "local")
    done = corridor(*command, "--model", f"replay/{whole}")
    assert done.returncode == 0, done.stderr
    assert covered(run) == [row for row in covered(whole) if row[1] != "tesearch"]


def test_without_an_engine_it_says_so_and_runs(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    done = corridor("run", write(tmp_path), "--out", tmp_path / "run", "--inline", env=nowhere)
    assert done.returncode == 0, done.stderr
    assert "no Docker engine answers" in done.stderr
    assert "running on the local sandbox" in done.stderr


def test_without_an_engine_docker_is_a_missing_prerequisite(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    done = corridor("run", write(tmp_path), "--out", tmp_path / "run", "--sandbox", "docker", env=nowhere)
    assert done.returncode == 3
    assert "no Docker engine answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_a_run_offers(whole: Path) -> None:
    for command in (
        ("status", whole, "--json"),
        ("leaderboard", whole, "--format", "json"),
        ("compare", whole, "--paper", "covqvalue", "--format", "json"),
        ("sql", whole, "select count(*) as n from episodes", "--format", "json"),
        ("plan", write(whole.parent), "--json"),
    ):
        found = corridor(*command)
        assert found.returncode == 0, found.stderr
        json.loads(found.stdout)
    assert json.loads(corridor("plan", write(whole.parent), "--json").stdout)["episodes"] == 6
