"""Hosts at the door: what each kind of token lets in, what a host gets for it, and what it never gets."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.encoding import yamlio
from remuda.kube.objects import annotations_of, labels_of
from remuda.provisioning.nodes.machine_request import request_secret
from remuda.provisioning.plans.plan import File, Plan, encode
from remuda.provisioning.well_known import MACHINE_ID, REGISTER_AGAIN, REQUEST_TYPE, plan_name, request_name
from tests.unit.access.management_api import CA, URL
from tests.unit.provisioning.rke_machines import FLEET

from .waiting_hosts import ID, NODE, OTHER, OWN, Hosted, hosted, token_in


async def test_a_host_with_the_token_for_nodes_becomes_a_machine_and_gets_its_plan() -> None:
    async with hosted() as place:
        await place.wanted()
        status, body = await place.register(Node_Name="Web-1", Role_Etcd="true", Labels="color=red", Address="10.1.2.3")
        assert status == 200, body
        told = json.loads(body)
        name = request_name(ID)
        assert list(told) == ["kubeConfig", "namespace", "secretName"]
        assert (told["namespace"], told["secretName"]) == (FLEET, plan_name(name))
        assert body.startswith(b'{\n  "kubeConfig": "apiVersion: v1\\nclusters:\\n- cluster:\\n    certificate-authority-data: ')
        config = yamlio.loads(told["kubeConfig"])
        cluster = config["clusters"][0]["cluster"]
        assert cluster["server"] == URL and base64.b64decode(cluster["certificate-authority-data"]).decode() == CA
        assert config["current-context"] == "agent" and config["users"][0]["user"]["token"] == token_in(body)
        machine = await place.made.get(capi.MACHINES, name, FLEET)
        marks = labels_of(machine)
        assert (marks[MACHINE_ID], marks["rke.cattle.io/node-name"], marks["color"]) == (ID, "web-1", "red")
        assert marks["rke.cattle.io/etcd-role"] == marks["rke.cattle.io/worker-role"] == "true"
        assert place.asked[-1].cluster == place.cluster
        assert await place.made.find(SECRETS, name, place.cluster) is None, "the request is taken away"


async def test_a_host_that_a_machine_waits_for_gets_its_plan_and_tells_where_it_lives() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.made.machine("m1")
        await place.made.settle(5)
        status, body = await place.come("m1", Layout='{"root":"/srv/h1","loopback":"127.0.4.1"}')
        assert status == 200 and json.loads(body)["secretName"] == plan_name("m1")
        assert labels_of(await place.made.get(capi.MACHINES, "m1", FLEET))[MACHINE_ID] == ID
        said = annotations_of(await place.made.get(rke.RKE_BOOTSTRAPS, "m1", FLEET))["remuda.dev/layout"]
        assert json.loads(said) == {"root": "/srv/h1", "loopback": "127.0.4.1"}


async def test_a_host_that_lives_nowhere_may_say_it_again() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.made.machine("m1")
        await place.made.settle(5)
        assert (await place.come("m1", Layout='{"root":"/a/../b"}'))[0] == 400
        assert MACHINE_ID not in labels_of(await place.made.get(capi.MACHINES, "m1", FLEET))
        assert (await place.come("m1", OTHER))[0] == 200


async def test_a_script_is_for_one_host_and_ends_with_its_first_act() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.made.machine("m1")
        await place.made.settle(5)
        status, answer = await place.come("m1")
        assert status == 200
        assert await place.come("m1", OTHER) == (401, b"the machine is another host already")
        await place.made.settle(600)
        assert await place.come("m1") == (200, answer), "the host asks again, not having heard: the same answer"
        await place.act(token_in(answer))
        ended = (401, b"the token was for one registration, and its host has begun to work")
        assert await place.come("m1") == ended
        assert await place.come("m1", **{"Plan-Token": "wrong"}) == ended
        assert await place.come("m1", **{"Plan-Token": token_in(answer)}) == (200, answer), "it runs its script again"


async def test_a_script_that_was_not_used_in_time_lets_no_host_in() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.made.machine("m1")
        await place.made.settle(1900)
        assert await place.come("m1") == (401, b"the token has expired")
        assert MACHINE_ID not in labels_of(await place.made.get(capi.MACHINES, "m1", FLEET))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {NODE}"},
        {"X-Cattle-Id": ID},
        {"X-Cattle-Id": ID, "Authorization": f"Basic {NODE}"},
        {"X-Cattle-Id": ID, "Authorization": "Bearer "},
        {"X-Cattle-Id": ID, "Authorization": f"Bearer {NODE[:-1]}"},
        {"X-Cattle-Id": ID, "Authorization": f"Bearer {OWN}"},
        {"X-Cattle-Id": ID, "Cookie": f"R_SESS={NODE}"},
        [("X-Cattle-Id", ID), ("Authorization", f"Bearer {NODE}"), ("Authorization", f"Bearer {NODE}")],
    ],
)
async def test_registration_needs_a_token_for_nodes_and_an_id(headers: dict[str, str]) -> None:
    async with hosted() as place:
        await place.wanted()
        status, body = await place.ask("/v3/connect/agent", headers)
        assert status == 401 and NODE.encode() not in body and OWN.encode() not in body
        assert NODE not in place.asked[-1].why and OWN not in place.asked[-1].why
        assert await place.made.list(capi.MACHINES, FLEET) == []


@pytest.mark.parametrize("machine_id", ["a/b", "a" * 64, "-a", "ä"])
async def test_an_id_must_be_one(machine_id: str) -> None:
    async with hosted() as place:
        await place.wanted()
        headers = {"X-Cattle-Id": machine_id, "Authorization": f"Bearer {NODE}"}
        assert (await place.ask("/v3/connect/agent", headers))[0] == 400


async def test_a_host_is_told_why_it_is_refused() -> None:
    async with hosted() as place:
        await place.wanted()
        status, body = await place.register(Role_Worker="false")
        assert status == 403 and b"asks for no role" in body
        assert await place.made.find(SECRETS, request_name(ID), place.cluster) is None


async def test_words_that_can_not_be_kept_are_refused() -> None:
    async with hosted() as place:
        await place.wanted()
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Id": ID}
        assert (await place.ask("/v3/connect/agent", {**headers, "X-Cattle-Labels": "a" * (64 << 10)}))[0] == 400
        assert (await place.ask("/v3/connect/agent", {**headers, "X-Cattle-Address": "a\x07b"}))[0] == 400


async def used(place: Hosted, machine_id: str = ID) -> str:
    """A host that came and works; its plan's token."""
    status, body = await place.register(machine_id)
    assert status == 200, body
    await place.made.answer(request_name(machine_id), plan_revision="1")
    await place.made.settle(1)
    return token_in(body)


