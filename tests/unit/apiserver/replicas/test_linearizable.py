"""Random calls through servers that are held back at random, beside one plain server that is asked the same in the same order.

One call after the other: then what each must answer is determined, whichever server it goes through and however late that is.
Many at once: then it is not, but what is left must be what some order of them leaves, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import APPLY_PATCH, JSON_PATCH
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import with_metadata
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map

from .sharing import NAMESPACES, Line, Obj, namespace, replicas

_NAMES = ("a", "b", "c")
_NAMESPACES = ("default", "other")


class Memory:
    """What a client has seen of the objects, at one of the two installations: their identities differ, their places don't."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], list[Obj]] = {}

    def note(self, obj: Obj) -> None:
        meta = obj.get("metadata") or {}
        if meta.get("resourceVersion") and obj.get("kind") == "ConfigMap":
            known = self.seen.setdefault((meta["namespace"], meta["name"]), [])
            if not known or known[-1]["metadata"]["resourceVersion"] != meta["resourceVersion"]:
                known.append(obj)

    def recall(self, place: tuple[str, str], back: int) -> Obj | None:
        known = self.seen.get(place, [])
        return known[-1 - back] if len(known) > back else None


def choose(chance: random.Random) -> Callable[[InProcessClient, Memory], Awaitable[Any]]:
    """One call, to be made at both; everything random about it is decided here."""
    name, place = chance.choice(_NAMES), chance.choice(_NAMESPACES)
    value, back = str(chance.randrange(3)), chance.randrange(3)
    kind = chance.randrange(16)
    finalizers = ["x/y"] if chance.random() < 0.3 else None
    obj = config_map(name, place, n=value)

    async def call(client: InProcessClient, memory: Memory) -> Any:
        known = memory.recall((place, name), back) or obj
        meta = known["metadata"]
        match kind:
            case 0 | 1:
                return await client.create(CONFIG_MAPS, with_metadata(obj, finalizers=finalizers) if finalizers else obj)
            case 2:
                return await client.update(CONFIG_MAPS, obj)
            case 3 | 4:
                return await client.update(CONFIG_MAPS, {**known, "data": {"n": value}})
            case 5:
                return await client.patch(CONFIG_MAPS, name, {"data": {"n": value}}, place)
            case 6:
                steps = [{"op": "test", "path": "/data/n", "value": value}, {"op": "replace", "path": "/data/n", "value": "9"}]
                return await client.patch(CONFIG_MAPS, name, steps, place, patch_type=JSON_PATCH)
            case 7:
                return await client.patch(
                    CONFIG_MAPS, name, obj, place, patch_type=APPLY_PATCH, field_manager=f"m{back}", force=back == 0
                )
            case 8:
                return await client.patch(CONFIG_MAPS, name, {"metadata": {"finalizers": finalizers}}, place)
            case 9:
                return await client.delete(CONFIG_MAPS, name, place)
            case 10:
                return await client.delete(CONFIG_MAPS, name, place, uid=meta.get("uid", ""))
            case 11:
                version = meta.get("resourceVersion", "")
                return await client.delete(CONFIG_MAPS, name, place, resource_version=version)
            case 12:
                return await client.get(CONFIG_MAPS, name, place)
            case 13:
                return await client.list(CONFIG_MAPS, place, limit=back)
            case 14:
                return await client.update(CONFIG_MAPS, obj, dry_run=True)
            case _:
                if back:
                    return await client.delete_collection(CONFIG_MAPS, place)
                return await _another_namespace(client)

    return call


async def _another_namespace(client: InProcessClient) -> Any:
    """`other` goes, with all that is in it, or comes back."""
    try:
        dying = await client.delete(NAMESPACES, "other")
    except ApiError as error:
        assert error.is_not_found
        return await client.create(NAMESPACES, namespace("other"))
    for item in (await client.list(CONFIG_MAPS, "other"))["items"]:
        name = item["metadata"]["name"]
        await client.patch(CONFIG_MAPS, name, {"metadata": {"finalizers": None}}, "other")
        if not item["metadata"].get("deletionTimestamp"):
            await client.delete(CONFIG_MAPS, name, "other")
    return await client.update(NAMESPACES, {**dying, "spec": {"finalizers": []}}, subresource="finalize")


class Plain:
    """An answer without what two installations can't have in common: identities, revisions, and texts that name them."""

    def __init__(self) -> None:
        self._uids: dict[str, int] = {}

    def _of(self, obj: Any) -> Any:
        if isinstance(obj, list):
            return [self._of(each) for each in obj]
        if not isinstance(obj, dict):
            return obj
        return {key: self._value(key, value) for key, value in obj.items() if key not in ("resourceVersion", "continue")}

    def _value(self, key: str, value: Any) -> Any:
        return self._uids.setdefault(value, len(self._uids)) if key == "uid" else self._of(value)

    async def answer(self, work: Awaitable[Any], memory: Memory) -> Any:
        try:
            found = await work
        except ApiError as error:
            names = ("ResourceVersion in", "UID in")
            return error.code, error.reason, "" if any(name in error.message for name in names) else error.message
        for item in found.get("items", (found,)):
            memory.note(item)
        return self._of(found)


