"""A server that was cut off for longer than the store remembers goes on from what there is, and nobody misses anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.apiserver.cache.watch_cache import WatchCache
from remuda.apiserver.keys.encryption import UnknownKey
from remuda.apiserver.server import Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Compacted, Delete, KeyValue, Put, Range, Unavailable
from remuda.client.interface import WatchEvent
from remuda.kube.clock import VirtualClock
from tests.unit.apiserver.serving import (
    CONFIG_MAPS,
    SECRETS,
    Sink,
    begin,
    config_map,
    crd,
    crd_version,
    establish,
    widget,
    widgets,
)

from .sharing import Line, Obj, Replica, error_of, replicas, settle


async def cut_off(one: Replica, two: Replica) -> None:
    """From here on the second is away until :func:`back`; what is read already when it happens is the first change."""
    two.line.hold()
    await one.client.create(CONFIG_MAPS, config_map("first"))
    await settle()


async def back(one: Replica, two: Replica, clock: VirtualClock | None = None) -> None:
    store = one.line.store
    await store.compact(store.revision)
    two.line.release()
    await settle()
    if clock is not None:
        await clock.advance(5)
    await two.server.cache.reached(store.revision)


def state(server: Server) -> dict[str, tuple[int, bytes]]:
    return {
        entry.key: (entry.revision, entry.stored) for bucket in server.cache.buckets() for entry in bucket.scan(bucket.prefix)
    }


async def test_everything_is_as_in_the_store_afterwards() -> None:
    async with replicas() as (one, two):
        for name in ("kept", "changed", "gone", "anew"):
            await one.client.create(CONFIG_MAPS, config_map(name, n="0"))
        await two.told()
        await cut_off(one, two)
        await one.client.update(CONFIG_MAPS, config_map("changed", n="1"))
        await one.client.delete(CONFIG_MAPS, "gone", "default")
        await one.client.delete(CONFIG_MAPS, "anew", "default")
        await one.client.create(CONFIG_MAPS, config_map("anew", n="1"))
        await one.client.create(CONFIG_MAPS, config_map("new", n="1"))
        await back(one, two)
        assert two.server.cache.failed is None
        assert state(two.server) == state(one.server)
        assert two.server.cache.revision == one.server.cache.revision
        # And it goes on from there.
        await one.client.create(CONFIG_MAPS, config_map("later"))
        assert (await two.client.get(CONFIG_MAPS, "later", "default"))["metadata"]["name"] == "later"
        await two.client.update(CONFIG_MAPS, config_map("changed", n="2"))
        assert (await one.client.get(CONFIG_MAPS, "changed", "default"))["data"] == {"n": "2"}


async def test_open_watches_are_told_the_difference_in_order() -> None:
    async with replicas() as (one, two):
        made = {name: await one.client.create(CONFIG_MAPS, config_map(name)) for name in ("kept", "changed", "gone", "anew")}
        await two.told()
        before = two.server.cache.revision
        told: list[WatchEvent] = []

        async def follow() -> None:
            async for event in two.client.watch(CONFIG_MAPS, "default", resource_version=str(before)):
                told.append(event)

        following = asyncio.create_task(follow())
        await settle()
        await cut_off(one, two)
        await one.client.update(CONFIG_MAPS, config_map("changed", n="1"))
        await one.client.delete(CONFIG_MAPS, "gone", "default")
        await one.client.delete(CONFIG_MAPS, "anew", "default")
        anew = await one.client.create(CONFIG_MAPS, config_map("anew"))
        await one.client.create(CONFIG_MAPS, config_map("brief"))
        await one.client.delete(CONFIG_MAPS, "brief", "default")
        await one.client.create(CONFIG_MAPS, config_map("new"))
        await back(one, two)
        await one.client.create(CONFIG_MAPS, config_map("later"))
        await two.told()
        await settle()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert [(event.type, event.object["metadata"]["name"]) for event in told] == [
            ("ADDED", "first"),
            ("MODIFIED", "changed"),
            ("DELETED", "anew"),
            ("ADDED", "anew"),
            ("DELETED", "gone"),
            ("ADDED", "new"),
            ("ADDED", "later"),
        ]
        revisions = [int(event.object["metadata"]["resourceVersion"]) for event in told]
        assert revisions == sorted(revisions)
        assert len(set(revisions)) == len(revisions)
        assert all(revision > before for revision in revisions)
        assert told[2].object["metadata"]["uid"] == made["anew"]["metadata"]["uid"]
        assert told[3].object["metadata"]["uid"] == anew["metadata"]["uid"]


async def test_a_watch_that_comes_back_from_inside_the_gap_has_to_begin_anew() -> None:
    """Its revision would not tell which deletions it has heard of."""
    async with replicas() as (one, two):
        begun = await one.client.create(CONFIG_MAPS, config_map("gone"))
        await two.told()
        await cut_off(one, two)
        await one.client.delete(CONFIG_MAPS, "gone", "default")
        inside = await one.client.create(CONFIG_MAPS, config_map("new"))
        await one.client.create(CONFIG_MAPS, config_map("newer"))
        store = one.line.store
        # The store itself could still tell what came after it.
        await store.compact(int(inside["metadata"]["resourceVersion"]))
        two.line.release()
        await settle()
        last = await one.client.create(CONFIG_MAPS, config_map("last"))
        await two.told()
        for version in (begun, inside):
            sink = Sink()
            refused = await error_of(
                begin(two.server, CONFIG_MAPS, sink, "default", resource_version=version["metadata"]["resourceVersion"])
            )
            assert refused.code == 410
        sink = Sink()
        await begin(two.server, CONFIG_MAPS, sink, "default", resource_version=str(int(last["metadata"]["resourceVersion"]) - 1))
        assert sink.names == [("ADDED", "last")]


async def test_a_kind_whose_definition_came_and_went_meanwhile() -> None:
    async with replicas() as (one, two):
        definition = crd("widgets", [crd_version("v1", storage=True, size={"type": "integer"})])
        await cut_off(one, two)
        await establish(one.client, definition)
        await one.client.create(widgets("v1"), widget("v1", "a", size=1))
        await back(one, two)
        assert (await two.client.get(widgets("v1"), "a", "default"))["spec"] == {"size": 1}


async def test_a_selection_is_told_what_moved_out_of_it() -> None:
    async with replicas() as (one, two):
        labelled = config_map("a")
        labelled["metadata"]["labels"] = {"x": "y"}
        await one.client.create(CONFIG_MAPS, labelled)
        await two.told()
        sink = Sink()
        await begin(two.server, CONFIG_MAPS, sink, "default", labels="x=y", resource_version=str(two.server.cache.revision))
        await cut_off(one, two)
        await one.client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": None}}, "default")
        await back(one, two)
        assert sink.names == [("DELETED", "a")]


async def test_who_waits_for_a_revision_gets_it() -> None:
    async with replicas() as (one, two):
        await cut_off(one, two)
        await one.client.create(CONFIG_MAPS, config_map("new"))
        asking = asyncio.create_task(two.client.get(CONFIG_MAPS, "new", "default"))
        await settle()
        assert not asking.done()
        await back(one, two)
        assert (await asking)["metadata"]["name"] == "new"


async def test_loading_is_tried_until_the_store_answers() -> None:
    clock = VirtualClock()
    async with replicas(clock=clock) as (one, two):
        await cut_off(one, two)
        await one.client.create(CONFIG_MAPS, config_map("new"))
        two.line.asking_fails = Unavailable("no member answers")
        store = one.line.store
        await store.compact(store.revision)
        two.line.release()
        await clock.advance(30)
        assert two.server.cache.failed is None
        assert two.server.cache.revision < store.revision
        two.line.asking_fails = None
        await clock.advance(5)
        assert not two.behind
        assert state(two.server) == state(one.server)


async def test_a_key_that_is_missing_ends_the_server_as_it_does_at_start() -> None:
    class Closed:
        def open(self, key: str, value: bytes) -> tuple[bytes, bool]:
            if value == b"?":
                raise UnknownKey(f"{key} is sealed with a key that is not here")
            return value, False

        def seal(self, key: str, value: bytes) -> bytes:
            return value

    store = MemoryStore(VirtualClock())
    line = Line(store)
    cache = WatchCache(line, lambda prefix: Closed())
    await cache.start()
    try:
        line.hold()
        await store.write([Put("/registry/secrets/default/a", b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}')])
        await settle()
        await store.write([Put("/registry/secrets/default/b", b"?")])
        await store.compact(store.revision)
        line.release()
        await settle()
        assert isinstance(cache.failed, UnknownKey)
        # Nothing of what could be read was applied without the rest.
        assert len(cache.bucket("/registry/secrets/").entries) == 1
    finally:
        await cache.stop()


@pytest.mark.parametrize("when", ["before", "while", "cut off"])
async def test_what_is_no_object_is_left_out(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else has written into the same etcd: that must not end all servers at once, and for good."""
    good = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"good"}}'
    bad = {
        "/registry/configmaps/default/bad": b"{]",
        "/registry/configmaps/default/binary": b"k8s\0\xff\xff",
        "/registry/odd": b"1",
        "/registry/example.com/odd": b"{}",
    }
    store = MemoryStore(VirtualClock())
    await store.write([Put("/registry/configmaps/default/good", good)])
    writes = [Put(key, value) for key, value in bad.items()]
    line = Line(store)
    if when == "before":
        await store.write(writes)
    cache = WatchCache(line, lambda prefix: None)
    await cache.start()
    try:
        if when == "cut off":
            line.hold()
            await store.write([Put("/registry/configmaps/default/other", good)])
            await settle()
        if when != "before":
            await store.write(writes)
        if when == "cut off":
            await store.compact(store.revision)
            line.release()
        await store.write([Put("/registry/configmaps/default/last", good)])
        await settle()
        assert cache.failed is None
        assert cache.revision == store.revision
        found = {key.rpartition("/")[2] for key in cache.bucket("/registry/configmaps/").entries}
        assert found == {"good", "last"} | ({"other"} if when == "cut off" else set())
        assert "/registry/configmaps/default/bad is left out" in caplog.text
        # What was mended is there again.
        await store.write([Put("/registry/configmaps/default/bad", good)])
        await settle()
        assert "/registry/configmaps/default/bad" in cache.bucket("/registry/configmaps/").entries
    finally:
        await cache.stop()


