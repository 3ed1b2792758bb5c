"""Discovery: the rule by tables, the listing on made packages, both on the images that are here."""

from __future__ import annotations

import ast
import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner import dataset, discover, listing
from runner.cli import main
from runner.discover import Found, Listed, Rule, largest_first, place_of, rule_for, to_csv, why_not
from sandboxes.docker import DockerBackend
from sandboxes.errors import PrerequisiteError, SandboxError, UsageError
from sandboxes.fake import IMAGE, FakeBackend
from sandboxes.images import DockerImages, LocalImages, Recipe
from sandboxes.local import LocalBackend
from sandboxes.sandbox import Backend, Image, Sandbox, StepOutcome, StepReport, TargetFacts
from tests.runner.lab import FACTS, report

DATASETS = Path(__file__).parents[2] / "datasets"


# -- the rule


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("made", None),
        ("made.core", None),
        ("made.testing", None),
        ("made.testclient", None),
        ("made.latest", None),
        ("made.contest.six_sigma", None),
        ("made.vendors", None),
        ("made.__main__", "is __main__"),
        ("made.tests.helpers", "is a test"),
        ("made.test", "is a test"),
        ("made.test_core", "is a test"),
        ("made.core_test", "is a test"),
        ("made.conftest", "is a test"),
        ("made._vendor.core", "is vendored"),
        ("made.vendored.core", "is vendored"),
        ("made.extern", "is vendored"),
        ("made.third_party.core", "is vendored"),
        ("made._compat", "is a compatibility layer"),
        ("made.six", "is a compatibility layer"),
        ("made._core", "is private"),
        ("made._inner.core", "is private"),
        ("made.inner.__about__", "is private"),
    ],
)
def test_a_name_decides(module: str, why: str | None) -> None:
    assert why_not(Listed(module, "f", 500, 3), "made", Rule(["made"])) == why


@pytest.mark.parametrize(
    ("lines", "callables", "why"),
    [
        (200, 1, None),
        (199, 1, "has fewer than 200 lines"),
        (0, 0, "has fewer than 200 lines"),
        (200, 0, "has no public function, and no public class with methods"),
        (200, None, "does not parse"),
    ],
)
def test_a_file_decides(lines: int, callables: int | None, why: str | None) -> None:
    assert why_not(Listed("made.core", "f", lines, callables), "made", Rule(["made"])) == why


def test_the_rule_s_numbers_and_names_are_options() -> None:
    private = Listed("made._core", "f", 150, 1)
    assert why_not(private, "made", Rule(["made"], private=["made"], min_lines=150)) is None
    assert why_not(private, "made", Rule(["made"], private=["made"], min_lines=151)) is not None
    excluding = Rule(["made"], exclude=["*.other", "made.v1*"])
    assert why_not(Listed("made.v1.core", "f", 500, 1), "made", excluding) == "is excluded by made.v1*"
    assert why_not(Listed("made.core", "f", 500, 1), "made", excluding) is None


def test_a_package_s_own_name_is_no_reason_but_an_underscore() -> None:
    for package in ("six", "tests", "vendor"):
        assert why_not(Listed(package, "f", 500, 1), package, Rule([package])) is None
        assert why_not(Listed(f"{package}.core", "f", 500, 1), package, Rule([package])) is None
    assert why_not(Listed("_made", "f", 500, 1), "_made", Rule(["_made"])) == "is private"
    assert why_not(Listed("_made", "f", 500, 1), "_made", Rule(["_made"], private=["_made"])) is None


