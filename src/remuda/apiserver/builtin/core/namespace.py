"""Namespaces: the `kubernetes` finalizer for the namespace controller, and the name as a label."""

from __future__ import annotations

from remuda.kube.errors import invalid_value

from ...registry import object_meta
from ...registry.strategy import AGE, NAME, Strategy, at, column
from .. import checks
from ..checks import Errors, Obj, sub

_NAME_LABEL = "kubernetes.io/metadata.name"


def _default(obj: Obj) -> None:
    name = sub(obj, "metadata").get("name")
    if name:
        meta = obj["metadata"]
        if (meta.get("labels") or {}).get(_NAME_LABEL) != name:
            meta["labels"] = {**(meta.get("labels") or {}), _NAME_LABEL: name}
    if not sub(obj, "status").get("phase"):
        obj["status"] = {**sub(obj, "status"), "phase": "Active"}


def _prepare_for_create(obj: Obj) -> None:
    # The name may have been generated after defaulting.
    obj["status"] = {"phase": "Active"}
    _default(obj)
    spec = obj.setdefault("spec", {})
    finalizers = spec.get("finalizers") or []
    if "kubernetes" not in finalizers:
        spec["finalizers"] = [*finalizers, "kubernetes"]


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    spec = {**sub(obj, "spec")}
    spec.pop("finalizers", None)
    if sub(old, "spec").get("finalizers"):
        spec["finalizers"] = old["spec"]["finalizers"]
    obj["spec"] = spec
    checks.keep_status(obj, old)


def _validate(obj: Obj) -> Errors:
    errors = checks.meta_errors(obj, False, object_meta.label_name)
    for name in sub(obj, "spec").get("finalizers") or ():
        errors += _finalizer_errors(name, "spec.finalizers")
    return errors


def _finalizer_errors(name: str, path: str) -> Errors:
    return checks.qualified(name, path) + checks.finalizer_name_errors(name, path)


def _validate_update(obj: Obj, old: Obj) -> Errors:
    return _validate(obj) + checks.meta_update_errors(obj, old)


def _validate_status_update(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    phase = sub(obj, "status").get("phase") or ""
    if not sub(obj, "metadata").get("deletionTimestamp"):
        if phase != "Active":
            why = "may only be 'Active' if `deletionTimestamp` is empty"
            errors.append(invalid_value("status.Phase", phase, why))
    elif phase != "Terminating":
        why = "may only be 'Terminating' if `deletionTimestamp` is not empty"
        errors.append(invalid_value("status.Phase", phase, why))
    return errors


def prepare_for_finalize(obj: Obj, old: Obj) -> None:
    """The `finalize` subresource changes the spec's finalizers, and not the status."""
    checks.keep_status(obj, old)


def validate_finalize(obj: Obj, old: Obj) -> Errors:
    errors = checks.meta_update_errors(obj, old)
    for index, name in enumerate(sub(obj, "spec").get("finalizers") or ()):
        errors += _finalizer_errors(name, f"spec.finalizers[{index}]")
    return errors


def _fields(obj: Obj) -> dict[str, str]:
    return {"status.phase": sub(obj, "status").get("phase") or "", "name": sub(obj, "metadata").get("name") or ""}


STRATEGY = Strategy(
    default=_default,
    prepare_for_create=_prepare_for_create,
    validate=_validate,
    prepare_for_update=_prepare_for_update,
    validate_update=_validate_update,
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=_validate_status_update,
    name_problems=object_meta.label_name,
    fields=_fields,
    field_names=frozenset(("status.phase",)),
    columns=(NAME, column("Status", at("status", "phase"), "Whether the namespace is in use or going away."), AGE),
)