async def test_a_store_of_one_s_own_that_has_forgotten_ends_the_server() -> None:
    class Own(Line):
        shared = False

    store = MemoryStore(VirtualClock())
    line = Own(store)
    cache = WatchCache(line, lambda prefix: None)
    await cache.start()
    try:
        line.hold()
        for _ in range(2):
            await store.write([Put("/registry/configmaps/default/a", b"{}")])
            await settle()
        await store.compact(store.revision)
        line.release()
        await settle()
        assert isinstance(cache.failed, Compacted)
    finally:
        await cache.stop()


async def test_no_reader_sees_a_part_of_it() -> None:
    """Followers of the cache find all of it applied when they are told of the first change."""
    async with replicas() as (one, two):
        for number in range(4):
            await one.client.create(CONFIG_MAPS, config_map(f"old{number}"))
        await two.told()
        seen: list[tuple[int, set[str]]] = []

        def look(new: Obj | None, old: Obj | None) -> None:
            names = {item["metadata"]["name"] for item in two.server.source.list("", "configmaps", "default")}
            seen.append((two.server.cache.revision, names))

        two.server.source.subscribe("", "secrets", look)
        two.server.source.subscribe("", "configmaps", look)
        seen.clear()
        await cut_off(one, two)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        await one.client.create(SECRETS, secret)
        for number in range(4):
            await one.client.delete(CONFIG_MAPS, f"old{number}", "default")
            await one.client.create(CONFIG_MAPS, config_map(f"new{number}"))
        await back(one, two)
        wanted = {"first", "new0", "new1", "new2", "new3"}
        # The first change was on its way before the cut.
        assert [names for _, names in seen[1:]] == [wanted] * 9
        assert {revision for revision, _ in seen[1:]} == {one.line.store.revision}


