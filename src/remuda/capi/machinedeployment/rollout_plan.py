"""The rolling update: the next size of each MachineSet, from the present sizes. Pure; nothing is kept in between.

The new set grows as far as `maxSurge` allows. Old sets shrink as far as `maxUnavailable` allows, first by machines that are not
available anyway. Which machine a set deletes is the set's own decision, so the worst is assumed: available ones go first, also
those that earlier plans asked to go and that are still there. Where that assumption would stop a rollout for good, one machine
of an old set that has unavailable ones is given up (:func:`_break_deadlock`).

Machines of old sets that never became nodes are given up at once, regardless of the bounds (:func:`_give_up_stillborn`): what
kept them from coming up is often the reason for the change, and the new ones may wait for them. Sets delete such machines first.

The strategy OnDelete, and scaling while a deployment is paused, are at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .machineset_view import MachineSet, RolloutBounds


@dataclass(slots=True)
class RolloutPlan:
    """`sizes`: the new sizes of sets, by name; sets that stay are not in it. `notes`: the reasons, for people."""

    sizes: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def size(self, machine_set: MachineSet) -> int:
        return self.sizes.get(machine_set.name, machine_set.spec)

    def scale(self, machine_set: MachineSet, size: int, why: str) -> None:
        self.sizes[machine_set.name] = size
        notes = self.notes.setdefault(machine_set.name, [])
        if why not in notes:
            notes.append(why)


def plan_rolling_update(bounds: RolloutBounds, new: MachineSet, old: Sequence[MachineSet]) -> RolloutPlan:
    plan = RolloutPlan()
    grow(plan, bounds, new, old)
    _give_up_stillborn(plan, old)
    _shrink(plan, bounds, new, in_order(old))
    _break_deadlock(plan, new, in_order(old))
    return plan


def in_order(old: Iterable[MachineSet]) -> list[MachineSet]:
    """Old sets in the order in which they shrink: those with machines that a user marked for deletion, then the oldest."""
    return sorted(old, key=lambda each: (each.marked == 0, each.created, each.name))


def _total(machine_sets: Iterable[MachineSet]) -> int:
    """Machines that exist or will be created."""
    return sum(max(each.spec, each.replicas) for each in machine_sets)


# --- the new set -------------------------------------------------------------------------------------------------------------


def grow(plan: RolloutPlan, bounds: RolloutBounds, new: MachineSet, old: Sequence[MachineSet]) -> None:
    """Grow the new set to its size as far as there is room."""
    total = _total((new, *old))
    if new.spec > bounds.replicas:
        plan.scale(new, bounds.replicas, "scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas")
        return
    limit = f"{bounds.replicas} MachineDeployment spec.replicas" + (f" + {bounds.surge} maxSurge" if bounds.rolling else "")
    marked = max(new.marked - max(new.replicas - new.spec, 0), 0)
    if marked and total > bounds.most:
        # The user who made the deployment smaller said which machine should go. Taking one of an old set instead would leave
        # that one in place and an available machine fewer.
        plan.scale(new, new.spec - min(marked, total - bounds.most, new.spec), "scale down Machines marked for deletion")
        return
    room = min(bounds.most - total, bounds.replicas - new.spec)
    if room > 0:
        plan.scale(new, new.spec + room, f"{total} current Machines < {limit}")


# --- the old sets ------------------------------------------------------------------------------------------------------------


def _give_up_stillborn(plan: RolloutPlan, old: Iterable[MachineSet]) -> None:
    for each in old:
        if each.alive is not None and each.alive < each.spec:
            plan.scale(each, each.alive, "scale down by removing Machines that never became Nodes")


def _pending(plan: RolloutPlan, machine_set: MachineSet) -> int:
    """Machines that exist and have to go, by this plan or an earlier one."""
    return max(machine_set.replicas - min(plan.size(machine_set), machine_set.spec), 0)


def _shrink(plan: RolloutPlan, bounds: RolloutBounds, new: MachineSet, old: Sequence[MachineSet]) -> None:
    everything = (*old, new)
    if not any(each.spec for each in old):
        return
    pending = sum(_pending(plan, each) for each in everything)
    # While machines of the new set are unavailable, something may be wrong with it: go slower, or not at all.
    failing = max(new.spec - new.available, 0)
    budget = sum(each.spec for each in everything) - pending - bounds.least - failing
    available = sum(each.available - min(each.available, _pending(plan, each)) for each in everything)
    for only_unavailable in (True, False):
        budget, available = _take(plan, old, budget, available, bounds.least, only_unavailable)


def _take(
    plan: RolloutPlan, old: Sequence[MachineSet], budget: int, available: int, least: int, only_unavailable: bool
) -> tuple[int, int]:
    """Shrink sets by `budget` in all, while `available` (in the worst case) stays at `least`; the rest of both."""
    for each in old:
        size = plan.size(each)
        if budget <= 0:
            break
        wanted = min(max(size - each.available, 0) if only_unavailable else size, budget)
        if wanted <= 0:
            continue
        before = min(each.available, max(each.replicas - size, 0))
        target = size - wanted
        if each.available and each.replicas > target:
            # No more machines that exist than are available beyond `least`, on top of those that have to go already.
            target = max(target, min(each.replicas - max(available + before - least, 0), size))
        if target == size:
            continue
        lost = min(each.available, max(each.replicas - target, 0)) - before
        why = f"{available} available replicas > {least} minimum available replicas" if lost else _NO_LOSS
        plan.scale(each, target, why)
        budget -= size - target
        available -= lost
    return budget, available


_NO_LOSS = (
    "scale down to align to existing Machines or scale down by removing unavailable replicas "
    "(and no available replicas exist on the MachineSet)"
)


def _break_deadlock(plan: RolloutPlan, new: MachineSet, old: Sequence[MachineSet]) -> None:
    """The rollout is blocked by unavailable old machines: give one of them up.

    This may break the bound formally: most likely the set deletes the unavailable one. Unavailable machines of
    the new set are waited for: without them no rollout can be completed.
    """
    if all(each.replicas == each.available for each in old):
        return
    if plan.sizes or any(each.spec != each.replicas for each in (*old, new)) or new.available != new.replicas:
        return
    stuck = next((each for each in old if each.available != each.replicas and each.spec), None)
    if stuck is not None:
        plan.scale(stuck, stuck.spec - 1, "scaling down by 1 to unblock rollout stuck due to unavailable Machine on oldMS")


# --- ondelete -------------------------------------------------------------------------------------------------------------
#
# The strategy OnDelete: old machines stay until a user deletes them; the new set replaces them. Pure.
#
# Old sets make no machines any more (an annotation from :mod:`.desired_machinesets` prevents it), so their size follows
# their machines down.


def plan_on_delete(bounds: RolloutBounds, new: MachineSet, old: Sequence[MachineSet]) -> RolloutPlan:
    plan = RolloutPlan()
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


# --- scaling --------------------------------------------------------------------------------------------------------------
#
# A paused deployment is scaled, but not rolled out: its sets keep their proportions. Pure.
#
# Growing only the new set, or shrinking only the old ones, would amount to a rollout. An annotation of each set holds the
# intended size of all sets together at its last scaling; its share of the new size is computed from that.


def plan_scaling(
    bounds: RolloutBounds, new: MachineSet | None, old: Sequence[MachineSet], planned: Mapping[str, int]
) -> RolloutPlan:
    """`planned`: the size of the whole deployment that each set was last scaled for, by name."""
    plan = RolloutPlan()
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


def _scale(plan: RolloutPlan, machine_set: MachineSet, size: int) -> None:
    if machine_set.spec != size:
        plan.scale(machine_set, size, "scale in proportion while paused")


def _shares(bounds: RolloutBounds, active: Sequence[MachineSet], planned: Mapping[str, int]) -> list[tuple[MachineSet, int]]:
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
        # The remainder of the division.
        sizes[place] = max(size + left, 0)
        left -= sizes[place] - size
    return list(zip(ordered, sizes, strict=True))


def _share(machine_set: MachineSet, bounds: RolloutBounds, planned: int) -> int:
    if bounds.replicas == 0:
        return -machine_set.spec
    if planned <= 0:
        return 0
    return math.floor(machine_set.spec * bounds.most / planned + 0.5) - machine_set.spec
