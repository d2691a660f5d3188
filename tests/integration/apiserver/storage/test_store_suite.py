"""What every engine of the store promises.

A shared engine has had other users before a test begins: whatever is said of revisions is said from `base` on, which is 0 for
engines that are a test's own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from remuda.apiserver.storage.store import (
    Compacted,
    Delete,
    Event,
    FutureRevision,
    HistoryStore,
    KeyValue,
    Mismatch,
    Put,
    Store,
    StoreError,
)
from remuda.kube.clock import VirtualClock


async def fill(store: Store, *keys: str) -> list[int]:
    return [await store.write([Put(key, key.encode())]) for key in keys]


async def take(events: AsyncIterator[list[Event]], count: int) -> list[Event]:
    """The next `count` events, whatever batches they come in."""
    got: list[Event] = []
    while len(got) < count:
        got.extend(await anext(events))
    assert len(got) == count
    return got


async def test_a_new_store_is_empty_at_revision_zero(kept: HistoryStore) -> None:
    assert (kept.revision, kept.floor, kept.history_floor) == (0, 0, 0)


async def test_a_new_store_is_empty(store: Store, base: int) -> None:
    assert await store.get("/a") is None
    whole = await store.range("")
    assert (whole.items, whole.revision) == ([], base)
    assert store.floor <= base == await store.current()


async def test_a_write_takes_the_next_revision_and_is_read_back(store: Store, base: int) -> None:
    assert await store.write([Put("/a", b"1", expect=0)]) == base + 1
    assert await store.get("/a") == KeyValue("/a", b"1", base + 1, base + 1)
    assert await store.write([Put("/a", b"2", expect=base + 1)]) == base + 2
    assert await store.get("/a") == KeyValue("/a", b"2", base + 1, base + 2)
    assert store.revision == await store.current() == base + 2


async def test_an_empty_value_is_a_value(store: Store, base: int) -> None:
    await store.write([Put("/a", b"")])
    assert await store.get("/a") == KeyValue("/a", b"", base + 1, base + 1)


async def test_any_bytes_are_a_value(store: Store, base: int) -> None:
    value = bytes(range(256)) * 40
    await store.write([Put("/a", value)])
    assert await store.get("/a") == KeyValue("/a", value, base + 1, base + 1)


async def test_a_key_made_anew_has_a_new_create_revision(store: Store, base: int) -> None:
    await store.write([Put("/a", b"1")])
    await store.write([Delete("/a")])
    assert await store.get("/a") is None
    await store.write([Put("/a", b"2", expect=0)])
    assert await store.get("/a") == KeyValue("/a", b"2", base + 3, base + 3)


@pytest.mark.parametrize(
    ("op", "present"),
    [
        (lambda base: Put("/a", b"x", expect=0), True),
        (lambda base: Put("/a", b"x", expect=base + 7), True),
        (lambda base: Put("/b", b"x", expect=base + 1), False),
        (lambda base: Delete("/a", expect=base + 2), True),
        (lambda base: Delete("/b"), False),
        (lambda base: Delete("/b", expect=base + 1), False),
    ],
)
async def test_a_failed_expectation_tells_what_is_there_and_takes_no_revision(
    store: Store, base: int, op: Callable[[int], Put | Delete], present: bool
) -> None:
    await fill(store, "/a")
    tried = op(base)
    with pytest.raises(Mismatch) as caught:
        await store.write([tried])
    held = KeyValue("/a", b"/a", base + 1, base + 1) if present else None
    assert (caught.value.key, caught.value.current) == (tried.key, held)
    assert store.revision == await store.current() == base + 1


async def test_a_transaction_is_whole_or_nothing_and_has_one_revision(store: Store, base: int) -> None:
    await fill(store, "/a", "/b")
    with pytest.raises(Mismatch):
        await store.write([Put("/a", b"new"), Delete("/b", expect=base + 1), Put("/c", b"new")])
    assert [kv.value for kv in (await store.range("/")).items] == [b"/a", b"/b"]
    assert await store.write([Put("/a", b"new"), Delete("/b", expect=base + 2), Put("/c", b"new")]) == base + 3
    assert [(kv.key, kv.create_revision, kv.mod_revision) for kv in (await store.range("/")).items] == [
        ("/a", base + 1, base + 3),
        ("/c", base + 3, base + 3),
    ]


async def test_the_first_of_several_failed_expectations_is_told(store: Store, base: int) -> None:
    await fill(store, "/a", "/b")
    with pytest.raises(Mismatch) as caught:
        await store.write([Put("/c", b""), Put("/b", b"", expect=base + 1), Delete("/a", expect=base + 9)])
    assert (caught.value.key, caught.value.current) == ("/b", KeyValue("/b", b"/b", base + 2, base + 2))


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Put("/a", b""), Delete("/a")],
        [Put("", b"")],
        [Put("/a\0b", b"")],
        [Put("/\ud800", b"")],
        [Put(f"/{index}", b"") for index in range(257)],
    ],
)
async def test_a_transaction_that_makes_no_sense_is_refused(store: Store, base: int, ops: list[Put | Delete]) -> None:
    with pytest.raises(StoreError):
        await store.write(ops)
    assert store.revision == await store.current() == base


async def test_one_of_many_concurrent_writers_wins_and_the_others_are_told(store: Store) -> None:
    results = await asyncio.gather(
        *(store.write([Put("/a", str(index).encode(), expect=0)]) for index in range(40)), return_exceptions=True
    )
    won = [index for index, result in enumerate(results) if isinstance(result, int)]
    assert len(won) == 1
    held = await store.get("/a")
    assert held is not None and held.value == str(won[0]).encode()
    assert all(isinstance(result, Mismatch) and result.current == held for i, result in enumerate(results) if i != won[0])


async def test_concurrent_increments_lose_nothing(store: Store, base: int) -> None:
    await store.write([Put("/n", b"0")])

    async def increment() -> None:
        while True:
            held = await store.get("/n")
            assert held is not None
            try:
                await store.write([Put("/n", str(int(held.value) + 1).encode(), expect=held.mod_revision)])
            except Mismatch:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(30)))
    held = await store.get("/n")
    assert held is not None and held.value == b"30" and store.revision == base + 31


# Ranges


async def test_a_range_has_the_keys_with_its_prefix_in_order(store: Store) -> None:
    await fill(store, "/b/2", "/a/1", "/b/1", "/b", "/b0", "/ä/1", "/\U0010ffff/1")
    assert [kv.key for kv in (await store.range("/b/")).items] == ["/b/1", "/b/2"]
    assert [kv.key for kv in (await store.range("/b")).items] == ["/b", "/b/1", "/b/2", "/b0"]
    assert [kv.key for kv in (await store.range("/ä")).items] == ["/ä/1"]
    assert [kv.key for kv in (await store.range("/\U0010ffff")).items] == ["/\U0010ffff/1"]
    whole = await store.range("")
    assert [kv.key for kv in whole.items] == sorted(kv.key for kv in whole.items) and len(whole.items) == 7


async def test_pages_of_a_past_revision_do_not_see_what_happens_meanwhile(store: Store) -> None:
    keys = [f"/r/{index:03}" for index in range(25)]
    await fill(store, *keys)
    at = store.revision
    seen: list[KeyValue] = []
    start = ""
    while True:
        page = await store.range("/r/", start=start, limit=7, revision=at)
        assert page.revision == at
        seen.extend(page.items)
        assert page.remaining == 25 - len(seen)
        await store.write([Put(f"/r/{len(seen):03}x", b"new")])
        await store.write([Put("/r/024", b"changed")])
        if len(seen) < 20:
            await store.write([Delete(f"/r/{len(seen) + 1:03}")])
        if not page.more:
            break
        start = page.items[-1].key + "\0"
    assert [kv.key for kv in seen] == keys
    assert all(kv.value == kv.key.encode() for kv in seen)


async def test_a_limit_that_is_just_met_has_no_more(store: Store) -> None:
    await fill(store, "/a", "/b")
    page = await store.range("/", limit=2)
    assert (len(page.items), page.more, page.remaining) == (2, False, 0)


async def test_each_past_revision_reads_as_it_was(store: Store, base: int) -> None:
    chance = random.Random(4)
    states: list[dict[str, KeyValue]] = [{}]
    for _ in range(120):
        now = dict(states[-1])
        key = f"/k/{chance.randrange(8)}"
        if key in now and chance.random() < 0.4:
            await store.write([Delete(key)])
            del now[key]
        else:
            value = chance.randbytes(4)
            revision = await store.write([Put(key, value)])
            created = now[key].create_revision if key in now else revision
            now[key] = KeyValue(key, value, created, revision)
        states.append(now)
    for step in range(1, len(states)):
        got = await store.range("/k/", revision=base + step)
        assert got.items == [states[step][key] for key in sorted(states[step])]
        assert got.revision == base + step
        key = f"/k/{chance.randrange(8)}"
        assert await store.get(key, base + step) == states[step].get(key)


async def test_a_revision_that_is_not_there_yet_is_refused(store: Store, base: int) -> None:
    await fill(store, "/a")
    future = base + 2
    with pytest.raises(FutureRevision):
        await store.get("/a", future)
    with pytest.raises(FutureRevision):
        await store.range("/", revision=future)
    with pytest.raises(FutureRevision):
        await store.compact(future)
    with pytest.raises(FutureRevision):
        async with store.watch(future):
            pass


# Watching


async def test_a_watch_replays_what_was_and_goes_on_with_what_comes(store: Store, base: int) -> None:
    await fill(store, "/a", "/b")
    async with store.watch(base + 1) as events:
        assert await take(events, 1) == [Event(base + 2, "/b", KeyValue("/b", b"/b", base + 2, base + 2), None)]
        await store.write([Put("/b", b"2"), Delete("/a")])
        assert await take(events, 2) == [
            Event(base + 3, "/b", KeyValue("/b", b"2", base + 2, base + 3), KeyValue("/b", b"/b", base + 2, base + 2)),
            Event(base + 3, "/a", None, KeyValue("/a", b"/a", base + 1, base + 1)),
        ]


async def test_replayed_events_equal_live_ones(store: Store, base: int) -> None:
    async with store.watch(base) as live:
        await store.write([Put("/a", b"1"), Put("/b", b"1")])
        await store.write([Put("/a", b"2")])
        await store.write([Delete("/a"), Put("/b", b"2")])
        await store.write([Put("/a", b"3")])
        seen = await take(live, 6)
    async with store.watch(base) as replayed:
        assert await take(replayed, 6) == seen
    assert seen[-1].prev is None


async def test_a_watch_sees_only_its_prefix(store: Store, base: int) -> None:
    await fill(store, "/a/1", "/b/1")
    async with store.watch(base, "/b/") as events:
        await fill(store, "/a/2", "/b/2", "/b", "/b0")
        assert [event.key for event in await take(events, 2)] == ["/b/1", "/b/2"]


async def test_a_write_is_in_the_watch_when_it_returns(store: Store, base: int) -> None:
    async with store.watch(base) as events:
        for index in range(5):
            await store.write([Put("/a", str(index).encode())])
            assert [event.revision for event in await anext(events)] == [base + index + 1]


async def test_watches_begun_anywhere_under_concurrent_writes_have_no_gap_and_no_repeat(store: Store, base: int) -> None:
    chance = random.Random(11)
    total = 400
    started = asyncio.Semaphore(0)

    async def writer(name: int) -> None:
        for index in range(total // 8):
            await store.write([Put(f"/{name % 2}/{name}", str(index).encode())])
            started.release()
            await asyncio.sleep(0)

    async def watcher() -> tuple[int, str, list[Event]]:
        for _ in range(chance.randrange(1, 12)):
            await started.acquire()
        after = chance.randrange(base, store.revision + 1)
        prefix = chance.choice(["", "/0/", "/1/"])
        got: list[Event] = []
        async with store.watch(after, prefix) as events:
            # The last transaction writes an "end" under each prefix.
            async for batch in events:
                got.extend(batch)
                if batch[-1].key.endswith("end"):
                    return after, prefix, got
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
        raise AssertionError("the watch ended by itself")

    watchers = [asyncio.create_task(watcher()) for _ in range(20)]
    await asyncio.gather(*(writer(name) for name in range(8)))
    await store.write([Put("/0/end", b""), Put("/1/end", b"")])
    async with store.watch(base) as events:
        truth = await take(events, total + 2)
    assert [event.revision for event in truth[:-1]] == list(range(base + 1, base + total + 2))
    for after, prefix, got in await asyncio.gather(*watchers):
        assert got == [event for event in truth if event.revision > after and event.key.startswith(prefix)]


async def test_a_watcher_may_sleep_through_everything_that_is_kept(store: Store, base: int) -> None:
    async with store.watch(base) as events:
        await fill(store, *(f"/{index}" for index in range(1500)))
        assert [event.revision for event in await take(events, 1500)] == list(range(base + 1, base + 1501))
        await fill(store, "/more")
        assert [event.revision for event in await take(events, 1)] == [base + 1501]


async def test_a_watcher_that_is_cancelled_in_waiting_can_go_on(store: Store, base: int) -> None:
    async with store.watch(base) as events:
        for index in range(3):
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await store.write([Put("/a", b"")])
            assert [event.revision for event in await take(events, 1)] == [base + index + 1]


async def test_closing_ends_watches_and_refuses_writes(store: Store, base: int) -> None:
    async with store.watch(base) as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
    with pytest.raises(StoreError):
        await store.write([Put("/a", b"")])


async def test_changes_between_two_revisions_are_told_without_waiting(store: Store, base: int) -> None:
    # etcd takes 128 operations at once, unless it is told otherwise.
    many = 100 if store.shared else 200
    for _ in range(4):
        await store.write([Put(f"/{'ab'[index % 2]}/{index}", b"") for index in range(many)])
    async with store.watch(base) as events:
        truth = await take(events, 4 * many)
    for first, last, prefix in ((0, 4, ""), (1, 3, ""), (0, 99, "/a/"), (2, 2, ""), (3, 1, ""), (4, 4, "")):
        after, until = base + first, base + last
        got = await store.changes(after, until, prefix)
        assert got == [event for event in truth if after < event.revision <= until and event.key.startswith(prefix)]
    await store.compact(base + 2)
    assert len(await store.changes(base + 2, base + 3)) == many
    with pytest.raises(Compacted):
        await store.changes(base + 1, base + 3)


# Forgetting


async def test_compaction_moves_the_floor_and_keeps_what_is_now(store: Store, base: int) -> None:
    await fill(store, "/a", "/a", "/b", "/c")
    await store.write([Delete("/c")])
    await fill(store, "/a")
    assert store.revision == base + 6
    await store.compact(base + 5)
    assert store.floor == base + 5
    for call in (store.get("/a", base + 4), store.range("/", revision=base + 4)):
        with pytest.raises(Compacted) as caught:
            await call
        assert (caught.value.revision, caught.value.floor) == (base + 4, base + 5)
    with pytest.raises(Compacted):
        async with store.watch(base + 4):
            pass
    assert await store.get("/a", base + 5) == KeyValue("/a", b"/a", base + 1, base + 2)
    assert [kv.key for kv in (await store.range("/", revision=base + 5)).items] == ["/a", "/b"]
    async with store.watch(base + 5) as events:
        assert await take(events, 1) == [
            Event(base + 6, "/a", KeyValue("/a", b"/a", base + 1, base + 6), KeyValue("/a", b"/a", base + 1, base + 2))
        ]


async def test_compaction_of_a_store_that_is_not_shared_takes_no_revision(kept: HistoryStore) -> None:
    await fill(kept, "/a", "/b")
    await kept.compact(1)
    assert (kept.floor, kept.revision) == (1, 2)


async def test_compacting_below_the_floor_changes_nothing(store: Store, base: int) -> None:
    await fill(store, "/a", "/b")
    await store.compact(base + 2)
    await store.compact(base + 1)
    await store.compact(base + 2)
    assert store.floor == base + 2


async def test_compacting_everything_after_the_newest_was_a_deletion_keeps_the_revision(store: Store, base: int) -> None:
    await store.write([Put("/registry/leases/a", b"")])
    await store.write([Delete("/registry/leases/a")])
    await store.compact(base + 2)
    after = await store.current()
    assert (await store.range("")).revision == after and (after == base + 2 or store.shared)
    assert await store.write([Put("/registry/leases/a", b"2", expect=0)]) == after + 1
    assert await store.get("/registry/leases/a") == KeyValue("/registry/leases/a", b"2", after + 1, after + 1)


async def test_keys_with_a_ttl_go_by_themselves_with_an_event(kept: HistoryStore, clock: VirtualClock) -> None:
    await kept.write([Put("/short", b"1", ttl=10)])
    await kept.write([Put("/long", b"1", ttl=100)])
    await kept.write([Put("/renewed", b"1", ttl=10)])
    await kept.write([Put("/kept", b"1", ttl=10)])
    await kept.write([Put("/kept", b"2")])
    await clock.advance(9)
    await kept.write([Put("/renewed", b"2", ttl=10)])
    assert await kept.expire(clock.time()) == 0
    await clock.advance(2)
    async with kept.watch(kept.revision) as events:
        assert await kept.expire(clock.time()) == 1
        assert await take(events, 1) == [Event(7, "/short", None, KeyValue("/short", b"1", 1, 1))]
    assert [kv.key for kv in (await kept.range("/")).items] == ["/kept", "/long", "/renewed"]
    await clock.advance(1000)
    assert await kept.expire(clock.time()) == 2
    assert await kept.expire(clock.time()) == 0
    assert [kv.key for kv in (await kept.range("/")).items] == ["/kept"]


async def test_the_revision_of_a_time(kept: HistoryStore, clock: VirtualClock) -> None:
    begin = clock.time()
    for _ in range(10):
        await clock.advance(10)
        await fill(kept, "/a", "/b")
    assert await kept.revision_at(begin) == 0
    assert [await kept.revision_at(begin + seconds) for seconds in (9, 10, 19, 20, 55, 100, 999)] == [
        0,
        2,
        2,
        4,
        10,
        20,
        20,
    ]


async def test_history_tells_how_a_key_was(kept: HistoryStore, clock: VirtualClock) -> None:
    begin = clock.time()
    for value in (b"1", b"2", None, b"3"):
        await clock.advance(10)
        await kept.write([Delete("/a")] if value is None else [Put("/a", value)])
        await fill(kept, "/other")
    told = [(version.revision, version.at - begin, version.kv and version.kv.value) for version in await kept.history("/a")]
    assert told == [(7, 40, b"3"), (5, 30, None), (3, 20, b"2"), (1, 10, b"1")]
    assert await kept.history("/never") == []
    for at, value in ((15, b"1"), (29, b"2"), (30, None), (40, b"3"), (99, b"3")):
        version = await kept.read_history("/a", at_time=begin + at)
        assert version is not None and (version.kv and version.kv.value) == value
    assert await kept.read_history("/a", at_time=begin) is None
    version = await kept.read_history("/a", at_revision=4)
    assert version is not None and version.kv == KeyValue("/a", b"2", 1, 3)


async def test_times_never_go_back_even_if_the_clock_does(kept: HistoryStore, clock: VirtualClock) -> None:
    await fill(kept, "/a")
    clock._now -= 1000
    await fill(kept, "/a")
    newer, older = await kept.history("/a")
    assert newer.at == older.at
