"""Caches of each connected cluster's nodes and its pods' requests.

They are listed once. Every 30 to 45 seconds, when :mod:`.cluster_health` checks the cluster, its changes since then are fetched
over the same connection. There is no permanent watch: an idle connection to each of many clusters would be most of their cost.
Only the cluster in this very process is watched. A cache lives as long as the client that filled it, and is created again when
the cluster reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.runtime import Informer, Manager

from ..downstreams import Downstreams
from .cluster_resources import PODS_AT_WORK, ResourceTotals, load_of, slim_node, slim_pod

log = logging.getLogger(__name__)

Obj = dict[str, Any]

NODES: Final = GroupVersionResource("", "v1", "nodes")
PODS: Final = GroupVersionResource("", "v1", "pods")
# How many clusters may send their lists at the same time, and how long one may hold up the others.
_AT_ONCE, _FILLED_WITHIN = 16, 30.0
# The longest time between looks if no controller asks for one, and the time limit of a look.
_AT_LEAST, _LOOKED_WITHIN = 60.0, 60.0
_BY_MACHINE, _BY_NODE = "machine", "node"
# Each takes some KiB here. If a cluster reports more, none of its nodes is followed.
_MOST_NODES: Final = 20_000
_MACHINE_LETTERS, _MACHINE_LENGTH = "bcdfghjklmnpqrstvwxz2456789", 10


class DownstreamCache:
    """The caches of one cluster. Not to be read before it is `filled`."""

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self.client = client
        self.glances = glances = client.remote
        self.nodes = Informer(client, NODES, clock, rng, transform=slim_node, glances=glances, most=_MOST_NODES)
        self.nodes.add_index(_BY_MACHINE, _machines)
        self.pods = Informer(client, PODS, clock, rng, fields=PODS_AT_WORK, transform=slim_pod, glances=glances)
        self.pods.add_index(_BY_NODE, _nodes)
        self.looked_at = clock.monotonic()
        # Incremented with every change that matters, so that sums need not be computed twice.
        self.changes = 0
        self._loads: dict[str, ResourceTotals] = {}

    @property
    def filled(self) -> bool:
        return self.nodes.synced.is_set() and self.pods.synced.is_set()

    async def until_filled(self) -> None:
        await self.nodes.synced.wait()
        await self.pods.synced.wait()

    def node(self, machine: str) -> Obj | None:
        """The node of the management Node with this name."""
        return next(iter(self.nodes.indexed(_BY_MACHINE, machine)), None)

    def load(self, node: str) -> ResourceTotals:
        found = self._loads.get(node)
        if found is None:
            found = self._loads[node] = load_of(self.pods.indexed(_BY_NODE, node))
        return found

    def loads(self) -> dict[str, ResourceTotals]:
        return {name_of(node): self.load(name_of(node)) for node in self.nodes.objects()}

    async def run(self, changed: Callable[[Iterable[str]], None], nodes_changed: Callable[[], None]) -> None:
        """Run until cancelled; where glances are enough, until filled. `changed` gets the affected management Nodes."""

        def node_changed(new: Obj | None, old: Obj | None) -> None:
            self.changes += 1
            if new is None and old is not None:
                self._loads.pop(name_of(old), None)
            changed([machine_name(name_of(new or old or {}))])
            if self.filled:
                nodes_changed()

        def pod_changed(new: Obj | None, old: Obj | None) -> None:
            nodes = {pod["node"] for pod in (new, old) if pod is not None} - {""}
            if new is None or old is None or any(new[part] != old[part] for part in ("node", "requests", "limits")):
                self.changes += 1
                for node in nodes:
                    self._loads.pop(node, None)
                changed([machine_name(node) for node in nodes])

        self.nodes.on_change(node_changed)
        self.pods.on_change(pod_changed)
        async with asyncio.TaskGroup() as group:
            for informer in (self.nodes, self.pods):
                group.create_task(informer.fill() if self.glances else informer.run())
            await self.until_filled()
            # Nodes deleted while the cluster was away are known only to the handlers.
            changed(())
            nodes_changed()

    async def look(self) -> None:
        """Fetch the changes since the last look; one list after the other, over one connection."""
        await self.nodes.look()
        await self.pods.look()


def _machines(node: Obj) -> tuple[str, ...]:
    return (machine_name(name_of(node)),)


def _nodes(pod: Obj) -> tuple[str, ...]:
    return (pod["node"],)


class DownstreamCaches:
    """The caches of all connected clusters, while the controllers of `manager` run."""

    def __init__(self, manager: Manager, downstreams: Downstreams) -> None:
        self._manager = manager
        self._downstreams = downstreams
        self._clusters = manager.informers.of(CLUSTERS)
        self._running: dict[str, tuple[DownstreamCache, asyncio.Task[None]]] = {}
        self._handlers: list[Callable[[str, list[str] | None], None]] = []
        self._node_handlers: list[Callable[[str], None]] = []
        self._filling = asyncio.Semaphore(_AT_ONCE)
        self._group: asyncio.TaskGroup | None = None
        manager.beside(self.run)

    def get(self, cluster: str) -> DownstreamCache | None:
        """The caches of a cluster; None if it is not connected, or its caches are not filled yet."""
        found = self._running.get(cluster)
        return found[0] if found is not None and found[0].filled else None

    def on_change(self, handler: Callable[[str, list[str] | None], None]) -> None:
        """`handler` gets a cluster and its affected management Nodes; None: all of them."""
        self._handlers.append(handler)

    def on_nodes(self, handler: Callable[[str], None]) -> None:
        """`handler` gets a cluster whose nodes became known or have changed; changes of its pods are not reported."""
        self._node_handlers.append(handler)

    async def run(self) -> None:
        """Run until cancelled."""
        changed: asyncio.Queue[str] = asyncio.Queue()

        def came_or_went(new: Obj | None, old: Obj | None) -> None:
            if new is None or old is None:
                changed.put_nowait(name_of(new or old or {}))

        stops = [self._downstreams.on_change(changed.put_nowait), self._clusters.on_change(came_or_went)]
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._look_at_the_rest())
                while True:
                    self._sync(group, await changed.get())
        finally:
            self._group = None
            for stop in stops:
                stop()
            self._running.clear()

    def _sync(self, group: asyncio.TaskGroup, cluster: str) -> None:
        known = self._clusters.get("", cluster) is not None
        downstream = self._downstreams.get(cluster) if known else None
        running = self._running.get(cluster)
        if running is not None:
            following, task = running
            if downstream is not None and following.client is downstream.client:
                return
            task.cancel()
            del self._running[cluster]
        if downstream is not None:
            following = DownstreamCache(downstream.client, self._manager.clock, self._manager.rng)
            task = group.create_task(self._follow(cluster, following), name=f"nodes and pods of {cluster}")
            self._running[cluster] = (following, task)

    async def _follow(self, cluster: str, following: DownstreamCache) -> None:
        def changed(machines: Iterable[str]) -> None:
            listed = list(machines)
            for handler in self._handlers:
                handler(cluster, listed or None)

        def nodes_changed() -> None:
            for handler in self._node_handlers:
                handler(cluster)

        try:
            # After a restart all clusters reconnect together, and each sends a list of everything in it.
            async with asyncio.TaskGroup() as group, self._filling:
                group.create_task(following.run(changed, nodes_changed))
                with contextlib.suppress(TimeoutError):
                    async with deadline(self._manager.clock, _FILLED_WITHIN):
                        await following.until_filled()
        except Exception:
            log.exception("nodes and pods of %s are no longer followed until it reconnects", cluster)
            if (running := self._running.get(cluster)) is not None and running[0] is following:
                del self._running[cluster]

    def look(self, cluster: str) -> None:
        """Refresh a cluster's caches; called when there is a connection to it anyway."""
        running = self._running.get(cluster)
        if running is None or self._group is None:
            return
        following, task = running
        if following.glances and task.done():
            following.looked_at = self._manager.clock.monotonic()
            self._running[cluster] = (following, self._group.create_task(self._glance(following)))

    async def _glance(self, following: DownstreamCache) -> None:
        with contextlib.suppress(TimeoutError):
            async with deadline(self._manager.clock, _LOOKED_WITHIN):
                await following.look()

    async def _look_at_the_rest(self) -> None:
        """Refresh clusters that no other call has refreshed."""
        while True:
            await self._manager.clock.sleep(_AT_LEAST)
            before = self._manager.clock.monotonic() - _AT_LEAST
            for cluster in [name for name, (following, _) in self._running.items() if following.looked_at <= before]:
                self.look(cluster)


def machine_name(node: str) -> str:
    """`machine-…`, always the same for a node, so that none is made twice."""
    number = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big")
    letters = []
    for _ in range(_MACHINE_LENGTH):
        number, at = divmod(number, len(_MACHINE_LETTERS))
        letters.append(_MACHINE_LETTERS[at])
    return f"machine-{''.join(letters)}"
