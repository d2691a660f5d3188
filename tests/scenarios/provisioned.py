"""What one asks of a world in which clusters are provisioned, and what one does to it."""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import conditions_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import GroupVersionResource, dig, labels_of, name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import INIT_NODE, NODE_NAME, plan_name

Obj = dict[str, Any]

NODES = GroupVersionResource("", "v1", "nodes")
FROM, TO = "v1.34.1+remuda1", "v1.34.2+remuda1"
DEMO = "demo"
# Written for ever, or for a while, whatever happens to clusters.
# The list of departed clusters' tokens is there to outlive them, and is bounded.
_PASSING = ("/registry/events/", "/registry/leases/", "/registry/configmaps/cattle-system/departed-tokens")


async def build(world: ProvisioningWorld, roles: list[str], **config: Any) -> list[SimulatedHost]:
    """The cluster `demo` of hosts with these roles, up and ready."""
    await world.want(DEMO, FROM, **config)
    hosts = [await world.host(DEMO, f"h{number}", role) for number, role in enumerate(roles)]
    await ready(world)
    return hosts


async def ready(world: ProvisioningWorld, seconds: float = 900.0) -> None:
    # What somebody has just written is told first.
    await world.settle(1)
    await world.until("the cluster is ready", lambda: world.is_ready(DEMO), seconds)


async def change(world: ProvisioningWorld, **spec: Any) -> None:
    await world.client.patch(provisioning.CLUSTERS, DEMO, {"spec": spec}, WORKSPACE)


async def conditions(
    world: ProvisioningWorld, resource: GroupVersionResource, name: str = DEMO, namespace: str = WORKSPACE
) -> Obj:
    found = conditions_of(await world.client.get(resource, name, namespace))
    return {each["type"]: each["status"] for each in found}


async def message(world: ProvisioningWorld) -> str:
    """What the control plane says it waits for."""
    found = conditions_of(await world.control_plane(DEMO))
    return next((str(each.get("message") or "") for each in found if each["type"] == "Ready"), "")


async def machine_of(world: ProvisioningWorld, host: SimulatedHost) -> Obj:
    found = [each for each in await world.machines(DEMO) if labels_of(each).get(NODE_NAME) == host.name]
    assert len(found) == 1, [name_of(each) for each in found]
    return found[0]


async def plan_of(world: ProvisioningWorld, host: SimulatedHost) -> Obj:
    return await world.client.get(SECRETS, plan_name(name_of(await machine_of(world, host))), WORKSPACE)


async def plans(world: ProvisioningWorld) -> dict[str, bytes]:
    """The plan of each host."""
    found = {}
    for machine in await world.machines(DEMO):
        delivered = decode(await world.client.get(SECRETS, plan_name(name_of(machine)), WORKSPACE))
        assert delivered is not None
        found[labels_of(machine)[NODE_NAME]] = delivered.data
    return found


async def init_nodes(world: ProvisioningWorld) -> list[str]:
    found = []
    for machine in await world.machines(DEMO):
        secret = await world.client.get(SECRETS, plan_name(name_of(machine)), WORKSPACE)
        if labels_of(secret).get(INIT_NODE) == "true":
            found.append(labels_of(machine)[NODE_NAME])
    return found


async def nodes(world: ProvisioningWorld) -> dict[str, str]:
    """The nodes of the cluster, and their versions."""
    listed = (await world.distribution(DEMO).cluster.client.list(NODES))["items"]
    return {name_of(each): dig(each, "status", "nodeInfo", "kubeletVersion") for each in listed}


async def everything(world: ProvisioningWorld) -> dict[str, int]:
    """All that is stored, and the revision of each."""
    found = await world.server.store.range("/registry/")
    return {entry.key: entry.mod_revision for entry in found.items if not entry.key.startswith(_PASSING)}


async def delete(world: ProvisioningWorld) -> None:
    await world.client.delete(provisioning.CLUSTERS, DEMO, WORKSPACE)

    async def gone() -> bool:
        listed = (await world.client.list(provisioning.CLUSTERS, WORKSPACE))["items"]
        return not [each for each in listed if name_of(each) == DEMO]

    await world.until("the cluster is gone", gone)
    # Requests of hosts stay for a minute, and garbage is collected when it is found.
    await world.settle(120)
