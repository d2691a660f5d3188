"""The controllers of node drivers on a real kube-apiserver: kinds come, change as far as objects allow, and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.access.rancher_conditions import is_true
from remuda.api.management_cattle_io import NODE_DRIVERS
from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.machines.nodedrivers.builtin_drivers import builtin
from remuda.machines.nodedrivers.dynamicschema import DynamicSchemas
from remuda.machines.nodedrivers.flag_sources import Sources
from remuda.machines.nodedrivers.nodedriver import NodeDrivers
from remuda.runtime import Manager
from tests.unit.machines.nodedrivers.node_drivers import CONFIGS, NOWHERE, config

from .test_rancher_crds import served, there, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

Obj = dict[str, Any]
_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


async def kinds(client: HttpsClient) -> set[str]:
    found = (await client.list(CRDS, labels="auth.cattle.io/cluster-indexed=true"))["items"]
    return {
        name_of(each).partition(".")[0]
        for each in found
        if each["spec"]["group"].startswith("rke-machine")
        and any(one["type"] == "Established" and one["status"] == "True" for one in dig(each, "status", "conditions") or ())
    }


def of(driver: str) -> set[str]:
    return {f"{driver}{kind}" for kind in ("configs", "machines", "machinetemplates")}


async def test_kinds_come_and_go_on_a_real_api_server() -> None:
    async with served() as client:
        await client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet-default"}})
        manager = Manager(client, SYSTEM_CLOCK, Rng())
        manager.add(NodeDrivers(manager, Sources(SYSTEM_CLOCK, NOWHERE)))
        manager.add(DynamicSchemas(manager))
        running = asyncio.create_task(manager.run())
        try:
            await _one_life(client)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _one_life(client: HttpsClient) -> None:
    active = {name for name, each in builtin().items() if each.active}
    everything = set().union(*(of(name) for name in active))

    async def all_there() -> bool:
        return await kinds(client) == everything

    await until(all_there)

    async def azure() -> bool:
        return is_true(await client.get(NODE_DRIVERS, "azure"), "Active")

    await until(azure)
    made = await until(lambda: _created(client))
    assert (made["location"], made["noPublicIp"]) == ("westus", False)

    # It is made beside the others, in no order.
    await until(lambda: there(client, NODE_DRIVERS, "exoscale"))
    await client.patch(NODE_DRIVERS, "exoscale", {"spec": {"active": True}})

    async def exoscale() -> bool:
        return of("exoscale") <= await kinds(client)

    await until(exoscale)
    await client.patch(NODE_DRIVERS, "exoscale", {"spec": {"active": False}})
    await client.patch(NODE_DRIVERS, "azure", {"spec": {"active": False}})

    async def without_exoscale() -> bool:
        return not of("exoscale") & await kinds(client)

    await until(without_exoscale)
    assert of("azure") <= await kinds(client), "there is a config"


async def _created(client: HttpsClient) -> Obj | None:
    """A server takes up a kind a moment after it established it, and may have to take it up anew."""
    try:
        return await client.create(CONFIGS, config(size="Standard_D4"), "fleet-default")
    except ApiError as error:
        if error.code in (404, 429, 503):
            return None
        raise
