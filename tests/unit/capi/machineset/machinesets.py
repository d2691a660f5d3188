"""What the tests of MachineSets share: objects, and what the machine controller would do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION, MACHINE_SETS, MACHINES
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.machineset import MachineSets
from remuda.kube.clock import VirtualClock, rfc3339
from remuda.kube.conditions import with_condition, with_legacy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, is_being_deleted, name_of
from tests.unit.capi.memory_clusters import NAMESPACE, TEST_CONFIGS, TEST_MACHINES, World, core_object, machine_spec, world

Obj = dict[str, Any]

CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
NOW = 1_800_000_000.0


def machine_set(name: str = "ms", replicas: int | None = 3, **spec: Any) -> Obj:
    """One that the webhooks would let through."""
    labels = {"app": name, CLUSTER_LABEL: "c1"}
    template = {"metadata": {"labels": labels}, "spec": machine_spec("t")}
    wanted = {"clusterName": "c1", "selector": {"matchLabels": dict(labels)}, "template": template, **spec}
    if replicas is not None:
        wanted["replicas"] = replicas
    return core_object("MachineSet", name, wanted)


def machine(name: str, *conditions: tuple[str, ...], age: float = 0.0, deleting: float | None = None, **fields: Any) -> Obj:
    """A machine as a snapshot has it; conditions are (type, status[, reason[, message]])."""
    meta: Obj = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": rfc3339(NOW - age)}
    meta |= {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}
    if deleting is not None:
        meta["deletionTimestamp"] = rfc3339(NOW - deleting)
    found: Obj = {"apiVersion": API_VERSION, "kind": "Machine", "metadata": meta, "spec": {}, **fields}
    for kind, status, *rest in conditions:
        reason, message = (*rest, "", "")[:2]
        found = with_condition(found, kind, status, reason or "Because", message, now=NOW - age)
    return found


NODE = {"status": {"nodeRef": {"name": "node"}}}


@asynccontextmanager
async def herd(options: ControllerOptions = ControllerOptions(), *, ready: bool = True) -> AsyncIterator[World]:  # noqa: B008 - a constant
    """A cluster whose control plane is there, two templates `t`, and the controller of MachineSets."""
    async with world(MachineSets, options=options) as made:
        await made.cluster()
        if ready:
            await made.patch(_CONTROL_PLANES, "c1", {"spec": {"version": "v1.36.3"}})
            await made.initialize_control_plane("c1")
        await made.templates("t")
        yield made


_CONTROL_PLANES = GroupVersionResource("controlplane.test.io", "v1", "testcontrolplanes")


async def make(world: World, obj: Obj) -> Obj:
    await world.create(MACHINE_SETS, obj)
    await world.settle()
    return await world.get(MACHINE_SETS, name_of(obj))


async def names(world: World, resource: GroupVersionResource = MACHINES) -> list[str]:
    return sorted(name_of(each) for each in await world.list(resource))


async def everything(world: World) -> tuple[list[str], list[str], list[str]]:
    return await names(world), await names(world, TEST_MACHINES), await names(world, TEST_CONFIGS)


async def finish_deletions(world: World) -> list[str]:
    """What the machine controller does last; the names of the machines that went."""
    going = [name_of(each) for each in await world.list(MACHINES) if is_being_deleted(each)]
    for name in going:
        await world.patch(MACHINES, name, {"metadata": {"finalizers": None}})
    await world.settle()
    return going


async def say(world: World, name: str, **conditions: str) -> None:
    """Conditions of a machine, of both sets."""
    found = await world.get(MACHINES, name)
    for kind, status in conditions.items():
        found = with_condition(found, kind, status, "Test", now=world.clock.time())
        found = with_legacy(found, kind, status, "" if status == "True" else "Test", now=world.clock.time())
    await world.patch(MACHINES, name, {"status": found["status"]}, "status")


async def give_node(world: World, name: str) -> None:
    await world.patch(MACHINES, name, {"status": {"nodeRef": {"name": f"node-{name}"}}}, "status")
    await say(world, name, Ready="True", Available="True", UpToDate="True", NodeHealthy="True")


class Refusing:
    """A client that refuses some writes."""

    def __init__(self, client: Any, refuses: Callable[[str, GroupVersionResource], bool]) -> None:
        self._client = client
        self._refuses = refuses

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._client, verb)
        if verb not in ("apply", "create", "delete", "patch"):
            return found

        async def call(resource: GroupVersionResource, *args: Any, **options: Any) -> Any:
            if self._refuses(verb, resource):
                raise ApiError(500, "InternalError", f"no {verb} of {resource.resource} today")
            return await found(resource, *args, **options)

        return call


class Slow:
    """A client whose creations of machines take their time."""

    def __init__(self, client: Any, clock: VirtualClock, seconds: float) -> None:
        self._client = client
        self._clock = clock
        self._seconds = seconds

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._client, verb)

    async def apply(self, resource: GroupVersionResource, *args: Any, **options: Any) -> Any:
        if resource == MACHINES:
            await self._clock.sleep(self._seconds)
        return await self._client.apply(resource, *args, **options)
