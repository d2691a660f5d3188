"""The spec of a PersistentVolumeClaim, on its own or inside a StatefulSet or an ephemeral volume."""

from __future__ import annotations

from remuda.kube import selectors
from remuda.kube.errors import forbidden_field, invalid_value, not_supported, required

from . import checks
from .checks import Errors, Obj, sub
from .resource_quantities import positive_quantity_errors, quantity_errors

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def access_mode_errors(modes: list[str], path: str) -> Errors:
    errors: Errors = [not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        errors.append(forbidden_field(path, "may not use ReadWriteOncePod with other access modes"))
    return errors


def claim_spec_errors(spec: Obj, path: str, was: Obj | None = None) -> Errors:
    errors: Errors = []
    modes = spec.get("accessModes") or []
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    errors += selectors.structure_errors(spec.get("selector"), f"{path}.selector")
    errors += access_mode_errors(modes, f"{path}.accessModes")
    errors += _storage_errors(spec, f"{path}.resources[storage]")
    if spec.get("storageClassName"):
        errors += checks.subdomain(spec["storageClassName"], f"{path}.storageClassName")
    errors += checks.supported(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode", False)
    lenient = was is not None and any(sub(was, field).get("apiGroup") is not None for field in ("dataSource", "dataSourceRef"))
    errors += _source_errors(spec.get("dataSource"), f"{path}.dataSource", lenient)
    errors += _source_errors(spec.get("dataSourceRef"), f"{path}.dataSourceRef", lenient)
    errors += _source_pair_errors(spec, path)
    if spec.get("volumeAttributesClassName"):
        errors += checks.subdomain(spec["volumeAttributesClassName"], f"{path}.volumeAttributesClassName")
    return errors


def _storage_errors(spec: Obj, path: str) -> Errors:
    storage = (sub(spec, "resources").get("requests") or {}).get("storage")
    if storage is None:
        return [required(path)]
    return positive_quantity_errors(storage, path) or quantity_errors("storage", storage, path)


def _source_errors(source: Obj | None, path: str, lenient: bool) -> Errors:
    if source is None:
        return []
    errors: Errors = [required(f"{path}.{field}") for field in ("name", "kind") if not source.get(field)]
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, kind, why))
    if group and not lenient:
        errors += checks.subdomain(group, f"{path}.apiGroup")
    if source.get("namespace"):
        errors += checks.dns_label(source["namespace"], f"{path}.namespace")
    return errors


def _source_pair_errors(spec: Obj, path: str) -> Errors:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return []
    # The invalid value is the path itself, which Go prints as an object without fields.
    shown = checks.Verbatim("{}")
    if reference.get("namespace"):
        return [invalid_value(path, shown, "may not be specified when dataSourceRef.namespace is specified")]
    if all(source.get(field) == reference.get(field) for field in ("apiGroup", "kind", "name")):
        return []
    return [invalid_value(path, shown, "must match dataSourceRef")]
