"""The controller of the files of snapshots: it has them checked and deleted, where they are (docs/reference/operations.md#files).

The request is on the ETCDSnapshot. A file on a host is the host's work: the planner puts it into the host's plan, and here the
answer is read. A copy in a bucket is the server's own work, beside the passes. A check ends in `status.verification`. A deletion
ends when the finalizer goes: with the host's answer, which comes with a list of its files; for a bucket with the next list of it
(:mod:`.inventory`), or the object would come back with the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, finalizers_of, is_being_deleted, name_of, namespace_of, uid_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..references import Access, References
from ..well_known import FILE_DELETED, SNAPSHOT_FILE, VERIFY_SNAPSHOT
from . import bucket_files, host_output
from .bucket_looks import BucketLooks, ClusterBuckets, Wanted
from .file_requests import (
    DELETE,
    DELETED,
    INSTRUCTION,
    INVALID,
    TROUBLE,
    VALID,
    VERIFY,
    FileAnswer,
    FileRequest,
    answers,
    is_held,
    request_of,
    verification,
)
from .inventory import is_managed, slim
from .s3.answers import S3Error
from .s3.copies import Open
from .s3.place import PlaceError
from .snapshot_content import InvalidSnapshot
from .snapshot_sets import LOCAL, SERVER, cluster_of, storage_of
from .uploaded_files import Upload, UploadedFiles

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "etcd-snapshot-files"
_BY_MACHINE: Final = "machine of a snapshot with a request"
_BY_CLUSTER: Final = "cluster of a snapshot with a request"
_RESYNC, _AGAIN = 300.0, 30.0
# A check downloads the whole file; more than two at once would only fill the disk.
_CHECK_SECONDS, _CHECKS = 3600.0, 2


class SnapshotFiles:
    controller = Controller(CONTROLLER, rke.ETCD_SNAPSHOTS)

    def __init__(self, manager: Manager, access: Access, buckets: Open, uploads: Callable[[], UploadedFiles | None]) -> None:
        """`uploads` has the files that are on this server."""
        self._manager = manager
        self._uploads = uploads
        self._client = manager.client
        self._clock = manager.clock
        self._views = MachineCaches(manager.informers)
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        self._snapshots = manager.informers.of(rke.ETCD_SNAPSHOTS, transform=slim)
        self._snapshots.add_index(_BY_MACHINE, _of_machine)
        self._snapshots.add_index(_BY_CLUSTER, lambda each: (_cluster_key(each),) if _concerns(each) else ())
        self._buckets = ClusterBuckets(manager.client, References(manager.client, access))
        self._deletions = BucketLooks(manager.clock, buckets, self._queue, bucket_files.deleted)
        self._checks = BucketLooks(
            manager.clock, buckets, self._queue, bucket_files.verified, seconds=_CHECK_SECONDS, at_once=_CHECKS
        )
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(SECRETS, self._of_plan, changed(host_output.changes), fields=PLAN_FIELDS, transform=without_managed_fields),
                Watch(capi.MACHINES, self._at_machine, changed("metadata.deletionTimestamp")),
                Watch(provisioning.CLUSTERS, self._of_cluster, changed("metadata.deletionTimestamp", "spec.rkeConfig.etcd.s3")),
                Watch(rke.RKE_CONTROL_PLANES, self._of_cluster, changed("metadata.deletionTimestamp")),
            ),
            transform=slim,
            when=changed(request_of, _is_begun, finalizers_of),
            concurrency=4,
        )
        manager.beside(self._deletions.run)
        manager.beside(self._checks.run)

    def _queue(self, key: Key) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None:
            working.queue.add(key)

    def _at_machine(self, machine: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._snapshots.indexed(_BY_MACHINE, Key.of(machine))]

    def _of_plan(self, secret: Obj) -> Iterable[Key]:
        bootstraps = [self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_plan(secret)]
        machines = [self._views.machine_of(each) for each in bootstraps if each is not None]
        return [key for each in machines if each is not None for key in self._at_machine(each)]

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._snapshots.indexed(_BY_CLUSTER, Key.of(cluster))]

    # --- a pass -----------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await self._views.synced()
        await synced(self._wanted, self._snapshots)
        await self._manager.freshness.caught_up(who)
        snapshot = self._snapshots.get(*key)
        request = request_of(snapshot) if snapshot is not None else None
        if request is None or request.action != DELETE:
            self._deletions.forget(key)
        if request is None or request.action != VERIFY:
            self._checks.forget(key)
        if snapshot is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_held(snapshot) and (why := self._why_released(snapshot, request)):
            log.info("%s is let go: %s", key.name, why)
            return await self._release(who, snapshot)
        if request is None or _is_begun(snapshot):
            return DONE
        if request.machine:
            answer = self._of_host(snapshot, request)
        elif storage_of(snapshot) == SERVER:
            answer = await self._of_server(snapshot, request)
        else:
            answer = await self._of_bucket(key, request)
        if request.action == VERIFY:
            return await self._verified(who, snapshot, answer)
        return await self._deleted(who, snapshot, request, answer)

    def _why_released(self, snapshot: Obj, request: FileRequest | None) -> str:
        """The reason why its file is not, or can't be, deleted by us; "" while it may be."""
        cluster, namespace = _cluster_key(snapshot), namespace_of(snapshot)
        for each in (self._wanted.get(*cluster), self._views.control_planes.get(*cluster)):
            if each is None or is_being_deleted(each):
                return "its cluster is gone"
        if request is None:
            return "it has no file"
        if storage_of(snapshot) != LOCAL:
            return ""
        machine = self._views.machines.get(namespace, request.machine) if request.machine else None
        return "its machine is gone" if machine is None or is_being_deleted(machine) else ""

    def _of_host(self, snapshot: Obj, request: FileRequest) -> FileAnswer | None:
        machine = self._views.machines.get(namespace_of(snapshot), request.machine)
        said = host_output.printed(self._views, machine, INSTRUCTION) if machine is not None else ""
        return answers(said).get(request.id)

    async def _of_bucket(self, key: Key, request: FileRequest) -> FileAnswer | None:
        snapshot = self._snapshots.get(*key) or {}
        cluster = self._wanted.get(*_cluster_key(snapshot))
        if cluster is None:
            return None
        try:
            place, keys = await self._buckets.place(cluster, dig(snapshot, "snapshotFile", "s3") or {})
        except PlaceError as error:
            return FileAnswer(TROUBLE, f"the bucket's {error}")
        looks = self._deletions if request.action == DELETE else self._checks
        outcome = looks.of(key, request.id, Wanted(place, keys, request.file, request.size, request.sha256))
        return FileAnswer(TROUBLE, str(outcome)) if isinstance(outcome, S3Error) else outcome

    async def _of_server(self, snapshot: Obj, request: FileRequest) -> FileAnswer:
        """A file that was uploaded; another server removes its own when no ETCDSnapshot stands for it."""
        files, cluster = self._uploads(), self._wanted.get(*_cluster_key(snapshot))
        upload = Upload(uid_of(cluster or {}), request.sha256)
        if request.action == DELETE:
            if files is not None:
                await asyncio.to_thread(files.remove, upload)
            return FileAnswer(DELETED)
        if files is None or files.path(upload) is None:
            return FileAnswer(TROUBLE, "its file is not on this management server")
        try:
            found = await asyncio.to_thread(files.check, upload)
        except InvalidSnapshot as error:
            return FileAnswer(INVALID, str(error))
        return FileAnswer(VALID, revision=found.revision, keys=found.keys, sha256=request.sha256)

    # --- ends -------------------------------------------------------------------------------------------------------------

    async def _verified(self, who: tuple[str, Key], snapshot: Obj, answer: FileAnswer | None) -> Result:
        if answer is None:
            return Result(_RESYNC)
        found = verification(answer, rfc3339(self._clock.time()))
        await self._patch(who, snapshot, {"status": {"verification": found, **_required(snapshot)}})
        # The request may be another one meanwhile: then it stays.
        asked = annotations_of(snapshot).get(VERIFY_SNAPSHOT)
        live = await self._live(snapshot)
        if live is not None and annotations_of(live).get(VERIFY_SNAPSHOT) == asked:
            await self._patch(who, live, {"metadata": {"annotations": {VERIFY_SNAPSHOT: None}}}, bound=True)
        return DONE

    async def _deleted(self, who: tuple[str, Key], snapshot: Obj, request: FileRequest, answer: FileAnswer | None) -> Result:
        if answer is not None and answer.result == DELETED:
            # An imported one is not in the list that would confirm it.
            if request.machine or not is_managed(snapshot):
                return await self._release(who, snapshot)
            at = f"{self._clock.time():.3f}"
            await self._patch(who, snapshot, {"metadata": {"annotations": {FILE_DELETED: at}}})
            return DONE
        where = f"machine {request.machine}" if request.machine else request.location
        text = answer.message if answer is not None and answer.message else f"waiting for {where}"
        if dig(snapshot, "status", "message") != text:
            await self._patch(who, snapshot, {"status": {"message": text, **_required(snapshot)}})
        return Result(_AGAIN if answer is not None else _RESYNC)

    async def _release(self, who: tuple[str, Key], snapshot: Obj) -> Result:
        live = await self._live(snapshot)
        if live is not None:
            left = [each for each in finalizers_of(live) if each != SNAPSHOT_FILE]
            await self._patch(who, live, {"metadata": {"finalizers": left or None}}, bound=True)
        return DONE

    async def _live(self, snapshot: Obj) -> Obj | None:
        try:
            found = await self._client.get(rke.ETCD_SNAPSHOTS, name_of(snapshot), namespace_of(snapshot))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return found if uid_of(found) == uid_of(snapshot) else None

    async def _patch(self, who: tuple[str, Key], snapshot: Obj, patch: Obj, *, bound: bool = False) -> None:
        """Of this very object; `bound` also to this version of it."""
        part = "status" if "status" in patch else ""
        marks: Obj = {**patch.get("metadata", {}), "uid": uid_of(snapshot)}
        if bound:
            marks["resourceVersion"] = snapshot["metadata"]["resourceVersion"]
        try:
            written = await self._client.patch(
                rke.ETCD_SNAPSHOTS,
                name_of(snapshot),
                {**patch, "metadata": marks},
                namespace_of(snapshot),
                subresource=part,
                field_manager=CONTROLLER,
            )
        except ApiError as error:
            # It is gone, or another one of its name is there.
            if error.is_not_found:
                return
            raise
        self._manager.freshness.wrote(who, self._snapshots, written)


def _required(snapshot: Obj) -> Obj:
    return {} if dig(snapshot, "status", "missing") is not None else {"missing": False}


def _cluster_key(snapshot: Obj) -> Key:
    return Key(namespace_of(snapshot), cluster_of(snapshot))


def _of_machine(snapshot: Obj) -> Iterable[Key]:
    request = request_of(snapshot)
    return (Key(namespace_of(snapshot), request.machine),) if request is not None and request.machine else ()


def _concerns(snapshot: Obj) -> bool:
    return is_held(snapshot) or request_of(snapshot) is not None


def _is_begun(snapshot: Obj) -> bool:
    """True if its copy in a bucket is deleted, and a list of the bucket is awaited."""
    return is_held(snapshot) and FILE_DELETED in annotations_of(snapshot)
