"""One episode: a strategy's budget, history and coverage map, and all that it may do.

`run_episode` is the pure core of a sweep: from an episode's spec to rows. Executors decide
where and when; nothing here knows of processes, clusters or files' names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from runner.coverage_map import CoverageMap
from runner.nouns import (
    Answer,
    EpisodeEnd,
    EpisodeSpec,
    Message,
    Question,
    Sampling,
    Step,
    StepKind,
    StepOutcome,
    Suite,
    SuiteReport,
    TargetFacts,
    Usage,
    content_id,
)
from runner.schema import CallRow, EpisodeRow, MutantRow, Row, StepRow, TargetRow, arcs_value
from runner.script_suite import script_suite
from runner.store import Recording, code_sha, storable
from runner.strategies.strategy import build
from sandboxes.errors import BudgetSpent, CorridorError, ModelError, SandboxError, StoreError
from sandboxes.sandbox import Image, Measurement, Sandbox, StepReport

if TYPE_CHECKING:
    from runner.llm import Model
    from runner.purse import PursePort


NOTHING_RAN = StepReport(
    StepOutcome.NO_CODE, None, "", 0.0, 0.0, Measurement(frozenset(), frozenset()), True, "plain"
)


NO_SUITE = SuiteReport(
    error="the answer holds no code",
    size=0,
    functions=(),
    measurement=Measurement(frozenset(), frozenset()),
    mutants=(),
    mutants_total=0,
    duration_s=0.0,
    cpu_s=0.0,
    baseline_s=0.0,
    fork_s=0.0,
)

FINAL = "final"
"""The action of a script strategy's last step: its passed scripts, as a suite."""


class Slots(Protocol):
    """Where an episode gets a sandbox for the length of one step."""

    def slot(self, image: Image, target: str) -> AbstractAsyncContextManager[Sandbox]:
        """Wait for one; others may have it afterwards."""
        ...


class Sink(Protocol):
    """Where an episode's rows go: a run's Writer, or memory."""

    def add(self, row: Row) -> None:
        """Take a row. Raises StoreError when an earlier one could not be written."""
        ...

    def add_code(self, text: str) -> str:
        """Take a script or suite; its hash."""
        ...

    def add_target(self, row: TargetRow) -> None:
        """Take a target's facts."""
        ...

    async def durable(self) -> None:
        """Until everything taken so far will outlive this process. Raises StoreError."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What a worker lends to the episodes it runs."""

    slots: Slots
    image: Image
    model: Model
    writer: Sink
    purse: PursePort | None
    """None where the sweep has no cap."""
    upper_bound_usd: Callable[[Question], float]
    """US dollars that a call can cost at most; not asked without a purse."""
    sweep: str


