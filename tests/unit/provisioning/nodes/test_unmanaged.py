"""Hosts that somebody registers by hand: who becomes a machine, and who does not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.auth.authenticator import Credentials
from remuda.capi.change_budget import CHANGE_BUDGET
from remuda.kube.builtin_resources import EVENTS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, labels_of
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps
from remuda.provisioning.bootstrap.service_account_tokens import text_of, token_secret
from remuda.provisioning.etcd.members import DistributionsMembers
from remuda.provisioning.nodes import unmanaged
from remuda.provisioning.nodes.custommachine import CustomMachines
from remuda.provisioning.nodes.host_identity import refusals_of
from remuda.provisioning.nodes.machine_request import RequestError, parse, request_secret
from remuda.provisioning.nodes.unmanaged import Unmanaged
from remuda.provisioning.well_known import (
    LAST_ACCESS,
    MACHINE_ID,
    MACHINE_NAME,
    MACHINE_NAMESPACE,
    PLAN_TOKEN_SHOWN,
    REFUSED,
    REGISTER_AGAIN,
    TOKEN_OF_ACCOUNT,
    plan_name,
    request_name,
)
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.cluster.mirrored_clusters import mirror
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machines

Obj = dict[str, Any]
ID = "a1" * 31 + "f"


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield from mirror(parts)
    yield Unmanaged(parts.manager)
    yield CustomMachines(parts.manager, made.workloads)
    yield Bootstraps(parts.manager, lambda bootstrap, token: b"#!", DistributionsMembers(made.workloads))


def headers(machine_id: str = ID, **said: str) -> dict[str, list[str]]:
    given = {"id": machine_id, "role_worker": "true", **said}
    return {key.replace("_", "-"): [value] for key, value in given.items()}


async def wanted(made: Machines, name: str = DEMO, **spec: Any) -> str:
    """A cluster that takes machines; the name of its management Cluster."""
    await made.wanted(name, FLEET, kubernetesVersion="v1.34.1+rke2r1", **({"rkeConfig": {}} | spec))
    await made.demo(name)
    await made.settle(3)
    namespace: str = (await made.get(provisioning.CLUSTERS, name, FLEET))["status"]["clusterName"]
    if await made.find(NAMESPACES, namespace) is None:
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return namespace


async def ask(made: Machines, namespace: str, said: dict[str, list[str]], shown: str = "") -> Obj:
    """What the gateway writes, and what came of it; the request is taken away as the gateway does."""
    secret = request_secret(namespace, said)
    if shown:
        secret["metadata"]["annotations"] = {PLAN_TOKEN_SHOWN: shown}
    await made.create(SECRETS, secret)
    await made.settle(2)
    found = await made.get(SECRETS, secret["metadata"]["name"], namespace)
    await made.delete(SECRETS, secret["metadata"]["name"], namespace)
    await made.settle(1)
    return found


def refused(secret: Obj) -> str:
    assert MACHINE_NAME not in labels_of(secret)
    return annotations_of(secret).get(REFUSED, "")


# --- reading --------------------------------------------------------------------------------------------------------------


def test_headers_are_read_as_hosts_send_them() -> None:
    said = headers(
        role_etcd="true",
        role_control_plane="false",
        node_name="Web-1",
        labels="cattle.io/os=linux,rke.cattle.io/init-node=true,cluster.x-k8s.io/set-name=x,color=",
        taints="a=b:NoSchedule,c:NoExecute",
        address="10.0.0.1",
        layout='{"root":"/srv/h1","loopback":"127.0.4.1"}',
    )
    found = parse(request_secret("c-m-bcdfg245", said))
    assert (found.etcd, found.control_plane, found.worker, found.node_name) == (True, False, True, "web-1")
    assert found.labels == {"cattle.io/os": "linux", "color": ""}, "not what machines are found and judged by"
    assert found.taints == ({"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"})
    assert json.loads(found.layout) == {"root": "/srv/h1", "loopback": "127.0.4.1"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"id": [""]}, "id"),
        ({"id": ["a/b"], "role-worker": ["true"]}, "id"),
        ({"id": [ID]}, "no role"),
        (headers(node_name="a_b"), "name of a node"),
        (headers(labels="x"), ""),
        (headers(labels="-=1"), "not a label"),
        (headers(taints="a=b"), "not a taint"),
        (headers(taints="a=b:Never"), "not a taint"),
        (headers(address="a\nb"), "address"),
        (headers(layout="/"), "layout"),
    ],
)
def test_what_can_not_become_a_machine_is_told(said: dict[str, list[str]], why: str) -> None:
    if not why:
        parse(request_secret("c-m-bcdfg245", said))
        return
    with pytest.raises(RequestError, match=why):
        parse(request_secret("c-m-bcdfg245", said))


def test_a_request_is_named_after_its_host() -> None:
    secret = request_secret("c-m-bcdfg245", headers())
    assert secret["metadata"]["name"] == request_name(ID) and len(request_name(ID)) == len("custom-") + 12
    with pytest.raises(RequestError, match="not named"):
        parse({**secret, "metadata": {**secret["metadata"], "name": "custom-000000000000"}})


# --- registering ----------------------------------------------------------------------------------------------------------


async def test_a_host_becomes_a_machine() -> None:
    async with machines(controllers) as made:
        namespace = await wanted(made)
        said = headers(role_control_plane="true", node_name="web-1", labels="a=b", taints="c=d:NoSchedule", address="10.0.0.1")
        found = await ask(made, namespace, said)
        name = request_name(ID)
        assert labels_of(found)[MACHINE_NAME] == name and labels_of(found)[MACHINE_NAMESPACE] == FLEET
        machine = await made.get(capi.MACHINES, name, FLEET)
        bootstrap = await made.get(rke.RKE_BOOTSTRAPS, name, FLEET)
        custom = await made.get(rke.CUSTOM_MACHINES, name, FLEET)
        for each in (machine, bootstrap, custom):
            marks = labels_of(each)
            assert {key: marks.get(key) for key in (MACHINE_ID, "rke.cattle.io/node-name", "a")} == {
                MACHINE_ID: ID,
                "rke.cattle.io/node-name": "web-1",
                "a": "b",
            }
            assert marks["rke.cattle.io/control-plane-role"] == marks["rke.cattle.io/worker-role"] == "true"
            assert marks["cluster.x-k8s.io/control-plane"] == "true" and "rke.cattle.io/etcd-role" not in marks
            assert marks["rke.cattle.io/cluster-name"] == marks["cluster.x-k8s.io/cluster-name"] == DEMO
            assert json.loads(annotations_of(each)["rke.cattle.io/taints"]) == [
                {"key": "c", "value": "d", "effect": "NoSchedule"}
            ]
        assert annotations_of(bootstrap)["rke.cattle.io/address"] == "10.0.0.1"
        assert json.loads(annotations_of(bootstrap)["rke.cattle.io/labels"]) == {"a": "b"}
        assert "rke.cattle.io/address" not in annotations_of(machine)
        assert machine["spec"]["infrastructureRef"] == {"apiGroup": rke.GROUP, "kind": "CustomMachine", "name": name}
        assert machine["spec"]["bootstrap"]["configRef"]["kind"] == "RKEBootstrap"
        assert custom["status"]["conditions"][0]["type"] == "Ready" and not custom["status"].get("ready")
        await made.patch(rke.CUSTOM_MACHINES, name, {"spec": {"providerID": "rke2://web-1"}}, FLEET)
        await made.settle(1)
        status = (await made.get(rke.CUSTOM_MACHINES, name, FLEET))["status"]
        assert status["ready"] is True and status["initialization"] == {"provisioned": True}


async def test_a_request_waits_for_its_cluster_and_is_gone_after_a_minute() -> None:
    async with machines(controllers) as made:
        namespace = await wanted(made)
        await made.delete(capi.CLUSTERS, DEMO, FLEET)
        await made.settle(1)
        await made.create(SECRETS, request_secret(namespace, headers()))
        await made.settle(10)
        assert MACHINE_NAME not in labels_of(await made.get(SECRETS, request_name(ID), namespace))
        await made.delete(rke.RKE_CONTROL_PLANES, DEMO, FLEET)
        await made.demo()
        await made.settle(10)
        assert labels_of(await made.get(SECRETS, request_name(ID), namespace))[MACHINE_NAME] == request_name(ID)
        await made.settle(45)
        assert await made.find(SECRETS, request_name(ID), namespace) is None


async def test_a_refused_request_says_why_and_makes_nothing() -> None:
    async with machines(controllers) as made:
        namespace = await wanted(made)
        assert "no role" in refused(await ask(made, namespace, {"id": [ID]}))
        assert await made.list(capi.MACHINES, FLEET) == await made.list(rke.RKE_BOOTSTRAPS, FLEET) == []


async def test_an_imported_cluster_takes_no_machines() -> None:
    async with machines(controllers) as made:
        namespace = await wanted(made, rkeConfig=None)
        assert "imported" in refused(await ask(made, namespace, headers()))


async def test_a_host_whose_name_another_machine_has_is_refused() -> None:
    async with machines(controllers) as made:
        namespace = await wanted(made)
        await ask(made, namespace, headers(node_name="web-1"))
        assert "is called web-1" in refused(await ask(made, namespace, headers("b" * 63, node_name="web-1")))
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers("b" * 63, node_name="web-2")))


async def test_a_cluster_takes_only_so_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmanaged, "MOST_MACHINES", 1)
    async with machines(controllers) as made:
        namespace = await wanted(made)
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers(node_name="web-1")))
        assert "takes no more" in refused(await ask(made, namespace, headers("b" * 63, node_name="web-2")))


# --- coming again ---------------------------------------------------------------------------------------------------------


async def given(made: Machines) -> Obj:
    """The gateway gave the plan's token to the host; the Secret with it."""
    name = plan_name(request_name(ID))
    account = await made.get(SERVICE_ACCOUNTS, name, FLEET)
    made_of = await made.create(SECRETS, token_secret(account, {LAST_ACCESS: rfc3339(made.clock.time())}))
    token = made_of["metadata"]["name"]
    await made.patch(SERVICE_ACCOUNTS, name, {"metadata": {"annotations": {TOKEN_OF_ACCOUNT: f"{FLEET}/{token}"}}}, FLEET)
    await made.settle(1)
    return await made.get(SECRETS, token, FLEET)


