"""The agent of a cluster is deployed anew when its manifest would be another one, and only then."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from remuda.access.health.cluster_resources import NO_LOAD
from remuda.access.health.nodesync import management_node
from remuda.api.management_cattle_io import CLUSTERS
from remuda.api.management_cattle_io import NODES as MANAGEMENT_NODES
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.gateway.agents.agent_deployment import DEPLOYMENTS, AgentDeployment
from remuda.gateway.registration.agent_manifest import objects
from remuda.gateway.registration.import_manifest import wanted
from remuda.gateway.registration.registration_tokens import SECRETS, Registrations
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import Entropy, Rng
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, dig, name_of, namespace_of
from remuda.runtime import Manager
from tests.unit.gateway.management_gateway import Management, management
from tests.unit.gateway.registration.test_registration_tokens import crt_secret

Obj = dict[str, Any]
TOKEN, NEW = "b" * 54, "c" * 54
ID = "c-m-abcdefgh"


class One:
    """The port Downstreams with one cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.handlers: list[Callable[[str], None]] = []

    def get(self, cluster: str) -> One | None:
        return self if cluster == ID else None

    def is_connected(self, cluster: str) -> bool:
        return cluster == ID

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self.handlers.append(handler)
        return lambda: self.handlers.remove(handler)


class Place:
    def __init__(self, up: Management, below: InProcessClient) -> None:
        self.up = up
        self.below = below

    async def deployment(self) -> Obj:
        return await self.below.get(DEPLOYMENTS, "cattle-cluster-agent", "cattle-system")

    async def token(self) -> str:
        name = dig(await self.deployment(), "spec", "template", "spec", "volumes", 0, "secret", "secretName")
        secret = await self.below.get(SECRETS, name, "cattle-system")
        return base64.b64decode(secret["data"]["token"]).decode()

    async def image(self) -> str:
        return str(dig(await self.deployment(), "spec", "template", "spec", "containers", 0, "image"))

    async def rotate(self) -> None:
        data = crt_secret(ID, "default-token", token=NEW, previousToken=TOKEN, gracePeriodExpiresAt="2100-01-01T00:00:00Z")[
            "data"
        ]
        await self.up.client.patch(SECRETS, "crt-token-default-token", {"data": data}, ID)
        await self.up.settle(5)

    async def applied(self) -> None:
        """Somebody has applied the manifest."""
        made = await wanted(self.up.services, await self.up.client.get(CLUSTERS, ID), TOKEN, "https://remuda.test")
        for obj in objects(made):
            group, version, kind = GroupVersionKind.of(obj)
            await self.below.create(GroupVersionResource(group, version, f"{kind.lower()}s"), obj, namespace_of(obj))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(management())
        server = await Server.open(Config(data_dir=None, clock=up.clock, rng=Rng(4), entropy=Entropy(4)))
        stack.push_async_callback(server.close)
        registrations = Registrations(up.services)
        await up.namespace(ID)
        cluster = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": ID}, "spec": {}}
        await up.client.create(CLUSTERS, cluster)
        await up.client.create(SECRETS, crt_secret(ID, "default-token", token=TOKEN), ID)
        made = Place(up, InProcessClient(server, manager="kubectl"))
        manager = Manager(up.client, up.clock, Rng(3))
        manager.add(AgentDeployment(manager, up.services, registrations, One(InProcessClient(server, manager="remuda"))))
        running = asyncio.create_task(manager.run())
        try:
            await up.settle(2)
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_what_is_as_it_should_be_is_left_alone(place: Place) -> None:
    await place.applied()
    before = await place.deployment()
    await place.up.client.patch(CLUSTERS, ID, {"spec": {"description": "mine"}})
    await place.up.settle(5)
    assert await place.deployment() == before
    assert (await place.up.client.get(CLUSTERS, ID))["status"]["agentImage"] == await place.image()


async def test_a_new_token_reaches_the_agent_and_the_old_one_goes_when_it_has(place: Place) -> None:
    await place.applied()
    await place.rotate()
    assert await place.token() == NEW
    secrets = [name_of(each) for each in (await place.below.list(SECRETS, "cattle-system"))["items"]]
    assert len([name for name in secrets if name.startswith("cattle-credentials-")]) == 2
    found = await place.deployment()
    counted = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"observedGeneration": found["metadata"]["generation"], **counted}
    await place.below.patch(DEPLOYMENTS, name_of(found), {"status": status}, "cattle-system", subresource="status")
    await place.up.settle(700)
    secrets = [name_of(each) for each in (await place.below.list(SECRETS, "cattle-system"))["items"]]
    assert len([name for name in secrets if name.startswith("cattle-credentials-")]) == 1
    assert await place.token() == NEW


