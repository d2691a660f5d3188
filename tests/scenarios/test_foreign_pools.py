"""Pools on infrastructure of somebody else: our script, and what the user wants done besides, in one cloud-config."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.crd_installation import established, install
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.lab.sim.providers import INFRASTRUCTURE, SIM_CLUSTERS, SIM_MACHINE_TEMPLATES, crds
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld

from .foreign import ENDPOINT, ForeignProvider
from .provisioned import DEMO, FROM, change, delete, nodes, ready

Obj = dict[str, Any]
API = f"{INFRASTRUCTURE}/v1"
USERDATA = "#cloud-config\npackages: [htop]\nruncmd:\n- echo mine\nwrite_files:\n- {path: /etc/mine, content: x}\n"


def pool(name: str, roles: tuple[str, ...], quantity: int = 1, userdata: str = "") -> Obj:
    said = {"userdata": {"inlineUserdata": userdata}} if userdata else {}
    ref = {"apiVersion": API, "kind": "SimMachineTemplate", "name": "theirs"}
    return {"name": name, "quantity": quantity, "machineConfigRef": ref, **{f"{role}Role": True for role in roles}, **said}


SERVERS = pool("servers", ("etcd", "controlPlane"))
WORKERS = pool("workers", ("worker",), 2, USERDATA)
REF = {"apiVersion": API, "kind": "SimCluster", "name": DEMO}


@asynccontextmanager
async def foreign() -> AsyncIterator[tuple[ProvisioningWorld, ForeignProvider]]:
    async with provisioned() as world:
        installing = asyncio.create_task(_install(world))
        while not installing.done():
            await world.settle(0.1)
        installing.result()
        provider = ForeignProvider(world)
        running = asyncio.create_task(provider.run(), name="foreign")
        world.besides.append(running)
        try:
            yield world, provider
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _install(world: ProvisioningWorld) -> None:
    await established(world.client, world.clock, await install(world.client, world.clock, crds(), in_process=True))


async def make(world: ProvisioningWorld, resource: GroupVersionResource, kind: str, name: str, spec: Obj) -> None:
    meta = {"name": name, "namespace": WORKSPACE}
    await world.client.create(resource, {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}, WORKSPACE)


async def test_another_providers_machines_become_a_cluster() -> None:
    async with foreign() as (world, provider):
        await make(world, SIM_CLUSTERS, "SimCluster", DEMO, {})
        await make(world, SIM_MACHINE_TEMPLATES, "SimMachineTemplate", "theirs", {"template": {"spec": {"size": "s"}}})
        await world.want(DEMO, FROM, infrastructureRef=REF, machinePools=[SERVERS, WORKERS])
        await ready(world)
        assert len(await nodes(world)) == 3
        assert (await world.client.get(capi.CLUSTERS, DEMO, WORKSPACE))["spec"]["controlPlaneEndpoint"] == ENDPOINT
        for name, said in provider.started.items():
            mine = "-workers-" in name
            assert said["runcmd"][1:] == (["echo mine"] if mine else [])
            assert [each["path"] for each in said["write_files"]][1:] == (["/etc/mine"] if mine else [])
            assert said.get("packages") == (["htop"] if mine else None)
        # What is another's template can't be used by a second cluster.
        with pytest.raises(ApiError, match="this SimMachineTemplate belongs to the cluster demo"):
            await world.want("other", FROM, infrastructureRef={**REF, "name": "other"}, machinePools=[SERVERS])
        # Other data is for other machines.
        before = {name_of(each) for each in await world.machines(DEMO)}
        workers = pool("workers", ("worker",), 2, USERDATA.replace("htop", "btop"))
        await change(world, rkeConfig={"machinePools": [SERVERS, workers]})

        async def rolled() -> bool:
            found = await world.machines(DEMO)
            running = all(dig(each, "status", "phase") == "Running" for each in found)
            return len(found) == 3 and running and len(before & {name_of(each) for each in found}) == 1

        await world.until("the workers are others", rolled)
        assert {tuple(each.get("packages") or ()) for each in provider.started.values()} == {(), ("htop",), ("btop",)}
        await delete(world)
        assert provider.hosts == {}
        left = (await world.client.list(provisioning.CLUSTERS, WORKSPACE))["items"]
        assert [name_of(each) for each in left] == []


async def test_what_is_no_cloud_config_is_said_and_nothing_is_made_with_it() -> None:
    async with foreign() as (world, provider):
        await make(world, SIM_CLUSTERS, "SimCluster", DEMO, {})
        await make(world, SIM_MACHINE_TEMPLATES, "SimMachineTemplate", "theirs", {"template": {"spec": {}}})
        wrong = pool("servers", ("etcd", "controlPlane", "worker"), 1, "#!/bin/sh\necho no")
        with pytest.raises(ApiError, match=r"machinePools\[0\].userdata.inlineUserdata"):
            await world.want(DEMO, FROM, infrastructureRef=REF, machinePools=[wrong])
        assert provider.started == {}
