"""The two controllers of CustomResourceDefinitions: their conditions, and their deletion.

`CrdConditions` writes whether names are accepted, the CRD is established, and its errors; :mod:`remuda.apiserver.crd.conditions`
computes the status. It is written for one CRD after the other, because two that want the same name must not both get it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from remuda.apiserver.crd.conditions import NAMES_ACCEPTED, is_true, next_status
from remuda.apiserver.webhook_client import bundle_problem
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Rng, parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError, aggregate_text
from remuda.kube.objects import (
    GroupVersionResource,
    dig,
    finalizers_of,
    find_by,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_path,
)
from remuda.runtime import Informers, Result, Workers, WorkQueue, synced

Obj = dict[str, Any]

MANAGER = "kube-apiserver"


class CrdConditions:
    name = "crd-conditions"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._clock = clock
        self._crds = watches.of(CRDS)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))
        # Writes that the informer has not shown yet: their names are taken already.
        self._written: dict[str, Obj] = {}

    async def run(self) -> None:
        await synced(self._crds)
        self._crds.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        name = name_of(new or old or {})
        written = self._written.get(name)
        if written is not None and (new is None or _is_as_new(new, written)):
            del self._written[name]
        if new is not None:
            self._queue.add(name)
        elif old is not None:
            self._wake_group(old)

    def _wake_group(self, crd: Obj) -> None:
        """Names became free, or were taken: other CRDs of the group may wait for that."""
        group = dig(crd, "spec", "group")
        for other in self._crds.objects():
            if dig(other, "spec", "group") == group and not is_true(other, NAMES_ACCEPTED):
                self._queue.add(name_of(other))

    async def reconcile(self, name: str) -> None:
        crd = self._crds.get("", name)
        if crd is None:
            return
        crd = self._written.get(name, crd)
        everyone = [self._written.get(name_of(other), other) for other in self._crds.objects()]
        status = next_status(crd, everyone, rfc3339(self._clock.time()), _has_broken_bundle(crd))
        if status is None:
            return
        try:
            changed = {**crd, "status": status}
            self._written[name] = await self._client.update(CRDS, changed, subresource="status", field_manager=MANAGER)
        except ApiError as error:
            self._written.pop(name, None)
            # The faster writer has caused an event, which starts another reconcile.
            if not error.is_not_found and not error.is_conflict:
                raise
            return
        self._wake_group(crd)


def _is_as_new(seen: Obj, written: Obj) -> bool:
    if uid_of(seen) != uid_of(written):
        return True
    try:
        return int(resource_version_of(seen)) >= int(resource_version_of(written))
    except ValueError:
        # A revision that is no number can only be compared for equality.
        return resource_version_of(seen) == resource_version_of(written)


def _has_broken_bundle(crd: Obj) -> bool:
    text = dig(crd, "spec", "conversion", "webhook", "clientConfig", "caBundle")
    if not text:
        return False
    try:
        bundle = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return True
    return bool(bundle.strip()) and bool(bundle_problem(bundle))


# --- deletion -------------------------------------------------------------------------------------------------------------
#
# Deletion of CRDs: their objects are deleted first, then the CRD's finalizer is removed.

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_CHECK_SECONDS = 60.0
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 5.0


class CrdCleanup:
    name = "crd-finalizer"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._clock = clock
        self._crds = watches.of(CRDS)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))
        self._looks: dict[str, int] = {}

    async def run(self) -> None:
        await synced(self._crds)
        self._crds.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile, concurrency=5).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and _awaits_cleanup(new):
            # Our own writes to its conditions come back as changes, without news.
            if old is None or not _awaits_cleanup(old):
                self._queue.add(name_of(new))
        elif new is None and old is not None:
            self._looks.pop(name_of(old), None)

    async def reconcile(self, name: str) -> Result | None:
        try:
            crd = await self._client.get(CRDS, name)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        if not _awaits_cleanup(crd):
            return None
        told = find_by((dig(crd, "status", "conditions") or []), "type", "Terminating")
        if told is None or told.get("reason") not in ("InstanceDeletionInProgress", "InstanceDeletionCheck"):
            crd = await self._tell(crd, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        if not _is_established(crd):
            crd = await self._tell(crd, "False", "NeverEstablished", "resource was never established")
            await self._release(crd)
            return None
        left = await self._delete_instances(crd)
        if left:
            return await self._wait(crd)
        crd = await self._tell(crd, "False", "InstanceDeletionCompleted", "removed all instances")
        await self._release(crd)
        return None

    async def _wait(self, crd: Obj) -> Result:
        name = name_of(crd)
        since = self._clock.time() - parse_rfc3339(metadata(crd)["deletionTimestamp"])
        if since > _CHECK_SECONDS:
            message = "could not confirm zero CustomResources remaining: context deadline exceeded"
            await self._tell(crd, "True", "InstanceDeletionCheck", message)
        looks = self._looks.get(name, 0)
        self._looks[name] = looks + 1
        return Result(after=min(_FIRST_LOOK * 2.0 ** min(looks, 20), _LONGEST_LOOK))

    async def _delete_instances(self, crd: Obj) -> bool:
        """Delete every object; true if any is left."""
        resource = _storage_resource(crd)
        try:
            items = await self._items(resource)
        except ApiError as error:
            await self._tell(crd, "True", "InstanceDeletionFailed", f"could not list instances: {error.message}")
            raise
        if not items:
            return False
        problems: list[str] = []
        for namespace in {namespace_of(item) for item in items if not is_being_deleted(item)}:
            try:
                await self._client.delete_collection(resource, namespace)
            except ApiError as error:
                problems.append(error.message)
        if problems:
            text = aggregate_text(problems)
            await self._tell(crd, "True", "InstanceDeletionFailed", f"could not issue all deletes: {text}")
            raise ApiError(500, "InternalError", text)
        return bool(await self._items(resource))

    async def _items(self, resource: GroupVersionResource) -> list[Obj]:
        found: list[Obj] = (await self._client.list(resource)).get("items") or []
        return found

    async def _tell(self, crd: Obj, status: str, reason: str, message: str) -> Obj:
        before = dig(crd, "status", "conditions") or []
        old = find_by(before, "type", "Terminating")
        fresh: Obj = {
            "type": "Terminating",
            "status": status,
            "lastTransitionTime": rfc3339(self._clock.time()),
            "reason": reason,
            "message": message,
        }
        if old is not None and old.get("status") == status:
            fresh["lastTransitionTime"] = old.get("lastTransitionTime")
        if fresh == old:
            return crd
        after = [*before, fresh] if old is None else [fresh if condition is old else condition for condition in before]
        changed = with_path(crd, ("status", "conditions"), after)
        return await self._client.update(CRDS, changed, subresource="status", field_manager=MANAGER)

    async def _release(self, crd: Obj) -> None:
        kept = [finalizer for finalizer in finalizers_of(crd) if finalizer != FINALIZER]
        patch = {"metadata": {"resourceVersion": resource_version_of(crd), "finalizers": kept or None}}
        try:
            await self._client.patch(CRDS, name_of(crd), patch, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise


def _awaits_cleanup(crd: Obj) -> bool:
    return is_being_deleted(crd) and FINALIZER in finalizers_of(crd)


def _is_established(crd: Obj) -> bool:
    condition = find_by((dig(crd, "status", "conditions") or []), "type", "Established")
    return condition is not None and condition.get("status") == "True"


def _storage_resource(crd: Obj) -> GroupVersionResource:
    """The resource for listing the objects: in their storage version, or else in any that is served."""
    versions = dig(crd, "spec", "versions") or []
    served = [version for version in versions if version.get("served")] or versions
    chosen = next((version for version in served if version.get("storage")), served[0])
    return GroupVersionResource(crd["spec"]["group"], chosen["name"], crd["spec"]["names"]["plural"])
