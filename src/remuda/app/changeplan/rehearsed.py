"""A rehearsal: the copied clusters in memory with the real controllers, before simulated hosts, on a virtual clock."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from remuda.api import provisioning_cattle_io as provisioning
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.storage.memory import InitialState
from remuda.client.idempotent import find
from remuda.kube.authorization.users import User
from remuda.kube.clock import VirtualClock
from remuda.kube.objects import Key, is_being_deleted
from remuda.lab.sim import adopted_hosts
from remuda.lab.sim.hosts import Times
from remuda.lab.sim.machine_jobs import JobTimes
from remuda.lab.sim.provisioning_world import ProvisioningWorld, Surroundings

from .. import rehearsal
from .changes import MANAGER, Change, write
from .record import SECRETS, Activity, Record, recorded
from .scope import has_machines

# The controllers read what there is, before the change is made.
_FIRST_SECONDS = 5.0
_STEP = 5.0
# Nothing was written for so long: clusters that are ready are at rest, others wait for something that does not come.
_QUIET_READY, _QUIET_WAITING = 60.0, 1500.0
_LONGEST = 12 * 3600.0


@dataclass(frozen=True)
class Start:
    """What every rehearsal of a plan begins with: state, clusters, time, the surroundings of the server, the caller."""

    state: InitialState
    clusters: tuple[Key, ...]
    now: float
    surroundings: Surroundings
    caller: User | None = None
    times: Times = Times()  # noqa: RUF009 - a constant
    job_times: JobTimes = JobTimes()  # noqa: RUF009 - a constant


@dataclass(frozen=True)
class Rehearsed:
    record: Record
    warnings: tuple[str, ...]
    problems: tuple[str, ...]


async def rehearse(start: Start, changes: Sequence[Change], seed: int = 1, *, first_seconds: float = _FIRST_SECONDS) -> Rehearsed:
    """Make the changes after the first seconds, and let the clusters come to rest. Raises ApiError where admission refuses a
    change."""
    warnings: list[str] = []
    async with _world(start, seed) as (world, problems):
        await world.settle(first_seconds)
        since, began = await world.server.store.current(), world.clock.time()
        client = InProcessClient(world.server, manager=MANAGER, user=start.caller, warnings=warnings)
        for change in changes:
            await write(client, change)
        clusters = [*start.clusters, *(each.key for each in changes if each.resource == provisioning.CLUSTERS)]
        named = tuple(sorted(set(clusters)))
        until, ready = await rest(world, named)
        return Rehearsed(await recorded(world, named, since, began, until, ready), tuple(warnings), tuple(problems))


@contextlib.asynccontextmanager
async def _world(start: Start, seed: int) -> AsyncIterator[tuple[ProvisioningWorld, list[str]]]:
    clock = VirtualClock(start.now)
    begun = rehearsal.provisioning(
        seed=seed,
        times=start.times,
        begin=False,
        pools=True,
        clock=clock,
        state=start.state,
        surroundings=start.surroundings,
    )
    async with begun as world:
        assert world.jobs is not None
        world.jobs.times = start.job_times
        listed = (await world.client.list(provisioning.CLUSTERS))["items"]
        present = [Key.of(each) for each in listed if Key.of(each) in start.clusters and has_machines(each)]
        problems = await adopted_hosts.adopt(world.client, world.hosts, world.jobs, present)
        world.begin()
        yield world, problems


async def rest(world: ProvisioningWorld, clusters: Sequence[Key]) -> tuple[float, bool]:
    """Let time pass until nothing happens to the clusters any more; the time of the last write, and whether all are ready."""
    store, begun = world.server.store, world.clock.time()
    seen, last = await store.current(), begun
    activity = Activity((await store.range(SECRETS)).items)
    while True:
        await world.settle(_STEP)
        world.check()
        now = await store.current()
        if activity.is_in(await store.changes(seen, now)):
            last = world.clock.time()
        seen = now
        ready = await _are_ready(world, clusters)
        quiet = world.clock.time() - last
        if quiet >= (_QUIET_READY if ready else _QUIET_WAITING) or world.clock.time() - begun > _LONGEST:
            return last, ready


async def _are_ready(world: ProvisioningWorld, clusters: Sequence[Key]) -> bool:
    for cluster in clusters:
        found = await find(world.client, provisioning.CLUSTERS, cluster.name, cluster.namespace)
        if found is None or not (has_machines(found) or is_being_deleted(found)):
            continue
        if is_being_deleted(found) or not await world.is_ready(cluster.name, cluster.namespace):
            return False
        machines = await world.machines(cluster.name, cluster.namespace)
        if any(is_being_deleted(each) or (each.get("status") or {}).get("phase") != "Running" for each in machines):
            return False
    return True
