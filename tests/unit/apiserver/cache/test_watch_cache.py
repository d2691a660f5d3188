"""The watch cache: what it holds, how far back it reaches, and what it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from remuda.apiserver.cache import resource_cache
from remuda.apiserver.cache.entries import Entry, Parsed, encode
from remuda.apiserver.cache.resource_cache import Bucket, Change
from remuda.apiserver.cache.watch_cache import WatchCache
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Compacted, Delete, Event, Mismatch, Put
from remuda.kube.clock import VirtualClock, yield_to_loop

BUCKET = "/registry/configmaps/"


def stored(name: str, **data: str) -> bytes:
    return encode({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data})


@asynccontextmanager
async def running(store: MemoryStore | None = None) -> AsyncIterator[WatchCache]:
    cache = WatchCache(store or MemoryStore(VirtualClock()), lambda prefix: None)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.stop()


async def put(cache: WatchCache, key: str, value: str = "", expect: int | None = None) -> int:
    revision = await cache.store.write([Put(BUCKET + key, stored(key, value=value), expect)])
    await cache.reached(revision)
    return revision


def shown(changes: list[Change]) -> list[tuple[int, str, bool, bool]]:
    return [(c.revision, c.key.removeprefix(BUCKET), c.entry is not None, c.prev is not None) for c in changes]


async def test_a_writer_reads_its_write_back() -> None:
    async with running() as cache:
        revision = await put(cache, "n/a")
        entry = cache.bucket(BUCKET).get(BUCKET + "n/a")
        assert entry is not None
        assert (entry.namespace, entry.name, entry.revision) == ("n", "a", revision)


async def test_what_was_stored_before_is_loaded() -> None:
    store = MemoryStore(VirtualClock())
    await store.write([Put(BUCKET + "n/a", stored("a"))])
    async with running(store) as cache:
        assert [entry.name for entry in cache.bucket(BUCKET).scan(BUCKET)] == ["a"]
        assert cache.revision == store.revision


async def test_a_scan_is_in_the_order_of_keys_and_of_one_namespace() -> None:
    async with running() as cache:
        for key in ("b/x", "a/y", "a/x", "a-b/x", "ab/x"):
            await put(cache, key)
        bucket = cache.bucket(BUCKET)
        assert [e.key.removeprefix(BUCKET) for e in bucket.scan(BUCKET)] == ["a-b/x", "a/x", "a/y", "ab/x", "b/x"]
        assert [e.key.removeprefix(BUCKET) for e in bucket.scan(BUCKET + "a/")] == ["a/x", "a/y"]
        assert [e.key.removeprefix(BUCKET) for e in bucket.scan(BUCKET + "a/", BUCKET + "a/x\x00")] == ["a/y"]


async def test_a_snapshot_stays_as_it_was() -> None:
    async with running() as cache:
        await put(cache, "a")
        before = cache.bucket(BUCKET).snapshot(BUCKET)
        await put(cache, "a", "new")
        await put(cache, "b")
        await cache.reached(await cache.store.write([Delete(BUCKET + "a")]))
        assert [(entry.name, entry.object()["data"]["value"]) for entry in before] == [("a", "")]


async def test_changes_since_a_revision_come_from_the_ring() -> None:
    async with running() as cache:
        first = await put(cache, "a")
        second = await put(cache, "a", "x")
        third = await cache.store.write([Delete(BUCKET + "a")])
        await cache.reached(third)
        found = await cache.changes_since(cache.bucket(BUCKET), first)
        assert shown(found) == [(second, "a", True, True), (third, "a", False, True)]


async def test_beyond_the_ring_the_store_s_log_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_cache, "RING", 3)
    async with running() as cache:
        revisions = [await put(cache, "a", str(number)) for number in range(8)]
        bucket = cache.bucket(BUCKET)
        assert bucket.since(revisions[0]) is None
        found = await cache.changes_since(bucket, revisions[0])
        assert [change.revision for change in found] == revisions[1:]
        assert [change.entry.object()["data"]["value"] for change in found if change.entry] == [str(n) for n in range(1, 8)]
        assert [change.prev.object()["data"]["value"] for change in found if change.prev] == [str(n) for n in range(7)]


async def test_what_happens_during_a_replay_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing at all had happened here before, so that the ring does not reach back to the asked revision."""
    store = MemoryStore(VirtualClock())
    old = await store.write([Put("/registry/other/x", stored("x"))])
    await store.write([Put("/registry/other/y", stored("y"))])
    async with running(store) as cache:
        bucket = cache.bucket(BUCKET)
        read = store.changes
        meanwhile: list[int] = []

        async def slow(after: int, until: int, prefix: str = "") -> list[Event]:
            found = await read(after, until, prefix)
            if not meanwhile:
                meanwhile.append(await put(cache, "a"))
            return found

        monkeypatch.setattr(store, "changes", slow)
        assert [change.revision for change in await cache.changes_since(bucket, old)] == meanwhile


