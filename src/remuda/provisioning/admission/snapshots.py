"""Validation of what users request of snapshots: by changes to ETCDSnapshots, by a recovery or an import that a cluster asks for.

The owners of a cluster may patch its ETCDSnapshots, but not update them. They may request a check of the file, and that it is
deleted with the object, and change nothing else: a snapshot's file, place and cluster decide what a restore and a deletion
act on.

A recovery is refused if it can't begin: the annotation of the cluster is malformed, or names a snapshot or a machine that is not
the cluster's. The planner judges the rest, before it changes anything. A malformed request to import a snapshot is refused, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.access.roles.holdings import Holdings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.kube.admission_attributes import UPDATE, Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import ObjectSource, annotations_of, dig, finalizers_of, metadata
from remuda.runtime.admitted_types import AdmittedType

from ..etcd.import_request import ImportRequestError
from ..etcd.import_request import parse as parse_import
from ..etcd.recovery_request import RecoveryRequest, RecoveryRequestError, parse, requested
from ..etcd.removal import is_etcd
from ..well_known import IMPORT_SNAPSHOT, RECOVER, SNAPSHOT_FILE, VERIFY_SNAPSHOT

Obj = dict[str, Any]

_LONGEST: Final = 64
_WHY: Final = "only controllers change it: you may request a check, and the deletion of the file"
_PATH = f"metadata.annotations[{RECOVER}]"
_FROM = "spec.rkeConfig.etcdSnapshotRestore.fromMachine"


def admitted(holdings: Holdings) -> tuple[AdmittedType, ...]:
    """`holdings` knows who may update ETCDSnapshots."""

    def errors(attributes: Attributes) -> Iterable[FieldError]:
        old, new = attributes.old, attributes.obj
        if attributes.operation != UPDATE or old is None or new is None:
            return ()
        if holdings.may(attributes.user, "update", rke.ETCD_SNAPSHOTS, attributes.name, attributes.namespace):
            return ()
        return change_errors(old, new)

    return (AdmittedType(rke.GROUP, rke.VERSION, "etcdsnapshots", "ETCDSnapshot", validate=errors),)


def change_errors(old: Obj, new: Obj) -> list[FieldError]:
    """The errors of a change by a user who may only patch it. Pure."""
    found = [forbidden_field(field, _WHY) for field in sorted(old.keys() | new.keys()) if _differs(field, old, new)]
    for field in ("labels", "ownerReferences"):
        if metadata(old).get(field) != metadata(new).get(field):
            found.append(forbidden_field(f"metadata.{field}", _WHY))
    before, after = annotations_of(old), annotations_of(new)
    for name in sorted(before.keys() | after.keys()):
        if name != VERIFY_SNAPSHOT and before.get(name) != after.get(name):
            found.append(forbidden_field(f"metadata.annotations[{name}]", _WHY))
    if len(after.get(VERIFY_SNAPSHOT, "")) > _LONGEST:
        path = f"metadata.annotations[{VERIFY_SNAPSHOT}]"
        found.append(invalid_value(path, after[VERIFY_SNAPSHOT][:_LONGEST], "must be the time of the request"))
    held, kept = set(finalizers_of(old)), set(finalizers_of(new))
    if not held <= kept <= held | {SNAPSHOT_FILE}:
        found.append(forbidden_field("metadata.finalizers", _WHY))
    return found


def _differs(field: str, old: Obj, new: Obj) -> bool:
    return field not in ("metadata", "apiVersion", "kind") and old.get(field) != new.get(field)


def recovery_errors(source: ObjectSource, attributes: Attributes) -> list[FieldError]:
    """`source` knows the ETCDSnapshots and Machines."""
    obj, old = attributes.obj or {}, attributes.old
    said = annotations_of(obj).get(RECOVER) or ""
    errors = _unasked(obj, old)
    if not said or said == annotations_of(old or {}).get(RECOVER):
        return errors
    try:
        asked = parse(said)
    except RecoveryRequestError as error:
        return [*errors, invalid_value(_PATH, said[:200], str(error))]
    # A new cluster may be a copy of one that was recovered; the planner does nothing then.
    return errors if old is None else [*errors, *_source_errors(source, attributes, asked, said)]


def _source_errors(source: ObjectSource, attributes: Attributes, asked: RecoveryRequest, said: str) -> list[FieldError]:
    namespace, cluster = attributes.namespace, attributes.name
    if asked.snapshot:
        snapshot = source.get(rke.GROUP, "etcdsnapshots", namespace, asked.snapshot)
        # The writer must not learn of another cluster's snapshot: the same message.
        if snapshot is None or dig(snapshot, "spec", "clusterName") != cluster:
            return [invalid_value(_PATH, said, f"there is no ETCDSnapshot {asked.snapshot} of this cluster in {namespace}")]
        return []
    machine = source.get(capi.GROUP, "machines", namespace, asked.machine)
    if machine is None or dig(machine, "spec", "clusterName") != cluster or not is_etcd(machine):
        return [invalid_value(_PATH, said, f"there is no Machine {asked.machine} with etcd of this cluster in {namespace}")]
    return []


def import_errors(attributes: Attributes) -> list[FieldError]:
    """The errors of a request to import a snapshot; the controller looks into the bucket."""
    said = annotations_of(attributes.obj or {}).get(IMPORT_SNAPSHOT) or ""
    if not said or said == annotations_of(attributes.old or {}).get(IMPORT_SNAPSHOT):
        return []
    try:
        parse_import(said)
    except ImportRequestError as error:
        return [invalid_value(f"metadata.annotations[{IMPORT_SNAPSHOT}]", said[:200], str(error))]
    return []


def _unasked(obj: Obj, old: Obj | None) -> list[FieldError]:
    """A reset without a snapshot is part of a recovery, which looks for lost servers first."""
    path = ("spec", "rkeConfig", "etcdSnapshotRestore", "fromMachine")
    machine = dig(obj, *path)
    asked = requested(annotations_of(obj).get(RECOVER))
    if not machine or machine == dig(old, *path) or old is None or (asked is not None and asked.machine == machine):
        return []
    return [forbidden_field(_FROM, f"request a recovery instead, by the annotation {RECOVER}: it writes this field")]
