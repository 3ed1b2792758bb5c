"""A finished run, read back: specs of its episodes, their calls, their steps, their scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from runner.drive import SandboxKind, images_for, isolated_for
from runner.nouns import EpisodeEnd, EpisodeSpec, StepKind
from runner.prices import Prices
from runner.store import Run
from runner.worker import WorkerConfig, make_backend
from sandboxes.errors import PrerequisiteError, UsageError
from sandboxes.images import Recipe
from sandboxes.sandbox import Backend, Image


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step of a committed episode, with its script."""

    spec: EpisodeSpec
    row: dict[str, Any]
    script: str


class Recorded:
    """What a run holds of its committed, scored episodes."""

    def __init__(self, where: str) -> None:
        """Raises UsageError for a folder that is no run."""
        self.run = Run(where)
        self.manifest = self.run.must_exist()
        planned = self.run.folder.read("planned", ["episode_id", "spec"]).to_pylist()
        specs = {row["episode_id"]: EpisodeSpec.from_json(row["spec"]) for row in planned}
        self.attempts: dict[str, int] = {}
        """The attempt that counts, of each committed episode that has a score."""
        for episode, ends in self.run.ends().items():
            scored = [attempt for attempt, end in ends if EpisodeEnd(end).scores]
            if scored and episode in specs:
                self.attempts[episode] = max(scored)
        self.specs = {episode: specs[episode] for episode in self.attempts}

    def find(self, starts: Iterable[str]) -> list[str]:
        """Episode ids by their beginnings. Raises UsageError for none or several."""
        found = []
        for start in starts:
            matching = [episode for episode in self.specs if episode.startswith(start)]
            if len(matching) != 1:
                raise UsageError(
                    f"{self.run.name} has {len(matching)} scored episodes whose id begins with {start!r}"
                )
            found += matching
        return found

    def steps(self, episodes: set[str]) -> list[RecordedStep]:
        """Their executed scripts, in order; answers without code left out, and suites."""
        return [
            RecordedStep(self.specs[row["episode_id"]], row, script)
            for row in self.rows(episodes)
            if row["kind"] == StepKind.SCRIPT and (script := self._codes().get(row["code_sha"])) is not None
        ]

    def suites(self, episode: str) -> list[RecordedStep]:
        """An episode's measured suites that have a green function, in order."""
        return [
            RecordedStep(self.specs[episode], row, text)
            for row in self.rows({episode})
            if row["kind"] == StepKind.SUITE
            and row["green"]
            and (text := self._codes().get(row["code_sha"])) is not None
        ]

    def episode_rows(self, episodes: set[str]) -> list[dict[str, Any]]:
        """The rows of their attempts that count."""
        return [
            row
            for row in self.run.folder.read("episodes").to_pylist()
            if row["episode_id"] in episodes and row["attempt"] == self.attempts[row["episode_id"]]
        ]

    def rows(self, episodes: set[str]) -> list[dict[str, Any]]:
        """Their step rows, in order of episode and step."""
        table = self.run.folder.read("steps")
        table = table.filter(pc.is_in(table["episode_id"], value_set=_strings(episodes)))
        kept = [row for row in table.to_pylist() if row["attempt"] == self.attempts[row["episode_id"]]]
        return sorted(kept, key=lambda row: (row["episode_id"], row["step"]))

    def _codes(self) -> dict[str | None, str]:
        if not hasattr(self, "_kept"):
            rows = self.run.folder.read("codes").to_pylist()
            self._kept: dict[str | None, str] = {row["code_sha"]: row["text"] for row in rows}
        return self._kept

    async def place(
        self, recipe: Recipe, dataset: str, sandbox: SandboxKind | None, trust: bool, slots: int
    ) -> tuple[Backend, Image]:
        """The back end and image that the run was made with. Raises PrerequisiteError."""
        said = self.manifest["images"][dataset]
        kind: SandboxKind = said["sandbox"]
        if sandbox is not None and sandbox != kind:
            raise UsageError(f"{self.run.name} was made with --sandbox {kind}: only that gives its numbers")
        image = await asyncio.to_thread(images_for(kind).find, recipe)
        if image is None or image.digest != said["digest"]:
            raise PrerequisiteError(
                f"{self.run.name} was made with image {said['ref']} ({said['digest']}); here is "
                f"{image.digest if image else 'none'}: bring that image back"
            )
        models = sorted({spec.model for spec in self.specs.values()})
        some = next(iter(self.specs.values()))
        config = WorkerConfig(
            run=self.run.name,
            sweep="",
            image=image,
            sandbox=kind,
            isolated=isolated_for(kind, models, trust),
            slots=slots,
            limits=some.limits,
            prices=Prices.load({}),
        )
        return make_backend(config), image


def _strings(values: Iterable[str]) -> Any:
    import pyarrow as pa

    return pa.array(sorted(values), pa.string())