async def test_the_id_of_a_host_is_not_enough_to_register_as_it() -> None:
    async with hosted() as place:
        await place.wanted()
        token = await used(place)
        status, body = await place.register()
        assert status == 403 and b"registered already" in body and token.encode() not in body
        assert (await place.register(Plan_Token="wrong"))[0] == 403
        assert (await place.register(Plan_Token=token))[0] == 200
        await place.made.patch(capi.MACHINES, request_name(ID), {"metadata": {"annotations": {REGISTER_AGAIN: "true"}}}, FLEET)
        assert (await place.register())[0] == 200
        assert (await place.register())[0] == 403


async def test_the_plan_token_of_a_machine_elsewhere_is_none_of_this_one() -> None:
    """Somebody with a cluster of their own can make a host of any id there."""
    async with hosted() as place:
        await place.wanted()
        await used(place)
        await place.wanted("theirs", "x" * 54, "y" * 54)
        await place.made.machine("m1", "theirs")
        await place.made.settle(5)
        status, body = await place.come("m1", ID)
        assert status == 200
        assert (await place.register(Plan_Token=token_in(body)))[0] == 403


async def test_of_two_that_say_the_same_id_at_once_one_waits() -> None:
    async with hosted() as place:
        await place.wanted()
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Id": ID, "X-Cattle-Role-Worker": "true"}
        both = asyncio.gather(*(place.ask("/v3/connect/agent", headers) for _ in range(2)))
        await place.made.settle(2)
        await place.adopt(request_name(ID))
        await place.made.settle(5)
        assert sorted(status for status, _ in await both) == [200, 503]


async def test_a_host_whose_machine_does_not_come_is_told_to_come_again() -> None:
    async with hosted() as place:
        await place.wanted()
        for parts in place.made.lives:
            await parts.stop()
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Id": ID, "X-Cattle-Role-Worker": "true"}
        asking = asyncio.create_task(place.ask("/v3/connect/agent", headers))
        await place.made.settle(125)
        assert (await asking)[0] == 503
        assert await place.made.find(SECRETS, request_name(ID), place.cluster) is None