def test_the_largest_come_first_and_equals_by_name() -> None:
    sizes = [("made.b", 300), ("made.a", 300), ("made.c", 900), ("made", 200)]
    ordered = largest_first([Listed(name, "f", lines, 1) for name, lines in sizes])
    assert [one.module for one in ordered] == ["made.c", "made.a", "made.b", "made"]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"packages": ["made"], "min_lines": 0}, "min_lines must be at least 1, it is 0"),
        ({"packages": ["made"], "limit_per_package": 0}, "limit_per_package must be at least 1, it is 0"),
        ({"packages": ["python-dateutil"]}, "'python-dateutil' is not an import name"),
        ({"packages": ["made", "made"]}, "'made' is named 2 times"),
        ({"packages": ["made"], "private": ["mad"]}, "private names 'mad'; did you mean 'made'"),
        ({}, "names no packages"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(said: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        rule_for(None, said)


def test_a_dataset_s_rule_is_under_the_options_unless_they_name_packages(tmp_path: Path) -> None:
    table = '[discover]\npackages = ["made", "other"]\nmin_lines = 50\nprivate = ["other"]\n'
    (tmp_path / "dataset.toml").write_text(table)
    declared = Rule(["made", "other"], min_lines=50, private=["other"])
    unsaid: dict[str, object] = {"packages": [], "min_lines": None, "limit_per_package": None}
    assert rule_for(tmp_path, unsaid) == declared
    assert rule_for(tmp_path, unsaid | {"min_lines": 70}) == replace(declared, min_lines=70)
    assert rule_for(tmp_path, unsaid | {"packages": ["made"]}) == Rule(["made"])


def test_a_key_that_a_dataset_s_rule_does_not_have_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "dataset.toml").write_text('[discover]\npackages = ["made"]\nmin_line = 50\n')
    with pytest.raises(UsageError, match=r"dataset\.toml: \[discover\]: unknown key 'min_line'.*'min_lines'"):
        rule_for(tmp_path, {})


def test_what_image_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert place_of("mine") is None
    (tmp_path / "mine" / "dataset.toml").touch()
    assert place_of("mine") == Path("mine")
    assert place_of("./not_there") == Path("not_there")
    assert place_of("python:3.11-slim") is None
    named = place_of("library_modules")
    assert named is not None
    assert (named / "dataset.toml").is_file()


async def test_a_reference_on_the_local_sandbox_is_refused() -> None:
    with pytest.raises(UsageError, match=r"IMAGE is a dataset.*'library_module'.*'library_modules'"):
        await discover.discover_in("library_module", "local", {"packages": ["made"]})


def test_a_targets_file_is_what_datasets_read(tmp_path: Path) -> None:
    for name in ("dataset.toml", "Dockerfile", "requirements.lock"):
        (tmp_path / name).write_text((DATASETS / "library_modules" / name).read_text())
    found = [Found("made.core", "made", "1.0,rc", 300), Found("made", "made", "", 200)]
    (tmp_path / "targets.csv").write_text(to_csv(found))
    read = dataset.read(tmp_path)
    assert [(one.module, one.package, one.version) for one in read.targets] == [
        ("made.core", "made", "1.0,rc"),
        ("made", "made", ""),
    ]


# -- the listing


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("", 0),
        ("LIMIT = 3\ndef _helper(): ...\n", 0),
        ("class Point:\n    x = 0\n", 0),
        ("class _Hidden:\n    def go(self): ...\n", 0),
        ("def outer(): ...\n", 1),
        ("async def outer(): ...\n", 1),
        ("class Point:\n    async def go(self): ...\n", 1),
        ("def _outer():\n    def inner(): ...\n", 0),
        ("if a:\n    def f(): ...\nelse:\n    def g(): ...\n", 2),
        (
            "try: x = 1\nexcept E:\n    def f(): ...\nelse:\n    def g(): ...\nfinally:\n    def h(): ...\n",
            3,
        ),
        ("with a:\n    class C:\n        def go(self): ...\n", 1),
        ("# -*- coding: latin-1 -*-\ndef caf\u00e9(): ...\n", 1),
    ],
)
def test_what_can_be_called_is_counted(source: str, number: int) -> None:
    assert listing.count_callables(source.encode("latin-1")) == number


