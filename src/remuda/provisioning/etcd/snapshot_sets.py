"""Backups of a cluster: the copies that belong together, from its ETCDSnapshots (docs/reference/operations.md#sets). Pure.

A backup is taken by all members at the same time. Each has a file of its own, named `PREFIX-NODE-SECONDS`, and each file may also
be in a bucket. Every file and every copy is an ETCDSnapshot; users think of one backup.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, namespace_of, owner_references_of

from ..well_known import CLUSTER_NAME, OTHER_CLUSTER, SNAPSHOT_FILE_NAME, SNAPSHOT_STORAGE
from .snapshot_specs import SnapshotSpecError, cluster_spec

Obj = dict[str, Any]

LOCAL, S3 = "local", "s3"
# Ours: a file that a user has uploaded, on the disk of the management server.
SERVER = "server"
# Of a copy and of a set. A file that can't be seen now may still be there.
AVAILABLE, MISSING, FAILED = "available", "missing", "failed"
_COMPRESSED = ".zip"
_TAKEN = re.compile(r"(?P<rest>.+)-(?P<seconds>\d{9,12})")
_USUAL_PREFIXES = ("on-demand", "etcd-snapshot")
# Members begin a backup at the same time; a slow host installs its version first.
_TOGETHER: Final = 300.0
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """One ETCDSnapshot. `node` is the node that took it, "" if that is not known; `machine` has the file, "" in a bucket
    and on the management server."""

    name: str
    file: str
    storage: str
    state: str
    created: float
    size: int = 0
    node: str = ""
    machine: str = ""
    location: str = ""
    message: str = ""
    sha256: str = ""
    # The Kubernetes version of the cluster at that time; "" if the snapshot has no readable spec.
    version: str = ""
    verification: Obj | None = None
    is_of_another: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotSet:
    """A backup: `copies` has the files of members first, by node, then those in buckets."""

    name: str
    namespace: str
    cluster: str
    created: float
    copies: tuple[SnapshotCopy, ...]

    @property
    def state(self) -> str:
        states = {copy.state for copy in self.copies}
        return next(state for state in (AVAILABLE, MISSING, FAILED) if state in states)

    @property
    def size(self) -> int:
        return max(copy.size for copy in self.copies)

    @property
    def version(self) -> str:
        return next((copy.version for copy in self.copies if copy.version), "")

    def names(self) -> frozenset[str]:
        """All names by which users may know it: its own, of its objects, and of its files."""
        return frozenset({self.name, *(copy.name for copy in self.copies), *(copy.file for copy in self.copies)})

    def data(self) -> Obj:
        copies = [
            {
                "name": copy.name,
                "storage": copy.storage,
                "state": copy.state,
                "file": copy.file,
                "location": copy.location,
                "node": copy.node,
                "machine": copy.machine,
                "size": copy.size,
                "sha256": copy.sha256,
                "message": copy.message,
                "verification": copy.verification,
                **({"otherCluster": True} if copy.is_of_another else {}),
            }
            for copy in self.copies
        ]
        return {
            "name": self.name,
            "namespace": self.namespace,
            "cluster": self.cluster,
            "created": rfc3339(self.created),
            "state": self.state,
            "size": self.size,
            "kubernetesVersion": self.version,
            "copies": copies,
        }


def cluster_of(snapshot: Obj) -> str:
    """The name of the cluster that it is of; it is in the snapshot's own namespace."""
    return str(dig(snapshot, "spec", "clusterName") or labels_of(snapshot).get(CLUSTER_NAME) or "")


def copy_of(snapshot: Obj) -> SnapshotCopy:
    file: Obj = snapshot.get("snapshotFile") or {}
    name = str(file.get("name") or annotations_of(snapshot).get(SNAPSHOT_FILE_NAME) or "")
    failed, missing = file.get("status") == FAILED, dig(snapshot, "status", "missing") is True
    node = str(file.get("nodeName") or "")
    taken = _TAKEN.fullmatch(name.removesuffix(_COMPRESSED))
    return SnapshotCopy(
        name=name_of(snapshot),
        file=name,
        storage=storage_of(snapshot),
        state=FAILED if failed else MISSING if missing else AVAILABLE,
        created=time_of(file.get("createdAt")) or (float(taken["seconds"]) if taken else 0.0),
        size=int(file.get("size") or 0),
        node="" if node == S3 else node,
        machine=machine_of(snapshot),
        location=str(file.get("location") or ""),
        message=message_of(file) if failed else str(dig(snapshot, "status", "message") or ""),
        sha256=str(dig(snapshot, "status", "sha256") or ""),
        version=_version(snapshot),
        verification=dig(snapshot, "status", "verification"),
        is_of_another=annotations_of(snapshot).get(OTHER_CLUSTER) == "true",
    )


