"""Waiting for volumes, on a real API of a workload cluster in memory; the test plays attacher and kubelet."""

from __future__ import annotations

from typing import Any

from remuda.kube.builtin_resources import PERSISTENT_VOLUMES, VOLUME_ATTACHMENTS

from .deleting import DAEMON_SETS, NODES, Ranch, ranch

Obj = dict[str, Any]

WAITING = {
    "status": "False",
    "severity": "Info",
    "reason": "WaitingForVolumeDetach",
    "message": "Waiting for node volumes to be detached",
}


async def volume(found: Ranch, name: str, claim: str = "") -> None:
    spec: Obj = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "disk.test.io", "volumeHandle": name},
    }
    if claim:
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    await found.make(
        PERSISTENT_VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    )


async def attach(found: Ranch, name: str, source: str) -> None:
    spec = {"attacher": "disk.test.io", "nodeName": "n1", "source": {"persistentVolumeName": source}}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec}
    await found.make(VOLUME_ATTACHMENTS, made)
    await found.workload.client.patch(VOLUME_ATTACHMENTS, name, {"status": {"attached": True}}, subresource="status")


async def detach(found: Ranch, name: str) -> None:
    await found.workload.client.patch(VOLUME_ATTACHMENTS, name, {"status": {"attached": False}}, subresource="status")


async def note_on_node(found: Ranch, *names: str) -> None:
    attached = [{"name": f"kubernetes.io/csi/disk.test.io^{name}", "devicePath": ""} for name in names]
    await found.workload.client.patch(NODES, "n1", {"status": {"volumesAttached": attached or None}}, subresource="status")


async def lines(found: Ranch) -> list[str]:
    reason, message = await found.deleting()
    assert reason == "WaitingForVolumeDetach"
    started = (await found.machine())["status"]["deletion"]["waitForNodeVolumeDetachStartTime"]
    first, *others = message.split("\n")
    assert first == f"Waiting for Node volumes to be detached (started at {started})"
    return others


async def test_a_volume_that_an_attachment_holds_is_waited_for() -> None:
    async with ranch() as found:
        await volume(found, "pv", "data")
        await attach(found, "va", "pv")
        await found.delete()
        assert await lines(found) == ["* PersistentVolumeClaims: default/data"]
        assert await found.legacy("VolumeDetachSucceeded") == WAITING
        assert await found.legacy("DrainingSucceeded") == {"status": "True"}
        assert not await found.infra_is_going()
        await detach(found, "va")
        await found.world.settle(3)
        assert await found.is_gone()
        assert "NodeVolumesDetached" in await found.reasons()


async def test_a_volume_that_the_node_names_is_waited_for() -> None:
    async with ranch() as found:
        await volume(found, "pv", "data")
        await note_on_node(found, "pv", "unknown")
        await found.delete()
        assert await lines(found) == [
            "* PersistentVolumeClaims: default/data",
            "* Node with .status.volumesAttached entries not matching a PersistentVolume: kubernetes.io/csi/disk.test.io^unknown",
        ]
        await note_on_node(found)
        await found.world.settle(3)
        assert await found.is_gone()


async def test_volumes_of_pods_that_stay_are_not_waited_for() -> None:
    async with ranch() as found:
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        meta = {"name": "agent", "namespace": "default"}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await found.make(DAEMON_SETS, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec})
        claimed = [{"name": "v", "persistentVolumeClaim": {"claimName": "log"}}]
        await found.pod("agent", owner=("DaemonSet", "agent"), volumes=claimed)
        await volume(found, "pv", "log")
        await attach(found, "va", "pv")
        await found.delete()
        assert await found.is_gone()


async def test_volumes_wait_until_the_pods_are_gone() -> None:
    async with ranch() as found:
        await found.pod("db", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        await volume(found, "pv", "data")
        await attach(found, "va", "pv")
        await found.delete()
        assert (await found.deleting())[0] == "DrainingNode"
        await found.stop("db")
        await found.world.settle(3)
        assert await lines(found) == ["* PersistentVolumeClaims: default/data"]


async def test_nothing_can_be_detached_from_an_unreachable_node() -> None:
    async with ranch() as found:
        await volume(found, "pv", "data")
        await attach(found, "va", "pv")
        await found.set_ready("Unknown")
        await found.delete()
        assert await found.is_gone()


async def test_waiting_for_volumes_can_be_excluded() -> None:
    async with ranch() as found:
        await attach(found, "va", "lost")
        await found.annotate({"machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": ""})
        await found.delete()
        assert await found.is_gone()


async def test_waiting_for_volumes_is_given_up_when_the_timeout_is_over() -> None:
    async with ranch(deletion={"nodeVolumeDetachTimeoutSeconds": 100}) as found:
        await attach(found, "va", "lost")
        await found.delete(99)
        assert await lines(found) == [
            "* VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume: lost",
            "This is given up at 2027-01-15T08:01:45Z (spec.deletion.nodeVolumeDetachTimeoutSeconds: 100)",
        ]
        await found.world.settle(2)
        assert await found.is_gone()


async def test_waiting_without_a_timeout_says_so() -> None:
    async with ranch() as found:
        await attach(found, "va", "lost")
        await found.delete(600)
        endless = (
            "There is no timeout: this goes on until spec.deletion.nodeVolumeDetachTimeoutSeconds or the annotation "
            "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach is set"
        )
        assert (await lines(found))[1] == endless
        told = [message for _, reason, message in await found.world.events() if reason == "VolumeDetachSlow"]
        assert len(told) == 1
        assert "lost" in told[0]


async def test_a_cluster_that_is_lost_after_the_drain_is_waited_for() -> None:
    async with ranch(deletion={"nodeDrainTimeoutSeconds": 1}) as found:
        await attach(found, "va", "lost")
        await found.delete(3)
        found.world.workloads.cut("c1")
        await found.world.settle(30)
        message = "Error waiting for volumes to be detached from Node, please check controller logs for errors"
        assert await found.deleting() == ("WaitingForVolumeDetach", message)
        why = "error getting client: connection to the workload cluster is down"
        told = f'error waiting for node volumes detaching, Machine\'s node "n1": {why}'
        assert ("Machine", "FailedWaitForVolumeDetach", told) in await found.world.events()
