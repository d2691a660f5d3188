"""What is made for a machine before its host comes, and when its host may go."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import NODES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import Key, annotations_of, labels_of
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.bootstrap.service_account_tokens import shown, text_of
from remuda.provisioning.etcd.members import DistributionsMembers
from remuda.provisioning.well_known import (
    ACCOUNT_ROLE,
    BOOTSTRAP_TOKEN,
    ETCD_ROLE,
    JOIN_URL,
    JOINED_TO,
    MACHINE_NAME,
    PLAN_SECRET_NAME,
    PRE_TERMINATE_HOOK,
    TOKEN_OF_ACCOUNT,
    bootstrap_name,
    plan_name,
)
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import DEMO, ETCD, FLEET, Machines, machines

Obj = dict[str, Any]


def script(bootstrap: Obj, token: str) -> bytes:
    return f"CATTLE_TOKEN={token}\n".encode()


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield Bootstraps(parts.manager, script, DistributionsMembers(made.workloads))


async def tokens_of(made: Machines, account: str) -> list[Obj]:
    found = await made.list(SECRETS, FLEET)
    return [each for each in found if labels_of(each).get("cattle.io/service-account.name") == account]


async def revision(made: Machines) -> str:
    found: str = (await made.client.list(SECRETS))["metadata"]["resourceVersion"]
    return found


# --- before a host comes --------------------------------------------------------------------------------------------------


async def test_a_machine_gets_its_plan_its_accounts_and_its_script() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1", labels=ETCD)
        await made.settle(5)
        plan = await made.plan("m1")
        assert plan["type"] == "rke.cattle.io/machine-plan" and not plan.get("data")
        assert labels_of(plan) == {
            "cluster.x-k8s.io/cluster-name": DEMO,
            "rke.cattle.io/cluster-name": DEMO,
            "rke.cattle.io/etcd-role": "true",
            "rke.cattle.io/machine-name": "m1",
            "resources.cattle.io/backup": "true",
            "plan.cattle.io/cluster-group": "cluster.x-k8s.io",
            "plan.cattle.io/cluster-kind": "Cluster",
            "plan.cattle.io/cluster-name": DEMO,
            "plan.cattle.io/machine-group": "cluster.x-k8s.io",
            "plan.cattle.io/machine-kind": "Machine",
            "plan.cattle.io/machine-name": "m1",
        }
        owner = plan["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["controller"], owner["blockOwnerDeletion"]) == (
            "RKEBootstrap",
            "m1",
            True,
            True,
        )
        for account, role in (("m1-machine-plan", "plan"), ("m1-machine-bootstrap", "bootstrap")):
            marks = labels_of(await made.get(SERVICE_ACCOUNTS, account, FLEET))
            assert (marks[ACCOUNT_ROLE], marks[MACHINE_NAME], marks[PLAN_SECRET_NAME]) == (role, "m1", "m1-machine-plan")
        role = (await made.get(ROLES, "m1-machine-plan", FLEET))["rules"]
        assert role == [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["m1-machine-plan"],
                "verbs": ["watch", "get", "update", "list"],
            }
        ]
        binding = await made.get(ROLE_BINDINGS, "m1-machine-plan", FLEET)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "m1-machine-plan", "namespace": FLEET}]
        (token,) = await tokens_of(made, "m1-machine-bootstrap")
        assert annotations_of(token)[BOOTSTRAP_TOKEN] == "true"
        coming = await made.get(SERVICE_ACCOUNTS, "m1-machine-bootstrap", FLEET)
        assert annotations_of(coming)[TOKEN_OF_ACCOUNT] == f"{FLEET}/{token['metadata']['name']}"
        value = await made.secret_text("m1-machine-bootstrap", FLEET, "value")
        assert value == f"CATTLE_TOKEN={shown(text_of(token))}\n" and text_of(token) not in value
        status = (await made.get(rke.RKE_BOOTSTRAPS, "m1", FLEET))["status"]
        assert status["dataSecretName"] == "m1-machine-bootstrap" and status["initialization"] == {"dataSecretCreated": True}


async def test_it_comes_to_rest() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1", labels=ETCD)
        await made.settle(10)
        before = await revision(made)
        await made.settle(1500)
        assert await revision(made) == before


async def test_it_waits_for_the_clusters_infrastructure_and_while_paused() -> None:
    async with machines(controllers) as made:
        await made.demo(provisioned=False)
        await made.machine("m1")
        await made.settle(30)
        assert await made.find(SECRETS, plan_name("m1"), FLEET) is None
        await made.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": True}}, FLEET)
        await made.patch(
            capi.CLUSTERS, DEMO, {"status": {"initialization": {"infrastructureProvisioned": True}}}, FLEET, "status"
        )
        await made.settle(30)
        assert await made.find(SECRETS, plan_name("m1"), FLEET) is None
        await made.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": None}}, FLEET)
        await made.settle(2)
        assert await made.find(SECRETS, plan_name("m1"), FLEET) is not None


async def test_long_names_are_cut_as_the_original_does() -> None:
    name = "pool-with-a-rather-long-name-that-goes-on-and-on-abcde-12345"
    assert len(plan_name(name)) <= 63
    async with machines(controllers) as made:
        await made.demo()
        await made.machine(name)
        await made.settle(5)
        assert await made.find(SECRETS, bootstrap_name(name), FLEET) is not None


async def test_changed_and_deleted_objects_are_restored() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.settle(5)
        await made.patch(
            ROLES, "m1-machine-plan", {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]}, FLEET
        )
        await made.delete(ROLE_BINDINGS, "m1-machine-plan", FLEET)
        await made.delete(SECRETS, "m1-machine-bootstrap", FLEET)
        await made.settle(5)
        assert (await made.get(ROLES, "m1-machine-plan", FLEET))["rules"][0]["resourceNames"] == ["m1-machine-plan"]
        assert await made.find(ROLE_BINDINGS, "m1-machine-plan", FLEET) is not None
        assert await made.secret_text("m1-machine-bootstrap", FLEET, "value")


async def test_a_host_can_not_make_itself_something_else() -> None:
    """It may write all of its plan's Secret."""
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1", labels={"rke.cattle.io/worker-role": "true"})
        await made.settle(5)
        lies = {ETCD_ROLE: "true", MACHINE_NAME: "m2", "rke.cattle.io/worker-role": None, "own": "stays"}
        await made.patch(SECRETS, plan_name("m1"), {"metadata": {"labels": lies}}, FLEET)
        await made.settle(2)
        marks = labels_of(await made.plan("m1"))
        assert ETCD_ROLE not in marks and marks[MACHINE_NAME] == "m1" and marks["rke.cattle.io/worker-role"] == "true"
        assert marks["own"] == "stays"


