"""Metadata kept by the server: identity, times, generation, and the object's namespace."""

from __future__ import annotations

from typing import Any

from remuda.kube import errors
from remuda.kube.clock import rfc3339
from remuda.kube.errors import FieldError

from ..registry.object_meta import path_segment_name, validate_object_meta, validate_object_meta_update
from ..registry.resources import Version
from .context import Api, Call

Obj = dict[str, Any]

_SYSTEM = ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_MAX_GENERATED_BASE = 63 - 5


def own_metadata(obj: Obj) -> Obj:
    """The object's metadata, made if absent and private to the request."""
    meta = obj.get("metadata")
    obj["metadata"] = meta = dict(meta) if isinstance(meta, dict) else {}
    return meta


def wipe_system_fields(meta: Obj) -> None:
    for name in _SYSTEM:
        meta.pop(name, None)


def fill_system_fields(api: Api, meta: Obj) -> None:
    meta["creationTimestamp"] = rfc3339(api.clock.time())
    meta["uid"] = api.entropy.uuid()


def settle_namespace(call: Call, meta: Obj) -> None:
    """Give the object the request's namespace, or refuse one that names another."""
    expected = call.namespace if call.version.resource.namespaced else ""
    found = meta.get("namespace") or ""
    if found == expected:
        return
    if not found:
        meta["namespace"] = expected
    elif not expected:
        del meta["namespace"]
    else:
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")


def generate_name(api: Api, meta: Obj) -> None:
    base = meta.get("generateName") or ""
    if base and not meta.get("name"):
        meta["name"] = base[:_MAX_GENERATED_BASE] + api.rng.name_suffix()


def dedupe_owner_references(call: Call, meta: Obj, after_admission: bool = False) -> None:
    owners = meta.get("ownerReferences")
    if not owners or len(owners) < 2:
        return
    kept: list[Obj] = []
    uids: list[str] = []
    for owner in owners:
        if owner in kept:
            uids.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if uids:
        meta["ownerReferences"] = kept
        when = " after mutating admission happens" if after_admission else ""
        call.warnings.append(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may "
            "reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            f"{', '.join(uids)}"
        )


def creation_errors(version: Version, obj: Obj) -> list[FieldError]:
    """The kind's own checks first, then those of every kind: the more special message wins.

    A built-in kind's strategy checks its metadata itself; that of a custom one is checked here, once: its name must be a
    subdomain, which is more than a segment of a path.
    """
    meta, namespaced, strategy = obj["metadata"], version.resource.namespaced, version.strategy
    if version.resource.builtin:
        return strategy.validate(obj) or validate_object_meta(meta, namespaced, path_segment_name)
    return validate_object_meta(meta, namespaced, strategy.name_problems) + strategy.validate(obj)


def update_errors(version: Version, obj: Obj, old: Obj, own: list[FieldError]) -> list[FieldError]:
    """Both lists together, so that a cause may come twice, as in kube-apiserver. `own` are the kind's own errors."""
    meta, old_meta = obj["metadata"], old["metadata"]
    found = validate_object_meta(meta, version.resource.namespaced, path_segment_name)
    changes = validate_object_meta_update(meta, old_meta)
    return found + changes + ([] if version.resource.builtin else changes) + own


def spec_changed(version: Version, obj: Obj, old: Obj) -> bool:
    """True when anything but metadata (and the status, if it is a subresource) differs."""
    ignored = {"apiVersion", "kind", "metadata"} | version.strategy.generation_ignores
    if version.has_status or version.resource.builtin:
        ignored.add("status")
    names = (obj.keys() | old.keys()) - ignored
    return any(obj.get(name) != old.get(name) for name in names)


def carry_over(meta: Obj, old: Obj) -> None:
    """Keep the metadata that an update can neither change nor remove."""
    if not meta.get("uid"):
        meta["uid"] = old.get("uid", "")
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.get(name):
            meta[name] = old[name]
    if old.get("deletionGracePeriodSeconds") is not None and meta.get("deletionGracePeriodSeconds") is None:
        meta["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
