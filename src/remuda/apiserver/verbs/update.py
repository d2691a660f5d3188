"""Update, and the read-modify-write loop that patch and apply share with it.

The loop takes the newest object, makes the new one, checks everything, and stores it only without a conflict; else it
starts again from the other writer's object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.encoding import jsonio
from remuda.kube.encoding.go_format import IntegerError, parse_uint
from remuda.kube.errors import invalid_value

from ..builtin.core import namespace as namespaces
from ..cache.entries import Entry, encode
from ..registry.strategy import collecting_warnings
from ..replicas.allocation_locks import AlreadyAllocated
from ..storage.store import Mismatch
from . import bodies, create, metadata, quotas
from .context import Api, Call
from .delete import delete_companion

Obj = dict[str, Any]

# Makes the new object from the live one (None when there is none): a private object of the call's version.
Compute = Callable[[Obj | None], Awaitable[Obj]]


class UpdateResult:
    """The result of a write: the entry to answer with, and whether it was new."""

    __slots__ = ("created", "entry")

    def __init__(self, entry: Entry, created: bool = False) -> None:
        self.entry = entry
        self.created = created


async def update(api: Api, call: Call, raw: Any, duplicates: list[str] | None = None) -> UpdateResult:
    obj = bodies.decode(call, raw, duplicates)
    meta = metadata.own_metadata(obj)
    metadata.settle_namespace(call, meta)
    check_name(call, meta)
    metadata.dedupe_owner_references(call, meta)

    async def compute(live: Obj | None) -> Obj:
        fresh = {**obj, "metadata": dict(obj["metadata"])}
        if live is None:
            return call.version.field_manager.on_create(fresh, call.manager, call.subresource)
        return await call.version.managed(lambda fields: fields.on_update(live, fresh, call.manager, call.subresource))

    return await guaranteed_update(api, call, compute, uid=meta.get("uid") or "")


def check_name(call: Call, meta: Obj) -> None:
    name, namespace = meta.get("name") or "", meta.get("namespace") or ""
    if not name:
        raise errors.bad_request(f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided")
    if name != call.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
    if namespace != (call.namespace if call.version.resource.namespaced else ""):
        raise errors.bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the request ({call.namespace})"
        )


@dataclass(frozen=True, slots=True)
class SubresourceView:
    """A subresource that shows an object as another kind. Its `compute` runs mutating admission itself."""

    kind: str
    subresource: str
    view: Callable[[Obj], Obj]


async def guaranteed_update(
    api: Api,
    call: Call,
    compute: Compute,
    *,
    uid: str = "",
    allow_create: bool = False,
    retries: int = 1_000_000,
    door: SubresourceView | None = None,
) -> UpdateResult:
    version, resource = call.version, call.version.resource
    await api.before_trying(call)
    entry = api.entry(resource, call.namespace, call.name)
    attempt = 0
    while True:
        if entry is None:
            if not (version.strategy.allow_create_on_update or allow_create):
                raise resource.not_found(call.name)
            if uid:
                raise precondition_failed(call, "UID", uid, "")
            return await _create_instead(api, call, compute)
        live = await version.load(entry)
        if uid and uid != live["metadata"].get("uid"):
            raise precondition_failed(call, "UID", uid, live["metadata"].get("uid") or "")
        try:
            return await _update_once(api, call, compute, entry, live, door)
        except AlreadyAllocated:
            # Another server gave these values to its object; by now the cache shows it, and others are chosen.
            entry = api.entry(resource, call.namespace, call.name)
        except Mismatch as mismatch:
            attempt += 1
            if attempt > retries:
                raise resource.stale(call.name) from None
            entry = None if mismatch.current is None else api.cache.entry_of(mismatch.current)


def precondition_failed(call: Call, what: str, given: str, found: str) -> errors.ApiError:
    resource = call.version.resource
    key = resource.key(call.namespace, call.name)
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
    )
    return resource.conflict(call.name, why)


async def _create_instead(api: Api, call: Call, compute: Compute) -> UpdateResult:
    obj = await compute(None)
    api.require(call, "create", call.subresource)
    meta = metadata.own_metadata(obj)
    metadata.wipe_system_fields(meta)
    meta.pop("resourceVersion", None)
    create.refuse_while_terminating(call)
    attributes = create.attributes_of(call, obj)
    place = api.place(call.namespace)
    await api.admission.admit(attributes)
    assert attributes.obj is not None
    return UpdateResult(await create.store_new(api, call, attributes.obj, attributes, place), created=True)


async def _update_once(
    api: Api, call: Call, compute: Compute, entry: Entry, live: Obj, door: SubresourceView | None
) -> UpdateResult:
    obj = await compute(live)
    attributes = _attributes(call, obj, live)
    if door is None:
        await api.admission.admit(attributes)
    assert attributes.obj is not None
    obj = attributes.obj
    meta = metadata.own_metadata(obj)
    metadata.dedupe_owner_references(call, meta, after_admission=True)
    _check_resource_version(call, meta, live)
    old_meta = live["metadata"]
    metadata.settle_namespace(call, meta)
    if old_meta.get("generation") is not None:
        meta["generation"] = old_meta["generation"]
    else:
        meta.pop("generation", None)
    if call.subresource:
        return await _store_changed(api, call, attributes, entry, live, door)
    if call.version.resource.holds is not None and api.cache.shared:
        # Allocations made on the way belong to it only if the write succeeds.
        obj = attributes.obj = jsonio.copy(obj)
    with call.version.resource.reserve(obj, live, call.dry_run):
        return await _store_changed(api, call, attributes, entry, live, door)


async def _store_changed(
    api: Api, call: Call, attributes: Attributes, entry: Entry, live: Obj, door: SubresourceView | None
) -> UpdateResult:
    """The part after mutating admission."""
    version, resource, strategy = call.version, call.version.resource, call.version.strategy
    assert attributes.obj is not None
    obj, old_meta = attributes.obj, live["metadata"]
    _prepare(call, obj, live)
    meta = obj["metadata"]
    if strategy.generation and metadata.spec_changed(version, obj, live):
        meta["generation"] = (old_meta.get("generation") or 0) + 1
    metadata.carry_over(meta, old_meta)
    found = metadata.update_errors(version, obj, live, _validate(call, obj, live))
    if found:
        raise errors.invalid(resource.storage.group, version.kind, meta.get("name") or "", found)
    call.warnings.extend(strategy.warnings(obj, live))
    obj = version.field_manager.keep_times(live, obj)
    attributes.obj = obj
    seen = attributes if door is None else attributes_through(door, call, door.view(obj), door.view(live))
    await api.admission.validate(seen)
    quotas.check(api, seen)
    if _finished(obj, live):
        return await _delete_finished(api, call, entry, obj)
    stored = await version.to_storage(obj)
    plain = encode(stored)
    if not entry.stale and (plain == entry.stored or _same(plain, entry.stored)):
        await api.confirm(resource, entry)
        return UpdateResult(entry)
    if call.dry_run:
        return UpdateResult(Entry(entry.key, entry.namespace, entry.name, entry.revision, plain))
    return UpdateResult(await quotas.put(api, seen, resource, entry.key, stored, entry, strategy.ttl))


def _same(new: bytes, stored: bytes) -> bool:
    """The same object, though its keys may be in another order; then nothing is written. Lengths tell most changes apart."""
    return len(new) == len(stored) and jsonio.dumps_sorted(jsonio.loads(new)) == jsonio.dumps_sorted(jsonio.loads(stored))


def _attributes(call: Call, obj: Obj, live: Obj) -> Attributes:
    version = call.version
    return Attributes(
        operation=UPDATE,
        group=version.group,
        version=version.name,
        resource=version.resource.name,
        kind=version.kind,
        namespace=call.namespace or (call.name if version.resource.name == "namespaces" and not version.group else ""),
        name=call.name,
        user=call.user,
        subresource=call.subresource,
        obj=obj,
        old=live,
        options=call.options("UpdateOptions"),
        dry_run=call.dry_run,
        warnings=call.warnings,
        annotations=call.annotations,
    )


def attributes_through(door: SubresourceView, call: Call, shown: Obj, before: Obj) -> Attributes:
    """The attributes for admission of a write to a subresource with its own kind."""
    attributes = _attributes(call, shown, before)
    attributes.kind, attributes.subresource = door.kind, door.subresource
    return attributes


def _check_resource_version(call: Call, meta: Obj, live: Obj) -> None:
    resource = call.version.resource
    given = meta.get("resourceVersion") or ""
    current = live["metadata"]["resourceVersion"]
    if given in ("", "0"):
        if not call.version.strategy.allow_unconditional_update:
            problem = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource.group, resource.name, call.name, [problem])
        meta["resourceVersion"] = current
        return
    try:
        parse_uint(given)
    except IntegerError as error:
        raise errors.ApiError(500, "", str(error)) from None
    if given != current:
        raise resource.stale(call.name)


def _prepare(call: Call, obj: Obj, live: Obj) -> None:
    if call.subresource == "status":
        call.version.strategy.prepare_for_status_update(obj, live)
    elif call.subresource == "finalize":
        namespaces.prepare_for_finalize(obj, live)
    else:
        call.version.strategy.prepare_for_update(obj, live)


def _validate(call: Call, obj: Obj, live: Obj) -> list[errors.FieldError]:
    if call.subresource == "status":
        return collecting_warnings(call.warnings, call.version.strategy.validate_status_update, obj, live)
    if call.subresource == "finalize":
        return namespaces.validate_finalize(obj, live)
    return collecting_warnings(call.warnings, call.version.strategy.validate_update, obj, live)


def _finished(obj: Obj, live: Obj) -> bool:
    """The last finalizer of an object that is being deleted is removed: now it is deleted."""
    old = live["metadata"]
    if obj["metadata"].get("finalizers") or not old.get("deletionTimestamp"):
        return False
    if obj.get("spec", {}).get("finalizers") and obj.get("kind") == "Namespace":
        return False
    return not old.get("deletionGracePeriodSeconds")


async def _delete_finished(api: Api, call: Call, entry: Entry, obj: Obj) -> UpdateResult:
    stored = await call.version.to_storage(obj)
    last = Entry(entry.key, entry.namespace, entry.name, entry.revision, encode(stored))
    if stored is not obj:
        # It is not read back from the store any more: the answer is the caller's object, in its own version.
        last.converted = {call.version: encode(obj)}
    if not call.dry_run:
        await api.remove(call.version.resource, entry)
        await delete_companion(api, call, entry)
    return UpdateResult(last)
