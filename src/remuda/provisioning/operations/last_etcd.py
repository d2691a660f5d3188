"""The last etcd machine of a cluster: what it holds goes with it, so it goes only when a user says so by an annotation. Pure.

The rule is asked when a Machine is deleted, or what would delete it (:mod:`..admission.provider_objects`), and once more before
its host is taken away (:mod:`.etcd_removal`), for there are ways around admission. It is about clusters whose API was there:
before that there is nothing to lose. A cluster that is deleted as a whole takes its machines with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.capi.well_known import HOLDS_DATA
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, uid_of

from ..well_known import DELETE_LAST_ETCD, ETCD_ROLE

Obj = dict[str, Any]

LAST_ETCD = (
    "it is the only etcd machine of its cluster, and all that the cluster holds would go with it: "
    f"add another etcd machine first, or annotate the Machine with {DELETE_LAST_ETCD}=true"
)


def is_etcd(machine: Obj) -> bool:
    return labels_of(machine).get(ETCD_ROLE) == "true"


def is_member(machine: Obj) -> bool:
    """Whether its host is, or may be, a member of etcd: it became a node, or the planner says so."""
    return is_etcd(machine) and (bool(dig(machine, "status", "nodeRef", "name")) or HOLDS_DATA in annotations_of(machine))


def has_data(control_plane: Obj | None, *clusters: Obj | None) -> bool:
    """Whether a cluster that stays was ever up; `clusters` are the Cluster API's and the provisioned one, as far as they are
    there. What the control plane says is taken back when its servers go, to False."""
    if control_plane is None or any(each is not None and is_being_deleted(each) for each in (control_plane, *clusters)):
        return False
    path = ("status", "initialization", "controlPlaneInitialized")
    return dig(control_plane, *path) is not None or any(dig(each, *path) is True for each in clusters)


def held(going: Sequence[Obj], machines: Iterable[Obj]) -> list[Obj]:
    """Those of `going`, of a cluster of `machines`, that may not go: with them would go all of etcd, and no user meant that."""
    kept = [each for each in going if is_member(each) and not is_meant(each)]
    return kept if kept and are_all(going, machines) else []


def are_all(going: Sequence[Obj], machines: Iterable[Obj]) -> bool:
    """Whether no node with etcd is left among `machines` without those of `going`."""
    gone = {uid_of(each) for each in going}
    return not any(
        is_etcd(each) and dig(each, "status", "nodeRef", "name") and not is_being_deleted(each) and uid_of(each) not in gone
        for each in machines
    )


def is_meant(machine: Obj) -> bool:
    return annotations_of(machine).get(DELETE_LAST_ETCD) == "true"
