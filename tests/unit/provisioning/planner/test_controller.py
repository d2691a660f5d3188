"""The planner at work in a world of its own: what it waits for before it plans, and what wakes it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import crds
from remuda.api import plan_cattle_io as plans
from remuda.api import rke_cattle_io as rke
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.kube.builtin_resources import CRDS, NAMESPACES, SECRETS
from remuda.kube.conditions import TRUE, with_condition
from remuda.kube.objects import annotations_of, labels_of
from remuda.kube.waits import Code, Wait
from remuda.lab.sim.bucket import SimulatedBuckets
from remuda.provisioning.planner.controller import CONTROLLER, Planner
from remuda.provisioning.planner.join_tokens import state_name
from remuda.provisioning.planner.render import AgentManifest, BuiltInRegistry
from remuda.provisioning.plans.machine_plan_secret import decode, packed
from remuda.provisioning.plans.plan import Plan, checksum
from remuda.provisioning.releases.distributions import REMUDA, Runtime
from remuda.provisioning.releases.release_data import SETTING, ReleaseData, fetcher
from remuda.provisioning.well_known import AGENT_UPDATE, JOIN_URL, PLAN_FAILURE
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machine_controllers, machines

from .render.inputs import file_at

Obj = dict[str, Any]
ALL = {f"rke.cattle.io/{role}-role": "true" for role in ("etcd", "control-plane", "worker")}
VERSION = "v1.34.1+remuda1"


class Doors:
    """What the gateway gives."""

    def __init__(self) -> None:
        self.text = "kind: Agent\n"
        self.known = True
        self.alone = False
        self.archive: bytes | None = None
        self._handlers: list[Callable[[str], None]] = []

    async def agent_manifest(self, cluster: str) -> AgentManifest | None:
        text = self.text
        return (lambda taints: text) if self.known else None

    def registry(self, cluster: str, runtime: Runtime) -> BuiltInRegistry | None:
        return BuiltInRegistry("remuda.test:8443", "CA") if runtime == REMUDA else None

    def agent(self) -> bytes | None:
        return self.archive

    def said_at(self, namespace: str, cluster: str) -> Mapping[str, float]:
        return {}

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def tell(self, cluster: str) -> None:
        for handler in self._handlers:
            handler(cluster)


class Planning:
    def __init__(self, made: Machines, doors: Doors) -> None:
        self.made = made
        self.doors = doors

    def waits(self) -> list[Wait]:
        working = self.made.lives[-1].manager.working(CONTROLLER)
        assert working is not None
        return [wait for result in working.waits.values() for wait in result.waits]

    def codes(self) -> list[Code]:
        return [wait.code for wait in self.waits()]

    async def beacon(self) -> Obj:
        meta = {"name": DEMO, "namespace": FLEET}
        return await self.made.create(plans.BEACONS, {"apiVersion": plans.API_VERSION, "kind": "Beacon", "metadata": meta})

    async def machine(self, name: str, labels: Obj) -> None:
        """A machine whose infrastructure is there, as Cluster API says of a host that registered."""
        machine = await self.made.machine(name, labels=labels)
        told = with_condition(machine, "InfrastructureReady", TRUE, "Ready", now=self.made.clock.time())
        await self.made.patch(capi.MACHINES, name, {"status": told["status"]}, FLEET, "status")

    async def plan(self, name: str) -> Plan:
        delivered = decode(await self.made.plan(name))
        assert delivered is not None
        return delivered.plan()

    async def ready(self) -> Obj:
        found = condition_of(await self.made.get(rke.RKE_CONTROL_PLANES, DEMO, FLEET), "Ready")
        assert found is not None
        return found


@asynccontextmanager
async def planning() -> AsyncIterator[Planning]:
    doors = Doors()

    def make(parts: Parts, made: Machines) -> Iterable[Reconciler]:
        access, buckets = ReviewedAccess(parts.manager.client, parts.manager.clock), SimulatedBuckets(parts.manager.clock)
        yield Planner(parts.manager, doors, access, parts.entropy, buckets.opened)
        yield ReleaseData(parts.manager, fetcher(parts.manager.clock, {}))
        if doors.alone:
            return
        yield from machine_controllers(parts, made, lambda bootstrap, token: b"#!/bin/sh\n")

    async with machines(make, begin=False) as made:
        for crd in crds([plans.GROUP]):
            await made.create(CRDS, crd)
        await made.settle()
        made.begin()
        await made.settle()
        yield Planning(made, doors)


async def test_nothing_is_planned_without_a_beacon_or_while_somebody_else_holds_it() -> None:
    async with planning() as found:
        await found.made.demo(version=VERSION)
        await found.machine("m1", ALL)
        await found.made.settle(10)
        assert found.codes() == [Code.REFERENCE]
        await found.beacon()
        held = {"status": {"active": True, "owner": "somebody"}}
        await found.made.patch(plans.BEACONS, DEMO, held, FLEET, "status")
        await found.made.settle(10)
        assert decode(await found.made.plan("m1")) is None
        assert found.codes() == [Code.TURN] and "somebody" in found.waits()[0].evidence
        await found.made.patch(plans.BEACONS, DEMO, {"status": {"active": False, "owner": None}}, FLEET, "status")
        await found.made.settle(2)
        assert decode(await found.made.plan("m1")) is not None
        beacon = await found.made.get(plans.BEACONS, DEMO, FLEET)
        assert beacon["status"]["owner"] == "planner"


async def test_a_plan_has_the_agents_manifest_and_the_installer_that_we_serve() -> None:
    async with planning() as found:
        found.doors.known = False
        await found.beacon()
        await found.made.demo(version=VERSION)
        await found.machine("m1", ALL)
        await found.made.settle(10)
        assert Code.RENDER in found.codes() and decode(await found.made.plan("m1")) is None
        assert "the manifest of the cluster's agent can't be made" in (await found.ready())["message"]
        found.doors.known = True
        found.doors.tell("c-m-bcdfg245")
        await found.made.settle(2)
        plan = await found.plan("m1")
        assert plan.instructions[0].image == "remuda.test:8443/rancher/system-agent-installer-remuda:v1.34.1-remuda1"
        path = "/var/lib/rancher/remuda/server/manifests/rancher/cluster-agent.yaml"
        file = file_at(plan, path)
        assert file is not None and file.minor and file.data == b"kind: Agent\n"
        found.doors.text = "kind: Newer\n"
        found.doors.tell("c-m-bcdfg245")
        await found.made.settle(2)
        newer = file_at(await found.plan("m1"), path)
        assert newer is not None and newer.data == b"kind: Newer\n"


async def test_tokens_that_are_lost_are_not_made_anew() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        await found.machine("m1", ALL)
        await found.made.settle(3)
        assert decode(await found.made.plan("m1")) is not None
        await found.made.patch(SECRETS, state_name(DEMO), {"data": {"serverToken": None}}, FLEET)
        await found.made.settle(400)
        assert found.codes() == [Code.MALFORMED]
        assert "restore it from a backup" in (await found.ready())["message"]
        await found.made.delete(SECRETS, state_name(DEMO), FLEET)
        await found.made.settle(400)
        ready = await found.ready()
        assert ready["status"] == "False" and "tokens of the cluster are lost" in ready["message"]
        assert await found.made.find(SECRETS, state_name(DEMO), FLEET) is None


async def test_what_a_host_says_of_itself_does_not_count() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        await found.machine("m1", {"rke.cattle.io/worker-role": "true"})
        await found.made.settle(2)
        forged = {"metadata": {"labels": ALL}}
        await found.made.patch(SECRETS, "m1-machine-plan", forged, FLEET)
        await found.made.settle(10)
        assert decode(await found.made.plan("m1")) is None, "it would get the secrets of a server"
        assert "rke.cattle.io/etcd-role" not in labels_of(await found.made.plan("m1"))


def periodic(**stdout: str) -> bytes:
    return packed({name.replace("_", "-"): {"stdout": base64.b64encode(said.encode()).decode()} for name, said in stdout.items()})


GARBAGE: dict[str, Obj] = {
    "immutable": {"immutable": True},
    "full": {"data": {"mine": bytes(1023 << 10)}},
    "unreadable": {
        "data": {
            "plan-state": b"\xff",
            "plan-revision": b"9" * 60,
            "failure-count": b"many",
            "probe-statuses": b"[" * 5000,
            "applied-output": gzip.compress(bytes(32 << 20)),
            "failed-output": b"no gzip",
            "applied-periodic-output": periodic(etcd_name="w1", capture_address='{"members":' * 5000),
            "agent": b"{" * 9000,
        }
    },
    "many probes": {"data": {"probe-statuses": json.dumps({str(number): {} for number in range(2000)}).encode()}},
    "garbled marks": {"metadata": {"annotations": {PLAN_FAILURE: "[" * 5000, AGENT_UPDATE: "[" * 5000}}},
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_one_bad_secret_does_not_stop_the_others(kind: str) -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        await found.machine("m1", ALL)
        await found.made.settle(3)
        plan = await found.made.plan("m1")
        healthy = {name: {"healthy": True, "successCount": 1} for name in (await found.plan("m1")).probes}
        await found.made.answer(
            "m1",
            {JOIN_URL: "https://10.0.0.1:9345"},
            plan_state="succeeded",
            applied_checksum=checksum(base64.b64decode(plan["data"]["plan"])),
            probe_statuses=json.dumps(healthy),
        )
        for name in ("w1", "w2"):
            await found.machine(name, {"rke.cattle.io/worker-role": "true"})
        await found.made.settle(20)
        assert Code.CLUSTER_AGENT in found.codes() and decode(await found.made.plan("w2")) is None
        # The planner alone: it has to do without the controllers that repair a Secret.
        await found.made.end()
        found.doors.alone = True
        bad = {"data": {key: base64.b64encode(value).decode() for key, value in (GARBAGE[kind].get("data") or {}).items()}}
        await found.made.patch(SECRETS, "w1-machine-plan", {**GARBAGE[kind], **bad}, FLEET)
        await found.made.patch(rke.RKE_CONTROL_PLANES, DEMO, {"status": {"agentConnected": True}}, FLEET, "status")
        found.made.begin()
        await found.made.settle(20)
        assert await found.plan("w2")
        named = [wait.subject.name for wait in found.waits() if "the Secret with its plan" in wait.evidence]
        assert named == (["w1"] if kind in ("immutable", "full") else [])
        # With them it is repaired.
        await found.made.end()
        found.doors.alone = False
        found.made.begin()
        await found.made.settle(20)
        assert await found.plan("w1") and not [wait for wait in found.waits() if wait.code is Code.MALFORMED]


async def test_an_object_that_the_spec_names_is_followed() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        source = {"secret": {"name": "mine", "items": [{"key": "a", "path": "/etc/a"}]}}
        files = {"spec": {"machineSelectorFiles": [{"fileSources": [source]}]}}
        await found.made.patch(rke.RKE_CONTROL_PLANES, DEMO, files, FLEET)
        await found.machine("m1", ALL)
        await found.made.settle(3)
        assert decode(await found.made.plan("m1")) is None
        assert "Secret fleet-default/mine is not there" in (await found.ready())["message"]
        meta = {"name": "mine", "namespace": FLEET, "annotations": {"rke.cattle.io/object-authorized-for-clusters": DEMO}}
        data = {"a": base64.b64encode(b"one").decode()}
        await found.made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        await found.made.settle(2)
        first = file_at(await found.plan("m1"), "/etc/a")
        assert first is not None and first.data == b"one"
        await found.made.answer("m1", plan_state="succeeded", plan_revision="1")
        await found.made.patch(SECRETS, "mine", {"data": {"a": base64.b64encode(b"two").decode()}}, FLEET)
        await found.made.settle(2)
        second = file_at(await found.plan("m1"), "/etc/a")
        assert second is not None and second.data == b"two"


async def test_release_data_of_the_setting_says_which_arguments_a_host_gets() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        said = {"spec": {"machineGlobalConfig": {"kubelet-arg": ["v=2"], "brand-new": "yes"}}}
        await found.made.patch(rke.RKE_CONTROL_PLANES, DEMO, said, FLEET)
        await found.machine("m1", ALL)
        await found.made.settle(3)
        path = "/etc/rancher/remuda/config.yaml.d/50-rancher.yaml"
        before = file_at(await found.plan("m1"), path)
        assert before is not None and b"kubelet-arg" in before.data and b"brand-new" not in before.data
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}}
        await found.made.create(NAMESPACES, namespace)
        known = {"serverArgs": {"brand-new": {"type": "string"}}, "agentArgs": {"kubelet-arg": {"type": "array"}}}
        await found.made.setting(SETTING, json.dumps({"remuda": {"releases": [{"version": VERSION, **known}]}}))
        await found.made.settle(30)
        after = file_at(await found.plan("m1"), path)
        assert after is not None and b"kubelet-arg" in after.data and b"brand-new" in after.data


async def test_a_version_that_is_none_is_told_of() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version="what")
        await found.machine("m1", ALL)
        await found.made.settle(5)
        assert found.codes()[0] == Code.RELEASE and (await found.ready())["status"] == "Unknown"


async def test_a_joined_host_is_noted_where_it_joined() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        await found.machine("m1", ALL)
        await found.made.settle(3)
        secret = await found.made.plan("m1")
        assert labels_of(secret)["rke.cattle.io/init-node"] == "true"
        assert annotations_of(secret)["rke.cattle.io/joined-to"] == ""


async def test_a_pause_ends_with_its_cluster_though_nothing_can_be_planned_any_more() -> None:
    async with planning() as found:
        await found.beacon()
        await found.made.demo(version=VERSION)
        held = {"metadata": {"finalizers": ["example.com/held"]}, "spec": {"paused": True}}
        await found.made.patch(capi.CLUSTERS, DEMO, held, FLEET)
        found.doors.known = False
        await found.made.delete(capi.CLUSTERS, DEMO, FLEET)
        await found.made.settle(5)
        assert (await found.made.get(capi.CLUSTERS, DEMO, FLEET))["spec"]["paused"] is False
