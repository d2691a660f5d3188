"""Draining, on a real API of a workload cluster in memory; time is virtual, so that patience costs nothing."""

from __future__ import annotations

from typing import Any

from remuda.api.cluster_x_k8s_io import MACHINE_DRAIN_RULES, MACHINES
from tests.unit.capi.memory_clusters import core_object

from .deleting import BUDGETS, DAEMON_SETS, NAMESPACES, NODES, PODS, Ranch, namespace, ranch, running_pod

Obj = dict[str, Any]

STUCK = "deletionTimestamp set, but still not removed from the Node"
VIOLATED = "cannot evict pod as it would violate the pod's disruption budget."


async def lines(found: Ranch) -> list[str]:
    """What the Deleting condition says of the drain, without its first line."""
    reason, message = await found.deleting()
    assert reason == "DrainingNode"
    return message.split("\n")[1:]


async def rule(found: Ranch, name: str, behavior: str, order: int | None = None, **spec: Any) -> None:
    drain: Obj = {"behavior": behavior}
    if order is not None:
        drain["order"] = order
    await found.world.create(MACHINE_DRAIN_RULES, core_object("MachineDrainRule", name, {"drain": drain, **spec}))


async def budget(found: Ranch, name: str = "web", at_least: int = 1) -> None:
    spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "web"}}}
    meta = {"name": name, "namespace": "default"}
    await found.make(BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    await found.world.settle(1)


# --- evicting ----------------------------------------------------------------------------------------------------------------


async def test_pods_are_evicted_and_waited_for_and_then_the_machine_goes() -> None:
    async with ranch() as found:
        await found.pod("web")
        await found.delete()
        node = await found.node()
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        assert await found.pod_is_going("web")
        started = (await found.machine())["status"]["deletion"]["nodeDrainStartTime"]
        text = f"Drain not completed yet (started at {started}):\n* Pod default/web: {STUCK}"
        assert await found.deleting() == ("DrainingNode", text)
        wanted = {"status": "False", "severity": "Info", "reason": "Draining", "message": text}
        assert await found.legacy("DrainingSucceeded") == wanted
        assert not await found.infra_is_going()
        await found.stop("web")
        await found.world.settle(3)
        assert await found.is_gone()
        assert await found.node() is None
        assert {"SuccessfulDrainNode", "NodeVolumesDetached"} <= await found.reasons()


async def test_a_pod_that_ends_soon_costs_no_long_pause() -> None:
    async with ranch() as found:
        await found.pod("web")
        await found.delete()
        await found.world.settle(10)
        await found.stop("web")
        await found.world.settle(5)
        assert await found.is_gone()


async def test_a_node_without_pods_is_cordoned_and_done() -> None:
    async with ranch() as found:
        await found.hold_infra()
        await found.delete()
        node = await found.node()
        assert node is not None
        assert node["spec"]["unschedulable"] is True
        assert await found.legacy("DrainingSucceeded") == {"status": "True"}
        assert await found.infra_is_going()


async def test_a_node_that_is_gone_needs_no_drain() -> None:
    async with ranch() as found:
        await found.workload.client.delete(NODES, "n1")
        await found.delete()
        assert await found.is_gone()


async def test_pods_of_other_nodes_are_left_alone() -> None:
    async with ranch() as found:
        await found.pod("elsewhere", node="n2")
        await found.delete()
        assert await found.is_gone()
        assert not await found.pod_is_going("elsewhere")


async def test_more_pods_than_are_evicted_at_a_time_go_in_one_round() -> None:
    async with ranch() as found:
        names = [f"web-{number:02}" for number in range(40)]
        for name in names:
            await found.pod(name)
        await found.delete(0.5)
        assert [name for name in names if not await found.pod_is_going(name)] == []
        assert await lines(found) == [f"* Pods default/web-00, default/web-01, default/web-02, ... (37 more): {STUCK}"]


async def test_pods_that_draining_leaves_alone_do_not_hold_up_the_machine() -> None:
    async with ranch() as found:
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        meta = {"name": "agent", "namespace": "default"}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await found.make(DAEMON_SETS, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec})
        await found.pod("agent", owner=("DaemonSet", "agent"))
        await found.pod("static", annotations={"kubernetes.io/config.mirror": "x"})
        await found.pod("vm", labels={"cluster.x-k8s.io/drain": "skip"})
        await found.delete()
        assert await found.is_gone()
        for name in ("agent", "static", "vm"):
            assert not await found.pod_is_going(name)


