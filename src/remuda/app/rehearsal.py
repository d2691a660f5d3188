"""Rehearsals: a management server with the real controllers, in memory and on a virtual clock, before simulated hosts and
clusters.

:func:`embedded` runs Cluster API's core, :func:`provisioning` all controllers of `remuda serve`. The simulated parts are in
:mod:`remuda.lab.sim`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from remuda import kcm
from remuda.api import crds, management_cattle_io
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import InitialState
from remuda.capi.admission import admitted
from remuda.capi.contracts import Contracts
from remuda.capi.controller_context import ControllerOptions
from remuda.capi.conversion import converter
from remuda.capi.workload_clusters import Connector
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Clock, Entropy, Rng, VirtualClock
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.capi_world import NAMESPACE, EmbeddedWorld
from remuda.lab.sim.delays_and_faults import Weather
from remuda.lab.sim.hosts import Times
from remuda.lab.sim.machine_jobs import SimulatedJobs
from remuda.lab.sim.providers import crds as provider_crds
from remuda.lab.sim.provisioning_world import GROUPS, WORKSPACE, ProvisioningWorld, Surroundings
from remuda.lab.sim.workload_clusters import Beginning, SimulatedClusters
from remuda.machines.runner.controller import RunnerConfig
from remuda.machines.secretfields.vault import Vault
from remuda.runtime import Informers, Manager

from . import controllers
from .admission import admitted_types
from .controllers import ACCESS, CAPI, MACHINES, PROVISIONING, names
from .parts import Jobs, Parts

# A rehearsal is looked at when it has ended: all that happened is kept.
_WINDOW = 10**9
_CAPI = Beginning(lambda: (*crds(), *provider_crds()), (NAMESPACE,), default_roles=False)


@contextlib.asynccontextmanager
async def embedded(
    *,
    seed: int = 1,
    weather: Weather = Weather(),  # noqa: B008 - a constant
    options: ControllerOptions = ControllerOptions(),  # noqa: B008 - a constant
    clock: Clock | None = None,
    pods: bool = False,
    data_dir: Path | None = None,
) -> AsyncIterator[EmbeddedWorld]:
    """A world in memory, by default on a virtual clock, with the core running. `pods`: workload clusters can run pods in name.

    With `data_dir` the management API is on disk, as that of `remuda serve`, and no journal of it is kept.
    """
    clock = clock or VirtualClock()
    entropy = Entropy(seed)
    base = await _CAPI.base() if data_dir is None else None
    server = await Server.open(
        Config(data_dir=data_dir, base=base, clock=clock, rng=Rng(seed), entropy=entropy, default_roles=False)
    )
    clusters = SimulatedClusters(clock, Rng(seed), entropy, pods=pods)

    def core(manager: Manager, connector: Connector) -> Parts:
        parts = Parts(manager, connector=connector, options=options)
        controllers.add(parts, names(CAPI))
        return parts

    world = EmbeddedWorld(server, clusters, weather=weather, seed=seed, core=core)
    install(admitted(converter(world.land.contracts)), server.hooks, server.converters)
    keeper = InProcessClient(server, manager="kube-controller-manager")
    running = [asyncio.create_task(kcm.run(keeper, clock, Rng(seed)))]
    if data_dir is None:
        running.append(asyncio.create_task(world.keep_journal()))
    try:
        await world.prepare([*crds(), *provider_crds()] if base is None else [])
        await world.settle(1)
        running.append(asyncio.create_task(world.manager.run(), name="the providers"))
        world.start_core()
        await world.settle(1)
        yield world
        for task in running:
            if task.done() and not task.cancelled():
                task.result()
    finally:
        await world.kill_core()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await clusters.close()
        await server.close()


def _add_controllers(manager: Manager, world: ProvisioningWorld) -> None:
    """All that `remuda serve` runs, except for the tunnels and the parts behind them, and for the runner of Jobs."""
    ways = world.downstreams
    jobs = Jobs(RunnerConfig(lambda: None, {}))
    parts = Parts(
        manager,
        world.gateway,
        connector=world.clusters,
        downstreams=ways,
        agents=ways,
        jobs=jobs,
        buckets=world.hosts.buckets.opened,
        provisions=True,
    )
    machines = ("machine-provision", "machinesecrets") if world.jobs is not None else ()
    provisioning = [name for name in names(PROVISIONING) if name not in MACHINES]
    controllers.add(parts, (*names(CAPI), *names(ACCESS), *provisioning, *machines))
    controllers.tell_waits(parts)


@functools.cache
def _beginning(fields: tuple[str, ...]) -> Beginning:
    """With `fields` there is a driver whose machines have them."""
    return Beginning(lambda: (*crds(GROUPS), *(machine_jobs.crds(*fields) if fields else ())))


@contextlib.asynccontextmanager
async def provisioning(
    *,
    seed: int = 1,
    times: Times = Times(),  # noqa: B008 - a constant
    begin: bool = True,
    pods: bool = False,
    pools: bool = False,
    clock: VirtualClock | None = None,
    state: InitialState | None = None,
    surroundings: Surroundings = Surroundings(),  # noqa: B008 - a constant
) -> AsyncIterator[ProvisioningWorld]:
    """With `pods` the clusters run pods (:class:`~remuda.lab.sim.workload_clusters.SimulatedClusters`).

    With `pools` Jobs make machines, and :mod:`remuda.lab.sim.machine_jobs` does their work.

    With a `state` the world begins with that, all kinds included, in the `surroundings` of its server.
    """
    clock = clock or VirtualClock()
    base = state or await _beginning(machine_jobs.FIELDS if pools else ()).base()
    config = Config(data_dir=None, base=base, clock=clock, rng=Rng(seed), entropy=Entropy(seed))
    server = await Server.open(config if state is None else replace(config, window_seconds=_WINDOW))
    world = ProvisioningWorld(server, clock, seed, times, _add_controllers, pods, surroundings)
    keeper = InProcessClient(server, manager="kube-controller-manager")
    informers = Informers(InProcessClient(server, manager="remuda"), clock, Rng(seed))
    contracts = Contracts(informers)
    running = [
        asyncio.create_task(kcm.run(keeper, clock, Rng(seed), tokens=server.issuer)),
        asyncio.create_task(informers.run()),
        asyncio.create_task(world.gateway.run(), name="the gateway"),
    ]
    try:
        vault = Vault(InProcessClient(server, manager="remuda"), clock, server.config.entropy)
        install(admitted_types(server.source, server.rbac, vault), server.hooks, server.converters)
        install(admitted(converter(contracts)), server.hooks, server.converters)
        await world.settle()
        if pools and state is None:
            for schema in (machine_jobs.schema(*machine_jobs.FIELDS), machine_jobs.offered()):
                await world.client.create(management_cattle_io.DYNAMIC_SCHEMAS, schema)
        if pools:
            world.jobs = SimulatedJobs(InProcessClient(server, manager="jobs"), world.hosts, clock, Rng(seed))
            running.append(asyncio.create_task(world.jobs.run(), name="jobs"))
            world.besides.append(running[-1])
        if begin:
            world.begin()
            await world.until("the workspace is there", lambda: _workspace(world), 60)
        yield world
    finally:
        await world.kill()
        await world.hosts.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await world.clusters.close()
        await server.close()


async def _workspace(world: ProvisioningWorld) -> bool:
    return await find(world.client, NAMESPACES, WORKSPACE) is not None
