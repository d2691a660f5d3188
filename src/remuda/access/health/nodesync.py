"""The controller of management Nodes: one for each node of each connected cluster, and none for nodes that are gone.

While a cluster is disconnected, its Nodes stay as they were last seen. :func:`management_node` is the wanted object, in Rancher's
names and fields (pure).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION, CLUSTERS
from remuda.api.management_cattle_io import NODES as MANAGEMENT_NODES
from remuda.client.idempotent import make, remove
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.names import label_value_problems
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, labels_of, name_of, namespace_of
from remuda.kube.objects import Obj as _Obj
from remuda.runtime import DONE, Controller, Manager, Result, logger, synced

from ..rancher_conditions import condition_of, with_condition
from .cluster_resources import ResourceTotals, roles_of, shown
from .downstream_caches import DownstreamCaches, machine_name

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "node-sync"
# Pods come and go all the time; the free capacity of a node is reported no more often than this.
_REST: Final = 10.0
_BY_CLUSTER = "cluster"
# Twice the size that Kubernetes supports. A cluster's owner can create any number of nodes, and each would be kept here, too.
MOST_NODES: Final = 10_000

NODE_NAME: Final = "management.cattle.io/nodename"
# Names the parts of the node that are not kept in full.
TRUNCATED: Final = "remuda.io/truncated"
_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


class NodeSync:
    controller = Controller(CONTROLLER, MANAGEMENT_NODES, concurrency=8)

    def __init__(self, manager: Manager, followings: DownstreamCaches) -> None:
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


def management_node(cluster: str, node: Obj, load: ResourceTotals, before: Obj | None, now: float) -> Obj:
    """The wanted object. Other fields of `before` stay (such as requests by users about the node)."""
    name, roles = name_of(node), roles_of(node)
    labels = {} if label_value_problems(name) else {NODE_NAME: name}
    base: Obj = before or {
        "apiVersion": API_VERSION,
        "kind": "Node",
        "metadata": {"name": machine_name(name), "namespace": cluster},
    }
    metadata = dict(base["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    if notes := _notes(node, metadata.pop("annotations", None) or {}):
        metadata["annotations"] = notes
    spec = {
        **(base.get("spec") or {}),
        "controlPlane": roles.control_plane,
        "etcd": roles.etcd,
        "worker": roles.worker,
        "imported": True,
        "requestedHostname": name,
        "internalNodeSpec": node.get("spec") or {},
    }
    said = {
        **(base.get("status") or {}),
        "nodeName": name,
        "nodeLabels": labels_of(node),
        "nodeAnnotations": _annotations(node),
        "nodeTaints": dig(node, "spec", "taints") or [],
        "internalNodeStatus": node.get("status") or {},
        "requested": shown(load.requested),
        "limits": shown(load.limits),
    }
    made: _Obj = {**base, "metadata": metadata, "spec": spec, "status": said}
    for kind in ("Registered", "Provisioned"):
        made = with_condition(made, kind, "True", now=now)
    ready = condition_of(node, "Ready")
    if ready is None:
        return with_condition(made, "Ready", "Unknown", "NodeStatusUnknown", "the node has not reported its status", now=now)
    status, reason, message = (str(ready.get(part) or "") for part in ("status", "reason", "message"))
    return with_condition(made, "Ready", status or "Unknown", reason, message, now=now)


def _annotations(node: Obj) -> dict[str, str]:
    return {name: value for name, value in annotations_of(node).items() if name != _KUBECTL}


def _notes(node: Obj, before: dict[str, str]) -> dict[str, str]:
    """The annotations of the management Node: with a notice if parts of the node were cut."""
    kept = {name: value for name, value in before.items() if name != TRUNCATED}
    return kept | ({TRUNCATED: ",".join(node["truncated"])} if node.get("truncated") else {})
