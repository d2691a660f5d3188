"""The cluster's agent leaves a server before its etcd member does: who is asked to go, when, and what is not waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.builtin_resources import NODES, PODS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.etcd.members import DistributionsMembers, decide
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.capi.memory_clusters import MemoryWorkload
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machines

from .test_rkebootstrap import leaving

Obj = dict[str, Any]
NOW = 1_800_000_000.0
PAST, LONG_PAST = "2027-01-15T07:59:55Z", "2027-01-15T07:59:00Z"
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
SYSTEM, AGENT = "cattle-system", "cattle-cluster-agent"
READY = [{"type": "Ready", "status": "True"}]
REMOVE = "etcd.rke2.cattle.io/remove"


def agent(node: str, *, ready: bool = True, phase: str = "Running", leaves: str = "", **spec: Any) -> Obj:
    meta: Obj = {"name": f"agent-{node}", "namespace": SYSTEM, **({"deletionTimestamp": leaves} if leaves else {})}
    return {
        "metadata": meta,
        "spec": {"nodeName": node, **spec},
        "status": {"phase": phase, "conditions": READY if ready else []},
    }


def node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"conditions": READY if ready else []}}


# --- who goes -------------------------------------------------------------------------------------------------------------


def test_an_agent_goes_when_another_node_takes_it() -> None:
    here = agent("a")
    assert decide("a", [here], [node("a"), node("b")], NOW).evict == (here,)
    assert decide("a", [agent("b")], [node("a"), node("b")], NOW).done, "it is not there"
    assert decide("a", [], [node("a"), node("b")], NOW).done, "there is none"
    assert decide("a", [agent("a", phase="Failed")], [node("a"), node("b")], NOW).done, "it has ended"


@pytest.mark.parametrize(
    "other",
    [
        node("b", ready=False),
        node("b", unschedulable=True),
        node("b", taints=[{"key": "x", "effect": "NoSchedule"}]),
        node("b", taints=[{"key": "x", "effect": "NoExecute"}]),
    ],
    ids=["not ready", "cordoned", "tainted", "tainted for good"],
)
def test_an_agent_without_another_node_stays(other: Obj) -> None:
    assert decide("a", [agent("a")], [node("a"), other], NOW).done
    assert decide("a", [agent("a")], [node("a")], NOW).done


def test_where_an_agent_may_be_is_its_own_to_say() -> None:
    tainted = node("b", taints=[{"key": "x", "effect": "NoSchedule"}])
    assert decide("a", [agent("a", tolerations=[{"key": "x", "operator": "Exists"}])], [node("a"), tainted], NOW).evict
    picky = agent("a", nodeSelector={"os": "linux"})
    assert decide("a", [picky], [node("a"), node("b")], NOW).done
    assert decide("a", [picky], [node("a"), node("b", labels={"os": "linux"})], NOW).evict


def test_where_another_agent_works_none_is_moved() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert decide("a", [agent("a"), agent("b")], nodes, NOW).done
    assert decide("a", [agent("a"), agent("b", ready=False)], nodes, NOW).evict
    assert decide("a", [agent("a"), agent("b", phase="Pending", ready=False)], nodes, NOW).evict
    assert decide("a", [agent("a"), agent("b", leaves=PAST)], nodes, NOW).evict


def test_an_agent_that_goes_is_waited_for_but_not_for_ever() -> None:
    going = agent("a", leaves=PAST)
    assert decide("a", [going], [node("a"), node("b")], NOW).going == (going,)
    assert decide("a", [agent("a", leaves=LONG_PAST)], [node("a"), node("b")], NOW).done


# --- what happens to it ---------------------------------------------------------------------------------------------------


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield Bootstraps(parts.manager, lambda bootstrap, token: b"", DistributionsMembers(made.workloads, parts.manager.clock))


async def with_an_agent_on(made: Machines, where: str) -> MemoryWorkload:
    await leaving(made, "m1", "m2", "m3")
    workload = await made.workloads.connect(DEMO, FLEET)
    for name in ("m1", "m2", "m3"):
        await workload.client.patch(NODES, name, {"spec": {"taints": None}})
        await workload.client.patch(NODES, name, {"status": {"conditions": READY}}, subresource="status")
    await workload.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SYSTEM}}
    await workload.client.create(SERVICE_ACCOUNTS, account, SYSTEM)
    meta: Obj = {"name": "agent", "namespace": SYSTEM, "labels": {"app": AGENT}, "finalizers": ["example.com/slow"]}
    spec = {"nodeName": where, "containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    await workload.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, SYSTEM)
    await workload.client.patch(
        PODS, "agent", {"status": {"phase": "Running", "conditions": READY}}, SYSTEM, subresource="status"
    )
    return workload


async def is_cordoned(workload: MemoryWorkload, name: str) -> bool:
    return bool((await workload.client.get(NODES, name))["spec"].get("unschedulable"))


async def is_asked_for(workload: MemoryWorkload, name: str) -> bool:
    return annotations_of(await workload.client.get(NODES, name)).get(REMOVE) == "true"


async def test_a_member_is_not_asked_for_before_the_agent_has_left_its_node() -> None:
    async with machines(controllers) as made:
        workload = await with_an_agent_on(made, "m1")
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(10)
        assert (await workload.client.get(PODS, "agent", SYSTEM))["metadata"]["deletionTimestamp"], "it was asked to go"
        assert await is_cordoned(workload, "m1") and not await is_asked_for(workload, "m1")
        await workload.client.patch(PODS, "agent", {"metadata": {"finalizers": None}}, SYSTEM)
        with pytest.raises(ApiError, match="not found"):
            await workload.client.get(PODS, "agent", SYSTEM)
        await made.settle(3)
        assert await is_asked_for(workload, "m1")


async def test_a_server_without_the_agent_is_left_as_it_is() -> None:
    async with machines(controllers) as made:
        workload = await with_an_agent_on(made, "m2")
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(10)
        assert await is_asked_for(workload, "m1") and not await is_cordoned(workload, "m1")
        assert "deletionTimestamp" not in (await workload.client.get(PODS, "agent", SYSTEM))["metadata"]


async def test_an_agent_that_can_not_be_evicted_delays_nothing() -> None:
    async with machines(controllers) as made:
        workload = await with_an_agent_on(made, "m1")
        meta = {"name": "agent", "namespace": SYSTEM}
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": AGENT}}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        await workload.client.create(BUDGETS, budget, SYSTEM)
        status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        await workload.client.patch(BUDGETS, "agent", {"status": status}, SYSTEM, subresource="status")
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(15)
        assert "deletionTimestamp" not in (await workload.client.get(PODS, "agent", SYSTEM))["metadata"]
        assert await is_asked_for(workload, "m1")