def test_the_listing_is_python_3_6() -> None:
    ast.parse(Path(listing.__file__).read_text(), feature_version=(3, 6))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are imported from."""
    made = tmp_path / "site"
    made.mkdir()
    monkeypatch.syspath_prepend(str(made))
    return made


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_modules_are_those_that_can_be_imported(site: Path) -> None:
    explode = "raise RuntimeError('it was imported')\n"
    write(
        site / "made",
        {
            "__init__.py": explode,
            "core.py": "def f(): ...\n\n# the end",
            "broken.py": "def f(:\n",
            "inner/__init__.py": "",
            "inner/deep.py": explode,
            "both.py": "x = 1\n",
            "both/__init__.py": "",
            "async.py": "",
            "not-a-name.py": "",
            "data/no_package.py": "",
            "notes.txt": "",
        },
    )
    version, facts = listing.list_package("made")
    folder = str(site.resolve() / "made")
    assert version == ""
    assert facts == [
        ("made", f"{folder}/__init__.py", 1, 0),
        ("made.both", f"{folder}/both/__init__.py", 0, 0),
        ("made.broken", f"{folder}/broken.py", 1, None),
        ("made.core", f"{folder}/core.py", 3, 1),
        ("made.inner", f"{folder}/inner/__init__.py", 0, 0),
        ("made.inner.deep", f"{folder}/inner/deep.py", 1, 0),
    ]


def test_a_package_may_be_one_file_or_lie_in_a_namespace(site: Path) -> None:
    write(site, {"single_made.py": "", "space_made/part/__init__.py": "", "space_made/part/core.py": ""})
    assert [fact[0] for fact in listing.list_package("single_made")[1]] == ["single_made"]
    parts = ["space_made.part", "space_made.part.core"]
    assert [fact[0] for fact in listing.list_package("space_made.part")[1]] == parts
    assert [fact[0] for fact in listing.list_package("space_made")[1]] == parts


@pytest.mark.parametrize("package", ["never_made", "never_made.inner", "os.path.inner"])
def test_a_package_that_is_not_there(package: str) -> None:
    assert listing.list_package(package) == (None, [])


def test_the_version_is_that_of_whoever_installed_the_package(site: Path) -> None:
    write(
        site,
        {
            "made/__init__.py": "",
            "other_made.py": "",
            "old_made/__init__.py": "",
            "A.dist-info/RECORD": "made_up/__init__.py,,\nelsewhere/made/__init__.py,,\n",
            "A.dist-info/METADATA": "Version: 1.0\n",
            "B.dist-info/RECORD": "B.dist-info/METADATA,,\nmade/__init__.py,sha256=x,1\nother_made.py,,\n",
            "B.dist-info/METADATA": "Metadata-Version: 2.1\nName: b\nVersion: 2.0\n\nVersion: 9\n",
            "C.egg-info/top_level.txt": "old_made\n",
            "C.egg-info/PKG-INFO": "Version: 3.0\n",
        },
    )
    versions = [listing.list_package(package)[0] for package in ("made", "other_made", "old_made")]
    assert versions == ["2.0", "2.0", "3.0"]


# -- both, on a sandbox that only lists


def listing_in(site: Path) -> Callable[[str, str], StepReport]:
    """Answers a step as a sandbox whose packages lie in `site` would."""

    def answer(target: str, script: str) -> StepReport:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": str(site), "PYTHONWARNINGS": "always"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        outcome = StepOutcome.PASSED if done.returncode == 0 else StepOutcome.FAILED
        return report(outcome=outcome, output=done.stdout)

    return answer


async def sandbox_in(site: Path, targets: Sequence[str]) -> Sandbox:
    """A fake that lists what lies in `site`, and can prepare these targets."""
    facts = [facts_of(site, target) for target in (*targets, discover.NEUTRAL)]
    return await FakeBackend(facts, listing_in(site)).open(IMAGE)


def facts_of(site: Path, target: str) -> TargetFacts:
    return replace(FACTS, target=target, file=str(site.resolve() / f"{target.replace('.', '/')}.py"))


def long_module(lines: int) -> str:
    return "def f(): ...\n" + "#\n" * (lines - 1)


async def test_the_limit_counts_only_what_can_be_measured(site: Path) -> None:
    sizes = {"a": 210, "b": 220, "c": 230, "d": 240, "e": 199}
    write(site, {f"made/{name}.py": long_module(lines) for name, lines in sizes.items()})
    write(site, {"made/__init__.py": "", "lone_made.py": long_module(200)})
    sandbox = await sandbox_in(site, ["made.a", "made.b", "made.c", "lone_made"])
    discovery = await discover.discover(sandbox, Rule(["made", "lone_made"], limit_per_package=2))
    assert discovery.found == (
        Found("made.c", "made", "1.2", 230),
        Found("made.b", "made", "1.2", 220),
        Found("lone_made", "lone_made", "1.2", 200),
    )
    assert [one.module for one in discovery.unfit] == ["made.d"]
    assert {one.module: one.why for one in discovery.left_out} == {
        "made.a": "is not among the 2 largest",
        "made.e": "has fewer than 200 lines",
        "made": "has fewer than 200 lines",
    }
    said = discover.summary(discovery)
    assert "targets: 3, packages: 2" in said
    assert "left out: 2, each has fewer than 200 lines" in said
    assert "cannot be measured: made.d" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"file": "/elsewhere/made.py"}, "importing made gives /elsewhere/made.py"),
        ({"branches": frozenset(), "branches_total": 0}, "made has no line with more than one exit"),
    ],
)
async def test_a_target_is_the_listed_file_and_has_branches(
    site: Path, change: dict[str, object], says: str
) -> None:
    write(site, {"made.py": long_module(300)})
    facts = [replace(facts_of(site, "made"), **change), replace(FACTS, target=discover.NEUTRAL)]  # type: ignore[arg-type]
    sandbox = await FakeBackend(facts, listing_in(site)).open(IMAGE)
    discovery = await discover.discover(sandbox, Rule(["made"]))
    assert not discovery.found
    assert says in discovery.unfit[0].why


@pytest.mark.parametrize("padding", range(3))
async def test_a_listing_longer_than_a_page_is_whole(site: Path, padding: int) -> None:
    write(site, {f"made/module_{number:03}.py": "" for number in range(300)} | {"made/__init__.py": ""})
    if padding:  # an answer that ends exactly where a page does
        short = -len(json.dumps(listing.list_package("made"))) % listing.PAGE
        text = f"Version: {'1' * (short - (padding - 1))}\n"
        write(site, {"M.dist-info/RECORD": "made/__init__.py,,\n", "M.dist-info/METADATA": text})
        assert -len(json.dumps(listing.list_package("made"))) % listing.PAGE == padding - 1
    sandbox = await sandbox_in(site, [])
    version, modules = await discover.list_package(sandbox, "made")
    assert (version, [(one.module, one.file, one.lines, one.callables) for one in modules]) == (
        listing.list_package("made")
    )
    assert len(modules) == 301


async def test_sources_that_warn_when_parsed_do_not_spoil_the_listing(site: Path) -> None:
    write(site, {"made.py": "x = '\\d'\ny = 1 is 1\n"})
    _, modules = await discover.list_package(await sandbox_in(site, []), "made")
    assert [one.module for one in modules] == ["made"]


async def test_a_package_that_is_not_in_the_image_is_named(site: Path) -> None:
    with pytest.raises(UsageError, match="no package 'never_made'"):
        await discover.discover(await sandbox_in(site, []), Rule(["never_made"]))


async def test_a_listing_that_fails_says_what_it_said(site: Path) -> None:
    def answer(target: str, script: str) -> StepReport:
        return report(outcome=StepOutcome.FAILED, output="no room", exception="OSError: 28")

    facts = [replace(FACTS, target=discover.NEUTRAL)]
    sandbox = await FakeBackend(facts, answer).open(IMAGE)
    with pytest.raises(SandboxError, match=r"made could not be listed: failed, OSError: 28.*no room"):
        await discover.list_package(sandbox, "made")


# -- both, on the datasets' images


def place(name: str) -> tuple[Backend, Image]:
    """Where a dataset's image is built already; skips where it is not."""
    recipe = Recipe.read(DATASETS / name)
    try:
        found = DockerImages().find(recipe)
    except PrerequisiteError:
        found = None
    if found is not None:
        return DockerBackend("tests"), found
    found = LocalImages().find(recipe)
    if found is None:
        pytest.skip(f"the image of {name} is not built here: corridor images build {name}")
    return LocalBackend("tests"), found


