"""Draining for a change of plan: whose turn it is, which pods go, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.builtin_resources import NODES, PODS, SERVICE_ACCOUNTS
from remuda.kube.objects import Key, annotations_of
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.etcd.members import DistributionsMembers
from remuda.provisioning.nodes.machinedrain import (
    DrainAction,
    DrainError,
    MachineDrain,
    NodeDrainOptions,
    decide,
    parse,
    sort_pods,
)
from remuda.provisioning.well_known import DRAIN_DONE, DRAIN_ERROR, DRAIN_OPTIONS, POST_DRAIN, PRE_DRAIN, UNCORDON
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.capi.memory_clusters import MemoryWorkload
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machines

Obj = dict[str, Any]
PLAIN = '{"enabled":true}'
HOOKS = '{"enabled":true,"postDrainHooks":[{"annotation":"x/after"}],"preDrainHooks":[{"annotation":"x/before"}]}'
NOW = 1_800_000_000.0
SETS = frozenset({Key("ns", "ds")})


# --- whose turn it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "do"),
    [
        ({}, DrainAction.NOTHING),
        ({DRAIN_OPTIONS: PLAIN}, DrainAction.DRAIN),
        ({DRAIN_OPTIONS: PLAIN, DRAIN_DONE: PLAIN}, DrainAction.NOTHING),
        ({DRAIN_OPTIONS: PLAIN, DRAIN_DONE: "other"}, DrainAction.DRAIN),
        ({DRAIN_OPTIONS: HOOKS}, DrainAction.CORDON),
        ({DRAIN_OPTIONS: HOOKS, PRE_DRAIN: HOOKS}, DrainAction.CORDON),
        ({DRAIN_OPTIONS: HOOKS, PRE_DRAIN: HOOKS, "x/before": "old"}, DrainAction.CORDON),
        ({DRAIN_OPTIONS: HOOKS, PRE_DRAIN: HOOKS, "x/before": HOOKS}, DrainAction.DRAIN),
        ({DRAIN_OPTIONS: PLAIN, DRAIN_DONE: PLAIN, UNCORDON: PLAIN}, DrainAction.UNCORDON),
        ({DRAIN_OPTIONS: HOOKS, DRAIN_DONE: HOOKS, UNCORDON: HOOKS}, DrainAction.HOOKS_BACK),
        ({DRAIN_OPTIONS: HOOKS, DRAIN_DONE: HOOKS, UNCORDON: HOOKS, POST_DRAIN: HOOKS}, DrainAction.HOOKS_BACK),
        ({DRAIN_OPTIONS: HOOKS, DRAIN_DONE: HOOKS, UNCORDON: HOOKS, POST_DRAIN: HOOKS, "x/after": HOOKS}, DrainAction.UNCORDON),
    ],
)
def test_every_mark_has_its_answer(marks: dict[str, str], do: DrainAction) -> None:
    assert decide(marks).do is do


def test_all_marks_go_in_the_end() -> None:
    marks = {DRAIN_OPTIONS: HOOKS, DRAIN_DONE: HOOKS, UNCORDON: HOOKS, POST_DRAIN: HOOKS, PRE_DRAIN: HOOKS, "x/before": HOOKS}
    step = decide({**marks, "x/after": HOOKS, "other": "stays"})
    assert step.write == dict.fromkeys([*marks, "x/after"])


def test_options_are_read_as_the_planner_writes_them() -> None:
    assert parse('{"enabled":true,"gracePeriod":-1,"ignoreDaemonSets":null}') == NodeDrainOptions(enabled=True)
    assert parse('{"enabled":false,"gracePeriod":0,"ignoreDaemonSets":false}') == NodeDrainOptions(
        grace=0, ignore_daemon_sets=False
    )
    with pytest.raises(DrainError):
        parse("[]")


# --- which pods go --------------------------------------------------------------------------------------------------------


def pod(name: str, owner: str = "ReplicaSet", phase: str = "Running", **more: Any) -> Obj:
    meta: Obj = {"name": name, "namespace": "ns"}
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": "ds" if owner == "DaemonSet" else "rs", "controller": True}]
    return {"metadata": {**meta, **more.pop("metadata", {})}, "spec": more, "status": {"phase": phase}}


def names(pods: Iterable[Obj]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


def test_pods_go_as_kubectl_would_have_them_go() -> None:
    mirror = pod("mirror", "", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    going = pod("going", metadata={"deletionTimestamp": "2027-01-15T07:59:00Z"})
    found = sort_pods(
        [pod("b"), pod("a"), pod("ds", "DaemonSet"), mirror, going, pod("done", "", "Succeeded")], SETS, NodeDrainOptions(), NOW
    )
    assert names(found.evict) == ["a", "b", "done"] and names(found.going) == ["going"] and not found.done
    assert sort_pods([pod("ds", "DaemonSet"), mirror], SETS, NodeDrainOptions(), NOW).done
    assert sort_pods([going], SETS, NodeDrainOptions(skip_deleted_after=30), NOW).done


def test_a_pod_that_may_not_go_stops_the_drain_before_it_begins() -> None:
    alone, local = pod("alone", ""), pod("local", volumes=[{"name": "v", "emptyDir": {}}])
    with pytest.raises(DrainError, match=r"no controller .*ns/alone"):
        sort_pods([pod("a"), alone], SETS, NodeDrainOptions(), NOW)
    with pytest.raises(DrainError, match=r"local storage .*ns/local"):
        sort_pods([local], SETS, NodeDrainOptions(), NOW)
    with pytest.raises(DrainError, match=r"DaemonSet-managed .*ns/ds"):
        sort_pods([pod("ds", "DaemonSet")], SETS, NodeDrainOptions(ignore_daemon_sets=False), NOW)
    assert len(sort_pods([alone, local], SETS, NodeDrainOptions(force=True, delete_empty_dir=True), NOW).evict) == 2


# --- the controller -------------------------------------------------------------------------------------------------------


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield Bootstraps(parts.manager, lambda bootstrap, token: b"", DistributionsMembers(made.workloads))
    yield MachineDrain(parts.manager, made.workloads)


async def running(made: Machines, *, owner: bool = True) -> MemoryWorkload:
    """A machine whose node runs a pod."""
    await made.demo()
    await made.machine("m1")
    await made.patch(capi.MACHINES, "m1", {"status": {"nodeRef": {"name": "n1"}}}, FLEET, "status")
    workload = await made.workloads.connect(DEMO, FLEET)
    await workload.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    await workload.client.create(SERVICE_ACCOUNTS, account, "default")
    ref = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    meta: Obj = {"name": "p", "namespace": "default", "finalizers": ["example.com/slow"]}
    if owner:
        meta["ownerReferences"] = [ref]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    await workload.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "default")
    await made.settle(3)
    return workload


async def marks(made: Machines) -> dict[str, str]:
    return annotations_of(await made.plan("m1"))


async def cordoned(workload: MemoryWorkload) -> bool:
    return bool((await workload.client.get(NODES, "n1"))["spec"].get("unschedulable"))


async def test_a_node_is_drained_and_comes_back() -> None:
    async with machines(controllers) as made:
        workload = await running(made)
        await made.answer("m1", {DRAIN_OPTIONS: PLAIN})
        await made.settle(10)
        assert await cordoned(workload) and DRAIN_DONE not in await marks(made)
        pod = await workload.client.get(PODS, "p", "default")
        assert pod["metadata"]["deletionTimestamp"], "it was asked to go"
        await workload.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "default")
        await made.settle(10)
        assert (await marks(made))[DRAIN_DONE] == PLAIN and await cordoned(workload)
        await made.answer("m1", {UNCORDON: PLAIN})
        await made.settle(5)
        assert not await cordoned(workload)
        assert not {DRAIN_OPTIONS, DRAIN_DONE, UNCORDON, DRAIN_ERROR} & (await marks(made)).keys()


async def test_hooks_have_their_turns() -> None:
    async with machines(controllers) as made:
        workload = await running(made)
        await workload.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "default")
        await made.answer("m1", {DRAIN_OPTIONS: HOOKS})
        await made.settle(60)
        assert (await marks(made))[PRE_DRAIN] == HOOKS and await cordoned(workload)
        assert await workload.client.get(PODS, "p", "default"), "nobody goes before the hook has answered"
        await made.answer("m1", {"x/before": HOOKS})
        await made.settle(10)
        assert (await marks(made))[DRAIN_DONE] == HOOKS
        await made.answer("m1", {UNCORDON: HOOKS})
        await made.settle(30)
        assert (await marks(made))[POST_DRAIN] == HOOKS and await cordoned(workload)
        await made.answer("m1", {"x/after": HOOKS})
        await made.settle(5)
        assert not await cordoned(workload) and not {"x/before", "x/after", POST_DRAIN} & (await marks(made)).keys()


async def test_what_holds_a_drain_up_is_told_until_it_does_not() -> None:
    async with machines(controllers) as made:
        workload = await running(made, owner=False)
        await made.answer("m1", {DRAIN_OPTIONS: PLAIN})
        await made.settle(5)
        assert "no controller" in (await marks(made))[DRAIN_ERROR]
        await workload.client.patch(PODS, "p", {"metadata": {"finalizers": None}}, "default")
        await workload.client.delete(PODS, "p", "default")
        await made.settle(30)
        assert (await marks(made))[DRAIN_DONE] == PLAIN and DRAIN_ERROR not in await marks(made)


async def test_without_draining_a_node_is_only_cordoned() -> None:
    async with machines(controllers) as made:
        workload = await running(made)
        await made.answer("m1", {DRAIN_OPTIONS: '{"enabled":false}'})
        await made.settle(3)
        assert await cordoned(workload) and (await marks(made))[DRAIN_DONE] == '{"enabled":false}'
        assert not (await workload.client.get(PODS, "p", "default"))["metadata"].get("deletionTimestamp")
