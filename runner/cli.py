"""`corridor`: every command, its options, and the one place that prints errors.

Nothing heavy is imported before a command needs it: `corridor --help` has to be quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sandboxes.errors import CorridorError

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

INTERRUPTED = 130

Handler = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 fine, 1 failures, 2 usage, 3 missing prerequisite, 130 interrupted."""
    options = parser().parse_args(argv)
    handler: Handler = options.handler
    try:
        return handler(options)
    except CorridorError as error:
        print(f"corridor: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("corridor: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return 1


def parser() -> argparse.ArgumentParser:
    """All commands."""
    top = argparse.ArgumentParser(
        prog="corridor",
        description="Benchmark sweeps of LLM test generation: run them, resume them, compare strategies.",
        epilog="A first look: make demo. Every command has its own --help.",
    )
    top.add_argument("--version", action="version", version=f"corridor {_version()}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        _add_plan,
        _add_run,
        _add_status,
        _add_leaderboard,
        _add_sql,
        _add_compare,
        _add_replay,
        _add_verify,
        _add_mutants,
        _add_reduce,
        _add_images,
        _add_datasets,
        _add_bench,
        _add_clean,
        _add_compact,
    ):
        add(commands)
    return top


def _version() -> str:
    from importlib.metadata import version

    return version("corridor-bench")


# -- options that several commands have


def _takes_sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument("sweep", type=Path, metavar="SWEEP", help="sweep file (TOML)")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the sweep file"
    )
    command.add_argument(
        "--model", action="append", default=[], metavar="M", help="use this model instead of the file's"
    )


def _takes_sandbox(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--sandbox", choices=["docker", "local"], help="default: docker when an engine answers, else local"
    )
    command.add_argument(
        "--trust",
        action="store_true",
        help="on the local sandbox, run any model's scripts even where nothing isolates them",
    )


