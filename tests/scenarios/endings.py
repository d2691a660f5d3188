"""How machines and clusters go: what they wait for, and that nothing is left of them, whenever they are told to."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_DRAIN_RULES, MACHINE_SETS, MACHINES
from remuda.kube.builtin_resources import NODES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, is_being_deleted, name_of
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import SIM_CLUSTERS, SIM_CONFIGS, SIM_CONTROL_PLANES, SIM_MACHINES

from .ending import SECRETS
from .stage import (
    BUDGETS,
    PODS,
    all_run,
    condition,
    deployment_label,
    following,
    hold,
    ignoring_gone,
    is_at,
    names,
    of_cluster,
    running,
    workers,
    workload,
)

Obj = dict[str, Any]
PRE_DRAIN = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
PRE_TERMINATE = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/ledger"


# --- one machine -------------------------------------------------------------------------------------------------------------


async def _pod(world: World, cluster: str, name: str, node: str, **labels: str) -> None:
    meta = {"name": name, "namespace": "default", "labels": labels}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]},
    }
    client = workload(world, cluster).client
    await client.create(PODS, pod, "default")

    async def up() -> bool:
        return bool((await client.get(PODS, name, "default"))["status"].get("phase") == "Running")

    await world.until(f"pod {name} runs", up)


async def _pods(world: World, cluster: str) -> set[str]:
    return names((await workload(world, cluster).client.list(PODS, "default"))["items"])


async def _has_left(world: World, cluster: str, pod: str) -> bool:
    return pod not in await _pods(world, cluster)


async def a_budget_blocks_the_drain(world: World) -> None:
    name = "budget"
    await running(world, name, 1)
    (machine,) = names(await workers(world, name))
    client = workload(world, name).client
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "default"}}
    await client.create(BUDGETS, {**budget, "spec": spec}, "default")
    await _pod(world, name, "db", machine, app="db")
    await _pod(world, name, "web", machine, app="web")

    async def counted() -> bool:
        found = await client.get(BUDGETS, "db", "default")
        return bool((found.get("status") or {}).get("currentHealthy") == 1)

    await world.until("the budget counts its pod", counted)
    await world.delete(MACHINES, machine)

    async def blocked() -> bool:
        told = condition(await world.get(MACHINES, machine), "Deleting")
        return told.get("reason") == "DrainingNode" and "disruption budget" in told["message"]

    await world.until("the drain is blocked, and says by what", blocked)
    await world.until("the other pod goes", lambda: _has_left(world, name, "web"))
    await world.settle(30)
    assert await _pods(world, name) == {"db"}
    assert not is_being_deleted(await world.get(SIM_MACHINES, machine))
    assert (await client.get(NODES, machine))["spec"]["unschedulable"] is True
    await client.delete(BUDGETS, "db", "default")
    await world.until("it is gone", lambda: world.gone(MACHINES, machine))
    assert await _pods(world, name) == set()
    await all_run(world, name, 2)


async def rules_order_the_drain(world: World) -> None:
    """By rule one pod goes last, one is not drained, and one is waited for."""
    name = "rules"
    await running(world, name, 1)
    (machine,) = names(await workers(world, name))
    for behavior, app, order in (("Drain", "late", 10), ("Skip", "agent", None), ("WaitCompleted", "job", None)):
        drain: Obj = {"behavior": behavior, **({} if order is None else {"order": order})}
        selectors: Obj = {
            "pods": [{"selector": {"matchLabels": {"app": app}}}],
            "machines": [{"clusterSelector": {"matchLabels": {"drained": name}}}],
        }
        rule = world.core_object("MachineDrainRule", f"{name}-{app}", {"drain": drain, **selectors})
        await world.create(MACHINE_DRAIN_RULES, rule)
    await world.patch(CLUSTERS, name, {"metadata": {"labels": {"drained": name}}})
    # Caches of different kinds come to know things in no order.
    await world.settle(2)
    for app in ("web", "late", "agent", "job"):
        await _pod(world, name, app, machine, app=app)
    await world.delete(MACHINES, machine)

    async def waits() -> bool:
        return "job" in condition(await world.get(MACHINES, machine), "Deleting").get("message", "")

    await world.until("the job is waited for", waits)
    await world.until("the pod without a rule goes", lambda: _has_left(world, name, "web"))
    await world.settle(30)
    client = workload(world, name).client
    assert {"agent", "job"} <= await _pods(world, name)
    await client.delete(PODS, "job", "default", grace_seconds=0)
    await world.until("it is gone", lambda: world.gone(MACHINES, machine))
    assert "late" not in await _pods(world, name)
    await all_run(world, name, 2)
    for app in ("late", "agent", "job"):
        await world.delete(MACHINE_DRAIN_RULES, f"{name}-{app}")


async def a_drain_gives_up(world: World) -> None:
    name = "patience"
    spec = {**world.machine_spec(name), "deletion": {"nodeDrainTimeoutSeconds": 20}}
    await running(world, name, 1, template={"spec": spec})
    (machine,) = names(await workers(world, name))
    await world.create(
        MACHINE_DRAIN_RULES,
        world.core_object(
            "MachineDrainRule",
            name,
            {
                "drain": {"behavior": "WaitCompleted"},
                "pods": [{"selector": {"matchLabels": {"app": "forever"}}}],
                "machines": [{"clusterSelector": {"matchLabels": {"drained": name}}}],
            },
        ),
    )
    await world.patch(CLUSTERS, name, {"metadata": {"labels": {"drained": name}}})
    # Caches of different kinds come to know things in no order.
    await world.settle(2)
    await _pod(world, name, "forever", machine, app="forever")
    await world.delete(MACHINES, machine)
    await world.until("it drains", lambda: is_at(world, MACHINES, machine, "Deleting", "DrainingNode"))
    await world.until("it is gone", lambda: world.gone(MACHINES, machine), 120)
    await all_run(world, name, 2)
    await world.delete(MACHINE_DRAIN_RULES, name)


async def hooks(world: World) -> None:
    """Nothing happens to a machine before whoever has a hook on it lets go."""
    name = "hooks"
    await running(world, name, 1)
    (machine,) = names(await workers(world, name))
    await world.patch(MACHINES, machine, {"metadata": {"annotations": {PRE_DRAIN: "me", PRE_TERMINATE: "me"}}})
    await world.delete(MACHINES, machine)
    client = workload(world, name).client

    await world.until("before the drain", lambda: is_at(world, MACHINES, machine, "Deleting", "WaitingForPreDrainHook"))
    await world.settle(5)
    assert not (await client.get(NODES, machine))["spec"].get("unschedulable")
    await world.patch(MACHINES, machine, {"metadata": {"annotations": {PRE_DRAIN: None}}})
    await world.until("before the end", lambda: is_at(world, MACHINES, machine, "Deleting", "WaitingForPreTerminateHook"))
    await world.settle(5)
    assert (await client.get(NODES, machine))["spec"]["unschedulable"] is True
    assert not is_being_deleted(await world.get(SIM_MACHINES, machine))
    await world.patch(MACHINES, machine, {"metadata": {"annotations": {PRE_TERMINATE: None}}})
    await world.until("it is gone", lambda: world.gone(MACHINES, machine))
    await all_run(world, name, 2)


# --- all of it ---------------------------------------------------------------------------------------------------------------


async def workers_before_the_rest(world: World) -> None:
    """A cluster goes from its workers to its control plane to its infrastructure, each when the one before is gone."""
    name = "ending"
    await running(world, name)
    machine = name_of((await workers(world, name))[0])
    await hold(world, SIM_MACHINES, machine)
    await world.delete(CLUSTERS, name)
    await world.until("waiting for a worker", lambda: is_at(world, CLUSTERS, name, "Deleting", "WaitingForWorkersDeletion"))
    await world.settle(5)
    assert not is_being_deleted(await world.get(SIM_CONTROL_PLANES, name))
    await hold(world, SIM_CONTROL_PLANES, name)
    await hold(world, SIM_MACHINES, machine, False)
    reason = "WaitingForControlPlaneDeletion"
    await world.until("waiting for the control plane", lambda: is_at(world, CLUSTERS, name, "Deleting", reason))
    await world.settle(5)
    assert not is_being_deleted(await world.get(SIM_CLUSTERS, name))
    await hold(world, SIM_CLUSTERS, name)
    await hold(world, SIM_CONTROL_PLANES, name, False)
    reason = "WaitingForInfrastructureDeletion"
    await world.until("waiting for the infrastructure", lambda: is_at(world, CLUSTERS, name, "Deleting", reason))
    await hold(world, SIM_CLUSTERS, name, False)
    await nothing_left(world, name)


OF_A_CLUSTER = (
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    SIM_CONTROL_PLANES,
    SIM_CLUSTERS,
    SIM_MACHINES,
    SIM_CONFIGS,
    SECRETS,
)


async def nothing_left(world: World, cluster: str) -> None:
    await world.until(f"{cluster} is gone", lambda: world.gone(CLUSTERS, cluster))

    async def left() -> list[str]:
        return [
            f"{resource.resource} {name}"
            for resource in OF_A_CLUSTER
            for name in names(await world.all(resource, of_cluster(cluster)))
        ]

    async def none() -> bool:
        return not await left()

    try:
        await world.until(f"nothing of {cluster} is left", none, 120)
    finally:
        assert not await left()
    assert world.clusters.get(Key(world.namespace, cluster)) is None


# Whom one may tell to go, and in which resource it is.
TOLD: dict[str, GroupVersionResource] = {
    "cluster": CLUSTERS,
    "deployment": MACHINE_DEPLOYMENTS,
    "set": MACHINE_SETS,
    "machine": MACHINES,
    "infra-machine": SIM_MACHINES,
    "config": SIM_CONFIGS,
}


async def deleted_after(world: World, name: str, whom: str, writes: int) -> None:
    """Delete something `writes` writes after its cluster began to be made. Nothing may be left, and what stays must run."""
    deleted = asyncio.Event()

    async def delete() -> None:
        """The first of its kind among the workers', unless there is none yet."""
        found = {"cluster": [name], "deployment": [f"{name}-md"]}.get(whom)
        if found is None:
            found = sorted(names(await world.all(TOLD[whom], deployment_label(name))))
        if found:
            await ignoring_gone(world.delete(TOLD[whom], found[0]))
        deleted.set()

    async with following(world, *OF_A_CLUSTER, labels=of_cluster(name)) as seen:
        seen.at(writes, delete)
        try:
            await world.add_cluster(name, workers=2)
        except ApiError as error:
            # Its cluster went while its workers were made: somebody may refuse them then.
            if whom != "cluster":
                raise
            print(f"not all of it was made: {error.message}")
        if whom in ("cluster", "deployment"):
            await world.settle(60)
            if not deleted.is_set():
                await delete()
    if whom == "deployment":
        await all_run(world, name, 1)
        for resource in (MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SIM_MACHINES, SIM_CONFIGS):
            assert not await world.all(resource, deployment_label(name)), resource
    elif whom in ("set", "machine"):
        await all_run(world, name, 3)
        for resource in (SIM_MACHINES, SIM_CONFIGS):
            assert len(await world.all(resource, of_cluster(name))) == 3, resource
    else:
        # Nobody makes what a provider lost a second time; whatever became of it, all of it can go.
        await world.settle(60)
    await ignoring_gone(world.delete(CLUSTERS, name))
    await ignoring_gone(world.delete(MACHINE_DEPLOYMENTS, f"{name}-md"))
    await nothing_left(world, name)
