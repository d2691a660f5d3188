"""What hosts say while they work: from whom it is taken, what is kept of it, and who may read it."""

from __future__ import annotations

import asyncio
import json

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.gateway.registration.node_progress import KEPT_SECONDS, LONGEST, MOST_LINES, Rings, clean
from remuda.kube.authorization.actions import Action
from remuda.kube.builtin_resources import NAMESPACES, SECRETS
from remuda.kube.clock import VirtualClock
from remuda.kube.objects import Key, name_of
from remuda.provisioning.well_known import request_name
from tests.unit.provisioning.rke_machines import DEMO, FLEET

from .waiting_hosts import ID, NODE, OTHER, OWN, hosted, token_in

PATH = "/v3/connect/progress"
M1, M2 = Key(FLEET, "m1"), Key(FLEET, "m2")


async def test_progress_of_a_host_is_for_users_who_may_read_its_machine() -> None:
    async with hosted() as place:
        await place.wanted()
        name = request_name(ID)
        token = token_in((await place.register())[1])
        bearer = {"Authorization": f"Bearer {token}"}
        lines = ["[abc_0:stdout]: installing", f"token is {token}", f"joined with {NODE}"]
        assert (await place.ask(PATH, bearer, "POST", {"lines": lines}))[0] == 200
        status, body = await place.ask(f"{PATH}?machine={FLEET}/{name}", user="ann")
        assert status == 200 and token.encode() not in body and NODE.encode() not in body
        told = json.loads(body)["lines"]
        first = told[0]["number"]
        assert [line["number"] for line in told] == [first, first + 1, first + 2]
        assert told[0]["text"] == "[abc_0:stdout]: installing"
        action = place.access.actions[-1]
        assert (action.user.name, action.verb, action.resource, action.namespace, action.name) == (
            "ann",
            "get",
            "machines",
            FLEET,
            name,
        )
        body = (await place.ask(f"{PATH}?machine={FLEET}/{name}&after={first + 1}", user="ann"))[1]
        assert [line["number"] for line in json.loads(body)["lines"]] == [first + 2]
        body = (await place.ask(f"{PATH}?cluster={FLEET}/{DEMO}", user="ann"))[1]
        assert list(json.loads(body)["machines"]) == [name]
        place.access.answer = False
        for query in (f"machine={FLEET}/{name}", f"cluster={FLEET}/{DEMO}"):
            assert (await place.ask(f"{PATH}?{query}", user="eve"))[0] == 403


async def test_members_of_a_cluster_read_what_its_hosts_say_by_their_names() -> None:
    async with hosted() as place:
        place.progress.rings.add(M1, DEMO, ["one"])
        place.progress.rings.add(M2, DEMO, ["two"])

        async def allowed(action: Action) -> bool:
            return action.verb == "get" and action.name == "m1"

        place.access.allowed = allowed  # type: ignore[method-assign]
        body = (await place.ask(f"{PATH}?cluster={FLEET}/{DEMO}", user="ann"))[1]
        assert list(json.loads(body)["machines"]) == ["m1"]


async def test_nothing_of_it_is_stored() -> None:
    async with hosted() as place:
        await place.wanted()
        token = token_in((await place.register())[1])
        await place.made.settle(40)
        before = [each["metadata"]["resourceVersion"] for each in await place.made.list(SECRETS)]
        await place.ask(PATH, {"Authorization": f"Bearer {token}"}, "POST", {"lines": ["a"]})
        await place.made.settle(5)
        assert [each["metadata"]["resourceVersion"] for each in await place.made.list(SECRETS)] == before


async def test_only_hosts_speak() -> None:
    async with hosted() as place:
        await place.wanted()
        await place.made.machine("m1")
        await place.made.settle(5)
        for token in ("", "x", NODE, OWN, await place.script_token("m1")):
            assert (await place.ask(PATH, {"Authorization": f"Bearer {token}"}, "POST", {"lines": ["a"]}))[0] == 401
        assert len(place.progress.rings) == 0


