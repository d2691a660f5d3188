"""The change budgets of a cluster, as the planner asks them before a restart or a drain. Pure; the rule is
:mod:`remuda.capi.change_budget`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from remuda.capi.change_budget import CHANGE_BUDGET, Act, Holder, Refusal, Role, Subject, refusal

from .. import well_known
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
    subjects = [_subject(each, restarting, draining) for each in machines if not each.deleting]
    acts = (Act.DRAIN, Act.RESTART) if drains else (Act.RESTART,)
    found = (refusal(act, _subject(machine), subjects, holders, snapshot.now) for act in acts)
    return next((each for each in found if each is not None), None)


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


def _subject(machine: Machine, restarting: Collection[str] = (), draining: Collection[str] = ()) -> Subject:
    acts = set()
    if is_in_drain(machine) or machine.name in draining:
        acts |= {Act.DRAIN, Act.RESTART}
    if is_changing(machine) or machine.name in restarting:
        acts.add(Act.RESTART)
    roles = frozenset(role for role, label in _ROLES.items() if machine.plan_labels.get(label) == "true")
    return Subject(machine.name, roles, machine.labels.get(well_known.POOL_NAME, ""), frozenset(acts))
