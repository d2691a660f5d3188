"""The ETCDSnapshots that a cluster should have, from all that is said about its snapshots. Pure
(docs/reference/operations.md#inventory).

The storage decides: a file is in the list as long as its host, or its bucket, shows it. What the host or the bucket no longer
shows is deleted; what can't be seen is only marked. The cluster's own list adds what the others don't know: failures, metadata,
and copies in a bucket that only hosts can reach. :mod:`.snapshot_inventory` reads and writes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.names import dns_subdomain_problems, label_value_problems
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, metadata, name_of
from remuda.kube.wrangler import safe_concat

from ..well_known import (
    CLUSTER_NAME,
    FILE_DELETED,
    NODE_NAME,
    RESTORE_MODES,
    SNAPSHOT_FILE_NAME,
    SNAPSHOT_NAME,
    SNAPSHOT_STORAGE,
)
from .file_requests import is_held
from .snapshot_reports import PERIOD, Report, Seen
from .snapshot_sets import FAILED, LOCAL, S3, machine_of, storage_of
from .snapshot_specs import SnapshotSpecError, cluster_spec

Obj = dict[str, Any]
_SnapshotKey = tuple[str, ...]

# After three lists that did not come, what they would have shown counts as missing.
LATE: Final = 3 * PERIOD
# A file has its name, with the time, before it is complete: a list that was begun this long after can't have missed it.
_SLOW: Final = 600.0
# A distribution notices what was deleted from its directory within this time.
_NOTICED: Final = 30.0
_DIGEST: Final = "sha256:"
_SECONDS: Final = re.compile(r"[0-9]{1,12}\.[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Place:
    """A source, and its last report. `heard` is when it came, by the server's clock; `why` it can't be seen now."""

    heard: float
    report: Report | None = None
    why: str = ""

    def is_late(self, now: float) -> bool:
        return now - self.heard > LATE

    def current(self, now: float) -> Report | None:
        return None if self.is_late(now) else self.report


@dataclass(frozen=True, slots=True)
class Host:
    """An etcd machine."""

    name: str
    uid: str
    place: Place


@dataclass(frozen=True, slots=True)
class Bucket:
    """The bucket in the cluster's spec; all locations in it begin with `prefix`."""

    prefix: str
    place: Place


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster (`uid` is that of its clusters.provisioning.cattle.io), and all that is said about its snapshots."""

    namespace: str
    cluster: str
    uid: str
    hosts: Sequence[Host] = ()
    bucket: Bucket | None = None
    own: Place | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`patch` and `status` are merge patches; empty if there is nothing to change."""

    before: Obj
    patch: Obj
    status: Obj


@dataclass(slots=True)
class Changes:
    """Objects to create have their status. From those to release our finalizer is taken. A list of the cluster's own from
    `own_counts_at` on is needed to know more."""

    create: list[Obj] = field(default_factory=list)
    update: list[Update] = field(default_factory=list)
    delete: list[Obj] = field(default_factory=list)
    release: list[Obj] = field(default_factory=list)
    own_counts_at: float = 0.0


def changes(known: Known, objects: Iterable[Obj], now: float) -> Changes:
    """`objects` are the cluster's ETCDSnapshots, with or without the content of their metadata (:func:`slim`). Those that others
    made stay as they are."""
    return _Inventory(known, now).compared(sorted(objects, key=name_of))


def slim(snapshot: Obj) -> Obj:
    """The object for a cache: the metadata of a snapshot is only compared, so its digest is enough."""
    file = snapshot.get("snapshotFile") or {}
    kept = {name: value for name, value in metadata(snapshot).items() if name != "managedFields"}
    snapshot = {**snapshot, "metadata": kept}
    if not file.get("metadata"):
        return snapshot
    return {**snapshot, "snapshotFile": {**file, "metadata": _digest(str(file["metadata"]))}}


def _digest(text: str) -> str:
    return text if text.startswith(_DIGEST) else f"{_DIGEST}{hashlib.sha256(text.encode()).hexdigest()}"


