"""The controllers die after any write, any write fails, or two of them work at the same time: what comes of it is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from remuda.access.users.tokens import Presented, owns
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key
from remuda.provisioning.cluster.kubeconfig import user_name
from tests.scenarios.soaking import SOAK, dice
from tests.unit.access.management_api import SECRETS, Obj, Parts, World, world

from .mirrored_clusters import FLEET, connect, demo, everything, managed, others

_WRITES = frozenset({"create", "update", "patch", "apply", "delete"})
RKE: Obj = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {}, "agentEnvVars": [{"name": "A", "value": "b"}]}


class Mortal:
    """A client that is cut off after so many writes: the last one is done, but nobody is answered."""

    def __init__(self, client: Client, writes: int | None = None, fails: bool = False) -> None:
        self._client = client
        self._left = writes
        self._fails = fails
        self.written = 0
        self.died = asyncio.Event()
        self.remote = client.remote

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if name not in _WRITES:
            return call

        async def alive(*args: Any, **options: Any) -> Any:
            if self.died.is_set():
                await asyncio.get_running_loop().create_future()
            self.written += 1
            last = self.written == self._left
            if last and self._fails:
                raise ApiError(500, "InternalError", "the store is down")
            answer = await call(*args, **options)
            if last:
                self.died.set()
                await asyncio.get_running_loop().create_future()
            return answer

        return alive


def through(made: World, writes: int | None, fails: bool = False) -> tuple[Parts, Mortal]:
    found: list[Mortal] = []

    def wrap(client: Client) -> Any:
        found.append(Mortal(client, writes, fails))
        return found[0]

    return made.begin(wrap), found[0]


def essence(obj: Obj) -> Obj:
    """Without what differs between any two runs."""
    drop = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
    times = ("lastUpdateTime", "lastTransitionTime")

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(each) for key, each in value.items() if key not in times}
        return [timeless(each) for each in value] if isinstance(value, list) else value

    status = timeless(obj.get("status") or {})
    status["conditions"] = sorted(status.get("conditions") or [], key=lambda each: each["type"])
    return {
        "metadata": {key: value for key, value in obj["metadata"].items() if key not in drop},
        "spec": obj["spec"],
        "status": status,
    }


async def outcome(made: World) -> Obj:
    """Everything about one connected cluster; and that it fits together."""
    name = (await demo(made))["status"]["clusterName"]
    assert [each["metadata"]["name"] for each in await others(made)] == [name], "never two"
    user = user_name(Key(FLEET, "demo"))
    text = await made.secret_text("demo-kubeconfig", FLEET, "token")
    assert owns(await made.get(management.TOKENS, user), Presented(user, text.partition(":")[2]))
    assert len(await made.secret_text("crt-token-default-token", name, "token")) == 54
    assert [each["metadata"]["name"] for each in await made.list(management.USERS)] == [user]
    text = str([essence(await demo(made)), essence(await managed(made))])
    return {"both": text.replace(name, "<id>")}


async def run(made: World, begin: Callable[[], Any], spec: Obj) -> Obj:
    await made.wanted("demo", **spec)
    begin()
    for _ in range(3):
        await made.settle(2)
        if name := ((await demo(made)).get("status") or {}).get("clusterName"):
            await connect(made, name)
            break
    else:
        made.begin()
        await made.settle(2)
        await connect(made, (await demo(made))["status"]["clusterName"])
    await made.settle(2)
    made.begin()
    await made.settle(30)
    return await outcome(made)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """What comes of a cluster when nothing goes wrong, and in how many writes."""

    async def once(spec: Obj) -> tuple[Obj, int]:
        async with world(everything, begin=False) as made:
            found: list[Mortal] = []
            result = await run(made, lambda: found.append(through(made, None)[1]), spec)
            return result, found[0].written

    return {"import": asyncio.run(once({})), "administrated": asyncio.run(once(RKE))}


def sample(what: str, most: int) -> list[int]:
    """One of the writes, or all of them; a failing test shows which."""
    numbers = range(1, most)
    return list(numbers) if SOAK else [dice(what).choice(numbers)]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["import", "administrated"])
@pytest.mark.parametrize("fails", [True, False], ids=["refused", "dead"])
async def test_whichever_write_is_the_last_the_end_is_the_same(kind: str, fails: bool, undisturbed: dict[str, Any]) -> None:
    wanted, writes = undisturbed[kind]
    assert writes > 20
    for number in sample(f"{kind}/{fails}", writes):
        async with world(everything, begin=False) as made:
            spec = RKE if kind == "administrated" else {}
            found = await run(made, partial(through, made, number, fails), spec)
            assert found == wanted, f"write {number}"


@pytest.mark.soak
@pytest.mark.parametrize("side", ["wanted", "managed"])
async def test_a_deletion_that_was_begun_is_finished(side: str) -> None:
    for number in sample(side, 14):
        async with world(everything) as made:
            await made.wanted("demo", **RKE)
            await made.settle(3)
            name = (await demo(made))["status"]["clusterName"]
            await connect(made, name)
            await made.settle(3)
            await made.end()
            parts, _ = through(made, number)
            await made.settle(1)
            if side == "wanted":
                await made.delete(provisioning.CLUSTERS, "demo", FLEET)
            else:
                await made.delete(management.CLUSTERS, name)
            await made.settle(10)
            await parts.stop()
            made.begin()
            await made.settle(60)
            said = f"write {number}"
            assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None, said
            assert await others(made) == [], said
            assert await made.find(NAMESPACES, name) is None, said
            assert await made.list(management.USERS) == await made.list(management.TOKENS) == [], said
            assert await made.find(SECRETS, "demo-kubeconfig", FLEET) is None, said


async def test_two_at_the_same_time_make_one_of_everything() -> None:
    async with world(everything, begin=False) as made:
        for _ in range(3):
            made.begin()
        await made.wanted("demo", **RKE)
        await made.settle(5)
        await connect(made, (await demo(made))["status"]["clusterName"])
        await made.settle(60)
        await outcome(made)
        before = (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"]
        await made.settle(120)
        assert (await made.client.list(NAMESPACES))["metadata"]["resourceVersion"] == before, "and come to rest"
        await made.delete(provisioning.CLUSTERS, "demo", FLEET)
        await made.settle(60)
        assert await made.find(provisioning.CLUSTERS, "demo", FLEET) is None and await others(made) == []
