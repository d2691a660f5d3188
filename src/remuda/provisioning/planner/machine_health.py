"""The state of a machine: serving, changing or broken, and the reason if it is not done. Judgements; :mod:`.tiers` acts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from remuda.kube.clock import time_of
from remuda.kube.waits import Actor, Code

from .. import well_known
from ..plans.plan import stops
from . import waits
from .drain import is_in_drain
from .snapshot import ClusterSnapshot, Machine, PlanNode

# An agent that has worked on a plan for so long may be interrupted by a new one.
HANGS_AFTER = 900.0
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Reason:
    code: Code
    actor: Actor
    message: str


def unhealthy_probes(node: PlanNode) -> list[str]:
    """Probes that have not passed. One without a result counts: its state is unknown."""
    silent = [name for name in node.plan.probes if not node.probes.get(name)]
    others = [name for name, healthy in node.probes.items() if not healthy and name not in node.plan.probes]
    return sorted([*silent, *others])


def is_healthy(node: PlanNode) -> bool:
    return node.healthy and not unhealthy_probes(node)


def is_changing(machine: Machine) -> bool:
    """True between one plan and the next, drain and uncordon included."""
    node = machine.node
    return is_in_drain(machine) or (node is not None and not node.in_sync and not node.failed)


def is_idle(machine: Machine) -> bool:
    """True if its agent has nothing to do but to report."""
    node = machine.node
    if node is None or machine.deleting or machine.is_windows or stops(node.plan):
        return False
    return node.in_sync and not node.failed and is_healthy(node)


def is_unavailable(machine: Machine) -> bool:
    """True if it can't be relied on, judged by its plan."""
    node = machine.node
    return node is not None and (is_changing(machine) or node.failed or not is_healthy(node))


def serves(machine: Machine) -> bool:
    """True if it is up as an etcd member, by its agent's last report. A drain does not change that, nor a failed plan while all
    probes pass. A plan that stops it has no probes."""
    node = machine.node
    return node is not None and not stops(node.plan) and is_healthy(node) and (node.in_sync or node.failed)


def is_member_up(machine: Machine) -> bool:
    """Node conditions count too: an agent that died with its host leaves healthy probes behind. But a node's condition lags
    behind its host; see :mod:`.etcd_liveness`."""
    return serves(machine) and not (machine.node_name and (machine.failing or machine.non_ready))


def is_hung(snapshot: ClusterSnapshot, machine: Machine) -> bool:
    """True if the agent has worked on its plan for very long. An unreadable time counts as long ago."""
    began = time_of(machine.plan_annotations.get(well_known.PLAN_UPDATED))
    return began is None or snapshot.now - began >= HANGS_AFTER


def may_be_written(snapshot: ClusterSnapshot, machine: Machine) -> bool:
    """False while an agent applies a plan: it would have to start again, and older agents even crash."""
    node = machine.node
    return node is None or node.state != "in-progress" or is_hung(snapshot, machine)


def kubelet_lags(snapshot: ClusterSnapshot, machine: Machine) -> bool:
    """Whether the kubelet is of an older version, if the plan is the desired one. Unknown versions don't lag."""
    if not snapshot.control_plane.agent_connected or not machine.kubelet_version:
        return False
    wanted, found = _NUMBERS.match(snapshot.control_plane.version), _NUMBERS.match(machine.kubelet_version)
    return wanted is not None and (found is None or wanted.groups() != found.groups())


def unapplied(node: PlanNode) -> Reason | None:
    """The reason why a plan that did not fail is not applied and healthy; None if it is."""
    if node.plan.error:
        return Reason(Code.RENDER, Actor.USER, node.plan.error)
    if node.applied is None and node.state != "in-progress":
        return Reason(Code.CHECK_IN, Actor.USER, waits.CHECK_IN)
    if not node.in_sync:
        held_up = f": {node.failure.splitlines()[0][:300]}" if node.failure else ""
        return Reason(Code.PLAN, Actor.MACHINE, f"{waits.PLAN}{held_up}")
    missing = unhealthy_probes(node)
    if missing:
        return Reason(Code.PROBES, Actor.MACHINE, f"waiting for probes: {', '.join(missing)}")
    return None if node.healthy else Reason(Code.PROBES, Actor.MACHINE, "waiting for probes")


def quorum_blocker(machine: Machine, machines: Iterable[Machine], disturbed: Collection[str]) -> Machine | None:
    """The member because of which etcd's quorum forbids a restart of this one now; None if it allows it.

    `disturbed` are the names of machines that this pass restarts already. A member that is down may restart. Otherwise a majority
    of all must be up without it, or at least all of the rest: one or two members can't be restarted in any other way.
    """
    if not machine.is_etcd or not is_member_up(machine):
        return None
    others = other_members(machine, machines)
    down = [other for other in others if other.name in disturbed or not is_member_up(other)]
    return down[0] if len(others) - len(down) < quorum(others) else None


def other_members(machine: Machine, machines: Iterable[Machine]) -> list[Machine]:
    return [other for other in machines if other.is_etcd and other.name != machine.name and _is_member(other)]


def quorum(others: Collection[Machine]) -> int:
    """The number of others that must be up before a member restarts: a majority of all, or all if there are so few."""
    return min((len(others) + 1) // 2 + 1, len(others))


def _is_member(machine: Machine) -> bool:
    return machine.node is not None and machine.node.applied is not None
