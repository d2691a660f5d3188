"""The services that every verb needs, in one place: registry, store, authorizer and clock.

The verbs are functions in :mod:`remuda.apiserver.verbs` that take an :class:`Api` and a :class:`Call`. HTTP
(:mod:`remuda.apiserver.http`) and the in-process client call the same functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from remuda.kube import errors
from remuda.kube.authorization.actions import Action, Authorizer, forbidden_action
from remuda.kube.authorization.users import SYSTEM, User
from remuda.kube.clock import Clock, Entropy, Rng, deadline
from remuda.kube.objects import Listener

from ..admission.chain import Chain
from ..cache.entries import Entry, encode
from ..cache.resource_cache import Change
from ..cache.watch_cache import WatchCache
from ..keys.rotation_record import still_used
from ..registry.resources import Registry, Resource, Version
from ..replicas import consistent_retry, leadership
from ..replicas.allocation_locks import AlreadyAllocated, Guarded
from ..storage import store as attribution
from ..storage.store import Check, Delete, Mismatch, Op, Put, StoreError, Unavailable, Unknown
from ..watch.filtered_list import VisiblePart

Obj = dict[str, Any]
T = TypeVar("T")

# The field manager of the server's own writes.
MANAGER = "kube-apiserver"

# The time that a write waits for its own event on a shared store.
_SHOWN = 5.0


class Source:
    """The :class:`~remuda.kube.objects.ObjectSource` on the watch cache."""

    def __init__(self, registry: Registry, cache: WatchCache) -> None:
        self._registry = registry
        self._cache = cache

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        found = self._registry.resource(group, resource)
        if found is None:
            return None
        entry = found.bucket.get(found.key(namespace, name))
        return None if entry is None else entry.object()

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        found = self._registry.resource(group, resource)
        if found is None:
            return []
        return [entry.object() for entry in found.bucket.scan(found.scope_prefix(namespace))]

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        found = self._registry.resource(group, resource)
        if found is None:
            raise KeyError(f"{resource}.{group} is not served")
        bucket = found.bucket
        bucket.keep_parsed = True

        def follow(changes: list[Change]) -> None:
            for change in changes:
                new = None if change.entry is None else change.entry.object()
                old = None if change.prev is None else change.prev.object()
                listener(new, old)

        for entry in bucket.scan(bucket.prefix):
            listener(entry.object(), None)
        bucket.followers.append(follow)


@dataclass(slots=True)
class Api:
    registry: Registry
    cache: WatchCache
    admission: Chain
    authorizer: Authorizer
    source: Source
    clock: Clock
    rng: Rng
    entropy: Entropy
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    # --- the store ------------------------------------------------------------------------------------------------------

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        return resource.bucket.get(resource.key(namespace, name))

    async def put(
        self, resource: Resource, key: str, obj: Obj, before: Entry | None, ttl: int = 0, beside: Sequence[Op] = ()
    ) -> Entry:
        """Store `obj` (in the storage version) in the place of `before`, or of nothing; raises Mismatch when that has changed,
        or one of the operations `beside` it fails.

        Raises Taken when it would hold a value that another object holds.
        """
        plain = encode(obj)
        if len(plain) > _VALUE_LIMIT:
            raise _too_large(len(plain))
        revision = await self._put_sealed(resource, key, plain, obj, before, ttl, beside)
        entry = resource.bucket.get(key)
        if entry is not None and entry.revision == revision:
            return entry
        # Another writer has changed it again already, or the feed is late; the caller gets its own write.
        namespace, name = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
        return Entry(key, namespace, name, revision, plain)

    async def _put_sealed(
        self, resource: Resource, key: str, plain: bytes, obj: Obj, before: Entry | None, ttl: int, beside: Sequence[Op]
    ) -> int:
        for late in (False, True):
            sealed = self.cache.seal(resource.bucket.prefix, key, plain, obj)
            used = still_used(sealed) if self.cache.shared else ()
            op = Put(key, sealed, 0 if before is None else before.revision, ttl, attribution.writer())
            try:
                if resource.holds is None or not self.cache.shared:
                    return await self._write([op, *beside, *used])
                old = None if before is None else before.object()
                return await self._write_guarded(op, resource, old, obj, [*beside, *used])
            except Mismatch as mismatch:
                if mismatch.key not in [each.key for each in used]:
                    raise
                # This server was away while the keys were rotated.
                if not late and self.cache.on_unknown_key is not None:
                    await self.cache.on_unknown_key()
            finally:
                self.cache.forget_sealed(sealed)
        raise errors.unavailable("the key that this server encrypts with was dropped by the others", retry_after=1)

    async def remove(self, resource: Resource, entry: Entry) -> int:
        op = Delete(entry.key, entry.revision, attribution.writer())
        if resource.holds is None or not self.cache.shared:
            return await self._write([op])
        return await self._write_guarded(op, resource, entry.object(), None)

    async def _write_guarded(
        self, op: Put | Delete, resource: Resource, old: Obj | None, new: Obj | None, beside: Sequence[Op] = ()
    ) -> int:
        """Write, together with the guards of the values that the object gains and loses."""
        assert resource.holds is not None
        guarded = Guarded(self.cache.store, op, resource.holds(old), resource.holds(new))
        while True:
            try:
                return await self._write([*await guarded.ops(), *beside])
            except Mismatch as mismatch:
                if not guarded.concerns(mismatch.key):
                    raise
                if guarded.gives_up(mismatch.key):
                    continue
                # The holder was written together with its guard: a cache that has caught up shows it if the guard is valid.
                await self.cache.consistent()
                holder = resource.bucket.get(guarded.holder(mismatch))
                if holder is not None and mismatch.key in resource.holds(holder.object()):
                    raise AlreadyAllocated(mismatch.key, holder.key) from None
                guarded.take(mismatch)

    async def _write(self, ops: Sequence[Op]) -> int:
        """Write and wait until the cache shows it: this write, or the faster one."""
        store = self.cache.store
        fence = leadership.current_fence()
        try:
            revision = await store.write(ops if fence is None else fence.checked(ops))
        except Mismatch as mismatch:
            if fence is not None and fence.is_broken_by(mismatch):
                raise errors.Fenced(fence.name) from None
            await self._shown(store.revision if mismatch.current is None else mismatch.current.mod_revision)
            raise
        except StoreError as error:
            if isinstance(error, Unknown):
                consistent_retry.note_written()
            if isinstance(error, Unknown | Unavailable):
                raise consistent_retry.as_answer(error) from error
            raise errors.unavailable(f"the store can't take writes now: {error}", retry_after=1) from error
        if self.cache.shared:
            consistent_retry.note_written()
        await self._shown(revision)
        return revision

    async def _shown(self, revision: int) -> None:
        """Wait until the cache has this; for a limited time on a shared store: its feed may be cut, and the write is done."""
        cache = self.cache
        if cache.revision >= revision:
            return
        if not cache.shared:
            await cache.reached(revision)
            return
        with suppress(TimeoutError, StoreError):
            async with deadline(self.clock, _SHOWN):
                await cache.reached(revision)

    # --- certainty, on a shared store ---------------------------------------------------------------------------------------

    async def run_consistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, or a true error: see :mod:`..replicas.consistent_retry`. It must be possible to call
        it twice.
        """
        if not self.cache.shared:
            return await attempt()
        began = self.cache.revision
        try:
            with consistent_retry.attempt() as tried:
                try:
                    return await attempt()
                except errors.ApiError as error:
                    if not tried.is_doubtful(error):
                        raise
                    await self.cache.consistent()
                    if self.cache.revision == began:
                        raise
            with consistent_retry.attempt():
                return await attempt()
        except (Unavailable, Unknown) as error:
            raise consistent_retry.as_answer(error) from error

    async def confirm(self, resource: Resource, entry: Entry) -> None:
        """Check an `entry` that is returned without a write: raises Mismatch when it is not the newest any more."""
        if not self.cache.shared:
            return
        await self.cache.consistent()
        now = resource.bucket.get(entry.key)
        if now is None or now.revision != entry.revision:
            raise Mismatch(entry.key, await self.cache.store.get(entry.key))

    def place(self, namespace: str) -> Sequence[Check]:
        """The condition that a namespace is unchanged: taken before a new object is admitted, checked when it is stored.

        Else a server that has not seen its deletion would create objects in a deleted namespace, where they are never found.
        """
        if not namespace or not self.cache.shared:
            return ()
        namespaces = self.registry.resource("", "namespaces")
        assert namespaces is not None
        entry = self.entry(namespaces, "", namespace)
        return (Check(namespaces.key("", namespace), 0 if entry is None else entry.revision),)

    def turn(self, namespace: str) -> asyncio.Lock:
        """Held by one writer at a time of those that need the result of the one before."""
        found = self._turns.get(namespace)
        if found is None:
            found = self._turns[namespace] = asyncio.Lock()
        return found

    async def before_trying(self, call: Call) -> None:
        """Catch up before a dry run: it is not compared with the store's state."""
        if call.dry_run and self.cache.shared:
            await self.cache.consistent()

    # --- authorization --------------------------------------------------------------------------------------------------

    def require(self, call: Call, verb: str, subresource: str = "", name: str | None = None) -> None:
        """Raise Forbidden unless the caller may also do `verb` here (create on update, for example)."""
        if call.trusted:
            return
        resource = call.version.resource
        action = Action(
            user=call.user,
            verb=verb,
            group=resource.group,
            version=call.version.name,
            resource=resource.name,
            subresource=subresource,
            namespace=call.namespace,
            name=call.name if name is None else name,
        )
        decision = self.authorizer.authorize(action)
        if not decision.allowed:
            raise forbidden_action(action, decision.reason)


