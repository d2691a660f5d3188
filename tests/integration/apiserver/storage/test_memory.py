"""What only the memory engine has: the read-only base under it."""

from __future__ import annotations

import pytest

from remuda.apiserver.storage.memory import InitialState, MemoryStore
from remuda.apiserver.storage.store import Compacted, Delete, KeyValue, Mismatch, Put, StoreError
from remuda.kube.clock import VirtualClock


async def below(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    for key in ("/a", "/b", "/c"):
        await store.write([Put(key, b"base")])
    return store


async def test_what_is_written_above_a_base_leaves_it_as_it_was(clock: VirtualClock) -> None:
    lower = await below(clock)
    base = InitialState.of(await lower.range(""))
    upper, other = MemoryStore(clock, base), MemoryStore(clock, base)
    assert (upper.revision, upper.floor) == (3, 3)
    assert await upper.write([Put("/b", b"new", expect=2), Delete("/a", expect=1), Put("/bb", b"new", expect=0)]) == 4
    assert (await upper.range("/")).items == [
        KeyValue("/b", b"new", 2, 4),
        KeyValue("/bb", b"new", 4, 4),
        KeyValue("/c", b"base", 3, 3),
    ]
    assert (await upper.range("/", revision=3)).items == (await lower.range("/")).items
    assert (await other.range("/")).items == (await lower.range("/")).items
    assert lower.revision == 3


async def test_a_deletion_above_a_base_stays_after_compaction(clock: VirtualClock) -> None:
    upper = MemoryStore(clock, await (await below(clock)).range(""))
    await upper.write([Delete("/a")])
    await upper.compact(4)
    assert await upper.get("/a") is None
    assert [kv.key for kv in (await upper.range("/")).items] == ["/b", "/c"]
    with pytest.raises(Mismatch):
        await upper.write([Delete("/a")])
    assert await upper.write([Put("/a", b"again", expect=0)]) == 5
    assert await upper.get("/a") == KeyValue("/a", b"again", 5, 5)


async def test_nothing_below_a_base_can_be_read(clock: VirtualClock) -> None:
    upper = MemoryStore(clock, await (await below(clock)).range(""))
    with pytest.raises(Compacted):
        await upper.get("/a", 2)
    with pytest.raises(Compacted):
        async with upper.watch(2):
            pass
    with pytest.raises(Compacted):
        await upper.read_history("/a", at_time=0)


async def test_a_cut_range_is_no_base(clock: VirtualClock) -> None:
    with pytest.raises(StoreError, match="whole"):
        MemoryStore(clock, await (await below(clock)).range("", limit=1))


async def test_the_past_is_gone_with_compaction(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    begin = clock.time()
    for _ in range(4):
        await clock.advance(10)
        await store.write([Put("/a", b"")])
    await store.compact(3)
    assert [version.revision for version in await store.history("/a")] == [4, 3]
    with pytest.raises(Compacted):
        await store.read_history("/a", at_time=begin + 25)
    assert await store.prune() == 0
