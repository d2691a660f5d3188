"""One ETCDSnapshot as a restore reads it, and what the server knows of its copy in a bucket. Pure.

:mod:`.bucket_looks` looks into buckets; the planner judges (`planner.operations.restore_source`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from remuda.kube.objects import annotations_of, dig, owner_references_of

from ..well_known import OTHER_CLUSTER, SNAPSHOT_FILE_NAME
from .s3.answers import S3Error, Why
from .s3.copies import Copy
from .s3.place import PlaceError
from .snapshot_sets import SERVER, storage_of
from .snapshot_specs import SnapshotSpecError, cluster_spec

Obj = Mapping[str, Any]
_LONGEST_FAILURE = 4000


class Look(StrEnum):
    """The server's knowledge of a snapshot in a bucket that it has read."""

    LOOKING = "looking"
    FOUND = "found"
    REFUSED = "refused"  # it is not there, or not as it was, or the bucket can't be used
    BUSY = "busy"  # no answer now, but perhaps soon
    AWAY = "away"  # the server can't reach the service; hosts may
    HOSTS_ONLY = "hosts only"  # only hosts have what is needed: a role of their own, the file of a CA


@dataclass(frozen=True, slots=True)
class BucketCopy:
    """A snapshot's copy in its bucket, as the server sees it. `text` is the reason unless it is found."""

    look: Look = Look.LOOKING
    text: str = ""
    cluster_id: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The ETCDSnapshot that a restore names (docs/reference/operations.md#snapshot-objects). `machine` has the file, unless it is
    in a bucket, which `s3` describes, or on the management server (`uploaded`). `spec` is that of the cluster at that time,
    None if it is not known."""

    file: str
    cluster: str
    machine: str = ""
    location: str = ""
    size: int = 0
    sha256: str = ""
    s3: Obj | None = None
    uploaded: bool = False
    # True if a user has imported it although it is of another cluster.
    is_of_another: bool = False
    copy: BucketCopy = BucketCopy()
    spec: Obj | None = None
    # The reasons why it can't be restored, and why its version can't be installed.
    problem: str = ""
    release_error: str = ""

    @property
    def version(self) -> str:
        return str((self.spec or {}).get("kubernetesVersion") or "")


def stored_snapshot(obj: dict[str, Any], release_problem: Callable[[str], str]) -> StoredSnapshot:
    """An ETCDSnapshot. `release_problem` gives the reason why a version can't be installed."""
    file: Obj = obj.get("snapshotFile") or {}
    problem, spec = "", None
    try:
        spec = cluster_spec(obj)
    except SnapshotSpecError as error:
        problem = f"the cluster's spec of that time can't be read: {error}"
    if file.get("status") == "failed":
        problem = f"taking it failed: {_decoded(str(file.get('message') or 'no reason was given'))}"
    found = StoredSnapshot(
        file=str(file.get("name") or annotations_of(obj).get(SNAPSHOT_FILE_NAME) or ""),
        cluster=str(dig(obj, "spec", "clusterName") or ""),
        machine=next((str(owner.get("name")) for owner in owner_references_of(obj) if owner.get("kind") == "Machine"), ""),
        location=str(file.get("location") or ""),
        size=int(file.get("size") or 0),
        sha256=str(dig(obj, "status", "sha256") or ""),
        s3=file.get("s3"),
        uploaded=storage_of(obj) == SERVER,
        is_of_another=annotations_of(obj).get(OTHER_CLUSTER) == "true",
        spec=spec,
        problem=problem,
    )
    return replace(found, release_error=release_problem(found.version) if found.version else "")


def _decoded(message: str) -> str:
    """Rancher encodes messages as base64."""
    try:
        return base64.b64decode(message, validate=True).decode()[:_LONGEST_FAILURE]
    except ValueError:
        return message[:_LONGEST_FAILURE]


# --- looks into a bucket --------------------------------------------------------------------------------------------------------

_LOOKS = {Why.BUSY: Look.BUSY, Why.CUT: Look.BUSY, Why.UNREACHABLE: Look.AWAY, Why.REFUSED: Look.AWAY}


def bucket_copy(outcome: Copy | S3Error | PlaceError | None) -> BucketCopy:
    """The result of a look; None while there is none."""
    match outcome:
        case None:
            return BucketCopy()
        case Copy():
            return BucketCopy(Look.FOUND, cluster_id=outcome.cluster_id, sha256=outcome.sha256)
        case PlaceError():
            return BucketCopy(Look.HOSTS_ONLY if outcome.hosts_only else Look.REFUSED, f"the bucket's {outcome}")
        case S3Error():
            return BucketCopy(_LOOKS.get(outcome.why, Look.REFUSED), str(outcome))