async def test_the_agent_follows_what_the_cluster_says_of_it(place: Place) -> None:
    await place.applied()
    variables = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    await place.up.client.patch(CLUSTERS, ID, {"spec": {"agentImageOverride": "mine:2", "agentEnvVars": variables}})
    await place.up.settle(5)
    assert await place.image() == "mine:2"
    status = (await place.up.client.get(CLUSTERS, ID))["status"]
    assert (status["agentImage"], status["appliedAgentEnvVars"]) == ("mine:2", variables)


async def test_a_cluster_that_we_provision_gets_it_by_its_plans(place: Place) -> None:
    await place.applied()
    before = await place.deployment()
    administrated = {"metadata": {"annotations": {"provisioning.cattle.io/administrated": "true"}}}
    await place.up.client.patch(CLUSTERS, ID, administrated)
    await place.rotate()
    assert await place.deployment() == before, "with the taints of its machines, which are not known here"
    assert (await place.up.client.get(CLUSTERS, ID))["status"]["agentImage"] == await place.image()
    await place.up.client.patch(CLUSTERS, ID, {"metadata": {"annotations": {"io.cattle.agent.force.deploy": "true"}}})
    await place.up.settle(5)
    assert await place.token() == NEW


def node(name: str, ready: str = "True", *, cordoned: bool = False) -> Obj:
    conditions = [{"type": "Ready", "status": ready}]
    spec = {"unschedulable": True} if cordoned else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


async def test_a_cluster_with_several_nodes_gets_a_second_agent(place: Place) -> None:
    async def replicas_with(*nodes: Obj) -> int:
        for each in (await place.below.list(NODES))["items"]:
            await place.below.delete(NODES, name_of(each))
        for each in nodes:
            await place.below.create(NODES, each)
            await place.below.patch(NODES, name_of(each), {"status": each["status"]}, subresource="status")
        # As the controller of nodes tells it.
        for listed in (await place.up.client.list(MANAGEMENT_NODES, ID))["items"]:
            await place.up.client.delete(MANAGEMENT_NODES, name_of(listed), ID)
        for each in nodes:
            told = management_node(ID, each, NO_LOAD, None, place.up.clock.time())
            await place.up.client.create(MANAGEMENT_NODES, told, ID)
        await place.up.settle(5)
        return int(dig(await place.deployment(), "spec", "replicas"))

    await place.applied()
    assert await replicas_with(node("a")) == 1
    assert await replicas_with(node("a"), node("b", "False")) == 1
    assert await replicas_with(node("a"), node("b", cordoned=True)) == 1
    assert await replicas_with(node("a"), node("b"), node("c")) == 2
    # A node that is away for a moment, or drained, does not take an agent away.
    assert await replicas_with(node("a"), node("b", "Unknown")) == 2
    assert await replicas_with(node("a")) == 1
    # Our own apply leaves the number to the scale; without the annotation it is the user's.
    await replicas_with(node("a"), node("b"))
    await place.rotate()
    assert await place.token() == NEW and dig(await place.deployment(), "spec", "replicas") == 2
    without = {"metadata": {"annotations": {"management.cattle.io/scale-available": None}}, "spec": {"replicas": 3}}
    await place.below.patch(DEPLOYMENTS, "cattle-cluster-agent", without, "cattle-system")
    assert await replicas_with(node("a"), node("b")) == 3


async def test_a_foreign_deployment_is_not_touched(place: Place) -> None:
    await place.applied()
    other = {"metadata": {"annotations": {"remuda.dev/made-for": "c-m-another"}}}
    await place.below.patch(DEPLOYMENTS, "cattle-cluster-agent", other, "cattle-system")
    before = await place.deployment()
    await place.rotate()
    assert await place.deployment() == before


async def test_an_agent_without_a_deployment_gets_none(place: Place) -> None:
    await place.rotate()
    assert (await place.below.list(DEPLOYMENTS))["items"] == []


async def test_it_can_be_asked_for(place: Place) -> None:
    await place.applied()
    await place.below.patch(
        DEPLOYMENTS, "cattle-cluster-agent", {"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}, "cattle-system"
    )
    await place.up.client.patch(CLUSTERS, ID, {"metadata": {"annotations": {"io.cattle.agent.force.deploy": "true"}}})
    await place.up.settle(5)
    assert dig(await place.deployment(), "spec", "template", "spec", "serviceAccountName") == "cattle"
    assert "io.cattle.agent.force.deploy" not in ((await place.up.client.get(CLUSTERS, ID))["metadata"].get("annotations") or {})
