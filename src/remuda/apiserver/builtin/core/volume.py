"""PersistentVolumes and the claims on them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, UNSET, Strategy, at, column
from .. import checks, internal_types
from ..checks import Errors, Obj, same, sub
from ..claim_spec import ACCESS_MODES, VOLUME_MODES, access_mode_errors, claim_spec_errors
from ..pods import volumes
from ..pods.defaults import default_source
from ..pods.scheduling import node_selector_errors
from ..pods.volumes import MORE_THAN_ONE, csi_driver_errors, needs, no_backsteps
from ..resource_quantities import amount, basic_quantity_errors, fractional, positive_quantity_errors, quantity_errors

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_SHORT = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _local(source: Obj, path: str) -> Errors:
    where = source.get("path") or ""
    return no_backsteps(where, f"{path}.path") if where else [required(f"{path}.path")]


def _csi(source: Obj, path: str) -> Errors:
    errors = csi_driver_errors(source.get("driver") or "", f"{path}.driver") + needs("volumeHandle")(source, path)
    for field in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"):
        reference = source.get(f"{field}SecretRef")
        if reference is None:
            continue
        at_ref = f"{path}.{field}SecretRef"
        name, namespace = reference.get("name") or "", reference.get("namespace") or ""
        errors += checks.subdomain(name, f"{at_ref}.name") if name else [required(f"{at_ref}.name")]
        errors += checks.dns_label(namespace, f"{at_ref}.namespace") if namespace else [required(f"{at_ref}.namespace")]
    return errors


_SOURCES: tuple[tuple[str, str, Callable[[Obj, str], Errors]], ...] = (
    ("hostPath", "hostPath", volumes.host_path),
    ("gcePersistentDisk", "persistentDisk", volumes.disk("pdName")),
    ("awsElasticBlockStore", "awsElasticBlockStore", volumes.disk("volumeID")),
    ("glusterfs", "glusterfs", needs("endpoints", "path")),
    ("flocker", "flocker", volumes.flocker),
    ("nfs", "nfs", volumes.nfs),
    ("rbd", "rbd", needs("monitors", "image")),
    ("quobyte", "quobyte", needs("registry", "volume")),
    ("cephfs", "cephfs", needs("monitors")),
    ("iscsi", "iscsi", needs("targetPortal", "iqn")),
    ("cinder", "cinder", needs("volumeID")),
    ("fc", "fc", volumes.fc),
    ("flexVolume", "flexVolume", volumes.flex),
    ("azureFile", "azureFile", needs("secretName", "shareName")),
    ("vsphereVolume", "vsphereVolume", needs("volumePath")),
    ("photonPersistentDisk", "photonPersistentDisk", needs("pdID")),
    ("portworxVolume", "portworxVolume", needs("volumeID")),
    ("azureDisk", "azureDisk", volumes.azure_disk),
    ("scaleIO", "scaleIO", needs("gateway", "system", "volumeName")),
    ("local", "local", _local),
    ("storageos", "storageos", needs("volumeName")),
    ("csi", "csi", _csi),
)
_SOURCE_NAMES = tuple(name for name, _, _ in _SOURCES)


def _default_volume(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not sub(obj, "status").get("phase"):
        obj["status"] = {**sub(obj, "status"), "phase": "Pending"}
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    default_source(spec)


def _prepare_volume(obj: Obj) -> None:
    obj["status"] = {"phase": "Pending"}
    created = sub(obj, "metadata").get("creationTimestamp")
    if created:
        obj["status"]["lastPhaseTransitionTime"] = created


def _volume_errors(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.meta_errors(obj, False, object_meta.subdomain_name)
    modes, capacity = spec.get("accessModes") or [], spec.get("capacity") or {}
    if not modes:
        errors.append(required("spec.accessModes"))
    errors += access_mode_errors(modes, "spec.accessModes")
    if not capacity:
        errors.append(required("spec.capacity"))
    if "storage" not in capacity or len(capacity) > 1:
        errors.append(not_supported("spec.capacity", capacity or None, ("storage",)))
    for name, value in capacity.items():
        path = f"spec.capacity[{name}]"
        errors += basic_quantity_errors(value, path) + positive_quantity_errors(value, path)
    policies = ("Delete", "Recycle", "Retain")
    policy = spec.get("persistentVolumeReclaimPolicy")
    errors += checks.supported(policy, policies, "spec.persistentVolumeReclaimPolicy", False)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is not None:
            errors += node_selector_errors(affinity["required"], "spec.nodeAffinity.required")
        else:
            errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
    errors += _source_errors(spec)
    if policy == "Recycle" and posixpath.normpath(sub(spec, "hostPath").get("path") or ".") == "/":
        why = "may not be 'recycle' for a hostPath mount of '/'"
        errors.append(forbidden_field("spec.persistentVolumeReclaimPolicy", why))
    if spec.get("storageClassName"):
        errors += checks.subdomain(spec["storageClassName"], "spec.storageClassName")
    errors += checks.supported(spec.get("volumeMode"), VOLUME_MODES, "spec.volumeMode", False)
    return errors + _attributes_class_errors(spec)


def _attributes_class_errors(spec: Obj) -> Errors:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return []
    path = "spec.volumeAttributesClassName"
    errors = checks.subdomain(name, path) if name else [required(path, "an empty string is disallowed")]
    if spec.get("csi") is None:
        errors.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return errors


def _source_errors(spec: Obj) -> Errors:
    errors: Errors = []
    found = 0
    for field, reported, check in _SOURCES:
        source = spec.get(field)
        if source is None:
            continue
        found += 1
        if found > 1 and field != "flexVolume":
            shown = "cephFS" if field == "cephfs" else field
            errors.append(forbidden_field(f"spec.{shown}", MORE_THAN_ONE))
            continue
        errors += check(source, f"spec.{reported}")
        if field == "local" and spec.get("nodeAffinity") is None:
            errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    return errors if found else [required("spec", "must specify a volume type")]


def _volume_update_errors(obj: Obj, old: Obj) -> Errors:
    # kube-apiserver runs the whole check twice here, so every error is listed twice.
    errors = _volume_errors(obj) * 2
    spec, before = dict(sub(obj, "spec")), sub(old, "spec")
    old_csi, new_csi = before.get("csi"), spec.get("csi")
    if old_csi is not None and new_csi is not None and old_csi.get("controllerExpandSecretRef") is None:
        spec["csi"] = {key: value for key, value in new_csi.items() if key != "controllerExpandSecretRef"}
    if any(not same(spec.get(name), before.get(name)) for name in _SOURCE_NAMES):
        changes = internal_types.diff("PersistentVolumeSource", before, spec)
        why = f"spec.persistentvolumesource is immutable after creation\n{changes}"
        errors.append(forbidden_field("spec.persistentvolumesource", why))
    errors += checks.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    if before.get("nodeAffinity") is not None and not same(spec.get("nodeAffinity"), before["nodeAffinity"]):
        why = "field is immutable, except for updating from beta label to GA"
        errors.append(invalid_value("nodeAffinity", spec.get("nodeAffinity"), why))
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        why = "update from non-nil value to nil is forbidden"
        errors.append(forbidden_field("spec.volumeAttributesClassName", why))
    return errors


def _volume_status_errors(obj: Obj, old: Obj) -> Errors:
    return checks.meta_update_errors(obj, old)


def _prepare_volume_status(obj: Obj, old: Obj) -> None:
    checks.keep_spec(obj, old)
    status, before = sub(obj, "status"), sub(old, "status")
    since = before.get("lastPhaseTransitionTime")
    if since and status.get("phase") == before.get("phase") and not status.get("lastPhaseTransitionTime"):
        obj["status"] = {**status, "lastPhaseTransitionTime": since}


def _modes(modes: list[str] | None) -> str:
    return ",".join(_SHORT[mode] for mode in _SHORT if mode in (modes or ()))


def _phase(obj: Obj) -> str:
    if sub(obj, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return sub(obj, "status").get("phase") or ""


def _class(obj: Obj) -> str:
    annotations = sub(obj, "metadata").get("annotations") or {}
    return annotations.get(_BETA_CLASS) or sub(obj, "spec").get("storageClassName") or ""


def _claim(obj: Obj) -> str:
    reference = sub(obj, "spec").get("claimRef")
    return "" if reference is None else f"{reference.get('namespace') or ''}/{reference.get('name') or ''}"


_ATTRIBUTES = column(
    "VolumeAttributesClass", at("spec", "volumeAttributesClassName", default=UNSET), "Class of the volume's attributes."
)
_MODE = column("VolumeMode", at("spec", "volumeMode", default=UNSET), "Block device or file system.", wide=True)

VOLUME = Strategy(
    default=_default_volume,
    prepare_for_create=_prepare_volume,
    validate=_volume_errors,
    prepare_for_update=checks.keep_status,
    validate_update=_volume_update_errors,
    prepare_for_status_update=_prepare_volume_status,
    validate_status_update=_volume_status_errors,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Capacity", lambda o: (sub(o, "spec").get("capacity") or {}).get("storage", "0"), "Size of the volume."),
        column("Access Modes", lambda o: _modes(sub(o, "spec").get("accessModes")), "The access modes."),
        column("Reclaim Policy", at("spec", "persistentVolumeReclaimPolicy"), "The reclaim policy."),
        column("Status", _phase, "Whether it is free, bound or going away."),
        column("Claim", _claim, "The claim it is bound to."),
        column("StorageClass", _class, "Class of storage it belongs to."),
        _ATTRIBUTES,
        column("Reason", at("status", "reason"), "The reason of its state."),
        AGE,
        _MODE,
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Claims


def _default_claim(obj: Obj) -> None:
    if not sub(obj, "status").get("phase"):
        obj["status"] = {**sub(obj, "status"), "phase": "Pending"}
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _prepare_claim(obj: Obj) -> None:
    obj["status"] = {"phase": "Pending"}
    spec = obj.setdefault("spec", {})
    _drop_unknown_source(spec, {})
    _normalize_sources(spec)


def _normalize_sources(spec: Obj) -> None:
    """dataSource and dataSourceRef are copies of each other, unless the reference is to another namespace."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {field: value for field, value in reference.items() if field != "namespace"}


