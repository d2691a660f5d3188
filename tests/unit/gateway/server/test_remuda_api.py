"""What controllers wait for, told to who may read the cluster: only what is about it, and without secrets."""

from __future__ import annotations

import json

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.replicas.leadership import LEASE, LEASE_NAMESPACE
from remuda.capi.well_known import CLUSTER_NAME
from remuda.gateway.server.remuda_api import SNAPSHOTS, ClusterObjects, Snapshots, Versions, Waits
from remuda.kube.builtin_resources import CRDS, LEASES
from remuda.kube.objects import Key
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime.webhook_server import VALIDATING
from tests.unit.gateway.explain.test_explanations import AsItself
from tests.unit.gateway.registration.waiting_hosts import hosted
from tests.unit.provisioning.rke_machines import DEMO, FLEET

PATH = "/v1-remuda/waits"
PLANE = Ref("rke.cattle.io", "RKEControlPlane", FLEET, DEMO)
MACHINE = Ref("cluster.x-k8s.io", "Machine", FLEET, "m1")
OURS = ClusterObjects(Key(FLEET, DEMO), "c-m-bcdfg245", {MACHINE, Ref("rke.cattle.io", "RKEBootstrap", FLEET, "m1-boot")})


@pytest.mark.parametrize(
    "ref",
    [
        PLANE,
        MACHINE,
        Ref("provisioning.cattle.io", "Cluster", FLEET, DEMO),
        Ref("cluster.x-k8s.io", "Cluster", FLEET, DEMO),
        Ref("rke.cattle.io", "RKEBootstrap", FLEET, "m1-boot"),
        Ref("management.cattle.io", "Cluster", "", "c-m-bcdfg245"),
        Ref("management.cattle.io", "ClusterRegistrationToken", "c-m-bcdfg245", "node-token"),
    ],
)
def test_what_belongs_to_a_cluster(ref: Ref) -> None:
    assert OURS.holds(ref)


@pytest.mark.parametrize(
    "ref",
    [
        Ref("rke.cattle.io", "RKEControlPlane", FLEET, "m1"),  # another cluster may be called as a machine of this one
        Ref("cluster.x-k8s.io", "Machine", FLEET, DEMO),
        Ref("cluster.x-k8s.io", "Machine", "fleet-other", "m1"),
        Ref("rke.cattle.io", "RKEControlPlane", "fleet-other", DEMO),
        Ref("", "Secret", FLEET, DEMO),
        Ref("management.cattle.io", "Cluster", "", "c-m-other"),
    ],
)
def test_what_does_not(ref: Ref) -> None:
    assert not OURS.holds(ref)
    assert not ClusterObjects(Key(FLEET, DEMO), "").holds(Ref("management.cattle.io", "Cluster", "", ""))


JOB = Ref("batch", "Job", FLEET, "m1-machine-provision")
INFRA = Ref("rke-machine.cattle.io", "PodMachine", FLEET, "m1")
SCHEMA = Ref("management.cattle.io", "DynamicSchema", "", "podconfig")
DRIVER = Ref("management.cattle.io", "NodeDriver", "", "pod")
CLUSTER = Ref("provisioning.cattle.io", "Cluster", FLEET, DEMO)


def test_waits_of_shared_objects_come_with_the_waits_for_them() -> None:
    ours = ClusterObjects(Key(FLEET, DEMO), "", {MACHINE, INFRA})
    chain = [
        Wait(Code.CONTENT, DRIVER, Actor.USER),
        Wait(Code.CONTENT, SCHEMA, Actor.USER, DRIVER),
        Wait(Code.REFERENCE, CLUSTER, Actor.USER, SCHEMA),
        Wait(Code.PROVISIONING, INFRA, Actor.PROVIDER, JOB),
        Wait(Code.TURN, JOB, Actor.REMUDA),
    ]
    assert ours.among(chain) == chain
    # Without a wait of the cluster for them they are not the cluster's.
    assert ours.among([chain[0], chain[1], chain[4]]) == []


