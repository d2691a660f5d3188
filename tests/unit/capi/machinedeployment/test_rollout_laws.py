"""Laws of rollouts, on a small model of MachineSets whose machines come, go and fail in any order.

The sets of the model are adversaries: they delete available machines first, a deleted machine takes its time to go, and nothing
says when a machine becomes available. A rollout must keep to its bounds all the same, and come to an end once things calm down.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.capi.machinedeployment.machineset_view import MachineSet, RolloutBounds
from remuda.capi.machinedeployment.rollout_plan import RolloutPlan, plan_on_delete, plan_rolling_update, plan_scaling

COUNTS = st.integers(0, 6)
LIMITS = st.one_of(st.integers(0, 8), st.sampled_from(["0%", "1%", "25%", "34%", "50%", "99%", "100%"]))


@dataclass
class Machine:
    available: bool = False
    deleting: bool = False


@dataclass
class Set:
    name: str
    created: str
    spec: int = 0
    machines: list[Machine] = field(default_factory=list)

    @property
    def value(self) -> MachineSet:
        available = sum(machine.available for machine in self.machines)
        return MachineSet(self.name, self.created, self.spec, len(self.machines), available)

    def reconcile(self, chance: random.Random) -> None:
        """As many machines as there should be; which ones go is the set's own business, and it chooses badly."""
        excess = len(self.machines) - self.spec
        going = sum(machine.deleting for machine in self.machines)
        if excess < 0:
            self.machines += [Machine() for _ in range(-excess)]
        candidates = [machine for machine in self.machines if not machine.deleting]
        chance.shuffle(candidates)
        candidates.sort(key=lambda machine: not machine.available)
        for machine in candidates[: max(excess - going, 0)]:
            machine.deleting = True


@dataclass
class World:
    bounds: RolloutBounds
    sets: list[Set]
    chance: random.Random
    new: Set = field(init=False)

    def __post_init__(self) -> None:
        self.new = self.sets[-1]

    @property
    def old(self) -> list[Set]:
        return [each for each in self.sets if each is not self.new]

    def change(self) -> None:
        """Another template; sometimes one that there was before."""
        if self.chance.random() < 0.3:
            self.new = self.chance.choice(self.sets)
            return
        self.new = Set(f"ms{len(self.sets) + 1}", f"{len(self.sets) + 1:04}")
        self.sets.append(self.new)

    def plan(self) -> RolloutPlan:
        plan = plan_rolling_update(self.bounds, self.new.value, [each.value for each in self.old])
        for each in self.sets:
            each.spec = plan.sizes.get(each.name, each.spec)
        return plan

    @property
    def machines(self) -> list[Machine]:
        return [machine for each in self.sets for machine in each.machines]

    @property
    def available(self) -> int:
        return sum(machine.available for machine in self.machines)

    def certain(self, sizes: dict[str, int]) -> int:
        """How many are available when every machine that has to go is an available one."""
        found = 0
        for each in (each.value for each in self.sets):
            found += each.available - min(each.available, max(each.replicas - sizes[each.name], 0))
        return found

    def sizes(self) -> dict[str, int]:
        return {each.name: each.spec for each in self.sets}

    def total(self, sizes: dict[str, int]) -> int:
        return sum(max(sizes[each.name], len(each.machines)) for each in self.sets)

    def remove_deleted(self) -> None:
        for each in self.sets:
            each.machines = [machine for machine in each.machines if not machine.deleting]

    def calm_down(self) -> None:
        """Everybody does their work from now on, and new machines become available; old ones stay as they are."""
        for _ in range(400):
            if self.done:
                return
            self.plan()
            for each in self.sets:
                each.reconcile(self.chance)
            self.remove_deleted()
            for machine in self.new.machines:
                machine.available = True
        raise AssertionError(f"no end: {self.bounds} {[each.value for each in self.sets]}")

    @property
    def done(self) -> bool:
        new = self.new.value
        return not any(each.spec or each.machines for each in self.old) and (
            new.spec == new.replicas == new.available == self.bounds.replicas
        )


def rolled_out(bounds: RolloutBounds, chance: random.Random) -> World:
    """A deployment that is complete, and whose template has just been changed."""
    first = Set("ms1", "0001", bounds.replicas, [Machine(available=True) for _ in range(bounds.replicas)])
    return World(bounds, [first, Set("ms2", "0002")], chance)


HEALTHY = st.lists(st.sampled_from(["plan", "set", "available", "gone", "change"]), max_size=80)
STEPS = st.lists(st.sampled_from(["plan", "set", "available", "gone", "ill", "scale", "change"]), max_size=60)


def step(world: World, what: str, limits: tuple[Any, Any]) -> None:
    chance = world.chance
    match what:
        case "set":
            chance.choice(world.sets).reconcile(chance)
        case "available" if waiting := [each for each in world.machines if not each.available and not each.deleting]:
            chance.choice(waiting).available = True
        case "ill" if well := [each for each in world.machines if each.available]:
            chance.choice(well).available = False
        case "gone":
            world.remove_deleted()
        case "scale":
            world.bounds = RolloutBounds.between(chance.randrange(7), *limits)
        case "change":
            world.change()