async def test_a_host_can_not_keep_its_secret_from_going() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.settle(5)
        owners = (await made.plan("m1"))["metadata"]["ownerReferences"]
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y", "controller": True}
        held = {"metadata": {"ownerReferences": [other], "finalizers": ["example.com/mine"], "labels": {ETCD_ROLE: "true"}}}
        await made.patch(SECRETS, plan_name("m1"), held, FLEET)
        await made.settle(2)
        plan = await made.plan("m1")
        assert plan["metadata"]["ownerReferences"] == owners and not plan["metadata"].get("finalizers")
        assert ETCD_ROLE not in labels_of(plan)


async def test_a_secret_that_was_there_and_is_none_of_ours_goes() -> None:
    async with machines(controllers) as made:
        await made.demo()
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": plan_name("m1"), "namespace": FLEET}, "type": "Opaque"}
        await made.create(SECRETS, obj)
        await made.machine("m1")
        await made.settle(5)
        assert (await made.plan("m1"))["type"] == "rke.cattle.io/machine-plan"


async def test_a_machine_that_goes_has_no_script_and_no_token_any_more() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.settle(5)
        await made.patch(capi.MACHINES, "m1", {"status": {"phase": "Failed"}}, FLEET, "status")
        await made.settle(5)
        assert await made.find(SECRETS, "m1-machine-bootstrap", FLEET) is None
        assert await made.find(SERVICE_ACCOUNTS, "m1-machine-bootstrap", FLEET) is None
        assert await tokens_of(made, "m1-machine-bootstrap") == []
        assert await made.find(SECRETS, plan_name("m1"), FLEET) is not None


async def test_the_bootstrap_account_may_nothing() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.settle(5)
        bindings = await made.list(ROLE_BINDINGS, FLEET)
        subjects = [subject["name"] for each in bindings for subject in each.get("subjects") or ()]
        assert "m1-machine-plan" in subjects and "m1-machine-bootstrap" not in subjects


async def test_other_infrastructure_gets_cloud_config() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1", infra="infrastructure.cluster.x-k8s.io")
        await made.settle(5)
        value = await made.secret_text("m1-machine-bootstrap", FLEET, "value")
        assert value.startswith("## template: jinja\n#cloud-config\n") and "/usr/local/custom_script/install.sh" in value


async def test_the_spec_follows_the_label_of_the_cluster() -> None:
    async with machines(controllers) as made:
        await made.demo()
        await made.machine("m1")
        await made.patch(rke.RKE_BOOTSTRAPS, "m1", {"spec": {"clusterName": "other"}}, FLEET)
        await made.settle(3)
        assert (await made.get(rke.RKE_BOOTSTRAPS, "m1", FLEET))["spec"]["clusterName"] == DEMO


