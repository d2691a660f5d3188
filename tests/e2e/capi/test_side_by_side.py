"""Upstream's core manager and Remuda's play the same stories on the same API server: what they leave behind must be equal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real import need

from .reduction import differences
from .side import Both, Scenario, both_sides
from .stories import STORIES

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A difference that stays, and why; `where` is a regular expression for the place."""

    story: str
    station: str
    where: str
    why: str

    def fits(self, story: str, station: str, line: str) -> bool:
        return (story, station) == (self.story, self.station) and self.names(line)

    def names(self, line: str) -> bool:
        return re.match(self.where, line) is not None


ACCEPTED = (
    Accepted(
        "strangers",
        "unknown kinds",
        r"\.clusters\.strange\.status\.conditions\[\d\]\.message",
        "we say after upstream's sentence which kind nobody defines, instead of sending people to the logs only",
    ),
    Accepted(
        "deployment_paused",
        "scaled, not rolled",
        r"\.machinedeployments\.halted-md\.metadata\.annotations\..*/revision",
        "a paused deployment keeps its revision; upstream empties it",
    ),
    Accepted(
        "deployment_paused",
        "scaled, not rolled",
        r"\.(machines|nodes)\.halted-md-#1-#\d\.",
        "upstream can't read the revision that it emptied, and so never gets to the node of the new machine",
    ),
    Accepted(
        "pause",
        "paused",
        r"\.machines\.pause-#1\.status\.conditions\[7\]",
        "a pause reaches machines of a control plane at once; upstream's hear of it at the next resync",
    ),
)

Played = dict[str, tuple[Any, Any] | BaseException]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All stories, told at once."""
    need.programs("kubernetes", "etcd", "capi")
    yield asyncio.run(_play(Path(tmp_path_factory.mktemp("sides"))))


async def _play(directory: Path) -> Played:
    async with both_sides(directory, "--feature-gates=MachineTaintPropagation=true", alike=_alike) as both:

        async def one(story: Scenario, both: Both = both) -> tuple[Any, Any]:
            return await both.play(story)

        results = await asyncio.gather(*(one(story) for story in STORIES), return_exceptions=True)
    return {story.__name__: result for story, result in zip(STORIES, results, strict=True)}


def _alike(ours: Any, theirs: Any) -> bool:
    """Where an accepted difference is, the names of its story are: no need to know which story it is."""
    return all(any(accepted.names(line) for accepted in ACCEPTED) for line in differences(ours, theirs))


@pytest.mark.parametrize("story", [story.__name__ for story in STORIES])
def test_a_story_ends_alike(played: Played, story: str) -> None:
    found = played[story]
    if isinstance(found, BaseException):
        raise found
    ours, theirs = found
    *before, last = theirs
    for station in before:
        # Upstream sends events late when much happens; what is missing must be there at the end.
        ours[station].pop("events"), theirs[station].pop("events")
    unexpected = [
        f"{station}{line}"
        for station in (*before, last)
        for line in differences(ours[station], theirs[station])
        if not any(accepted.fits(story, station, line) for accepted in ACCEPTED)
    ]
    assert not unexpected, "\n".join(unexpected)


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda accepted: accepted.story + ":" + accepted.station + accepted.where)
def test_an_accepted_difference_is_still_there(played: Played, accepted: Accepted) -> None:
    found = played[accepted.story]
    if isinstance(found, BaseException):
        raise found
    ours, theirs = found
    station = accepted.station
    assert any(map(accepted.names, differences(ours[station], theirs[station]))), "gone: take it from the list"
