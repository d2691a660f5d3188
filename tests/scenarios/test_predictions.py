"""Predicted equals happened: the plan of a change, made on a copy, against what the same change then does to the clusters.

What happened is judged by the hosts (services that started), by the uids of Machines and by the bytes of their plans, never by
what the code of plans says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan import engine
from remuda.app.changeplan.changes import Apply, Change, Delete, Patch, write
from remuda.app.changeplan.rehearsed import rest
from remuda.app.changeplan.result import ChangePlan, Outcome, Verdict
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import Key, annotations_of, dig, labels_of, name_of, uid_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import NODE_NAME, POOL_NAME, plan_name

from .provisioned import DEMO, FROM, TO, build, ready

Obj = dict[str, Any]
CLUSTER = Key(WORKSPACE, DEMO)
IN_PLACE = (Outcome.UNTOUCHED, Outcome.CONFIGURED, Outcome.RESTARTED, Outcome.DRAINED)
GOING = (Outcome.REPLACED, Outcome.DELETED)


class Seen(NamedTuple):
    """A machine of the world at one moment."""

    uid: str
    name: str
    node: str
    pool: str
    plan: bytes
    drained: bool


async def seen(world: ProvisioningWorld) -> dict[str, Seen]:
    found = {}
    for machine in await world.machines(DEMO):
        bootstrap = dig(machine, "spec", "bootstrap", "configRef", "name")
        secret = await world.client.get(SECRETS, plan_name(bootstrap), WORKSPACE)
        delivered = decode(secret)
        labels = labels_of(machine)
        node = labels.get(NODE_NAME) or dig(machine, "status", "nodeRef", "name") or ""
        plan = b"" if delivered is None else delivered.data
        found[uid_of(machine)] = Seen(
            uid_of(machine), name_of(machine), node, labels.get(POOL_NAME, ""), plan, bool(annotations_of(secret))
        )
    return found


class Happened(NamedTuple):
    """By the names of machines that stay: their outcome; those that went, by pool; those that came, by pool; starts in order."""

    staying: dict[str, str]
    gone: set[str]
    came: Counter[str]
    order: list[str]


async def made_real(world: ProvisioningWorld, changes: Sequence[Change]) -> Happened:
    before, starts = await seen(world), len(world.distribution(DEMO).starts)
    for change in changes:
        await write(world.client, change)
    await rest(world, [CLUSTER])
    after = await seen(world)
    nodes = {each.node: each.name for each in before.values()}
    order = [nodes[host] for host, _ in world.distribution(DEMO).starts[starts:] if host in nodes]
    staying = {}
    for uid in before.keys() & after.keys():
        name = before[uid].name
        moved = before[uid].plan != after[uid].plan
        staying[name] = "restarted" if name in order else "configured" if moved else "untouched"
    gone = {before[uid].name for uid in before.keys() - after.keys()}
    came = Counter(after[uid].pool for uid in after.keys() - before.keys())
    return Happened(staying, gone, came, [name for name in order if name in staying])


def predicted(plan: ChangePlan) -> Happened:
    staying = {each.name: str(each.outcome).replace("drained", "restarted") for each in plan.machines if each.outcome in IN_PLACE}
    gone = {each.name for each in plan.machines if each.outcome in GOING}
    came = Counter(each.pool for each in plan.machines if each.outcome is Outcome.CREATED)
    order = [each.name for each in plan.machines if each.outcome in (Outcome.RESTARTED, Outcome.DRAINED)]
    return Happened(staying, gone, came, order)


async def plan_of_change(world: ProvisioningWorld, changes: Sequence[Change], seed: int = 11) -> ChangePlan:
    request = engine.Request(tuple(changes))
    copy = await engine.read(world.client, request)
    return await engine.plan(copy, request, world.clock.time(), seed)


async def same(world: ProvisioningWorld, *changes: Change) -> ChangePlan:
    """The plan of a change that did what the plan says."""
    plan = await plan_of_change(world, changes)
    assert plan.already == plan.inexact == ()
    expected, happened = predicted(plan), await made_real(world, changes)
    assert happened._replace(order=sorted(happened.order)) == expected._replace(order=sorted(expected.order))
    assert _by_wave(plan, happened.order) == happened.order, "in the order of the waves"
    return plan


def _by_wave(plan: ChangePlan, order: list[str]) -> list[str]:
    """Machines of one wave have no order among each other."""
    waves = {each.name: each.wave for each in plan.machines}
    return sorted(order, key=lambda name: waves[name])


def spec(**fields: Any) -> Patch:
    return Patch(provisioning.CLUSTERS, WORKSPACE, DEMO, {"spec": fields})


@asynccontextmanager
async def hosts(*roles: str, seed: int = 3, **config: Any) -> AsyncIterator[ProvisioningWorld]:
    async with provisioned(seed=seed) as world:
        await build(world, list(roles), **config)
        await world.settle(120)
        yield world


@asynccontextmanager
async def pools(*listed: Obj, seed: int = 3, **fields: Any) -> AsyncIterator[ProvisioningWorld]:
    async with provisioned(pools=True, seed=seed) as world:
        for name, size in (("small", "s"), ("big", "l")):
            await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size), WORKSPACE)
        await world.want(DEMO, FROM, machinePools=list(listed) or [SERVERS, WORKERS], **fields)
        await ready(world)
        await world.settle(120)
        yield world


SERVERS, WORKERS = pool("servers", "ec", 3), pool("workers", "w", 2, "big")


async def test_saving_a_cluster_again_does_nothing() -> None:
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        plan = await same(world, spec(kubernetesVersion=FROM))
        assert plan.verdict is Verdict.NOTHING and plan.exit_code == 0
        assert plan.waves == () == plan.objects


async def test_the_whole_cluster_applied_as_it_is_does_nothing() -> None:
    async with hosts("ecw", "w") as world:
        found = await world.cluster(DEMO)
        written = {name: found[name] for name in ("apiVersion", "kind", "spec")}
        plan = await same(world, Apply(provisioning.CLUSTERS, {**written, "metadata": {"name": DEMO, "namespace": WORKSPACE}}))
        assert plan.verdict is Verdict.NOTHING


async def test_a_version_restarts_the_machines_one_after_another() -> None:
    async with hosts("ecw", "ecw", "ecw", "w", "w") as world:
        plan = await same(world, spec(kubernetesVersion=TO))
        assert plan.counts()[Outcome.RESTARTED] == 5 and plan.exit_code == 2
        assert [each.down.get("etcd", 0) for each in plan.waves] == [1, 1, 1, 0, 0]
        assert [each.quorum_margin for each in plan.waves] == [0, 0, 0, None, None]
        assert ("version", FROM, TO) in [(each.field, each.before, each.after) for each in plan.machines[0].reasons]


async def test_as_many_workers_at_once_as_the_spec_allows() -> None:
    async with hosts("ec", "w", "w", "w", "w", upgradeStrategy={"workerConcurrency": "50%"}) as world:
        plan = await same(world, spec(kubernetesVersion=TO))
        assert max(each.down.get("worker", 0) for each in plan.waves) == 2


async def test_an_argument_of_all_machines_and_one_without_effect() -> None:
    async with hosts("ec", "ec", "ec", "w") as world:
        plan = await same(world, spec(rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"], "made-up": "x"}}))
        assert plan.counts()[Outcome.RESTARTED] == 4
        assert [reason.field for reason in plan.machines[-1].reasons] == ["config.kubelet-arg"]
        assert [text for text in plan.warnings if "made-up" in text and "has no effect" in text]


async def test_a_manifest_is_configured_without_a_restart() -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: default}\n"
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        plan = await same(world, spec(rkeConfig={"additionalManifest": manifest}))
        counts = plan.counts()
        assert (counts[Outcome.CONFIGURED], counts[Outcome.UNTOUCHED]) == (3, 1)
        assert all(each.down == {} for each in plan.waves)


async def test_a_machine_that_a_user_deletes_is_the_only_one_that_goes() -> None:
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        worker = next(each for each in await world.machines(DEMO) if labels_of(each)[NODE_NAME] == "h3")
        plan = await same(world, Delete(capi.MACHINES, WORKSPACE, name_of(worker)))
        counts = plan.counts()
        assert (counts[Outcome.DELETED], counts[Outcome.RESTARTED], counts[Outcome.UNTOUCHED]) == (1, 0, 3)


@pytest.mark.parametrize("size", [1, 4])
async def test_a_pool_of_another_size(size: int) -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS, pool("workers", "w", size, "big")]}))
        counts = plan.counts()
        assert (counts[Outcome.CREATED], counts[Outcome.DELETED]) == ((2, 0) if size == 4 else (0, 1))
        # Servers note the cluster's spec for their snapshots, without a restart.
        assert (counts[Outcome.CONFIGURED], counts[Outcome.UNTOUCHED]) == (3, 2 - counts[Outcome.DELETED])


async def test_another_config_of_a_pool_replaces_its_machines() -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS, pool("workers", "w", 2, "small")]}))
        counts = plan.counts()
        assert (counts[Outcome.REPLACED], counts[Outcome.CREATED], counts[Outcome.CONFIGURED]) == (2, 2, 3)
        replaced = next(each for each in plan.machines if each.outcome is Outcome.REPLACED)
        assert [(each.field.rpartition(".")[2], each.before, each.after) for each in replaced.reasons] == [("size", "l", "s")]


async def test_an_edit_of_a_pools_config_object() -> None:
    async with pools() as world:
        plan = await same(world, Patch(machine_jobs.CONFIGS, WORKSPACE, "big", {"size": "xl"}))
        assert plan.clusters == (str(CLUSTER),)


async def test_labels_and_taints_of_a_pool() -> None:
    workers = {**WORKERS, "labels": {"tier": "web"}, "taints": [{"key": "web", "value": "yes", "effect": "NoSchedule"}]}
    async with pools() as world:
        await same(world, spec(rkeConfig={"machinePools": [SERVERS, workers]}))


async def test_a_machine_of_a_pool_that_is_deleted_is_replaced() -> None:
    async with pools() as world:
        worker = next(each for each in await world.machines(DEMO) if labels_of(each)[POOL_NAME] == "workers")
        plan = await same(world, Delete(capi.MACHINES, WORKSPACE, name_of(worker)))
        counts = plan.counts()
        assert (counts[Outcome.REPLACED], counts[Outcome.CREATED], counts[Outcome.UNTOUCHED]) == (1, 1, 4)


async def test_the_real_clusters_are_not_touched_by_a_plan() -> None:
    async with hosts("ecw", "w") as world:
        before = await world.server.store.current()
        plan = await plan_of_change(world, [spec(kubernetesVersion=TO)])
        assert plan.verdict is Verdict.CHANGES
        assert await world.server.store.current() == before
        assert plan.id == (await plan_of_change(world, [spec(kubernetesVersion=TO)], seed=12)).id
        assert plan.id != (await plan_of_change(world, [spec(kubernetesVersion=FROM)])).id
