"""Worlds in which a change is planned on a copy and then made, and the comparison of both.

What happened is judged by the hosts (services that started), by the uids of Machines and by the bytes of their plans, never by
what the code of plans says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan import engine
from remuda.app.changeplan.changes import Change, Patch, write
from remuda.app.changeplan.rehearsed import rest
from remuda.app.changeplan.result import ChangePlan, Outcome
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import Key, dig, labels_of, name_of, uid_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import NODE_NAME, POOL_NAME, plan_name

from .provisioned import DEMO, FROM, build, ready

Obj = dict[str, Any]
CLUSTER = Key(WORKSPACE, DEMO)
IN_PLACE = (Outcome.UNTOUCHED, Outcome.CONFIGURED, Outcome.RESTARTED, Outcome.DRAINED)
GOING = (Outcome.REPLACED, Outcome.DELETED)


class Seen(NamedTuple):
    """A machine of the world at one moment: its plan, and how many plans its host has applied."""

    uid: str
    name: str
    node: str
    pool: str
    plan: bytes
    applied: int


async def seen(world: ProvisioningWorld) -> dict[str, Seen]:
    found = {}
    for machine in await world.machines(DEMO):
        bootstrap = dig(machine, "spec", "bootstrap", "configRef", "name")
        secret = await world.client.get(SECRETS, plan_name(bootstrap), WORKSPACE)
        delivered = decode(secret)
        labels = labels_of(machine)
        node = labels.get(NODE_NAME) or dig(machine, "status", "nodeRef", "name") or ""
        plan, applied = (b"", 0) if delivered is None else (delivered.data, delivered.revision)
        found[uid_of(machine)] = Seen(uid_of(machine), name_of(machine), node, labels.get(POOL_NAME, ""), plan, applied)
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
        moved = before[uid][4:] != after[uid][4:]
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