async def test_the_difference_to_every_possible_state() -> None:
    """One key through every short history, in one step or in two: the cache ends up like the store, watchers like the cache."""
    histories: list[list[str]] = [[]]
    for _ in range(3):
        histories += [[*history, step] for history in histories for step in ("put", "delete")]
    for before in histories:
        for after in ([*each] for each in histories if each):
            await _compare(before, after)


async def _compare(before: list[str], after: list[str]) -> None:
    store = MemoryStore(VirtualClock())
    key = "/registry/configmaps/default/a"
    await store.write([Put("/registry/configmaps/default/z", b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}')])

    async def run(steps: list[str]) -> None:
        for step in steps:
            there = await store.get(key)
            if step == "put":
                await store.write([Put(key, b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"x":"%d"}}' % store.revision)])
            elif there is not None:
                await store.write([Delete(key)])

    await run(before)
    cache = WatchCache(store, lambda prefix: None)
    cache.revision = (await store.range("/registry/")).revision
    for kv in (await store.range("/registry/")).items:
        bucket = cache.bucket("/registry/configmaps/")
        bucket.load(cache._entry(kv, bucket))
    mirror: dict[str, Any] = {e.key: e.revision for e in cache.bucket("/registry/configmaps/").scan("/registry/configmaps/")}
    revisions: list[int] = []

    def follow(changes: list[Any]) -> None:
        for change in changes:
            revisions.append(change.revision)
            assert (change.prev.revision if change.prev else None) == mirror.get(change.key)
            if change.entry is None:
                del mirror[change.key]
            else:
                mirror[change.key] = change.entry.revision

    cache.bucket("/registry/configmaps/").followers.append(follow)
    began = cache.revision
    await run(after)
    await cache._reload()
    loaded: Range = await store.range("/registry/")
    wanted: dict[str, KeyValue] = {kv.key: kv for kv in loaded.items}
    assert mirror == {name: kv.mod_revision for name, kv in wanted.items()}
    assert {e.key: e.revision for e in cache.bucket("/registry/configmaps/").scan("/registry/configmaps/")} == mirror
    assert revisions == sorted(revisions)
    assert all(began < revision <= loaded.revision for revision in revisions)
    assert cache.revision == loaded.revision