class Episode:
    """All that a strategy sees."""

    def __init__(
        self,
        spec: EpisodeSpec,
        attempt: int,
        facts: TargetFacts,
        means: Means,
        recording: Recording,
        totals: Totals,
    ) -> None:
        self.spec = spec
        self.attempt = attempt
        self.facts = facts
        self.coverage = CoverageMap(facts)
        self.history: list[Step] = []
        """Executed scripts."""
        self.suites: list[Suite] = []
        """Evaluated suites."""
        self.delivered: Suite | None = None
        """What the episode is measured by; None until `deliver`."""
        self.rng = random.Random(int(recording.dice or spec.id, 16))
        self.totals = totals
        self._means = means
        self._recording = recording
        self._diverged = False
        self._began = time.monotonic()

    @property
    def executions_left(self) -> int:
        """Scripts that may still be executed."""
        return self.spec.budget.executions - len(self.history)

    @property
    def calls_left(self) -> int:
        """Model calls that may still be made, for strategies whose budget counts them."""
        return self.spec.budget.calls - self.totals.calls

    @property
    def steps(self) -> int:
        """Scripts executed and suites evaluated so far."""
        return len(self.history) + len(self.suites)

    async def ask(self, role: str, messages: Sequence[Message], n: int, temperature: float) -> list[Answer]:
        """`n` answers to one prompt. Raises ModelError, BudgetSpent."""
        return await self.ask_each(role, [messages] * n, temperature)

    async def ask_each(
        self, role: str, prompts: Sequence[Sequence[Message]], temperature: float
    ) -> list[Answer]:
        """One answer to each prompt, asked at the same time, recorded before any is returned.

        Raises ModelError when one has no answer, BudgetSpent when the sweep's dollars are gone.
        """
        began = time.monotonic()
        sampling = Sampling(temperature, self.spec.max_tokens)
        calls = []
        for messages in prompts:
            self.totals.calls += 1
            question = Question(role, tuple(messages), sampling, self.spec.seed)
            calls.append(self._call(self.totals.calls, question))
        said = await asyncio.gather(*calls, return_exceptions=True)
        await self._means.writer.durable()
        self.totals.model_s += time.monotonic() - began
        answers: list[Answer] = []
        for one in said:
            if isinstance(one, BaseException):
                raise one
            answers.append(one)
        return answers

    async def execute(
        self,
        script: str | None,
        *,
        round: int,
        action: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Step:
        """Run a script, count its coverage in, keep a row. None, no code, uses an execution too.

        Raises BudgetSpent when no execution is left, SandboxError when no sandbox could run it.
        """
        if not self.executions_left:
            raise BudgetSpent(f"all {self.spec.budget.executions} executions are used")
        report = self._as_recorded(script, await self._report(script))
        measurement = report.measurement
        new_branches, new_lines = self.coverage.add(measurement)
        step = Step(
            number=self.steps + 1,
            round=round,
            action=action,
            script=script,
            outcome=report.outcome,
            exception=report.exception,
            output=report.output,
            hit=measurement.branches if measurement else frozenset(),
            new_branches=new_branches,
            new_lines=new_lines,
            branches=len(self.coverage.branches),
        )
        self.history.append(step)
        self.totals.passed += report.outcome is StepOutcome.PASSED
        self._means.writer.add(self._step_row(step, report, detail))
        return step

    async def evaluate(
        self,
        text: str | None,
        *,
        round: int,
        action: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Suite | None:
        """Measure a pytest file: green functions, coverage, mutants killed. Keep a row of each.

        None for None, an answer without code, which is a step too. Raises SandboxError when no
        sandbox could run it.
        """
        number = self.steps + 1
        report = NO_SUITE
        if text is not None:
            async with _timed_slot(self._means, self.facts.target, self.totals) as sandbox:
                report = await sandbox.evaluate(
                    self.facts.target, text, self.spec.test_limits, self.spec.mutation
                )
            report = self._suite_as_recorded(number, text, report)
        suite = Suite(number, text or "", report, len(self.facts.statements))
        new_branches, new_lines = self.coverage.add(report.measurement)
        outcome = _suite_outcome(text, report)
        self.suites.append(suite)
        if action != FINAL:
            self.totals.suites += 1
            self.totals.passed += outcome is StepOutcome.PASSED
        failed = [function for function in report.functions if function.exception is not None]
        self._means.writer.add(
            StepRow(
                episode_id=self.spec.id,
                attempt=self.attempt,
                step=number,
                round=round,
                kind=StepKind.SUITE,
                action=action,
                code_sha=self._means.writer.add_code(text) if text is not None else None,
                outcome=outcome,
                exception=_optional_text(report.error or (failed[0].exception if failed else None)),
                output="",
                duration_s=report.duration_s,
                cpu_s=report.cpu_s,
                branches_hit=len(report.measurement.branches),
                lines_hit=len(report.measurement.lines),
                coverage_sha=coverage_sha(report.measurement.branches, report.measurement.lines),
                new_branches=len(new_branches),
                branches=len(self.coverage.branches),
                new_lines=len(new_lines),
                lines=len(self.coverage.lines),
                branch_delta=arcs_value(new_branches),
                line_delta=sorted(new_lines),
                coverage_complete=True,
                suite_size=report.size,
                green=len(report.green),
                mutants_killed=report.killed,
                mutants_total=report.mutants_total,
                cost_usd=self.totals.cost_usd,
                calls=self.totals.calls,
                elapsed_s=time.monotonic() - self._began,
                detail=storable(
                    json.dumps(
                        {
                            "functions": [[one.name, one.outcome, one.exception] for one in report.functions],
                            "hv": suite.hv,
                        }
                        | dict(detail or {}),
                        sort_keys=True,
                    )
                ),
                at=datetime.now(UTC),
            )
        )
        for mutant in report.mutants:
            self._means.writer.add(
                MutantRow(
                    episode_id=self.spec.id,
                    attempt=self.attempt,
                    step=number,
                    mutant_id=mutant.id,
                    operator=mutant.operator,
                    line=mutant.line,
                    end_line=mutant.end_line,
                    original=storable(mutant.original),
                    replacement=storable(mutant.replacement),
                    verdict=mutant.verdict,
                    killed_by=mutant.killed_by[0] if mutant.killed_by else None,
                    path=mutant.path,
                    functions=len(mutant.functions),
                    ran=mutant.ran,
                    duration_s=mutant.duration_s,
                )
            )
        return suite if text is not None else None

    def deliver(self, suite: Suite | None) -> None:
        """Say which suite the episode is measured by; None: it made none that could be."""
        self.delivered = suite

    async def finish(self) -> None:
        """Measure what is delivered: without a suite, the passed scripts as one. Raises SandboxError."""
        if self.delivered is None and self.history and self.spec.measure.mutants:
            passed = [step for step in self.history if step.outcome is StepOutcome.PASSED and step.script]
            text = script_suite([(step.number, step.script or "") for step in passed])
            self.deliver(await self.evaluate(text, round=self.history[-1].round, action=FINAL))

    def _suite_as_recorded(self, number: int, text: str, report: SuiteReport) -> SuiteReport:
        """With the exceptions that an earlier attempt at this step met, for the same reason as output."""
        known = self._recording.steps.get(number)
        if known is None or known.code_sha != code_sha(text) or known.detail is None:
            return report
        exceptions = {
            (name, outcome): exception
            for name, outcome, exception in json.loads(known.detail).get("functions", [])
        }
        functions = tuple(
            one._replace(exception=exceptions.get((one.name, one.outcome), one.exception))
            for one in report.functions
        )
        return replace(report, functions=functions)

    async def _report(self, script: str | None) -> StepReport:
        if script is None:
            return NOTHING_RAN
        async with _timed_slot(self._means, self.facts.target, self.totals) as sandbox:
            return await sandbox.execute(self.facts.target, script, self.spec.limits)

    def _as_recorded(self, script: str | None, report: StepReport) -> StepReport:
        """With the output that an earlier attempt at this step printed, if it was the same step.

        Output may hold times and addresses, and prompts hold output: the model has answered
        what it was shown then.
        """
        known = self._recording.steps.get(self.steps + 1)
        if (
            known is None
            or script is None
            or known.code_sha != code_sha(script)
            or known.outcome != report.outcome
        ):
            return report
        return replace(report, output=known.output or "", exception=known.exception)

    def _step_row(self, step: Step, report: StepReport, detail: Mapping[str, Any] | None) -> StepRow:
        measured = report.measurement
        return StepRow(
            episode_id=self.spec.id,
            attempt=self.attempt,
            step=step.number,
            round=step.round,
            kind=StepKind.SCRIPT,
            action=step.action,
            code_sha=self._means.writer.add_code(step.script) if step.script is not None else None,
            outcome=step.outcome,
            exception=_optional_text(step.exception),
            output=storable(step.output),
            duration_s=report.duration_s,
            cpu_s=report.cpu_s,
            branches_hit=len(measured.branches) if measured else None,
            lines_hit=len(measured.lines) if measured else None,
            coverage_sha=coverage_sha(measured.branches, measured.lines) if measured else None,
            new_branches=len(step.new_branches) if measured else None,
            branches=len(self.coverage.branches),
            new_lines=len(step.new_lines) if measured else None,
            lines=len(self.coverage.lines),
            branch_delta=arcs_value(step.new_branches),
            line_delta=sorted(step.new_lines),
            coverage_complete=report.coverage_complete,
            suite_size=None,
            green=None,
            mutants_killed=None,
            mutants_total=None,
            cost_usd=self.totals.cost_usd,
            calls=self.totals.calls,
            elapsed_s=time.monotonic() - self._began,
            detail=json.dumps(detail, sort_keys=True) if detail else None,
            at=datetime.now(UTC),
        )

    async def _call(self, number: int, question: Question) -> Answer:
        """One call, live or from the record; its row is added, not yet on disk."""
        prompt = question.prompt
        sha = content_id(prompt)
        known = self._recording.calls.get(number)
        if known is not None and known.prompt_sha != sha:
            # From here on this attempt goes its own way: later records answer other prompts.
            self._diverged = True
        error: CorridorError | None = None
        answer: Answer | None = None
        replayed = known is not None and not self._diverged
        if replayed and known is not None:
            answer = _recorded_answer(known)
        else:
            try:
                answer = await self._ask_live(question, number)
            except (ModelError, BudgetSpent) as caught:
                error = caught
        self.totals.add(answer, error)
        usage = answer.usage if answer is not None else None
        self._means.writer.add(
            CallRow(
                episode_id=self.spec.id,
                attempt=self.attempt,
                call=number,
                step=self.steps,
                role=question.role,
                model=self.spec.model,
                temperature=question.sampling.temperature,
                max_tokens=question.sampling.max_tokens,
                prompt_sha=sha,
                prompt=storable(prompt),
                response=storable(answer.text) if answer is not None else None,
                finish_reason=answer.finish_reason if answer is not None else None,
                prompt_tokens=usage.prompt if usage is not None else None,
                cached_tokens=usage.cached if usage is not None else None,
                cache_write_tokens=usage.cache_write if usage is not None else None,
                completion_tokens=usage.output if usage is not None else None,
                cost_usd=answer.cost_usd if answer is not None else _lost_usd(error),
                latency_s=answer.latency_s if answer is not None else 0.0,
                tries=answer.tries if answer is not None else getattr(error, "tries", 0),
                replayed=replayed,
                error=str(error) if error is not None else None,
                at=datetime.now(UTC),
            )
        )
        if answer is None:
            assert error is not None
            raise error
        return answer

    async def _ask_live(self, question: Question, number: int) -> Answer:
        purse = self._means.purse
        if purse is None:
            return await self._means.model.ask(question, number)
        reservation = await purse.reserve(self._means.upper_bound_usd(question))
        spent: float | None = 0.0
        try:
            answer = await self._means.model.ask(question, number)
            spent = answer.cost_usd
        except ModelError as error:
            spent = _lost_usd(error)
            raise
        finally:
            await purse.settle(reservation, spent)
        return answer


@dataclass(slots=True)
class Totals:
    """An episode's running sums."""

    passed: int = 0
    suites: int = 0
    """Evaluated, final ones left out."""
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    model_s: float = 0.0
    sandbox_s: float = 0.0
    queue_s: float = 0.0

    def add(self, answer: Answer | None, error: CorridorError | None) -> None:
        """Count a call in: its answer, or why there is none."""
        if answer is not None and answer.usage is not None:
            self.prompt_tokens += answer.usage.prompt
            self.cached_tokens += answer.usage.cached
            self.completion_tokens += answer.usage.output
        cost = answer.cost_usd if answer is not None else _lost_usd(error)
        self.cost_usd = None if self.cost_usd is None or cost is None else self.cost_usd + cost


class Ending(NamedTuple):
    """A committed attempt, and what ended it early."""

    row: EpisodeRow
    error: Exception | None


async def run_episode(spec: EpisodeSpec, attempt: int, means: Means, recording: Recording) -> Ending:
    """Run one attempt to its end and commit it: its row is on disk when this returns.

    Raises StoreError when rows cannot be written. Everything else that goes wrong is an end.
    """
    started, began = datetime.now(UTC), time.monotonic()
    episode: Episode | None = None
    facts: TargetFacts | None = None
    totals = Totals()
    end = EpisodeEnd.COMPLETED
    error: Exception | None = None
    trace: str | None = None
    try:
        facts = await _prepare(spec, means, totals)
        episode = Episode(spec, attempt, facts, means, recording, totals)
        try:
            await build(spec.strategy).explore(episode)
        except BudgetSpent:
            if episode.executions_left:
                raise
        await episode.finish()
    except StoreError:
        raise
    except ModelError as caught:
        end, error = EpisodeEnd.MODEL_ERROR, caught
    except BudgetSpent as caught:
        end, error = EpisodeEnd.BUDGET_EXHAUSTED, caught
    except SandboxError as caught:
        end, error = EpisodeEnd.INFRA_ERROR, caught
    except Exception as caught:
        # A fault of a strategy's or of ours is not the candidate's: no score, and the whole trace is kept.
        end, error, trace = EpisodeEnd.INFRA_ERROR, caught, traceback.format_exc()
    scored = episode is not None and end.scores
    delivered = episode.delivered if episode is not None and scored else None
    row = EpisodeRow(
        episode_id=spec.id,
        attempt=attempt,
        sweep=means.sweep,
        dataset=spec.target.dataset,
        target=spec.target.module,
        package=spec.target.package,
        strategy=spec.strategy.name,
        label=spec.strategy.label,
        strategy_config=spec.strategy.config,
        model=spec.model,
        seed=spec.seed,
        end=end,
        error=_first_line(error),
        error_detail=storable(trace or str(error)) if error is not None else None,
        executions=len(episode.history) + totals.suites if episode is not None else 0,
        passed=totals.passed,
        branches=len(episode.coverage.branches) if episode is not None and scored else None,
        branches_total=facts.branches_total if facts is not None else None,
        lines=len(episode.coverage.lines) if episode is not None and scored else None,
        lines_total=len(facts.statements) if facts is not None else None,
        suite_size=delivered.report.size if delivered else None,
        green=len(delivered.report.green) if delivered else None,
        suite_branches=len(delivered.report.measurement.branches) if delivered else None,
        suite_lines=len(delivered.report.measurement.lines) if delivered else None,
        mutants_killed=delivered.report.killed if delivered else None,
        mutants_total=delivered.report.mutants_total if delivered else None,
        calls=totals.calls,
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        completion_tokens=totals.completion_tokens,
        cost_usd=totals.cost_usd,
        wall_s=time.monotonic() - began,
        model_s=totals.model_s,
        sandbox_s=totals.sandbox_s,
        queue_s=totals.queue_s,
        started_at=started,
        finished_at=datetime.now(UTC),
        node=socket.gethostname(),
        image=spec.image_ref,
        image_digest=spec.image_digest,
    )
    # Twice, so that the commit can only become visible after everything it stands for.
    await means.writer.durable()
    means.writer.add(row)
    await means.writer.durable()
    return Ending(row, error)


@contextlib.asynccontextmanager
async def _timed_slot(means: Means, target: str, totals: Totals) -> AsyncIterator[Sandbox]:
    """A sandbox for one step; the wait and the hold are counted."""
    waiting = time.monotonic()
    async with means.slots.slot(means.image, target) as sandbox:
        began = time.monotonic()
        totals.queue_s += began - waiting
        try:
            yield sandbox
        finally:
            totals.sandbox_s += time.monotonic() - began


async def _prepare(spec: EpisodeSpec, means: Means, totals: Totals) -> TargetFacts:
    """The target's facts, from a sandbox that is ready for it; a row of them for the run."""
    target = spec.target
    async with _timed_slot(means, target.module, totals) as sandbox:
        facts = await sandbox.prepare(target.module)
    means.writer.add_target(
        TargetRow(
            dataset=target.dataset,
            target=target.module,
            package=target.package,
            version=facts.version,
            image=spec.image_ref,
            image_digest=spec.image_digest,
            file=facts.file,
            branches_total=facts.branches_total,
            lines_total=len(facts.statements),
            mutants_total=None,
            source=storable(facts.source),
        )
    )
    return facts


def coverage_sha(branches: frozenset[tuple[int, int]], lines: frozenset[int]) -> str:
    """Of one step's own branches and lines: equal hashes, equal sets."""
    return content_id([sorted(branches), sorted(lines)])


def _recorded_answer(row: CallRow) -> Answer:
    usage = None
    if row.prompt_tokens is not None:
        cached, written = row.cached_tokens or 0, row.cache_write_tokens or 0
        usage = Usage(
            input=row.prompt_tokens - cached - written,
            cached=cached,
            cache_write=written,
            output=row.completion_tokens or 0,
        )
    return Answer(
        text=row.response or "",
        finish_reason=row.finish_reason or "",
        usage=usage,
        latency_s=row.latency_s,
        tries=row.tries,
        cost_usd=row.cost_usd,
    )


def _lost_usd(error: CorridorError | None) -> float | None:
    """What a failed call cost: nothing, unless a provider may have billed an answer that was lost."""
    found: float | None = getattr(error, "cost_usd", 0.0)
    return found


def _first_line(error: Exception | None) -> str | None:
    if error is None:
        return None
    lines = str(error).splitlines()
    return storable(f"{type(error).__name__}: {lines[0] if lines else ''}"[:500])


def _suite_outcome(text: str | None, report: SuiteReport) -> StepOutcome:
    """PASSED when every function is green or skipped, and one at least is green."""
    if text is None:
        return StepOutcome.NO_CODE
    bad = [one for one in report.functions if one.outcome not in ("green", "skipped")]
    return StepOutcome.PASSED if report.error is None and report.green and not bad else StepOutcome.FAILED


def _optional_text(text: str | None) -> str | None:
    return storable(text) if text is not None else None
