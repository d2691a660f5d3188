"""The embedded management server: the API and the controllers it needs, in one process. This is what `remuda serve` runs.

Besides what every Kubernetes has, that is Cluster API's core: its definitions, its rules in-process, and its controllers, on the
same API. On somebody else's Kubernetes they run by :mod:`remuda.attached`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from remuda import api, kcm
from remuda.api.cluster_x_k8s_io import GROUP
from remuda.api.installation import established, install, install_missing, migrate
from remuda.apiserver.server import Config, Server
from remuda.capi import CAPI, CONTROLLERS
from remuda.capi.contracts import Contracts
from remuda.capi.core import Options
from remuda.client.inprocess import InProcessClient
from remuda.runtime import Informers, Manager, Registry
from remuda.runtime.admission import install as install_admission
from remuda.runtime.choice import Choice, choose

# What may be left out of what kube-controller-manager does; the rest is what makes the API work at all.
KUBERNETES = (
    "clusterrole-aggregation-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
)
GROUPS = {CAPI: CONTROLLERS}
WITHOUT_CORE = choose(f"-{CAPI}", groups=GROUPS)


def chosen(text: str) -> Choice:
    """What `--controllers` says. Raises UnknownController."""
    return choose(text, KUBERNETES, GROUPS)


@asynccontextmanager
async def running(
    config: Config,
    *,
    controllers: bool = True,
    listen: bool = True,
    choice: Choice = WITHOUT_CORE,
    options: Options = Options(),  # noqa: B008 - a constant
) -> AsyncIterator[Server]:
    """A server that is up for as long as the block runs; controllers stop before it does.

    The rules of Cluster API's kinds (not their definitions) are there also without controllers, unless the choice leaves all of
    the core out: objects that were written under them must not be read without. The block should wait in
    :meth:`Server.serve_forever`, which raises when the controllers die.
    """
    async with AsyncExitStack() as stack:
        server = await Server.open(config)
        stack.push_async_callback(server.close)
        if choice.of(CONTROLLERS):
            await stack.enter_async_context(_admission(server))
        if listen:
            await server.listen()
        if controllers:
            task = asyncio.create_task(run_controllers(server, choice, options), name="the controllers")
            server.vital.append(task)
            stack.push_async_callback(_ended, task)
        yield server


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    # What it ended with, if it did so by itself, `serve_forever` has told.
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _admission(server: Server) -> AsyncIterator[None]:
    """The rules of the core's kinds, before anybody can ask; conversion knows the kinds of providers by their definitions."""
    from remuda.capi.assembly import admitted_types

    config = server.config
    informers = Informers(InProcessClient(server, manager="remuda"), config.clock, config.rng)
    contracts = Contracts(informers)
    following = asyncio.create_task(informers.run(), name="definitions")
    try:
        await contracts.crds.synced.wait()
        install_admission(admitted_types(contracts), server.hooks, server.converters)
        yield
    finally:
        await _ended(following)


async def run_controllers(server: Server, choice: Choice = WITHOUT_CORE, options: Options = Options()) -> None:  # noqa: B008 - a constant
    """What kube-controller-manager does for this server's API, and Cluster API's core."""
    config = server.config
    client = InProcessClient(server, manager=kcm.MANAGER)
    root_ca = "" if server.pki is None else server.pki.ca_pem.decode()
    registry = Registry()
    server.metrics.others.append(registry.text)
    try:
        found = kcm.controllers(client, config.clock, config.rng, root_ca=root_ca, tokens=server.issuer, registry=registry)
        async with asyncio.TaskGroup() as group:
            wanted = [each for each in found if each.name not in KUBERNETES or each.name in choice]
            group.create_task(kcm.run_all(wanted), name=kcm.MANAGER)
            if choice.of(CONTROLLERS):
                group.create_task(_run_core(server, choice, options, registry), name=CAPI)
    finally:
        server.metrics.others.remove(registry.text)


async def _run_core(server: Server, choice: Choice, options: Options, registry: Registry) -> None:
    from remuda.capi.assembly import CoreControllers
    from remuda.capi.clustercache import HttpsConnector

    clock, rng = server.config.clock, server.config.rng
    client = InProcessClient(server, manager="remuda")
    names = list(await install(client, clock, api.crds([GROUP]), in_process=True))
    await install_missing(client, api.placeholders(GROUP))
    await established(client, clock, names)
    for name in names:
        await migrate(client, clock, name, in_process=True)
    manager = Manager(client, clock, rng, registry=registry)
    CoreControllers(manager, HttpsConnector(clock), options, choice.of(CONTROLLERS))
    await manager.run()
