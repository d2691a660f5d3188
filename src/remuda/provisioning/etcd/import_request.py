"""Imported snapshots (docs/reference/operations.md#import): the request for one in a bucket, an annotation of a cluster, as JSON;
and the ETCDSnapshots of imported ones, also of files that were uploaded (:mod:`.uploaded_files`).

It is for snapshots that no list shows: of a bucket or folder that the cluster's settings do not name, or of another cluster.
:mod:`.snapshot_imports` answers it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.clock import rfc3339
from remuda.kube.encoding import jsonio
from remuda.kube.objects import name_of, namespace_of, uid_of

from ..well_known import CLUSTER_NAME, OTHER_CLUSTER, RESTORE_MODES, SNAPSHOT_FILE_NAME, SNAPSHOT_STORAGE
from .database_reader import Contents
from .file_requests import VALID, FileAnswer, verification
from .inventory import file_fields, object_name, restore_modes
from .s3.copies import Copy
from .snapshot_reports import Seen, in_bucket, is_snapshot_name, packed_metadata, taken_at
from .snapshot_sets import SERVER

Obj = dict[str, Any]

_SCHEME: Final = "s3://"
_ON_SERVER: Final = "server://"
_LONGEST, _LONGEST_TIME = 1024, 64
# The largest object that etcd takes is 1.5 MiB.
_MOST_METADATA: Final = 2**20
_FIELDS: Final = frozenset({"location", "at", "otherCluster"})


class ImportRequestError(ValueError):
    """A malformed request; the text names the field."""


@dataclass(frozen=True, slots=True)
class UploadedSnapshot:
    """A file that was uploaded. `metadata` is what the distribution keeps beside it."""

    file: str
    sha256: str
    size: int
    contents: Contents
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """`at` is another text for each request. `folder` is "." for the bucket itself."""

    bucket: str
    folder: str
    file: str
    at: str
    other_cluster: bool = False

    @property
    def location(self) -> str:
        return f"{_SCHEME}{self.bucket}/{'' if self.folder == '.' else f'{self.folder}/'}{self.file}"

    @property
    def s3(self) -> Obj:
        """What it says about the bucket; the rest is as in the cluster's settings."""
        return {"bucket": self.bucket, "folder": self.folder}

    def text(self) -> str:
        """The annotation."""
        other = {"otherCluster": True} if self.other_cluster else {}
        return jsonio.dumps({"location": self.location, "at": self.at, **other}).decode()


def request_for(location: str, at: str, *, other_cluster: bool = False) -> ImportRequest:
    """Raises ImportRequestError."""
    bucket, _, path = location.removeprefix(_SCHEME).partition("/")
    *folders, file = path.split("/")
    if not location.startswith(_SCHEME) or not bucket or len(location) > _LONGEST or not location.isprintable():
        raise ImportRequestError("location: must be s3://BUCKET/FOLDER/FILE")
    if not is_snapshot_name(file) or any(each in ("", ".", "..") for each in folders):
        raise ImportRequestError("location: must end in the name of a file, such as s3://BUCKET/FOLDER/FILE")
    return ImportRequest(bucket, "/".join(folders) or ".", file, at, other_cluster)


def parse(text: str) -> ImportRequest:
    """Raises ImportRequestError."""
    try:
        found = jsonio.loads(text.encode())
    except ValueError:
        raise ImportRequestError("it is not JSON") from None
    if not isinstance(found, dict):
        raise ImportRequestError('it is not an object such as {"location":"s3://BUCKET/FOLDER/FILE","at":"TIME"}')
    if unknown := sorted(set(found) - _FIELDS):
        raise ImportRequestError(f"{unknown[0]}: unknown field")
    location, at, other = found.get("location"), found.get("at"), found.get("otherCluster", False)
    if not isinstance(at, str) or not at or len(at) > _LONGEST_TIME:
        raise ImportRequestError("at: must be the time of the request")
    if not isinstance(other, bool):
        raise ImportRequestError("otherCluster: must be true or false")
    return request_for(location if isinstance(location, str) else "", at, other_cluster=other)


def requested(annotation: str | None) -> ImportRequest | None:
    """The request in an annotation; None if there is none, or if it is malformed, which admission refuses."""
    try:
        return parse(annotation) if annotation else None
    except ImportRequestError:
        return None


# --- objects ----------------------------------------------------------------------------------------------------------------


def refusal(found: str, cluster_id: str, *, other_cluster: bool) -> str:
    """The reason why the snapshot of a cluster with the id `found` is not imported; "" if it is. One that does not say its
    cluster is believed of the user."""
    if other_cluster or not found or not cluster_id or found == cluster_id:
        return ""
    ids = f"its id is {found}, and this cluster's is {cluster_id}"
    return f"it is of another cluster: {ids}. It can be imported all the same with otherCluster (--other-cluster)"


def imported(wanted: Obj, request: ImportRequest, copy: Copy, cluster_id: str, s3: Mapping[str, Any]) -> Obj:
    """The ETCDSnapshot of a copy in a bucket."""
    seen = in_bucket(copy, _bounded(packed_metadata(copy.metadata)), s3)
    return _object(wanted, seen, is_of_another=request.other_cluster and (not copy.cluster_id or copy.cluster_id != cluster_id))


def uploaded(wanted: Obj, upload: UploadedSnapshot, cluster_id: str, now: float, *, other_cluster: bool) -> Obj:
    """The ETCDSnapshot of a file that was uploaded, and checked."""
    seen = Seen(
        storage=SERVER,
        file=upload.file,
        location=f"{_ON_SERVER}{upload.sha256}/{upload.file}",
        size=upload.size,
        created=taken_at(upload.file, now),
        sha256=upload.sha256,
        metadata=_bounded(packed_metadata(upload.metadata)),
    )
    found = upload.contents
    snapshot = _object(wanted, seen, is_of_another=other_cluster and (not found.cluster_id or found.cluster_id != cluster_id))
    checked = FileAnswer(VALID, revision=found.revision, keys=found.keys, sha256=upload.sha256)
    return {**snapshot, "status": {**snapshot["status"], "verification": verification(checked, rfc3339(now))}}


def _bounded(metadata: str) -> str:
    return metadata if len(metadata) <= _MOST_METADATA else ""


def _object(wanted: Obj, seen: Seen, *, is_of_another: bool) -> Obj:
    """Without the name of an object of the cluster it is left alone by the inventory."""
    marks = {SNAPSHOT_STORAGE: seen.storage, SNAPSHOT_FILE_NAME: seen.file, RESTORE_MODES: restore_modes(seen.metadata)}
    if is_of_another:
        marks[OTHER_CLUSTER] = "true"
    cluster = name_of(wanted)
    owner = {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid_of(wanted)}
    return {
        "apiVersion": rke.API_VERSION,
        "kind": "ETCDSnapshot",
        "metadata": {
            "name": object_name(cluster, seen),
            "namespace": namespace_of(wanted),
            "labels": {CLUSTER_NAME: cluster},
            "annotations": marks,
            "ownerReferences": [owner],
        },
        "spec": {"clusterName": cluster},
        "snapshotFile": file_fields(seen),
        "status": {"missing": False, **({"sha256": seen.sha256} if seen.sha256 else {})},
    }
