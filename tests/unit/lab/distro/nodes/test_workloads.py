"""Workloads on simulated nodes: they are spread, rolled, drained within their budgets, and leave nodes that died."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from remuda.kube.builtin_resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
)
from remuda.kube.conditions import get, is_true
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, is_being_deleted, labels_of, name_of, uid_of

from .simulated_cluster import NAMESPACE, Village, budget, deployment, image, job, on, service, template, village, workload

Obj = dict[str, Any]


async def test_a_deployment_is_spread() -> None:
    async with village("a", "b", "c") as place:
        await place.deploy("web", 6)
        assert Counter(on(await place.pods("web"))) == {"a": 2, "b": 2, "c": 2}
        found = await place.get(DEPLOYMENTS, "web")
        assert dig(found, "status", "readyReplicas") == dig(found, "status", "updatedReplicas") == 6
        assert get(found, "Progressing")["reason"] == "NewReplicaSetAvailable"  # type: ignore[index]
        pod = (await place.pods("web"))[0]
        assert dig(pod, "status", "podIP") and dig(pod, "status", "hostIP") == "127.0.0.1"
        assert dig(pod, "status", "containerStatuses", 0, "imageID")
        assert "in name only" in dig(pod, "status", "message")


async def test_many_nodes_share_one_process_and_one_watch() -> None:
    async with village() as place:
        await place.add_many(150)
        await place.make(DAEMON_SETS, workload("DaemonSet", "guard"))
        await place.until("a guard is on each", lambda: place.running("guard", 150))
        await place.deploy("web", 150)
        # Of the first hundred that would do the best is taken: nobody gets more than one or two.
        assert max(Counter(on(await place.pods("web"))).values()) <= 2


async def test_a_deployment_is_scaled_both_ways() -> None:
    async with village("a", "b") as place:
        await place.deploy("web", 1)
        await place.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
        await place.until("four", lambda: place.running("web", 4))
        await place.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
        left = await place.until("two", lambda: place.running("web", 2))
        assert on(left) == ["a", "b"]


async def test_a_new_template_is_rolled_out_within_its_bounds() -> None:
    async with village("a", "b") as place:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await place.deploy("web", 4, strategy=strategy)
        witness = await place.witness("web")
        await place.patch(DEPLOYMENTS, "web", image("web", "example.org/web:2"))
        await place.until("all are new", lambda: place.current("web", 4, "example.org/web:2"))
        assert (witness.least_ready, witness.most) == (4, 5)
        sets = (await place.client.list(REPLICA_SETS, NAMESPACE))["items"]
        assert sorted(dig(each, "spec", "replicas") for each in sets) == [0, 4]
        found = await place.get(DEPLOYMENTS, "web")
        assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_recreate_leaves_no_time_with_both() -> None:
    async with village("a") as place:
        await place.deploy("web", 2, strategy={"type": "Recreate"})
        witness = await place.witness("web")
        await place.patch(DEPLOYMENTS, "web", image("web", "example.org/web:2"))
        await place.until("all are new", lambda: place.current("web", 2, "example.org/web:2"))
        assert frozenset(("example.org/web:1", "example.org/web:2")) not in witness.images
        assert frozenset() in witness.images


async def test_a_drain_honours_the_budget() -> None:
    async with village("a") as place:
        await place.deploy("web", 4)
        await place.add_node("b")
        await place.make(POD_DISRUPTION_BUDGETS, budget("web", maxUnavailable=1))

        async def allowed() -> bool:
            return bool(dig(await place.get(POD_DISRUPTION_BUDGETS, "web"), "status", "disruptionsAllowed") == 1)

        await place.until("the budget is counted", allowed)
        witness = await place.witness("web")
        refusals = await place.drain("a")
        assert set(refusals) == {"DisruptionBudget"}
        assert witness.least_ready == 3
        assert on(await place.until("all run", lambda: place.running("web", 4))) == ["b"] * 4


async def test_a_drain_that_no_budget_allows_gets_nowhere() -> None:
    async with village("a", "b") as place:
        await place.deploy("web", 2)
        await place.make(POD_DISRUPTION_BUDGETS, budget("web", minAvailable=2))
        await place.settle(5)
        pod = (await place.pods("web"))[0]
        with pytest.raises(ApiError) as refused:
            await place.evict(pod)
        assert refused.value.code == 429
        assert refused.value.details is not None
        assert refused.value.details["causes"] == [
            {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}
        ]
        assert len(await place.running("web", 2)) == 2


async def test_a_dead_node_loses_its_pods_to_others() -> None:
    async with village("a", "b") as place:
        await place.deploy("web", 2)
        assert on(await place.pods("web")) == ["a", "b"]
        await place.kill("a")

        async def unknown() -> bool:
            return bool(dig(get(await place.node("a"), "Ready"), "status") == "Unknown")

        await place.until("a is unknown", unknown, 70)
        await place.settle(1)
        taints = {(each["key"], each["effect"]) for each in dig(await place.node("a"), "spec", "taints")}
        lost = "node.kubernetes.io/unreachable"
        assert taints == {(lost, "NoSchedule"), (lost, "NoExecute")}
        old = next(pod for pod in await place.pods("web") if dig(pod, "spec", "nodeName") == "a")
        assert not is_true(old, "Ready")
        assert not is_being_deleted(old)

        async def moved() -> bool:
            living = [pod for pod in await place.pods("web") if not is_being_deleted(pod)]
            return on(living) == ["b", "b"] and all(is_true(pod, "Ready") for pod in living)

        # Five minutes are tolerated.
        await place.until("the pod is on b", moved, 320)
        assert is_being_deleted(await place.get(PODS, name_of(old)))
        await place.client.delete(NODES, "a")
        await place.until("the old one is collected", lambda: _gone(place, old), 60)


async def test_a_dead_node_is_noticed_as_soon_as_it_is_told() -> None:
    async with village() as place:
        await place.kill_controllers()
        place.control(node_grace=8.0)
        await place.add_node("a", report_seconds=2.0)
        before = get(await place.node("a"), "Ready")
        await place.settle(30)
        # It has lived longer than a silent one would have, and says so itself.
        after = get(await place.node("a"), "Ready")
        assert before and after and after["status"] == "True"
        assert before["lastHeartbeatTime"] < after["lastHeartbeatTime"]
        await place.kill("a")

        async def unknown() -> bool:
            return bool(dig(get(await place.node("a"), "Ready"), "status") == "Unknown")

        await place.until("a is unknown", unknown, 9)


async def _gone(place: Village, pod: Obj) -> bool:
    found = await place.find(PODS, name_of(pod))
    return found is None or uid_of(found) != uid_of(pod)


async def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    async with village("a", "b") as place:
        await place.deploy("web", 2)
        before = {uid_of(pod) for pod in await place.pods("web")}
        await place.kill("a")
        await place.settle(120)
        await place.add_node("a")
        after = await place.until("all are ready", lambda: place.running("web", 2))
        assert {uid_of(pod) for pod in after} == before


async def test_no_pod_is_evicted_when_all_nodes_are_silent() -> None:
    async with village("a", "b") as place:
        await place.deploy("web", 2)
        for name in ("a", "b"):
            await place.kill(name)
        await place.settle(400)
        taints = [each["effect"] for name in ("a", "b") for each in dig(await place.node(name), "spec", "taints")]
        # The first of them was seen to be silent while the other was not.
        assert taints.count("NoExecute") <= 1


async def test_a_daemon_is_on_every_node_that_it_tolerates() -> None:
    async with village("a", "b") as place:
        taint = {"key": "special", "value": "yes", "effect": "NoSchedule"}
        await place.client.patch(NODES, "b", {"spec": {"taints": [taint]}})
        await place.make(DAEMON_SETS, workload("DaemonSet", "watcher"))
        pods = await place.until("one runs", lambda: place.running("watcher", 1))
        assert on(pods) == ["a"]
        tolerant = {"tolerations": [{"key": "special", "operator": "Exists"}]}
        await place.make(DAEMON_SETS, workload("DaemonSet", "guard", pod=tolerant))
        assert on(await place.until("two run", lambda: place.running("guard", 2))) == ["a", "b"]
        await place.cordon("a")
        await place.settle(5)
        await place.add_node("c")
        assert on(await place.until("three run", lambda: place.running("guard", 3))) == ["a", "b", "c"]
        assert dig(await place.get(DAEMON_SETS, "guard"), "status", "numberReady") == 3


async def test_a_daemon_is_updated_one_at_a_time() -> None:
    async with village("a", "b", "c") as place:
        await place.make(DAEMON_SETS, workload("DaemonSet", "guard"))
        await place.until("three run", lambda: place.running("guard", 3))
        witness = await place.witness("guard")
        await place.patch(DAEMON_SETS, "guard", image("guard", "example.org/guard:2"))
        await place.until("all are new", lambda: place.current("guard", 3, "example.org/guard:2"))
        assert witness.least_ready == 2


async def test_a_job_completes() -> None:
    async with village("a") as place:
        await place.make(JOBS, job("sums", completions=5, parallelism=2))

        async def complete() -> bool:
            return is_true(await place.get(JOBS, "sums"), "Complete")

        await place.until("the job is complete", complete)
        found = await place.get(JOBS, "sums")
        assert dig(found, "status", "succeeded") == 5
        pods = await place.pods("sums")
        assert [dig(pod, "status", "phase") for pod in pods] == ["Succeeded"] * 5
        assert not any(pod["metadata"].get("finalizers") for pod in pods)


async def test_a_job_that_fails_is_tried_again_and_given_up() -> None:
    async with village("a") as place:
        await place.make(JOBS, job("sums", annotations={"remuda.dev/simulated-exit-code": "3"}, backoffLimit=2))

        async def failed() -> bool:
            return is_true(await place.get(JOBS, "sums"), "Failed")

        await place.until("the job has failed", failed, 200)
        found = await place.get(JOBS, "sums")
        assert dig(found, "status", "failed") == 3
        assert get(found, "Failed")["reason"] == "BackoffLimitExceeded"  # type: ignore[index]


async def test_a_job_outlives_a_drain() -> None:
    async with village("a", "b") as place:
        await place.make(JOBS, job("sums", annotations={"remuda.dev/simulated-seconds": "60"}))
        (pod,) = await place.until("it runs", lambda: place.running("sums", 1))
        node = dig(pod, "spec", "nodeName")
        await place.settle(20)
        await place.drain(node)

        async def complete() -> bool:
            return is_true(await place.get(JOBS, "sums"), "Complete")

        await place.until("the job is complete", complete, 200)
        done = [each for each in await place.pods("sums") if dig(each, "status", "phase") == "Succeeded"]
        assert [dig(each, "spec", "nodeName") for each in done] == [{"a": "b", "b": "a"}[node]]


async def test_a_stateful_set_goes_up_in_order_and_down_in_reverse() -> None:
    async with village("a", "b") as place:
        witness = await place.witness("db")
        await place.make(STATEFUL_SETS, workload("StatefulSet", "db", serviceName="db", replicas=3))
        await place.until("three run", lambda: place.running("db", 3))
        assert witness.came == ["db-0", "db-1", "db-2"]
        await place.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
        (left,) = await place.until("one is left", lambda: place.running("db", 1))
        assert name_of(left) == "db-0"
        assert labels_of(left)["statefulset.kubernetes.io/pod-name"] == "db-0"


async def test_orphans_that_match_are_taken_in() -> None:
    async with village("a") as place:
        lone = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone", "namespace": NAMESPACE}, **template("web")}
        lone["metadata"] = {"name": "lone", "namespace": NAMESPACE, "labels": {"app": "web"}}
        await place.make(PODS, lone)
        one = workload("ReplicaSet", "web", replicas=2)
        await place.make(REPLICA_SETS, one)
        pods = await place.until("two run", lambda: place.running("web", 2))
        assert "lone" in {name_of(pod) for pod in pods}


async def test_a_service_knows_its_pods() -> None:
    async with village("a") as place:
        await place.make(SERVICES, service("web"))
        await place.deploy("web", 2)

        async def known() -> bool:
            found = (await place.client.list(ENDPOINT_SLICES, NAMESPACE, labels="kubernetes.io/service-name=web"))["items"]
            ready = [each for one in found for each in one["endpoints"] if each["conditions"]["ready"]]
            return len(ready) == 2

        await place.until("both are known", known)


async def test_pods_with_the_address_of_a_host_of_this_machine_are_behind_no_service() -> None:
    """The API takes no endpoint of the loopback range; all others are known nevertheless."""
    async with village("a") as place:
        await place.make(SERVICES, service("web"))
        here = {"apiVersion": "v1", "kind": "Pod", **template("web", hostNetwork=True)}
        here["metadata"] = {**here["metadata"], "name": "here", "namespace": NAMESPACE}
        await place.make(PODS, here)

        async def runs() -> bool:
            return is_true(await place.get(PODS, "here"), "Ready")

        await place.until("the first runs", runs)
        assert dig(await place.get(PODS, "here"), "status", "podIP") == "127.0.0.1"
        for name in ("b", "c"):
            other = {"apiVersion": "v1", "kind": "Pod", **template("web")}
            other["metadata"] = {**other["metadata"], "name": name, "namespace": NAMESPACE}
            await place.make(PODS, other)

        async def known() -> bool:
            found = (await place.client.list(ENDPOINT_SLICES, NAMESPACE, labels="kubernetes.io/service-name=web"))["items"]
            return [each["targetRef"]["name"] for one in found for each in one["endpoints"] or ()] == ["b", "c"]

        await place.until("the others are known", known)


async def test_what_fits_nowhere_waits_and_says_why() -> None:
    async with village("a") as place:
        large = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "3"}}}]}
        await place.make(DEPLOYMENTS, deployment("web", 2, pod=large))

        async def refused() -> bool:
            conditions = [get(pod, "PodScheduled") or {} for pod in await place.pods("web")]
            return any(each.get("message") == "0/1 nodes are available: 1 Insufficient cpu." for each in conditions)

        await place.until("one is refused", refused)
        await place.add_node("b")
        assert on(await place.until("both run", lambda: place.running("web", 2))) == ["a", "b"]