@pytest.mark.parametrize(
    "on",
    [
        Ref("batch", "Job", "fleet-other", "m1-machine-provision"),
        Ref("", "Secret", FLEET, "credential"),
        Ref("provisioning.cattle.io", "Cluster", FLEET, "other"),
        Ref("cluster.x-k8s.io", "Machine", FLEET, "other"),
    ],
)
def test_a_wait_for_anything_else_opens_nothing(on: Ref) -> None:
    ours = ClusterObjects(Key(FLEET, DEMO), "")
    waits = [Wait(Code.REFERENCE, CLUSTER, Actor.USER, on), Wait(Code.CONTENT, on, Actor.USER, None, "of another tenant")]
    assert ours.among(waits) == waits[:1]


async def test_a_wait_because_of_a_webhook_is_on_its_configuration() -> None:
    async with hosted() as place:
        waits = Waits(place.services)
        await place.wanted()
        client = {"url": "https://127.0.0.1:1/"}
        hook = {
            "name": "v.example.com",
            "clientConfig": client,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}],
        }
        configuration = {
            "apiVersion": f"{VALIDATING.group}/{VALIDATING.version}",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "policies"},
            "webhooks": [hook],
        }
        await place.made.create(VALIDATING, configuration)
        failed = 'Internal error occurred: failed calling webhook "v.example.com": connection refused'
        waits.follow(lambda: [Wait(Code.FAILED, PLANE, Actor.USER, None, failed)])
        (found,) = await waits.about(Key(FLEET, DEMO))
        assert found.on == Ref(VALIDATING.group, "ValidatingWebhookConfiguration", "", "policies")


async def test_a_wait_because_of_a_conversion_webhook_is_on_the_definition() -> None:
    async with hosted() as place:
        waits = Waits(place.services)
        await place.wanted()
        failed = "conversion webhook for cluster.x-k8s.io/v1beta2, Kind=Machine failed: connection refused"
        waits.follow(lambda: [Wait(Code.FAILED, PLANE, Actor.USER, None, failed)])
        (found,) = await waits.about(Key(FLEET, DEMO))
        assert found.on == Ref(CRDS.group, "CustomResourceDefinition", "", "machines.cluster.x-k8s.io")


async def test_pools_belong_to_their_cluster() -> None:
    async with hosted() as place:
        waits = Waits(place.services)
        await place.wanted()
        for cluster in (DEMO, "other"):
            infrastructure = {"apiGroup": "rke-machine.cattle.io", "kind": "PodMachineTemplate", "name": "pool"}
            spec = {"clusterName": cluster, "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": infrastructure}
            template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
            await place.made.create(
                capi.MACHINE_DEPLOYMENTS,
                {
                    "apiVersion": capi.API_VERSION,
                    "kind": "MachineDeployment",
                    "metadata": {"name": f"{cluster}-pool", "namespace": FLEET, "labels": {CLUSTER_NAME: cluster}},
                    "spec": {"clusterName": cluster, "selector": {"matchLabels": {"a": "b"}}, "template": template},
                },
            )
        told = [
            Wait(Code.REFERENCE, Ref(capi.GROUP, "MachineDeployment", FLEET, f"{cluster}-pool"), Actor.USER)
            for cluster in (DEMO, "other")
        ]
        waits.follow(lambda: told)
        assert await waits.about(Key(FLEET, DEMO)) == told[:1]


