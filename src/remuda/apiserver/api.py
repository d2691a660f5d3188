"""The services that every verb needs, in one place: what is served, what is stored, who may, and what time it is.

The verbs are functions in :mod:`remuda.apiserver.verbs` that take an :class:`Api` and a :class:`~remuda.apiserver.calls.Call`.
The HTTP door (:mod:`remuda.apiserver.http`) and the in-process client call the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock, Entropy, Rng

from .admission.chain import Chain
from .authz import Action, Authorizer, forbidden_action
from .cache import Cache, Change
from .calls import Call
from .entries import Entry, encode
from .resources import Registry, Resource
from .source import Listener
from .store import Delete, Mismatch, Put, StoreError

Obj = dict[str, Any]


class Source:
    """The :class:`~remuda.apiserver.source.ObjectSource` on the watch cache."""

    def __init__(self, registry: Registry, cache: Cache) -> None:
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
    cache: Cache
    admission: Chain
    authorizer: Authorizer
    source: Source
    clock: Clock
    rng: Rng
    entropy: Entropy

    # --- the store ------------------------------------------------------------------------------------------------------

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        return resource.bucket.get(resource.key(namespace, name))

    async def put(self, resource: Resource, key: str, obj: Obj, expect: int, ttl: int = 0) -> Entry:
        """Store `obj` (in the storage version) if the key is still at `expect`; raises Mismatch."""
        plain = encode(obj)
        if len(plain) > _VALUE_LIMIT:
            raise _too_large(len(plain))
        sealed = self.cache.seal(resource.bucket.prefix, key, plain, obj)
        try:
            revision = await self._write(Put(key, sealed, expect, ttl))
        finally:
            self.cache.forget_sealed(sealed)
        entry = resource.bucket.get(key)
        if entry is not None and entry.revision == revision:
            return entry
        # Somebody has changed it again already; the caller gets what it wrote.
        namespace, name = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
        return Entry(key, namespace, name, revision, plain)

    async def remove(self, key: str, expect: int) -> int:
        return await self._write(Delete(key, expect))

    async def _write(self, op: Put | Delete) -> int:
        """Write and wait until the cache shows it: one's own write, or the one that was faster."""
        store = self.cache.store
        try:
            revision = await store.write([op])
        except Mismatch:
            await self.cache.reached(store.revision)
            raise
        except StoreError as error:
            raise errors.unavailable(f"the store can't take writes now: {error}") from error
        await self.cache.reached(revision)
        return revision

    # --- permission -----------------------------------------------------------------------------------------------------

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
