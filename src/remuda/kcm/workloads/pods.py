"""Predicates and orders of pods for their controllers: exists, is ready and for how long, which one goes first. Pure."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio
from remuda.kube.objects import annotations_of, dig, find_by, is_being_deleted, labels_of, metadata, name_of
from remuda.kube.owners import reference
from remuda.runtime import Informer

from ..disruption_counts import is_ready

Obj = dict[str, Any]

# The field manager of these controllers, and the namespace of nodes' leases.
MANAGER: Final = "kube-controller-manager"
NODE_LEASES: Final = "kube-node-lease"
# Vowels and look-alikes are left out, as in every name that Kubernetes generates.
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1}


def has_ended(pod: Obj) -> bool:
    return dig(pod, "status", "phase") in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    """True if it runs or will run."""
    return not has_ended(pod) and not is_being_deleted(pod)


def available_in(pod: Obj, min_ready: int, now: float) -> float | None:
    """Seconds until it has been ready for long enough: 0 when it has, None when it is not ready."""
    if not is_ready(pod):
        return None
    if not min_ready:
        return 0.0
    ready = find_by(dig(pod, "status", "conditions") or (), "type", "Ready") or {}
    since = time_of(ready.get("lastTransitionTime"))
    return max(since + min_ready - now, 0.0) if since is not None else float(min_ready)


def conditions_with(pod: Obj, kind: str, status: str, now: float, reason: str = "", message: str = "") -> list[Obj]:
    """The pod's conditions with this one; the others stay, and its time changes only with its status."""
    before = dig(pod, "status", "conditions") or []
    old: Obj = find_by(before, "type", kind) or {}
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    made: Obj = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since or rfc3339(now)}
    made |= {name: value for name, value in (("reason", reason), ("message", message)) if value}
    return [*(each for each in before if each.get("type") != kind), made]


def disrupted(pod: Obj, now: float, reason: str, message: str) -> list[Obj]:
    """The pod's conditions with the reason for its disruption."""
    return conditions_with(pod, "DisruptionTarget", "True", now, reason, message)


def template_hash(template: Obj) -> str:
    """A short hash of the template."""
    number = int.from_bytes(hashlib.sha256(jsonio.dumps_sorted(template)).digest()[:8], "big")
    found = ""
    for _ in range(10):
        number, digit = divmod(number, len(_SAFE))
        found += _SAFE[digit]
    return found


def pod_from(template: Obj, owner: Obj, **named: str) -> Obj:
    """A pod of the owner's; `named` is its `name` or `generateName`."""
    meta = template.get("metadata") or {}
    made: Obj = {**named, "namespace": metadata(owner)["namespace"], "ownerReferences": [reference(owner, controller=True)]}
    for field in ("labels", "annotations", "finalizers"):
        if meta.get(field):
            made[field] = meta[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template.get("spec") or {}}


def name_prefix(owner: Obj) -> str:
    """The prefix for `generateName`; the server cuts it when it is too long."""
    return f"{name_of(owner)}-"


def with_labels(template: Obj, **labels: str) -> Obj:
    """The template with more labels; `_` in a name here is what Kubernetes writes as `-`."""
    more = {name.replace("_", "-"): value for name, value in labels.items()}
    meta = {**(template.get("metadata") or {}), "labels": {**labels_of(template), **more}}
    return {**template, "metadata": meta}


def first_to_go(pod: Obj, crowd: int) -> tuple[Any, ...]:
    """A sort key: pods that are the least loss come first. `crowd` is the number of pods of its owner on its node."""
    ready = is_ready(pod)
    cost = annotations_of(pod).get(_DELETION_COST, "0")
    statuses = dig(pod, "status", "containerStatuses") or ()
    restarts = max((int(each.get("restartCount") or 0) for each in statuses), default=0)
    return (
        bool(dig(pod, "spec", "nodeName")),
        _PHASES.get(dig(pod, "status", "phase") or "Pending", 2),
        ready,
        int(cost) if cost.lstrip("-").isdigit() else 0,
        -crowd,
        # The younger first, so that proven pods stay.
        _newest_first(dig(find_by(dig(pod, "status", "conditions") or (), "type", "Ready"), "lastTransitionTime")),
        -restarts,
        _newest_first(metadata(pod).get("creationTimestamp")),
        name_of(pod),
    )


def _newest_first(text: Any) -> float:
    return -(time_of(text) or 0.0)


# --- node pods ------------------------------------------------------------------------------------------------------------
#
# The pods of a node, by an index that several controllers share.

_BY_NODE: Final = "node"


def follow_nodes(pods: Informer) -> None:
    pods.add_index(_BY_NODE, lambda pod: (dig(pod, "spec", "nodeName") or "",))


def pods_on(pods: Informer, node: str) -> list[Obj]:
    """The pods of a node; with "" the pods without one."""
    return pods.indexed(_BY_NODE, node)
