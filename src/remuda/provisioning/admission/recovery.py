"""Refusal of recoveries that can't begin, when they are requested: the annotation of a cluster is malformed, or names a snapshot
or a machine that is not the cluster's. The planner judges the rest, before it changes anything. Malformed requests to import a
snapshot are refused, too.
"""

from __future__ import annotations

from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.objects import ObjectSource, annotations_of, dig

from ..etcd.import_request import ImportRequestError
from ..etcd.import_request import parse as parse_import
from ..etcd.recovery_request import RecoveryRequest, RecoveryRequestError, parse, requested
from ..etcd.removal import is_etcd
from ..well_known import IMPORT_SNAPSHOT, RECOVER

Obj = dict[str, Any]

_PATH = f"metadata.annotations[{RECOVER}]"
_FROM = "spec.rkeConfig.etcdSnapshotRestore.fromMachine"


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
