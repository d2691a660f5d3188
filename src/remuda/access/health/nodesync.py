"""The controller of management Nodes: one for each node of each connected cluster, and none for nodes that are gone.

While a cluster is disconnected, its Nodes stay as they were last seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import CLUSTERS
from remuda.api.management_cattle_io import NODES as MANAGEMENT_NODES
from remuda.client.idempotent import make, remove
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.objects import Key, is_being_deleted, name_of, namespace_of
from remuda.runtime import DONE, Controller, Manager, Result, logger, synced

from .downstream_caches import Followings
from .management_node import management_node

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "node-sync"
# Pods come and go all the time; the free capacity of a node is reported no more often than this.
_REST: Final = 10.0
_BY_CLUSTER = "cluster"
# Twice the size that Kubernetes supports. A cluster's owner can create any number of nodes, and each would be kept here, too.
MOST_NODES: Final = 10_000


class NodeSync:
    controller = Controller(CONTROLLER, MANAGEMENT_NODES, concurrency=8)

    def __init__(self, manager: Manager, followings: Followings) -> None:
        self._manager = manager
        self._client = manager.client
        self._followings = followings
        self._clusters = manager.informers.of(CLUSTERS)
        self._nodes = manager.informers.of(MANAGEMENT_NODES)
        self._nodes.add_index(_BY_CLUSTER, lambda node: (namespace_of(node),))
        followings.on_change(self._look)

    def _look(self, cluster: str, machines: Iterable[str] | None) -> None:
        working = self._manager.working(CONTROLLER)
        if working is None:
            return
        if machines is None:
            machines = [name_of(node) for node in self._nodes.indexed(_BY_CLUSTER, cluster)]
        for machine in machines:
            working.queue.add(Key(cluster, machine))

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._nodes, self._clusters)
        await self._manager.freshness.caught_up(who)
        before = self._nodes.get(*key)
        cluster = self._clusters.get("", key.namespace)
        following = self._followings.get(key.namespace)
        if before is None:
            self._manager.freshness.forget(who)
        if cluster is None or is_being_deleted(cluster) or following is None:
            return DONE
        node = following.node(key.name)
        if node is None:
            if before is not None and not is_being_deleted(before):
                await remove(self._client, MANAGEMENT_NODES, before)
            return DONE
        wanted = management_node(key.namespace, node, following.load(name_of(node)), before, self._manager.clock.time())
        if before is None and len(self._nodes.indexed(_BY_CLUSTER, key.namespace)) >= MOST_NODES:
            log.warning("cluster %s has more nodes than are kept here", key.namespace)
            return DONE
        if before is None:
            written = await make(self._client, MANAGEMENT_NODES, wanted, CONTROLLER)
        else:
            patch = create_merge_patch(before, wanted)
            written = None
            if patch:
                written = await self._client.patch(MANAGEMENT_NODES, key.name, patch, key.namespace, field_manager=CONTROLLER)
        if written is None:
            return DONE
        self._manager.freshness.wrote(who, self._nodes, written)
        return Result(rest=_REST)
