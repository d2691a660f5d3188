"""The last etcd machine of a cluster: at the API, and before its host is taken away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda import api
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.crd_installation import established, install
from remuda.apiserver.admission.chain import install as install_admission
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.capi.well_known import HOLDS_DATA
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, uid_of
from remuda.kube.waits import Actor, Code
from remuda.lab.sim import machine_jobs
from remuda.machines.admission import admitted as admitted_machines
from remuda.provisioning.admission.provider_objects import admitted
from remuda.provisioning.etcd.removal import Situation, Step, decide, has_data, last_members, leaves_no_etcd
from remuda.provisioning.well_known import DELETE_LAST_ETCD, ETCD_FORCE_REMOVE, ETCD_ROLE, PRE_TERMINATE_HOOK

Obj = dict[str, Any]
FLEET, DEMO = "fleet-default", "demo"
ETCD = {ETCD_ROLE: "true", "rke.cattle.io/rke-machine-pool-name": "servers"}
MEANT = {DELETE_LAST_ETCD: "true"}
UP: Obj = {"status": {"initialization": {"controlPlaneInitialized": True}}}


def machine(name: str, *, node: bool = True, going: bool = False, etcd: bool = True, **annotations: str) -> Obj:
    meta: Obj = {"name": name, "namespace": FLEET, "uid": name, "annotations": annotations, "labels": ETCD if etcd else {}}
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "spec": {"clusterName": DEMO}, "status": {"nodeRef": {"name": name}} if node else {}}


# --- the rule -----------------------------------------------------------------------------------------------------------------


def test_a_machine_is_kept_when_no_node_with_etcd_is_left_without_it() -> None:
    last = machine("a")
    for others in ([], [machine("b", node=False)], [machine("b", going=True)], [machine("b", etcd=False)]):
        assert last_members([last], [last, *others]) == [last]
    assert last_members([last], [last, machine("b")]) == []
    assert last_members([last, machine("b")], [last, machine("b")]) == [last, machine("b")]
    assert leaves_no_etcd([last], [last])


def test_what_is_no_member_or_is_meant_may_go() -> None:
    for free in (machine("a", node=False), machine("a", etcd=False), machine("a", **MEANT)):
        assert last_members([free], [free]) == []
    member = machine("a", node=False, **{HOLDS_DATA: "true"})
    assert last_members([member], [member]) == [member]


def test_only_a_cluster_that_was_up_and_stays_has_something_to_lose() -> None:
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    taken_back = {"status": {"initialization": {"controlPlaneInitialized": False}}}
    assert has_data(UP, {}) and has_data({}, UP) and has_data(taken_back, {})
    assert not (
        has_data(None, UP) or has_data({}, {}, None) or has_data({**UP, **gone}) or has_data(UP, gone) or has_data(UP, {}, gone)
    )


# --- before the host goes -----------------------------------------------------------------------------------------------------


def situation(of: Obj, *others: Obj, control_plane: Obj = UP, bootstrap: Obj | None = None, kubeconfig: bool = True) -> Situation:
    of = {**of, "metadata": {**of["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    of["metadata"]["annotations"] = {**of["metadata"]["annotations"], PRE_TERMINATE_HOOK: "x"}
    cluster = {"spec": {"controlPlaneRef": {"name": DEMO}}}
    return Situation(of, bootstrap or {}, cluster, control_plane, kubeconfig, (), others, 2e9)


def test_the_last_one_is_held_and_says_so() -> None:
    verdict = decide(situation(machine("a"), machine("b", node=False)))
    assert (verdict.step, verdict.code, verdict.actor) == (Step.WAIT, Code.LAST_ETCD, Actor.USER)
    assert "add another etcd machine first" in verdict.why and f"{DELETE_LAST_ETCD}=true" in verdict.why
    # Also where nobody could ask its member to leave.
    assert decide(situation(machine("a"), kubeconfig=False)).step is Step.WAIT


def test_it_goes_when_another_is_there_or_when_it_is_meant_or_when_there_is_nothing_to_lose() -> None:
    assert decide(situation(machine("a"), machine("b"))).step is Step.REMOVE_MEMBER
    assert decide(situation(machine("a", **MEANT))).step is Step.RELEASE
    assert decide(situation(machine("a", **MEANT), machine("b"))).step is Step.REMOVE_MEMBER, "in order, as long as one stays"
    forced = {"metadata": {"annotations": {ETCD_FORCE_REMOVE: "true"}}}
    assert decide(situation(machine("a"), bootstrap=forced)).step is Step.RELEASE
    assert decide(situation(machine("a"), control_plane={}, kubeconfig=False)).step is Step.RELEASE
    assert decide(situation(machine("a", node=False))).step is Step.RELEASE


def test_a_member_whose_node_is_not_known_leaves_in_order() -> None:
    member = machine("a", node=False, **{HOLDS_DATA: "true"})
    assert decide(situation(member, machine("b"), machine("c"))).step is Step.REMOVE_MEMBER


# --- at the API ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(Config(tmp_path / "data", port=0)) as made:
        install_admission((*admitted(made.source), *admitted_machines(made.source, made.rbac)), made.hooks, made.converters)
        client = InProcessClient(made)
        wanted = [*api.crds((capi.GROUP, provisioning.GROUP, rke.GROUP)), *machine_jobs.crds(*machine_jobs.FIELDS)]
        await established(client, SYSTEM_CLOCK, await install(client, SYSTEM_CLOCK, wanted, in_process=True))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}}
        await client.create(GroupVersionResource("", "v1", "namespaces"), namespace)
        yield made


class Land:
    """A cluster with one etcd machine of a pool, which is up."""

    def __init__(self, server: Server) -> None:
        self.client = InProcessClient(server)

    async def make(self, resource: GroupVersionResource, kind: str, name: str, spec: Obj, **fields: Any) -> Obj:
        group = f"{resource.group}/{resource.version}"
        metadata = {"name": name, "namespace": FLEET, **fields.pop("metadata", {})}
        made = await self.client.create(resource, {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})
        if not fields:
            return made
        return await self.client.update(resource, {**made, "status": fields["status"]}, subresource="status")

    async def build(self) -> None:
        pool = {"name": "servers", "etcdRole": True, "quantity": 1, "machineConfigRef": {"kind": "PaperConfig", "name": "small"}}
        pools = [pool, {**pool, "name": "workers", "etcdRole": False, "workerRole": True}]
        spec = {"kubernetesVersion": "v1.33.4+rke2r1", "rkeConfig": {"machinePools": pools}}
        await self.make(provisioning.CLUSTERS, "Cluster", DEMO, spec)
        status = {"observedGeneration": 1, **UP["status"]}
        plane = {"clusterName": DEMO, "managementClusterName": "c-m-bcdfg245"}
        await self.make(rke.RKE_CONTROL_PLANES, "RKEControlPlane", DEMO, plane, status=status)
        template = {"spec": _machine_spec("x"), "metadata": {"labels": {"x": "y"}}}
        scaled = {"clusterName": DEMO, "replicas": 1, "selector": {"matchLabels": {"x": "y"}}, "template": template}
        self.deployment = await self.make(capi.MACHINE_DEPLOYMENTS, "MachineDeployment", "demo-servers", scaled)
        self.machine_set = await self.make(capi.MACHINE_SETS, "MachineSet", "demo-servers-1", scaled)
        await self.machine("a")

    async def machine(self, name: str) -> None:
        owner = {"apiVersion": capi.API_VERSION, "kind": "MachineSet", "name": "demo-servers-1", "controller": True}
        meta = {
            "labels": {**ETCD, "cluster.x-k8s.io/deployment-name": "demo-servers"},
            "ownerReferences": [{**owner, "uid": uid_of(self.machine_set)}],
            "finalizers": ["machine.cluster.x-k8s.io"],
        }
        made = await self.make(
            capi.MACHINES, "Machine", name, _machine_spec(name), metadata=meta, status={"nodeRef": {"name": name}}
        )
        of = {"apiVersion": capi.API_VERSION, "kind": "Machine", "name": name, "uid": uid_of(made)}
        await self.make(machine_jobs.MACHINES, "PaperMachine", name, {}, metadata={"ownerReferences": [of]})

    async def refused(self, resource: GroupVersionResource, name: str, patch: Obj | None = None) -> str:
        """Why; "" if it is not. Nothing is done either way."""
        try:
            if patch is None:
                await self.client.delete(resource, name, FLEET, dry_run=True)
            else:
                await self.client.patch(resource, name, patch, FLEET, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    async def all_refused(self) -> list[bool]:
        none = {"spec": {"replicas": 0}}
        return [
            "only etcd machine" in await self.refused(*each)
            for each in (
                (capi.MACHINES, "a"),
                (capi.MACHINE_SETS, "demo-servers-1"),
                (capi.MACHINE_SETS, "demo-servers-1", none),
                (capi.MACHINE_DEPLOYMENTS, "demo-servers"),
                (capi.MACHINE_DEPLOYMENTS, "demo-servers", none),
                (machine_jobs.MACHINES, "a"),
            )
        ]


def _machine_spec(name: str) -> Obj:
    infrastructure = {"apiGroup": "rke-machine.cattle.io", "kind": "PaperMachine", "name": name}
    bootstrap = {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}}
    return {"clusterName": DEMO, "infrastructureRef": infrastructure, "bootstrap": bootstrap}


async def test_what_would_delete_the_last_etcd_machine_is_refused(server: Server) -> None:
    land = Land(server)
    await land.build()
    assert all(await land.all_refused())
    why = await land.refused(capi.MACHINES, "a")
    assert why.startswith('machines.cluster.x-k8s.io "a" is forbidden: Machine a: it is the only etcd machine of its cluster')
    assert f"annotate the Machine with {DELETE_LAST_ETCD}=true" in why
    pools = (await land.client.get(provisioning.CLUSTERS, DEMO, FLEET))["spec"]["rkeConfig"]["machinePools"]
    for changed in (pools[1:], [{**pools[0], "quantity": 0}, pools[1]], [{**pools[0], "etcdRole": False, "workerRole": True}]):
        spec = {"spec": {"rkeConfig": {"machinePools": changed}}}
        assert "only etcd machine" in await land.refused(provisioning.CLUSTERS, DEMO, spec)
    # A pool in the place of another: the machines wait for each other.
    moved = {"spec": {"rkeConfig": {"machinePools": [{**pools[0], "name": "other"}, pools[1]]}}}
    assert await land.refused(provisioning.CLUSTERS, DEMO, moved) == ""
    # Scaling down to something, and what has nothing to do with it.
    assert await land.refused(capi.MACHINE_DEPLOYMENTS, "demo-servers", {"spec": {"replicas": 3}}) == ""


async def test_it_is_not_with_another_etcd_node_or_an_annotation(server: Server) -> None:
    land = Land(server)
    await land.build()
    await land.client.patch(capi.MACHINES, "a", {"metadata": {"annotations": MEANT}}, FLEET)
    assert not any(await land.all_refused())
    await land.client.patch(capi.MACHINES, "a", {"metadata": {"annotations": {DELETE_LAST_ETCD: None}}}, FLEET)
    assert all(await land.all_refused())
    await land.machine("b")
    one, both = (capi.MACHINES, "a"), (capi.MACHINE_DEPLOYMENTS, "demo-servers")
    assert (await land.refused(*one), "only etcd" in await land.refused(*both)) == ("", True)
    await land.client.delete(capi.MACHINES, "b", FLEET)
    assert "only etcd machine" in await land.refused(*one), "the other is on its way out"


async def test_a_cluster_that_goes_or_never_came_up_takes_its_machines_along(server: Server) -> None:
    land = Land(server)
    await land.build()
    await land.client.patch(provisioning.CLUSTERS, DEMO, {"metadata": {"finalizers": ["example.com/x"]}}, FLEET)
    assert await land.refused(provisioning.CLUSTERS, DEMO) == ""
    await land.client.delete(provisioning.CLUSTERS, DEMO, FLEET)
    assert not any(await land.all_refused())
    await land.client.patch(provisioning.CLUSTERS, DEMO, {"metadata": {"finalizers": None}}, FLEET)
    assert all(await land.all_refused()), "machines that outlived their provisioned cluster are still of a control plane"
    plane = await land.client.get(rke.RKE_CONTROL_PLANES, DEMO, FLEET)
    await land.client.update(rke.RKE_CONTROL_PLANES, {**plane, "status": {"observedGeneration": 1}}, subresource="status")
    assert not any(await land.all_refused())


async def test_infrastructure_goes_when_nothing_holds_its_machine_any_more(server: Server) -> None:
    land = Land(server)
    await land.build()
    marks = {"metadata": {"annotations": {**MEANT, PRE_TERMINATE_HOOK: "x"}}}
    await land.client.patch(capi.MACHINES, "a", marks, FLEET)
    await land.client.delete(capi.MACHINES, "a", FLEET)
    await land.client.patch(capi.MACHINES, "a", {"metadata": {"annotations": {DELETE_LAST_ETCD: None}}}, FLEET)
    assert "only etcd machine" in await land.refused(machine_jobs.MACHINES, "a")
    await land.client.patch(capi.MACHINES, "a", {"metadata": {"annotations": {PRE_TERMINATE_HOOK: None}}}, FLEET)
    assert await land.refused(machine_jobs.MACHINES, "a") == ""
