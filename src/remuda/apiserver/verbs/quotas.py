"""Quotas at a write: the object and the new usage of its namespace's quotas are stored in one transaction.

So a quota is never exceeded, whatever the number of writers and servers, and a crash at any line leaves no usage without an
object: every object that counts has changed the quota's revision, which the next writer and the quota controller
(:mod:`remuda.kcm.resourcequota`) compare. What is checked and charged is decided by
:mod:`remuda.apiserver.admission.resource_quota`.

Writers of one server take turns by namespace, because each needs the result of the one before it. A quota whose limits have
just been set is written unchanged, so that a count under way is refused and done again. Another server on the same store may
not have seen such a quota at all: new limits are stored together with the namespace, whose revision every create compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import Attributes
from remuda.kube.objects import dig
from remuda.kube.pod_resources import shown

from ..admission import resource_quota
from ..admission.resource_quota import Charge
from ..cache.entries import Entry, encode
from ..registry.resources import Resource
from ..storage.store import Check, Mismatch, Op, Put
from .context import Api

Obj = dict[str, Any]

# The manager of the usage, as kube-apiserver's own client is called.
_MANAGER = "kube-apiserver"
# Another writer was faster: each time some write has succeeded, so this many are only lost to servers that are much faster.
_ATTEMPTS = 32


def check(api: Api, attributes: Attributes) -> None:
    """Raise Forbidden when the write does not fit into the quotas as they are now."""
    _charges(api, attributes)


async def put(
    api: Api,
    attributes: Attributes,
    resource: Resource,
    key: str,
    obj: Obj,
    before: Entry | None,
    ttl: int = 0,
    checks: Sequence[Check] = (),
) -> Entry:
    """:meth:`Api.put`, charged to the quotas. Raises Forbidden, too."""
    if not api.cache.shared and not _quotas(api).bucket.entries:
        return await api.put(resource, key, obj, before, ttl, checks)
    async with AsyncExitStack() as turn:
        if _charges(api, attributes):
            await turn.enter_async_context(api.turn(attributes.namespace))
        for _ in range(_ATTEMPTS):
            with ExitStack() as sealed:
                # Read together, and compared together by the store.
                more = [_charged(api, charge, sealed) for charge in _charges(api, attributes)]
                more += _namespace(api, attributes, checks, sealed)
                named = [op.key for op in more]
                kept = [check for check in checks if check.key not in named]
                try:
                    return await api.put(resource, key, obj, before, ttl, [*kept, *more])
                except Mismatch as mismatch:
                    if mismatch.key not in named or mismatch.key in [check.key for check in checks]:
                        raise
    raise errors.stale("", "resourcequotas", attributes.namespace)


def _charges(api: Api, attributes: Attributes) -> list[Charge]:
    quotas = _quotas(api)
    if not quotas.bucket.entries or (counts := resource_quota.concerned(attributes)) is None:
        return []
    there = [entry.object() for entry in quotas.bucket.scan(quotas.scope_prefix(attributes.namespace))]
    return resource_quota.charges(there, attributes, counts, api.clock.time()) if there else []


def _quotas(api: Api) -> Resource:
    found = api.registry.resource("", "resourcequotas")
    assert found is not None
    return found


def _charged(api: Api, charge: Charge, sealed: ExitStack) -> Op:
    """The write of one quota: its new usage, owned as by an update of its status."""
    quotas = _quotas(api)
    live = obj = charge.quota
    if charge.used is not None:
        manager = quotas.storage.field_manager
        status = {**live["status"], "used": shown(charge.used)}
        changed = {**live, "metadata": dict(live["metadata"]), "status": status}
        obj = manager.keep_times(live, manager.on_update(live, changed, _MANAGER, "status"))
    return _rewritten(api, quotas, obj, int(live["metadata"]["resourceVersion"]), sealed)


def _namespace(api: Api, attributes: Attributes, checks: Sequence[Check], sealed: ExitStack) -> list[Op]:
    """On a shared store, new limits change their namespace, and every write that they may concern compares it."""
    if not api.cache.shared or not attributes.namespace:
        return []
    if _sets_limits(attributes):
        namespaces = api.registry.resource("", "namespaces")
        assert namespaces is not None
        entry = api.entry(namespaces, "", attributes.namespace)
        if entry is None:
            return []
        expected = next((check.expect for check in checks if check.key == entry.key), entry.revision)
        return [_rewritten(api, namespaces, entry.object(), expected, sealed)]
    # A create does so already, and from before its admission on.
    if attributes.old is not None and resource_quota.concerned(attributes) is not None:
        return list(api.place(attributes.namespace))
    return []


def _sets_limits(attributes: Attributes) -> bool:
    if attributes.group or attributes.resource != "resourcequotas" or attributes.subresource:
        return False
    return attributes.old is None or dig(attributes.old, "spec", "hard") != dig(attributes.obj, "spec", "hard")


def _rewritten(api: Api, resource: Resource, obj: Obj, expected: int, sealed: ExitStack) -> Op:
    meta = obj["metadata"]
    key = resource.key(meta.get("namespace") or "", meta["name"])
    value = api.cache.seal(resource.bucket.prefix, key, encode(obj), obj)
    sealed.callback(api.cache.forget_sealed, value)
    return Put(key, value, expected)
