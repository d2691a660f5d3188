"""A node of a cluster as a `management.cattle.io` Node: Rancher's names and fields. Pure; :mod:`.nodesync` writes it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.names import label_value_problems
from remuda.kube.objects import Obj as _Obj
from remuda.kube.objects import annotations_of, dig, labels_of, name_of

from ..rancher_conditions import condition_of, with_condition
from .cluster_resources import Load, roles_of, shown

Obj = dict[str, Any]

NODE_NAME: Final = "management.cattle.io/nodename"
# Names the parts of the node that are not kept in full.
TRUNCATED: Final = "remuda.io/truncated"
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LETTERS = 10
_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


def machine_name(node: str) -> str:
    """`machine-…`, always the same for a node, so that none is made twice."""
    number = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big")
    letters = []
    for _ in range(_LETTERS):
        number, at = divmod(number, len(_SUFFIX))
        letters.append(_SUFFIX[at])
    return f"machine-{''.join(letters)}"


def management_node(cluster: str, node: Obj, load: Load, before: Obj | None, now: float) -> Obj:
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
        return with_condition(made, "Ready", "Unknown", "NodeStatusUnknown", "the node has said nothing of itself", now=now)
    status, reason, message = (str(ready.get(part) or "") for part in ("status", "reason", "message"))
    return with_condition(made, "Ready", status or "Unknown", reason, message, now=now)


def _annotations(node: Obj) -> dict[str, str]:
    return {name: value for name, value in annotations_of(node).items() if name != _KUBECTL}


def _notes(node: Obj, before: dict[str, str]) -> dict[str, str]:
    """The annotations of the management Node: with a notice if parts of the node were cut."""
    kept = {name: value for name, value in before.items() if name != TRUNCATED}
    return kept | ({TRUNCATED: ",".join(node["truncated"])} if node.get("truncated") else {})