def _drop_unknown_source(spec: Obj, before: Obj) -> None:
    """Drops a dataSource that is neither a claim nor a snapshot: old clients could set any, and it was ignored."""
    source = spec.get("dataSource")
    in_use = before.get("dataSource") is not None or before.get("dataSourceRef") is not None
    if source is None or spec.get("dataSourceRef") is not None or in_use:
        return
    known = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    if (source.get("apiGroup") or "", source.get("kind")) not in known:
        del spec["dataSource"]


def _prepare_claim_update(obj: Obj, old: Obj) -> None:
    checks.keep_status(obj, old)
    spec = obj.setdefault("spec", {})
    _drop_unknown_source(spec, sub(old, "spec"))
    _normalize_sources(spec)


def _claim_errors(obj: Obj, was: Obj | None = None) -> Errors:
    errors = checks.meta_errors(obj, True, object_meta.subdomain_name)
    return errors + claim_spec_errors(sub(obj, "spec"), "spec", was)


def _claim_update_errors(obj: Obj, old: Obj) -> Errors:
    spec, before = sub(obj, "spec"), sub(old, "spec")
    errors = checks.meta_update_errors(obj, old) + _claim_errors(obj, before)
    annotations = sub(obj, "metadata").get("annotations") or {}
    old_annotations = sub(old, "metadata").get("annotations") or {}
    new, was = dict(spec), dict(before)
    if not before.get("volumeName") and spec.get("volumeName"):
        was["volumeName"] = spec["volumeName"]
    beta = old_annotations.get(_BETA_CLASS)
    moves = before.get("storageClassName") is None and spec.get("storageClassName") is not None
    if beta is not None and moves and spec["storageClassName"] == beta and annotations.get(_BETA_CLASS, beta) == beta:
        del new["storageClassName"]
    else:
        if annotations.get(_BETA_CLASS, "") != (beta or ""):
            path = f"metadata.annotations.{_BETA_CLASS}"
            errors.append(invalid_value(path, annotations.get(_BETA_CLASS, ""), object_meta.IMMUTABLE))
        if moves and (beta is None or spec["storageClassName"] == beta):
            del new["storageClassName"]
    size, old_size = (sub(each, "resources").get("requests") or {} for each in (spec, before))
    if sub(obj, "status").get("phase") == "Bound":
        kept = {**size, "storage": old_size.get("storage")}
        new["resources"] = {**sub(new, "resources"), "requests": kept}
        new["volumeAttributesClassName"] = was.get("volumeAttributesClassName")
    if not same(new, was):
        what = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        changes = internal_types.diff("PersistentVolumeClaimSpec", was, new)
        errors.append(forbidden_field("spec", f"{what}\n{changes}"))
    now, held = amount(size.get("storage")), amount((sub(old, "status").get("capacity") or {}).get("storage"))
    if now < amount(old_size.get("storage")) and now <= held:
        path = "spec.resources.requests.storage"
        errors.append(forbidden_field(path, "field can not be less than status.capacity"))
    errors += checks.immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    attributes = spec.get("volumeAttributesClassName")
    in_use = sub(old, "status").get("currentVolumeAttributesClassName") is not None
    if in_use and not attributes and attributes != before.get("volumeAttributesClassName"):
        to = "nil" if attributes is None else "empty string"
        why = f"update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        errors.append(forbidden_field("spec.volumeAttributesClassName", why))
    return errors