# etcd refuses requests above 1.5 MiB, and so do clients' expectations of a Kubernetes API.
_VALUE_LIMIT = 1_572_864 - 512


def _too_large(size: int) -> errors.ApiError:
    return errors.ApiError(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {_VALUE_LIMIT}, object is {size} bytes encoded"
    )


# --- a request ------------------------------------------------------------------------------------------------------------
#
# One request to the API in the form of the verbs, over HTTP or in process.


STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


@dataclass(slots=True)
class Call:
    """`version` is the resource, in the version of the caller."""

    version: Version
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: User = SYSTEM
    manager: str = ""
    # Set when the caller gave a field manager itself; `manager` may also come from its User-Agent.
    field_manager: str = ""
    dry_run: bool = False
    # Empty when the caller gave none: then it warns.
    field_validation: str = ""
    force: bool | None = None
    warnings: list[str] = field(default_factory=list)
    # For the audit log, from admission.
    annotations: dict[str, str] = field(default_factory=dict)
    # The body as it came over the wire, for messages that quote it.
    sent: bytes = b""
    # In-process callers are the server itself and are not authorized again.
    trusted: bool = False
    # For a list or watch of which the caller may see a part.
    only: VisiblePart | None = None

    def options(self, kind: str) -> Obj:
        """The options object for admission webhooks."""
        found: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            found["dryRun"] = ["All"]
        if self.field_manager:
            found["fieldManager"] = self.field_manager
        if kind != "DeleteOptions" and self.field_validation:
            found["fieldValidation"] = self.field_validation
        return found


@dataclass(slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str = ""
    orphan_dependents: bool | None = None
    uid: str = ""
    resource_version: str = ""

    def to_object(self, dry_run: bool) -> Obj:
        found: Obj = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace_seconds is not None:
            found["gracePeriodSeconds"] = self.grace_seconds
        if self.propagation:
            found["propagationPolicy"] = self.propagation
        if self.orphan_dependents is not None:
            found["orphanDependents"] = self.orphan_dependents
        preconditions = {}
        if self.uid:
            preconditions["uid"] = self.uid
        if self.resource_version:
            preconditions["resourceVersion"] = self.resource_version
        if preconditions:
            found["preconditions"] = preconditions
        if dry_run:
            found["dryRun"] = ["All"]
        return found


@dataclass(slots=True)
class ListOptions:
    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int = 0