async def test_a_pod_whose_daemon_set_is_gone_is_evicted() -> None:
    async with ranch() as found:
        await found.pod("orphan", owner=("DaemonSet", "gone"))
        await found.delete()
        assert await found.pod_is_going("orphan")


async def test_a_pod_in_a_namespace_that_is_going_is_waited_for() -> None:
    async with ranch() as found:
        await namespace(found.workload, "doomed")
        await found.pod("web", namespace="doomed")
        await found.workload.client.delete(NAMESPACES, "doomed")
        await found.delete()
        assert await lines(found) == [
            "* Pod doomed/web: failed to evict Pod, Cannot evict pod from terminating namespace: unable to create eviction "
            "(kube-controller-manager should set deletionTimestamp)"
        ]


# --- rules -------------------------------------------------------------------------------------------------------------------


async def test_orders_are_drained_one_after_another() -> None:
    async with ranch() as found:
        await rule(found, "db", "Drain", 10, pods=[{"selector": {"matchLabels": {"app": "db"}}}])
        await found.pod("db", labels={"app": "db"})
        await found.pod("web")
        await found.delete()
        assert await lines(found) == [
            f"* Pod default/web: {STUCK}",
            "After above Pods have been removed from the Node, the following Pods will be evicted: default/db",
        ]
        assert not await found.pod_is_going("db")
        await found.stop("web")
        await found.world.settle(3)
        assert await lines(found) == [f"* Pod default/db: {STUCK}"]
        await found.stop("db")
        await found.world.settle(5)
        assert await found.is_gone()


async def test_a_rule_can_skip_the_pods_of_some_namespaces_on_some_machines() -> None:
    async with ranch() as found:
        await namespace(found.workload, "vms", kind="vms")
        pods = [{"namespaceSelector": {"matchLabels": {"kind": "vms"}}}]
        machines = [{"selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c1"}}}]
        await rule(found, "vms", "Skip", pods=pods, machines=machines)
        await found.pod("vm", namespace="vms")
        await found.pod("web")
        await found.delete()
        assert await lines(found) == [f"* Pod default/web: {STUCK}"]
        await found.stop("web")
        await found.world.settle(3)
        assert await found.is_gone()
        assert not await found.pod_is_going("vm", "vms")


