"""Finding the node that a machine's host became."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import NODES
from remuda.kube.objects import Key
from remuda.provisioning.nodes.machinenodelookup import MachineNodeLookup, choose
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machines

Obj = dict[str, Any]


def node(name: str, *, identity: str | None = None, ready: str = "True", machine: str = "u1") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"rke.cattle.io/machine": machine}},
        "spec": {"providerID": f"rke2://{name}" if identity is None else identity},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def machine(identity: str = "", called: str = "") -> Obj:
    labels = {"rke.cattle.io/node-name": called} if called else {}
    return {"metadata": {"name": "m1", "uid": "u1", "labels": labels}, "spec": {"providerID": identity}}


def test_the_node_that_names_the_machine_is_its_node() -> None:
    assert choose(machine(), [node("a")], []).node == node("a")
    assert choose(machine(called="a"), [node("b"), node("a")], []).node == node("a")


def test_a_node_that_may_not_be_the_machines_is_not_taken() -> None:
    assert "no node says" in choose(machine(), [], []).why
    assert "called b" in choose(machine(called="b"), [node("a")], []).why
    assert "several nodes" in choose(machine(), [node("a"), node("b")], []).why
    assert "another machine's" in choose(machine(), [node("a")], [machine("rke2://a")]).why
    assert "no providerID" in choose(machine(), [node("a", identity="")], [machine("")]).why
    assert "not ready" in choose(machine(), [node("a", ready="Unknown")], []).why


def custom_machine(name: str) -> Obj:
    meta = {"name": name, "namespace": FLEET}
    return {"apiVersion": rke.API_VERSION, "kind": "CustomMachine", "metadata": meta, "spec": {}}


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield MachineNodeLookup(parts.manager, made.workloads)


async def test_addresses_and_identity_come_from_the_node() -> None:
    async with machines(controllers) as made:
        await made.demo()
        found = await made.machine("m1")
        meta = {"name": "m1", "namespace": FLEET}
        await made.create(
            rke.CUSTOM_MACHINES, {"apiVersion": rke.API_VERSION, "kind": "CustomMachine", "metadata": meta, "spec": {}}
        )
        workload = await made.workloads.connect(DEMO, FLEET)
        there = await workload.client.create(NODES, node("a", machine=found["metadata"]["uid"]))
        await workload.client.patch(NODES, "a", {"status": there["status"]}, subresource="status")
        await made.settle(20)
        assert not (await made.get(rke.CUSTOM_MACHINES, "m1", FLEET))["spec"].get("providerID"), "nothing is ready yet"
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await made.patch(rke.CUSTOM_MACHINES, "m1", ready, FLEET, "status")
        created = {"status": {"initialization": {"dataSecretCreated": True}, "dataSecretName": "x"}}
        await made.patch(rke.RKE_BOOTSTRAPS, "m1", created, FLEET, "status")
        await made.settle(1)
        custom = await made.get(rke.CUSTOM_MACHINES, "m1", FLEET)
        assert custom["spec"]["providerID"] == "rke2://a"
        assert custom["status"]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}]
        assert made.workloads.get(Key(FLEET, DEMO)) is workload


async def test_a_cluster_that_can_be_reached_later_is_asked_then() -> None:
    async with machines(controllers) as made:
        await made.demo()
        found = await made.machine("m1")
        meta = {"name": "m1", "namespace": FLEET}
        await made.create(
            rke.CUSTOM_MACHINES, {"apiVersion": rke.API_VERSION, "kind": "CustomMachine", "metadata": meta, "spec": {}}
        )
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await made.patch(rke.CUSTOM_MACHINES, "m1", ready, FLEET, "status")
        created = {"status": {"initialization": {"dataSecretCreated": True}, "dataSecretName": "x"}}
        await made.patch(rke.RKE_BOOTSTRAPS, "m1", created, FLEET, "status")
        await made.settle(60)
        workload = await made.workloads.connect(DEMO, FLEET)
        there = await workload.client.create(NODES, node("a", machine=found["metadata"]["uid"]))
        await workload.client.patch(NODES, "a", {"status": there["status"]}, subresource="status")
        await made.settle(16)
        assert (await made.get(rke.CUSTOM_MACHINES, "m1", FLEET))["spec"]["providerID"] == "rke2://a"
