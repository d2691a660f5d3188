"""A node that registers, says what it is, and goes on saying that it is there."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kcm.workloads.pods import NODE_LEASES
from remuda.kube.builtin_resources import LEASES, NODES
from remuda.kube.conditions import get, is_true
from remuda.kube.objects import annotations_of, dig, labels_of, uid_of
from remuda.lab.distro.nodes import NodeConfigError, Taint, parse_label, role_labels

from .simulated_cluster import village

Obj = dict[str, Any]


async def test_a_node_says_what_it_is() -> None:
    async with village() as place:
        await place.add_node(
            "a",
            labels={**role_labels(control_plane=True, etcd=True), "rack": "7"},
            annotations={"example.org/x": "y"},
            taints=(Taint.parse("node-role.kubernetes.io/etcd:NoExecute"), Taint.parse("a=b:PreferNoSchedule")),
            internal_ip="127.1.2.3",
            external_ip="192.0.2.1",
            hostname="host-a",
            capacity={"cpu": "2", "memory": "4Gi", "pods": "10"},
        )
        node = await place.node("a")
        assert (
            labels_of(node).items()
            >= {
                "remuda.dev/simulated": "true",
                "node-role.kubernetes.io/control-plane": "true",
                "node-role.kubernetes.io/etcd": "true",
                "kubernetes.io/hostname": "host-a",
                "kubernetes.io/os": "linux",
                "rack": "7",
            }.items()
        )
        assert annotations_of(node)["example.org/x"] == "y"
        assert dig(node, "spec", "taints") == [
            {"key": "node-role.kubernetes.io/etcd", "effect": "NoExecute"},
            {"key": "a", "value": "b", "effect": "PreferNoSchedule"},
        ]
        assert dig(node, "spec", "providerID") == "remuda://a"
        assert dig(node, "status", "nodeInfo", "kubeletVersion") == "v1.36.3+remuda1"
        assert dig(node, "status", "addresses") == [
            {"type": "InternalIP", "address": "127.1.2.3"},
            {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "Hostname", "address": "host-a"},
        ]
        assert (
            dig(node, "status", "allocatable") == dig(node, "status", "capacity") == {"cpu": "2", "memory": "4Gi", "pods": "10"}
        )
        assert {each["type"]: each["status"] for each in dig(node, "status", "conditions")} == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }


async def test_labels_are_brought_up_to_date_at_a_start_and_taints_are_not() -> None:
    async with village() as place:
        await place.add_node("a", labels={"rack": "7"}, taints=(Taint("k", "v", "NoSchedule"),))
        await place.kill("a")
        await place.client.patch(NODES, "a", {"metadata": {"labels": {"mine": "yes"}}})
        await place.add_node("a", labels={"rack": "8"}, taints=(Taint("other", "v", "NoSchedule"),))
        await place.settle(1)
        node = await place.node("a")
        assert (labels_of(node)["rack"], labels_of(node)["mine"]) == ("8", "yes")
        assert [each["key"] for each in dig(node, "spec", "taints")] == ["k"]


async def test_a_new_version_is_said_after_a_restart() -> None:
    async with village() as place:
        await place.add_node("a")
        await place.kill("a")
        await place.client.patch(NODES, "a", {"status": {"nodeInfo": {"kubeletVersion": "v1.0.0"}}}, subresource="status")
        await place.add_node("a")
        await place.settle(1)
        assert dig(await place.node("a"), "status", "nodeInfo", "kubeletVersion") == "v1.36.3+remuda1"


async def test_the_lease_is_renewed_every_ten_seconds_and_the_status_seldom() -> None:
    async with village("a") as place:
        node = await place.node("a")
        lease = await place.get(LEASES, "a", NODE_LEASES)
        assert dig(lease, "spec", "holderIdentity") == "a"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == uid_of(node)
        renewals = {dig(lease, "spec", "renewTime")}
        for _ in range(10):
            await place.settle(6)
            renewals.add(dig(await place.get(LEASES, "a", NODE_LEASES), "spec", "renewTime"))
        assert 6 <= len(renewals) <= 8
        assert (await place.node("a"))["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
        await place.settle(300)
        later = await place.node("a")
        assert dig(get(later, "Ready"), "lastHeartbeatTime") > dig(get(node, "Ready"), "lastHeartbeatTime")
        assert dig(get(later, "Ready"), "lastTransitionTime") == dig(get(node, "Ready"), "lastTransitionTime")


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    async with village("a") as place:
        await place.client.delete(LEASES, "a", NODE_LEASES)
        await place.settle(25)
        assert dig(await place.get(LEASES, "a", NODE_LEASES), "spec", "holderIdentity") == "a"


async def test_a_deleted_node_stays_away_until_it_is_started_again() -> None:
    async with village("a") as place:
        await place.client.delete(NODES, "a")
        await place.settle(120)
        assert await place.find(NODES, "a", "") is None
        await place.kill("a")
        await place.add_node("a")
        assert is_true(await place.node("a"), "Ready")


async def test_a_cordon_is_respected_and_stays() -> None:
    async with village("a") as place:
        await place.cordon("a")
        await place.settle(700)
        node = await place.node("a")
        assert dig(node, "spec", "unschedulable") is True
        assert [(each["key"], each["effect"]) for each in dig(node, "spec", "taints")] == [
            ("node.kubernetes.io/unschedulable", "NoSchedule")
        ]
        await place.client.patch(NODES, "a", {"spec": {"unschedulable": None}})
        await place.settle(1)
        assert not dig(await place.node("a"), "spec", "taints")


@pytest.mark.parametrize("text", ["", "key", "key=value", "=v:NoSchedule", "key:Sometimes"])
def test_what_is_no_taint_is_refused(text: str) -> None:
    with pytest.raises(NodeConfigError):
        Taint.parse(text)


def test_labels_and_taints_are_read_as_a_config_file_has_them() -> None:
    assert parse_label("a.b/c=d=e") == ("a.b/c", "d=e")
    assert parse_label("a") == ("a", "")
    assert Taint.parse("a/b=c:NoExecute") == Taint("a/b", "c", "NoExecute")
    with pytest.raises(NodeConfigError):
        parse_label("=x")
