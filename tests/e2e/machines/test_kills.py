"""SIGKILL to the server, to the Job's process, and to whoever runs it, at any step of a machine's making and removal.

Afterwards exactly the declared machines exist, each known and owned; and none when none is declared any more. A few steps here,
all of them under `make soak`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.soaking import SOAK, dice

from .killing import MortalServer, Story, on_kubernetes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0 if SOAK else 1800)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("kills")
    with MortalServer(directory / "server", "--controllers=*") as server:
        server.announced()
        told = Story(server)
        try:
            yield told
        finally:
            told.close()


@pytest.fixture(scope="module")
def steps(story: Story) -> tuple[int, int]:
    """How many it takes to make a machine and to remove it, where nobody dies; each life after a death has some more."""
    making, removing = story.whole("server", 0, 0)
    assert len(making) > 15 and len(removing) > 10, (making, removing)
    return len(making), len(removing)


def moments(what: str, making: int, removing: int, samples: int) -> list[tuple[int, int]]:
    """A step of each, such that every one is in it; or a few, and none of the last ones, which may not come."""
    if not SOAK:
        making, removing = max(1, making - 3), max(1, removing - 3)
        return [
            (1 + dice(f"{what} {each}").randrange(making), 1 + dice(f"{each} {what}").randrange(removing))
            for each in range(samples)
        ]
    return [(1 + each % making, 1 + each % removing) for each in range(max(making, removing))]


def dies_twice(story: Story, making: int, removing: int) -> None:
    """At these steps. How many there are depends on who is faster: where there were fewer this time, at the last that came."""
    while True:
        before = story.killed()
        came = [len(steps) for steps in story.whole("server", making, removing)]
        if SOAK or story.killed() == before + 2:
            return
        assert came[0] < making or came[1] < removing, "nobody died of the step"
        making, removing = max(1, min(making, came[0])), max(1, min(removing, came[1]))


def test_a_server_dies_just_after_a_step(story: Story, steps: tuple[int, int]) -> None:
    for making, removing in moments("server, after", *steps, 2):
        dies_twice(story, making, removing)


def test_a_server_dies_just_before_a_step(story: Story, steps: tuple[int, int]) -> None:
    """What was done for it is done, and nobody knows."""
    for making, removing in moments("server, before", *steps, 1):
        story.whole("server", making, removing, before=True)


def test_the_process_of_a_job_dies_as_it_keeps_something(story: Story) -> None:
    """Before it is durable, and after, before the process hears of it."""
    keeping, forgetting = (len(each) for each in story.whole("job", 0, 0))
    assert keeping >= 5 and forgetting >= 2
    for before in (True, False):
        for making, removing in moments(f"job {before}", keeping, forgetting, 1):
            killed = story.killed()
            story.whole("job", making, removing, before=before)
            # As it removes itself from its state for the last time it may be faster than the knife.
            assert story.killed() > killed


@pytest.mark.real
def test_who_runs_jobs_dies_and_the_api_does_not(tmp_path: Path) -> None:
    """`remuda gateway` on a real Kubernetes: what its Jobs had begun is found again."""
    with on_kubernetes(tmp_path) as gateway:
        story = Story(gateway)
        try:
            making, removing = (len(each) for each in story.whole("server", 0, 0))
            for each in moments("runner", making, removing, 1):
                dies_twice(story, *each)
        finally:
            story.close()
