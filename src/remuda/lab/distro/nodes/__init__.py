"""Simulated nodes: Nodes with heartbeats and pods that run in name only, except pods of our own images, which are processes.

    await run_node(NodeConfig(name="n1", kubeconfig=path, version="v1.36.3+remuda1", root=root))     # one host's node
    await run_nodes(configs, client, clock, rng)                                                     # many, for benches

The Nodes carry `remuda.dev/simulated=true`. `heartbeat` keeps a Node alive, `kubelet` its pods, `scheduler` gives pods a node.
Not here: the loops of kube-controller-manager (`kcm`), started with the scheduler by `..cluster.apiserver`.
Read :func:`run_nodes` below, then :mod:`.kubelet`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Rng
from remuda.kube.objects import Key
from remuda.runtime import Manager

from .builtin_programs import BUILT_IN, BuiltinProgram
from .config import SIMULATED, NodeConfig, NodeConfigError, PodDelays, Taint, parse_label
from .heartbeat import NODES, Heartbeat, role_labels
from .kubelet import Kubelet
from .sandboxes import Sandboxes

__all__ = [
    "BUILT_IN",
    "SIMULATED",
    "BuiltinProgram",
    "NodeConfig",
    "NodeConfigError",
    "PodDelays",
    "Taint",
    "parse_label",
    "role_labels",
    "run_node",
    "run_nodes",
]


# --- running ---------------------------------------------------------------------------------------------------------------
#
# Nodes from start to end: each has its own registration and heartbeat, one :class:`~.kubelet.Kubelet` runs the pods of all.


async def run_node(config: NodeConfig, clock: Clock = SYSTEM_CLOCK, rng: Rng | None = None) -> None:
    """Run that node until cancelled; processes of its pods end with it."""
    if config.client is not None:
        await run_nodes([config], config.client, clock, rng)
        return
    if config.kubeconfig is None:
        raise NodeConfigError(f"node {config.name} has neither a client nor a kubeconfig")
    client = HttpsClient.from_kubeconfig(config.kubeconfig, clock=clock)
    try:
        told = config if config.api_server else replace(config, api_server=client.target.server)
        await run_nodes([told], client, clock, rng)
    finally:
        await client.close()


async def run_nodes(configs: Sequence[NodeConfig], client: Client, clock: Clock, rng: Rng | None = None) -> None:
    """Run all of them, through one client."""
    rng = rng or Rng()
    manager = Manager(client, clock, rng)
    alone = configs[0].name if len(configs) == 1 else ""
    nodes = manager.informers.of(NODES, fields=f"metadata.name={alone}" if alone else "")
    kubelet = Kubelet(
        manager,
        {config.name: config for config in configs},
        nodes,
        f"spec.nodeName={alone}" if alone else "spec.nodeName!=",
    )

    events = manager.recorder("kubelet")

    def wake(key: Key) -> None:
        if (working := manager.working(kubelet.controller.name)) is not None:
            working.queue.add(key)

    running = [Sandboxes(config, config.root, client, clock, events, wake) for config in configs if config.root is not None]
    for sandboxes in running:
        kubelet.runs_processes(sandboxes.node, sandboxes)
    manager.add(kubelet)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run(), name="kubelet")
            for config in configs:
                group.create_task(Heartbeat(config, client, nodes, clock, rng).run(), name=f"node {config.name}")
    finally:
        await asyncio.gather(*(sandboxes.close() for sandboxes in running))
