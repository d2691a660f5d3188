"""MachineSets as their MachineDeployment wants them: the whole objects that are sent by server-side apply.

The fields that define a machine (version, bootstrap, infrastructure, failure domain) stay as the set has them. All others
follow the deployment, in every set, new or old, and from there go to the machines without a rollout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from remuda.api.cluster_x_k8s_io import API_VERSION
from remuda.kube.clock import time_of
from remuda.kube.encoding import jsonio
from remuda.kube.encoding.go_format import IntegerError, parse_int
from remuda.kube.objects import annotations_of, dig, finalizers_of, labels_of, name_of, namespace_of, uid_of
from remuda.kube.owners import reference

from ..machine.status import template_differences
from ..well_known import (
    CONVERSION_DATA,
    DEPLOYMENT_NAME,
    DESIRED_REPLICAS,
    DISABLE_MACHINE_CREATE,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    TEMPLATE_HASH,
    fnv32a,
)
from .machineset_view import ON_DELETE, RolloutBounds, created, spec_replicas, strategy_of

Obj = dict[str, Any]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED = frozenset((_LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, CONVERSION_DATA))
# Fields of a machine's spec that change in place.
_IN_PLACE = ("minReadySeconds", "readinessGates", "deletion", "taints")


def new_machine_set(deployment: Obj, made: MachineSetName, revision: Obj) -> Obj:
    """A set to be created, with no machines; `revision` are its annotations from :func:`revised`."""
    wanted = _machine_set(deployment, made.name, made.unique, dig(deployment, "spec", "template", "spec") or {}, 0)
    wanted["metadata"]["annotations"] |= {**revision, DISABLE_MACHINE_CREATE: "false"}
    return wanted


def current_machine_set(deployment: Obj, machine_set: Obj, revision: Obj) -> Obj:
    """The existing new set."""
    wanted = _existing(deployment, machine_set)
    wanted["metadata"]["annotations"] |= {**revision, DISABLE_MACHINE_CREATE: "false"}
    return wanted


def old_machine_set(deployment: Obj, machine_set: Obj) -> Obj:
    """An old set: it keeps its revision, and makes no machines under the strategy OnDelete."""
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
    # With its uid, an apply can't create it again by accident.
    wanted["metadata"]["uid"] = uid_of(machine_set)
    if finalizers := finalizers_of(machine_set):
        # Not ours, but an earlier manager may be the only known owner of these finalizers.
        wanted["metadata"]["finalizers"] = finalizers
    if not unique:
        _keep_selector(wanted, machine_set)
    return wanted


def _keep_selector(wanted: Obj, machine_set: Obj) -> None:
    """An adopted set keeps its selector: its machines have no label that tells them from others."""
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
    """The fields without empty ones: an empty object is invalid."""
    return {name: value for name, value in fields.items() if value is not None and value != {} and value != ""}


def _template_spec(template_spec: Obj, deployment: Obj) -> Obj:
    wanted = dig(deployment, "spec", "template", "spec") or {}
    kept = {name: value for name, value in template_spec.items() if name not in _IN_PLACE}
    return kept | {name: wanted[name] for name in _IN_PLACE if wanted.get(name) not in (None, {}, [])}


def _annotations(deployment: Obj) -> dict[str, str]:
    bounds = RolloutBounds.of(deployment)
    copied = {name: value for name, value in annotations_of(deployment).items() if name not in _NOT_COPIED}
    return copied | {DESIRED_REPLICAS: str(bounds.replicas), MAX_REPLICAS: str(bounds.most)}


# --- revisions ---------------------------------------------------------------------------------------------------------------


def revision_of(obj: Obj) -> int:
    """0 when the revision is missing or no number."""
    try:
        return parse_int(annotations_of(obj).get(REVISION, "0"))
    except IntegerError:
        return 0


def revised(new: Obj | None, old: Sequence[Obj]) -> dict[str, str]:
    """The annotations of the new set: a revision above all others, never lowered, and its earlier ones."""
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


# --- new machineset -------------------------------------------------------------------------------------------------------
#
# The search for the new MachineSet: the one whose machines match what the MachineDeployment wants.
#
# Only version, bootstrap, infrastructure and failure domain distinguish machines (:mod:`remuda.capi.machine.status`);
# everything else is updated in place. Once `spec.rollout.after` has passed, only a set made
# since then matches.
#
# The name of a new set follows from what it is made for, so that making it twice (after a crash, after an answer that
# was lost, on a cache that lags, under another leader) makes one set. It also means that a set which was made for this very
# time counts as made after it, however far the API server's clock is behind ours.

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX, _LONGEST = 5, 63


class MachineSetName(NamedTuple):
    """The name and label of a set to be created."""

    name: str
    # The value of the label that keeps its machines apart from those of other sets.
    unique: str


class DesiredMachineSets(NamedTuple):
    new: Obj | None
    # By size, the largest first.
    old: list[Obj]
    # The reason for a new set; "" when one exists.
    why: str = ""
    # The time at which another set will be needed.
    revisit_at: float | None = None


def rollout_fields(template: Obj) -> Obj:
    spec = template.get("spec") or {}
    return {field: spec[field] for field in ("version", "bootstrap", "infrastructureRef", "failureDomain") if spec.get(field)}


def identity(deployment: Obj, now: float, salt: int = 0) -> MachineSetName:
    """`salt` makes another, for when the name is taken."""
    fields = jsonio.dumps_sorted(rollout_fields(dig(deployment, "spec", "template") or {}))
    seed = jsonio.dumps([uid_of(deployment), _passed_after(deployment, now) or "", salt])
    digest = int.from_bytes(hashlib.sha256(seed + fields).digest()[:8], "big")
    suffix = ""
    for _ in range(_SUFFIX):
        digest, place = divmod(digest, len(_ALPHABET))
        suffix += _ALPHABET[place]
    prefix = f"{name_of(deployment)}-"[: _LONGEST - _SUFFIX]
    return MachineSetName(prefix + suffix, f"{fnv32a(fields)}-{suffix}")


def _after(deployment: Obj) -> str | None:
    text = dig(deployment, "spec", "rollout", "after")
    return text if time_of(text) is not None else None


def _passed_after(deployment: Obj, now: float) -> str | None:
    """`spec.rollout.after`, once it has passed."""
    text = _after(deployment)
    return text if (when := time_of(text)) is not None and now >= when else None


def find(deployment: Obj, machine_sets: Sequence[Obj], now: float) -> DesiredMachineSets:
    """The largest set that matches is the new one (the oldest of the largest); all others are old."""
    when = time_of(_after(deployment))
    revisit_at = when if when is not None and now < when else None
    if not machine_sets:
        return DesiredMachineSets(None, [], "no MachineSets exist for the MachineDeployment", revisit_at)
    ordered = sorted(machine_sets, key=lambda each: (-(spec_replicas(each) or 0), created(each), name_of(each)))
    wanted = dig(deployment, "spec", "template") or {}
    differences = {name_of(each): template_differences(dig(each, "spec", "template") or {}, wanted) for each in ordered}
    matching = [each for each in ordered if not differences[name_of(each)]]
    if not matching:
        why = "; ".join(f"MachineSet {name} needs rollout: {', '.join(found)}" for name, found in differences.items())
        return DesiredMachineSets(
            None, ordered, f"couldn't find MachineSet matching MachineDeployment spec template: {why}", revisit_at
        )
    new = next((each for each in matching if _is_late_enough(each, deployment, now)), None)
    # Sets that don't match come first, then other sets that would match.
    others = [each for each in ordered if differences[name_of(each)]] + [each for each in matching if each is not new]
    if new is None:
        why = f"spec.rollout.after on MachineDeployment set to {_after(deployment)}, no MachineSet has been created afterwards"
        return DesiredMachineSets(None, others, why, revisit_at)
    return DesiredMachineSets(new, others, "", revisit_at)


def _is_late_enough(machine_set: Obj, deployment: Obj, now: float) -> bool:
    after = time_of(_passed_after(deployment, now))
    if after is None:
        return True
    made = time_of(created(machine_set))
    return (made is not None and made >= after) or name_of(machine_set) == identity(deployment, now).name
