"""The rule of machines that one write must not take from a cluster: the last one with etcd, the last one of the control plane,
and more members of etcd than a majority can spare. Pure.

Each function gives the reason for a refusal, with the machines and what to do instead; "" allows the write. A user allows a loss
by an annotation on the machines. A write is judged by the state that it asks for. The deletion of a Machine is judged by the
present state, too: the members that are leaving already, and the health of those that stay.
:mod:`.protected_machines` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from remuda.kube.conditions import get, is_false
from remuda.kube.objects import annotations_of, dig, is_being_deleted, labels_of, name_of, uid_of

from ..etcd.removal import LAST_ETCD, is_forced, is_member, last_members
from ..well_known import CONTROL_PLANE_ROLE, DELETE_ETCD_MAJORITY, DELETE_LAST_CONTROL_PLANE, PRE_TERMINATE_HOOK

Obj = dict[str, Any]

LAST_CONTROL_PLANE = (
    "no other control plane machine of its cluster is a node, and the cluster's API would be gone with it: "
    f"add another control plane machine first, or annotate the Machine with {DELETE_LAST_CONTROL_PLANE}=true"
)
_OR_ALLOW = f"or annotate the Machines with {DELETE_ETCD_MAJORITY}=true"
# Reasons of the condition NodeReady of a host that does not answer any more, while the API of its cluster does.
_DEAD = frozenset({"NodeReadyUnknown", "NodeDeleted"})


def why_last(going: Sequence[Obj], machines: Sequence[Obj]) -> str:
    """`going` hold all of etcd, or are the whole control plane."""
    if kept := last_members(going, machines):
        return f"Machine {_names(kept)}: {LAST_ETCD}"
    if kept := _last_servers(going, machines):
        return f"Machine {_names(kept)}: {LAST_CONTROL_PLANE}"
    return ""


def why_no_majority(going: Sequence[Obj], machines: Sequence[Obj]) -> str:
    """`going` are deleted now, and etcd would have too few healthy members, or lose too many at once."""
    members, gone = _members(machines), {uid_of(each) for each in going}
    taken = [each for each in members if uid_of(each) in gone and not _may_go(each)]
    if len(members) < 2 or not taken:
        return ""
    if all(_is_dead(each) for each in taken) and sum(not _is_dead(each) for each in members) < majority(len(members)):
        # There is no majority that they could be taken from.
        return ""
    leaving = [each for each in members if is_being_deleted(each) and uid_of(each) not in gone and not _may_go(each)]
    if len(taken) + len(leaving) > spare(len(members)):
        return f"Machine {_names(taken)}: {_pace(members, leaving)}, {_OR_ALLOW}"
    left = [each for each in members if uid_of(each) not in gone and not is_being_deleted(each)]
    down = [each for each in left if _is_down(each)]
    if len(left) - len(down) >= majority(len(left)) or all(_is_dead(each) for each in taken):
        return ""
    which = f"{_names(down)} {'is' if len(down) == 1 else 'are'}"
    needed = f"etcd needs {majority(len(left))} healthy members of the {len(left)} that are left, and {which} not ready"
    return f"Machine {_names(taken)}: {needed}: repair or delete {'it' if len(down) == 1 else 'them'} first, {_OR_ALLOW}"


def why_too_many(candidates: Sequence[Obj], count: int, machines: Sequence[Obj]) -> str:
    """A write takes `count` of the candidates, and of etcd more than a majority can spare."""
    members = _members(machines)
    count -= sum(_may_go(each) for each in candidates)
    leaving = [each for each in members if is_being_deleted(each) and not _may_go(each)]
    if len(members) < 2 or count <= 0 or count + len(leaving) <= spare(len(members)):
        return ""
    which = "Machine" if count == len(candidates) else f"{count} of the Machines"
    return f"{which} {_names(candidates)}: {_pace(members, leaving)}, {_OR_ALLOW}"


def why_below(candidates: Sequence[Obj], count: int, machines: Sequence[Obj], wanted: int) -> str:
    """A write takes `count` of the candidates, and leaves less than a majority of the `wanted` etcd machines of the cluster."""
    staying = [each for each in _members(machines) if not is_being_deleted(each)]
    count -= sum(_may_go(each) for each in candidates)
    left = len(staying) - count
    if count <= 0 or left >= majority(wanted):
        return ""
    which = "Machine" if count == len(candidates) else f"{count} of the Machines"
    lack = f"{left} of the {wanted} etcd machines that the cluster asks for would be left, and a majority is {majority(wanted)}"
    return f"{which} {_names(candidates)}: {lack}: change the machine pools of the cluster instead, {_OR_ALLOW}"


def majority(members: int) -> int:
    return members // 2 + 1


def spare(members: int) -> int:
    """The number of members that may leave at once. Of two one may: the other is told before."""
    return max((members - 1) // 2, 1)


def staying_members(machines: Iterable[Obj]) -> list[Obj]:
    return [each for each in machines if is_member(each) and not is_being_deleted(each)]


def is_control_plane(machine: Obj) -> bool:
    return labels_of(machine).get(CONTROL_PLANE_ROLE) == "true"


def _last_servers(going: Sequence[Obj], machines: Iterable[Obj]) -> list[Obj]:
    gone = {uid_of(each) for each in going}
    if any(_serves(each) and not is_being_deleted(each) and uid_of(each) not in gone for each in machines):
        return []
    return [each for each in going if _serves(each) and not _failed(each) and not _may_end_control_plane(each)]


def _serves(machine: Obj) -> bool:
    return is_control_plane(machine) and bool(dig(machine, "status", "nodeRef", "name"))


def _failed(machine: Obj) -> bool:
    """True if a health check has given the machine up, or its host is gone: the cluster has nothing from it any more."""
    return is_false(machine, "HealthCheckSucceeded") or _is_dead(machine)


def _may_end_control_plane(machine: Obj) -> bool:
    return annotations_of(machine).get(DELETE_LAST_CONTROL_PLANE) == "true" or is_forced(machine)


def _may_go(machine: Obj) -> bool:
    return annotations_of(machine).get(DELETE_ETCD_MAJORITY) == "true" or is_forced(machine)


def _members(machines: Iterable[Obj]) -> list[Obj]:
    """A machine that is being deleted is one until its hook is removed (:mod:`..etcd.removal`)."""
    members = (each for each in machines if is_member(each))
    return [each for each in members if not is_being_deleted(each) or PRE_TERMINATE_HOOK in annotations_of(each)]


def _is_dead(machine: Obj) -> bool:
    return (get(machine, "NodeReady") or {}).get("reason") in _DEAD


def _is_down(machine: Obj) -> bool:
    return _is_dead(machine) or is_false(machine, "NodeReady")


def _pace(members: Sequence[Obj], leaving: Sequence[Obj]) -> str:
    most = spare(len(members))
    said = f"etcd has {len(members)} members and can spare {most} at a time"
    if leaving:
        return f"{said}, and {_names(leaving)} {'is' if len(leaving) == 1 else 'are'} leaving: wait until that is done"
    return f"{said}: take {most} first, and go on when {'it has' if most == 1 else 'they have'} left"


def _names(machines: Iterable[Obj]) -> str:
    return ", ".join(sorted(name_of(each) for each in machines))
