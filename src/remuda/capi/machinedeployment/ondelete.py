"""The strategy OnDelete: old machines stay until somebody deletes them; the new set replaces what is gone. Pure.

Old sets make no machines any more (an annotation that :mod:`.desired_machinesets` writes says so), so their size follows their
machines down. :mod:`.rollout_plan` has the other strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

from .machineset_view import Bounds, MachineSet
from .rollout_plan import Plan, grow, in_order


def plan_on_delete(bounds: Bounds, new: MachineSet, old: Sequence[MachineSet]) -> Plan:
    plan = Plan()
    grow(plan, bounds, new, old)
    surplus = plan.size(new) + sum(each.spec for each in old) - bounds.replicas
    ordered = in_order(old)
    for each in ordered:
        gone = max(each.spec - each.replicas, 0)
        if gone:
            plan.scale(each, each.replicas, "scale down to align to existing Machines")
            surplus -= gone
    for each in ordered:
        size = plan.size(each)
        fewer = min(size, surplus)
        if fewer > 0:
            plan.scale(each, size - fewer, "scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas")
            surplus -= fewer
    return plan
