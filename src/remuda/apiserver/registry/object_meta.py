"""The rules of metadata for objects of every kind; custom resources are checked by this alone.

Built-in kinds add one rule of their own for finalizers (:mod:`remuda.apiserver.builtin.checks`). Order and texts are
kube-apiserver's: a Status lists one cause per error, in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube import names
from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import FieldError, Verbatim, forbidden_field, go_quote, invalid_value, required, too_long

Obj = dict[str, Any]
NameProblems = Callable[[str, bool], list[str]]

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"
_MANAGER_MAX = 128
_SUBRESOURCE_MAX = 256
# In the order of the Go struct, in which field errors show them.
META_FIELDS = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _unmasked(name: str, prefix: bool) -> str:
    """A generateName may end in a dash, since more follows."""
    return name[:-2] + "a" if prefix and len(name) > 1 and name.endswith("-") else name


def subdomain_name(name: str, prefix: bool) -> list[str]:
    return names.dns_subdomain_problems(_unmasked(name, prefix))


def label_name(name: str, prefix: bool) -> list[str]:
    return names.dns_label_problems(_unmasked(name, prefix))


def path_segment_name(name: str, prefix: bool) -> list[str]:
    if prefix:
        return [f"may not contain '{char}'" for char in ("/", "%") if char in name]
    return names.path_segment_problems(name)


def validate_object_meta(meta: Obj, namespaced: bool, name_problems: NameProblems, path: str = "metadata") -> list[FieldError]:
    errors: list[FieldError] = []
    generate = meta.get("generateName") or ""
    if generate:
        errors += [invalid_value(f"{path}.generateName", generate, why) for why in name_problems(generate, True)]
    name = meta.get("name") or ""
    if not name:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    else:
        errors += [invalid_value(f"{path}.name", name, why) for why in name_problems(name, False)]
    errors += _namespace_errors(meta.get("namespace") or "", namespaced, f"{path}.namespace")
    generation = meta.get("generation") or 0
    if generation < 0:
        errors.append(invalid_value(f"{path}.generation", generation, NEGATIVE))
    errors += names.label_errors(meta.get("labels"), f"{path}.labels")
    errors += names.annotation_errors(meta.get("annotations"), f"{path}.annotations")
    errors += owner_reference_errors(meta.get("ownerReferences"), f"{path}.ownerReferences")
    errors += finalizer_errors(meta.get("finalizers"), f"{path}.finalizers")
    errors += managed_fields_errors(meta.get("managedFields"), f"{path}.managedFields")
    return errors


def _namespace_errors(namespace: str, namespaced: bool, path: str) -> list[FieldError]:
    if not namespaced:
        return [forbidden_field(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [required(path)]
    return [invalid_value(path, namespace, why) for why in names.dns_label_problems(namespace)]


def validate_object_meta_update(new: Obj, old: Obj, path: str = "metadata") -> list[FieldError]:
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        errors += _new_finalizer_errors(new, old, f"{path}.finalizers")
    if not new.get("resourceVersion"):
        errors.append(invalid_value(f"{path}.resourceVersion", "", "must be specified for an update"))
    generation = new.get("generation") or 0
    if generation < (old.get("generation") or 0):
        errors.append(invalid_value(f"{path}.generation", generation, "must not be decremented"))
    for field in ("name", "namespace", "uid"):
        if (new.get(field) or "") != (old.get(field) or ""):
            errors.append(invalid_value(f"{path}.{field}", new.get(field) or "", IMMUTABLE))
    for field in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if new.get(field) != old.get(field):
            errors.append(invalid_value(f"{path}.{field}", new.get(field), IMMUTABLE))
    errors += names.label_errors(new.get("labels"), f"{path}.labels")
    errors += names.annotation_errors(new.get("annotations"), f"{path}.annotations")
    errors += owner_reference_errors(new.get("ownerReferences"), f"{path}.ownerReferences")
    errors += managed_fields_errors(new.get("managedFields"), f"{path}.managedFields")
    return errors


def _new_finalizer_errors(new: Obj, old: Obj, path: str) -> list[FieldError]:
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not added:
        return []
    listed = "[]string{" + ", ".join(go_quote(name) for name in added) + "}"
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
    return [forbidden_field(path, why)]


def _shown_owner(reference: Obj) -> Obj:
    """The reference with its fields in Go's order; those four are shown even when empty."""
    shown = {field: reference.get(field) or "" for field in _OWNER_FIELDS[:4]}
    shown.update({field: reference[field] for field in _OWNER_FIELDS[4:] if reference.get(field) is not None})
    return shown


def owner_reference_errors(references: list[Obj] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for reference in references or ():
        errors += _owner_errors(reference, path)
        if not reference.get("controller"):
            continue
        this = f"{reference.get('kind') or ''}/{reference.get('name') or ''}"
        if controller:
            shown = Verbatim(dumps_text([_shown_owner(each) for each in references or ()]))
            why = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {this}'
            errors.append(invalid_value(path, shown, why))
        else:
            controller = this
    return errors


def _owner_errors(reference: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    version = reference.get("apiVersion") or ""
    # A text with more than one slash is no group and version at all.
    if not version or version.count("/") > 1 or version.endswith("/"):
        errors.append(invalid_value(f"{path}.apiVersion", version, "version must not be empty"))
    for field in ("kind", "name", "uid"):
        if not reference.get(field):
            errors.append(invalid_value(f"{path}.{field}", reference.get(field) or "", "must not be empty"))
    if version == "v1" and reference.get("kind") == "Event":
        shown = Verbatim(dumps_text(_shown_owner(reference)))
        errors.append(invalid_value(path, shown, "/v1, Kind=Event is disallowed from being an owner"))
    return errors


def finalizer_errors(finalizers: list[str] | None, path: str) -> list[FieldError]:
    if not finalizers:
        return []
    errors = [invalid_value(path, name, why) for name in finalizers for why in names.qualified_name_problems(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid_value(path, finalizers, why))
    return errors


def managed_fields_errors(entries: list[Obj] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, entry in enumerate(entries or ()):
        at = f"{path}[{index}]"
        operation = entry.get("operation") or ""
        if operation not in ("Apply", "Update"):
            errors.append(invalid_value(f"{at}.operation", operation, "must be `Apply` or `Update`"))
        kind = entry.get("fieldsType") or ""
        if kind and kind != "FieldsV1":
            errors.append(invalid_value(f"{at}.fieldsType", kind, "must be `FieldsV1`"))
        errors += field_manager_errors(entry.get("manager") or "", f"{at}.manager")
        if len(entry.get("subresource") or "") > _SUBRESOURCE_MAX:
            errors.append(too_long(f"{at}.subresource", _SUBRESOURCE_MAX))
    return errors


def field_manager_errors(manager: str, path: str) -> list[FieldError]:
    if len(manager) <= _MANAGER_MAX and manager.isascii() and manager.isprintable():
        return []
    errors = [too_long(path, _MANAGER_MAX)] if len(manager.encode()) > _MANAGER_MAX else []
    position = 0
    for char in manager:
        if not (char.isprintable() or char == " "):
            why = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(invalid_value(path, manager, why))
        position += len(char.encode())
    return errors
