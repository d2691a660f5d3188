"""What a leader writes after its time is refused by the store itself, wherever the write has been in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.replicas import leadership
from remuda.apiserver.replicas.leadership import Fence
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.store import Delete
from remuda.client.interface import Send, WrappedClient
from remuda.kube.builtin_resources import LEASES
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.errors import ApiError, Fenced
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Elector, LeaseTerm, NotLeading
from remuda.runtime.leader_election import GuardedClient, lead
from tests.unit.runtime.test_leader_election import SlowClock

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
LEASE_KEY = "/registry/leases/default/test"
FENCE_KEY = "/remuda/fences/test"


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


class SlowWire(WrappedClient):
    """What is sent lies somewhere on the way until it is let through."""

    def __init__(self, server: Server) -> None:
        super().__init__(InProcessClient(server))
        self.open = asyncio.Event()
        self.open.set()

    async def _call(self, send: Send, *, write: bool) -> Any:
        if write:
            await self.open.wait()
        return await send()


class Replica:
    def __init__(self, number: int, server: Server, clock: VirtualClock) -> None:
        self.server = server
        self.clock = SlowClock(clock, number * 100.0)
        self.wire = SlowWire(server)
        self.elector = Elector(
            InProcessClient(server), self.clock, Rng(number), namespace="default", name="test", identity=f"replica-{number}"
        )
        self.clients: list[GuardedClient] = []
        self.working = 0
        self.fence: Fence | None = None
        self.work: Callable[[], Awaitable[None]] | None = None
        self.task = asyncio.create_task(lead(self.elector, self._prepare, self._work, self.clock))

    @property
    def client(self) -> GuardedClient:
        return self.clients[-1]

    async def _prepare(self) -> Fence:
        try:
            return await leadership.acquire_fence(
                self.server.store, "test", self.elector.identity, LEASE_KEY, self.elector.revision
            )
        except Fenced as error:
            raise NotLeading("test") from error

    async def _work(self, fence: Fence) -> None:
        self.fence = fence
        self.clients.append(GuardedClient(self.wire, self.elector, fence.active))
        self.working += 1
        try:
            if self.work is not None:
                await self.work()
            await fence.broken.wait()
        finally:
            self.working -= 1

    async def stop(self) -> None:
        self.clock.resume()
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.task


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def server(clock: VirtualClock) -> AsyncIterator[Server]:
    made = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1), default_roles=False))
    yield made
    await made.close()


@pytest.fixture
async def pair(server: Server, clock: VirtualClock) -> AsyncIterator[tuple[Replica, Replica]]:
    """The first leads."""
    first = Replica(1, server, clock)
    await clock.advance(1)
    second = Replica(2, server, clock)
    await clock.advance(5)
    assert (first.working, second.working) == (1, 0)
    yield first, second
    await first.stop()
    await second.stop()


async def test_a_write_that_was_on_its_way_when_leadership_ended_is_refused(
    server: Server, clock: VirtualClock, pair: tuple[Replica, Replica]
) -> None:
    first, second = pair
    await first.client.create(CONFIG_MAPS, config_map("in-time"))
    # Past every check that its own process can make, and then the process stands still.
    first.wire.open.clear()
    late = asyncio.create_task(first.client.create(CONFIG_MAPS, config_map("late")))
    await clock.advance(0)
    first.clock.paused = True
    await clock.advance(30)
    assert second.working == 1
    await second.client.create(CONFIG_MAPS, config_map("of-the-new-leader"))
    first.wire.open.set()
    with pytest.raises(NotLeading):
        await late
    found = await second.client.list(CONFIG_MAPS, "default")
    assert [item["metadata"]["name"] for item in found["items"]] == ["in-time", "of-the-new-leader"]
    # It wakes, and sees that it has nothing to do any more.
    first.clock.resume()
    await clock.advance(1)
    assert (first.working, second.working) == (0, 1)


@pytest.mark.parametrize("verb", ["update", "patch", "apply", "delete", "delete_collection"])
async def test_every_verb_that_writes_is_refused(
    server: Server, clock: VirtualClock, pair: tuple[Replica, Replica], verb: str
) -> None:
    first, second = pair
    made = await first.client.create(CONFIG_MAPS, config_map("a"))
    first.wire.open.clear()
    calls: dict[str, Callable[[], Any]] = {
        "update": lambda: first.client.update(CONFIG_MAPS, {**made, "data": {"late": "1"}}),
        "patch": lambda: first.client.patch(CONFIG_MAPS, "a", {"data": {"late": "1"}}, "default"),
        "apply": lambda: first.client.apply(CONFIG_MAPS, {**config_map("a"), "data": {"late": "1"}}, field_manager="x"),
        "delete": lambda: first.client.delete(CONFIG_MAPS, "a", "default"),
        "delete_collection": lambda: first.client.delete_collection(CONFIG_MAPS, "default"),
    }
    late = asyncio.create_task(calls[verb]())
    await clock.advance(0)
    first.clock.paused = True
    await clock.advance(30)
    before = server.store.revision
    first.wire.open.set()
    with pytest.raises(ApiError):
        await late
    assert server.store.revision == before
    assert "late" not in ((await second.client.get(CONFIG_MAPS, "a", "default")).get("data") or {})


async def test_who_has_lost_the_lease_meanwhile_puts_up_no_fence(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    slow = Elector(client, clock, Rng(1), namespace="default", name="test", identity="slow")
    await slow.acquire()
    won = slow.revision
    await clock.advance(20)
    quick = Elector(client, clock, Rng(2), namespace="default", name="test", identity="quick")
    winning = asyncio.create_task(quick.acquire())
    await clock.advance(20)
    await winning
    fence = await leadership.acquire_fence(server.store, "test", "quick", LEASE_KEY, quick.revision)
    with pytest.raises(Fenced):
        await leadership.acquire_fence(server.store, "test", "slow", LEASE_KEY, won)
    found = await server.store.get(FENCE_KEY)
    assert found is not None
    assert (found.value, found.mod_revision) == (b"quick", fence.revision)


async def test_only_what_is_written_behind_the_fence_is_checked(server: Server) -> None:
    client = InProcessClient(server)
    fence = Fence("test", FENCE_KEY, 12345)
    await client.create(CONFIG_MAPS, config_map("free"))
    with fence.active():
        inside = asyncio.create_task(client.create(CONFIG_MAPS, config_map("from-a-task")))
        with pytest.raises(Fenced):
            await client.create(CONFIG_MAPS, config_map("refused"))
    with pytest.raises(Fenced):
        await inside
    assert fence.broken.is_set()
    await client.create(CONFIG_MAPS, config_map("free-again"))


async def test_a_removed_fence_is_written_again(server: Server, clock: VirtualClock, pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    before = first.fence
    await server.store.write([Delete(FENCE_KEY)])
    with pytest.raises(NotLeading):
        await first.client.create(CONFIG_MAPS, config_map("a"))
    await clock.advance(6)
    assert first.working + second.working == 1
    leader = first if first.working else second
    assert leader.fence is not before
    await leader.client.create(CONFIG_MAPS, config_map("a"))


async def test_a_clean_stop_hands_over_and_a_nudge_makes_it_quick(
    server: Server, clock: VirtualClock, pair: tuple[Replica, Replica]
) -> None:
    first, second = pair
    await first.stop()
    lease = await InProcessClient(server).get(LEASES, "test", "default")
    assert lease["spec"]["holderIdentity"] == ""
    second.elector.nudge()
    await clock.advance(0.01)
    assert (first.working, second.working) == (0, 1)


async def test_work_that_fails_gives_the_lease_back_and_is_told(server: Server, clock: VirtualClock) -> None:
    replica = Replica(1, server, clock)

    async def fail() -> None:
        raise RuntimeError("a bug")

    replica.work = fail
    await clock.advance(1)
    with pytest.raises(RuntimeError, match="a bug"):
        await replica.task
    lease = await InProcessClient(server).get(LEASES, "test", "default")
    assert lease["spec"]["holderIdentity"] == ""


async def test_work_is_waited_for_before_another_may_lead(server: Server, clock: VirtualClock) -> None:
    first = Replica(1, server, clock)
    told: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await clock.sleep(0.5)
            told.append((await InProcessClient(server).get(LEASES, "test", "default"))["spec"]["holderIdentity"])

    first.work = tidy
    await clock.advance(1)
    stopping = asyncio.create_task(first.stop())
    await clock.advance(1)
    await stopping
    assert told == ["replica-1"], "it was still held while the work was ending"


def test_the_usual_term_is_kubernetes_own() -> None:
    assert LeaseTerm() == LeaseTerm(15.0, 10.0, 2.0)