@settings(max_examples=400, deadline=None)
@given(COUNTS, LIMITS, LIMITS, STEPS, st.integers(0, 2**32))
def test_no_plan_breaks_the_bounds_and_every_rollout_ends(
    replicas: int, surge: Any, unavailable: Any, steps: list[str], seed: int
) -> None:
    world = rolled_out(RolloutBounds.between(replicas, surge, unavailable), random.Random(seed))
    for what in steps:
        if what != "plan":
            step(world, what, (surge, unavailable))
            continue
        before = world.sizes()
        values = [each.value for each in world.sets]
        world.plan()
        keeps_to_its_bounds(world, before, values)
    world.calm_down()


def keeps_to_its_bounds(world: World, before: dict[str, int], values: list[MachineSet]) -> None:
    after, bounds = world.sizes(), world.bounds
    assert world.total(after) <= max(bounds.most, world.total(before)), "more machines than allowed"
    if after[world.new.name] < before[world.new.name]:
        # Whoever made the deployment smaller wants fewer machines, also where it hurts.
        before = {**before, world.new.name: after[world.new.name]}
    lost = world.certain(before) - world.certain(after)
    if lost <= 0 or world.certain(after) >= bounds.least:
        return
    still = all(each.spec == each.replicas for each in values)
    assert lost == 1 and still, f"fewer available machines than allowed: {bounds} {values} {before} {after}"
    new = next(each for each in values if each.name == world.new.name)
    assert new.available == new.replicas, "a deadlock was broken while new machines might still become available"


ANY_SET = st.tuples(COUNTS, st.lists(st.booleans(), max_size=6))


@settings(max_examples=400, deadline=None)
@given(COUNTS, LIMITS, LIMITS, st.lists(ANY_SET, min_size=2, max_size=4))
def test_no_plan_breaks_the_bounds_whatever_it_finds(
    replicas: int, surge: Any, unavailable: Any, found: list[tuple[int, list[bool]]]
) -> None:
    sets = [Set(f"ms{n}", f"{n:04}", spec, [Machine(each) for each in machines]) for n, (spec, machines) in enumerate(found)]
    world = World(RolloutBounds.between(replicas, surge, unavailable), sets, random.Random(0))
    before, values = world.sizes(), [each.value for each in world.sets]
    world.plan()
    keeps_to_its_bounds(world, before, values)
    world.calm_down()


@settings(max_examples=300, deadline=None)
@given(
    COUNTS, LIMITS, LIMITS, st.lists(st.sampled_from(["plan", "set", "available", "gone", "change"]), max_size=80), st.integers()
)
def test_a_rollout_of_healthy_machines_never_leaves_its_bounds(
    replicas: int, surge: Any, unavailable: Any, steps: list[str], seed: int
) -> None:
    world = rolled_out(RolloutBounds.between(replicas, surge, unavailable), random.Random(seed))
    for what in steps:
        if what == "plan":
            world.plan()
        else:
            step(world, what, (surge, unavailable))
        assert world.available >= world.bounds.least
        assert len(world.machines) <= world.bounds.most
    world.calm_down()


@settings(max_examples=200, deadline=None)
@given(COUNTS, COUNTS, st.lists(st.sampled_from(["plan", "set", "delete", "gone"]), max_size=60), st.integers())
def test_on_delete_ends_when_all_old_machines_are_deleted(replicas: int, later: int, steps: list[str], seed: int) -> None:
    chance = random.Random(seed)
    world = rolled_out(RolloutBounds(replicas, rolling=False), chance)
    old, new = world.sets

    def plan() -> None:
        before = world.sizes()
        found = plan_on_delete(world.bounds, new.value, [old.value])
        for each in world.sets:
            each.spec = found.sizes.get(each.name, each.spec)
        assert world.total(world.sizes()) <= max(world.bounds.replicas, world.total(before))
        assert old.spec <= before[old.name]

    def reconcile(each: Set) -> None:
        # An old set makes no machines.
        if each is new or len(each.machines) > each.spec:
            each.reconcile(chance)

    for what in steps:
        if what == "plan":
            plan()
        elif what == "set":
            reconcile(chance.choice(world.sets))
        elif what == "gone":
            world.remove_deleted()
        elif old.machines:
            chance.choice(old.machines).deleting = True
    world.bounds = RolloutBounds(later, rolling=False)
    for _ in range(100):
        for machine in old.machines[:1]:
            machine.deleting = True
        world.remove_deleted()
        plan()
        reconcile(old)
        reconcile(new)
    world.remove_deleted()
    assert (old.spec, len(old.machines), new.spec, len(new.machines)) == (0, 0, later, later)


@settings(max_examples=300, deadline=None)
@given(COUNTS, LIMITS, LIMITS, st.lists(COUNTS, min_size=1, max_size=4), st.integers(0, 30))
def test_scaling_while_paused_comes_to_rest_at_the_size_that_is_allowed(
    replicas: int, surge: Any, unavailable: Any, sizes: list[int], planned: int
) -> None:
    bounds = RolloutBounds.between(replicas, surge, unavailable)
    present = [MachineSet(f"ms{number}", f"{number:04}", size, size, size) for number, size in enumerate(sizes)]
    plan = plan_scaling(bounds, present[-1], present[:-1], {each.name: planned for each in present})
    after = [MachineSet(each.name, each.created, (size := plan.size(each)), size, size) for each in present]
    assert all(each.spec >= 0 for each in after)
    assert sum(each.spec for each in after) in (bounds.replicas, bounds.most)
    again = plan_scaling(bounds, after[-1], after[:-1], {each.name: bounds.most for each in after})
    assert sum(again.size(each) for each in after) in (bounds.replicas, bounds.most)
