"""The cached fields of a workload cluster's nodes: what the core and providers read. A list of images is most of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.kube.bounding import Bounds, bounded
from remuda.kube.objects import dig, metadata

Obj = dict[str, Any]

_META = ("name", "uid", "resourceVersion", "labels", "annotations", "creationTimestamp", "deletionTimestamp", "finalizers")
_SPEC = ("providerID", "taints", "unschedulable")
_STATUS = ("addresses", "nodeInfo", "volumesAttached")
# Nodes of a workload cluster may hold anything, and much of it is repeated in Machines' status. Volumes are only waited for.
_BOUNDS = {"volumesAttached": Bounds(items=1024, total=256 << 10)}
# More than Kubernetes itself accepts, so that no real value is cut.
_META_BOUNDS = Bounds(text=256 << 10, items=4096, total=512 << 10)
# The nodes of a cluster that has more are not watched.
MOST = 20_000


def slim(node: Obj) -> Obj:
    status = {key: value for key, value in (node.get("status") or {}).items() if key in _STATUS}
    conditions = dig(node, "status", "conditions")
    if conditions:
        # A kubelet updates its heartbeats every few minutes, which is no change that matters.
        status["conditions"] = [
            {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
            for each in conditions
            if isinstance(each, dict)
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": bounded({key: value for key, value in metadata(node).items() if key in _META}, _META_BOUNDS)[0],
        "spec": bounded({key: value for key, value in (node.get("spec") or {}).items() if key in _SPEC})[0],
        "status": {key: bounded(value, _BOUNDS.get(key, Bounds()))[0] for key, value in status.items()},
    }


def changed(new: Obj | None, old: Obj | None) -> bool:
    """True if any cached field but the revision has changed."""
    if new is None or old is None:
        return True
    if new["spec"] != old["spec"] or new["status"] != old["status"]:
        return True
    return _without_revision(new) != _without_revision(old)


def _without_revision(node: Obj) -> Obj:
    return {key: value for key, value in node["metadata"].items() if key != "resourceVersion"}


def provider_ids(node: Obj) -> Iterable[str]:
    found = dig(node, "spec", "providerID")
    return (found,) if found else ()
