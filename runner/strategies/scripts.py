"""Strategies that choose one script a round (CovQValue, arXiv 2604.05159, section 4).

All ask for K candidates at temperature 0.9. They differ in whether prompts hold the
coverage map, and in who chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from runner import answers
from runner.strategies import prompting

if TYPE_CHECKING:
    from runner.episode import Episode


@dataclass(frozen=True, slots=True)
class ScriptStrategy:
    """The round that the three share."""

    unit: ClassVar[Literal["executions"]] = "executions"
    prompts: ClassVar[tuple[str, ...]] = (prompting.SYSTEM, prompting.SCRIPT, prompting.SELECT)
    with_coverage: ClassVar[bool] = False

    candidates: int = 3
    """K: scripts asked for in a round."""
    history: int = 5
    """Earlier scripts that a prompt shows."""
    source_chars: int = 2500
    """Characters of the module's source that a prompt shows; 0 shows all."""
    generate_temperature: float = 0.9
    score_temperature: float = 0.3

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.candidates < 1:
            raise ValueError(f"candidates must be at least 1, it is {self.candidates}")

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        while episode.executions_left:
            scripts = await self._generate(episode)
            round_number = len(episode.history) + 1
            if not scripts:
                await episode.execute(None, round=round_number)
                continue
            index, detail = await self._choose(episode, scripts)
            detail["candidates"] = len(scripts)
            await episode.execute(scripts[index], round=round_number, action=str(index + 1), detail=detail)

    async def _generate(self, episode: Episode) -> list[str]:
        """The candidates that hold code."""
        messages = prompting.conversation(
            prompting.SCRIPT,
            module=episode.facts.target,
            source=prompting.source_part(episode, self.source_chars),
            history=prompting.history_part(episode, self.history, self.with_coverage),
            coverage=prompting.coverage_part(episode) if self.with_coverage else "",
        )
        said = await episode.ask("generate", messages, self.candidates, self.generate_temperature)
        return [script for answer in said if (script := answers.one_script(answer.text)) is not None]

    async def _choose(self, episode: Episode, scripts: list[str]) -> tuple[int, dict[str, Any]]:
        """(index, what to note of the choice). By lot, unless a strategy knows better."""
        return episode.rng.randrange(len(scripts)), {}


@dataclass(frozen=True, slots=True)
class Random(ScriptStrategy):
    """One of K candidates, by lot."""


@dataclass(frozen=True, slots=True)
class Greedy(ScriptStrategy):
    """The candidate that the model holds most likely to cover new code paths."""

    async def _choose(self, episode: Episode, scripts: list[str]) -> tuple[int, dict[str, Any]]:
        if len(scripts) == 1:
            return 0, {"chosen_by": "only"}
        messages = prompting.conversation(
            prompting.SELECT,
            module=episode.facts.target,
            source=prompting.source_part(episode, self.source_chars),
            history=prompting.history_part(episode, self.history, self.with_coverage),
            count=len(scripts),
            candidates=prompting.numbered(scripts, "Candidate"),
        )
        (answer,) = await episode.ask("select", messages, 1, self.score_temperature)
        index = answers.choice(answer.text, len(scripts))
        if index is None:
            return episode.rng.randrange(len(scripts)), {"chosen_by": "lot: the answer named none"}
        return index, {"chosen_by": "model"}


@dataclass(frozen=True, slots=True)
class CovGreedy(ScriptStrategy):
    """One of K candidates by lot; the prompts hold the coverage map."""

    prompts: ClassVar[tuple[str, ...]] = (prompting.SYSTEM, prompting.SCRIPT)
    with_coverage: ClassVar[bool] = True
