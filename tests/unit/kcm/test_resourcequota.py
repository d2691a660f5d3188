"""Quotas hold exactly: with many writers, several servers, and a controller that counts at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from remuda import kcm
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.storage.store import Event
from remuda.client.interface import Client
from remuda.kube.builtin_resources import PODS, RESOURCE_QUOTAS, SECRETS
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import name_of
from tests.unit.apiserver.replicas.sharing import Replica, error_of, replicas

Obj = dict[str, Any]
T = TypeVar("T")

ROOT = "/registry/"


def quota(name: str = "q", **hard: str) -> Obj:
    limits = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": limits}}


def secret(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}


def pod(name: str, cpu: str = "1") -> Obj:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "default"}
    spec = {"containers": [container], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@asynccontextmanager
async def counted(count: int = 2) -> AsyncIterator[tuple[VirtualClock, list[Replica]]]:
    """Servers of one store; the first one runs the controllers."""
    clock = VirtualClock()
    async with replicas(count, clock) as made:
        client = InProcessClient(made[0].server, manager=kcm.MANAGER)
        work = asyncio.create_task(kcm.run(client, clock, Rng(1)))
        await clock.advance(2)
        try:
            yield clock, made
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def passing(clock: VirtualClock, work: Awaitable[T]) -> T:
    """The result of `work`, while time passes."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(0.01)
    return task.result()


async def used(client: Client, name: str = "q") -> Obj:
    status: Obj = (await client.get(RESOURCE_QUOTAS, name, "default")).get("status") or {}
    return status.get("used") or {}


async def attempt(client: Client, name: str) -> bool:
    try:
        await client.create(SECRETS, secret(name))
    except ApiError as error:
        assert error.code == 403 and "exceeded quota" in error.message
        return False
    return True


async def history(one: Replica) -> list[Event]:
    store = one.line.store
    return await store.changes(0, store.revision, ROOT)


async def most_at_once(one: Replica, prefix: str) -> int:
    """The largest number of objects that existed at any revision."""
    there: set[str] = set()
    most = 0
    for event in await history(one):
        if event.key.startswith(prefix):
            (there.discard if event.kv is None else there.add)(event.key)
            most = max(most, len(there))
    return most


async def test_many_writers_of_two_servers_get_what_there_is_and_no_more() -> None:
    async with counted() as (clock, (one, two)):
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="20"))
        await clock.advance(1)
        assert await used(two.client) == {"secrets": "0"}
        tries = [attempt(each.client, f"{name}-{number}") for number in range(25) for name, each in (("a", one), ("b", two))]
        assert sum(await passing(clock, asyncio.gather(*tries))) == 20
        assert await used(one.client) == {"secrets": "20"}
        assert one.line.refused + two.line.refused > 0


async def test_an_object_and_its_usage_are_stored_together() -> None:
    async with counted(1) as (clock, (one,)):
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="5"))
        await clock.advance(1)
        made = await one.client.create(SECRETS, secret("a"))
        charged = await one.client.get(RESOURCE_QUOTAS, "q", "default")
        assert charged["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_write_that_fails_uses_nothing() -> None:
    async with counted(1) as (clock, (one,)):
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="5"))
        await clock.advance(1)
        await one.client.create(SECRETS, secret("a"))
        assert (await error_of(one.client.create(SECRETS, secret("a")))).is_already_exists
        assert await used(one.client) == {"secrets": "1"}


async def test_creating_and_deleting_while_the_controller_counts() -> None:
    async with counted() as (clock, (one, two)):
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="7"))
        await clock.advance(1)

        async def churn(each: Replica, who: str) -> int:
            made = 0
            for number in range(30):
                if await attempt(each.client, f"{who}-{number}"):
                    made += 1
                    await clock.sleep(0.01)
                    await each.client.delete(SECRETS, f"{who}-{number}", "default")
                else:
                    await clock.sleep(0.02)
            return made

        workers = [churn(one if number % 2 else two, f"w{number}") for number in range(10)]
        made = sum(await passing(clock, asyncio.gather(*workers)))
        assert made > 50
        assert await most_at_once(one, "/registry/secrets/") <= 7
        await clock.advance(1)
        assert await used(one.client) == {"secrets": "0"}


async def test_a_server_that_has_not_heard_of_a_quota_keeps_to_it() -> None:
    async with counted() as (clock, (one, two)):
        two.line.hold()
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="0"))
        await clock.advance(1)
        refused = await two.while_behind(error_of(two.client.create(SECRETS, secret("a"))))
        assert "exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0" in refused.message


async def test_a_server_that_has_not_heard_of_a_new_limit_keeps_to_it() -> None:
    async with counted() as (clock, (one, two)):
        made = await one.client.create(RESOURCE_QUOTAS, quota(pods="5"))
        await clock.advance(1)
        await two.told()
        two.line.hold()
        made = await one.client.get(RESOURCE_QUOTAS, "q", "default")
        await one.client.update(RESOURCE_QUOTAS, {**made, "spec": {"hard": {"secrets": "0"}}})
        await clock.advance(1)
        refused = await two.while_behind(error_of(two.client.create(SECRETS, secret("a"))))
        assert "exceeded quota" in refused.message


async def test_what_is_made_while_a_new_quota_is_counted_is_counted_too() -> None:
    async with counted() as (clock, (one, two)):
        making = [attempt(two.client, f"s{number}") for number in range(20)]
        work = asyncio.gather(*making, one.client.create(RESOURCE_QUOTAS, quota(secrets="100")))
        await passing(clock, work)
        await clock.advance(1)
        assert await used(one.client) == {"secrets": "20"}


async def test_a_usage_written_by_a_client_is_corrected() -> None:
    async with counted(1) as (clock, (one,)):
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="5"))
        await one.client.create(SECRETS, secret("a"))
        await clock.advance(1)
        found = await one.client.get(RESOURCE_QUOTAS, "q", "default")
        wrong = {**found, "status": {**found["status"], "used": {"secrets": "4"}}}
        await one.client.update(RESOURCE_QUOTAS, wrong, subresource="status")
        await clock.advance(1)
        assert await used(one.client) == {"secrets": "1"}


async def test_a_pod_that_stays_after_its_time_makes_room() -> None:
    async with counted(1) as (clock, (one,)):
        await one.client.create(RESOURCE_QUOTAS, quota(pods="1", count__pods="3", requests_cpu="2"))
        await clock.advance(1)
        bound = pod("a")
        bound["spec"]["nodeName"] = "n"
        await one.client.create(PODS, bound)
        await one.client.delete(PODS, "a", "default", grace_seconds=30)
        await clock.advance(30)
        assert await used(one.client) == {"count/pods": "1", "pods": "1", "requests.cpu": "1"}
        await clock.advance(31)
        assert await used(one.client) == {"count/pods": "1", "pods": "0", "requests.cpu": "0"}


async def test_a_controller_that_begins_anew_counts_anew() -> None:
    clock = VirtualClock()
    async with replicas(1, clock) as (one,):
        for name in ("a", "b"):
            await one.client.create(SECRETS, secret(name))
        await one.client.create(RESOURCE_QUOTAS, quota(secrets="5"))
        for _ in range(2):
            work = asyncio.create_task(kcm.run(InProcessClient(one.server, manager=kcm.MANAGER), clock, Rng(1)))
            await clock.advance(2)
            there = (await one.client.list(SECRETS, "default"))["items"]
            assert await used(one.client) == {"secrets": str(len(there))}
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            # While nobody counts.
            await one.client.delete(SECRETS, name_of(there[0]), "default")
