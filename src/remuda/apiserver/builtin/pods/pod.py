"""Pods: updates (few fields may change), their status, and the binding, resize and ephemeral subresources.

The spec is checked in :mod:`.spec`; columns and warnings are in :mod:`.columns` and :mod:`.warnings`.
"""

from __future__ import annotations

from typing import Any

from remuda.kube.errors import forbidden_field, invalid_value, required
from remuda.kube.pod_resources import qos_class

from ...registry import object_meta
from ...registry.strategy import Strategy, warn
from .. import checks, internal_types
from ..checks import MAX_INT32, Errors, Obj, same, sub
from .columns import COLUMNS
from .containers import image_space_errors
from .defaults import default_pod
from .scheduling import merge_label_keys, toleration_errors
from .security_context import apparmor_profile
from .spec import MIRROR, each_container, pod_annotation_errors, pod_spec_errors, profile_match_errors
from .warnings import APPARMOR_ADVICE, pod_warnings

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_UPDATABLE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)
_FROZEN_STATE = "may not be transitioned to non-terminated state"


def _prepare_for_create(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    obj.setdefault("metadata", {})["generation"] = 1
    obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": sub(obj, "metadata").get("creationTimestamp"),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        obj["status"]["conditions"] = [condition]
    merge_label_keys(spec, sub(obj, "metadata").get("labels") or {})
    _copy_apparmor_annotations(obj, spec)


def _copy_apparmor_annotations(obj: Obj, spec: Obj) -> None:
    """Profiles were annotations once. As fields they are also seen by rules that look at fields."""
    annotations = sub(obj, "metadata").get("annotations") or {}
    if sub(spec, "os").get("name") == "windows" or not any(key.startswith(_APPARMOR) for key in annotations):
        return
    common = sub(spec, "securityContext").get("appArmorProfile")
    for _, container in each_container(spec, "spec"):
        key, context = f"{_APPARMOR}{container.get('name')}", sub(container, "securityContext")
        if key not in annotations or context.get("appArmorProfile") is not None:
            continue
        profile = apparmor_profile(annotations[key])
        if profile is None or profile != common:
            warn(f"metadata.annotations[{key}]: {APPARMOR_ADVICE}")
        if profile is not None and profile != common:
            container["securityContext"] = {**context, "appArmorProfile": profile}


def _validate(obj: Obj) -> Errors:
    errors = _spec_errors(obj)
    spec, annotations = sub(obj, "spec"), sub(obj, "metadata").get("annotations")
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden_field("spec.nodeName", why))
    return errors + profile_match_errors(annotations, spec, "spec")


def _spec_errors(obj: Obj) -> Errors:
    """Errors in metadata and spec, on every write."""
    meta, spec = sub(obj, "metadata"), sub(obj, "spec")
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    errors += pod_annotation_errors(meta.get("annotations"), spec, "metadata.annotations")
    errors += pod_spec_errors(spec, meta, "spec", is_pod=True)
    if not spec.get("serviceAccountName"):
        for i, volume in enumerate(spec.get("volumes") or ()):
            for j, source in enumerate(sub(volume, "projected").get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    at = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    errors.append(forbidden_field(at, "must not be specified when serviceAccountName is not set"))
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            errors += image_space_errors(container, f"spec.{field}[{index}]")
    return errors


# ---------------------------------------------------------------------------------------------------------------------
# Updates


def _annotation_update_errors(obj: Obj, old: Obj) -> Errors:
    new = sub(obj, "metadata").get("annotations") or {}
    before = sub(old, "metadata").get("annotations") or {}
    path = "metadata.annotations"
    errors: Errors = []
    for key, value in before.items():
        if new.get(key) == value:
            continue
        if key.startswith(_APPARMOR):
            errors.append(forbidden_field(f"{path}[{key}]", "may not remove or update AppArmor annotations"))
        if key == MIRROR:
            errors.append(forbidden_field(f"{path}[{key}]", "may not remove or update mirror pod annotation"))
    for key in new.keys() - before.keys():
        if key.startswith(_APPARMOR):
            errors.append(forbidden_field(f"{path}[{key}]", "may not add AppArmor annotations"))
        if key == MIRROR:
            errors.append(forbidden_field(f"{path}[{key}]", "may not add mirror pod annotation"))
    return errors + pod_annotation_errors(new, sub(obj, "spec"), path)


def _validate_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _spec_errors(obj) + _annotation_update_errors(obj, old)
    spec, before = sub(obj, "spec"), sub(old, "spec")
    for field in ("containers", "initContainers"):
        new, was = spec.get(field) or [], before.get(field) or []
        if len(new) != len(was):
            errors.append(forbidden_field(f"spec.{field}", "pod updates may not add or remove containers"))
            return errors
        for index, container in enumerate(new):
            if not container.get("image"):
                errors.append(required(f"spec.{field}[{index}].image"))
            errors += image_space_errors(container, f"spec.{field}[{index}]")
    stop, found = _deadline_errors(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    errors += found
    if stop:
        return errors
    errors += _toleration_update_errors(spec.get("tolerations") or [], before.get("tolerations") or [])
    errors += _gate_errors(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    if same(spec, before):
        return errors
    return errors + _unchanged_errors(spec, before)


def _deadline_errors(new: int | None, old: int | None) -> tuple[bool, Errors]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        why = "must not update from a positive integer to nil value"
        return False, [invalid_value(path, None, why)] if old is not None else []
    if not 0 <= new <= MAX_INT32:
        return True, checks.in_range(new, 0, MAX_INT32, path)
    if old is not None and old < new:
        return True, [invalid_value(path, new, "must be less than or equal to previous value")]
    return False, []


def _toleration_update_errors(new: list[Obj], old: list[Obj]) -> Errors:
    def without_seconds(toleration: Obj) -> Obj:
        return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}

    kept = [without_seconds(each) for each in new]
    if any(without_seconds(each) not in kept for each in old):
        why = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden_field("spec.tolerations", why)]
    return toleration_errors(new, "spec.tolerations")


def _gate_errors(new: list[Obj], old: list[Obj]) -> Errors:
    known = {gate.get("name") for gate in old}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'",
        )
        for index, gate in enumerate(new)
        if gate.get("name") not in known
    ]