def _claim_status_errors(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    if not sub(obj, "spec").get("accessModes"):
        errors.append(required("Spec.accessModes"))
    status = sub(obj, "status")
    for name, value in (status.get("capacity") or {}).items():
        errors += basic_quantity_errors(value, f"status.capacity[{name}]")
    for name, value in (status.get("allocatedResources") or {}).items():
        errors += quantity_errors("storage", value, f"status.allocatedResources[{name}]")
    return errors


def claim_warnings(obj: Obj, old: Obj | None) -> list[str]:
    found: list[str] = []
    if _BETA_CLASS in (sub(obj, "metadata").get("annotations") or {}):
        advice = 'deprecated since v1.8; use "storageClassName" attribute instead'
        found.append(f"metadata.annotations[{_BETA_CLASS}]: {advice}")
    return found + claim_spec_warnings(sub(obj, "spec"), "spec")


def claim_spec_warnings(spec: Obj, path: str) -> list[str]:
    found: list[str] = []
    for field in ("requests", "limits"):
        storage = (sub(spec, "resources").get(field) or {}).get("storage")
        if storage is not None and fractional(storage):
            advice = f'fractional byte value "{storage}" is invalid, must be an integer'
            found.append(f"{path}.resources.{field}[storage]: {advice}")
    return found


def _bound(field: str, obj: Obj) -> str:
    if not sub(obj, "spec").get("volumeName"):
        return ""
    if field == "modes":
        return _modes(sub(obj, "status").get("accessModes"))
    return str((sub(obj, "status").get("capacity") or {}).get("storage", "0"))


CLAIM = Strategy(
    default=_default_claim,
    prepare_for_create=_prepare_claim,
    validate=_claim_errors,
    prepare_for_update=_prepare_claim_update,
    validate_update=_claim_update_errors,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_claim_status_errors,
    warnings=claim_warnings,
    name_problems=object_meta.subdomain_name,
    columns=(
        NAME,
        column("Status", _phase, "Whether the claim has a volume."),
        column("Volume", at("spec", "volumeName"), "The volume it is bound to."),
        column("Capacity", lambda obj: _bound("capacity", obj), "Size of that volume."),
        column("Access Modes", lambda obj: _bound("modes", obj), "The access modes."),
        column("StorageClass", _class, "Class of storage it asks for."),
        _ATTRIBUTES,
        AGE,
        _MODE,
    ),
)

__all__ = ["ACCESS_MODES", "CLAIM", "VOLUME", "claim_spec_warnings"]
