"""The change budgets of a cluster, as the planner asks them before a restart or a drain. Pure; the rule is
:mod:`remuda.capi.change_budget`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import msgspec

from remuda.capi.change_budget import CHANGE_BUDGET, Act, Holder, Refusal, Role, Subject, refusal

from .. import well_known
from .decision import SecretChange
from .drain import is_in_drain
from .machine_health import is_changing
from .snapshot import ClusterSnapshot, ControlPlane, Machine


def why_held(
    snapshot: ClusterSnapshot,
    machine: Machine,
    machines: Iterable[Machine],
    restarting: Collection[str],
    draining: Collection[str],
    *,
    drains: bool,
) -> Refusal | None:
    """The reason why this machine may not be restarted (and drained before) now; None if all budgets allow it. `restarting` and
    `draining` are machines with which this pass has begun."""
    holders = holders_of(snapshot)
    if not holders:
        return None
    listed = list(machines)
    staying = [_subject(each, restarting, draining) for each in listed if not each.deleting]
    found = refusal(Act.RESTART, _subject(machine), staying, holders, snapshot.now)
    if found is not None or not drains:
        return found
    drained = [_drained(each, restarting, {*draining, *snapshot.leaving}) for each in listed]
    return refusal(Act.DRAIN, _subject(machine), drained, holders, snapshot.now)


def in_drain(machines: Iterable[Machine], changes: Mapping[str, SecretChange]) -> set[str]:
    """The machines that are in a drain of the planner's after these changes, or are about to be."""
    begun = {name for name, change in changes.items() if change.annotations.get(well_known.DRAIN_OPTIONS)}
    return begun | {each.name for each in machines if is_in_drain(each)}


def holders_of(snapshot: ClusterSnapshot) -> list[Holder]:
    plane = snapshot.control_plane
    named = f"Cluster {plane.name}"
    own = plane.annotations.get(CHANGE_BUDGET)
    holders = [] if snapshot.namespace_budget is None else [snapshot.namespace_budget]
    if own is not None:
        holders.append(Holder(named, own))
    return [*holders, *_of_pools(plane, named)]


def _of_pools(plane: ControlPlane, named: str) -> list[Holder]:
    said = plane.annotations.get(well_known.POOL_CHANGE_BUDGETS)
    if not said:
        return []
    try:
        pools = msgspec.json.decode(said, type=dict[str, str])
    except msgspec.DecodeError:
        return [Holder(named, problem=f"the annotation {well_known.POOL_CHANGE_BUDGETS} is malformed")]
    return [Holder(f"machine pool {pool}", budget, pool) for pool, budget in pools.items()]


_ROLES: Mapping[Role, str] = {
    Role.ETCD: well_known.ETCD_ROLE,
    Role.CONTROL_PLANE: well_known.CONTROL_PLANE_ROLE,
    Role.WORKER: well_known.WORKER_ROLE,
}


def _drained(machine: Machine, restarting: Collection[str], draining: Collection[str]) -> Subject:
    """As drains are counted: one that is deleted is drained, too, unless it has no node or says otherwise."""
    if not machine.deleting:
        return _subject(machine, restarting, draining)
    drains = bool(machine.node_name) and well_known.EXCLUDE_NODE_DRAINING not in machine.annotations
    return replace(_subject(machine), acts=frozenset({Act.DRAIN} if drains else ()))


def _subject(machine: Machine, restarting: Collection[str] = (), draining: Collection[str] = ()) -> Subject:
    acts = set()
    if is_in_drain(machine) or machine.name in draining:
        acts |= {Act.DRAIN, Act.RESTART}
    if is_changing(machine) or machine.name in restarting:
        acts.add(Act.RESTART)
    roles = frozenset(role for role, label in _ROLES.items() if machine.plan_labels.get(label) == "true")
    return Subject(machine.name, roles, machine.labels.get(well_known.POOL_NAME, ""), frozenset(acts))
