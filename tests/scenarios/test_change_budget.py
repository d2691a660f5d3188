"""Change budgets: what they do not allow is refused when it is malformed, and otherwise waits, also where nobody foresaw it."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.rehearsal import provisioning as provisioned
from remuda.capi.change_budget import CHANGE_BUDGET
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import EVENTS, NAMESPACES, SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, labels_of, name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import DRAIN_OPTIONS, plan_name

from .provisioned import DEMO, FROM, TO, build, change, message, nodes, plans, ready
from .test_pools import SERVERS, WORKERS, of_pools, replaced, repool, until_pools
from .test_pools import build as build_pools

Obj = dict[str, Any]


def budget(text: str | None) -> Obj:
    return {"metadata": {"annotations": {CHANGE_BUDGET: text}}}


async def allow(world: ProvisioningWorld, text: str | None, **spec: Any) -> None:
    """The cluster's budget, and a change in the same write."""
    patch = budget(text) | ({"spec": spec} if spec else {})
    await world.client.patch(provisioning.CLUSTERS, DEMO, patch, WORKSPACE)


async def events(world: ProvisioningWorld) -> set[str]:
    listed = (await world.client.list(EVENTS, WORKSPACE))["items"]
    return {each["involvedObject"]["kind"] for each in listed if each.get("reason") == "ChangeBudget"}


async def test_nothing_restarts_until_the_budget_allows_it() -> None:
    async with provisioned() as world:
        await build(world, ["ec", "ec", "ec", "w", "w"])
        before = await plans(world)
        await allow(world, "restart=0", kubernetesVersion=TO)
        await world.settle(900)
        assert await plans(world) == before
        assert "waiting for the change budget: the change budget of Cluster demo is restart=0: not allowed" in await message(
            world
        )
        assert "Machine" in await events(world)
        await allow(world, "restart-etcd=1,restart-worker=50%")
        await ready(world, 3600)
        assert set((await nodes(world)).values()) == {TO}
        assert world.distribution(DEMO).violations == []


async def test_the_namespaces_budget_is_for_all_of_its_clusters() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "w"])
        await world.client.patch(NAMESPACES, WORKSPACE, budget("restart-worker=0"))
        await change(world, kubernetesVersion=TO)
        await world.settle(600)
        assert set((await nodes(world)).values()) == {FROM}
        assert f"the change budget of Namespace {WORKSPACE} is restart-worker=0" in await message(world)
        await world.client.patch(NAMESPACES, WORKSPACE, budget(None))
        await ready(world, 1800)
        assert set((await nodes(world)).values()) == {TO}


async def test_what_is_no_budget_is_refused() -> None:
    async with provisioned(pools=True) as world:
        await build_pools(world)
        with pytest.raises(ApiError, match=r"metadata.annotations\[remuda.dev/change-budget\].*replace=none must be a number"):
            await allow(world, "replace=none")
        with pytest.raises(ApiError, match=r"remuda.dev/change-budget.*'all' must be a limit"):
            await world.client.patch(NAMESPACES, WORKSPACE, budget("all"))
        of_pool = {**WORKERS, "machineDeploymentAnnotations": {CHANGE_BUDGET: "window=never"}}
        with pytest.raises(ApiError, match=r"machinePools\[1\].machineDeploymentAnnotations.*window=never must be days"):
            await repool(world, SERVERS, of_pool)


async def test_no_machine_is_replaced_until_the_budget_allows_it() -> None:
    async with provisioned(pools=True) as world:
        made = await build_pools(world)
        before = await of_pools(world)
        await allow(world, "replace=0")
        await world.client.patch(machine_jobs.CONFIGS, "big", {"size": "xl"}, WORKSPACE)
        await world.settle(900)
        assert await of_pools(world) == before and made.removed == []
        sets = [each for each in (await world.client.list(capi.MACHINE_SETS, WORKSPACE))["items"] if "workers" in name_of(each)]
        assert len(sets) == 1, "no machine is made in the place of another, either"
        assert "MachineDeployment" in await events(world)
        # Fewer or more machines are no replacement.
        await repool(world, SERVERS, {**WORKERS, "quantity": 3})
        await until_pools(world, servers=1, workers=3)
        await allow(world, "replace=1")
        await world.until("all are new", lambda: _none_of(world, before["workers"]), 3600)
        await until_pools(world, servers=1, workers=3)
        assert (await of_pools(world))["servers"] == before["servers"]