@pytest.mark.parametrize("seed", range(20))
async def test_one_call_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    clock = VirtualClock()
    plain = await Server.open(Config(None, default_roles=False, clock=clock, entropy=Entropy(1)))
    try:
        async with replicas(3 if seed % 3 == 0 else 2, clock) as several:
            single = InProcessClient(plain)
            one_memory, other_memory = Memory(), Memory()
            one_plain, other_plain = Plain(), Plain()
            for client in (single, several[0].client):
                await client.create(NAMESPACES, namespace("other"))
            for number in range(60):
                call = choose(chance)
                replica = chance.choice(several)
                _disturb(chance, [each.line for each in several])
                wanted = await one_plain.answer(call(single, one_memory), one_memory)
                asking = asyncio.ensure_future(other_plain.answer(call(replica.client, other_memory), other_memory))
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                replica.line.release()
                assert await asking == wanted, (seed, number)
    finally:
        await plain.close()


def _disturb(chance: random.Random, lines: list[Line]) -> None:
    for line in lines:
        if chance.random() < 0.6:
            line.hold()
        elif chance.random() < 0.5:
            line.release()


@pytest.mark.parametrize("seed", range(8))
async def test_many_at_once_lose_nothing(seed: int) -> None:
    """Each worker appends its own marks to shared objects, by every kind of write; a mark that was acknowledged stays."""
    chance = random.Random(seed)
    async with replicas(3) as several:
        await several[0].client.create(CONFIG_MAPS, config_map("shared", start="x"))
        acknowledged: list[str] = []
        created: list[str] = []
        working = True

        async def work(number: int) -> None:
            for step in range(8):
                client = chance.choice(several).client
                mark = f"w{number}.{step}"
                match chance.randrange(5):
                    case 0:
                        await _until_done(client.patch, CONFIG_MAPS, "shared", {"data": {mark: "x"}}, "default")
                    case 1:
                        steps = [{"op": "add", "path": f"/data/{mark}", "value": "x"}]
                        await _until_done(client.patch, CONFIG_MAPS, "shared", steps, "default", patch_type=JSON_PATCH)
                    case 2:
                        await _read_and_update(client, mark)
                    case 3:
                        applied = config_map("shared", **{mark: "x"})
                        await _until_done(client.apply, CONFIG_MAPS, applied, field_manager=mark)
                    case 4:
                        try:
                            await client.create(CONFIG_MAPS, config_map(f"n{chance.randrange(6)}", by=mark))
                            created.append(mark)
                        except ApiError as error:
                            assert error.is_already_exists
                        continue
                acknowledged.append(mark)
                found = await chance.choice(several).client.get(CONFIG_MAPS, "shared", "default")
                assert mark in found["data"]

        async def disturb() -> None:
            while working:
                line = chance.choice(several).line
                line.hold()
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                line.release()
                await asyncio.sleep(0)

        disturbing = asyncio.create_task(disturb())
        await asyncio.gather(*(work(number) for number in range(5)))
        working = False
        await disturbing
        for each in several:
            listed = await each.client.list(CONFIG_MAPS, "default")
            items = {item["metadata"]["name"]: item["data"] for item in listed["items"]}
            assert set(items.pop("shared")) == {"start", *acknowledged}
            assert sorted(data["by"] for data in items.values()) == sorted(created)


async def _until_done(verb: Callable[..., Awaitable[Obj]], *args: Any, **options: Any) -> None:
    """A patch gives up after a few lost races, as kube-apiserver's does."""
    while True:
        try:
            await verb(*args, **options)
            return
        except ApiError as error:
            assert error.is_conflict, error


async def _read_and_update(client: InProcessClient, mark: str) -> None:
    while True:
        found = await client.get(CONFIG_MAPS, "shared", "default")
        try:
            await client.update(CONFIG_MAPS, {**found, "data": {**found["data"], mark: "x"}})
            return
        except ApiError as error:
            assert error.is_conflict, error


@pytest.mark.parametrize("seed", range(6))
async def test_a_watch_at_any_server_tells_every_step(seed: int) -> None:
    """One watch for each server, from the start: all are told the same, in the same order, and it adds up to what there is."""
    chance = random.Random(seed)
    async with replicas(3) as several:
        begun = str(several[0].line.store.revision)
        told: list[list[tuple[str, str, str]]] = [[] for _ in several]

        async def follow(index: int) -> None:
            async for event in several[index].client.watch(CONFIG_MAPS, resource_version=begun, bookmarks=False):
                meta = event.object["metadata"]
                told[index].append((event.type, meta["name"], meta["resourceVersion"]))

        following = [asyncio.create_task(follow(index)) for index in range(len(several))]
        memory = Memory()
        await several[0].client.create(NAMESPACES, namespace("other"))
        for _ in range(60):
            replica = chance.choice(several)
            _disturb(chance, [each.line for each in several])
            asking = asyncio.ensure_future(Plain().answer(choose(chance)(replica.client, memory), memory))
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            replica.line.release()
            await asking
        for each in several:
            await each.told()
        for _ in range(20):
            await asyncio.sleep(0)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        assert told[0] == told[1] == told[2]
        revisions = [int(revision) for _, _, revision in told[0]]
        assert revisions == sorted(set(revisions))
        there: dict[str, int] = {}
        for type_, name, _ in told[0]:
            there[name] = there.get(name, 0) + {"ADDED": 1, "DELETED": -1, "MODIFIED": 0}[type_]
        listed = await several[0].client.list(CONFIG_MAPS)
        assert sum(there.values()) == len(listed["items"])
