"""A paused deployment is scaled, but not rolled out: its sets keep their proportions. Pure.

Growing only the new set, or shrinking only the old ones, would be rolling out by other means. How large all sets together were
meant to be when a set was last scaled stands in its annotation; from that its share of the new size is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .machineset_view import Bounds, MachineSet
from .rollout_plan import Plan


def plan_scaling(bounds: Bounds, new: MachineSet | None, old: Sequence[MachineSet], planned: Mapping[str, int]) -> Plan:
    """`planned`: the size of the whole deployment that each set was last scaled for, by name."""
    plan = Plan()
    everything = [*old, new] if new is not None else list(old)
    active = [each for each in everything if each.spec > 0]
    if len(active) <= 1:
        only = active[0] if active else new or max(old, key=lambda each: (each.created, each.name), default=None)
        if only is not None:
            _scale(plan, only, bounds.replicas)
        return plan
    if new is not None and new.spec == bounds.replicas == new.available:
        for each in old:
            _scale(plan, each, 0)
        return plan
    if bounds.rolling:
        for each, size in _shares(bounds, active, planned):
            _scale(plan, each, size)
    return plan


def _scale(plan: Plan, machine_set: MachineSet, size: int) -> None:
    if machine_set.spec != size:
        plan.scale(machine_set, size, "scale in proportion while paused")


def _shares(bounds: Bounds, active: Sequence[MachineSet], planned: Mapping[str, int]) -> list[tuple[MachineSet, int]]:
    allowed = bounds.most if bounds.replicas > 0 else 0
    missing = allowed - sum(each.spec for each in active)
    if missing == 0:
        return []
    # The largest first; of equals, the newest grows first and the oldest shrinks first.
    ordered = sorted(active, key=lambda each: (each.created, each.name), reverse=missing > 0)
    ordered.sort(key=lambda each: -each.spec)
    sizes: list[int] = []
    left = missing
    for each in ordered:
        share = _share(each, bounds, planned.get(each.name) or 0)
        share = max(min(share, left), 0) if missing > 0 else min(max(share, left), 0)
        sizes.append(each.spec + share)
        left -= share
    for place, size in enumerate(sizes):
        # What could not be divided.
        sizes[place] = max(size + left, 0)
        left -= sizes[place] - size
    return list(zip(ordered, sizes, strict=True))


def _share(machine_set: MachineSet, bounds: Bounds, planned: int) -> int:
    if bounds.replicas == 0:
        return -machine_set.spec
    if planned <= 0:
        return 0
    return math.floor(machine_set.spec * bounds.most / planned + 0.5) - machine_set.spec
