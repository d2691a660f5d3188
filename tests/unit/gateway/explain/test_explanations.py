"""`/v1-remuda/explain` and `/v1-remuda/attention`: the chain with its advice, read with the caller's own permissions."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from remuda.client.interface import Client
from remuda.gateway.explain.explanations import ATTENTION, EXPLAIN, Explanations
from remuda.gateway.server.remuda_api import Waits
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.waits import Actor, Code, Ref, Wait
from tests.unit.gateway.registration.waiting_hosts import Hosted, hosted
from tests.unit.provisioning.rke_machines import DEMO, FLEET

PLANE = Ref("rke.cattle.io", "RKEControlPlane", FLEET, DEMO)
MACHINE = Ref("cluster.x-k8s.io", "Machine", FLEET, "m1")


@dataclass
class AsItself:
    """Every user has the permissions of this client."""

    own: Client
    rbac: Rbac | None = None

    def client(self, user: User) -> Client:
        return self.own


def explaining(place: Hosted) -> Waits:
    place.services.acting = AsItself(place.made.client)
    waits = Waits(place.services)
    Explanations(place.services, waits, place.progress)
    return waits


async def test_a_chain_comes_with_its_advice() -> None:
    async with hosted() as place:
        waits = explaining(place)
        await place.wanted()
        await place.made.machine("m1")
        waits.follow(
            lambda: [
                Wait(Code.TIER, PLANE, Actor.REMUDA, MACHINE, "configuring etcd node(s) m1"),
                Wait(Code.CHECK_IN, MACHINE, Actor.USER, None, f"never came, token {'b' * 54}", "2026-01-01T00:00:00Z"),
            ]
        )
        status, body = await place.ask(f"{EXPLAIN}?cluster={FLEET}/{DEMO}", user="ann")
        found = json.loads(body)
        assert status == 200 and found["complete"] and b"b" * 54 not in body
        (first,) = (each for each in found["waits"] if each["subject"]["kind"] == "RKEControlPlane")
        (below,) = first["waits"]
        assert below["code"] == "CheckIn" and below["advice"] and below["evidence"][-1] == "host: no recent output"
        assert any("m1: " in each["text"] for each in found["toDo"])

        found = json.loads((await place.ask(ATTENTION, user="ann"))[1])
        assert (found["clusters"], found["unsettled"], found["unexplained"]) == (1, 1, 0)
        assert [(each["code"], each["cases"][0]["cluster"]["name"]) for each in found["problems"]] == [("CheckIn", DEMO)]


async def test_without_the_controllers_it_says_so() -> None:
    async with hosted() as place:
        explaining(place)
        await place.wanted()
        assert json.loads((await place.ask(f"{EXPLAIN}?cluster={FLEET}/{DEMO}", user="ann"))[1])["complete"] is False


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?cluster=demo", 400), ("?cluster=a/b/c", 400), ("?cluster=a/b", 404)])
async def test_which_cluster_is_asked_for(query: str, status: int) -> None:
    async with hosted() as place:
        explaining(place)
        assert (await place.ask(EXPLAIN + query, user="ann"))[0] == status


async def test_a_gateway_that_can_not_act_for_its_users_says_so() -> None:
    async with hosted() as place:
        Explanations(place.services, Waits(place.services), place.progress)
        assert (await place.ask(ATTENTION, user="ann"))[0] == 503
