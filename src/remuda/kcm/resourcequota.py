"""ResourceQuota status: the limits that are in force, and what is used of them.

The API server adds to the usage together with each new object (:mod:`remuda.apiserver.verbs.quotas`); this controller sets
limits in force, and lowers the usage when objects go. It keeps a running sum for each quota, so an event costs the same however
many objects there are, and it follows only the resources that some quota limits.

A count may replace the usage only if it misses nothing: the sums must have reached the revision of the quota that they are
compared with, and the write is refused when the quota has changed since then, as it does with every object that counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import PODS, RESOURCE_QUOTAS
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.objects import GroupVersionResource, Key, dig, metadata, name_of, namespace_of, resource_version_of
from remuda.kube.pod_resources import Amounts, added, read, shown
from remuda.kube.quantity import ZERO
from remuda.kube.quotas import LIMITED_BY_AMOUNT, Evaluator, evaluator, masked, pod_counts, pod_counts_until, subtracted
from remuda.runtime import Informer, Informers, Result, Retry, Workers, WorkQueue, synced
from remuda.runtime.informer import NAMESPACE_INDEX

from .served_resources import Discovery, Served, ServedResources

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
_QUOTABLE = ("create", "list", "watch", "delete")
_WORKERS = 5
# The time that the caches get to catch up before this is tried again.
_PATIENCE = 10.0


@dataclass(slots=True)
class _Sum:
    """The usage of one quota by the objects of one resource."""

    charges: dict[str, Amounts] = field(default_factory=dict)
    total: Amounts = field(default_factory=dict)

    def set(self, name: str, usage: Amounts | None) -> bool:
        """The usage of one object, or None; True when that is new."""
        before = self.charges.get(name)
        if before == usage:
            return False
        if before is not None:
            self.total = subtracted(self.total, before)
            del self.charges[name]
        if usage is not None:
            self.total = added(self.total, usage)
            self.charges[name] = usage
        return True


@dataclass(slots=True)
class _Count:
    """The sums of one quota. They are made anew when its limits or the served resources change."""

    limits: Obj
    snapshot: ServedResources
    sums: dict[GroupVersionResource, _Sum] = field(default_factory=dict)

    def used(self, hard: Iterable[str]) -> Amounts:
        found: Amounts = {}
        for resource, each in self.sums.items():
            names = _evaluator(resource).names(hard)
            found.update({name: each.total.get(name, ZERO) for name in names})
        return found


class QuotaController:
    name = "resourcequota-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers, discovery: Discovery) -> None:
        self._client = client
        self._clock = clock
        self._watches = watches
        self._discovery = discovery
        self._quotas = watches.of(RESOURCE_QUOTAS)
        self._quotas.add_index(NAMESPACE_INDEX, lambda quota: [namespace_of(quota)])
        self._followed: dict[GroupVersionResource, Informer] = {}
        self._counts: dict[Key, _Count] = {}
        self._queue: WorkQueue[Key] = WorkQueue(clock, rng, metrics=watches.registry.queue("resource_quota"))

    async def run(self) -> None:
        await synced(self._quotas)
        await self._discovery.ready.wait()
        self._quotas.on_change(self._quota_changed)
        self._discovery.on_change(lambda snapshot: self._look_at(self._quotas.keys()))
        await Workers(self.name, self._queue, self.reconcile, concurrency=_WORKERS).run()

    # --- what to look at ------------------------------------------------------------------------------------------------

    def _quota_changed(self, new: Obj | None, old: Obj | None) -> None:
        key = Key.of(new or old or {})
        if new is None:
            self._counts.pop(key, None)
        else:
            self._queue.add(key)

    def _look_at(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queue.add(key)

    def _object_changed(self, resource: GroupVersionResource, new: Obj | None, old: Obj | None) -> None:
        obj = new or old or {}
        quotas = self._quotas.indexed(NAMESPACE_INDEX, namespace_of(obj))
        if not quotas:
            return
        for quota in quotas:
            key = Key.of(quota)
            count = self._counts.get(key)
            each = None if count is None else count.sums.get(resource)
            if each is not None and each.set(name_of(obj), self._usage(resource, quota, new)):
                self._queue.add(key)
        if new is not None and resource == PODS:
            self._come_back(new)

    def _come_back(self, pod: Obj) -> None:
        """A pod that is being deleted and stays counts no more some time later."""
        until, now = pod_counts_until(pod), self._clock.time()
        if until is None or not pod_counts(pod, now):
            return
        key = Key.of(pod)

        def again() -> None:
            there = self._followed[PODS].get(key.namespace, key.name)
            if there is not None:
                self._object_changed(PODS, there, there)

        self._clock.call_later(until - now + 0.001, again)

    def _usage(self, resource: GroupVersionResource, quota: Obj, obj: Obj | None) -> Amounts | None:
        counts = _evaluator(resource)
        if obj is None or not counts.covers(quota, obj):
            return None
        # Only the names that are limited: a quota of pods does not change with their memory.
        return masked(counts.usage(obj, self._clock.time()), _limits(quota))

    # --- a quota --------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result | None:
        quota = self._quotas.get(key.namespace, key.name)
        if quota is None:
            return None
        await self._counting(key, quota)
        count = self._counts.get(key)
        if count is None or _status(quota, count) is None:
            return None
        for resource in count.sums:
            await self._within(self._followed[resource].reach(resource_version_of(quota)))
        if self._counts.get(key) is not count or self._quotas.get(key.namespace, key.name) is not quota:
            raise Retry("the quota has changed while it was counted")
        status = _status(quota, count)
        if status is not None:
            await self._client.update(RESOURCE_QUOTAS, {**quota, "status": status}, subresource="status", field_manager=MANAGER)
        return None

    async def _counting(self, key: Key, quota: Obj) -> None:
        """Make sure that the quota's objects are followed and summed up."""
        limits, snapshot = _limits(quota), self._discovery.snapshot
        known = self._counts.get(key)
        if known is not None and known.snapshot is snapshot and known.limits == limits:
            return
        followed = {served.resource: self._follow(served) for served in _limited(snapshot, limits)}
        await self._within(synced(*followed.values()))
        count = _Count(limits, snapshot)
        for resource, informer in followed.items():
            each = count.sums[resource] = _Sum()
            for obj in informer.indexed(NAMESPACE_INDEX, key.namespace):
                each.set(name_of(obj), self._usage(resource, quota, obj))
                if resource == PODS:
                    self._come_back(obj)
        if self._quotas.get(key.namespace, key.name) is not None:
            self._counts[key] = count

    def _follow(self, served: Served) -> Informer:
        resource = served.resource
        found = self._followed.get(resource)
        if found is None:
            whole = (resource.group, resource.resource) in LIMITED_BY_AMOUNT
            found = self._watches.of(resource) if whole else self._watches.of(resource, metadata_only=True, transform=_named)
            found.add_index(NAMESPACE_INDEX, lambda obj: [namespace_of(obj)])
            self._followed[resource] = found
            found.on_change(lambda new, old: self._object_changed(resource, new, old))
        return found

    async def _within(self, waiting: Any) -> None:
        try:
            async with deadline(self._clock, _PATIENCE):
                await waiting
        except TimeoutError:
            raise Retry("the objects that the quota counts can't be read yet") from None


def _evaluator(resource: GroupVersionResource) -> Evaluator:
    found = evaluator(resource.group, resource.resource)
    assert found is not None
    return found


def _limits(quota: Obj) -> Obj:
    return dig(quota, "spec", "hard") or {}


def _limited(snapshot: ServedResources, hard: Obj) -> list[Served]:
    """The resources of which a quota limits something."""
    found: list[Served] = []
    for served in snapshot.supporting(*_QUOTABLE):
        counts = evaluator(served.resource.group, served.resource.resource)
        if served.namespaced and counts is not None and counts.names(hard):
            found.append(served)
    return found


def _status(quota: Obj, count: _Count) -> Obj | None:
    """The quota's new status; None when it is right."""
    hard = _limits(quota)
    status = quota.get("status") or {}
    old = read(status.get("used"))
    used = masked({**old, **count.used(hard)}, sorted(hard))
    if old == used and read(status.get("hard")) == read(hard):
        return None
    return {"hard": hard, "used": shown(used)}


def _named(obj: Obj) -> Obj:
    """The part of an object that is enough to count it."""
    meta = metadata(obj)
    return {"metadata": {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in meta}}