class _Inventory:
    def __init__(self, known: Known, now: float) -> None:
        self._known = known
        self._now = now
        self._hosts = {host.name: host for host in known.hosts}
        # By machine, and "" for the bucket: what each shows now.
        self._stored = {name: _listed(host.place.current(now)) for name, host in self._hosts.items()}
        self._copies = _listed(known.bucket.place.current(now)) if known.bucket else {}
        own = known.own.current(now) if known.own else None
        self._own_complete = own is not None and own.complete
        self._own_at, self._own_counts_at = (own.at if own is not None else 0.0), 0.0
        self._own = {key: seen for key, seen in _listed(own).items() if not self._is_refuted(seen)}

    def compared(self, objects: Sequence[Obj]) -> Changes:
        wanted = self._wanted()
        found, done = Changes(own_counts_at=self._own_counts_at), {key_of(each) for each in objects if not is_managed(each)}
        for each in objects:
            key = key_of(each)
            if not is_managed(each):
                continue
            if key in done:
                self._delete(each, found)
                continue
            done.add(key)
            if is_being_deleted(each):
                if key not in wanted and self._is_shown_gone(each):
                    found.release.append(each)
                continue
            if key not in wanted and self._is_gone(each):
                self._delete(each, found)
                continue
            update = self._updated(each, *wanted.get(key, (None, None)))
            if update.patch or update.status:
                found.update.append(update)
        found.create += [
            self._created(*wanted[key]) for key in sorted(wanted) if key not in done and self._has_owner(*wanted[key])
        ]
        return found

    def _wanted(self) -> dict[_SnapshotKey, tuple[Seen | None, Seen | None]]:
        """The report of each storage, and the cluster's own."""
        stored = dict(self._copies)
        for each in self._stored.values():
            stored |= each
        return {key: (stored.get(key), self._own.get(key)) for key in {**stored, **self._own}}

    def _delete(self, snapshot: Obj, found: Changes) -> None:
        # A finalizer is another's work on the file, which ends first.
        if not is_being_deleted(snapshot) and not metadata(snapshot).get("finalizers"):
            found.delete.append(snapshot)

    # --- judgements -------------------------------------------------------------------------------------------------------

    def _place(self, storage: str, machine: str, location: str) -> Place | None:
        """The place that decides whether a snapshot exists; None if it is none that is known now."""
        if storage == LOCAL:
            host = self._hosts.get(machine)
            return None if host is None else host.place
        bucket = self._known.bucket
        return bucket.place if bucket is not None and location.startswith(bucket.prefix) else None

    def _is_refuted(self, seen: Seen) -> bool:
        """True if the cluster lists what the storage itself does not show."""
        if seen.failed:
            return False
        place = self._place(seen.storage, seen.machine, seen.location)
        report = place.current(self._now) if place else None
        if place is None or report is None or not report.complete or seen.key in report.by_key():
            return False
        if report.at > seen.created + _SLOW:
            return True
        if seen.storage == LOCAL and self._own_at < place.heard + _NOTICED:
            # Either it is new, or it was deleted and the cluster's list is from before: a later list tells.
            self._own_counts_at = max(self._own_counts_at, place.heard + _NOTICED)
            return True
        return False

    def _is_gone(self, snapshot: Obj) -> bool:
        """Whether a snapshot that no list shows is gone."""
        file: Obj = snapshot.get("snapshotFile") or {}
        if file.get("status") == FAILED:
            return self._own_complete
        storage, location = storage_of(snapshot), str(file.get("location") or "")
        place = self._place(storage, machine_of(snapshot), location)
        report = place.current(self._now) if place else None
        if report is None:
            return storage == S3 and self._cluster_lists_others(location)
        # It was in an earlier list of the place, or this one is too late to have missed it.
        was_listed = bool(dig(snapshot, "status", "sha256"))
        return report.complete and (was_listed or report.at > (time_of(file.get("createdAt")) or 0.0) + _SLOW)

    def _is_shown_gone(self, snapshot: Obj) -> bool:
        """For one that nothing shows: its copy in a bucket was deleted before the last list of the bucket."""
        at = deleted_at(snapshot)
        place = self._place(S3, "", str(dig(snapshot, "snapshotFile", "location") or ""))
        return bool(at) and (place is None or place.report is None or place.report.at >= at)

    def _cluster_lists_others(self, location: str) -> bool:
        """True if hosts list that folder, which the server can't, and this copy is not among them."""
        folder = location[: location.rfind("/") + 1]
        copies = (each for each in self._own.values() if each.storage == S3 and not each.failed)
        return self._own_complete and any(each.location.startswith(folder) for each in copies)

    def _why_missing(self, seen: Seen, own: Seen | None) -> tuple[str, float] | None:
        """The reason why its storage can't be seen, and when it last was; None if it can, or a failure has no storage."""
        if seen.failed or (seen.storage == S3 and own is not None):
            return None
        place = self._place(seen.storage, seen.machine, seen.location)
        if place is None:
            folder = seen.location[: seen.location.rfind("/") + 1]
            why = f"the cluster's settings don't name {folder}" if seen.storage == S3 else "its machine is gone"
            return why, self._now
        # A host that has never said anything, perhaps since its agent is too old, is no better witness than the cluster.
        if not place.is_late(self._now) or (own is not None and place.report is None):
            return None
        return place.why or "no list of its files has come", place.heard

    # --- objects ----------------------------------------------------------------------------------------------------------

    def _created(self, stored: Seen | None, own: Seen | None) -> Obj:
        seen = stored or own
        assert seen is not None
        known = self._known
        file = _file(seen, own, {})
        made = {
            "apiVersion": rke.API_VERSION,
            "kind": "ETCDSnapshot",
            "metadata": {
                "name": object_name(known.cluster, seen),
                "namespace": known.namespace,
                "labels": self._labels(seen),
                "annotations": _annotations(seen, own, file),
                "ownerReferences": [self._owner(seen)],
            },
            "spec": {"clusterName": known.cluster},
            "snapshotFile": file,
        }
        return {**made, "status": self._status(seen, own, {})}

    def _updated(self, before: Obj, stored: Seen | None, own: Seen | None) -> Update:
        old: Obj = before.get("snapshotFile") or {}
        seen = stored or own
        if seen is None:
            return Update(
                before, {}, _differing(self._status(_as_seen(before), None, before.get("status") or {}), before, "status")
            )
        file = _file(stored, own, old)
        marks = {
            "labels": _lacking(self._labels(seen), labels_of(before)),
            "annotations": _lacking(_annotations(seen, own, {**old, **file}), annotations_of(before)),
        }
        patch: Obj = {"metadata": {name: marks[name] for name in marks if marks[name]}}
        if changed := {name: value for name, value in file.items() if not _is_same(name, value, old.get(name))}:
            patch["snapshotFile"] = changed
        status = _differing(self._status(_as_seen(before), own, before.get("status") or {}, seen.sha256), before, "status")
        return Update(before, patch if patch["metadata"] or "snapshotFile" in patch else {}, status)

    def _labels(self, seen: Seen) -> dict[str, str]:
        labels = {CLUSTER_NAME: self._known.cluster}
        if seen.storage == LOCAL and seen.node and not label_value_problems(seen.node):
            labels[NODE_NAME] = seen.node
        return labels

    def _has_owner(self, stored: Seen | None, own: Seen | None) -> bool:
        """False for a file of a machine that is gone, which an earlier list of the cluster has."""
        seen = stored or own
        return seen is not None and (seen.storage != LOCAL or seen.machine in self._hosts)

    def _owner(self, seen: Seen) -> Obj:
        if seen.storage == LOCAL:
            host = self._hosts[seen.machine]
            version = f"{capi.GROUP}/v1beta2"
            return {"apiVersion": version, "kind": "Machine", "name": host.name, "uid": host.uid}
        known = self._known
        return {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "name": known.cluster, "uid": known.uid}

    def _status(self, seen: Seen, own: Seen | None, old: Obj, sha256: str = "") -> Obj:
        """All fields of the status that are kept here; None for those that it must not have."""
        why = self._why_missing(seen, own)
        known = sha256 or seen.sha256
        found: Obj = {"missing": why is not None, "message": None, "seenAt": None}
        if known:
            found["sha256"] = known
        if why is not None:
            found["message"] = why[0]
            found["seenAt"] = old.get("seenAt") if old.get("missing") and old.get("seenAt") else rfc3339(why[1])
        return found


