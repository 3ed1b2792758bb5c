"""Models without a mind: one that says what it was told to, one that only stands behind a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runner.nouns import Answer, Question, Usage
from sandboxes.errors import CorridorError, ModelError


class ScriptRanOut(CorridorError):
    """A scripted model was asked more than its script answers: the test is wrong, or the code is.

    Not a ModelError: no episode may take it for an end that can happen.
    """


class Scripted:
    """A Model that answers from a list, in the order asked, or by a function of the question.

    An exception in the list is raised in its place. `asked` keeps the questions.
    """

    name = "scripted"

    def __init__(self, script: Sequence[str | Exception] | Callable[[Question], str]) -> None:
        self.asked: list[Question] = []
        self._script = script

    async def ask(self, question: Question, sample: int) -> Answer:
        """The next answer. Raises ScriptRanOut, and what the script holds."""
        self.asked.append(question)
        if callable(self._script):
            said: str | Exception = self._script(question)
        elif len(self.asked) <= len(self._script):
            said = self._script[len(self.asked) - 1]
        else:
            head = question.messages[-1].content[:120] if question.messages else ""
            raise ScriptRanOut(
                f"the script has {len(self._script)} answers and question {len(self.asked)} came: "
                f"role {question.role!r}, sample {sample}, beginning {head!r}"
            )
        if isinstance(said, Exception):
            raise said
        return Answer(said, "stop", Usage(), latency_s=0.0, cost_usd=0.0)

    async def close(self) -> None:
        """Nothing to close."""


class Silent:
    """A Model that has nothing to say beyond what a run recorded."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def ask(self, question: Question, sample: int) -> Answer:
        """Raises ModelError: whoever comes here has left the record."""
        raise ModelError(
            f"{self.name}: call {sample} ({question.role}) is not in the record, or its prompt has changed"
        )

    async def close(self) -> None:
        """Nothing to close."""