async def registered(made: Machines) -> str:
    """A host that was let in; the plan's objects need an owner, which Cluster API would set."""
    namespace = await wanted(made)
    await ask(made, namespace, headers())
    name = request_name(ID)
    machine = await made.get(capi.MACHINES, name, FLEET)
    ref = {"apiVersion": capi.API_VERSION, "kind": "Machine", "name": name, "uid": machine["metadata"]["uid"], "controller": True}
    await made.patch(rke.RKE_BOOTSTRAPS, name, {"metadata": {"ownerReferences": [ref]}}, FLEET)
    await made.settle(2)
    return namespace


async def test_a_host_that_did_not_hear_the_answer_asks_again() -> None:
    async with machines(controllers) as made:
        namespace = await registered(made)
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers()))
        await given(made)
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers()))
        await made.settle(3600)
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers())), "it never acted with what it got"


async def test_a_host_that_has_used_its_token_is_let_in_no_more_without_it() -> None:
    async with machines(controllers) as made:
        namespace = await registered(made)
        secret = await given(made)
        await made.server.chain.identify(Credentials(bearer=text_of(secret)))
        await made.settle(1)
        assert "registered already" in refused(await ask(made, namespace, headers()))
        noted = refusals_of(await made.get(SECRETS, secret["metadata"]["name"], FLEET))
        assert noted is not None and noted.count == 1 and "registered already" in noted.why and ID.startswith(noted.host)