# --- objects ----------------------------------------------------------------------------------------------------------------


def is_managed(snapshot: Obj) -> bool:
    """False for an object that a user, or another program, has made."""
    return SNAPSHOT_NAME in annotations_of(snapshot)


def deleted_at(snapshot: Obj) -> float:
    """When its copy in a bucket was deleted, which a later list is to confirm; 0.0 for all others."""
    text = annotations_of(snapshot).get(FILE_DELETED, "") if is_held(snapshot) else ""
    return float(text) if _SECONDS.fullmatch(text) else 0.0


def key_of(snapshot: Obj) -> _SnapshotKey:
    return _as_seen(snapshot).key


def _as_seen(snapshot: Obj) -> Seen:
    """The data of an object about its own file."""
    file: Obj = snapshot.get("snapshotFile") or {}
    return Seen(
        storage=storage_of(snapshot),
        file=str(file.get("name") or annotations_of(snapshot).get(SNAPSHOT_FILE_NAME) or ""),
        node=str(file.get("nodeName") or ""),
        machine=machine_of(snapshot),
        location=str(file.get("location") or ""),
        created=time_of(file.get("createdAt")) or 0.0,
        failed=file.get("status") == FAILED,
    )


def object_name(cluster: str, seen: Seen) -> str:
    """The name of its ETCDSnapshot, as Rancher forms it."""
    return safe_concat(cluster, _own_name(seen))