async def test_a_job_is_waited_for_until_it_completes_and_never_evicted() -> None:
    async with ranch() as found:
        await rule(found, "jobs", "WaitCompleted", pods=[{"selector": {"matchLabels": {"app": "job"}}}])
        await found.pod("job", labels={"app": "job"})
        await found.delete()
        assert await lines(found) == ["* Pod default/job: waiting for completion"]
        await found.world.settle(50)
        assert not await found.pod_is_going("job")
        await found.workload.client.patch(PODS, "job", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
        await found.world.settle(20)
        assert await found.is_gone()


async def test_a_rule_that_comes_later_counts_from_the_next_round() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete()
        assert VIOLATED in (await lines(found))[0]
        await rule(found, "spare", "Skip")
        await found.world.settle(3)
        assert await found.is_gone()


# --- budgets -----------------------------------------------------------------------------------------------------------------


async def test_a_disruption_budget_blocks_until_it_allows() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete()
        needs = "The disruption budget web needs 1 healthy pods and has 1 currently"
        assert await lines(found) == [f"* Pod default/web: {VIOLATED} {needs}"]
        assert not await found.pod_is_going("web")
        await running_pod(found.workload, "other", node="n2", labels={"app": "web"})
        await found.world.settle(3)
        assert await lines(found) == [f"* Pod default/web: {STUCK}"]
        await found.stop("web")
        await found.world.settle(3)
        assert await found.is_gone()


async def test_a_disruption_budget_holds_up_nobody_else() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await found.pod("job")
        await budget(found)
        await found.delete()
        assert await found.pod_is_going("job")
        assert [line.partition(":")[0] for line in await lines(found)] == ["* Pod default/job", "* Pod default/web"]


async def test_a_budget_that_allows_one_of_two_lets_them_go_one_by_one() -> None:
    async with ranch(budgets=True) as found:
        for name in ("web-a", "web-b"):
            await found.pod(name, labels={"app": "web"})
        await budget(found)
        await found.delete()
        assert [await found.pod_is_going(name) for name in ("web-a", "web-b")] == [True, False]
        await found.stop("web-a")
        await running_pod(found.workload, "web-c", node="n2", labels={"app": "web"})
        await found.world.settle(3)
        assert await found.pod_is_going("web-b")


# --- patience ----------------------------------------------------------------------------------------------------------------


async def test_a_drain_is_given_up_when_its_timeout_is_over() -> None:
    async with ranch(budgets=True, deletion={"nodeDrainTimeoutSeconds": 100}) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(99)
        assert not await found.infra_is_going()
        await found.world.settle(2)
        assert await found.is_gone()
        assert not await found.pod_is_going("web")


async def test_a_slow_drain_says_when_it_is_given_up() -> None:
    async with ranch(budgets=True, deletion={"nodeDrainTimeoutSeconds": 600}) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(30)
        assert len(await lines(found)) == 1
        await found.world.settle(60)
        assert (await found.machine())["status"]["deletion"]["nodeDrainStartTime"] == "2027-01-15T08:00:07Z"
        assert (await lines(found))[1] == "This is given up at 2027-01-15T08:10:07Z (spec.deletion.nodeDrainTimeoutSeconds: 600)"
        assert (await lines(found))[0].startswith(f"* Pod default/web: {VIOLATED}")


async def test_a_slow_drain_without_a_timeout_says_so_and_names_what_blocks_in_one_event() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(600)
        endless = (
            "There is no timeout: this goes on until spec.deletion.nodeDrainTimeoutSeconds or the annotation "
            "machine.cluster.x-k8s.io/exclude-node-draining is set"
        )
        assert (await lines(found))[1] == endless
        told = [message for _, reason, message in await found.world.events() if reason == "NodeDrainSlow"]
        assert len(told) == 1
        assert "default/web" in told[0]
        assert "The disruption budget web needs 1" in told[0]
        assert endless in told[0]
        # The older conditions stay as everybody knows them.
        assert endless not in (await found.legacy("DrainingSucceeded"))["message"]


async def test_setting_a_timeout_afterwards_ends_an_endless_drain() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(600)
        await found.world.patch(MACHINES, "m1", {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}})
        await found.world.settle(21)
        assert await found.is_gone()


async def test_excluding_a_machine_from_draining_ends_an_endless_drain() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(600)
        await found.annotate({"machine.cluster.x-k8s.io/exclude-node-draining": ""})
        await found.world.settle(21)
        assert await found.is_gone()


async def test_a_drain_that_waits_leaves_the_workload_cluster_and_the_machine_in_peace() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.delete(120)
        before = (await found.machine())["metadata"]["resourceVersion"]
        await found.world.settle(600)
        assert (await found.machine())["metadata"]["resourceVersion"] == before


# --- nodes and clusters that do not answer -----------------------------------------------------------------------------------


async def test_pods_of_an_unreachable_node_are_forgotten_when_their_short_grace_is_over() -> None:
    async with ranch() as found:
        await found.pod("web")
        await found.set_ready("Unknown")
        await found.delete(0.5)
        pod = await found.workload.client.get(PODS, "web", "default")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 1
        await found.world.settle(6)
        assert await found.is_gone()


async def test_budgets_count_on_unreachable_nodes_too() -> None:
    async with ranch(budgets=True) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        await found.set_ready("Unknown")
        await found.delete(30)
        assert VIOLATED in (await lines(found))[0]


async def test_a_cluster_that_can_not_be_reached_is_waited_for() -> None:
    async with ranch() as found:
        await found.pod("web")
        found.world.workloads.cut("c1")
        await found.delete(30)
        assert await found.deleting() == ("DrainingNode", "Error draining Node, please check controller logs for errors")
        failed = "failed to drain Node n1: error getting client: connection to the workload cluster is down"
        wanted = {"status": "False", "severity": "Warning", "reason": "DrainingFailed", "message": failed}
        assert await found.legacy("DrainingSucceeded") == wanted
        assert ("Machine", "FailedDrainNode", f'error draining Machine\'s node "n1": {failed}') in await found.world.events()
        await found.world.workloads.connect("c1")
        await found.world.settle(2)
        assert await lines(found) == [f"* Pod default/web: {STUCK}"]


