"""Every value and enum of a sweep, on one page. Read this first.

    Sweep     what somebody asked for (runner/sweep.py makes it from a file)
    Target    a module under test, in a dataset's image
    Episode   one cell: target x strategy x model x seed, under a budget (EpisodeSpec)
    Call      one question to a model, and its Answer
    Step      one executed script
    Suite     one evaluated pytest file
    Row       what of these is kept (runner/schema.py)

Values are frozen and refuse impossible states when they are made.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandboxes.sandbox import Arc, Limits, Measurement, Mutation, StepOutcome, SuiteReport, TargetFacts

__all__ = [
    "Answer",
    "Arc",
    "Budget",
    "EpisodeEnd",
    "EpisodeSpec",
    "Limits",
    "Measure",
    "Measurement",
    "Message",
    "Price",
    "Question",
    "Sampling",
    "Step",
    "StepKind",
    "StepOutcome",
    "StrategySpec",
    "Suite",
    "SuiteReport",
    "Target",
    "TargetFacts",
    "Usage",
    "canonical",
    "content_id",
]

SCHEMA_VERSION = 1
"""Of the tables and of what decides a result. One line of history for each: 1, the first."""


class EpisodeEnd(enum.StrEnum):
    """How an episode ended. What its tests said is StepOutcome's."""

    COMPLETED = "completed"
    """The strategy came to its end, or used all its executions."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The sweep's dollars ran out first. Half an episode does not measure a whole one: no score."""
    MODEL_ERROR = "model_error"
    """The model gave no answer, for good."""
    INFRA_ERROR = "infra_error"
    """Ours to answer for: the episode has no score."""
    CANCELLED = "cancelled"

    @property
    def scores(self) -> bool:
        """Whether such an episode is done and enters a leaderboard."""
        return self is EpisodeEnd.COMPLETED


class StepKind(enum.StrEnum):
    """What was executed."""

    SCRIPT = "script"
    SUITE = "suite"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Target:
    """A module under test."""

    dataset: str
    module: str
    """Dotted."""
    package: str
    version: str

    def __post_init__(self) -> None:
        if not all(part.isidentifier() for part in self.module.split(".")):
            raise ValueError(f"{self.module!r} is not a dotted module name")


