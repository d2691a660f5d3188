"""Delete: at once, after a grace period, or when the last finalizer is removed.

Owner references are followed by the garbage collector (:mod:`remuda.kcm.garbagecollector`); here only the
caller's propagation policy is set on the object as a finalizer for it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import DELETE, Attributes
from remuda.kube.clock import parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError, invalid_value, not_supported
from remuda.kube.objects import with_metadata

from ..builtin.pods.pod import deletion_grace_seconds
from ..cache.entries import Entry, encode
from ..crd.conditions import condition, with_condition
from ..storage.store import Mismatch
from .context import Api, Call, DeleteOptions, ListOptions
from .list import Page, list_

Obj = dict[str, Any]
logger = logging.getLogger(__name__)

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
# Kinds that the garbage collector does not follow, so it would never remove its finalizers from them.
_UNCOLLECTED = frozenset((("", "events"), ("events.k8s.io", "events")))
_POLICIES = ("Foreground", "Background", "Orphan")


class Deletion:
    """`done`: the object is deleted; else `entry` shows it while it is being deleted."""

    __slots__ = ("done", "entry")

    def __init__(self, entry: Entry, done: bool) -> None:
        self.entry = entry
        self.done = done

    def status(self, call: Call) -> Obj:
        resource = call.version.resource
        details: Obj = {"name": self.entry.name}
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.name
        details["uid"] = self.entry.object()["metadata"].get("uid", "")
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def option_errors(policy: str | None, orphan: bool | None) -> list[errors.FieldError]:
    found: list[errors.FieldError] = []
    if orphan is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        found.append(invalid_value("propagationPolicy", policy, why))
    if policy is not None and policy not in _POLICIES:
        found.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return found


def check_options(options: DeleteOptions) -> None:
    found = option_errors(options.propagation or None, options.orphan_dependents)
    if found:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", found)


async def delete(api: Api, call: Call, options: DeleteOptions, *, admit: bool = True) -> Deletion:
    """`admit` is False for a delete that was already admitted as something else (an eviction)."""
    check_options(options)
    resource = call.version.resource
    await api.before_trying(call)
    entry = api.entry(resource, call.namespace, call.name)
    while True:
        if entry is None:
            raise resource.not_found(call.name)
        try:
            return await _delete_once(api, call, options, entry, admit)
        except Mismatch as mismatch:
            entry = None if mismatch.current is None else api.cache.entry_of(mismatch.current)
            if entry is not None and options.resource_version:
                raise _wrong_version(call, options, entry.object()) from None


async def _delete_once(api: Api, call: Call, options: DeleteOptions, entry: Entry, admit: bool) -> Deletion:
    live = entry.object()
    _check_preconditions(call, options, live)
    if admit:
        await _admit(api, call, options, entry)
    meta = live["metadata"]
    if _is_crd(call) and not meta.get("deletionTimestamp"):
        return await _change(api, call, entry, _condemned(live, rfc3339(api.clock.time())))
    graceful, pending, changed = _grace(api, call, options, live)
    if pending:
        await api.confirm(call.version.resource, entry)
        return Deletion(entry, done=False)
    finalizers = finalizers_after(call, options, meta)
    if finalizers != (meta.get("finalizers") or []):
        changed = with_metadata(changed, finalizers=finalizers or None)
    if not graceful:
        if not _holds(call, changed):
            return await _remove(api, call, entry)
        changed = _mark_deleting(api, changed)
    elif changed["metadata"].get("deletionGracePeriodSeconds") == 0 and not _holds(call, changed):
        # Watchers see a pod marked before they see it deleted, even with no grace period.
        marked = await _change(api, call, entry, changed)
        return Deletion(marked.entry, done=True) if call.dry_run else await _remove(api, call, marked.entry)
    return await _change(api, call, entry, changed)


def _is_crd(call: Call) -> bool:
    return call.version.resource.name == "customresourcedefinitions" and call.version.group == "apiextensions.k8s.io"


def _condemned(crd: Obj, now: str) -> Obj:
    """A CRD waits until its objects are deleted; :mod:`remuda.kcm.crds` does that and removes the finalizer."""
    finalizers = crd["metadata"].get("finalizers") or []
    if CRD_CLEANUP not in finalizers:
        finalizers = [*finalizers, CRD_CLEANUP]
    status = crd.get("status") or {}
    pending = condition(
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    status = {**status, "conditions": with_condition(status.get("conditions") or [], pending, now)}
    return {**with_metadata(crd, deletionTimestamp=now, finalizers=finalizers), "status": status}


async def _change(api: Api, call: Call, entry: Entry, changed: Obj) -> Deletion:
    if encode(changed) == entry.stored:
        await api.confirm(call.version.resource, entry)
        return Deletion(entry, done=False)
    if call.dry_run:
        return Deletion(Entry(entry.key, entry.namespace, entry.name, entry.revision, encode(changed)), done=False)
    resource = call.version.resource
    return Deletion(await api.put(resource, entry.key, changed, entry), done=False)


def _holds(call: Call, obj: Obj) -> bool:
    """Finalizers hold it. A namespace is also held by its spec, until its content is deleted."""
    if obj["metadata"].get("finalizers"):
        return True
    resource = call.version.resource
    if resource.group == "" and resource.name == "namespaces":
        return bool((obj.get("spec") or {}).get("finalizers"))
    return False


async def _remove(api: Api, call: Call, entry: Entry) -> Deletion:
    if call.dry_run:
        return Deletion(entry, done=True)
    revision = await api.remove(call.version.resource, entry)
    await delete_companion(api, call, entry)
    return Deletion(entry.at(revision), done=True)


async def delete_companion(api: Api, call: Call, entry: Entry) -> None:
    """Delete the companion of the same name as well, so that a new object of that name does not find it."""
    companion = call.version.resource.companion
    if companion is None:
        return
    its_call = Call(companion.storage, "delete", entry.namespace, entry.name, user=call.user, trusted=True)
    try:
        # It may have been made through another server a moment ago.
        await api.cache.consistent()
        if companion.bucket.get(companion.key(entry.namespace, entry.name)) is None:
            return
        await delete(api, its_call, DeleteOptions())
    except errors.ApiError as error:
        # The requested delete is done: a failure of this one is only logged.
        logger.warning("%s %s/%s was left behind: %s", companion.name, entry.namespace, entry.name, error)


async def _admit(api: Api, call: Call, options: DeleteOptions, entry: Entry) -> None:
    version = call.version
    attributes = Attributes(
        operation=DELETE,
        group=version.group,
        version=version.name,
        resource=version.resource.name,
        kind=version.kind,
        namespace=call.namespace or (call.name if version.resource.name == "namespaces" and not version.group else ""),
        # For a collection, admission gets the objects but no name of the request: it has none.
        name="" if call.verb == "deletecollection" else call.name,
        user=call.user,
        old=await version.load(entry),
        options=options.to_object(call.dry_run),
        dry_run=call.dry_run,
        warnings=call.warnings,
        annotations=call.annotations,
    )
    await api.admission.admit(attributes)
    await api.admission.validate(attributes)


def _check_preconditions(call: Call, options: DeleteOptions, live: Obj) -> None:
    meta = live["metadata"]
    kind = call.version.kind
    if options.uid and options.uid != meta.get("uid"):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(call.version.group, kind, meta["name"], why)
    if options.resource_version and options.resource_version != meta["resourceVersion"]:
        raise _wrong_version(call, options, live)


def _wrong_version(call: Call, options: DeleteOptions, live: Obj) -> errors.ApiError:
    meta = live["metadata"]
    why = (
        f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in record "
        f"({meta['resourceVersion']}). The object might have been modified"
    )
    return errors.conflict(call.version.group, call.version.kind, meta["name"], why)


def _grace(api: Api, call: Call, options: DeleteOptions, live: Obj) -> tuple[bool, bool, Obj]:
    """(delete gracefully?, is that in progress already?, the object with its times set)."""
    strategy = call.version.strategy
    if not strategy.default_grace_seconds:
        return False, False, live
    meta = live["metadata"]
    asked = options.grace_seconds
    if asked is not None and asked < 0:
        asked = 1
    if meta.get("deletionTimestamp"):
        current = meta.get("deletionGracePeriodSeconds") or 0
        if current == 0:
            return False, False, live
        if asked is None or asked >= current:
            return False, True, live
        when = parse_rfc3339(meta["deletionTimestamp"]) - current + asked
        now = api.clock.time()
        if when < now:
            when, asked = now, min(asked, 1)
        return True, False, with_metadata(live, deletionTimestamp=rfc3339(when), deletionGracePeriodSeconds=asked)
    period = deletion_grace_seconds(live, asked)
    changed = with_metadata(live, deletionTimestamp=rfc3339(api.clock.time() + period), deletionGracePeriodSeconds=period)
    if meta.get("generation"):
        changed = with_metadata(changed, generation=meta["generation"] + 1)
    return True, False, changed


def finalizers_after(call: Call, options: DeleteOptions, meta: Obj) -> list[str]:
    current: list[str] = meta.get("finalizers") or []
    kept = [finalizer for finalizer in current if finalizer not in (ORPHAN, FOREGROUND)]
    if (call.version.group, call.version.resource.name) in _UNCOLLECTED:
        return kept
    orphan = foreground = False
    if options.orphan_dependents is not None:
        orphan = options.orphan_dependents
    elif options.propagation:
        orphan, foreground = options.propagation == "Orphan", options.propagation == "Foreground"
    else:
        for finalizer in current:
            if finalizer in (ORPHAN, FOREGROUND):
                orphan, foreground = finalizer == ORPHAN, finalizer == FOREGROUND
                break
    if orphan:
        kept.append(ORPHAN)
    if foreground:
        kept.append(FOREGROUND)
    return current if set(kept) == set(current) else kept


def _mark_deleting(api: Api, obj: Obj) -> Obj:
    meta = obj["metadata"]
    now = api.clock.time()
    is_namespace = obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1"
    fields: Obj = {} if is_namespace else {"deletionGracePeriodSeconds": 0}
    if not meta.get("deletionTimestamp"):
        fields["deletionTimestamp"] = rfc3339(now)
        if meta.get("generation"):
            fields["generation"] = meta["generation"] + 1
    elif parse_rfc3339(meta["deletionTimestamp"]) > now:
        fields["deletionTimestamp"] = rfc3339(now)
    changed = with_metadata(obj, **fields)
    if is_namespace:
        changed["status"] = {**(changed.get("status") or {}), "phase": "Terminating"}
    return changed


# --- delete collection ----------------------------------------------------------------------------------------------------
#
# Delete a whole selection, one object at a time, and answer with the list of them.


async def delete_collection(api: Api, call: Call, listed: ListOptions, options: DeleteOptions) -> Page:
    check_options(options)
    page = await list_(api, call, listed)
    for entry in page.entries:
        single = replace(call, namespace=entry.namespace, name=entry.name)
        try:
            await delete(api, single, replace(options))
        except ApiError as error:
            if not error.is_not_found:
                raise
    return page
