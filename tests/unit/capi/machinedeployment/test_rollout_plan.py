"""How large each MachineSet should be next: rolling updates, OnDelete, and scaling while paused."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machinedeployment.machineset_view import MachineSet, RolloutBounds
from remuda.capi.machinedeployment.rollout_plan import plan_on_delete, plan_rolling_update, plan_scaling

Sizes = dict[str, int]


def sets(*sizes: tuple[int, ...]) -> list[MachineSet]:
    """ms1, ms2, … as (spec, machines, available[, marked]); (n,) is n of each. The last is the new one."""
    found = []
    for number, size in enumerate(sizes, 1):
        spec, replicas, available, *marked = size if len(size) > 1 else size * 3
        found.append(MachineSet(f"ms{number}", f"2026-01-0{number}T00:00:00Z", spec, replicas, available, *marked))
    return found


# --- reading -----------------------------------------------------------------------------------------------------------------


def test_machines_that_can_be_seen_count_although_a_status_does_not_know_them_yet() -> None:
    machine_set = {"metadata": {"name": "ms1"}, "spec": {"replicas": 0}, "status": {"replicas": 1}}
    assert MachineSet.of(machine_set).replicas == 1
    assert MachineSet.of(machine_set, there=3).replicas == 3
    assert MachineSet.of(machine_set, there=0).replicas == 1


# --- bounds ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (2, "0%", "1%", (0, 1)),
        (1, "0%", "1%", (0, 1)),
        (2, "1%", "25%", (1, 0)),
        (1, "1%", "25%", (1, 0)),
        (2, "1%", "0%", (1, 0)),
        (10, "25%", "25%", (3, 2)),
        (10, 10, 0, (10, 0)),
        (3, 0, 10, (0, 3)),
        (3, 0, 0, (0, 1)),
        (0, "100%", "100%", (0, 0)),
        (5, "many", "25", (0, 1)),
    ],
)
def test_percentages_round_towards_more_machines(replicas: int, surge: Any, unavailable: Any, expected: tuple[int, int]) -> None:
    bounds = RolloutBounds.between(replicas, surge, unavailable)
    assert (bounds.surge, bounds.unavailable) == expected


def test_a_deployment_without_a_strategy_is_rolled_with_one_machine_more() -> None:
    assert RolloutBounds.of({"spec": {"replicas": 3}}) == RolloutBounds(3, 1, 0)


def test_on_delete_keeps_to_the_number_of_replicas() -> None:
    bounds = RolloutBounds.of({"spec": {"replicas": 3, "rollout": {"strategy": {"type": "OnDelete"}}}})
    assert (bounds.most, bounds.least) == (3, 3)


# --- whole rollouts, as upstream's planner does them --------------------------------------------------------------------------

ROLLOUTS: list[tuple[str, RolloutBounds, Sizes, list[tuple[int, ...]]]] = [
    (
        "three, one more at a time",
        RolloutBounds(3, 1, 0),
        {"ms1": 3, "ms2": 0},
        [(3, 1), (2, 1), (2, 2), (1, 2), (1, 3), (0, 3), (0, 3)],
    ),
    (
        "three, one fewer at a time",
        RolloutBounds(3, 0, 1),
        {"ms1": 3, "ms2": 0},
        [(2, 0), (2, 1), (1, 1), (1, 2), (0, 2), (0, 3), (0, 3)],
    ),
    ("six, three more, one fewer", RolloutBounds(6, 3, 1), {"ms1": 6, "ms2": 0}, [(5, 3), (2, 4), (1, 6), (0, 6), (0, 6)]),
    ("six, one more, three fewer", RolloutBounds(6, 1, 3), {"ms1": 6, "ms2": 0}, [(3, 1), (2, 4), (0, 5), (0, 6), (0, 6)]),
    ("six, as many more as there are", RolloutBounds(6, 10, 0), {"ms1": 6, "ms2": 0}, [(6, 6), (0, 6), (0, 6)]),
    ("six, all may be gone", RolloutBounds.between(6, 0, 10), {"ms1": 6, "ms2": 0}, [(0, 0), (0, 6), (0, 6)]),
    ("made larger halfway", RolloutBounds(12, 3, 1), {"ms1": 3, "ms2": 3}, [(3, 12), (0, 12), (0, 12)]),
    ("made smaller halfway", RolloutBounds(6, 3, 1), {"ms1": 9, "ms2": 3}, [(2, 3), (2, 6), (0, 6), (0, 6)]),
    (
        "changed again halfway",
        RolloutBounds(6, 3, 1),
        {"ms1": 3, "ms2": 3, "ms3": 0},
        [(2, 3, 3), (0, 2, 4), (0, 1, 6), (0, 0, 6), (0, 0, 6)],
    ),
]


@pytest.mark.parametrize(("bounds", "sizes", "steps"), [case[1:] for case in ROLLOUTS], ids=[case[0] for case in ROLLOUTS])
def test_a_rollout_goes_in_these_steps(bounds: RolloutBounds, sizes: Sizes, steps: list[tuple[int, ...]]) -> None:
    present = list(sizes.values())
    seen = []
    for _ in steps:
        *old, new = sets(*((size,) for size in present))
        plan = plan_rolling_update(bounds, new, old)
        present = [plan.size(each) for each in (*old, new)]
        seen.append(tuple(present))
    assert seen == steps


# --- single steps -------------------------------------------------------------------------------------------------------------

GROWING: list[tuple[str, RolloutBounds, list[tuple[int, ...]], int]] = [
    ("to its size", RolloutBounds(2, 2, 0), [(0, 0, 0)], 2),
    ("down with the deployment", RolloutBounds(0, 0, 0), [(2, 0, 0)], 0),
    ("no further than the surge", RolloutBounds(3, 2, 0), [(3, 3, 0), (1, 0, 0)], 2),
    ("not while deleted machines are still there", RolloutBounds(1, 0, 1), [(0, 1, 0), (0, 0, 0)], 0),
    ("not beyond the deployment", RolloutBounds(2, 5, 0), [(1,), (2,)], 2),
]


@pytest.mark.parametrize(("bounds", "sizes", "expected"), [case[1:] for case in GROWING], ids=[case[0] for case in GROWING])
def test_the_new_set_grows(bounds: RolloutBounds, sizes: list[tuple[int, ...]], expected: int) -> None:
    *old, new = sets(*sizes)
    assert plan_rolling_update(bounds, new, old).size(new) == expected


ONE_MORE = RolloutBounds(3, 1, 0)
SHRINKING: list[tuple[str, RolloutBounds, list[tuple[int, ...]], Sizes]] = [
    ("nothing is left to shrink", RolloutBounds(10, 1, 0), [(0,), (10,)], {}),
    ("just as many as needed are available", ONE_MORE, [(2,), (1,)], {"ms2": 2}),
    ("fewer than needed are available", ONE_MORE, [(2, 2, 1), (1,)], {"ms2": 2}),
    ("an earlier step already takes what is to spare", ONE_MORE, [(2, 3, 3), (1,)], {}),
    ("an earlier step of another set takes it", RolloutBounds(6, 3, 1), [(2, 3, 3), (3,), (3, 0, 0)], {}),
    ("new machines don't become available, one more", ONE_MORE, [(3, 3, 0), (1, 1, 0)], {}),
    ("new machines don't become available, one fewer", RolloutBounds(3, 0, 1), [(2, 2, 0), (1, 1, 0)], {}),
    ("a new machine is not available yet", ONE_MORE, [(3,), (1, 1, 0)], {}),
    ("one is to spare", ONE_MORE, [(3,), (1,)], {"ms1": 2}),
    ("what is not available goes first", ONE_MORE, [(2,), (1, 1, 0), (2, 2, 0), (1,)], {"ms2": 0, "ms3": 0}),
    ("then what is", ONE_MORE, [(3,), (1, 1, 0), (2, 2, 0), (1,)], {"ms1": 2, "ms2": 0, "ms3": 0}),
    (
        "sizes without machines go freely",
        ONE_MORE,
        [(4, 3, 3), (2, 1, 0), (5, 2, 0), (1,)],
        {"ms1": 2, "ms2": 0, "ms3": 0},
    ),
    ("a set may delete the wrong machine", ONE_MORE, [(1,), (1, 1, 0), (2, 2, 1), (1,)], {"ms2": 0}),
    (
        "a set may delete the wrong machine, but not one that is not there",
        ONE_MORE,
        [(2, 1, 1), (3, 1, 0), (3, 2, 1), (1,)],
        {"ms1": 1, "ms2": 0, "ms3": 2},
    ),
    ("an earlier step leaves some to spare", ONE_MORE, [(3, 4, 4), (2,)], {"ms1": 2}),
]


@pytest.mark.parametrize(("bounds", "sizes", "expected"), [case[1:] for case in SHRINKING], ids=[case[0] for case in SHRINKING])
def test_old_sets_shrink(bounds: RolloutBounds, sizes: list[tuple[int, ...]], expected: Sizes) -> None:
    *old, new = sets(*sizes)
    assert plan_rolling_update(bounds, new, old).sizes == expected


def test_machines_that_have_to_go_already_are_not_counted_on() -> None:
    # ms1's machine has to go, though it is still there. ms2 has two of which one may be the wrong one to delete: six are
    # available after ms1's, five must be, so one may go.
    *old, new = sets((0, 1, 1), (4, 4, 2), (4,))
    assert plan_rolling_update(RolloutBounds(6, 3, 1), new, old).sizes == {"ms2": 3}


BREAKING: list[tuple[str, list[tuple[int, ...]], Sizes]] = [
    ("nothing old is left", [(0,), (10,)], {}),
    ("the new set has not come to its size", [(5, 5, 4), (6, 5, 5)], {}),
    ("an old set has not come to its size", [(4, 5, 4), (5,)], {}),
    ("new machines are not available", [(5, 5, 4), (5, 5, 3)], {}),
    ("nothing moves", [(5, 5, 3), (5,)], {"ms1": 4}),
]


@pytest.mark.parametrize(("sizes", "expected"), [case[1:] for case in BREAKING], ids=[case[0] for case in BREAKING])
def test_a_deadlock_is_broken_only_when_nothing_else_moves(sizes: list[tuple[int, ...]], expected: Sizes) -> None:
    *old, new = sets(*sizes)
    # As many must be available as there are, and no more may be made.
    bounds = RolloutBounds(10, 0, 0)
    found = plan_rolling_update(bounds, new, old).sizes
    assert {name: size for name, size in found.items() if name != new.name} == expected


def test_a_machine_marked_for_deletion_goes_before_older_ones() -> None:
    *old, new = sets((2,), (2, 2, 2, 1), (1,))
    assert plan_rolling_update(RolloutBounds(4, 1, 0), new, old).sizes == {"ms2": 1}


def test_an_autoscaler_gets_rid_of_the_new_machine_that_it_marked() -> None:
    # Five with one more, in the middle of a rollout; the autoscaler marked a new machine and made the deployment one smaller.
    *old, new = sets((3,), (3, 3, 2, 1))
    assert plan_rolling_update(RolloutBounds(4, 1, 0), new, old).sizes == {"ms2": 2}
    # While that machine is on its way out it isn't taken twice.
    *old, new = sets((3,), (2, 3, 2, 1))
    assert plan_rolling_update(RolloutBounds(4, 1, 0), new, old).sizes == {}


# --- OnDelete -----------------------------------------------------------------------------------------------------------------

ON_DELETE: list[tuple[str, int, list[tuple[int, ...]], Sizes]] = [
    ("nobody deleted anything", 10, [(3,), (2,), (5,)], {}),
    ("somebody deleted two, and the new set makes up once sizes follow", 6, [(3, 2, 2), (1, 0, 0), (2,)], {"ms1": 2, "ms2": 0}),
    ("machines are missing", 6, [(2,), (0,), (2,)], {"ms3": 4}),
    ("the deployment got smaller", 3, [(1,), (2,), (2,)], {"ms1": 0, "ms2": 1}),
    ("what somebody deleted counts", 3, [(1, 0, 0), (2,), (2,)], {"ms1": 0, "ms2": 1}),
    ("the new set got too large", 2, [(1,), (3,)], {"ms1": 0, "ms2": 2}),
    ("one deleted and one too many, in one set", 3, [(5, 4, 4), (0,)], {"ms1": 3}),
    ("the one that somebody marked goes", 3, [(2,), (2, 2, 2, 1), (0,)], {"ms2": 1}),
]


@pytest.mark.parametrize(("replicas", "sizes", "expected"), [case[1:] for case in ON_DELETE], ids=[case[0] for case in ON_DELETE])
def test_on_delete(replicas: int, sizes: list[tuple[int, ...]], expected: Sizes) -> None:
    *old, new = sets(*sizes)
    assert plan_on_delete(RolloutBounds(replicas, rolling=False), new, old).sizes == expected


# --- paused -------------------------------------------------------------------------------------------------------------------

SCALING: list[tuple[str, RolloutBounds, list[tuple[int, ...]], int, Sizes]] = [
    ("only one set has machines", RolloutBounds(5, 1, 0), [(0,), (3,)], 4, {"ms2": 5}),
    ("only an old one has", RolloutBounds(5, 1, 0), [(3,), (0,)], 4, {"ms1": 5}),
    ("none has", RolloutBounds(5, 1, 0), [(0,), (0,)], 4, {"ms2": 5}),
    ("the new one is complete", RolloutBounds(5, 1, 0), [(2,), (5,)], 6, {"ms1": 0}),
    ("larger", RolloutBounds(20, 0, 1), [(6,), (4,)], 10, {"ms1": 12, "ms2": 8}),
    ("smaller", RolloutBounds(5, 0, 1), [(6,), (4,)], 10, {"ms1": 3, "ms2": 2}),
    ("what can't be divided goes to the largest", RolloutBounds(11, 0, 1), [(6,), (4,)], 10, {"ms1": 7}),
    ("of equals the newest grows first", RolloutBounds(11, 0, 1), [(5,), (5,)], 10, {"ms2": 6}),
    ("of equals the oldest shrinks first", RolloutBounds(9, 0, 1), [(5,), (5,)], 10, {"ms1": 4}),
    ("to nothing", RolloutBounds(0, 3, 0), [(6,), (4,)], 10, {"ms1": 0, "ms2": 0}),
    ("nobody knows how large it was", RolloutBounds(20, 0, 1), [(6,), (4,)], 0, {"ms1": 16}),
    ("nothing to do", RolloutBounds(10, 0, 1), [(6,), (4,)], 10, {}),
]


@pytest.mark.parametrize(
    ("bounds", "sizes", "planned", "expected"), [case[1:] for case in SCALING], ids=[case[0] for case in SCALING]
)
def test_a_paused_deployment_keeps_its_proportions(
    bounds: RolloutBounds, sizes: list[tuple[int, ...]], planned: int, expected: Sizes
) -> None:
    *old, new = sets(*sizes)
    assert plan_scaling(bounds, new, old, {each.name: planned for each in (*old, new)}).sizes == expected


def test_a_paused_deployment_with_another_strategy_is_not_divided() -> None:
    *old, new = sets((6,), (4,))
    assert plan_scaling(RolloutBounds(20, rolling=False), new, old, {}).sizes == {}


def test_scaling_that_was_cut_short_goes_on() -> None:
    # ms1 has been scaled for 20 already, ms2 not yet.
    *old, new = sets((12,), (4,))
    assert plan_scaling(RolloutBounds(20, 0, 1), new, old, {"ms1": 20, "ms2": 10}).sizes == {"ms2": 8}


def test_a_paused_deployment_without_sets_gets_none() -> None:
    assert plan_scaling(RolloutBounds(3, 1, 0), None, [], {}).sizes == {}


def test_a_paused_deployment_without_a_new_set_scales_its_newest() -> None:
    assert plan_scaling(RolloutBounds(3, 1, 0), None, sets((0,), (0,)), {}).sizes == {"ms2": 3}


# --- machines that never became nodes ------------------------------------------------------------------------------------------


def stillborn(spec: int, alive: int, available: int = 0, number: int = 1) -> MachineSet:
    return MachineSet(f"ms{number}", f"2026-01-0{number}T00:00:00Z", spec, spec, available, alive=alive)


def test_outdated_machines_that_never_became_nodes_go_at_once() -> None:
    new = MachineSet("ms9", "2026-01-09T00:00:00Z")
    assert plan_rolling_update(RolloutBounds(1, 1), new, [stillborn(1, 0)]).sizes == {"ms9": 1, "ms1": 0}
    assert plan_rolling_update(RolloutBounds(3, 1), new, [stillborn(3, 0)]).sizes == {"ms9": 1, "ms1": 0}
    # Without surge the new one comes when they are gone.
    assert plan_rolling_update(RolloutBounds(1, 0, 1), new, [stillborn(1, 0)]).sizes == {"ms1": 0}
    # Those that are nodes keep to the bounds, available or not.
    assert plan_rolling_update(RolloutBounds(3, 1), new, [stillborn(3, 2, 2)]).sizes == {"ms9": 1, "ms1": 2}
    assert plan_rolling_update(RolloutBounds(3, 1), new, [stillborn(3, 3, 2)]).sizes == {"ms9": 1}


def test_those_of_the_new_set_and_of_one_that_is_smaller_already_are_left() -> None:
    assert plan_rolling_update(RolloutBounds(3, 1), stillborn(3, 0, number=2), []).sizes == {}
    shrinking = MachineSet("ms1", "2026-01-01T00:00:00Z", 1, 3, 2, alive=2)
    assert (
        "ms1"
        not in plan_rolling_update(RolloutBounds(3, 1), MachineSet("ms2", "2026-01-02T00:00:00Z", 2, 2, 0), [shrinking]).sizes
    )