@dataclass(frozen=True, slots=True)
class Budget:
    """What one episode may use. Each kind of strategy counts its own unit."""

    executions: int = 24
    """Scripts executed, for script strategies."""
    calls: int = 24
    """Model calls that return a suite, for suite strategies."""
    iterations: int = 10
    """Iterations of a supervised agent."""

    def __post_init__(self) -> None:
        for name in ("executions", "calls", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"budget.{name} must be at least 1, it is {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Measure:
    """How suites are measured, the final one of every episode among them."""

    mutants: int = 200
    """Size of a target's fixed sample. 0: no mutants, and script strategies end without a final suite."""
    test_timeout_s: float = 10.0
    """For one test function, and a run of them all; a step's own limit where that is shorter."""

    def __post_init__(self) -> None:
        if self.mutants < 0:
            raise ValueError(f"measure.mutants must not be negative, it is {self.mutants}")
        if self.test_timeout_s <= 0:
            raise ValueError(f"measure.test_timeout_s must be above 0, it is {self.test_timeout_s}")


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """A strategy with every setting resolved."""

    name: str
    label: str
    """What tables call it; the name unless the sweep says otherwise."""
    settings: Mapping[str, Any]
    prompts: str
    """Hash of the prompt texts it uses: other prompts, another result."""

    @property
    def config(self) -> str:
        """The settings as canonical JSON."""
        return canonical(self.settings)


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One cell of a sweep, complete: a worker needs nothing else to run it."""

    target: Target
    image_ref: str
    image_digest: str
    strategy: StrategySpec
    model: str
    seed: int
    budget: Budget
    limits: Limits
    max_tokens: int
    """Longest answer that is asked of the model, in tokens."""
    measure: Measure = Measure()

    @property
    def id(self) -> str:
        """A hash of everything that decides the result; 20 hex digits."""
        return content_id(
            {
                "schema": SCHEMA_VERSION,
                "dataset": self.target.dataset,
                "target": self.target.module,
                "image": self.image_digest,
                "strategy": self.strategy.name,
                "settings": dict(self.strategy.settings),
                "prompts": self.strategy.prompts,
                "model": self.model,
                "seed": self.seed,
                "budget": [self.budget.executions, self.budget.calls, self.budget.iterations],
                "limits": list(self.limits),
                "max_tokens": self.max_tokens,
                "measure": [self.measure.mutants, self.measure.test_timeout_s],
            }
        )

    @property
    def test_limits(self) -> Limits:
        """Of a suite's test function alone, and of a run of them all."""
        return self.limits._replace(timeout_s=min(self.limits.timeout_s, self.measure.test_timeout_s))

    @property
    def mutation(self) -> Mutation:
        """The same for every strategy, model and seed: their figures are of the same mutants."""
        return Mutation(self.measure.mutants, seed=f"{self.target.module}@{self.image_digest}")

    def to_json(self) -> str:
        """The whole spec; `from_json` gives an equal one."""
        return canonical(dataclasses.asdict(self) | {"limits": self.limits._asdict()})

    @classmethod
    def from_json(cls, text: str) -> EpisodeSpec:
        """From `to_json`. Raises ValueError, KeyError, TypeError for anything else."""
        said = json.loads(text)
        return cls(
            **said
            | {
                "target": Target(**said["target"]),
                "strategy": StrategySpec(**said["strategy"]),
                "budget": Budget(**said["budget"]),
                "limits": Limits(**said["limits"]),
                "measure": Measure(**said["measure"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is drawn."""

    temperature: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, in the classes that are priced apart. None overlaps another."""

    input: int = 0
    """Read by the model anew."""
    cached: int = 0
    """Read from the provider's cache."""
    cache_write: int = 0
    """Written to the provider's cache."""
    output: int = 0
    """Written by the model, its reasoning included."""

    def __post_init__(self) -> None:
        if min(self.input, self.cached, self.cache_write, self.output) < 0:
            raise ValueError(f"tokens cannot be negative: {self}")

    @property
    def prompt(self) -> int:
        """All tokens that the model was given."""
        return self.input + self.cached + self.cache_write


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for one token of each class."""

    input: float
    cached: float
    cache_write: float
    output: float

    def of(self, usage: Usage) -> float:
        """US dollars."""
        return (
            usage.input * self.input
            + usage.cached * self.cached
            + usage.cache_write * self.cache_write
            + usage.output * self.output
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, and what it took."""

    text: str
    finish_reason: str
    usage: Usage | None
    """None when the provider did not report it."""
    latency_s: float
    """From sending the try that succeeded to its last byte."""
    tries: int = 1
    cost_usd: float | None = None
    """None when the model's price or its usage is unknown."""


@dataclass(frozen=True, slots=True)
class Step:
    """One executed script, as a strategy sees it in its history."""

    number: int
    """From 1."""
    round: int
    action: str | None
    script: str | None
    """None for an answer without code."""
    outcome: StepOutcome
    exception: str | None
    output: str
    hit: frozenset[Arc]
    """Branches that it executed, new or not."""
    new_branches: frozenset[Arc]
    new_lines: frozenset[int]
    branches: int
    """Covered by the episode up to and with this step."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One evaluated pytest file."""

    step: int
    """Number of the step that evaluated it."""
    text: str
    report: SuiteReport
    lines_total: int
    """Executable lines of the module."""

    @property
    def coverage(self) -> float:
        """c: share of the module's executable lines that the green functions execute."""
        return len(self.report.measurement.lines) / self.lines_total if self.lines_total else 0.0

    @property
    def mutation(self) -> float:
        """m: share of the module's fixed sample of mutants that they kill."""
        return self.report.killed / self.report.mutants_total if self.report.mutants_total else 0.0

    @property
    def hv(self) -> float:
        """Hypervolume c x m, the origin as reference (TeSearch, arXiv 2610.15964, section 3)."""
        return self.coverage * self.mutation


@dataclass(frozen=True, slots=True)
class Question:
    """What a strategy asks: a role for the record, the conversation, how to draw."""

    role: str
    messages: Sequence[Message]
    sampling: Sampling
    seed: int = 0
    """Of the episode, for models that are deterministic by it. Not part of the prompt."""

    @property
    def prompt(self) -> str:
        """The conversation as canonical JSON: what is recorded, and what a replay compares."""
        return canonical([{"role": message.role, "content": message.content} for message in self.messages])


def canonical(value: object) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_id(value: object) -> str:
    """20 hex digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:20]
