"""Models that are no LLM of the papers' kind: tables say so wherever their rows appear."""

from __future__ import annotations

from collections.abc import Iterable

_SAID = (
    ("offline/", "is a stand-in, not an LLM"),
    ("scripted", "is a stand-in, not an LLM"),
    ("replay/", "is a stand-in, not an LLM: it repeats recorded answers"),
    ("local/", "is a stand-in, not an LLM of the papers' kind: a small model on this machine"),
)
"""By how the model's name begins."""


def is_stand_in(model: str) -> bool:
    """Whether a model's numbers say nothing about LLMs as the papers used them."""
    return any(model.startswith(start) for start, _ in _SAID)


def notes(models: Iterable[str]) -> list[str]:
    """One remark for each stand-in among these models."""
    return [
        f"{model} {said}" for model in sorted(set(models)) for start, said in _SAID if model.startswith(start)
    ]
