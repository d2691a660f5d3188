"""What the gateway gives to provisioning: the agent's manifest, our own images, install scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda import __version__
from remuda.api import management_cattle_io as management
from remuda.app.rehearsal import provisioning
from remuda.gateway.provisioning_port import ProvisioningPort
from remuda.kube.encoding import yamlio
from remuda.kube.objects import dig
from remuda.lab.sim.provisioning_world import URL, ProvisioningWorld
from remuda.provisioning.planner.render import Taint
from remuda.provisioning.releases.distributions import K3S, REMUDA
from tests.scenarios.provisioned import DEMO, FROM

Obj = dict[str, Any]
HOST = URL.removeprefix("https://")


@asynccontextmanager
async def doors() -> AsyncIterator[tuple[ProvisioningWorld, ProvisioningPort, str]]:
    async with provisioning() as world:
        managed = await world.want(DEMO, FROM)
        await world.settle(5)
        yield world, ProvisioningPort(world.gateway, world.gateway.services.informers), managed


async def deployment(door: ProvisioningPort, managed: str, *taints: Taint) -> Obj:
    manifest = await door.agent_manifest(managed)
    assert manifest is not None
    found: list[Obj] = [each for each in yamlio.loads_all(manifest(taints)) if each["kind"] == "Deployment"]
    return found[0]


def image(found: Obj) -> str:
    return str(dig(found, "spec", "template", "spec", "containers", 0, "image"))


async def test_clusters_get_our_agent_unless_another_image_is_set() -> None:
    async with doors() as (world, door, managed):
        await world.settle(2)
        assert image(await deployment(door, managed)) == f"{HOST}/remuda/cluster-agent:{__version__}"
        for runtime in (REMUDA, K3S):
            registry = door.registry(managed, runtime)
            assert registry is not None and registry.host == HOST and registry.ca.startswith("-----BEGIN CERTIFICATE-----")
        await world.client.patch(management.SETTINGS, "agent-image", {"value": "example.com/agent:1"})
        await world.settle(2)
        assert image(await deployment(door, managed)) == "example.com/agent:1"
        # Our distribution's own installers are here still.
        assert door.registry(managed, REMUDA) is not None
        assert door.registry(managed, K3S) is None


async def test_the_agent_tolerates_the_taints_of_the_machine_that_brings_it() -> None:
    async with doors() as (world, door, managed):
        await world.settle(2)
        taints = (Taint("a", "b", "NoSchedule"), Taint("c", effect="NoExecute"))
        found = await deployment(door, managed, *taints)
        assert dig(found, "spec", "template", "spec", "tolerations")[:-2] == [
            {"key": "a", "value": "b", "effect": "NoSchedule"},
            {"key": "c", "effect": "NoExecute", "operator": "Exists"},
        ]
        bare = await deployment(door, managed)
        # What it does when its node is away is not a taint of a machine's.
        assert len(dig(bare, "spec", "template", "spec", "tolerations")) == 2


async def test_a_manifest_is_made_again_only_when_it_is_another_one() -> None:
    async with doors() as (world, door, managed):
        await world.settle(2)
        first = await door.agent_manifest(managed)
        assert await door.agent_manifest(managed) is first
        await world.client.patch(management.SETTINGS, "server-url", {"value": "https://elsewhere.test"})
        await world.settle(2)
        second = await door.agent_manifest(managed)
        assert second is not None and second is not first and "https://elsewhere.test" in second(())


@pytest.mark.parametrize("cluster", ["c-m-unknown1"])
async def test_without_a_cluster_there_is_no_manifest(cluster: str) -> None:
    async with doors() as (_, door, _managed):
        assert await door.agent_manifest(cluster) is None


async def test_scripts_say_where_the_server_is_and_what_the_host_shows() -> None:
    async with doors() as (world, door, _):
        await world.settle(2)
        text = (
            door.script({"metadata": {"namespace": "fleet-default"}, "spec": {"clusterName": DEMO}}, "sesame") or b""
        ).decode()
        assert "CATTLE_AGENT_VAR_DIR='" not in text
        assert f"CATTLE_SERVER='{URL}'" in text and 'CATTLE_TOKEN="sesame"' in text and "CATTLE_CA_CHECKSUM=" in text


async def test_scripts_of_machines_say_where_the_agent_keeps_its_state() -> None:
    async with doors() as (world, door, _):
        await world.want("moved", FROM, dataDirectories={"systemAgent": "/srv/agent"})
        await world.settle(5)
        bootstrap = {"metadata": {"namespace": "fleet-default"}, "spec": {"clusterName": "moved"}}
        assert b"\nexport CATTLE_AGENT_VAR_DIR='/srv/agent'\n" in (door.script(bootstrap, "sesame") or b"")
