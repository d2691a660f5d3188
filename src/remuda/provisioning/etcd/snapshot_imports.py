"""The controller that imports snapshots from buckets (docs/reference/operations.md#import).

A request is an annotation of a clusters.provisioning.cattle.io, so it has the rights of those who may change the cluster. The
server looks into the bucket with the credential that the cluster may use, makes the ETCDSnapshot, tells the result in a condition
of the control plane, and removes the request last: a pass that was interrupted does the same again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from remuda.access.rancher_conditions import FALSE, TRUE, with_condition, write_status
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.idempotent import make
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, name_of, namespace_of, resource_version_of, uid_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

from ..references import Access, References
from ..well_known import IMPORT_SNAPSHOT
from .bucket_inventory import described
from .bucket_looks import BucketLooks, ClusterBuckets, Wanted
from .import_request import ImportRequest, imported, refusal, requested
from .s3 import copies
from .s3.answers import S3Error
from .s3.copies import Copy, Folder, Open
from .s3.place import Place, PlaceError

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "etcd-snapshot-imports"
CONDITION: Final = "SnapshotImported"
_RESYNC: Final = 300.0


class SnapshotImports:
    controller = Controller(CONTROLLER, provisioning.CLUSTERS)

    def __init__(self, manager: Manager, access: Access, buckets: Open) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        self._planes = manager.informers.of(rke.RKE_CONTROL_PLANES)
        self._buckets = ClusterBuckets(manager.client, References(manager.client, access))
        self._looks: BucketLooks[Copy] = BucketLooks(manager.clock, buckets, self._queue, _described)
        self.controller = replace(
            type(self).controller,
            watches=(Watch(rke.RKE_CONTROL_PLANES, when=changed("status.clusterID")),),
            when=changed(_text),
        )
        manager.beside(self._looks.run)

    def _queue(self, key: Key) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None:
            working.queue.add(key)

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._wanted, self._planes)
        await self._manager.freshness.caught_up(who)
        wanted, plane = self._wanted.get(*key), self._planes.get(*key)
        request = requested(_text(wanted)) if wanted is not None else None
        if wanted is None or plane is None or request is None or is_being_deleted(wanted) or is_being_deleted(plane):
            self._looks.forget(key)
            self._manager.freshness.forget(who)
            return DONE
        try:
            place, keys = await self._buckets.place(wanted, request.s3)
        except PlaceError as error:
            return await self._told(wanted, plane, request, f"the bucket's {error}")
        found = self._looks.of(key, request.text(), Wanted(place, keys, request.file))
        if found is None:
            return Result(_RESYNC)
        if isinstance(found, S3Error):
            return await self._told(wanted, plane, request, str(found))
        cluster_id = str(dig(plane, "status", "clusterID") or "")
        why = refusal(found.cluster_id, cluster_id, other_cluster=request.other_cluster)
        if not why:
            await self._make(imported(wanted, request, found, cluster_id, _s3(wanted, place)))
        return await self._told(wanted, plane, request, why)

    async def _make(self, snapshot: Obj) -> None:
        """One that is listed already stays as it is."""
        made = await make(self._client, rke.ETCD_SNAPSHOTS, snapshot, CONTROLLER)
        if made is None:
            return
        marks = {"metadata": {"uid": uid_of(made)}, "status": snapshot["status"]}
        name, namespace = name_of(snapshot), namespace_of(snapshot)
        await self._client.patch(rke.ETCD_SNAPSHOTS, name, marks, namespace, subresource="status", field_manager=CONTROLLER)
        log.info("%s is imported", name)

    async def _told(self, wanted: Obj, plane: Obj, request: ImportRequest, why: str) -> Result:
        """The result, then the end of the request; a later request stays."""
        status, reason, text = (FALSE, "Refused", f"{request.location}: {why}") if why else (TRUE, "", request.location)
        after = with_condition(plane, CONDITION, status, reason, text, now=self._clock.time())
        await write_status(self._client, rke.RKE_CONTROL_PLANES, plane, after, subresource="status", field_manager=CONTROLLER)
        ended = {"resourceVersion": resource_version_of(wanted), "annotations": {IMPORT_SNAPSHOT: None}}
        name, namespace = name_of(wanted), namespace_of(wanted)
        written = await self._client.patch(provisioning.CLUSTERS, name, {"metadata": ended}, namespace, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(wanted)), self._wanted, written)
        self._looks.forget(Key.of(wanted))
        return DONE


async def _described(folder: Folder, wanted: Wanted) -> Copy:
    return await copies.described(folder, wanted.name)


def _text(cluster: Obj) -> str | None:
    return annotations_of(cluster).get(IMPORT_SNAPSHOT)


def _s3(wanted: Obj, place: Place) -> Obj:
    return described(dig(wanted, "spec", "rkeConfig", "etcd", "s3") or {}, place)
