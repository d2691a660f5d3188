"""The decision whether the host of an etcd member may be deleted: only after the member has left
(docs/reference/operations.md#removal-of-a-member). Pure.

Each etcd Machine has a hook that Cluster API waits for before it deletes the host. It is removed when the member has left, or
when that no longer matters: the whole cluster is deleted, the machine never became a node, a user forces it by an annotation.
The last etcd machine of a cluster is held until another one exists (:func:`leaves_no_etcd`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from remuda.capi.well_known import HOLDS_DATA
from remuda.kube.clock import time_of
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, metadata, uid_of
from remuda.kube.waits import Actor, Code

from ..well_known import DELETE_LAST_ETCD, ETCD_FORCE_REMOVE, ETCD_ROLE, PRE_TERMINATE_HOOK

Obj = dict[str, Any]

# With two members the leaving one may be the leader: the other needs this long to be sure that it is alone.
_ELECTION = 20.0
_AGAIN = 5.0
# A member leaves within a moment of the request.
_SOON = 2.0


class Step(Enum):
    NOTHING = "nothing"
    HOLD = "hold"  # put the hook on the Machine
    RELEASE = "release"  # take it away
    WAIT = "wait"
    REMOVE_MEMBER = "remove the member"  # and release when it is out


@dataclass(frozen=True, slots=True)
class Situation:
    """`joined` are the names of machines whose plans join this one; `others` the cluster's other etcd Machines."""

    machine: Obj
    bootstrap: Obj | None
    cluster: Obj | None
    control_plane: Obj | None
    has_kubeconfig: bool
    joined: Sequence[str]
    others: Sequence[Obj]
    now: float


@dataclass(frozen=True, slots=True)
class Verdict:
    step: Step
    why: str = ""
    after: float = _AGAIN
    code: Code = Code.HOOK
    actor: Actor = Actor.REMUDA


def decide(situation: Situation) -> Verdict:
    machine, bootstrap = situation.machine, situation.bootstrap
    last_members = PRE_TERMINATE_HOOK in annotations_of(machine)
    is_etcd = ETCD_ROLE in labels_of(machine)
    if not is_being_deleted(machine) and bootstrap is not None and not is_being_deleted(bootstrap):
        if is_etcd == last_members:
            return Verdict(Step.NOTHING)
        return Verdict(Step.HOLD if is_etcd else Step.RELEASE)
    if not last_members or not is_being_deleted(machine):
        # A bootstrap deleted alone leaves a member behind; its hook must stay for the Machine's deletion.
        return Verdict(Step.NOTHING)
    why = _unwanted(situation, is_etcd)
    if why:
        return Verdict(Step.RELEASE, why)
    if (
        has_data(situation.control_plane, situation.cluster)
        and is_member(machine)
        and leaves_no_etcd([machine], situation.others)
    ):
        if is_forced(machine):
            return Verdict(Step.RELEASE, f"{DELETE_LAST_ETCD} is set")
        return Verdict(Step.WAIT, LAST_ETCD, code=Code.LAST_ETCD, actor=Actor.USER)
    why = _why_unneeded(situation)
    if why:
        return Verdict(Step.RELEASE, why)
    return _leaving(situation)


def _unwanted(situation: Situation, is_etcd: bool) -> str:
    """The reason why its member is not needed any more; "" if it may be."""
    machine, cluster, control_plane = situation.machine, situation.cluster, situation.control_plane
    if annotations_of(situation.bootstrap or {}).get(ETCD_FORCE_REMOVE) == "true":
        return f"{ETCD_FORCE_REMOVE} is set"
    if not is_etcd:
        return "it is no etcd machine"
    if not dig(machine, "spec", "clusterName") or cluster is None:
        return "its cluster is gone"
    if not dig(cluster, "spec", "controlPlaneRef") or control_plane is None:
        return "its control plane is gone"
    if is_being_deleted(cluster) or is_being_deleted(control_plane):
        return "the whole cluster goes"
    return ""


def _why_unneeded(situation: Situation) -> str:
    """The reason why no member has to be removed; "" if one has."""
    if not is_member(situation.machine):
        return "it never became a node"
    if not situation.has_kubeconfig:
        return "there is no way into its cluster"
    return ""


def _leaving(situation: Situation) -> Verdict:
    if situation.joined:
        return Verdict(Step.WAIT, f"these machines are still joined to it: {', '.join(sorted(situation.joined))}")
    if len(situation.others) == 1 and not is_being_deleted(situation.others[0]):
        since = time_of(metadata(situation.machine).get("deletionTimestamp")) or situation.now
        left = since + _ELECTION - situation.now
        if left > 0:
            return Verdict(Step.WAIT, "the other etcd member may have to be elected", left)
    return Verdict(Step.REMOVE_MEMBER, after=_SOON)


# --- last etcd ------------------------------------------------------------------------------------------------------------
#
# The last etcd machine of a cluster: its data goes with it, so it is deleted only if a user allows it by an annotation. Pure.
#
# The rule applies to the deletion of a Machine and of its owners (:mod:`..admission.protected_machines`), and again before its
# host is deleted (:func:`decide`), for admission can be bypassed. It is for clusters whose API was up: before that there
# is nothing to lose. A cluster that is deleted as a whole deletes its machines.

LAST_ETCD = (
    "it is the only etcd machine of its cluster, and all that the cluster holds would go with it: "
    f"add another etcd machine first, or annotate the Machine with {DELETE_LAST_ETCD}=true"
)


def is_etcd(machine: Obj) -> bool:
    return labels_of(machine).get(ETCD_ROLE) == "true"


def is_member(machine: Obj) -> bool:
    """True if its host is, or may be, a member of etcd: it became a node, or the planner marked it."""
    return is_etcd(machine) and (bool(dig(machine, "status", "nodeRef", "name")) or HOLDS_DATA in annotations_of(machine))


def has_data(control_plane: Obj | None, *clusters: Obj | None) -> bool:
    """True if a cluster that is not being deleted was ever up; `clusters` are the Cluster API's and the provisioned one, if they
    exist. The control plane's field returns to False when its servers go."""
    if control_plane is None or any(each is not None and is_being_deleted(each) for each in (control_plane, *clusters)):
        return False
    path = ("status", "initialization", "controlPlaneInitialized")
    return dig(control_plane, *path) is not None or any(dig(each, *path) is True for each in clusters)


def last_members(going: Sequence[Obj], machines: Iterable[Obj]) -> list[Obj]:
    """The machines of `going` that must stay: all of etcd would go with them, and no user allowed that."""
    kept = [each for each in going if is_member(each) and not is_forced(each)]
    return kept if kept and leaves_no_etcd(going, machines) else []


def leaves_no_etcd(going: Sequence[Obj], machines: Iterable[Obj]) -> bool:
    """True if no node with etcd is left in `machines` without those of `going`."""
    gone = {uid_of(each) for each in going}
    return not any(
        is_etcd(each) and dig(each, "status", "nodeRef", "name") and not is_being_deleted(each) and uid_of(each) not in gone
        for each in machines
    )


def is_forced(machine: Obj) -> bool:
    return annotations_of(machine).get(DELETE_LAST_ETCD) == "true"
