"""Strategies that ask for whole suites: TeSearch, and what it is compared with.

All spend the same budget of calls, measure every suite the same way, and deliver by the same
rule: of the suites of maximal hypervolume, the smallest (TeSearch, arXiv 2610.15964,
section 3, definition 1). What the paper's text leaves open is decided in docs/strategies.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from runner import answers
from runner.nouns import Message, Suite
from runner.strategies import suite_prompts
from runner.tesearch import parents
from runner.tesearch.archive import Archive, Entry, Niches
from runner.tesearch.arms import Arms
from runner.tesearch.kernel import Kernel, LandingKernel, Mode, Uncorrected

if TYPE_CHECKING:
    from runner.episode import Episode


@dataclass(frozen=True, slots=True)
class SuiteStrategy:
    """What all share: one call gives one suite, which is measured."""

    unit: ClassVar[Literal["calls"]] = "calls"
    prompts: ClassVar[tuple[str, ...]] = (suite_prompts.SYSTEM, suite_prompts.SEED)

    temperature: float = 0.8

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        raise NotImplementedError

    async def _suite(
        self,
        episode: Episode,
        role: str,
        messages: Sequence[Message],
        action: str | None = None,
        detail: dict[str, Any] | None = None,
    ) -> Suite | None:
        """One call; None when the answer holds no code."""
        (answer,) = await episode.ask(role, messages, 1, self.temperature)
        text = answers.one_script(answer.text)
        return await episode.evaluate(
            text, round=len(episode.suites) + 1, action=action or role, detail=detail
        )


def best(suites: Sequence[Suite]) -> Suite | None:
    """Of those with a green function: the smallest of maximal hypervolume, of equal ones the first."""
    green = [suite for suite in suites if suite.report.green]
    return min(green, key=lambda suite: (-suite.hv, suite.report.size, suite.step), default=None)


@dataclass(frozen=True, slots=True)
class SuiteSingle(SuiteStrategy):
    """One call."""

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        await self._suite(episode, "seed", suite_prompts.seed(episode, None))
        episode.deliver(best(episode.suites))


@dataclass(frozen=True, slots=True)
class SuiteRepeat(SuiteStrategy):
    """Independent calls, as many as the budget has; the best of them."""

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        while episode.calls_left > 0:
            await self._suite(episode, "seed", suite_prompts.seed(episode, None))
        episode.deliver(best(episode.suites))


@dataclass(frozen=True, slots=True)
class SuiteRepair(SuiteStrategy):
    """A loop of feedback: each call improves the suite of the call before it. No archive, no sizes."""

    prompts: ClassVar[tuple[str, ...]] = (
        suite_prompts.SYSTEM,
        suite_prompts.SEED,
        suite_prompts.BREED,
        suite_prompts.REPAIR,
    )

    annotate: bool = True
    """Mark in the source what the suite misses."""

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        last: Suite | None = None
        while episode.calls_left > 0:
            if last is None:
                made = await self._suite(episode, "seed", suite_prompts.seed(episode, None))
            else:
                messages = suite_prompts.breed(episode, [last], None, suite_prompts.REPAIR, self.annotate)
                made = await self._suite(episode, "breed", messages, "repair")
            last = made or last
        episode.deliver(best(episode.suites))


@dataclass(frozen=True, slots=True)
class TeSearch(SuiteStrategy):
    """Quality-diversity search over suites, their size the descriptor."""

    prompts: ClassVar[tuple[str, ...]] = (
        suite_prompts.SYSTEM,
        suite_prompts.SEED,
        suite_prompts.BREED,
        *suite_prompts.TASKS.values(),
    )

    niches: list[int] = field(default_factory=lambda: [3, 6, 10, 16, 25, 40])
    """Largest sizes of the niches but the last; [] is one global archive."""
    kernel: bool = True
    """Correct requests by what earlier ones landed at; else ask for the target itself."""
    learning_rates: list[float] = field(default_factory=lambda: [0.02, 0.1, 0.3])
    """Of the kernel's estimates."""
    prior_spread: float = 0.7
    """Of the log ratio of landed and requested size, before any landed."""
    policy: Literal["ucb", "random"] = "ucb"
    """How the niche that a call aims at is chosen."""
    annealing: float = 0.2
    """w: what small size is worth at the end; 0 is no annealing."""
    exploration: float = 0.2
    """beta."""
    epsilon: float = 0.02
    """How near the best hypervolume counts as it."""
    annotate: bool = True
    """Mark in the source what the strongest parent misses."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        Arms(
            Niches(tuple(self.niches)).count,
            1,
            annealing=self.annealing,
            exploration=self.exploration,
            epsilon=self.epsilon,
        )
        LandingKernel(self.learning_rates, self.prior_spread)

    async def explore(self, episode: Episode) -> None:
        """See Strategy.explore."""
        niches = Niches(tuple(self.niches))
        archive = Archive(niches)
        kernel: Kernel = (
            LandingKernel(self.learning_rates, self.prior_spread) if self.kernel else Uncorrected()
        )
        arms = Arms(
            niches.count,
            episode.spec.budget.calls,
            annealing=self.annealing,
            exploration=self.exploration,
            epsilon=self.epsilon,
            policy=self.policy,
        )
        suites: dict[str, Suite] = {}
        while episode.calls_left > 0:
            plans = [self._plan(archive, kernel, niche) for niche in range(niches.count)]
            landings = [kernel.landing(plan.mode, size, niches) for plan, size in plans]
            choice = arms.choose(landings, episode.rng)
            chosen, size = plans[choice.arm]
            detail: dict[str, Any] = {
                "niche": choice.arm,
                "target": niches.centre(choice.arm),
                "requested": size,
                "mode": chosen.mode,
                "scores": list(choice.scores),
                "landing": list(landings[choice.arm]),
                "parents": [suites[entry.key].step for entry in chosen.entries],
                "archive": archive.value,
            }
            if isinstance(kernel, LandingKernel):
                detail |= {"mean": kernel.mean(chosen.mode), "spread": kernel.spread(chosen.mode)}
            made = await self._call(
                episode, chosen, [suites[entry.key] for entry in chosen.entries], size, detail
            )
            landed = made.report.size if made is not None else 0
            if landed:
                kernel.observe(chosen.mode, size, landed)
            gain, hv, niche = 0.0, 0.0, None
            if made is not None and made.report.green:
                entry = Entry(made.report.size, made.coverage, made.mutation, str(made.step))
                suites[entry.key] = made
                gain, hv, niche = archive.add(entry), made.hv, niches.index(made.report.size)
            arms.observe(choice.arm, niche, gain, hv)
        delivered = archive.deliver()
        episode.deliver(suites[delivered.key] if delivered is not None else None)

    def _plan(self, archive: Archive, kernel: Kernel, niche: int) -> tuple[parents.Parents, int]:
        """(parents and mode, size to ask for) of a call that aims at a niche."""
        target = archive.niches.centre(niche)
        chosen = parents.choose(archive, niche, target)
        return chosen, kernel.request(chosen.mode, target)

    async def _call(
        self,
        episode: Episode,
        chosen: parents.Parents,
        shown: Sequence[Suite],
        size: int,
        detail: dict[str, Any],
    ) -> Suite | None:
        mode: Mode = chosen.mode
        if mode == "seed":
            return await self._suite(episode, "seed", suite_prompts.seed(episode, size), mode, detail)
        messages = suite_prompts.breed(episode, shown, size, suite_prompts.TASKS[mode], self.annotate)
        return await self._suite(episode, "breed", messages, mode, detail)
