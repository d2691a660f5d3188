"""What every engine of the store promises."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.store import (
    Compacted,
    Delete,
    Event,
    FutureRevision,
    HistoryStore,
    KeyValue,
    Mismatch,
    Put,
    StoreError,
)
from remuda.apiserver.store.sqlite import SqliteStore
from remuda.kube.clock import VirtualClock


async def fill(store: HistoryStore, *keys: str) -> list[int]:
    return [await store.write([Put(key, key.encode())]) for key in keys]


async def take(events: AsyncIterator[list[Event]], count: int) -> list[Event]:
    """The next `count` events, whatever batches they come in."""
    got: list[Event] = []
    while len(got) < count:
        got.extend(await anext(events))
    assert len(got) == count
    return got


async def test_a_new_store_is_empty_at_revision_zero(store: HistoryStore) -> None:
    assert (store.revision, store.floor, store.history_floor) == (0, 0, 0)
    assert await store.get("/a") is None
    assert (await store.range("")).items == []


async def test_a_write_takes_the_next_revision_and_is_read_back(store: HistoryStore) -> None:
    assert await store.write([Put("/a", b"1", expect=0)]) == 1
    assert await store.get("/a") == KeyValue("/a", b"1", 1, 1)
    assert await store.write([Put("/a", b"2", expect=1)]) == 2
    assert await store.get("/a") == KeyValue("/a", b"2", 1, 2)
    assert store.revision == 2


async def test_an_empty_value_is_a_value(store: HistoryStore) -> None:
    await store.write([Put("/a", b"")])
    assert await store.get("/a") == KeyValue("/a", b"", 1, 1)


async def test_a_key_made_anew_has_a_new_create_revision(store: HistoryStore) -> None:
    await store.write([Put("/a", b"1")])
    await store.write([Delete("/a")])
    assert await store.get("/a") is None
    await store.write([Put("/a", b"2", expect=0)])
    assert await store.get("/a") == KeyValue("/a", b"2", 3, 3)


@pytest.mark.parametrize(
    ("op", "current"),
    [
        (Put("/a", b"x", expect=0), KeyValue("/a", b"/a", 1, 1)),
        (Put("/a", b"x", expect=7), KeyValue("/a", b"/a", 1, 1)),
        (Put("/b", b"x", expect=1), None),
        (Delete("/a", expect=2), KeyValue("/a", b"/a", 1, 1)),
        (Delete("/b"), None),
        (Delete("/b", expect=1), None),
    ],
)
async def test_a_failed_expectation_tells_what_is_there_and_takes_no_revision(
    store: HistoryStore, op: Put | Delete, current: KeyValue | None
) -> None:
    await fill(store, "/a")
    with pytest.raises(Mismatch) as caught:
        await store.write([op])
    assert (caught.value.key, caught.value.current) == (op.key, current)
    assert store.revision == 1


async def test_a_transaction_is_whole_or_nothing_and_has_one_revision(store: HistoryStore) -> None:
    await fill(store, "/a", "/b")
    with pytest.raises(Mismatch):
        await store.write([Put("/a", b"new"), Delete("/b", expect=1), Put("/c", b"new")])
    assert [kv.value for kv in (await store.range("/")).items] == [b"/a", b"/b"]
    assert await store.write([Put("/a", b"new"), Delete("/b", expect=2), Put("/c", b"new")]) == 3
    assert [(kv.key, kv.create_revision, kv.mod_revision) for kv in (await store.range("/")).items] == [
        ("/a", 1, 3),
        ("/c", 3, 3),
    ]


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
async def test_a_transaction_that_makes_no_sense_is_refused(store: HistoryStore, ops: list[Put | Delete]) -> None:
    with pytest.raises(StoreError):
        await store.write(ops)
    assert store.revision == 0


async def test_one_of_many_concurrent_writers_wins_and_the_others_are_told(store: HistoryStore) -> None:
    results = await asyncio.gather(
        *(store.write([Put("/a", str(index).encode(), expect=0)]) for index in range(40)), return_exceptions=True
    )
    won = [index for index, result in enumerate(results) if isinstance(result, int)]
    assert len(won) == 1
    held = await store.get("/a")
    assert held is not None and held.value == str(won[0]).encode()
    assert all(isinstance(result, Mismatch) and result.current == held for i, result in enumerate(results) if i != won[0])


async def test_concurrent_increments_lose_nothing(store: HistoryStore) -> None:
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
    assert held is not None and held.value == b"30" and store.revision == 31


# Ranges


async def test_a_range_has_the_keys_with_its_prefix_in_order(store: HistoryStore) -> None:
    await fill(store, "/b/2", "/a/1", "/b/1", "/b", "/b0", "/ä/1", "/\U0010ffff/1")
    assert [kv.key for kv in (await store.range("/b/")).items] == ["/b/1", "/b/2"]
    assert [kv.key for kv in (await store.range("/b")).items] == ["/b", "/b/1", "/b/2", "/b0"]
    assert [kv.key for kv in (await store.range("/ä")).items] == ["/ä/1"]
    assert [kv.key for kv in (await store.range("/\U0010ffff")).items] == ["/\U0010ffff/1"]
    whole = await store.range("")
    assert [kv.key for kv in whole.items] == sorted(kv.key for kv in whole.items) and len(whole.items) == 7


async def test_pages_of_a_past_revision_do_not_see_what_happens_meanwhile(store: HistoryStore) -> None:
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


async def test_a_limit_that_is_just_met_has_no_more(store: HistoryStore) -> None:
    await fill(store, "/a", "/b")
    page = await store.range("/", limit=2)
    assert (len(page.items), page.more, page.remaining) == (2, False, 0)


async def test_each_past_revision_reads_as_it_was(store: HistoryStore) -> None:
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
    for revision in range(1, len(states)):
        got = await store.range("/k/", revision=revision)
        assert got.items == [states[revision][key] for key in sorted(states[revision])]
        assert got.revision == revision
        key = f"/k/{chance.randrange(8)}"
        assert await store.get(key, revision) == states[revision].get(key)


async def test_a_revision_that_is_not_there_yet_is_refused(store: HistoryStore) -> None:
    await fill(store, "/a")
    with pytest.raises(FutureRevision):
        await store.get("/a", 2)
    with pytest.raises(FutureRevision):
        await store.range("/", revision=2)
    with pytest.raises(FutureRevision):
        await store.compact(2)
    with pytest.raises(FutureRevision):
        async with store.watch(2):
            pass


# Watching


async def test_a_watch_replays_what_was_and_goes_on_with_what_comes(store: HistoryStore) -> None:
    await fill(store, "/a", "/b")
    async with store.watch(1) as events:
        assert await take(events, 1) == [Event(2, "/b", KeyValue("/b", b"/b", 2, 2), None)]
        await store.write([Put("/b", b"2"), Delete("/a")])
        assert await take(events, 2) == [
            Event(3, "/b", KeyValue("/b", b"2", 2, 3), KeyValue("/b", b"/b", 2, 2)),
            Event(3, "/a", None, KeyValue("/a", b"/a", 1, 1)),
        ]


async def test_replayed_events_equal_live_ones(store: HistoryStore) -> None:
    async with store.watch(0) as live:
        await store.write([Put("/a", b"1"), Put("/b", b"1")])
        await store.write([Put("/a", b"2")])
        await store.write([Delete("/a"), Put("/b", b"2")])
        await store.write([Put("/a", b"3")])
        seen = await take(live, 6)
    async with store.watch(0) as replayed:
        assert await take(replayed, 6) == seen
    assert seen[-1].prev is None


async def test_a_watch_sees_only_its_prefix(store: HistoryStore) -> None:
    await fill(store, "/a/1", "/b/1")
    async with store.watch(0, "/b/") as events:
        await fill(store, "/a/2", "/b/2", "/b", "/b0")
        assert [event.key for event in await take(events, 2)] == ["/b/1", "/b/2"]


async def test_a_write_is_in_the_watch_when_it_returns(store: HistoryStore) -> None:
    async with store.watch(0) as events:
        for index in range(5):
            await store.write([Put("/a", str(index).encode())])
            assert [event.revision for event in await anext(events)] == [index + 1]


async def test_watches_begun_anywhere_under_concurrent_writes_have_no_gap_and_no_repeat(store: HistoryStore) -> None:
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
        after = chance.randrange(store.revision + 1)
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
    async with store.watch(0) as events:
        truth = await take(events, total + 2)
    assert [event.revision for event in truth[:-1]] == list(range(1, total + 2))
    for after, prefix, got in await asyncio.gather(*watchers):
        assert got == [event for event in truth if event.revision > after and event.key.startswith(prefix)]


async def test_a_watcher_may_sleep_through_everything_that_is_kept(store: HistoryStore) -> None:
    async with store.watch(0) as events:
        await fill(store, *(f"/{index}" for index in range(1500)))
        assert [event.revision for event in await take(events, 1500)] == list(range(1, 1501))
        await fill(store, "/more")
        assert [event.revision for event in await take(events, 1)] == [1501]


async def test_a_watcher_that_is_cancelled_in_waiting_can_go_on(store: HistoryStore) -> None:
    async with store.watch(0) as events:
        for index in range(3):
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await store.write([Put("/a", b"")])
            assert [event.revision for event in await take(events, 1)] == [index + 1]


async def test_closing_ends_watches_and_refuses_writes(store: HistoryStore) -> None:
    async with store.watch(0) as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
    with pytest.raises(StoreError):
        await store.write([Put("/a", b"")])


async def test_changes_between_two_revisions_are_told_without_waiting(store: HistoryStore) -> None:
    for _ in range(4):
        await store.write([Put(f"/{'ab'[index % 2]}/{index}", b"") for index in range(200)])
    async with store.watch(0) as events:
        truth = await take(events, 800)
    for after, until, prefix in ((0, 4, ""), (1, 3, ""), (0, 99, "/a/"), (2, 2, ""), (3, 1, ""), (4, 4, "")):
        got = await store.changes(after, until, prefix)
        assert got == [event for event in truth if after < event.revision <= until and event.key.startswith(prefix)]
    await store.compact(2)
    assert len(await store.changes(2, 3)) == 200
    with pytest.raises(Compacted):
        await store.changes(1, 3)


# Forgetting


async def test_compaction_moves_the_floor_and_keeps_what_is_now(store: HistoryStore) -> None:
    await fill(store, "/a", "/a", "/b", "/c")
    await store.write([Delete("/c")])
    await fill(store, "/a")
    await store.compact(5)
    assert (store.floor, store.revision) == (5, 6)
    for call in (store.get("/a", 4), store.range("/", revision=4)):
        with pytest.raises(Compacted) as caught:
            await call
        assert (caught.value.revision, caught.value.floor) == (4, 5)
    with pytest.raises(Compacted):
        async with store.watch(4):
            pass
    assert await store.get("/a", 5) == KeyValue("/a", b"/a", 1, 2)
    assert [kv.key for kv in (await store.range("/", revision=5)).items] == ["/a", "/b"]
    async with store.watch(5) as events:
        assert await take(events, 1) == [Event(6, "/a", KeyValue("/a", b"/a", 1, 6), KeyValue("/a", b"/a", 1, 2))]


async def test_compacting_below_the_floor_changes_nothing(store: HistoryStore) -> None:
    await fill(store, "/a", "/b")
    await store.compact(2)
    await store.compact(1)
    await store.compact(2)
    assert store.floor == 2


async def test_compacting_everything_after_the_newest_was_a_deletion_keeps_the_revision(store: HistoryStore) -> None:
    await store.write([Put("/registry/leases/a", b"")])
    await store.write([Delete("/registry/leases/a")])
    await store.compact(2)
    assert (await store.range("")).revision == 2
    assert await store.write([Put("/registry/leases/a", b"2", expect=0)]) == 3
    assert await store.get("/registry/leases/a") == KeyValue("/registry/leases/a", b"2", 3, 3)


async def test_keys_with_a_ttl_go_by_themselves_with_an_event(store: HistoryStore, clock: VirtualClock) -> None:
    await store.write([Put("/short", b"1", ttl=10)])
    await store.write([Put("/long", b"1", ttl=100)])
    await store.write([Put("/renewed", b"1", ttl=10)])
    await store.write([Put("/kept", b"1", ttl=10)])
    await store.write([Put("/kept", b"2")])
    await clock.advance(9)
    await store.write([Put("/renewed", b"2", ttl=10)])
    assert await store.expire(clock.time()) == 0
    await clock.advance(2)
    async with store.watch(store.revision) as events:
        assert await store.expire(clock.time()) == 1
        assert await take(events, 1) == [Event(7, "/short", None, KeyValue("/short", b"1", 1, 1))]
    assert [kv.key for kv in (await store.range("/")).items] == ["/kept", "/long", "/renewed"]
    await clock.advance(1000)
    assert await store.expire(clock.time()) == 2
    assert await store.expire(clock.time()) == 0
    assert [kv.key for kv in (await store.range("/")).items] == ["/kept"]


async def test_the_revision_of_a_time(store: HistoryStore, clock: VirtualClock) -> None:
    begin = clock.time()
    for _ in range(10):
        await clock.advance(10)
        await fill(store, "/a", "/b")
    assert await store.revision_at(begin) == 0
    assert [await store.revision_at(begin + seconds) for seconds in (9, 10, 19, 20, 55, 100, 999)] == [
        0,
        2,
        2,
        4,
        10,
        20,
        20,
    ]


async def test_history_tells_how_a_key_was(store: HistoryStore, clock: VirtualClock) -> None:
    begin = clock.time()
    for value in (b"1", b"2", None, b"3"):
        await clock.advance(10)
        await store.write([Delete("/a")] if value is None else [Put("/a", value)])
        await fill(store, "/other")
    told = [(version.revision, version.at - begin, version.kv and version.kv.value) for version in await store.history("/a")]
    assert told == [(7, 40, b"3"), (5, 30, None), (3, 20, b"2"), (1, 10, b"1")]
    assert await store.history("/never") == []
    for at, value in ((15, b"1"), (29, b"2"), (30, None), (40, b"3"), (99, b"3")):
        version = await store.read_history("/a", at_time=begin + at)
        assert version is not None and (version.kv and version.kv.value) == value
    assert await store.read_history("/a", at_time=begin) is None
    version = await store.read_history("/a", at_revision=4)
    assert version is not None and version.kv == KeyValue("/a", b"2", 1, 3)


async def test_times_never_go_back_even_if_the_clock_does(store: HistoryStore, clock: VirtualClock) -> None:
    await fill(store, "/a")
    clock._now -= 1000
    await fill(store, "/a")
    newer, older = await store.history("/a")
    assert newer.at == older.at


# Copies


async def test_a_snapshot_opens_as_a_store_with_the_same_keys_and_goes_on_counting(
    store: HistoryStore, clock: VirtualClock, tmp_path: Path
) -> None:
    await fill(store, "/a", "/b", "/c", "/a")
    await store.write([Put("/d", b"1", ttl=60), Put("/e", b"1")])
    await store.write([Delete("/b")])
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    await store.snapshot(copy)
    await fill(store, "/later")
    assert [path.name for path in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    opened = await SqliteStore.open(copy, clock)
    try:
        assert opened.revision == 6
        assert (await opened.range("")).items == (await store.range("", revision=6)).items
        assert await opened.write([Put("/b", b"", expect=0)]) == 7
        await clock.advance(100)
        assert await opened.expire(clock.time()) == 1
    finally:
        await opened.close()


async def test_a_snapshot_that_can_not_be_written_leaves_nothing(store: HistoryStore, tmp_path: Path) -> None:
    await fill(store, "/a")
    with pytest.raises(StoreError, match="could not write"):
        await store.snapshot(tmp_path / "missing" / "copy.db")
    assert await store.get("/a") is not None