# --- going ----------------------------------------------------------------------------------------------------------------


async def leaving(made: Machines, *names: str) -> None:
    """Etcd machines that are nodes; the first is asked to go, and held by Cluster API's finalizer."""
    await made.demo()
    workload = await made.workloads.connect(DEMO, FLEET)
    config = base64.b64encode(b"apiVersion: v1").decode()
    meta = {"name": f"{DEMO}-kubeconfig", "namespace": FLEET, "labels": {"cluster.x-k8s.io/cluster-name": DEMO}}
    await made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"value": config}})
    for name in names:
        await made.machine(name, labels=ETCD)
        await workload.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await made.patch(capi.MACHINES, name, {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}, FLEET)
        await made.patch(capi.MACHINES, name, {"status": {"nodeRef": {"name": name}}}, FLEET, "status")
    await made.settle(5)


async def is_held(made: Machines, name: str) -> bool:
    return PRE_TERMINATE_HOOK in annotations_of(await made.get(capi.MACHINES, name, FLEET))


async def test_an_etcd_machine_is_held_until_its_member_has_left() -> None:
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2", "m3")
        assert annotations_of(await made.get(capi.MACHINES, "m1", FLEET))[PRE_TERMINATE_HOOK] == "rke-bootstrap-controller"
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(30)
        assert await is_held(made, "m1")
        node = made.workloads.get(Key(FLEET, DEMO))
        assert node is not None
        asked = annotations_of(await node.client.get(NODES, "m1"))
        assert asked == {"etcd.rke2.cattle.io/remove": "true"}
        await node.client.patch(NODES, "m1", {"metadata": {"annotations": {"etcd.rke2.cattle.io/removed-node-name": "m1-abc"}}})
        await made.settle(10)
        assert not await is_held(made, "m1") and await is_held(made, "m2")


async def test_a_member_that_others_are_joined_to_stays_until_they_are_not() -> None:
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2", "m3")
        await made.answer("m1", {JOIN_URL: "https://10.0.0.1:9345"})
        await made.answer("m2", {JOINED_TO: "https://10.0.0.1:9345"})
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(120)
        node = made.workloads.get(Key(FLEET, DEMO))
        assert node is not None and not annotations_of(await node.client.get(NODES, "m1"))
        await made.answer("m2", {JOINED_TO: "https://10.0.0.3:9345"})
        await made.settle(30)
        assert annotations_of(await node.client.get(NODES, "m1"))


async def test_of_two_members_the_other_gets_time_to_be_elected() -> None:
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2")
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(15)
        node = made.workloads.get(Key(FLEET, DEMO))
        assert node is not None and not annotations_of(await node.client.get(NODES, "m1"))
        await made.settle(10)
        assert annotations_of(await node.client.get(NODES, "m1"))


@pytest.mark.parametrize("why", ["force", "cluster", "kubeconfig", "node"])
async def test_nothing_is_waited_for_where_it_makes_no_difference(why: str) -> None:
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2", "m3")
        if why == "force":
            mark = {"metadata": {"annotations": {"rke.cattle.io/etcd-force-remove": "true"}}}
            await made.patch(rke.RKE_BOOTSTRAPS, "m1", mark, FLEET)
        if why == "cluster":
            await made.patch(capi.CLUSTERS, DEMO, {"metadata": {"finalizers": ["example.com/hold"]}}, FLEET)
            await made.delete(capi.CLUSTERS, DEMO, FLEET)
        if why == "kubeconfig":
            await made.delete(SECRETS, f"{DEMO}-kubeconfig", FLEET)
        if why == "node":
            await made.patch(capi.MACHINES, "m1", {"status": {"nodeRef": None, "phase": "Running"}}, FLEET, "status")
        await made.settle(1)
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(2)
        assert not await is_held(made, "m1")


async def test_a_cluster_that_can_not_be_reached_keeps_its_member() -> None:
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2", "m3")
        made.workloads.cut(DEMO, FLEET)
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(300)
        assert await is_held(made, "m1")


async def test_the_hook_does_not_outlive_the_bootstrap() -> None:
    """Somebody deleted the RKEBootstrap by hand; the member still leaves before its host goes."""
    async with machines(controllers) as made:
        await leaving(made, "m1", "m2", "m3")
        await made.delete(rke.RKE_BOOTSTRAPS, "m1", FLEET)
        await made.settle(5)
        assert await is_held(made, "m1")
        await made.delete(capi.MACHINES, "m1", FLEET)
        await made.settle(10)
        node = made.workloads.get(Key(FLEET, DEMO))
        assert node is not None and annotations_of(await node.client.get(NODES, "m1"))
        await node.client.delete(NODES, "m1")
        await made.settle(10)
        assert not await is_held(made, "m1")