async def test_before_the_floor_there_is_nothing_to_replay() -> None:
    async with running() as cache:
        first = await put(cache, "a")
        last = await put(cache, "b")
        await cache.store.compact(last)
        with pytest.raises(Compacted):
            await cache.changes_since(cache.bucket(BUCKET), first)


async def test_waiting_for_a_revision() -> None:
    async with running() as cache:
        waiting = asyncio.create_task(cache.reached(cache.revision + 2))
        await put(cache, "a")
        assert not waiting.done()
        await put(cache, "b")
        await waiting


async def test_who_gives_up_waiting_is_forgotten() -> None:
    async with running() as cache:
        waiting = asyncio.create_task(cache.reached(1 << 60))
        await yield_to_loop()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert cache._waiting == []


# --- what a writer's own event needs no parsing for -----------------------------------------------------------------------


async def test_the_writer_s_object_is_the_cached_one() -> None:
    async with running() as cache:
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}
        sealed = cache.seal(BUCKET, BUCKET + "a", encode(obj), obj)
        await cache.reached(await cache.store.write([Put(BUCKET + "a", sealed)]))
        entry = cache.bucket(BUCKET).get(BUCKET + "a")
        assert entry is not None
        assert entry.parsed
        assert entry.object()["data"] is obj["data"]
        cache.forget_sealed(sealed)
        assert cache._known == {}


async def test_a_lost_race_leaves_nothing_behind() -> None:
    async with running() as cache:
        await put(cache, "a", "theirs")
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"value": "mine"}}
        sealed = cache.seal(BUCKET, BUCKET + "a", encode(obj), obj)
        with pytest.raises(Mismatch):
            await cache.store.write([Put(BUCKET + "a", sealed, 0)])
        cache.forget_sealed(sealed)
        assert cache._known == {}
        entry = cache.bucket(BUCKET).get(BUCKET + "a")
        assert entry is not None
        assert entry.object()["data"] == {"value": "theirs"}


async def test_a_write_whose_writer_is_gone_is_parsed_like_a_stranger_s() -> None:
    async with running() as cache:
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"value": "mine"}}
        sealed = cache.seal(BUCKET, BUCKET + "a", encode(obj), obj)
        cache.forget_sealed(sealed)
        await cache.reached(await cache.store.write([Put(BUCKET + "a", sealed)]))
        entry = cache.bucket(BUCKET).get(BUCKET + "a")
        assert entry is not None
        assert entry.object()["data"] == {"value": "mine"}


async def test_the_same_bytes_under_two_keys_are_two_objects() -> None:
    async with running() as cache:
        obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {}}
        sealed = cache.seal(BUCKET, BUCKET + "a", encode(obj), obj)
        await cache.reached(await cache.store.write([Put(BUCKET + "a", sealed), Put(BUCKET + "b", sealed)]))
        found = [cache.bucket(BUCKET).get(BUCKET + name) for name in "ab"]
        assert [entry.key for entry in found if entry] == [BUCKET + "a", BUCKET + "b"]
        assert found[0] is not None and found[1] is not None
        assert found[0].object() == found[1].object()
        assert found[0].object() is not found[1].object()


# --- a schema that changes ------------------------------------------------------------------------------------------------


async def test_after_a_change_of_schema_everything_is_read_under_the_new_one() -> None:
    async with running() as cache:
        first = await put(cache, "a", "old")
        await put(cache, "a", "older schema")
        bucket = cache.bucket(BUCKET)
        seen: list[int] = []
        bucket.new_epoch(lambda entry: seen.append(entry.revision))
        assert bucket.get(BUCKET + "a") is not None
        assert list(bucket.scan(BUCKET))
        changes = bucket.since(first - 1)
        assert changes is not None
        kv = await cache.store.get(BUCKET + "a", first)
        assert kv is not None
        cache.entry_of(kv)
        assert sorted(seen) == [first, first, first + 1]


def test_a_ring_that_is_full_forgets_the_oldest() -> None:
    bucket = Bucket(BUCKET, 0, Parsed())
    for revision in range(1, resource_cache.RING + 3):
        bucket.apply(Change(revision, BUCKET + "a", "", "a", None, None))
    assert bucket.ring_floor == 2
    assert bucket.since(1) is None
    assert len(bucket.since(2) or []) == resource_cache.RING


def test_the_ring_is_bounded_by_the_bytes_it_alone_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_cache, "RING_BYTES", 1000)
    bucket = Bucket("/registry/configmaps/", 0, Parsed())
    previous: Entry | None = None
    for revision in range(1, 101):
        entry = Entry("/registry/configmaps/a/b", "a", "b", revision, b"x" * 100)
        bucket.apply(Change(revision, entry.key, "a", "b", entry, previous))
        previous = entry
    assert bucket.ring_bytes <= 1000
    assert len(bucket.ring) == 10
    assert bucket.ring_floor == 90
    assert bucket.since(89) is None
    assert [change.revision for change in bucket.since(95) or []] == [96, 97, 98, 99, 100]