def _takes_runs(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run")


def _takes_format(command: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    command.add_argument("--format", choices=formats, default="table")
    command.add_argument("--json", dest="format", action="store_const", const="json", help="--format json")


def _command(commands: Commands, name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    made.set_defaults(handler=handler)
    return made


# -- commands


def _add_plan(commands: Commands) -> None:
    command = _command(commands, "plan", _plan, "what a sweep would run, and whether it can")
    _takes_sweep(command)
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _plan(options: argparse.Namespace) -> int:
    from runner.plan import plan
    from runner.sweep import read

    print(plan(read(options.sweep, options.set, options.model), options.sandbox, options.format))
    return 0


def _add_run(commands: Commands) -> None:
    command = _command(commands, "run", _run, "run a sweep; the same command again resumes it")
    _takes_sweep(command)
    command.add_argument("--out", required=True, metavar="RUN", help="folder, or s3:// or gs:// prefix")
    _takes_sandbox(command)
    command.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; default: fill the cluster"
    )
    command.add_argument(
        "--slots", type=int, metavar="N", help="sandboxes of each worker; default: its cores"
    )
    command.add_argument("--in-flight", type=int, metavar="N", help="episodes of each worker at once")
    command.add_argument("--address", metavar="RAY", help="a running Ray cluster; default: one for this run")
    command.add_argument("--inline", action="store_true", help="one worker in this process, without Ray")
    command.add_argument(
        "--keep-failed", action="store_true", help="do not try again what failed in an earlier run"
    )
    command.add_argument("--simulate-latency", type=float, default=0.0, metavar="S", help=argparse.SUPPRESS)


def _run(options: argparse.Namespace) -> int:
    import asyncio

    from runner.drive import Options, run_sweep
    from runner.progress import View
    from runner.sweep import read
    from sandboxes.errors import PrerequisiteError

    sweep = read(options.sweep, options.set, options.model)
    view = View()
    tally = asyncio.run(
        run_sweep(
            sweep,
            Options(
                out=options.out,
                sandbox=options.sandbox,
                trust=options.trust,
                workers=options.workers,
                slots=options.slots,
                in_flight=options.in_flight,
                address=options.address,
                inline=options.inline,
                keep_failed=options.keep_failed,
                latency_s=options.simulate_latency,
            ),
            view,
        )
    )
    view.say(
        f"{tally.done} done, {tally.failed} failed, {tally.pending} pending of {tally.planned} planned"
        + (f"; stopped: {tally.stopped}" if tally.stopped else "")
    )
    for end, error in tally.last_errors.items():
        view.say(f"last {end}: {error}")
    if tally.interrupted:
        view.say("nothing is lost: run the same command again to go on")
        return INTERRUPTED
    if tally.refused is not None:
        view.say("a model answers nobody: its pending episodes wait until that is mended")
        return PrerequisiteError.exit_code
    view.say(f"next: corridor leaderboard {options.out}")
    ended = tally.done + tally.failed
    return 1 if ended and tally.failed / ended > sweep.max_infra_share else 0


def _add_status(commands: Commands) -> None:
    command = _command(commands, "status", _status, "how a run stands")
    _takes_runs(command)
    _takes_format(command, ["table", "json"])


def _status(options: argparse.Namespace) -> int:
    from analysis.status import status
    from analysis.table import render
    from analysis.views import connect

    print(render(status(connect(options.runs)), options.format))
    return 0


def _add_leaderboard(commands: Commands) -> None:
    command = _command(
        commands, "leaderboard", _leaderboard, "strategies side by side, with errors and tests"
    )
    _takes_runs(command)
    command.add_argument("--by", default="model", help="split by model, dataset, package; comma-separated")
    command.add_argument("--baseline", default="greedy", help="strategy that others are compared with")
    _takes_format(command, ["table", "md", "csv", "json", "latex"])


def _leaderboard(options: argparse.Namespace) -> int:
    from analysis.leaderboard import leaderboard
    from analysis.table import render
    from analysis.views import connect

    by = tuple(part for part in options.by.split(",") if part)
    print(render(leaderboard(connect(options.runs), by=by, baseline=options.baseline), options.format))
    return 0


def _add_sql(commands: Commands) -> None:
    command = _command(commands, "sql", _sql, "ask a run's tables in SQL")
    command.add_argument("run", metavar="RUN", help="folder of a run")
    command.add_argument("query", metavar="SQL", help='such as "select * from progress"')
    command.add_argument("--out", type=Path, metavar="FILE", help="for --format parquet")
    _takes_format(command, ["table", "csv", "json", "md", "parquet"])


def _sql(options: argparse.Namespace) -> int:
    from analysis.sql import run_sql

    print(run_sql([options.run], options.query, options.format, options.out))
    return 0


def _add_compare(commands: Commands) -> None:
    command = _command(commands, "compare", _compare, "ours beside a paper's published numbers")
    _takes_runs(command)
    command.add_argument("--paper", default="covqvalue", choices=["covqvalue"])
    _takes_format(command, ["table", "md", "csv", "json", "latex"])


def _compare(options: argparse.Namespace) -> int:
    from analysis.compare import compare
    from analysis.table import render
    from analysis.views import connect

    print(render(compare(connect(options.runs), paper=options.paper), options.format))
    return 0


def _add_replay(commands: Commands) -> None:
    command = _command(commands, "replay", _replay, "run an episode again from its recorded calls")
    command.add_argument("run", metavar="RUN")
    command.add_argument("episodes", nargs="*", metavar="EPISODE", help="ids, or the start of one")
    command.add_argument("--sample", type=int, metavar="N", help="N episodes of the run, drawn by --seed")
    command.add_argument("--seed", type=int, default=0)
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _replay(options: argparse.Namespace) -> int:
    import asyncio

    from runner.replay import rendered, replay

    found = asyncio.run(
        replay(options.run, options.episodes, options.sample, options.seed, options.sandbox, options.trust)
    )
    print(rendered(found, options.format))
    return 0 if all(one.same for one in found) else 1


def _add_mutants(commands: Commands) -> None:
    command = _command(
        commands, "mutants", _mutants, "an episode's suite again: each mutant's path, functions and verdict"
    )
    command.add_argument("run", metavar="RUN")
    command.add_argument("episode", metavar="EPISODE", help="its id, or the start of it")
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _mutants(options: argparse.Namespace) -> int:
    import asyncio

    from runner.delivered import measured, mutants_text

    suite, _ = asyncio.run(measured(options.run, options.episode, False, options.sandbox, options.trust))
    print(mutants_text(suite, options.format))
    return 0


def _add_reduce(commands: Commands) -> None:
    command = _command(
        commands, "reduce", _reduce, "an episode's suite without the tests that add nothing to it"
    )
    command.add_argument("run", metavar="RUN")
    command.add_argument("episode", metavar="EPISODE", help="its id, or the start of it")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the smaller suite there")
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _reduce(options: argparse.Namespace) -> int:
    import asyncio

    from runner.delivered import measured, reduced_text
    from sandboxes.errors import UsageError

    _, found = asyncio.run(measured(options.run, options.episode, True, options.sandbox, options.trust))
    assert found is not None
    if options.out is not None:
        try:
            options.out.write_text(found.text)
        except OSError as error:
            raise UsageError(f"--out {options.out} cannot be written: {error}") from error
    print(reduced_text(found, options.format))
    return 0


def _add_verify(commands: Commands) -> None:
    command = _command(commands, "verify", _verify, "run sampled steps again, cold, and compare coverage")
    command.add_argument("run", metavar="RUN")
    command.add_argument("--sample", type=int, default=50, metavar="N")
    command.add_argument("--seed", type=int, default=0)
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _verify(options: argparse.Namespace) -> int:
    import asyncio

    from runner.verify import rendered, verify

    found = asyncio.run(verify(options.run, options.sample, options.seed, options.sandbox, options.trust))
    print(rendered(found, options.format))
    return 0 if found.agrees else 1


def _add_images(commands: Commands) -> None:
    command = _command(commands, "images", _images, "the images of a dataset")
    command.add_argument("action", choices=["build", "check"])
    command.add_argument("dataset", metavar="DATASET")
    _takes_sandbox(command)


def _images(options: argparse.Namespace) -> int:
    from runner.dataset import find
    from runner.drive import choose_sandbox, images_for

    dataset = find(options.dataset)
    sandbox, remark = choose_sandbox(options.sandbox)
    if remark:
        print(remark, file=sys.stderr)
    images = images_for(sandbox)
    image = images.build(dataset.recipe) if options.action == "build" else images.find(dataset.recipe)
    if image is None:
        print(f"{dataset.name}: missing on {sandbox}; build it: corridor images build {dataset.name}")
        return 1
    print(f"{dataset.name}: {image.ref} on {sandbox}, {image.digest}")
    return 0


def _add_datasets(commands: Commands) -> None:
    text = "the datasets that sweeps can name, and what a new one's targets are"
    group = commands.add_parser("datasets", help=text, description=text[0].upper() + text[1:] + ".")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    _command(actions, "list", _list_datasets, "every dataset, with the number of its targets")
    command = _command(actions, "show", _show_dataset, "a dataset's targets")
    command.add_argument("name", metavar="NAME", help="a dataset, or the path of its folder")
    _add_discover(actions)


def _list_datasets(options: argparse.Namespace) -> int:
    from runner.dataset import find, names

    for name in names():
        dataset = find(name)
        print(f"{name}: {dataset.title}, {len(dataset.targets)} targets")
    return 0


def _show_dataset(options: argparse.Namespace) -> int:
    from runner.dataset import find

    dataset = find(options.name)
    print(f"{dataset.title}: {len(dataset.targets)} targets in {dataset.folder}")
    for target in dataset.targets:
        print(f"{target.module}  ({target.package} {target.version})")
    return 0


def _add_discover(commands: Commands) -> None:
    command = _command(
        commands, "discover", _discover, "choose the targets of packages; prints a targets.csv"
    )
    command.description = (
        "Choose the targets of packages by RepoExploreBench's rule, and print a targets.csv. A module "
        "is a target when its file has enough lines (all are counted, comments and blank ones too); it "
        "defines a public function, or a public class with methods; no part of its name says test, "
        "vendored, compatibility layer or private (a leading underscore), and it is not __main__; and it "
        "is really prepared in the image, with at least one line that has more than one exit. Largest "
        "first in each package."
    )
    command.add_argument(
        "image",
        metavar="IMAGE",
        help="a dataset (a name, or the path of its folder; its image is built if it is not there), "
        "or with Docker an image that has Corridor's layer",
    )
    command.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="import names; without any, the dataset's [discover] table is the rule, under these options",
    )
    command.add_argument("--min-lines", type=int, metavar="N", help="default: 200")
    command.add_argument(
        "--limit-per-package", type=int, metavar="N", help="only the N largest of each package; default: all"
    )
    command.add_argument(
        "--private", action="append", metavar="PACKAGE", help="take this package's private modules too"
    )
    command.add_argument("--exclude", action="append", metavar="GLOB", help="leave these modules out")
    command.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    command.add_argument(
        "--sandbox", choices=["docker", "local"], help="default: docker when an engine answers, else local"
    )


def _discover(options: argparse.Namespace) -> int:
    import asyncio

    from runner.discover import discover_in, summary, to_csv
    from runner.drive import choose_sandbox
    from sandboxes.errors import UsageError

    sandbox, remark = choose_sandbox(options.sandbox)
    if remark:
        print(remark, file=sys.stderr)
    keys = ("packages", "min_lines", "limit_per_package", "private", "exclude")
    said = {key: getattr(options, key) for key in keys}
    discovery = asyncio.run(discover_in(options.image, sandbox, said))
    print(summary(discovery), file=sys.stderr)
    text = to_csv(discovery.found)
    if options.out is None:
        print(text, end="")
        return 0
    try:
        options.out.write_text(text)
    except OSError as error:
        raise UsageError(f"--out {options.out} cannot be written: {error}") from error
    return 0


def _add_bench(commands: Commands) -> None:
    command = _command(commands, "bench", _bench, "measure this machine against the bare and the cold way")
    command.add_argument("what", choices=["steps", "sweep"])
    command.add_argument("--repeat", type=int, default=15, metavar="N", help="measurements of each case")
    _takes_sandbox(command)
    _takes_format(command, ["table", "json"])


def _bench(options: argparse.Namespace) -> int:
    from runner import bench

    print(bench.run(options.what, options.repeat, options.sandbox, options.format))
    return 0


def _add_clean(commands: Commands) -> None:
    command = _command(commands, "clean", _clean, "remove containers and scratch left by dead runs")
    command.add_argument("--all", action="store_true", help="those of living runs too")


def _clean(options: argparse.Namespace) -> int:
    from sandboxes.leftovers import remove

    removed = remove(everything=options.all)
    for one in removed:
        print(f"removed {one}")
    print(f"{len(removed)} leftovers removed")
    return 0


def _add_compact(commands: Commands) -> None:
    command = _command(commands, "compact", _compact, "make few files of a run's many")
    _takes_runs(command)


def _compact(options: argparse.Namespace) -> int:
    from runner.store import Run

    for name in options.runs:
        run = Run(name)
        run.must_exist()
        with run.locked():
            run.compact()
    return 0


if __name__ == "__main__":
    sys.exit(main())
