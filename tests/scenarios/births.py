"""How clusters and machines come up, whatever comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_SETS, MACHINES
from remuda.kube.objects import dig, owner_references_of
from remuda.lab.sim.capi_world import DEFAULT_VERSION, World
from remuda.lab.sim.providers import (
    BOOTSTRAP,
    CONTROL_PLANE,
    INFRASTRUCTURE,
    SIM_CLUSTERS,
    SIM_CONFIG_TEMPLATES,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
    ref,
)

from .stage import all_run, condition, of_set, running

Obj = dict[str, Any]
Piece = Callable[[], Awaitable[Obj]]


async def a_cluster_comes_up(world: World) -> None:
    name = "birth"
    await running(world, name, 3)

    async def counted() -> bool:
        cluster = await world.get(CLUSTERS, name)
        return (
            condition(cluster, "Available").get("status") == "True"
            and dig(cluster, "status", "workers", "availableReplicas") == 3
            and dig(cluster, "status", "phase") == "Provisioned"
        )

    await world.until("the cluster is available", counted)
    for machine in await world.machines(name):
        assert machine["status"]["nodeRef"]["name"]
        assert machine["spec"]["providerID"].startswith("sim.remuda.dev://")


# --- any order ---------------------------------------------------------------------------------------------------------------


def cluster_pieces(world: World, name: str) -> dict[str, Piece]:
    """What makes a cluster with a control plane of one, each piece by itself."""
    template: Obj = {"template": {"spec": {}}}
    machine_template = {"spec": {"infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", name)}}
    plane = {"replicas": 1, "version": DEFAULT_VERSION, "machineTemplate": machine_template}
    spec = {
        "infrastructureRef": ref(INFRASTRUCTURE, "SimCluster", name),
        "controlPlaneRef": ref(CONTROL_PLANE, "SimControlPlane", name),
    }
    return {
        "cluster": lambda: world.create(CLUSTERS, world.core_object("Cluster", name, spec)),
        "infra-cluster": lambda: world.create(SIM_CLUSTERS, world.thing(INFRASTRUCTURE, "SimCluster", name)),
        "plane": lambda: world.create(SIM_CONTROL_PLANES, world.thing(CONTROL_PLANE, "SimControlPlane", name, plane)),
        "machine-template": lambda: world.create(
            SIM_MACHINE_TEMPLATES, world.thing(INFRASTRUCTURE, "SimMachineTemplate", name, template)
        ),
    }


def machine_pieces(world: World, name: str) -> dict[str, Piece]:
    """The same with a Machine of nobody's, `<name>-m`, and its provider objects."""
    own = f"{name}-m"
    spec = {
        "clusterName": name,
        "version": DEFAULT_VERSION,
        "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfig", own)},
        "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", own),
    }
    return {
        **cluster_pieces(world, name),
        "machine": lambda: world.create(MACHINES, world.core_object("Machine", own, spec)),
        "config": lambda: world.create(SIM_CONFIGS, world.thing(BOOTSTRAP, "SimConfig", own)),
        "infra-machine": lambda: world.create(SIM_MACHINES, world.thing(INFRASTRUCTURE, "SimMachine", own)),
    }


def set_pieces(world: World, name: str) -> dict[str, Piece]:
    """The same with a MachineSet of nobody's, `<name>-s`, of two, and its templates."""
    own = f"{name}-s"
    template: Obj = {"template": {"spec": {}}}
    spec = {"clusterName": name, "replicas": 2, "selector": {}, "template": {"spec": world.machine_spec(name, template=own)}}
    return {
        **cluster_pieces(world, name),
        "set": lambda: world.create(MACHINE_SETS, world.core_object("MachineSet", own, spec)),
        "config-template": lambda: world.create(SIM_CONFIG_TEMPLATES, world.thing(BOOTSTRAP, "SimConfigTemplate", own, template)),
        "infra-template": lambda: world.create(
            SIM_MACHINE_TEMPLATES, world.thing(INFRASTRUCTURE, "SimMachineTemplate", own, template)
        ),
    }


MACHINE_PIECES = ("cluster", "infra-cluster", "plane", "machine-template", "machine", "config", "infra-machine")
SET_PIECES = ("cluster", "infra-cluster", "plane", "machine-template", "set", "config-template", "infra-template")


async def create(world: World, pieces: dict[str, Piece], order: Sequence[str], pause: float) -> None:
    for piece in order:
        await pieces[piece]()
        if pause:
            await world.settle(pause)


async def a_machine_alone(world: World, order: Sequence[str] = MACHINE_PIECES, pause: float = 0.0, name: str = "alone") -> None:
    await create(world, machine_pieces(world, name), order, pause)
    await all_run(world, name, 2)
    machine = await world.get(MACHINES, f"{name}-m")
    assert [owner["kind"] for owner in owner_references_of(machine)] == ["Cluster"]
    for resource in (SIM_MACHINES, SIM_CONFIGS):
        assert [owner["kind"] for owner in owner_references_of(await world.get(resource, f"{name}-m"))] == ["Machine"]


async def a_set_alone(world: World, order: Sequence[str] = SET_PIECES, pause: float = 0.0, name: str = "herdset") -> None:
    await create(world, set_pieces(world, name), order, pause)
    await all_run(world, name, 3)
    machines = await of_set(world, f"{name}-s")
    assert len(machines) == 2
    for machine in machines:
        assert [owner["kind"] for owner in owner_references_of(machine)] == ["MachineSet"]
