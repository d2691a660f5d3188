"""What controllers wait for, told to who may read the cluster: only what is about it, and without secrets."""

from __future__ import annotations

import json

import pytest

from remuda.apiserver.replicas.leadership import LEASE, LEASE_NAMESPACE
from remuda.gateway.server.waits_api import ClusterObjects, Waits
from remuda.kube.builtin_resources import LEASES
from remuda.kube.objects import Key
from remuda.kube.waits import Actor, Code, Ref, Wait
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