def _with_images(containers: list[Obj], images_from: list[Obj]) -> list[Obj]:
    return [{**new, "image": old.get("image")} for new, old in zip(containers, images_from, strict=True)]


def _set(spec: Obj, field: str, value: Any) -> None:
    if value is None:
        spec.pop(field, None)
    else:
        spec[field] = value


def _unchanged_errors(spec: Obj, before: Obj) -> Errors:
    """Errors when an immutable field has changed."""
    errors: Errors = []
    munged = dict(spec)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            munged[field] = _with_images(spec[field], before.get(field) or [])
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _set(munged, field, before.get(field))
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if before.get("schedulingGates"):
        errors += _gated_errors(munged, before)
    if not same(munged, before):
        changes = internal_types.diff("PodSpec", before, munged)
        errors.append(forbidden_field("spec", f"pod updates may not change fields other than {_UPDATABLE}\n{changes}"))
    return errors


def _gated_errors(munged: Obj, before: Obj) -> Errors:
    """While a pod has a scheduling gate, its node selector and node affinity may only become narrower."""
    errors: Errors = []
    new, old = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(new.get(key) != value for key, value in old.items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid_value("spec.nodeSelector", new, why))
    _set(munged, "nodeSelector", before.get("nodeSelector"))
    required_field = "requiredDuringSchedulingIgnoredDuringExecution"
    old_nodes = sub(before, "affinity").get("nodeAffinity")
    terms = sub(old_nodes, required_field).get("nodeSelectorTerms") or []
    new_terms = sub(munged, "affinity", "nodeAffinity", required_field).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{required_field}.nodeSelectorTerms"
    if terms and len(terms) != len(new_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.append(invalid_value(path, new_terms, why))
    elif terms:
        for index, (new_term, old_term) in enumerate(zip(new_terms, terms, strict=True)):
            if not _only_adds(new_term, old_term):
                why = "only additions are allowed (no mutations or deletions)"
                errors.append(invalid_value(f"{path}[{index}]", new_term, why))
    affinity = dict(munged.get("affinity") or {})
    _set(affinity, "nodeAffinity", old_nodes)
    _set(munged, "affinity", affinity or before.get("affinity"))
    return errors


def _only_adds(new: Obj, old: Obj) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return not new.get("matchExpressions") and not new.get("matchFields")
    for field in ("matchExpressions", "matchFields"):
        was = old.get(field) or []
        if was and not same((new.get(field) or [])[: len(was)], was):
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Status


def _prepare_for_status_update(obj: Obj, old: Obj) -> None:
    checks.keep_spec(obj, old)
    meta = obj.setdefault("metadata", {})
    meta.pop("deletionTimestamp", None)
    _set(meta, "ownerReferences", sub(old, "metadata").get("ownerReferences"))
    status, before = dict(sub(obj, "status")), sub(old, "status")
    if not status.get("qosClass") and before.get("qosClass"):
        status["qosClass"] = before["qosClass"]
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    obj["status"] = status


def _validate_status_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old) + _annotation_update_errors(obj, old)
    status, before, spec = sub(obj, "status"), sub(old, "status"), sub(old, "spec")
    for index, condition in enumerate(status.get("conditions") or ()):
        if condition.get("type") not in ("PodScheduled", "Ready", "Initialized"):
            errors += checks.qualified(condition.get("type") or "", f"status.conditions[{index}].Type")
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != (before.get("nominatedNodeName") or ""):
        errors += checks.subdomain(nominated, "status.nominatedNodeName")
        if spec.get("nodeName"):
            why = "may not be set on pods that are already bound to a node"
            errors.append(forbidden_field("status.nominatedNodeName", why))
    generation = status.get("observedGeneration") or 0
    if generation < 0:
        errors.append(invalid_value("status.observedGeneration", generation, "must be a non-negative integer"))
    if (status.get("qosClass") or "") != (before.get("qosClass") or ""):
        errors.append(invalid_value("status.qosClass", status.get("qosClass") or "", object_meta.IMMUTABLE))
    for field, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        errors += _transition_errors(status, before, field, spec, containers)
    errors += _transition_errors(status, before, "ephemeralContainerStatuses", spec, "")
    return errors + _address_errors(status, before, "podIPs") + _host_address_errors(status, before)