async def _none_of(world: ProvisioningWorld, names: list[str]) -> bool:
    return not set(names) & {name_of(each) for each in await world.machines(DEMO)}


async def test_no_machine_is_deleted_until_the_budget_allows_it() -> None:
    async with provisioned(pools=True) as world:
        await build_pools(world, SERVERS, pool("workers", "w", 4, "big"))
        kept = {**pool("workers", "w", 1, "big"), "machineDeploymentAnnotations": {CHANGE_BUDGET: "delete=0"}}
        await repool(world, SERVERS, kept)
        await world.settle(300)
        assert len((await of_pools(world))["workers"]) == 4
        assert "MachineSet" in await events(world)
        kept["machineDeploymentAnnotations"] = {CHANGE_BUDGET: "delete=1"}
        await repool(world, SERVERS, kept)
        most = 0

        async def shrunk() -> bool:
            nonlocal most
            machines = [each for each in await world.machines(DEMO) if "workers" in name_of(each)]
            most = max(most, sum("deletionTimestamp" in each["metadata"] for each in machines))
            return len(machines) == 1

        await world.until("one is left", shrunk, 1800)
        assert most == 1
        await until_pools(world, servers=1, workers=1)


async def test_drains_for_restarts_and_for_deletions_are_one_count() -> None:
    drains = {"workerDrainOptions": {"enabled": True, "force": True}, "workerConcurrency": "4"}
    async with provisioned(pools=True) as world:
        workers = {**pool("workers", "w", 4, "big"), "drainBeforeDelete": True}
        await build_pools(world, SERVERS, workers, upgradeStrategy=drains)
        await allow(world, "drain=1", kubernetesVersion=TO)

        async def begun() -> bool:
            return bool((await _draining(world))[1])

        await world.until("a worker is drained for its new version", begun)
        await repool(world, SERVERS, {**workers, "quantity": 2})
        most, restarted = 0, set()

        async def done() -> bool:
            nonlocal most
            gone, changed = await _draining(world)
            restarted.update(changed)
            most = max(most, len(gone | changed))
            return len(await world.machines(DEMO)) == 3 and await world.is_ready(DEMO)

        await world.until("fewer workers have the new version", done, 3600)
        assert most == 1 and len(restarted) >= 2
        assert set((await nodes(world)).values()) == {TO}


async def _draining(world: ProvisioningWorld) -> tuple[set[str], set[str]]:
    """The machines that are being deleted, and those that are drained for a restart."""
    gone, changed = set(), set()
    for machine in await world.machines(DEMO):
        secret = await find(world.client, SECRETS, plan_name(dig(machine, "spec", "bootstrap", "configRef", "name")), WORKSPACE)
        if "deletionTimestamp" in machine["metadata"]:
            gone.add(name_of(machine))
        elif annotations_of(secret or {}).get(DRAIN_OPTIONS):
            changed.add(name_of(machine))
    return gone, changed


async def test_a_health_check_does_not_replace_more_than_the_budget_allows() -> None:
    async with provisioned(pools=True) as world:
        made = await build_pools(world, SERVERS, {**WORKERS, "unhealthyNodeTimeout": "60s"})
        await allow(world, "replace-worker=0")
        await world.settle(30)
        victim = (await of_pools(world))["workers"][0]
        (host,) = [each for key, each in made.hosts.items() if key.name == victim]
        await world.hosts.power_off(host)
        await world.settle(900)
        assert victim in {name_of(each) for each in await world.machines(DEMO)} and made.removed == []
        await allow(world, None)
        await world.until("another one is in its place", lambda: replaced(world, victim))
        await until_pools(world, servers=1, workers=2)


async def test_the_whole_cluster_may_be_deleted() -> None:
    async with provisioned(pools=True) as world:
        made = await build_pools(world)
        await allow(world, "delete=0,replace=0,drain=0")
        await world.client.delete(provisioning.CLUSTERS, DEMO, WORKSPACE)
        await world.until("its machines are gone", lambda: _no_machines(world))
        assert sorted(made.made) == sorted(made.removed)


async def _no_machines(world: ProvisioningWorld) -> bool:
    return not [each for each in await world.machines(DEMO) if labels_of(each)]
