"""Labels, annotations and taints that a Machine sets on its Node, and removes from it.

Pure: (node, machine) -> merge patch. Annotations on the Node list the entries that came from the Machine, so that entries
removed from the Machine are removed from the Node, and entries by others stay. :mod:`.noderef` sends the patch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from remuda.kube.condition_summaries import LegacySum, Sum
from remuda.kube.conditions import FALSE, TRUE, UNKNOWN, WARNING
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, namespace_of, resource_version_of
from remuda.kube.owners import controller_of

from ..controller_context import cluster_name_of
from ..well_known import (
    ANNOTATIONS_FROM_MACHINE,
    CLUSTER_NAME,
    INTERRUPTIBLE,
    LABELS_FROM_MACHINE,
    NODE_CLUSTER_NAMESPACE,
    NODE_MACHINE,
    NODE_OWNER_KIND,
    NODE_OWNER_NAME,
    OUTDATED_REVISION_TAINT,
    REVISION,
    TAINTS_FROM_MACHINE,
    UNINITIALIZED_TAINT,
)

Obj = dict[str, Any]
Patterns = Sequence[re.Pattern[str]]

_NODE_ROLE = "node-role.kubernetes.io"
_NODE_RESTRICTION = "node-restriction.kubernetes.io"
_MANAGED_NODE = "node.cluster.x-k8s.io"
# On every node of ours, and so never listed as coming from a Machine's own annotations.
_BOOKKEEPING = (CLUSTER_NAME, NODE_CLUSTER_NAMESPACE, NODE_MACHINE, NODE_OWNER_KIND, NODE_OWNER_NAME)
_UNINITIALIZED = {"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}
_OUTDATED = {"key": OUTDATED_REVISION_TAINT, "effect": "PreferNoSchedule"}


def node_patch(
    node: Obj,
    machine: Obj,
    *,
    interruptible: bool = False,
    outdated: bool = False,
    more_labels: Patterns = (),
    more_annotations: Patterns = (),
) -> Obj | None:
    """The merge patch that applies the Machine's labels, annotations and taints to the Node that was read; None for no change."""
    labels = managed_labels(machine, more_labels)
    if interruptible:
        labels[INTERRUPTIBLE] = ""
    annotations = managed_annotations(machine, more_annotations)
    had = annotations_of(node)
    label_changes = _changes(labels_of(node), labels, _listed(had.get(LABELS_FROM_MACHINE)))
    former = [key for key in _listed(had.get(ANNOTATIONS_FROM_MACHINE)) if key != ANNOTATIONS_FROM_MACHINE]
    taints = dig(node, "spec", "taints") or []
    new_taints, tracked = _taints(taints, had.get(TAINTS_FROM_MACHINE), dig(machine, "spec", "taints") or [])
    new_taints = _with_taint(new_taints, _OUTDATED) if outdated else _without_taint(new_taints, _OUTDATED)
    annotations |= {
        LABELS_FROM_MACHINE: ",".join(sorted(labels)),
        ANNOTATIONS_FROM_MACHINE: ",".join(sorted(key for key in annotations if key not in _BOOKKEEPING)),
        TAINTS_FROM_MACHINE: tracked,
    }
    annotation_changes = _changes(had, annotations, (*former, *_BOOKKEEPING))
    metadata: Obj = {}
    if label_changes:
        metadata["labels"] = label_changes
    if annotation_changes:
        metadata["annotations"] = annotation_changes
    patch: Obj = {}
    if new_taints != taints:
        patch["spec"] = {"taints": new_taints or None}
    if not metadata and not patch:
        return None
    # Bound to the revision, because others write the list of taints, too.
    return patch | {"metadata": {**metadata, "resourceVersion": resource_version_of(node)}}


def managed_labels(machine: Obj, more: Patterns = ()) -> dict[str, str]:
    """The Machine's labels that its Node shall have."""

    def managed(domain: str) -> bool:
        return domain == _NODE_ROLE or _within(domain, _NODE_RESTRICTION) or _within(domain, _MANAGED_NODE)

    return _selected(labels_of(machine), managed, more)


def managed_annotations(machine: Obj, more: Patterns = ()) -> dict[str, str]:
    """The Machine's annotations that its Node shall have, and those that name the Node's Machine and owner."""
    found = {
        CLUSTER_NAME: cluster_name_of(machine),
        NODE_CLUSTER_NAMESPACE: namespace_of(machine),
        NODE_MACHINE: name_of(machine),
    }
    owner = controller_of(machine)
    if owner is not None:
        found[NODE_OWNER_KIND] = owner.get("kind") or ""
        found[NODE_OWNER_NAME] = owner.get("name") or ""
    return found | _selected(annotations_of(machine), lambda domain: _within(domain, _MANAGED_NODE), more)


def is_outdated(machine_set: Obj | None, machine_deployment: Obj | None) -> bool:
    """True if the Machine's set is of an older revision than its deployment."""
    if machine_set is None or machine_deployment is None:
        return False
    return _revision(machine_set) < _revision(machine_deployment)


def _revision(obj: Obj) -> int:
    try:
        return int(annotations_of(obj).get(REVISION) or 0)
    except ValueError:
        return 0


