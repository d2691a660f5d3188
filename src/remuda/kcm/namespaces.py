"""Namespace deletion: all objects in a terminating namespace are deleted, then the namespace's finalizer is removed.

Every deletable resource from discovery is emptied; pods go first, since the objects that they use must outlive them.
The remaining objects (because of finalizers) are reported in the namespace's conditions, as kube-controller-manager does.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES, PODS
from remuda.kube.clock import Clock, Rng, parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError, aggregate_text
from remuda.kube.objects import GroupVersionResource, dig, finalizers_of, is_being_deleted, metadata, name_of, with_path
from remuda.runtime import Informers, Result, Workers, WorkQueue, synced

from .served_resources import Discovery, Served

log = logging.getLogger(__name__)

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
FINALIZER = "kubernetes"
_FINALIZER_SECONDS = 15
_WORKERS = 10

# type -> (reason, message) when all is well, in the order in which conditions are written.
_OK = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(slots=True)
class RemainingContent:
    """The rest of a namespace's content after a deletion pass, and the time that it may take."""

    estimate: int = 0
    counts: dict[GroupVersionResource, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    discovery_error: str = ""
    # Pods delay everything else; kube-controller-manager reports no content then.
    only_pods: bool = False

    def problems(self) -> dict[str, tuple[str, str]]:
        """Condition types that are True, with reason and message."""
        found: dict[str, tuple[str, str]] = {}
        if self.discovery_error:
            found["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", self.discovery_error)
        if self.errors:
            text = f"Failed to delete all resource types, {len(self.errors)} remaining: {', '.join(sorted(self.errors))}"
            found["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", text)
        if self.only_pods:
            return found
        if self.counts:
            listed = sorted(f"{r.resource}.{r.group} has {count} resource instances" for r, count in self.counts.items())
            text = f"Some resources are remaining: {', '.join(listed)}"
            found["NamespaceContentRemaining"] = ("SomeResourcesRemain", text)
        if self.finalizers:
            listed = sorted(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
            text = f"Some content in the namespace has finalizers remaining: {', '.join(listed)}"
            found["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
        return found


def conditions(before: list[Obj], problems: dict[str, tuple[str, str]], now: str) -> list[Obj]:
    """The namespace's conditions; unchanged ones keep their time (and the list is equal when none changed)."""
    known = {condition.get("type"): condition for condition in before}
    result = list(before)
    for kind, ok in _OK.items():
        reason, message = problems.get(kind, ok)
        status = "True" if kind in problems else "False"
        old = known.get(kind)
        if old is None:
            fresh = {
                "type": kind,
                "status": status,
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
            result.append(fresh)
            continue
        changed = {**old, "status": status, "reason": reason, "message": message}
        if old.get("status") != status:
            changed["lastTransitionTime"] = now
        result[result.index(old)] = changed
    return result


class NamespaceController:
    name = "namespace-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers, discovery: Discovery) -> None:
        self._client = client
        self._clock = clock
        self._discovery = discovery
        self._namespaces = watches.of(NAMESPACES)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))
        self._rounds: Counter[str] = Counter()

    async def run(self) -> None:
        await synced(self._namespaces)
        self._namespaces.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile, _WORKERS).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and is_being_deleted(new):
            self._queue.add(name_of(new))

    async def reconcile(self, name: str) -> Result | None:
        namespace = await self._get(name)
        if namespace is None or not is_being_deleted(namespace):
            self._rounds.pop(name, None)
            return None
        if dig(namespace, "status", "phase") != "Terminating":
            namespace = await self._write(with_path(namespace, ("status", "phase"), "Terminating"), "status")
        if not dig(namespace, "spec", "finalizers"):
            return None
        remains = await self._empty(namespace)
        namespace = await self._tell(namespace, remains)
        if remains.errors or remains.discovery_error:
            raise ApiError(500, "InternalError", aggregate_text([*remains.errors, *filter(None, [remains.discovery_error])]))
        if remains.estimate > 0:
            # Finalizers are usually removed quickly or not for long: look soon at first, then as rarely as Kubernetes does.
            self._rounds[name] += 1
            return Result(after=min(0.1 * 2.0 ** min(self._rounds[name], 20), remains.estimate // 2 + 1))
        self._rounds.pop(name, None)
        await self._finalize(namespace)
        return None

    async def _get(self, name: str) -> Obj | None:
        try:
            return await self._client.get(NAMESPACES, name)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _write(self, namespace: Obj, subresource: str) -> Obj:
        return await self._client.update(NAMESPACES, namespace, subresource=subresource, field_manager=MANAGER)

    async def _tell(self, namespace: Obj, remains: RemainingContent) -> Obj:
        before = dig(namespace, "status", "conditions") or []
        after = conditions(before, remains.problems(), rfc3339(self._clock.time()))
        if after == before:
            return namespace
        return await self._write(with_path(namespace, ("status", "conditions"), after), "status")

    async def _finalize(self, namespace: Obj) -> None:
        kept = sorted({found for found in (dig(namespace, "spec", "finalizers") or []) if found != FINALIZER})
        try:
            await self._write(with_path(namespace, ("spec", "finalizers"), kept), "finalize")
        except ApiError as error:
            if not error.is_not_found:
                raise

    # --- content --------------------------------------------------------------------------------------------------------

    async def _empty(self, namespace: Obj) -> RemainingContent:
        remains = RemainingContent()
        snapshot = await self._discovery.refresh()
        if snapshot.failures:
            count = len(snapshot.failures)
            text = f"Discovery failed for some groups, {count} failing: {snapshot.failure_text()}"
            remains.discovery_error = text
        deletable = [served for served in snapshot.supporting("delete") if served.namespaced]
        pods = [served for served in deletable if served.resource == PODS]
        for served in pods:
            await self._empty_one(namespace, served, remains, "failed to delete pods for namespace")
            if remains.counts:
                remains.only_pods = True
                return remains
        for served in deletable:
            if served.resource != PODS:
                await self._empty_one(namespace, served, remains)
        return remains

    async def _empty_one(self, namespace: Obj, served: Served, remains: RemainingContent, prefix: str = "") -> None:
        name = name_of(namespace)
        try:
            estimate = await self._grace(namespace, served)
            remains.estimate = max(remains.estimate, await self._delete_all(name, served, remains, estimate))
        except ApiError as error:
            log.debug("%s %s: %s", prefix, name, error.message)
            remains.errors.append(error.message)

    async def _grace(self, namespace: Obj, served: Served) -> int:
        """The seconds that pods may still take to terminate, counted from the namespace's deletion."""
        if served.resource != PODS:
            return 0
        longest = 0
        for pod in (await self._client.list(PODS, name_of(namespace))).get("items") or ():
            if dig(pod, "status", "phase") not in ("Succeeded", "Failed"):
                longest = max(longest, int(dig(pod, "spec", "terminationGracePeriodSeconds", default=0) or 0))
        since = self._clock.time() - parse_rfc3339(metadata(namespace)["deletionTimestamp"])
        return longest if since < longest else 0

    async def _delete_all(self, namespace: str, served: Served, remains: RemainingContent, estimate: int) -> int:
        resource = served.resource
        if "list" in served.verbs and not (await self._list(namespace, served)):
            return 0
        if "deletecollection" in served.verbs:
            await self._ignoring_absence(self._client.delete_collection(resource, namespace, propagation="Background"))
        else:
            for item in await self._list(namespace, served):
                deleting = self._client.delete(resource, name_of(item), namespace, propagation="Background")
                await self._ignoring_absence(deleting)
        left = await self._list(namespace, served)
        if not left:
            return 0
        remains.counts[resource] = len(left)
        held = Counter(finalizer for item in left for finalizer in finalizers_of(item))
        remains.finalizers.update(held)
        if estimate:
            return estimate
        if held:
            return _FINALIZER_SECONDS
        shown = f"{resource.group}/{resource.version}, Resource={resource.resource}"
        message = f"unexpected items still remain in namespace: {namespace} for gvr: {shown}"
        raise ApiError(500, "InternalError", message)

    async def _list(self, namespace: str, served: Served) -> list[Obj]:
        if "list" not in served.verbs:
            return []
        try:
            found: list[Obj] = (await self._client.list(served.resource, namespace)).get("items") or []
        except ApiError as error:
            if error.code in (404, 405):
                return []
            raise
        return found

    @staticmethod
    async def _ignoring_absence(request: Any) -> None:
        try:
            await request
        except ApiError as error:
            if error.code not in (404, 405):
                raise
