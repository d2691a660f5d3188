"""The parts of Kubernetes besides its API and its nodes: kube-controller-manager's loops and a scheduler, in one process."""

from __future__ import annotations

import asyncio

from remuda import kcm
from remuda.client.interface import Client
from remuda.kcm import workloads
from remuda.kube.clock import Clock, Rng
from remuda.runtime import Manager, Registry

from ..nodes.scheduler import Scheduler


async def run_cluster_controllers(
    client: Client,
    clock: Clock,
    rng: Rng,
    *,
    root_ca: str = "",
    tokens: kcm.TokenIssuer | None = None,
    registry: Registry | None = None,
    node_grace: float = workloads.GRACE_SECONDS,
) -> None:
    """Run until cancelled. One process of a cluster at a time: with several, the leader does it.

    `root_ca` (PEM) is published to every namespace; `tokens` signs legacy token Secrets. A node that
    is silent for `node_grace` seconds is marked as not ready.
    """
    registry = registry or Registry()
    manager = Manager(client, clock, rng, registry=registry)
    for controller in workloads.controllers(manager, node_grace):
        manager.add(controller)
    manager.add(Scheduler(manager))
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(), name="workloads")
        others = kcm.run(client, clock, rng, root_ca=root_ca, tokens=tokens, registry=registry)
        group.create_task(others, name="kube-controller-manager")