async def test_a_host_speaks_for_itself_only_and_not_too_much() -> None:
    async with hosted() as place:
        await place.wanted()
        one = token_in((await place.register(ID))[1])
        two = token_in((await place.register(OTHER))[1])
        for token, text in ((one, "one"), (two, "two")):
            await place.ask(PATH, {"Authorization": f"Bearer {token}"}, "POST", {"lines": [text], "machine": "m1"})
        found = [place.progress.rings.of_machine(Key(FLEET, request_name(each))) for each in (ID, OTHER)]
        assert [[line.text for line in lines] for lines in found] == [["one"], ["two"]]
        bearer = {"Authorization": f"Bearer {one}"}
        wrong: list[object] = [{"lines": "x"}, {"lines": [1]}, {}, []]
        for body in wrong:
            assert (await place.ask(PATH, bearer, "POST", body))[0] == 400
        seen = [(await place.ask(PATH, bearer, "POST", {"lines": ["x"]}))[0] for _ in range(40)]
        assert seen[0] == 200 and seen[-1] == 429


async def test_the_host_of_a_deleted_machine_is_told_so() -> None:
    async with hosted() as place:
        running = [asyncio.create_task(each()) for each in place.services.beside]
        await place.made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}})
        await place.wanted()
        bearer = {"Authorization": f"Bearer {token_in((await place.register(ID))[1])}"}
        assert (await place.ask(PATH, bearer, "POST", {"lines": []}))[0] == 200
        client = place.made.client
        for kind in (capi.MACHINES, rke.RKE_BOOTSTRAPS):
            for each in await place.made.list(kind, FLEET):
                await client.patch(kind, name_of(each), {"metadata": {"finalizers": None}}, FLEET)
                await client.delete(kind, name_of(each), FLEET)
        await place.made.settle(60)
        assert (await place.ask(PATH, bearer, "POST", {"lines": []})) == (410, b"the machine of this host was deleted")
        assert (await place.ask(PATH, {"Authorization": "Bearer " + "z" * 54}, "POST", {"lines": []}))[0] == 401
        for each in running:
            each.cancel()


@pytest.mark.parametrize("query", ["", "?machine=m1", "?machine=a/b/c", "?machine=/b", "?cluster=", "?machine=a/b&after=-1"])
async def test_who_reads_says_what(query: str) -> None:
    async with hosted() as place:
        assert (await place.ask(PATH + query, user="ann"))[0] == 400


# --- what is kept -------------------------------------------------------------------------------------------------------


def test_a_line_is_one_line_without_what_a_terminal_would_obey() -> None:
    assert clean("\x1b[31mred\x1b[0m\tand\x07 bell\n") == "red and\N{REPLACEMENT CHARACTER} bell"
    assert clean("\x1b]0;title") == "0;title"
    assert len(clean("x " * LONGEST)) == LONGEST
    assert clean("Authorization: Bearer abc.def") == "Authorization: Bearer [hidden]"


def test_the_last_lines_are_kept_for_a_while() -> None:
    clock = VirtualClock()
    rings = Rings(clock)
    rings.add(M1, DEMO, (str(number) for number in range(MOST_LINES + 50)))
    assert [line.text for line in rings.of_machine(M1)][:1] == ["50"]
    assert len(rings.of_machine(M1)) == MOST_LINES and rings.of_machine(M1)[-1].text == str(MOST_LINES + 49)


async def test_silent_machines_are_forgotten_and_make_room() -> None:
    clock = VirtualClock()
    rings = Rings(clock, most=100)
    rings.add(M1, DEMO, ["a" * 60])
    rings.add(M2, DEMO, ["b" * 60])
    assert rings.of_machine(M1) == [] and len(rings) == 60
    await clock.advance(KEPT_SECONDS + 1)
    rings.add(M1, DEMO, ["c"])
    assert rings.of_machine(M2) == [] and len(rings) == 1
    assert rings.of_cluster(FLEET, "other") == {} and list(rings.of_cluster(FLEET, DEMO)) == ["m1"]
