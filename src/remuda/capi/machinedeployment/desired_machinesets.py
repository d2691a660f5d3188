"""MachineSets as their MachineDeployment wants them: what is sent to the server, whole, by server-side apply.

What machines are made of (version, bootstrap, infrastructure, failure domain) stays as the set has it. All the rest follows the
deployment, in every set, new or old, and from there goes to the machines without a rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.api.cluster_x_k8s_io import API_VERSION
from remuda.kube.encoding.go_integers import IntegerError, parse_int
from remuda.kube.objects import annotations_of, dig, finalizers_of, labels_of, name_of, namespace_of, uid_of
from remuda.kube.owners import reference

from ..well_known import (
    CONVERSION_DATA,
    DEPLOYMENT_NAME,
    DESIRED_REPLICAS,
    DISABLE_MACHINE_CREATE,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    TEMPLATE_HASH,
)
from .machineset_view import ON_DELETE, Bounds, spec_replicas, strategy_of
from .new_machineset import Identity

Obj = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED = frozenset((_LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, CONVERSION_DATA))
# Fields of a machine's spec that change in place.
_IN_PLACE = ("minReadySeconds", "readinessGates", "deletion", "taints")


def new_machine_set(deployment: Obj, made: Identity, revision: Obj) -> Obj:
    """A set that isn't there yet, with no machines; `revision` are its annotations from :func:`revised`."""
    wanted = _machine_set(deployment, made.name, made.unique, dig(deployment, "spec", "template", "spec") or {}, 0)
    wanted["metadata"]["annotations"] |= {**revision, DISABLE_MACHINE_CREATE: "false"}
    return wanted


def current_machine_set(deployment: Obj, machine_set: Obj, revision: Obj) -> Obj:
    """The new set that is there already."""
    wanted = _existing(deployment, machine_set)
    wanted["metadata"]["annotations"] |= {**revision, DISABLE_MACHINE_CREATE: "false"}
    return wanted


def old_machine_set(deployment: Obj, machine_set: Obj) -> Obj:
    """An old set: it keeps its revision, and makes no machines when they are only replaced by hand."""
    wanted = _existing(deployment, machine_set)
    present = annotations_of(machine_set)
    kept = {name: present[name] for name in (REVISION, REVISION_HISTORY) if name in present}
    disabled = "true" if strategy_of(deployment) == ON_DELETE else "false"
    wanted["metadata"]["annotations"] |= {**kept, DISABLE_MACHINE_CREATE: disabled}
    return wanted


def _existing(deployment: Obj, machine_set: Obj) -> Obj:
    unique = labels_of(machine_set).get(TEMPLATE_HASH, "")
    template = dig(machine_set, "spec", "template", "spec") or {}
    wanted = _machine_set(deployment, name_of(machine_set), unique, template, spec_replicas(machine_set) or 0)
    # With its uid it can't be made anew by accident.
    wanted["metadata"]["uid"] = uid_of(machine_set)
    if finalizers := finalizers_of(machine_set):
        # Not ours, but whoever applied before us may be the only one who is known to have set them.
        wanted["metadata"]["finalizers"] = finalizers
    if not unique:
        _keep_selector(wanted, machine_set)
    return wanted


def _keep_selector(wanted: Obj, machine_set: Obj) -> None:
    """A set that was adopted selects its machines as it always did: they have no label that sets them apart from others'."""
    selector = dig(machine_set, "spec", "selector") or {}
    wanted["spec"]["selector"] = selector
    wanted["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(selector.get("matchLabels") or {})


def _machine_set(deployment: Obj, name: str, unique: str, template_spec: Obj, replicas: int) -> Obj:
    apart = {TEMPLATE_HASH: unique} if unique else {}
    spec = deployment.get("spec") or {}
    labels = dict(dig(spec, "template", "metadata", "labels") or {}) | apart
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **apart}
    template_meta = _filled({"labels": labels, "annotations": dict(dig(spec, "template", "metadata", "annotations") or {})})
    machine_set_spec = {
        "clusterName": spec.get("clusterName"),
        "replicas": replicas,
        "selector": selector,
        "template": _filled({"metadata": template_meta, "spec": _template_spec(template_spec, deployment)}),
        "machineNaming": spec.get("machineNaming"),
        "deletion": _filled({"order": dig(spec, "deletion", "order")}),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "MachineSet",
        "metadata": {
            "name": name,
            "namespace": namespace_of(deployment),
            "labels": {**labels, DEPLOYMENT_NAME: name_of(deployment)},
            "annotations": _annotations(deployment),
            "ownerReferences": [reference(deployment, controller=True)],
        },
        "spec": _filled(machine_set_spec),
    }


def _filled(fields: Obj) -> Obj:
    """Without what is empty: an empty object is no valid one."""
    return {name: value for name, value in fields.items() if value is not None and value != {} and value != ""}


def _template_spec(template_spec: Obj, deployment: Obj) -> Obj:
    wanted = dig(deployment, "spec", "template", "spec") or {}
    kept = {name: value for name, value in template_spec.items() if name not in _IN_PLACE}
    return kept | {name: wanted[name] for name in _IN_PLACE if wanted.get(name) not in (None, {}, [])}


def _annotations(deployment: Obj) -> dict[str, str]:
    bounds = Bounds.of(deployment)
    copied = {name: value for name, value in annotations_of(deployment).items() if name not in _NOT_COPIED}
    return copied | {DESIRED_REPLICAS: str(bounds.replicas), MAX_REPLICAS: str(bounds.most)}


# --- revisions ---------------------------------------------------------------------------------------------------------------


def revision_of(obj: Obj) -> int:
    """0 when it has none, or one that is no number."""
    try:
        return parse_int(annotations_of(obj).get(REVISION, "0"))
    except IntegerError:
        return 0


def revised(new: Obj | None, old: Sequence[Obj]) -> dict[str, str]:
    """The annotations of the new set: a revision above all others, never lowered, and those that it had before."""
    revision = _highest(old) + 1
    present = annotations_of(new or {})
    history = present.get(REVISION_HISTORY)
    had = present.get(REVISION)
    if had is not None:
        revision = max(revision, revision_of(new or {}))
        if had != str(revision):
            history = f"{history},{had}" if history else had
    return {REVISION: str(revision)} | ({REVISION_HISTORY: history} if history is not None else {})


def _highest(machine_sets: Iterable[Obj]) -> int:
    return max((revision_of(each) for each in machine_sets), default=0)
