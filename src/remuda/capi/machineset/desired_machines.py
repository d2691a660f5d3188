"""The desired machines of a set: pure functions of the set and, for an existing machine, of the machine.

Labels, annotations, readiness gates, taints, minReadySeconds and the timeouts of deletion follow the set's template as long as a
machine lives. Everything else (version, failure domain, references) stays as it was when the machine was made. The objects
are whole intents for server-side apply.
"""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.objects import dig, finalizers_of, labels_of, name_of, namespace_of, uid_of, with_path, without_path
from remuda.kube.owners import reference, same_owner

from ..controller_context import cluster_name_of, owner_is
from ..well_known import CLUSTER_NAME, DEPLOYMENT_NAME, MACHINE_FINALIZER, SET_NAME, label_value
from .scope import is_deployment_child

Obj = dict[str, Any]

_DEFAULT_NODE_DELETION_SECONDS = 10
# Fields that follow the template, and fields that stay, for an existing machine.
_FOLLOWS = (
    ("readinessGates",),
    ("deletion", "nodeDrainTimeoutSeconds"),
    ("deletion", "nodeDeletionTimeoutSeconds"),
    ("deletion", "nodeVolumeDetachTimeoutSeconds"),
    ("minReadySeconds",),
    ("taints",),
)
_STAYS = (("bootstrap", "configRef"), ("infrastructureRef",), ("version",), ("failureDomain",))


def settled(machine_set: Obj, cluster: Obj | None) -> Obj:
    """The set with everything that every set must have: the cluster's label on it, in its selector and on its machines,
    and the cluster as owner of a set that has no other owner."""
    name = cluster_name_of(machine_set)
    for path in (
        ("metadata", "labels"),
        ("spec", "selector", "matchLabels"),
        ("spec", "template", "metadata", "labels"),
    ):
        if dig(machine_set, *path, CLUSTER_NAME) != name:
            machine_set = with_path(machine_set, path, {**(dig(machine_set, *path) or {}), CLUSTER_NAME: name})
    if cluster is None or not _stands_alone(machine_set):
        return machine_set
    wanted = reference(cluster)
    owners = [each for each in dig(machine_set, "metadata", "ownerReferences") or () if not same_owner(each, wanted)]
    return with_path(machine_set, ("metadata", "ownerReferences"), [*owners, wanted])


def _stands_alone(machine_set: Obj) -> bool:
    """Not owned by a deployment or the cluster yet. A set that its deployment has yet to adopt again is known by its label."""
    owners = dig(machine_set, "metadata", "ownerReferences") or ()
    owned = any(owner_is(each, kind) for each in owners for kind in ("MachineDeployment", "Cluster"))
    return not owned and not is_deployment_child(machine_set)


def machine_labels(machine_set: Obj) -> dict[str, str]:
    found = dict(dig(machine_set, "spec", "template", "metadata", "labels") or {})
    found[SET_NAME] = label_value(name_of(machine_set))
    if is_deployment_child(machine_set):
        found[DEPLOYMENT_NAME] = labels_of(machine_set)[DEPLOYMENT_NAME]
    return found


def machine_annotations(machine_set: Obj) -> dict[str, str]:
    return dig(machine_set, "spec", "template", "metadata", "annotations") or {}


def owner_reference(machine_set: Obj) -> Obj:
    return reference(machine_set, controller=True)


def new_machine(machine_set: Obj, name: str, infrastructure: Obj, bootstrap: Obj | None) -> Obj:
    """A machine that refers to the clones made for it."""
    spec = with_path(_template_spec(machine_set), ("infrastructureRef",), infrastructure)
    if bootstrap is not None:
        spec = with_path(spec, ("bootstrap", "configRef"), bootstrap)
    meta = {"name": name, "namespace": namespace_of(machine_set), "finalizers": [MACHINE_FINALIZER]}
    return _machine(machine_set, meta, spec)


def updated_machine(machine_set: Obj, machine: Obj) -> Obj:
    """An existing machine, updated to its template as far as possible; its uid keeps an apply from creating it again."""
    spec = _template_spec(machine_set)
    for path in _STAYS:
        found = dig(machine, "spec", *path)
        spec = with_path(spec, path, found) if found else without_path(spec, path)
    finalizers = finalizers_of(machine)
    if MACHINE_FINALIZER not in finalizers:
        finalizers = [*finalizers, MACHINE_FINALIZER]
    meta = {
        "name": name_of(machine),
        "namespace": namespace_of(machine),
        "uid": uid_of(machine),
        "finalizers": finalizers,
    }
    return _machine(machine_set, meta, spec)


def _template_spec(machine_set: Obj) -> Obj:
    spec: Obj = {**(dig(machine_set, "spec", "template", "spec") or {}), "clusterName": cluster_name_of(machine_set)}
    return without_path(without_path(spec, ("infrastructureRef",)), ("bootstrap", "configRef"))


def _machine(machine_set: Obj, meta: Obj, spec: Obj) -> Obj:
    meta["labels"] = machine_labels(machine_set)
    if annotations := machine_annotations(machine_set):
        meta["annotations"] = annotations
    meta["ownerReferences"] = [owner_reference(machine_set)]
    # No empty sections: an empty object is refused.
    kept = {field: value for field, value in spec.items() if value not in ({}, [])}
    return {"apiVersion": API_VERSION, "kind": "Machine", "metadata": meta, "spec": kept}


def updated_metadata(machine_set: Obj, obj: Obj) -> Obj:
    """An infrastructure machine or a bootstrap configuration with the set's labels and annotations, and nothing else."""
    meta: Obj = {"name": name_of(obj), "namespace": namespace_of(obj), "uid": uid_of(obj)}
    meta["labels"] = machine_labels(machine_set)
    # Also when there are none: a manager that stops applying an annotation map removes unowned entries with it.
    meta["annotations"] = machine_annotations(machine_set)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": meta}


def teardown_patch(machine_set: Obj, machine: Obj) -> Obj:
    """A patch for a machine in deletion: the fields that still matter to its deletion. Empty when there is nothing to change."""
    before: Obj = machine.get("spec") or {}
    after = before
    for path in _FOLLOWS:
        wanted = dig(machine_set, "spec", "template", "spec", *path)
        if wanted is None and path[-1] == "nodeDeletionTimeoutSeconds":
            wanted = _DEFAULT_NODE_DELETION_SECONDS
        after = without_path(after, path) if wanted is None else with_path(after, path, wanted)
    changes = create_merge_patch({"spec": before}, {"spec": after})
    return changes if isinstance(changes, dict) else {}
