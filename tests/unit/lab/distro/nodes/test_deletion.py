"""What is deleted in a cluster with nodes goes: claims after their pods, pods of Jobs however the Job went, whole namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kcm.volume_protection import CLAIM_FINALIZER
from remuda.kube.builtin_resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
)
from remuda.kube.objects import GroupVersionResource, finalizers_of, is_being_deleted

from .simulated_cluster import Village, deployment, job, service, template, village, workload

Obj = dict[str, Any]
LONG = {"remuda.dev/simulated-seconds": "6000"}
VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


def claim(name: str = "data") -> Obj:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def moved(obj: Obj, namespace: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


async def gone(place: Village, resource: GroupVersionResource, name: str, namespace: str = "default") -> None:
    async def is_gone() -> bool:
        return await place.find(resource, name, namespace) is None

    await place.until(f"{name} is gone", is_gone, 300)


async def test_a_claim_goes_after_the_pods_that_use_it() -> None:
    async with village("a") as place:
        await place.make(PERSISTENT_VOLUME_CLAIMS, claim())
        await place.make(DEPLOYMENTS, deployment("web", 2, pod={"volumes": VOLUMES}))
        await place.until("both run", lambda: place.running("web", 2))
        await place.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        await place.settle(60)
        held = await place.get(PERSISTENT_VOLUME_CLAIMS, "data")
        assert is_being_deleted(held) and finalizers_of(held) == [CLAIM_FINALIZER]
        await place.client.delete(DEPLOYMENTS, "web", "default")
        await gone(place, PERSISTENT_VOLUME_CLAIMS, "data")
        assert await place.pods("web") == []


async def test_a_claim_is_protected_through_a_change_of_controllers() -> None:
    async with village("a") as place:
        await place.make(PERSISTENT_VOLUME_CLAIMS, claim())
        await place.deploy("web", 1, pod={"volumes": VOLUMES})
        await place.kill_controllers()
        await place.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        place.control()
        await place.settle(60)
        assert is_being_deleted(await place.get(PERSISTENT_VOLUME_CLAIMS, "data"))
        await place.kill_controllers()
        (pod,) = await place.pods("web")
        await place.client.delete(PODS, pod["metadata"]["name"], "default", grace_seconds=0)
        place.control()
        # The Deployment makes another pod, which can't have the claim any more: it has no node yet, or the claim is gone.
        await place.client.delete(DEPLOYMENTS, "web", "default")
        await gone(place, PERSISTENT_VOLUME_CLAIMS, "data")


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_pods_of_a_deleted_job_are_held_by_no_finalizer(propagation: str) -> None:
    async with village("a") as place:
        await place.make(JOBS, job("sums", annotations=LONG, parallelism=3, completions=3))
        await place.until("three run", lambda: place.running("sums", 3))
        await place.client.delete(JOBS, "sums", "default", propagation=propagation)
        await gone(place, JOBS, "sums")

        async def let_go() -> bool:
            found = await place.pods("sums")
            return not any(finalizers_of(pod) for pod in found) and (propagation == "Orphan" or not found)

        await place.until("nothing holds its pods", let_go)
        assert len(await place.pods("sums")) == (3 if propagation == "Orphan" else 0)


@pytest.mark.parametrize("node_dies", [False, True])
async def test_a_namespace_full_of_workloads_is_deleted(node_dies: bool) -> None:
    async with village("a") as place:
        await place.make(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        await place.settle(5)
        template_of = {"spec": {"template": template("late", restartPolicy="Never")}}
        made: list[tuple[GroupVersionResource, Obj]] = [
            (PERSISTENT_VOLUME_CLAIMS, claim()),
            (DEPLOYMENTS, deployment("web", 2, pod={"volumes": VOLUMES})),
            (STATEFUL_SETS, workload("StatefulSet", "db", replicas=2, serviceName="db")),
            (DAEMON_SETS, workload("DaemonSet", "guard")),
            (JOBS, job("sums", annotations=LONG)),
            (SERVICES, service("web")),
            (PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": template("bare")["spec"]}),
            (
                GroupVersionResource("batch", "v1", "cronjobs"),
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "metadata": {"name": "late"},
                    "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template_of},
                },
            ),
        ]
        for resource, obj in made:
            await place.make(resource, moved(obj, "shop"))

        async def all_run() -> bool:
            pods = (await place.client.list(PODS, "shop"))["items"]
            return len(pods) == 7 and all(pod["status"].get("phase") == "Running" for pod in pods)

        await place.until("all run", all_run)
        if node_dies:
            await place.kill("a")
            await place.client.delete(NODES, "a")
        await place.client.delete(NAMESPACES, "shop")
        await gone(place, NAMESPACES, "shop", "")
        for resource in (PODS, PERSISTENT_VOLUME_CLAIMS, JOBS):
            assert (await place.client.list(resource, "shop"))["items"] == []
