"""What tests of models share."""

from __future__ import annotations

from typing import Any

import pytest

from runner.llm import import_litellm
from tests.models.asking import MARKER


@pytest.fixture(scope="session")
def litellm() -> Any:
    """LiteLLM as we use it. Its import takes ten seconds."""
    return import_litellm()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The marker key, as OpenAI's."""
    monkeypatch.setenv("OPENAI_API_KEY", MARKER)
    return MARKER
