"""Deletions of machines under change budgets: each counts at once, together with the drains of the planner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from remuda.capi.change_budget import CHANGE_BUDGET, Act
from remuda.capi.drain_count import DrainCount
from remuda.capi.machine_budgets import MachineBudgets
from remuda.kube.objects import Key

from .memory_clusters import NAMESPACE, core_object, machine_spec, world

Obj = dict[str, Any]
CLUSTER = Key(NAMESPACE, "c1")


def machine(name: str, **annotations: str) -> Obj:
    """One that is a node."""
    made = core_object("Machine", name, machine_spec(name, template=False))
    made["metadata"] |= {"uid": f"uid-{name}", "annotations": annotations}
    return {**made, "status": {"nodeRef": {"name": name}}}


def cluster(budget: str, kind: str = "RKEControlPlane") -> Obj:
    made = core_object("Cluster", "c1", {"controlPlaneRef": {"kind": kind, "name": "c1"}})
    made["metadata"]["annotations"] = {CHANGE_BUDGET: budget}
    return made


A, B = machine("a"), machine("b")


class Held(NamedTuple):
    budgets: MachineBudgets
    drains: DrainCount


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    async with world() as w:
        drains = DrainCount(w.clock)
        yield Held(MachineBudgets(w.client, w.clock, lambda key: [A, B], drains), drains)


async def why(made: Held, of: Obj, budget: str, kind: str = "RKEControlPlane") -> str:
    found = await made.budgets.claim(Act.DELETE, of, cluster(budget, kind), None)
    return "" if found is None else found.why


async def test_a_drain_of_the_planner_takes_the_place_of_one_for_a_deletion() -> None:
    async with held() as made:
        made.drains.planned(CLUSTER, {"b"})
        assert await why(made, A, "drain=1") == "the change budget of Cluster c1 is drain=1: taken by b"
        made.drains.planned(CLUSTER, ())
        assert await why(made, A, "drain=1") == ""


async def test_the_planner_is_told_of_a_deletion_at_once_and_of_its_end() -> None:
    async with held() as made:
        assert await why(made, A, "drain=1") == ""
        assert made.drains.deleted(CLUSTER) == {"a"}
        assert await why(made, B, "drain=1") == "the change budget of Cluster c1 is drain=1: taken by a"
        made.budgets.release(A)
        assert made.drains.deleted(CLUSTER) == set()
        assert await why(made, B, "drain=1") == ""


async def test_a_deletion_without_a_drain_needs_no_place_among_drains() -> None:
    async with held() as made:
        made.drains.planned(CLUSTER, {"b"})
        bare = machine("a", **{"machine.cluster.x-k8s.io/exclude-node-draining": ""})
        assert await why(made, bare, "drain=1") == ""
        assert made.drains.deleted(CLUSTER) == set()


async def test_nothing_is_deleted_while_the_planners_drains_are_not_known() -> None:
    async with held() as made:
        made.drains.has_planner()
        assert await why(made, A, "drain=5") == "it is not known yet which machines are being drained for a new plan"
        assert await why(made, A, "drain=5", kind="KubeadmControlPlane") == ""
        made.drains.planned(CLUSTER, ())
        assert await why(made, A, "drain=5") == ""