def _own_name(seen: Seen) -> str:
    """The name of the cluster's own object, as k3s forms it."""
    digits = hashlib.sha256(f"{_node(seen)}{seen.location}".encode()).hexdigest()[:6]
    found = f"{seen.storage}-{seen.file.lower()}-{digits}"
    if not dns_subdomain_problems(found):
        return found
    host = seen.node.partition(".")[0].lower() or S3
    # The hash tells files apart that were taken in the same second.
    plain = f"{seen.storage}-etcd-snapshot-{host}-{int(seen.created)}"
    more = hashlib.sha256(f"{_node(seen)}{seen.location}{seen.file}".encode()).hexdigest()[:6]
    return f"{plain}-{more}" if not dns_subdomain_problems(plain) else f"{seen.storage}-etcd-snapshot-{int(seen.created)}-{more}"


def _node(seen: Seen) -> str:
    return S3 if seen.storage == S3 and seen.location else seen.node


def _file(stored: Seen | None, own: Seen | None, old: Mapping[str, Any]) -> Obj:
    """The fields of `snapshotFile`. What the storage says replaces what was there; what only the cluster says fills gaps."""
    found = file_fields(own) if own is not None else {}
    if stored is None:
        kept = {} if _came_true(own, old) else old
        return {name: value for name, value in found.items() if kept.get(name) in (None, "", 0)}
    # A failure that is no longer one leaves no message.
    told = file_fields(stored)
    if old.get("status") == FAILED:
        told["message"] = None
    return {**{name: value for name, value in found.items() if name not in ("status", "message", *old)}, **told}


def _came_true(own: Seen | None, old: Mapping[str, Any]) -> bool:
    """True if the cluster's judgement about the same file is another now."""
    return own is not None and bool(old) and own.failed != (old.get("status") == FAILED)


def file_fields(seen: Seen) -> Obj:
    """The `snapshotFile` of an ETCDSnapshot, without empty fields."""
    found: Obj = {
        "name": seen.file,
        "nodeName": seen.node or (S3 if seen.storage == S3 else ""),
        "location": seen.location,
        "size": seen.size,
        "createdAt": rfc3339(seen.created) if seen.created else "",
        "metadata": seen.metadata,
        "s3": dict(seen.s3) if seen.s3 is not None else None,
        "status": FAILED if seen.failed else "successful",
        # As Rancher has it.
        "message": base64.b64encode(seen.message.encode()).decode() if seen.message else "",
    }
    return {name: value for name, value in found.items() if value not in ("", None, 0)}


def _annotations(seen: Seen, own: Seen | None, file: Mapping[str, Any]) -> dict[str, str]:
    found = {SNAPSHOT_STORAGE: seen.storage, SNAPSHOT_FILE_NAME: seen.file}
    found[SNAPSHOT_NAME] = own.reference if own is not None and own.reference else _own_name(seen)
    text = str(file.get("metadata") or "")
    if not text.startswith(_DIGEST):
        found[RESTORE_MODES] = restore_modes(text)
    return found


def restore_modes(metadata: str) -> str:
    """The parts of the spec that a restore may bring back from the metadata of a snapshot, as its annotation has them."""
    return ",".join(_modes({"snapshotFile": {"metadata": metadata}}))


def _modes(snapshot: Obj) -> Iterable[str]:
    try:
        spec = cluster_spec(snapshot) or {}
    except SnapshotSpecError:
        spec = {}
    yield "none"
    if spec.get("kubernetesVersion"):
        yield "kubernetesVersion"
        if spec.get("rkeConfig"):
            yield "all"


def _lacking(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The name of the cluster's own object is written once: it may be learned after the file."""
    return {
        name: value
        for name, value in wanted.items()
        if there.get(name) != value and not (name == SNAPSHOT_NAME and name in there)
    }


def _is_same(name: str, value: Any, old: Any) -> bool:
    if name == "metadata" and value and old:
        return _digest(str(value)) == _digest(str(old))
    return bool(value == old)


def _differing(wanted: Obj, before: Obj, part: str) -> Obj:
    old: Obj = before.get(part) or {}
    return {name: value for name, value in wanted.items() if old.get(name) != value}


def _listed(report: Report | None) -> dict[_SnapshotKey, Seen]:
    return {} if report is None else report.by_key()