async def test_a_known_host_comes_again_only_with_its_token_or_an_administrators_word() -> None:
    async with machines(controllers) as made:
        namespace = await registered(made)
        await made.answer(request_name(ID), plan_revision="1")
        await made.settle(1)
        assert "registered already" in refused(await ask(made, namespace, headers(role_etcd="true")))
        machine = await made.get(capi.MACHINES, request_name(ID), FLEET)
        assert "registered already" in refused(await ask(made, namespace, headers(), shown="another"))
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers(), shown=machine["metadata"]["uid"]))
        await made.patch(capi.MACHINES, request_name(ID), {"metadata": {"annotations": {REGISTER_AGAIN: "true"}}}, FLEET)
        assert MACHINE_NAME in labels_of(await ask(made, namespace, headers(role_etcd="true")))
        assert "registered already" in refused(await ask(made, namespace, headers())), "it was said of one time"
        assert "rke.cattle.io/etcd-role" not in labels_of(await made.get(capi.MACHINES, request_name(ID), FLEET))


async def test_an_id_with_the_same_short_hash_is_another_host() -> None:
    async with machines(controllers) as made:
        namespace = await registered(made)
        await made.patch(capi.MACHINES, request_name(ID), {"metadata": {"labels": {MACHINE_ID: "c" * 63}}}, FLEET)
        await made.settle(1)
        assert "another host" in refused(await ask(made, namespace, headers()))