def _within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def _selected(found: dict[str, str], managed: Callable[[str], bool], more: Patterns) -> dict[str, str]:
    return {
        key: value
        for key, value in found.items()
        if managed(key.partition("/")[0]) or any(pattern.search(key) for pattern in more)
    }


def _listed(text: str | None) -> list[str]:
    return text.split(",") if text else []


def _changes(have: dict[str, str], wanted: dict[str, str], former: Iterable[str]) -> Obj:
    changes: Obj = {key: value for key, value in wanted.items() if have.get(key) != value}
    return changes | {key: None for key in former if key in have and key not in wanted}


def _taints(have: list[Obj], tracked: str | None, wanted: list[Obj]) -> tuple[list[Obj], str]:
    """The Node's taints as the Machine wants them, and those to remove when the Machine drops them."""
    found = _without_taint(have, _UNINITIALIZED)
    always: set[str] = set()
    once: set[str] = set()
    for taint in wanted:
        at_first_only = taint.get("propagation") == "OnInitialization"
        (once if at_first_only else always).add(f"{taint.get('key')}:{taint.get('effect')}")
        if not at_first_only or tracked is None:
            found = _with_taint(found, {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)})
    for entry in set(_listed(tracked)) - always - once:
        key, _, effect = entry.partition(":")
        found = _without_taint(found, {"key": key, "effect": effect})
    return found, ",".join(sorted(always))


def _same_taint(left: Obj, right: Obj) -> bool:
    return left.get("key") == right.get("key") and left.get("effect") == right.get("effect")


def _with_taint(taints: list[Obj], wanted: Obj) -> list[Obj]:
    for position, taint in enumerate(taints):
        if _same_taint(taint, wanted):
            if (taint.get("value") or "") == (wanted.get("value") or ""):
                return taints
            return [*taints[:position], wanted, *taints[position + 1 :]]
    return [*taints, wanted]


def _without_taint(taints: list[Obj], unwanted: Obj) -> list[Obj]:
    return [taint for taint in taints if not _same_taint(taint, unwanted)]


# --- node conditions ------------------------------------------------------------------------------------------------------
#
# A Node's conditions as its Machine reports them: whether it is ready, and whether it has any problem.
#
# Pure functions of a Node. :mod:`.status` decides whether there is a Node at all.

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_WATCHED = ("Ready", *_PRESSURES)
_READY_REASONS = {TRUE: "NodeReady", FALSE: "NodeNotReady", UNKNOWN: "NodeReadyUnknown"}


def _conditions(node: Obj) -> list[Obj]:
    return dig(node, "status", "conditions") or []


def _good(kind: str) -> str:
    return TRUE if kind == "Ready" else FALSE


def node_ready(node: Obj) -> Sum:
    """The Node's own Ready."""
    found = {condition.get("type"): condition for condition in _conditions(node)}.get("Ready")
    status = (found or {}).get("status")
    if found is None or status not in _READY_REASONS:
        return Sum(UNKNOWN, "NodeReadyUnknown", "* Node.Ready: Condition not yet reported")
    message = found.get("message") or ""
    told = f"* Node.Ready: {message}" if message and status != TRUE else ""
    return Sum(status, _READY_REASONS[status], told, found.get("lastTransitionTime") or "")


def node_health(node: Obj) -> Sum:
    """Ready and no pressure of any kind; the message names only the problems."""
    found = {condition.get("type"): condition for condition in _conditions(node)}
    bad = unknown = 0
    lines: list[str] = []
    texts: list[str] = []
    for kind in _WATCHED:
        condition = found.get(kind)
        if condition is None:
            lines.append(f"* Node.{kind}: Condition not yet reported")
            unknown += 1
            continue
        status = condition.get("status")
        if status == _good(kind):
            continue
        text = condition.get("message") or f"Condition is {status}"
        texts.append(text)
        lines.append(f"* Node.{kind}: {text}")
        if status == UNKNOWN:
            unknown += 1
        else:
            bad += 1
    if len(texts) > 1 and len(set(texts)) == 1:
        lines = [f"* Node.AllConditions: {texts[0]}"]
    message = "\n".join(lines)
    if bad:
        return Sum(FALSE, "NodeNotHealthy", message)
    if unknown:
        return Sum(UNKNOWN, "NodeHealthyUnknown", message)
    return Sum(TRUE, "NodeHealthy", "")


def legacy_node_health(node: Obj) -> LegacySum:
    """The same for the older conditions, by their own rule: the result is unknown only when all of them are."""
    bad = unknown = 0
    told: list[str] = []
    for condition in _conditions(node):
        kind, status = condition.get("type") or "", condition.get("status")
        if kind not in _WATCHED or status == _good(kind):
            continue
        told.append(f"Node condition {kind} is {status}")
        if status == UNKNOWN:
            unknown += 1
        else:
            bad += 1
    if bad:
        return LegacySum(FALSE, "NodeConditionsFailed", ". ".join(told), WARNING)
    if unknown < len(_WATCHED):
        return LegacySum(TRUE)
    return LegacySum(UNKNOWN, "NodeConditionsFailed", ". ".join(told))
