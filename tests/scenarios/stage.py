"""Words that scenarios share, and :func:`following`, which checks something at every single write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.capi.well_known import CLUSTER_NAME, DEPLOYMENT_NAME, SET_NAME
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.infrastructure_provider import set_ready
from remuda.lab.sim.providers import HOLD, SIM_MACHINE_TEMPLATES
from remuda.lab.sim.workload_clusters import SimulatedCluster

Obj = dict[str, Any]
Scenario = Callable[[World], Awaitable[None]]
Check = Callable[[dict[str, Obj]], str]

PODS = GroupVersionResource("", "v1", "pods")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
NEXT_VERSION = "v1.36.4"


# --- reading -----------------------------------------------------------------------------------------------------------------


def condition(obj: Obj | None, kind: str) -> Obj:
    return next((each for each in dig(obj, "status", "conditions") or () if each["type"] == kind), {})


def is_available(machine: Obj) -> bool:
    return condition(machine, "Available").get("status") == "True" and not is_being_deleted(machine)


def runs(machine: Obj) -> bool:
    return bool(dig(machine, "status", "phase") == "Running")


def names(objects: list[Obj]) -> set[str]:
    return {name_of(obj) for obj in objects}


def deployment_label(cluster: str) -> str:
    return f"{DEPLOYMENT_NAME}={cluster}-md"


async def workers(world: World, cluster: str) -> list[Obj]:
    """The Machines of the cluster's MachineDeployment, the oldest first."""
    return by_age(await world.all(MACHINES, deployment_label(cluster)))


async def of_set(world: World, name: str) -> list[Obj]:
    return by_age(await world.all(MACHINES, f"{SET_NAME}={name}"))


def by_age(objects: list[Obj]) -> list[Obj]:
    return sorted(objects, key=lambda obj: (obj["metadata"]["creationTimestamp"], name_of(obj)))


def workload(world: World, cluster: str) -> SimulatedCluster:
    found = world.clusters.get(Key(world.namespace, cluster))
    assert found is not None
    return found


async def is_at(world: World, resource: GroupVersionResource, name: str, kind: str, reason: str) -> bool:
    return condition(await world.find(resource, name), kind).get("reason") == reason


# --- doing -------------------------------------------------------------------------------------------------------------------


async def running(world: World, cluster: str, count: int = 2, **deployment: Any) -> None:
    """A cluster with a control plane and so many workers, all running."""
    await world.add_cluster(cluster, workers=count, deployment=deployment)
    await all_run(world, cluster, count + 1)


async def all_run(world: World, cluster: str, count: int) -> None:
    await world.until(f"{count} machines of {cluster} run", lambda: world.running(cluster, count))


async def hold(world: World, resource: GroupVersionResource, name: str, held: bool = True) -> None:
    """From here on a scenario plays the provider of an object; or no longer."""
    await world.patch(resource, name, {"metadata": {"annotations": {HOLD: "" if held else None}}})


async def hold_clones(world: World, template: str, held: bool = True) -> None:
    """The same for every infra machine that is made of a template from here on."""
    annotations = {"annotations": {HOLD: "" if held else None}}
    await world.patch(SIM_MACHINE_TEMPLATES, template, {"spec": {"template": {"metadata": annotations}}})


async def turn(world: World, cluster: str, machine: Obj, ready: bool) -> None:
    """Let the node of a machine be Ready, or let it fall silent."""
    await set_ready(workload(world, cluster), dig(machine, "status", "nodeRef", "name"), ready, world.clock.time())


# --- at every write ----------------------------------------------------------------------------------------------------------


class Following:
    """Everything of some resources that carries a label, as the API tells of it; `check` says what is wrong, or nothing."""

    def __init__(self, world: World, check: Check | None = None) -> None:
        self._world = world
        self._check = check
        self.objects: dict[GroupVersionResource, dict[str, Obj]] = {}
        self.seen = 0
        self.wrong: list[str] = []
        self._actions: dict[int, Callable[[], Awaitable[None]]] = {}

    def at(self, write: int, action: Callable[[], Awaitable[None]]) -> None:
        """Do something right after so many writes were seen."""
        self._actions[write] = action

    async def run(self, resource: GroupVersionResource, labels: str, started: asyncio.Event) -> None:
        while True:
            try:
                await self._follow(resource, labels, started)
            except ApiError as error:
                # A real server forgets what was when the definition of a kind changes; then all is read again.
                if error.code != 410:
                    raise

    async def _follow(self, resource: GroupVersionResource, labels: str, started: asyncio.Event) -> None:
        world, objects = self._world, self.objects.setdefault(resource, {})
        listed = await world.client.list(resource, world.namespace, labels=labels)
        objects.clear()
        objects.update({name_of(obj): obj for obj in listed["items"]})
        revision = listed["metadata"]["resourceVersion"]
        started.set()
        while True:
            watch = world.client.watch(resource, world.namespace, labels=labels, resource_version=revision)
            async for event in watch:
                revision = event.object["metadata"]["resourceVersion"]
                if event.type == "BOOKMARK":
                    continue
                if event.type == "DELETED":
                    objects.pop(name_of(event.object), None)
                else:
                    objects[name_of(event.object)] = event.object
                await self._happened(objects)

    async def _happened(self, objects: dict[str, Obj]) -> None:
        self.seen += 1
        if self._check is not None and (wrong := self._check(objects)):
            self.wrong.append(f"after write {self.seen}: {wrong}")
        if (action := self._actions.pop(self.seen, None)) is not None:
            await action()


@contextlib.asynccontextmanager
async def following(
    world: World, *resources: GroupVersionResource, labels: str = "", check: Check | None = None
) -> AsyncIterator[Following]:
    """Follow Machines, or whatever is named, for the length of a block. If `check` ever found something, the block fails."""
    found = Following(world, check)
    started = [asyncio.Event() for _ in resources or (MACHINES,)]
    tasks = [
        asyncio.create_task(found.run(resource, labels, event))
        for resource, event in zip(resources or (MACHINES,), started, strict=True)
    ]
    try:
        await asyncio.gather(*(event.wait() for event in started))
        yield found
        for task in tasks:
            if task.done():
                task.result()
        assert not found.wrong, "\n".join(found.wrong[:10])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ignoring_gone(call: Awaitable[Any]) -> None:
    try:
        await call
    except ApiError as error:
        if not error.is_not_found:
            raise


def of_cluster(cluster: str) -> str:
    return f"{CLUSTER_NAME}={cluster}"
