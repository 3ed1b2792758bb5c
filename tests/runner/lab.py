"""An episode on a bench: a fake sandbox, a scripted model, rows kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runner.episode import Means, run_episode
from runner.nouns import Budget, EpisodeSpec, Limits, Measure, Question, Target
from runner.purse import PursePort
from runner.replay import Memory
from runner.schema import CallRow, EpisodeRow, Row, StepRow
from runner.scripted import Scripted
from runner.store import Recording
from runner.strategies import strategy
from sandboxes.fake import IMAGE, Answers, FakeBackend, Suites
from sandboxes.pool import Pool
from sandboxes.sandbox import Measurement, StepOutcome, StepReport, TargetFacts

MODULE = "some.module"
FACTS = TargetFacts(
    target=MODULE,
    file="/some/module.py",
    source="def f(): ...\n" * 400,
    version="1.2",
    statements=frozenset(range(1, 401)),
    branches=frozenset((line, line + 1) for line in range(1, 100)),
    branches_total=198,
)


def report(
    *branches: int, outcome: StepOutcome = StepOutcome.PASSED, output: str = "", exception: str | None = None
) -> StepReport:
    """A step that took the branches out of these lines."""
    taken = Measurement(frozenset((line, line + 1) for line in branches), frozenset(branches))
    return StepReport(outcome, exception, output, 0.01, 0.01, taken, True, "preloaded")


def code(*words: str) -> str:
    """An answer with one script for each word: take('word')."""
    return "\n".join(f"```python\ntake({word!r})\n```" for word in words)


def word(script: str) -> str:
    """The word of such a script."""
    return script.removeprefix("take('").removesuffix("')")


def make_spec(name: str = "random", executions: int = 4, **settings: Any) -> EpisodeSpec:
    return EpisodeSpec(
        target=Target("d", MODULE, "some", "1.2"),
        image_ref=IMAGE.ref,
        image_digest=IMAGE.digest,
        strategy=strategy.load(name, None, settings),
        model="scripted",
        seed=7,
        budget=Budget(executions=executions),
        limits=Limits(),
        max_tokens=100,
        measure=Measure(mutants=0),
    )


class Lab:
    """One attempt at one episode, and what came of it."""

    def __init__(
        self,
        spec: EpisodeSpec,
        said: Sequence[str | Exception] | Callable[[Question], str],
        answers: Answers,
        recording: Recording | None = None,
        purse: PursePort | None = None,
        bound_usd: float = 0.0,
        suites: Suites | None = None,
    ) -> None:
        self.spec = spec
        self.model = Scripted(said)
        self.backend = FakeBackend([FACTS], answers, suites)
        self.memory = Memory()
        self._recording = recording or Recording()
        self._purse = purse
        self._bound = bound_usd

    async def run(self, attempt: int = 1) -> EpisodeRow:
        pool = Pool(self.backend, 1)
        means = Means(
            slots=pool,
            image=IMAGE,
            model=self.model,
            writer=self.memory,
            purse=self._purse,
            upper_bound_usd=lambda question: self._bound,
            sweep="s",
        )
        try:
            return (await run_episode(self.spec, attempt, means, self._recording)).row
        finally:
            await pool.close()

    def rows(self, kind: type[Any]) -> list[Any]:
        found: list[Row] = [row for row in self.memory.rows if isinstance(row, kind)]
        return found

    @property
    def steps(self) -> list[StepRow]:
        return self.rows(StepRow)

    @property
    def calls(self) -> list[CallRow]:
        return self.rows(CallRow)

    @property
    def scripts(self) -> list[str]:
        """The words of what was executed."""
        return [word(script) for _, script in self.backend.executed]

    def recording(self) -> Recording:
        """What this attempt left, as a run would give it back."""
        return Recording(
            {call.call: call for call in self.calls if call.response is not None},
            {step.step: step for step in self.steps},
        )
