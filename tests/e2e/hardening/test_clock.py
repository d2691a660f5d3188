"""The time of day is set forward and back by hours, under a server with its controllers: nothing is lost, nobody is cut off.

A process can't be given a time of day of its own, so this is a server in the test's process, whose clocks the test moves; the
database, its threads and the controllers are the real ones.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.app.embedded import running
from remuda.kube.clock import Rng, VirtualClock, rfc3339
from remuda.kube.objects import GroupVersionResource
from remuda.runtime.leader_election import Elector

Obj = dict[str, Any]
HOUR = 3600.0
EVENTS_KEPT = 8

CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
EVENTS = GroupVersionResource("", "v1", "events")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
REVIEWS = GroupVersionResource("authentication.k8s.io", "v1", "tokenreviews")


class Settable(VirtualClock):
    """A time of day that somebody sets, beside a clock that goes on."""

    offset = 0.0

    def time(self) -> float:
        return super().time() + self.offset


class World:
    def __init__(self, server: Server, clock: Settable) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server)
        self.seen: list[str] = []
        self.made = 0
        self.electors = [
            Elector(self.client, clock, Rng(number), namespace="kept", name="lead", identity=f"candidate-{number}")
            for number in range(2)
        ]

    async def follow(self) -> None:
        async for event in self.client.watch(CONFIGMAPS, "kept", resource_version="0"):
            name = event.object["metadata"].get("name", "")
            if event.type == "ADDED" and name.startswith("made-"):
                self.seen.append(name)

    @staticmethod
    async def stand(elector: Elector) -> None:
        while True:
            await elector.acquire()
            await elector.keep()

    async def pass_time(self, seconds: float, step: float = 3.0) -> None:
        """In steps, after each of which all that was written is on the disk: threads know nothing of this clock."""
        store = self.server.store
        assert isinstance(store, SqliteStore)
        for _ in range(math.ceil(seconds / step)):
            await self.clock.advance(step)
            await store.change(lambda connection: None)
            assert sum(elector.leading for elector in self.electors) <= 1

    async def write(self) -> None:
        """Something new, which whoever watches is told."""
        self.made += 1
        name = f"made-{self.made}"
        await self.client.create(CONFIGMAPS, {"metadata": {"name": name}}, "kept")
        await until(lambda: name in self.seen)

    async def event(self, name: str) -> None:
        body = {"metadata": {"name": name}, "involvedObject": {"namespace": "kept"}, "reason": "Tested", "type": "Normal"}
        await self.client.create(EVENTS, body, "kept")

    async def events(self) -> int:
        return len((await self.client.list(EVENTS, "kept"))["items"])

    async def knows(self, token: str) -> bool:
        review = await self.client.create(REVIEWS, {"spec": {"token": token}})
        return bool(review["status"].get("authenticated"))


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


async def test_a_clock_that_jumps_by_hours_loses_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Settable()
    async with running(Config(data_dir=tmp_path, clock=clock), listen=False) as server, asyncio.TaskGroup() as group:
        world = World(server, clock)
        client = world.client
        await client.create(NAMESPACES, {"metadata": {"name": "kept"}})
        await until(lambda: server.source.get("", "serviceaccounts", "kept", "default") is not None)
        beside = [group.create_task(world.follow()), *(group.create_task(world.stand(each)) for each in world.electors)]
        for number in range(EVENTS_KEPT):
            await world.event(f"event-{number}")
        await world.write()
        request = {"spec": {"expirationSeconds": 2 * int(HOUR)}}
        found = await client.create(SERVICE_ACCOUNTS, request, "kept", name="default", subresource="token")
        token = found["status"]["token"]
        assert await world.knows(token)
        await world.pass_time(60)
        [leader] = [each for each in world.electors if each.leading]

        # Forward by five hours, for a while: Events are kept for one.
        clock.offset = 5 * HOUR
        await world.pass_time(180)
        await world.write()
        assert await world.events() == EVENTS_KEPT, "everything that ages went because somebody set the clock"
        assert leader.leading
        assert not await world.knows(token), "what has ended is refused by the clock as it is"
        assert "the clock was set forward by 18000 s" in caplog.text

        # And back by ten: what was written before is in the future now.
        clock.offset = -5 * HOUR
        await world.pass_time(180)
        await world.write()
        assert await world.events() == EVENTS_KEPT
        assert leader.leading
        made = await client.get(CONFIGMAPS, f"made-{world.made}", "kept")
        assert made["metadata"]["creationTimestamp"] <= rfc3339(clock.time())

        # Right again. The past is in order, watches can go on from where they were, and what is old goes.
        clock.offset = 0.0
        await world.pass_time(60)
        assert await world.knows(token)
        assert leader.leading
        assert server.history is not None
        past = [await server.history.history(f"/registry/configmaps/kept/made-{number + 1}") for number in range(world.made)]
        times = [versions[0].at for versions in past]
        assert times == sorted(times)
        for task in beside[1:]:
            task.cancel()
        before = server.store.floor
        await world.pass_time(600, step=30.0)
        await until(lambda: server.store.floor > before)
        await world.write()
        # Being set right looked like being set forward, so it takes an hour more.
        await world.pass_time(2 * HOUR, step=30.0)
        end = time.monotonic() + 60
        while await world.events() and time.monotonic() < end:
            await world.pass_time(30)
        assert await world.events() == 0
        assert world.seen == [f"made-{number + 1}" for number in range(world.made)]
        beside[0].cancel()
    # Ours: what an earlier test left to asyncio is complained about whenever it happens to be collected.
    assert not [record for record in caplog.records if record.exc_info and record.name.startswith("remuda")], caplog.text