async def test_a_host_of_one_cluster_can_not_become_one_of_another() -> None:
    async with machines(controllers) as made:
        await registered(made)
        other = await wanted(made, "other")
        assert "another cluster" in refused(await ask(made, other, headers()))


async def test_a_host_whose_machine_is_going_waits() -> None:
    async with machines(controllers) as made:
        namespace = await registered(made)
        await made.patch(capi.MACHINES, request_name(ID), {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}, FLEET)
        await made.delete(capi.MACHINES, request_name(ID), FLEET)
        await made.settle(1)
        assert "being deleted" in refused(await ask(made, namespace, headers()))


# --- going ----------------------------------------------------------------------------------------------------------------


async def without_node(made: Machines) -> str:
    """The name of a Machine whose node has just gone, in a cluster that gives it 10 minutes to come back."""
    await registered(made)
    name = request_name(ID)
    await made.workloads.connect(DEMO, FLEET)
    meta = {"name": DEMO, "namespace": FLEET, "annotations": {"rke.cattle.io/delete-missing-custom-machines-after": "10m"}}
    await made.create(rke.RKE_CLUSTERS, {"apiVersion": rke.API_VERSION, "kind": "RKECluster", "metadata": meta, "spec": {}})
    gone = {
        "type": "NodeHealthy",
        "status": "False",
        "reason": "NodeDeleted",
        "message": "",
        "lastTransitionTime": rfc3339(made.clock.time()),
    }
    await made.patch(capi.MACHINES, name, {"status": {"nodeRef": {"name": "web-1"}, "conditions": [gone]}}, FLEET, "status")
    return name


async def test_a_machine_whose_node_is_gone_for_long_goes_where_somebody_says_so() -> None:
    async with machines(controllers) as made:
        name = await without_node(made)
        await made.settle(590)
        assert await made.find(capi.MACHINES, name, FLEET) is not None
        await made.settle(20)
        assert await made.find(capi.MACHINES, name, FLEET) is None


@pytest.mark.parametrize("text", ["delete=0", "delete-worker=0", "drain=0", "garbage"])
@pytest.mark.parametrize("of_namespace", [False, True])
async def test_it_stays_until_the_change_budget_lets_it_go(text: str, of_namespace: bool) -> None:
    resource, name, namespace = (NAMESPACES, FLEET, "") if of_namespace else (provisioning.CLUSTERS, DEMO, FLEET)

    async with machines(controllers) as made:

        async def allow(budget: str | None) -> None:
            await made.patch(resource, name, {"metadata": {"annotations": {CHANGE_BUDGET: budget}}}, namespace)

        machine = await without_node(made)
        await allow(text)
        await made.settle(900)
        assert await made.find(capi.MACHINES, machine, FLEET) is not None
        said = [each for each in (await made.client.list(EVENTS, FLEET))["items"] if each["reason"] == "ChangeBudget"]
        assert [each["involvedObject"]["name"] for each in said] == [machine]
        await allow("delete=1,drain=1")
        await made.settle(30)
        assert await made.find(capi.MACHINES, machine, FLEET) is None
