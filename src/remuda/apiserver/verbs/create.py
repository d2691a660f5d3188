"""Create: decode, admit, validate, store. Also the second half of a PUT or an apply that makes a new object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import CREATE, Attributes
from remuda.kube.encoding import jsonio

from ..cache.entries import Entry, encode
from ..registry.strategy import collecting_warnings
from ..replicas.allocation_locks import AlreadyAllocated
from ..storage.store import Check, Mismatch
from . import bodies, metadata, quotas
from .context import Api, Call

Obj = dict[str, Any]

_GENERATE_ATTEMPTS = 8


async def create(api: Api, call: Call, raw: Any, duplicates: list[str] | None = None) -> Entry:
    await api.before_trying(call)
    obj = bodies.decode(call, raw, duplicates)
    meta = metadata.own_metadata(obj)
    metadata.wipe_system_fields(meta)
    metadata.settle_namespace(call, meta)
    metadata.dedupe_owner_references(call, meta)
    call.name = call.name or meta.get("name") or ""
    obj = call.version.field_manager.on_create(obj, call.manager, call.subresource)
    refuse_while_terminating(call)
    attributes = attributes_of(call, obj)
    place = api.place(call.namespace)
    await api.admission.admit(attributes)
    assert attributes.obj is not None
    obj = attributes.obj
    metadata.dedupe_owner_references(call, metadata.own_metadata(obj), after_admission=True)
    return await store_new(api, call, obj, attributes, place)


def refuse_while_terminating(call: Call) -> None:
    """Refuse new objects of a CRD that is being deleted: it still serves existing ones."""
    resource = call.version.resource
    if resource.terminating:
        raise resource.forbidden(call.name, "create not allowed while custom resource definition is terminating")


def attributes_of(call: Call, obj: Obj) -> Attributes:
    version = call.version
    namespace = call.namespace
    if not namespace and version.group == "" and version.resource.name == "namespaces":
        namespace = call.name
    return Attributes(
        operation=CREATE,
        group=version.group,
        version=version.name,
        resource=version.resource.name,
        kind=version.kind,
        namespace=namespace,
        name=call.name,
        user=call.user,
        subresource=call.subresource,
        obj=obj,
        options=call.options("CreateOptions"),
        dry_run=call.dry_run,
        warnings=call.warnings,
        annotations=call.annotations,
    )


async def store_new(api: Api, call: Call, obj: Obj, attributes: Attributes, place: Sequence[Check]) -> Entry:
    """The part after mutating admission; `place` was taken before that. `obj` belongs to this call."""
    generated = not (obj["metadata"].get("name")) and bool(obj["metadata"].get("generateName"))
    competing = call.version.resource.holds is not None and api.cache.shared
    for attempt in range(_GENERATE_ATTEMPTS):
        last = attempt == _GENERATE_ATTEMPTS - 1
        candidate = {**obj, "metadata": dict(obj["metadata"])} if generated else obj
        if competing:
            # Allocations made on the way belong to it only if the write succeeds.
            candidate = jsonio.copy(candidate)
        try:
            return await _store_once(api, call, candidate, attributes, place)
        except errors.ApiError as error:
            if not generated or not error.is_already_exists or last:
                raise
        except AlreadyAllocated as taken:
            if last:
                raise errors.stale(call.version.group, call.version.resource.name, call.name) from taken
    raise AssertionError("unreachable")


async def _store_once(api: Api, call: Call, obj: Obj, attributes: Attributes, place: Sequence[Check]) -> Entry:
    meta = obj["metadata"]
    metadata.fill_system_fields(api, meta)
    metadata.generate_name(api, meta)
    metadata.settle_namespace(call, meta)
    with call.version.resource.reserve(obj, None, call.dry_run):
        return await _store_filled(api, call, obj, attributes, place)


async def _store_filled(api: Api, call: Call, obj: Obj, attributes: Attributes, place: Sequence[Check]) -> Entry:
    version, resource = call.version, call.version.resource
    strategy = version.strategy
    collecting_warnings(call.warnings, strategy.prepare_for_create, obj)
    meta = obj["metadata"]
    if strategy.generation:
        meta["generation"] = 1
    found = metadata.creation_errors(version, obj)
    if found:
        raise errors.invalid(resource.storage.group, version.kind, meta.get("name") or "", found)
    call.warnings.extend(strategy.warnings(obj, None))
    attributes.obj, attributes.name = obj, meta["name"]
    await api.admission.validate(attributes)
    quotas.check(api, attributes)
    if meta.get("resourceVersion") not in (None, "", "0"):
        raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
    key = resource.key(meta.get("namespace") or "", meta["name"])
    if resource.bucket.get(key) is not None:
        raise _exists(call, meta)
    stored = await version.to_storage(obj)
    if call.dry_run:
        return Entry(key, meta.get("namespace") or "", meta["name"], 0, encode(stored))
    try:
        return await quotas.put(api, attributes, resource, key, stored, None, strategy.ttl, place)
    except Mismatch as mismatch:
        if mismatch.key != key:
            why = "the namespace has been changed while an object was being created in it; please try again"
            raise errors.conflict("", "namespaces", meta.get("namespace") or "", why) from None
        raise _exists(call, meta) from None


def _exists(call: Call, meta: Obj) -> errors.ApiError:
    return call.version.resource.already_exists(meta["name"])
