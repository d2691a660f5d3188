"""Events: counted up when repeated, combined when similar, dropped when too many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.builtin_resources import EVENTS
from remuda.kube.clock import Rng, VirtualClock, rfc3339
from remuda.runtime import NORMAL, Recorder
from remuda.runtime.events import reference_to

Obj = dict[str, Any]
SUBJECT: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "uid": "u1"}}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(clock: VirtualClock) -> AsyncIterator[InProcessClient]:
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    yield InProcessClient(server)
    await server.close()


async def told(client: InProcessClient) -> list[Obj]:
    return list((await client.list(EVENTS, "default"))["items"])


async def test_what_is_told_again_counts_up(client: InProcessClient, clock: VirtualClock) -> None:
    recorder = Recorder(client, clock, "tester")
    began = clock.time()
    for _ in range(3):
        recorder.event(SUBJECT, "Normal", "Made", "it is there")
        await recorder.flush()
        await clock.advance(10)
    recorder.event(SUBJECT, "Warning", "Made", "it is there")
    await recorder.flush()
    first, second = await told(client)
    assert (first["count"], first["message"], first["source"]) == (3, "it is there", {"component": "tester"})
    assert (first["firstTimestamp"], first["lastTimestamp"]) == (rfc3339(began), rfc3339(began + 20))
    assert first["involvedObject"] == {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "a", "uid": "u1"}
    assert (second["type"], second["count"]) == ("Warning", 1)


async def test_an_event_that_is_gone_is_made_anew(client: InProcessClient, clock: VirtualClock) -> None:
    recorder = Recorder(client, clock, "tester")
    recorder.event(SUBJECT, "Normal", "Made", "it is there")
    await recorder.flush()
    (first,) = await told(client)
    await client.delete(EVENTS, first["metadata"]["name"], "default")
    recorder.event(SUBJECT, "Normal", "Made", "it is there")
    await recorder.flush()
    assert [event["count"] for event in await told(client)] == [1]


async def test_the_tenth_that_differs_only_by_its_message_is_combined(client: InProcessClient, clock: VirtualClock) -> None:
    recorder = Recorder(client, clock, "tester")
    for number in range(14):
        recorder.event(SUBJECT, "Normal", "Made", f"number {number}")
        await recorder.flush()
        await clock.advance(1)
    events = await told(client)
    assert len(events) == 10
    combined = next(event for event in events if event["message"].startswith("(combined"))
    assert (combined["message"], combined["count"]) == ("(combined from similar events): number 13", 5)


async def test_spam_is_dropped_and_one_in_five_minutes_gets_through(client: InProcessClient, clock: VirtualClock) -> None:
    recorder = Recorder(client, clock, "tester")
    for _ in range(40):
        recorder.event(SUBJECT, "Normal", "Made", "it is there")
    await recorder.flush()
    assert [event["count"] for event in await told(client)] == [25]
    await clock.advance(301)
    for _ in range(5):
        recorder.event(SUBJECT, "Normal", "Made", "it is there")
    await recorder.flush()
    assert [event["count"] for event in await told(client)] == [26]


async def test_two_components_that_speak_in_the_same_moment_are_both_heard(client: InProcessClient, clock: VirtualClock) -> None:
    for component in ("one", "two"):
        await Recorder(client, clock, component).record(reference_to(SUBJECT), NORMAL, "Spoke", "hello")
    listed = await client.list(EVENTS, "default")
    assert sorted(event["source"]["component"] for event in listed["items"]) == ["one", "two"]