async def test_an_answer_without_a_waiting_request_is_dropped() -> None:
    async with hosted() as place:
        await place.wanted()
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Id": ID, "X-Cattle-Role-Worker": "true"}
        await place.made.create(SECRETS, request_secret(place.cluster, {"id": [ID], "role-etcd": ["true"]}))
        await place.made.settle(2)
        assert (await place.ask("/v3/connect/agent", headers))[0] == 503
        assert (await place.register())[0] == 200


async def test_trying_tokens_ends_soon_and_is_forgotten_later() -> None:
    async with hosted() as place:
        await place.wanted()
        headers = {"X-Cattle-Id": ID, "Authorization": "Bearer wrong"}
        seen = [(await place.ask("/v3/connect/agent", headers))[0] for _ in range(110)]
        assert seen[:100] == [401] * 100 and seen[-1] == 429
        assert (await place.ask("/v3/connect/agent", headers, address="10.0.0.8"))[0] == 401
        await place.made.settle(30)
        assert (await place.register())[0] == 200


async def test_a_host_reads_its_configuration_with_its_own_token_only() -> None:
    async with hosted() as place:
        await place.wanted()
        token, other = await used(place), await used(place, OTHER)
        path, headers = "/v3/connect/config-yaml", {"X-Cattle-Id": ID, "Authorization": f"Bearer {token}"}
        assert (await place.ask(path, headers))[0] == 404
        plan = Plan(files=(File.of("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", '{"token":"x"}'),))
        await place.made.give_plan(request_name(ID), encode(plan))
        assert await place.ask(path, headers) == (200, b'{"token":"x"}')
        for wrong in (other, NODE, "x"):
            assert (await place.ask(path, {**headers, "Authorization": f"Bearer {wrong}"}))[0] == 401


async def test_a_host_may_ask_for_the_version_of_its_cluster() -> None:
    async with hosted() as place:
        await place.wanted()
        token = await used(place)
        path = "/v3/connect/cluster-info"
        for shown in (token, NODE):
            headers = {"X-Cattle-Id": ID, "Authorization": f"Bearer {shown}", "X-Cattle-Field": "kubernetesversion"}
            assert await place.ask(path, headers) == (200, b'{"kubernetesversion":"v1.34.1+rke2r1"}')
            assert (await place.ask(path, {**headers, "X-Cattle-Field": "token"}))[0] == 400
            assert (await place.ask(path, {**headers, "Authorization": "Bearer x"}))[0] == 401


async def test_a_whole_rack_comes_at_once() -> None:
    async with hosted() as place:
        await place.wanted()
        ids = [f"{number:063d}" for number in range(60)]
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Role-Worker": "true"}
        coming = [asyncio.create_task(place.ask("/v3/connect/agent", {**headers, "X-Cattle-Id": each})) for each in ids]
        await place.made.settle(5)
        for each in ids:
            await place.adopt(request_name(each))
        await place.made.settle(20)
        answers = [await task for task in coming]
        assert [status for status, _ in answers] == [200] * len(ids)
        assert len({token_in(body) for _, body in answers}) == len(ids)
        assert [each for each in await place.made.list(SECRETS, place.cluster) if each["type"] == REQUEST_TYPE] == []


async def test_a_flood_of_new_hosts_is_held_back_for_its_own_cluster_only() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.wanted("other", "x" * 54, "y" * 54)
        for parts in place.made.lives:
            await parts.stop()
        headers = {"Authorization": f"Bearer {NODE}", "X-Cattle-Role-Worker": "true"}
        coming = [
            asyncio.create_task(place.ask("/v3/connect/agent", {**headers, "X-Cattle-Id": f"{number:063d}"}))
            for number in range(300)
        ]
        other = {"Authorization": f"Bearer {'x' * 54}", "X-Cattle-Id": ID, "X-Cattle-Role-Worker": "true"}
        await place.made.settle(1)
        refused = [task.result()[0] for task in coming if task.done()]
        assert refused == [429] * 44, "256 wait"
        waiting = asyncio.create_task(place.ask("/v3/connect/agent", other))
        await place.made.settle(1)
        assert not waiting.done()
        await place.made.settle(125)
        assert {(await task)[0] for task in (*coming, waiting)} == {429, 503}