async def test_the_timeout_of_a_drain_counts_while_the_cluster_can_not_be_reached() -> None:
    async with ranch(deletion={"nodeDrainTimeoutSeconds": 100, "nodeVolumeDetachTimeoutSeconds": 50}) as found:
        found.world.workloads.cut("c1")
        await found.hold_infra()
        await found.delete(99)
        assert not await found.infra_is_going()
        await found.world.settle(55)
        assert await found.infra_is_going()


async def test_a_rule_that_can_not_be_read_stops_the_drain_and_says_which() -> None:
    async with ranch() as found:
        wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}
        await rule(found, "broken", "Skip", pods=[{"selector": wrong}])
        await found.pod("web")
        await found.delete()
        assert await found.deleting() == ("DrainingNode", "Error draining Node, please check controller logs for errors")
        assert "invalid selectors in MachineDrainRule broken" in (await found.legacy("DrainingSucceeded"))["message"]
        assert not await found.pod_is_going("web")
        await found.world.delete(MACHINE_DRAIN_RULES, "broken")
        await found.world.settle(21)
        assert await found.pod_is_going("web")


async def test_evictions_that_get_no_answer_are_tried_again() -> None:
    async with ranch() as found:
        for number in range(20):
            await found.pod(f"web-{number:02}")
        hanging = found.hang(lambda verb, resource, subresource: subresource == "eviction")
        await found.delete(9)
        assert hanging.asked == 16  # no more at a time
        await found.world.settle(1.5)
        late = "failed to evict Pod, eviction timeout of 10s reached, eviction will be retried"
        assert await lines(found) == [f"* Pods default/web-00, default/web-01, default/web-02, ... (17 more): {late}"]


async def test_a_cluster_that_does_not_answer_keeps_nobody_from_knowing_and_the_timeout_from_counting() -> None:
    async with ranch(deletion={"nodeDrainTimeoutSeconds": 100, "nodeVolumeDetachTimeoutSeconds": 100}) as found:
        found.hang(lambda verb, resource, subresource: (verb, resource) in (("list", "pods"), ("list", "volumeattachments")))
        await found.delete(30)
        assert await found.deleting() == ("DrainingNode", "Error draining Node, please check controller logs for errors")
        assert (await found.legacy("DrainingSucceeded"))["message"] == "failed to drain Node n1: no answer in 25s"
        await found.world.settle(270)
        assert await found.is_gone()


async def test_a_server_that_refuses_is_quoted() -> None:
    async with ranch() as found:
        meta = {"name": "n1", "resourceVersion": "1"}
        patch = found.workload.client.patch

        async def stale(resource: Any, name: str, body: Obj, *given: Any, **options: Any) -> Any:
            if (body.get("spec") or {}).get("unschedulable"):
                body = {**body, "metadata": meta}
            return await patch(resource, name, body, *given, **options)

        found.workload.client.patch = stale  # type: ignore[method-assign]
        await found.delete()
        message = (await found.legacy("DrainingSucceeded"))["message"]
        assert message.startswith("failed to cordon Node n1: failed to cordon Node: Operation cannot be fulfilled on nodes")


# --- after a restart ---------------------------------------------------------------------------------------------------------


async def test_a_drain_that_another_process_began_keeps_its_time() -> None:
    async with ranch(budgets=True, deletion={"nodeDrainTimeoutSeconds": 100}) as found:
        await found.pod("web", labels={"app": "web"})
        await budget(found)
        status = {"deletion": {"nodeDrainStartTime": "2027-01-15T07:59:00Z"}}
        await found.world.patch(MACHINES, "m1", {"status": status}, "status")
        await found.delete(10)
        assert (await found.machine())["status"]["deletion"]["nodeDrainStartTime"] == "2027-01-15T07:59:00Z"
        await found.world.settle(30)
        assert await found.is_gone()
