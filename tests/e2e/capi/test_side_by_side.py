"""Upstream's core manager and Remuda's play the same stories on the same API server: what they leave behind must be equal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real import need

from .reduction import differences
from .side import Both, Scenario, both_sides
from .stories import STORIES

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
Played = dict[str, tuple[Any, Any] | BaseException]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All stories, told at once."""
    need.programs("kubernetes", "etcd", "capi")
    yield asyncio.run(_play(Path(tmp_path_factory.mktemp("sides"))))


async def _play(directory: Path) -> Played:
    async with both_sides(directory, "--feature-gates=MachineTaintPropagation=true") as both:

        async def one(story: Scenario, both: Both = both) -> tuple[Any, Any]:
            return await both.play(story)

        results = await asyncio.gather(*(one(story) for story in STORIES), return_exceptions=True)
    return {story.__name__: result for story, result in zip(STORIES, results, strict=True)}


@pytest.mark.parametrize("story", [story.__name__ for story in STORIES])
def test_a_story_ends_alike(played: Played, story: str) -> None:
    found = played[story]
    if isinstance(found, BaseException):
        raise found
    ours, theirs = found
    wrong = [f"{station}{line}" for station in theirs for line in differences(ours[station], theirs[station])]
    assert not wrong, "\n".join(wrong)
