"""Two servers never give the same address or port to two services, and what a service had is free when it is gone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from remuda.apiserver.builtin.core.service_addresses import guards_of
from remuda.apiserver.replicas import allocation_locks
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Delete, Mismatch, Put
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.errors import ApiError
from tests.unit.apiserver.serving import served

from .sharing import ENDPOINTS, SERVICES, Line, Obj, Replica, error_of, replica, replicas, service


def address(found: Obj) -> str:
    return str(found["spec"]["clusterIP"])


async def guarded(store: MemoryStore) -> dict[str, str]:
    """Which guard names which service."""
    found = await store.range(allocation_locks.ROOT)
    return {kv.key.removeprefix(allocation_locks.ROOT): kv.value.decode().rpartition("/")[2] for kv in found.items}


async def expected(each: Replica) -> dict[str, str]:
    """The same, as the services themselves say it."""
    listed = await each.client.list(SERVICES)
    return {
        key.removeprefix(allocation_locks.ROOT): item["metadata"]["name"]
        for item in listed["items"]
        for key in guards_of({**item})
    }


async def test_a_named_address_is_given_once() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(SERVICES, service("a", clusterIP="10.96.0.50"))
        refused = await two.while_behind(error_of(two.client.create(SERVICES, service("b", clusterIP="10.96.0.50"))))
        assert refused.code == 422
        assert "failed to allocate IP 10.96.0.50: provided IP is already allocated" in refused.message


async def test_a_named_port_is_given_once() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
        await one.client.create(SERVICES, service("a", type="NodePort", ports=ports))
        refused = await two.while_behind(error_of(two.client.create(SERVICES, service("b", type="NodePort", ports=ports))))
        assert refused.code == 422
        assert "provided port is already allocated" in refused.message


async def test_an_address_that_a_late_server_chooses_is_free() -> None:
    async with replicas() as (one, two):
        # What is chosen follows from the uid, and both will give the same one.
        one.server.api.entropy, two.server.api.entropy = Entropy(99), Entropy(99)
        two.line.hold()
        first = await one.client.create(SERVICES, service("a", type="NodePort"))
        second = await two.while_behind(two.client.create(SERVICES, service("b", type="NodePort")))
        assert two.line.refused == 1
        assert address(first) != address(second)
        assert first["spec"]["ports"][0]["nodePort"] != second["spec"]["ports"][0]["nodePort"]
        assert await guarded(one.line.store) == await expected(one)


async def test_many_services_at_once_through_both() -> None:
    async with replicas() as (one, two):
        one.server.api.entropy, two.server.api.entropy = Entropy(5), Entropy(5)
        works = [
            each.client.create(SERVICES, service(f"{name}{number}", type="NodePort"))
            for number in range(12)
            for name, each in (("one", one), ("two", two))
        ]
        made = await asyncio.gather(*works)
        assert one.line.refused + two.line.refused > 0
        assert len({address(each) for each in made}) == len(made)
        assert len({each["spec"]["ports"][0]["nodePort"] for each in made}) == len(made)
        assert await guarded(one.line.store) == await expected(one)


async def test_what_a_service_had_is_free_when_it_is_gone() -> None:
    async with replicas() as (one, two):
        await one.client.create(SERVICES, service("a", clusterIP="10.96.0.50", type="NodePort"))
        await two.told()
        two.line.hold()
        await one.client.delete(SERVICES, "a", "default")
        made = await two.while_behind(two.client.create(SERVICES, service("b", clusterIP="10.96.0.50")))
        assert address(made) == "10.96.0.50"
        assert await guarded(one.line.store) == await expected(one)


async def test_what_a_service_gives_up_and_takes() -> None:
    async with replicas() as (one, two):
        await one.client.create(SERVICES, service("a"))
        await two.told()
        await two.client.patch(SERVICES, "a", {"spec": {"type": "NodePort"}}, "default")
        assert await guarded(one.line.store) == await expected(one)
        had = await expected(one)
        two.line.hold()
        await one.client.patch(SERVICES, "a", {"spec": {"type": "ClusterIP"}}, "default")
        assert len(await guarded(one.line.store)) == len(had) - 1
        # A server that still thinks it has its port writes on top of what there is.
        await two.while_behind(two.client.patch(SERVICES, "a", {"metadata": {"labels": {"x": "y"}}}, "default"))
        assert await guarded(one.line.store) == await expected(one)
        await one.client.patch(SERVICES, "a", {"spec": {"type": "ExternalName", "externalName": "x.example"}}, "default")
        assert await guarded(one.line.store) == await expected(one)
        assert len(await expected(one)) == 1  # the API's own service


async def test_an_update_that_takes_a_port_which_another_server_has_given_away() -> None:
    async with replicas() as (one, two):
        for name in ("a", "b"):
            await one.client.create(SERVICES, service(name))
        await two.told()
        two.line.hold()
        ports = [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30081}]
        await one.client.patch(SERVICES, "a", {"spec": {"type": "NodePort", "ports": ports}}, "default")
        wanted = {"spec": {"type": "NodePort", "ports": ports}}
        refused = await two.while_behind(error_of(two.client.patch(SERVICES, "b", wanted, "default")))
        assert refused.code == 422
        assert await guarded(one.line.store) == await expected(one)


async def test_a_service_whose_finalizer_goes_last() -> None:
    async with replicas() as (one, _):
        held = service("a")
        held["metadata"]["finalizers"] = ["x/y"]
        await one.client.create(SERVICES, held)
        await one.client.delete(SERVICES, "a", "default")
        assert await guarded(one.line.store) == await expected(one)
        await one.client.patch(SERVICES, "a", {"metadata": {"finalizers": None}}, "default")
        assert await guarded(one.line.store) == await expected(one)


async def test_a_guard_that_was_left_behind_is_taken_over() -> None:
    """Somebody who knows no guards deleted the service."""
    async with replicas() as (one, two):
        await one.client.create(SERVICES, service("a", clusterIP="10.96.0.50"))
        await one.line.store.write([Delete("/registry/services/specs/default/a")])
        await one.told()
        await two.told()
        await two.client.create(SERVICES, service("b", clusterIP="10.96.0.50"))
        assert await guarded(one.line.store) == await expected(one)
        refused = await error_of(one.client.create(SERVICES, service("c", clusterIP="10.96.0.50")))
        assert refused.code == 422


async def test_a_server_that_starts_repairs_guards() -> None:
    async with replicas() as (one, _):
        store = one.line.store
        await one.client.create(SERVICES, service("a", type="NodePort"))
        made = await one.client.create(SERVICES, service("b"))
        await one.client.create(SERVICES, service("c"))
        await store.write([Delete("/registry/services/specs/default/c")])
        await store.write([Delete(allocation_locks.guard("serviceips", address(made)))])
        await store.write([Put(allocation_locks.guard("nodeports", 30000), b"/registry/services/specs/default/a")])
        await one.told()
        assert await guarded(store) != await expected(one)
        third = await replica(store, VirtualClock())
        try:
            assert await guarded(store) == await expected(one)
        finally:
            await third.server.close(0.01)


async def test_a_write_that_dies_leaves_all_or_nothing() -> None:
    """Whichever of its writes is the last that reaches the store."""
    for allowed in range(6):
        async with replicas() as (one, two):
            left = [allowed]
            write = one.line.store.write

            async def dying(ops: Any, line: Line = one.line, left: list[int] = left, write: Any = write) -> int:
                if not left[0]:
                    raise ConnectionResetError
                left[0] -= 1
                return int(await write(ops))

            one.line.write = dying  # type: ignore[method-assign]
            try:
                await one.client.create(SERVICES, service("a", type="NodePort"))
                await one.client.patch(SERVICES, "a", {"spec": {"type": "ClusterIP"}}, "default")
                await one.client.patch(SERVICES, "a", {"spec": {"type": "NodePort"}}, "default")
                await one.client.delete(SERVICES, "a", "default")
            except ConnectionResetError:
                pass
            assert await guarded(two.line.store) == await expected(two)


async def test_endpoints_go_with_their_service_also_when_they_are_new() -> None:
    async with replicas() as (one, two):
        await one.client.create(SERVICES, service("a"))
        await two.told()
        two.line.hold()
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a", "namespace": "default"}}
        await one.client.create(ENDPOINTS, endpoints)
        await two.while_behind(two.client.delete(SERVICES, "a", "default"))
        assert (await error_of(one.client.get(ENDPOINTS, "a", "default"))).is_not_found


async def test_a_dry_run_takes_nothing() -> None:
    async with replicas() as (one, _):
        before = await guarded(one.line.store)
        await one.client.create(SERVICES, service("a", type="NodePort"), dry_run=True)
        assert await guarded(one.line.store) == before


async def test_a_store_of_one_s_own_has_no_guards() -> None:
    async with served(default_roles=False) as server:
        assert (await server.store.range(allocation_locks.ROOT)).items == []


async def test_random_services() -> None:
    """Made, changed and deleted through both, with lines held back in between: no two ever have the same."""
    chance = random.Random(20)
    async with replicas() as (one, two):

        async def work(each: Replica, number: int) -> None:
            for step in range(12):
                name = f"s{chance.randrange(6)}"
                kind = chance.choice(("ClusterIP", "NodePort", "LoadBalancer"))
                try:
                    match chance.randrange(4):
                        case 0 | 1:
                            await each.client.create(SERVICES, service(name, type=kind))
                        case 2:
                            await each.client.patch(SERVICES, name, {"spec": {"type": kind}}, "default")
                        case 3:
                            await each.client.delete(SERVICES, name, "default")
                except ApiError as error:
                    assert error.is_not_found or error.is_already_exists, (number, step, error)
                listed = await each.client.list(SERVICES)
                held = [key for item in listed["items"] for key in guards_of(item)]
                assert len(held) == len(set(held))

        async def disturb() -> None:
            for _ in range(60):
                line = chance.choice((one.line, two.line))
                line.hold()
                for _ in range(chance.randrange(20)):
                    await asyncio.sleep(0)
                line.release()

        await asyncio.gather(disturb(), *(work(each, number) for number in range(3) for each in (one, two)))
        assert await guarded(one.line.store) == await expected(one)


async def test_a_guard_is_compared_after_its_object() -> None:
    """Who loses the name hears of that, whatever else was lost."""
    store = MemoryStore(VirtualClock())
    await store.write([Put("/registry/services/specs/default/a", b"x"), Put(allocation_locks.guard("serviceips", "1"), b"y")])
    op = Put("/registry/services/specs/default/a", b"z", 0)
    made = allocation_locks.Guarded(store, op, frozenset(), frozenset((allocation_locks.guard("serviceips", "1"),)))
    with pytest.raises(Mismatch) as refused:
        await store.write(await made.ops())
    assert refused.value.key == op.key