async def test_who_may_read_a_cluster_reads_what_it_waits_for() -> None:
    async with hosted() as place:
        waits = Waits(place.services)
        await place.wanted()
        await place.made.machine("m1")
        token = "b" * 54
        said = [
            Wait(Code.CHECK_IN, MACHINE, Actor.USER, None, f"token {token}", "2026-01-01T00:00:00Z"),
            Wait(Code.TIER, PLANE, Actor.REMUDA, MACHINE, "configuring etcd node(s) m1"),
            Wait(Code.ROLES, Ref("rke.cattle.io", "RKEControlPlane", FLEET, "other"), Actor.USER),
        ]
        query = f"{PATH}?cluster={FLEET}/{DEMO}"
        assert json.loads((await place.ask(query, user="ann"))[1]) == {
            "cluster": f"{FLEET}/{DEMO}",
            "complete": False,
            "waits": [],
        }
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": LEASE_NAMESPACE},
        }
        await place.made.create(LEASES, {**lease, "spec": {"holderIdentity": "host_7_5e3f"}})
        assert json.loads((await place.ask(query, user="ann"))[1])["leader"] == "host_7"
        stop = waits.follow(lambda: said)
        # Of a manager that was told of twice each is there once.
        waits.follow(lambda: said)
        status, body = await place.ask(query, user="ann")
        found = json.loads(body)
        assert status == 200 and found["complete"] and "leader" not in found and token.encode() not in body
        assert [(each["code"], each["actor"], each["subject"]["name"]) for each in found["waits"]] == [
            ("CheckIn", "user", "m1"),
            ("Tier", "remuda", DEMO),
        ]
        assert found["waits"][1]["on"] == {"group": "cluster.x-k8s.io", "kind": "Machine", "namespace": FLEET, "name": "m1"}
        assert found["waits"][0]["since"] == "2026-01-01T00:00:00Z"
        action = place.access.actions[-1]
        assert (action.verb, action.group, action.resource, action.namespace, action.name) == (
            "get",
            "provisioning.cattle.io",
            "clusters",
            FLEET,
            DEMO,
        )
        stop()
        place.access.answer = False
        assert (await place.ask(query, user="eve"))[0] == 403


@pytest.mark.parametrize("query", ["", "?cluster=", "?cluster=demo", "?cluster=a/b/c", "?cluster=/b"])
async def test_who_asks_says_which_cluster(query: str) -> None:
    async with hosted() as place:
        Waits(place.services)
        assert (await place.ask(PATH + query, user="ann"))[0] == 400


async def test_a_cluster_that_is_not_there_is_not_found() -> None:
    async with hosted() as place:
        Waits(place.services)
        assert (await place.ask(f"{PATH}?cluster={FLEET}/nope", user="ann"))[0] == 404


async def test_every_user_reads_the_versions_that_a_cluster_can_have() -> None:
    async with hosted() as place:
        Versions(place.services)
        status, body = await place.ask("/v1-remuda/versions", user="ann")
        found = json.loads(body)["versions"]
        assert status == 200 and set(found) == {"k3s", "rke2", "remuda"} and "v1.34.1+remuda1" in found["remuda"]


async def test_the_files_of_one_backup_are_one_snapshot_of_its_cluster() -> None:
    async with hosted() as place:
        place.services.acting = AsItself(place.made.client)
        Snapshots(place.services)
        for number, (cluster, node) in enumerate([(DEMO, "a"), (DEMO, "b"), ("other", "c")]):
            await place.made.create(
                rke.ETCD_SNAPSHOTS,
                {
                    "apiVersion": "rke.cattle.io/v1",
                    "kind": "ETCDSnapshot",
                    "metadata": {"name": f"s{number}", "namespace": FLEET, "labels": {CLUSTER_NAME: cluster}},
                    "spec": {"clusterName": cluster},
                    "snapshotFile": {"name": f"on-demand-{node}-1767225600", "nodeName": node, "location": f"file:///{node}"},
                },
            )
        found = json.loads((await place.ask(f"{SNAPSHOTS}?cluster={FLEET}/{DEMO}", user="ann"))[1])["snapshots"]
        assert [(each["cluster"], [copy["name"] for copy in each["copies"]]) for each in found] == [(DEMO, ["s0", "s1"])]
        place.services.acting = None
        assert (await place.ask(f"{SNAPSHOTS}?cluster={FLEET}/{DEMO}", user="ann"))[0] == 503
