"""The back ends under test, each opened once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from sandboxes.client import ProbeSandbox
from sandboxes.docker import DockerBackend
from sandboxes.errors import PrerequisiteError
from sandboxes.images import DockerImages, LocalImages, Recipe
from sandboxes.local import LocalBackend
from sandboxes.sandbox import Cold, Image, Limits, TargetFacts
from tests.sandboxes.conformance import DATASET, MARK, PRELUDES, Guard, Stand

RUN = "tests"


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return Recipe.read(DATASET)


@pytest.fixture(scope="session")
def docker_image(recipe: Recipe) -> Image:
    try:
        return DockerImages().build(recipe)
    except PrerequisiteError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def local_image(recipe: Recipe) -> Image:
    return LocalImages().build(recipe)


@pytest.fixture(scope="session")
def docker_stand(docker_image: Image) -> Stand:
    return Stand(DockerBackend(RUN), docker_image, frozenset(Guard))


@pytest.fixture(scope="session")
def local_stand(local_image: Image) -> Stand:
    try:
        return Stand(LocalBackend(RUN, isolated=True), local_image, frozenset(Guard))
    except PrerequisiteError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def bare_stand(local_image: Image) -> Stand:
    return Stand(LocalBackend(RUN, isolated=False), local_image)


class Rig:
    """A stand with one sandbox that all tests on it share, and what fresh runs gave."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.facts: dict[str, TargetFacts] = {}
        self._sandbox: ProbeSandbox | None = None
        self._fresh: dict[str, Cold] = {}

    async def sandbox(self) -> ProbeSandbox:
        """The shared one; another when it was lost."""
        if self._sandbox is None or self._sandbox.dirty:
            await self.close()
            opened = await self.stand.backend.open(self.stand.image)
            assert isinstance(opened, ProbeSandbox)
            self._sandbox = opened
        return self._sandbox

    async def prepare(self, target: str) -> TargetFacts:
        """The target's facts, in the shared sandbox."""
        self.facts[target] = await (await self.sandbox()).prepare(target)
        return self.facts[target]

    async def cold(self, target: str, script: str) -> Cold:
        """The reference."""
        facts = self.facts.get(target) or await self.prepare(target)
        return await self.stand.backend.cold(self.stand.image, facts, script, Limits(timeout_s=60))

    async def fresh(self, target: str) -> Cold:
        """The reference of a target's prelude, run once."""
        if target not in self._fresh:
            self._fresh[target] = await self.cold(target, PRELUDES[target])
        return self._fresh[target]

    async def close(self) -> None:
        """End the shared sandbox."""
        if self._sandbox is not None:
            await self._sandbox.close()


@pytest.fixture(scope="session", params=["docker", "local", "bare"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    os.environ["CORRIDOR_TEST_MARK"] = MARK
    made = Rig(request.getfixturevalue(f"{request.param}_stand"))
    yield made
    asyncio.run(made.close())
    del os.environ["CORRIDOR_TEST_MARK"]


@pytest.fixture(scope="session", params=["docker", "local"])
def isolated_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(request.getfixturevalue(f"{request.param}_stand"))
    yield made
    asyncio.run(made.close())
