"""Several servers on one store as `remuda serve --etcd` runs them: they start together, say if they are ready, and take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.apiserver import startup
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.replicas.leadership import LEASE, LEASE_NAMESPACE
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Delete, StoreError, Unavailable
from remuda.app.embedded import WITHOUT_CORE, chosen, take_turns
from remuda.capi.controller_context import ControllerOptions
from remuda.kube.builtin_resources import LEASES
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import LeaseTerm

from .sharing import NAMESPACES, SERVICES, Line, Replica, namespace, replicas

ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


async def opened(store: MemoryStore, clock: VirtualClock, number: int, **changes: Any) -> Replica:
    line = Line(store)
    config = Config(None, clock=clock, rng=Rng(number), entropy=Entropy(number), port=8000 + number, **changes)
    server = Server(config, line, None, None)
    await server._start()
    return Replica(server, line)


# --- starting -----------------------------------------------------------------------------------------------------------------


async def test_servers_that_start_at_the_same_moment_agree_on_what_every_kubernetes_has() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    made = await asyncio.gather(*(opened(store, clock, number) for number in range(1, 5)))
    try:
        for each in made:
            await each.told()
            names = [item["metadata"]["name"] for item in (await each.client.list(NAMESPACES))["items"]]
            assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
            assert (await each.client.get(SERVICES, "kubernetes", "default"))["spec"]["clusterIP"] == "10.96.0.1"
            assert (await each.client.get(ROLES, "cluster-admin"))["rules"]
        revision = store.revision
        late = await opened(store, clock, 9)
        assert store.revision == revision, "who comes later has nothing to write"
        await late.server.close()
    finally:
        for each in made:
            await each.server.close()


async def test_roles_that_were_changed_are_set_right_by_all_at_once() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    first = await opened(store, clock, 1)
    await first.client.patch(ROLES, "view", {"metadata": {"labels": None}})
    await first.client.patch(ROLES, "system:node-proxier", {"rules": []})
    await first.server.close()
    made = await asyncio.gather(*(opened(store, clock, number) for number in range(2, 6)))
    try:
        for each in made:
            await each.told()
            assert (await each.client.get(ROLES, "system:node-proxier"))["rules"]
    finally:
        for each in made:
            await each.server.close()


async def test_a_store_that_does_not_answer_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    tries = 0

    async def attempt() -> str:
        nonlocal tries
        tries += 1
        if clock.time() < 1_800_000_020:
            raise Unavailable("etcd does not answer: https://10.0.0.1:2379: connection refused")
        return "open"

    waiting = asyncio.create_task(startup.patiently(clock, attempt))
    await clock.advance(30)
    assert waiting.result() == "open"
    assert 5 <= tries <= 10
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == tries - 1
    assert all("https://10.0.0.1:2379: connection refused; trying again, for " in line for line in lines)


async def test_it_is_not_waited_for_longer_than_a_minute() -> None:
    clock = VirtualClock()

    async def attempt() -> str:
        raise Unavailable("etcd does not answer: why")

    waiting = asyncio.create_task(startup.patiently(clock, attempt))
    await clock.advance(59)
    assert not waiting.done()
    await clock.advance(5)
    with pytest.raises(StoreError, match="etcd does not answer: why; given up after 60 s"):
        waiting.result()


async def test_what_waiting_does_not_help_is_told_at_once() -> None:
    async def attempt() -> str:
        raise StoreError("etcd 3.5.5 corrupts data")

    with pytest.raises(StoreError, match=r"3\.5\.5 corrupts"):
        await startup.patiently(VirtualClock(), attempt)


# --- readiness ----------------------------------------------------------------------------------------------------------------


async def healthy(replica: Replica, path: str) -> bool:
    try:
        return bool(await replica.client.raw("GET", path) == "ok")
    except ApiError as error:
        assert error.code == 500
        return False


async def test_a_server_whose_store_is_away_is_alive_but_not_ready() -> None:
    clock = VirtualClock()
    async with replicas(2, clock) as (one, two):
        await clock.advance(10)
        for path in ("/readyz", "/readyz/etcd", "/healthz", "/healthz/etcd", "/livez", "/livez/etcd"):
            assert await healthy(one, path), path
        one.line.asking_fails = Unavailable("cut")
        await clock.advance(2)
        assert await healthy(one, "/readyz"), "a moment is nothing"
        await clock.advance(6)
        for path in ("/readyz", "/readyz/etcd", "/healthz", "/healthz/etcd"):
            assert not await healthy(one, path), path
        for path in ("/livez", "/livez/etcd", "/readyz/ping", "/readyz/shutdown"):
            assert await healthy(one, path), path
        assert await healthy(two, "/readyz")
        one.line.asking_fails = None
        await clock.advance(2)
        assert await healthy(one, "/readyz")


async def test_a_server_whose_feed_is_held_up_is_not_ready() -> None:
    clock = VirtualClock()
    async with replicas(2, clock) as (one, two):
        one.line.hold()
        await two.client.create(NAMESPACES, namespace("news"))
        await clock.advance(12)
        assert not await healthy(one, "/readyz")
        assert await healthy(two, "/readyz")
        one.line.release()
        await clock.advance(12)
        assert await healthy(one, "/readyz")


async def test_on_the_way_out_it_is_not_ready_but_serves() -> None:
    clock = VirtualClock()
    one = await opened(MemoryStore(clock), clock, 1, shutdown_delay=10.0, default_roles=False)
    stop = asyncio.Event()
    serving = asyncio.create_task(one.server.serve_forever(stop))
    await clock.advance(1)
    assert await healthy(one, "/readyz")
    stop.set()
    await clock.advance(1)
    assert not await healthy(one, "/readyz")
    assert not await healthy(one, "/readyz/shutdown")
    assert await healthy(one, "/livez")
    await one.client.create(NAMESPACES, namespace("late"))
    assert not serving.done()
    await clock.advance(10)
    assert serving.done()
    await one.server.close()


# --- taking turns ---------------------------------------------------------------------------------------------------------------


class Turn:
    """A server with its controllers, when it is its turn."""

    def __init__(self, replica: Replica, choice: str = "") -> None:
        self.replica = replica
        wanted = chosen(choice) if choice else WITHOUT_CORE
        self.task = asyncio.create_task(take_turns(replica.server, wanted, ControllerOptions(), LeaseTerm()))

    @property
    def leads(self) -> bool:
        return 'leader_election_master_status{name="remuda-controllers"} 1' in self.replica.server.metrics.text()

    @property
    def works(self) -> bool:
        return "workqueue_adds_total" in self.replica.server.metrics.text()

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def turns(clock: VirtualClock, count: int = 2) -> AsyncIterator[list[Turn]]:
    async with replicas(count, clock) as made:
        found = []
        for each in made:
            found.append(Turn(each))
            await clock.advance(1)
        try:
            yield found
        finally:
            for each in made:
                each.line.asking_fails = each.line.writing_fails = None
                each.line.release()
            for turn in found:
                await turn.stop()


async def has_account(client: InProcessClient, name: str) -> bool:
    try:
        return bool(await client.get(ACCOUNTS, "default", name))
    except ApiError as error:
        assert error.is_not_found
        return False


async def test_the_controllers_of_one_server_work_for_all() -> None:
    clock = VirtualClock()
    async with turns(clock, 3) as (one, two, three):
        assert [each.leads for each in (one, two, three)] == [True, False, False]
        assert [each.works for each in (one, two, three)] == [True, False, False]
        await three.replica.client.create(NAMESPACES, namespace("made-elsewhere"))
        await clock.advance(2)
        assert await has_account(two.replica.client, "made-elsewhere")


async def test_a_clean_stop_hands_over_at_once() -> None:
    clock = VirtualClock()
    async with turns(clock) as (one, two):
        await one.stop()
        await clock.advance(0.05)
        assert two.leads
        await clock.advance(1)
        assert two.works
        assert not one.works
        lease = await two.replica.client.get(LEASES, LEASE, LEASE_NAMESPACE)
        assert lease["spec"]["leaseTransitions"] == 1


async def test_who_is_cut_off_stops_working_and_another_goes_on() -> None:
    clock = VirtualClock()
    async with turns(clock) as (one, two):
        one.replica.line.asking_fails = one.replica.line.writing_fails = Unavailable("cut")
        one.replica.line.hold()
        await clock.advance(11)
        assert not one.leads
        assert not one.works, "its controllers have ended"
        assert not one.task.done(), "but it waits for its next turn"
        await clock.advance(20)
        assert two.works
        await two.replica.client.create(NAMESPACES, namespace("after"))
        await clock.advance(2)
        assert await has_account(two.replica.client, "after")
        one.replica.line.asking_fails = one.replica.line.writing_fails = None
        one.replica.line.release()
        await clock.advance(20)
        assert (one.leads, two.leads) == (False, True)
        await two.stop()
        await clock.advance(3)
        assert one.works, "it was its turn again"


async def test_a_fence_that_was_removed_ends_the_turn_and_the_next_one_puts_it_up() -> None:
    clock = VirtualClock()
    async with turns(clock) as (one, two):
        await one.replica.line.store.write([Delete(f"/remuda/fences/{LEASE}")])
        await two.replica.client.create(NAMESPACES, namespace("meanwhile"))
        await clock.advance(10)
        assert [one.leads, two.leads].count(True) == 1
        assert await has_account(two.replica.client, "meanwhile")
        assert not one.task.done()
        assert not two.task.done()