def storage_of(snapshot: Obj) -> str:
    said = annotations_of(snapshot).get(SNAPSHOT_STORAGE)
    return said if said in (LOCAL, S3, SERVER) else S3 if dig(snapshot, "snapshotFile", "s3") is not None else LOCAL


def machine_of(snapshot: Obj) -> str:
    """The name of the Machine that has the file; "" for a copy elsewhere."""
    return next((str(owner.get("name")) for owner in owner_references_of(snapshot) if owner.get("kind") == "Machine"), "")


def message_of(file: Obj) -> str:
    """The reason of a failed snapshot; Rancher encodes it as base64."""
    message = str(file.get("message") or "")
    try:
        return base64.b64decode(message, validate=True).decode()[:_LONGEST]
    except ValueError:
        return message[:_LONGEST]


def _version(snapshot: Obj) -> str:
    try:
        return str((cluster_spec(snapshot) or {}).get("kubernetesVersion") or "")
    except SnapshotSpecError:
        return ""


def grouped(snapshots: Iterable[Obj]) -> list[SnapshotSet]:
    """All backups, by namespace and cluster, the newest first."""
    of_cluster: dict[tuple[str, str], list[SnapshotCopy]] = {}
    for snapshot in snapshots:
        of_cluster.setdefault((namespace_of(snapshot), cluster_of(snapshot)), []).append(copy_of(snapshot))
    found = [each for key in sorted(of_cluster) for each in _of_cluster(*key, of_cluster[key])]
    return sorted(found, key=lambda each: (each.namespace, each.cluster, -each.created, each.name))


def _of_cluster(namespace: str, cluster: str, copies: Sequence[SnapshotCopy]) -> list[SnapshotSet]:
    files: dict[str, list[SnapshotCopy]] = {}
    for copy in sorted(copies, key=lambda each: (each.storage != LOCAL, each.node, each.name)):
        files.setdefault(copy.file, []).append(copy)
    nodes = sorted({copy.node for copy in copies if copy.node}, key=lambda node: (-len(node), node))
    last: dict[str, _Backup] = {}
    found: list[_Backup] = []
    for file in sorted(files, key=lambda name: (min(copy.created for copy in files[name]), name)):
        taken = _taken(file, files[file], nodes)
        backup = last.get(taken.prefix)
        if backup is None or not backup.has_room_for(taken):
            backup = _Backup(taken)
            found.append(backup)
            if taken.node:
                last[taken.prefix] = backup
        backup.add(taken)
    return [backup.as_set(namespace, cluster) for backup in found]


@dataclass(frozen=True, slots=True)
class _Taken:
    """One file, with all of its copies; `node` is "" if its name does not tell it."""

    prefix: str
    node: str
    at: float
    copies: tuple[SnapshotCopy, ...]


def _taken(file: str, copies: Sequence[SnapshotCopy], nodes: Iterable[str]) -> _Taken:
    at = min(copy.created for copy in copies)
    parts = _TAKEN.fullmatch(file.removesuffix(_COMPRESSED))
    if parts is None:
        return _Taken(file.removesuffix(_COMPRESSED), "", at, tuple(copies))
    rest = parts["rest"]
    own = next((copy.node for copy in copies if copy.node), "")
    for node in (own, *nodes):
        if node and rest.endswith(f"-{node}"):
            return _Taken(rest.removesuffix(f"-{node}"), node, at, tuple(copies))
    prefix = next((usual for usual in _USUAL_PREFIXES if rest.startswith(f"{usual}-")), "")
    return _Taken(prefix or rest, rest.removeprefix(f"{prefix}-") if prefix else "", at, tuple(copies))


class _Backup:
    def __init__(self, first: _Taken) -> None:
        self._first = first
        self._nodes: set[str] = set()
        self._copies: list[SnapshotCopy] = []

    def has_room_for(self, taken: _Taken) -> bool:
        """A node takes part once, so that backups in quick succession stay apart."""
        return bool(taken.node) and taken.node not in self._nodes and taken.at - self._first.at <= _TOGETHER

    def add(self, taken: _Taken) -> None:
        self._nodes.add(taken.node)
        self._copies.extend(taken.copies)

    def as_set(self, namespace: str, cluster: str) -> SnapshotSet:
        first = self._first
        name = f"{first.prefix}-{int(first.at)}" if first.node else first.prefix
        copies = sorted(self._copies, key=lambda copy: (copy.storage != LOCAL, copy.node, copy.file, copy.name))
        return SnapshotSet(name, namespace, cluster, first.at, tuple(copies))