def _may_restart(spec: Obj, containers: str, name: str, exit_code: int) -> bool:
    for container in spec.get(containers) or ():
        if container.get("name") != name:
            continue
        for rule in container.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes") or {}
            if (exit_code in (codes.get("values") or ())) is (codes.get("operator") == "In"):
                return True
        policy = container.get("restartPolicy")
        if policy is None and containers == "initContainers" and spec.get("restartPolicy") == "Always":
            policy = "OnFailure"
        policy = policy or spec.get("restartPolicy")
        return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
    return False


def _restarts_all(spec: Obj) -> bool:
    """True when a container's rule restarts the whole pod, which makes every transition possible."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for field in ("containers", "initContainers")
        for container in spec.get(field) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _transition_errors(status: Obj, before: Obj, field: str, spec: Obj, containers: str) -> Errors:
    if containers and _restarts_all(spec):
        return []
    new = {each.get("name"): each for each in status.get(field) or ()}
    errors: Errors = []
    for index, old in enumerate(before.get(field) or ()):
        ended = sub(old, "state").get("terminated")
        now = new.get(old.get("name"))
        if ended is None or now is None or sub(now, "state").get("terminated") is not None:
            continue
        if containers and _may_restart(spec, containers, old.get("name") or "", ended.get("exitCode") or 0):
            continue
        errors.append(forbidden_field(f"status.{field}[{index}].state", _FROZEN_STATE))
    return errors


def _address_errors(status: Obj, before: Obj, field: str) -> Errors:
    known = [each.get("ip") or "" for each in before.get(field) or ()]
    found = [each.get("ip") or "" for each in status.get(field) or ()]
    errors = [e for i, address in enumerate(found) for e in checks.ip(address, f"status.{field}[{i}]", known)]
    if len(found) > 1 and (len(found) > 2 or len(checks.families(found)) < 2):
        shown = [{"IP": address} for address in found]
        errors.append(invalid_value(f"status.{field}", shown, "may specify no more than one IP for each IP family"))
    return errors


def _host_address_errors(status: Obj, before: Obj) -> Errors:
    addresses = status.get("hostIPs") or []
    if not addresses:
        return []
    first = addresses[0].get("ip") or ""
    errors: Errors = []
    if (status.get("hostIP") or "") != first:
        errors.append(invalid_value("status.hostIPs[0].ip", first, "must be equal to `hostIP`"))
    return errors + _address_errors(status, before, "hostIPs")


def deletion_grace_seconds(pod: Obj, asked: int | None) -> int:
    """The grace period of a pod's deletion, in seconds: 0 when the pod is not scheduled, or has ended."""
    period = asked if asked is not None else sub(pod, "spec").get("terminationGracePeriodSeconds") or 0
    if not sub(pod, "spec").get("nodeName") or sub(pod, "status").get("phase") in ("Failed", "Succeeded"):
        return 0
    return 1 if period < 0 else int(period)


def _fields(obj: Obj) -> dict[str, str]:
    spec, status = sub(obj, "spec"), sub(obj, "status")
    addresses = status.get("podIPs") or [{}]
    return {
        "spec.nodeName": spec.get("nodeName") or "",
        # The field's name in the first versions; old clients still use it in selectors.
        "spec.host": spec.get("nodeName") or "",
        "spec.restartPolicy": spec.get("restartPolicy") or "",
        "spec.schedulerName": spec.get("schedulerName") or "",
        "spec.serviceAccountName": spec.get("serviceAccountName") or "",
        "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
        "status.phase": status.get("phase") or "",
        "status.podIP": addresses[0].get("ip") or "",
        "status.nominatedNodeName": status.get("nominatedNodeName") or "",
    }


STRATEGY = Strategy(
    default=default_pod,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=checks.keep_status,
    validate_update=_validate_update,
    prepare_for_status_update=_prepare_for_status_update,
    validate_status_update=_validate_status_update,
    warnings=pod_warnings,
    name_problems=object_meta.subdomain_name,
    fields=_fields,
    field_names=frozenset((*_fields({}), "status.podIPs")),
    columns=COLUMNS,
    default_grace_seconds=30,
    generation=True,
)
