"""CovQValue: the plan of highest estimated curiosity Q-value (arXiv 2604.05159, section 3, algorithm 1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from runner import answers
from runner.nouns import Arc
from runner.strategies import prompting

if TYPE_CHECKING:
    from runner.episode import Episode

_NOISE = re.compile(r"^\s*[12][.):](?=\s)|/\s*50\b", re.MULTILINE)

Plan = list[str]
"""Scripts that run one after the other."""


@dataclass(frozen=True, slots=True)
class CovQValue:
    """K plans of S scripts each a round; the best is executed, without feedback inside it."""

    unit: ClassVar[Literal["executions"]] = "executions"
    prompts: ClassVar[tuple[str, ...]] = (
        prompting.SYSTEM,
        prompting.PLAN,
        prompting.SCORE,
        *prompting.HINTS,
    )

    plans: int = 3
    """K."""
    steps_per_plan: int = 3
    """S."""
    discount: float = 0.5
    """Gamma: the weight of what a plan brings within reach."""
    diversity_hints: bool = True
    """Give each plan of a round its own direction."""
    scoring: Literal["estimate", "execute", "none"] = "estimate"
    """By the model's two numbers; by executing each plan's first script; by lot."""
    history: int = 5
    """Earlier scripts that a prompt shows."""
    source_chars: int = 2500
    """Characters of the module's source that a prompt shows; 0 shows all."""
    generate_temperature: float = 0.9
    score_temperature: float = 0.3

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for name in ("plans", "steps_per_plan"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, it is {getattr(self, name)}")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount must be between 0 and 1, it is {self.discount}")

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        round_number = 0
        while episode.executions_left:
            round_number += 1
            plans = await self._generate(episode)
            if not plans:
                await episode.execute(None, round=round_number)
            elif self.scoring == "execute":
                await self._best_by_first_step(episode, plans, round_number)
            else:
                number, detail = await self._choose(episode, plans)
                await self._run(episode, plans[number], number, round_number, detail)

    async def _generate(self, episode: Episode) -> dict[int, Plan]:
        """Plans that hold code, by their number from 1."""
        shared = {
            "module": episode.facts.target,
            "source": prompting.source_part(episode, self.source_chars),
            "history": prompting.history_part(episode, self.history, with_coverage=True),
            "coverage": prompting.coverage_part(episode),
            "steps": self.steps_per_plan,
        }
        hints = [
            prompting.HINTS[index % len(prompting.HINTS)] if self.diversity_hints else ""
            for index in range(self.plans)
        ]
        prompts = [prompting.conversation(prompting.PLAN, hint=hint, **shared) for hint in hints]
        said = await episode.ask_each("generate", prompts, self.generate_temperature)
        plans = {}
        for number, answer in enumerate(said, 1):
            scripts = answers.several_scripts(answer.text)[: self.steps_per_plan]
            if scripts:
                plans[number] = scripts
        return plans

    async def _choose(self, episode: Episode, plans: dict[int, Plan]) -> tuple[int, dict[str, Any]]:
        """(the best plan's number, what to note of the choice)."""
        if self.scoring == "none":
            return episode.rng.choice(sorted(plans)), {"chosen_by": "lot"}
        prompts = [
            prompting.conversation(
                prompting.SCORE,
                module=episode.facts.target,
                source=prompting.source_part(episode, self.source_chars),
                coverage=prompting.coverage_part(episode),
                steps=len(plan),
                plan=prompting.numbered(plan, "Script"),
            )
            for plan in plans.values()
        ]
        said = await episode.ask_each("score", prompts, self.score_temperature)
        estimates = {number: estimate(answer.text) for number, answer in zip(plans, said, strict=True)}
        values = {
            number: gain + self.discount * reach
            for number, found in estimates.items()
            if found is not None
            for gain, reach in [found]
        }
        detail: dict[str, Any] = {
            "q": {str(number): values.get(number) for number in plans},
            "estimates": {str(number): found for number, found in estimates.items()},
        }
        if not values:
            return episode.rng.choice(sorted(plans)), detail | {
                "chosen_by": "lot: no answer held two numbers"
            }
        return max(values, key=lambda number: (values[number], -number)), detail | {"chosen_by": "q"}

    async def _run(
        self, episode: Episode, plan: Plan, number: int, round_number: int, detail: dict[str, Any]
    ) -> None:
        for position, script in enumerate(plan, 1):
            if not episode.executions_left:
                return
            await episode.execute(
                script, round=round_number, action=f"plan {number}", detail=detail | {"position": position}
            )

    async def _best_by_first_step(self, episode: Episode, plans: dict[int, Plan], round_number: int) -> None:
        """Execute each plan's first script; go on with the plan whose first script found the most.

        What a first script finds is counted against the state before the round, so that the
        order of the plans does not matter. Every one of these executions counts.
        """
        before: frozenset[Arc] = frozenset(episode.coverage.branches)
        gains: dict[int, int] = {}
        for number, plan in plans.items():
            if not episode.executions_left:
                return
            step = await episode.execute(
                plan[0], round=round_number, action=f"plan {number}", detail={"position": 1}
            )
            gains[number] = len(step.hit - before)
        best = max(gains, key=lambda number: (gains[number], -number))
        detail = {"gains": {str(number): gain for number, gain in gains.items()}, "chosen_by": "execution"}
        for position, script in enumerate(plans[best][1:], 2):
            if not episode.executions_left:
                return
            await episode.execute(
                script, round=round_number, action=f"plan {best}", detail=detail | {"position": position}
            )


def estimate(text: str) -> tuple[float, float] | None:
    """(immediate gain, future reach) in a scoring answer, each held to 0..50; None without two numbers.

    Section 3 has the model "predict two values on a 0-50 scale". Numbering of the answer's
    lines and a repeated scale ("12/50") are not among the two.
    """
    found = answers.numbers(_NOISE.sub(" ", text))
    if len(found) < 2:
        return None
    gain, reach = (min(50.0, max(0.0, value)) for value in found[:2])
    return gain, reach