async def opened(name: str) -> Sandbox:
    backend, image = place(name)
    return await backend.open(image)


async def test_the_rule_takes_what_the_paper_took() -> None:
    """All 93 modules with the paper's lines, but one: pydantic.config has one class, without a method.

    httpx is the paper's own exception for private names.
    """
    with (DATASETS / "repo_explore_bench" / "targets.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    packages = list(dict.fromkeys(row["package"] for row in rows))
    rule = Rule(packages, private=["httpx"])
    sandbox = await opened("repo_explore_bench")
    try:
        taken = set()
        for package in packages:
            version, modules = await discover.list_package(sandbox, package)
            taken |= {
                (one.module, package, version, str(one.lines))
                for one in modules
                if why_not(one, package, rule) is None
            }
    finally:
        await sandbox.close()
    assert len(rows) == 93
    missing = {tuple(row.values()) for row in rows} - taken
    assert missing == {("pydantic.config", "pydantic", "2.6.0", "912")}


def test_the_command_writes_requests_as_the_paper_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one package of which the paper took all modules that are large enough."""
    backend, _ = place("repo_explore_bench")
    out = tmp_path / "targets.csv"
    command = ["datasets", "discover", "repo_explore_bench", "requests", "--sandbox", backend.name]
    assert main([*command, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("targets: 6, packages: 1\n")
    paper = (DATASETS / "repo_explore_bench" / "targets.csv").read_text().splitlines()
    assert out.read_text().splitlines() == [paper[0], *(row for row in paper if ",requests," in row)]


@pytest.mark.timeout(900)
async def test_library_modules_is_what_its_rule_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the letter. Those that it lists are known to be measurable here; the others are really tried."""
    folder = DATASETS / "library_modules"
    text = (folder / "targets.csv").read_text()
    known = {row["target"] for row in csv.DictReader(text.splitlines())}
    really = discover.prepare

    async def prepare(sandbox: Sandbox, listed: Listed) -> str:
        return "" if listed.module in known else await really(sandbox, listed)

    monkeypatch.setattr(discover, "prepare", prepare)
    sandbox = await opened("library_modules")
    try:
        discovery = await discover.discover(sandbox, rule_for(folder, {}))
    finally:
        await sandbox.close()
    assert to_csv(discovery.found) == text


def test_library_modules_is_large_enough_and_apart_from_the_paper_s() -> None:
    ours, paper = (dataset.read(DATASETS / name) for name in ("library_modules", "repo_explore_bench"))
    assert len(ours.targets) >= 129
    assert len({one.package for one in ours.targets}) >= 20
    assert not {one.package for one in ours.targets} & {one.package for one in paper.targets}
    locked = ours.recipe.requirements.read_text()
    assert all(f"=={one.version} " in locked for one in ours.targets)
