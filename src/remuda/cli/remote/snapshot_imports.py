"""Importing a snapshot: of a bucket, requested on the cluster; or a file, which is uploaded. It is checked before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from remuda.access.rancher_conditions import condition_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.gateway.explain import states
from remuda.kube.clock import SYSTEM_CLOCK, Clock, rfc3339
from remuda.kube.objects import Key, annotations_of, name_of
from remuda.provisioning.etcd.import_request import ImportRequest, ImportRequestError, request_for
from remuda.provisioning.etcd.snapshot_imports import CONDITION
from remuda.provisioning.etcd.snapshot_sets import SnapshotCopy, copy_of
from remuda.provisioning.well_known import IMPORT_SNAPSHOT

from ..exit_codes import Code, Failure
from ..views.snapshots import is_valid
from . import clusters, snapshot_files, snapshot_uploads, snapshots
from .snapshot_files import Told

Obj = dict[str, Any]

_EVERY, _ANSWERED_WITHIN = 1.0, 180.0
_IN_A_BUCKET: Final = "a snapshot in a bucket is named s3://BUCKET/FOLDER/FILE"
_SCHEME: Final = "s3://"


async def imported(
    client: Client, wanted: Obj, location: str, told: Told, clock: Clock = SYSTEM_CLOCK, *, other_cluster: bool = False
) -> SnapshotCopy:
    """The snapshot of a bucket or a file, listed and valid; one that is not valid is not kept. Raises ApiError, and Failure."""
    if not states.is_administrated(wanted):
        raise Failure(f"cluster {name_of(wanted)} was not made by this server, which does not manage its etcd", Code.CONFLICT)
    if not location.startswith(_SCHEME):
        name = await snapshot_uploads.uploaded(client, wanted, Path(location), told, clock, other_cluster=other_cluster)
        return copy_of(await client.get(rke.ETCD_SNAPSHOTS, name, Key.of(wanted).namespace))
    try:
        request = request_for(location, rfc3339(clock.time()), other_cluster=other_cluster)
    except ImportRequestError:
        raise Failure(f"{location}: {_IN_A_BUCKET}", Code.USAGE) from None
    known = await _listed(client, wanted, request.location)
    if known is None:
        await _requested(client, wanted, request, clock)
    found = known or await _listed(client, wanted, request.location)
    if found is None:
        raise Failure(f"{location} was imported, and deleted again", Code.NOT_FOUND)
    told(f"{found.name}: checking {request.location}")
    namespace = Key.of(wanted).namespace
    checked = (await snapshot_files.verified(client, namespace, [found], lambda _: None, clock))[found.name]
    if checked is not None and is_valid(checked):
        return checked
    if known is None and checked is not None:
        # Its file stays.
        await client.delete(rke.ETCD_SNAPSHOTS, found.name, namespace)
    why = str(((checked.verification if checked is not None else None) or {}).get("message") or "it could not be checked")
    raise Failure(f"{location} is not imported: {why}")


async def _listed(client: Client, wanted: Obj, location: str) -> SnapshotCopy | None:
    found = await snapshots.of_cluster(client, *Key.of(wanted))
    return next((copy for each in found for copy in each.copies if copy.location == location), None)


async def _requested(client: Client, wanted: Obj, request: ImportRequest, clock: Clock) -> None:
    """Ends when the snapshot is listed. Raises Failure with the server's reason."""
    key = Key.of(wanted)
    marks = {"metadata": {"annotations": {IMPORT_SNAPSHOT: request.text()}}}
    now = await client.patch(provisioning.CLUSTERS, key.name, marks, key.namespace)
    until = clock.monotonic() + _ANSWERED_WITHIN
    while annotations_of(now).get(IMPORT_SNAPSHOT) == request.text():
        if clock.monotonic() >= until:
            text = f"the server did not look into the bucket within {_ANSWERED_WITHIN / 60:g} minutes; the request stays"
            raise Failure(text, Code.TIMEOUT)
        await clock.sleep(_EVERY)
        now = await client.get(provisioning.CLUSTERS, key.name, key.namespace)
    ended = condition_of((await clusters.look(client, now)).plane or {}, CONDITION) or {}
    message = str(ended.get("message") or "")
    if not message.startswith(request.location):
        raise Failure("another import of this cluster was requested meanwhile: repeat it", Code.CONFLICT)
    if ended.get("status") != "True":
        raise Failure(f"{request.location} is not imported: {message.removeprefix(f'{request.location}: ')}", Code.CONFLICT)
