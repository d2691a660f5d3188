"""Members that die, hang and are slow, and lines that break: one fault at a time, each at the moment where it hurts.

What all of them at random do is :mod:`.test_chaos`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.store import Delete, Event, Mismatch, Put, StoreError, Unavailable, Unknown
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from tests.integration.apiserver.storage.conftest import new_prefix
from tests.integration.apiserver.storage.test_store_suite import fill, take
from tests.real import need
from tests.real.etcd import EtcdCluster
from tests.real.proxy import Proxy
from tests.waiting import until

from .test_engine import opened, persistently

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def trio() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster(members=3) as cluster:
        yield cluster


@pytest.fixture
def three(trio: EtcdCluster) -> Iterator[EtcdCluster]:
    """Three members, well when the test begins, whatever the one before did."""
    trio.restore()
    yield trio
    trio.restore()


@pytest.fixture
async def store(three: EtcdCluster) -> AsyncIterator[EtcdStore]:
    async with opened(EtcdConfig(three.urls, prefix=new_prefix())) as made:
        yield made


def follower(cluster: EtcdCluster) -> int:
    leads = cluster.wait_leader()
    return next(member.index for member in cluster.members if member.index != leads)


def first_first(cluster: EtcdCluster, index: int, prefix: str) -> EtcdConfig:
    """A configuration whose client (with chance as in `opened`) begins with this member."""
    begins = Rng(1).below(len(cluster.members))
    urls = [member.url for member in cluster.members]
    urls.remove(cluster.members[index].url)
    urls.insert(begins, cluster.members[index].url)
    return EtcdConfig(tuple(urls), prefix=prefix)


async def soon(events: AsyncIterator[list[Event]], count: int) -> list[Event]:
    return await asyncio.wait_for(take(events, count), 90)


# Members


@pytest.mark.parametrize("how", ["kill", "pause", "stop"])
@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_a_lost_member_costs_no_write_and_no_event(three: EtcdCluster, how: str, who: str) -> None:
    victim = three.wait_leader() if who == "leader" else follower(three)
    # The client talks to that member, and watches through it.
    async with opened(first_first(three, victim, new_prefix())) as store:
        base = await store.current()
        async with store.watch(base) as events:
            await fill(store, "/before")
            assert len(await soon(events, 1)) == 1
            await asyncio.to_thread(getattr(three, how), victim)
            made = [await asyncio.wait_for(store.write([Put(f"/{index}", b"", expect=0)]), 90) for index in range(5)]
            seen = await soon(events, 5)
            assert [(event.revision, event.key) for event in seen] == [(revision, f"/{i}") for i, revision in enumerate(made)]
            held = await store.get("/4")
            assert held is not None and held.mod_revision == made[-1]
            await asyncio.to_thread(three.restore)
            await persistently(store, "/after", b"")
            assert [event.key for event in await soon(events, 1)] == ["/after"]


async def test_a_watch_through_a_paused_member_moves_to_another_on_a_foreign_write(three: EtcdCluster) -> None:
    victim = follower(three)
    prefix = new_prefix()
    idles, writes = first_first(three, victim, prefix), first_first(three, three.wait_leader(), prefix)
    async with opened(idles) as idle, opened(writes) as busy, idle.watch(await idle.current()) as events:
        await fill(busy, "/before")
        assert [event.key for event in await soon(events, 1)] == ["/before"]
        three.pause(victim)
        # Nobody asks this client for anything: it must find out by itself.
        await fill(busy, "/a", "/b")
        assert [event.key for event in await soon(events, 2)] == ["/a", "/b"]


async def test_a_watch_from_the_past_is_not_held_up_by_a_member_that_hangs(three: EtcdCluster) -> None:
    victim = follower(three)
    async with opened(first_first(three, victim, new_prefix())) as store:
        base = await store.current()
        made = await fill(store, "/a", "/b", "/c")
        async with store.watch(base) as events:
            assert len(await soon(events, 3)) == 3
        three.pause(victim)
        seen: list[int] = []
        while len(seen) < 3:
            with contextlib.suppress(Unavailable):
                async with store.watch(base) as events:
                    seen = [event.revision for event in await soon(events, 3)]
        assert seen == made
        assert [event.revision for event in await asyncio.wait_for(store.changes(base, made[-1]), 90)] == made


async def test_without_a_quorum_reads_and_writes_fail_with_the_reason_and_come_back_by_themselves(
    three: EtcdCluster, store: EtcdStore
) -> None:
    await fill(store, "/a")
    async with store.watch(store.revision) as events:
        leads = three.wait_leader()
        lost = [leads, (leads + 1) % 3]
        for index in lost:
            three.kill(index)
        calls = (store.get("/a"), store.range("/"), store.current(), store.write([Put("/b", b"", expect=0)]))
        answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 90)
        *reads, wrote = answers
        assert all(isinstance(read, Unavailable) and "etcd" in str(read) for read in reads), reads
        assert all(three.members[index].url in str(reads[0]) for index in lost), "it says who does not answer"
        assert isinstance(wrote, Unavailable | Unknown) and "etcd" in str(wrote)
        await asyncio.to_thread(three.restore)
        await persistently(store, "/b", b"")
        await fill(store, "/c")
        assert [event.key for event in await soon(events, 2)] == ["/b", "/c"]


async def test_a_paused_majority_is_no_quorum_either(three: EtcdCluster, store: EtcdStore) -> None:
    await fill(store, "/a")
    for index in (0, 1):
        three.pause(index)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(store.get("/a"), 90)
    await asyncio.to_thread(three.restore)
    assert await store.get("/a") is not None


async def test_the_last_member_serves_nothing_stale(three: EtcdCluster) -> None:
    """A follower that is cut off by the death of the others has the state, and must not tell it."""
    left = follower(three)
    async with opened(EtcdConfig((three.members[left].url,), prefix=new_prefix())) as store:
        await fill(store, "/a")
        for member in three.members:
            if member.index != left:
                three.kill(member.index)
        answers = await asyncio.gather(store.get("/a"), store.range("/"), store.current(), return_exceptions=True)
        assert all(isinstance(answer, Unavailable) for answer in answers), answers


async def test_a_store_opens_with_a_member_down(three: EtcdCluster) -> None:
    for index in range(3):
        three.kill(index)
        three.wait_leader()
        async with opened(EtcdConfig(three.urls, prefix=new_prefix())) as store:
            await fill(store, "/a")
        three.restore()


async def test_a_store_opens_with_a_member_that_hangs(three: EtcdCluster) -> None:
    three.pause(1)
    three.wait_leader()
    async with opened(EtcdConfig(three.urls, prefix=new_prefix())) as store:
        await fill(store, "/a")


# Lines


@contextlib.contextmanager
def lines(cluster: EtcdCluster) -> Iterator[list[Proxy]]:
    """A line to each member."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Proxy(url)) for url in cluster.urls]


async def test_a_slow_line_is_only_slow(etcd: EtcdCluster) -> None:
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=new_prefix())) as store:
            line.delay(0.3)
            base = await store.current()
            async with store.watch(base) as events:
                made = await asyncio.gather(*(store.write([Put(f"/{index}", b"", expect=0)]) for index in range(20)))
                assert sorted(event.revision for event in await soon(events, 20)) == sorted(made)
            assert len((await store.range("/")).items) == 20


async def test_a_member_whose_line_hangs_is_left_for_another(three: EtcdCluster) -> None:
    with lines(three) as each:
        async with opened(EtcdConfig(tuple(line.url for line in each), prefix=new_prefix())) as store:
            base = await store.current()
            async with store.watch(base) as events:
                for index, line in enumerate(each):
                    line.stall()
                    await persistently(store, f"/{index}", b"")
                    assert [event.key for event in await soon(events, 1)] == [f"/{index}"]
                    line.heal()


async def test_a_client_that_is_cut_off_catches_up_by_itself(three: EtcdCluster) -> None:
    prefix = new_prefix()
    with lines(three) as each:
        far, near = (EtcdConfig(urls, prefix=prefix) for urls in (tuple(line.url for line in each), three.urls))
        async with opened(far) as cut, opened(near) as other, cut.watch(await cut.current()) as events:
            for line in each:
                line.cut()
            made = await fill(other, *(f"/{index}" for index in range(20)))
            with pytest.raises(Unavailable):
                await cut.current()
            for line in each:
                line.heal()
            assert [event.revision for event in await soon(events, 20)] == made
            assert await cut.current() >= made[-1]


# Writes whose answer got lost


async def test_a_write_that_was_done_though_its_answer_got_lost_is_found(etcd: EtcdCluster) -> None:
    prefix = new_prefix()
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=prefix)) as store, opened(EtcdConfig(etcd.urls, prefix=prefix)) as other:
            base = await store.current()
            line.stall(requests=False)
            writing = asyncio.create_task(store.write([Put("/a", b"ours", expect=0)]))
            await until(lambda: other.revision > base)
            line.cut()
            line.heal()
            assert await asyncio.wait_for(writing, 90) == base + 1
            held = await other.get("/a")
            assert held is not None and (held.value, held.mod_revision) == (b"ours", base + 1)
            assert len(await other.changes(base, await other.current())) == 1, "it was done once"


async def test_a_deletion_that_was_done_though_its_answer_got_lost_is_no_mismatch(etcd: EtcdCluster) -> None:
    prefix = new_prefix()
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=prefix)) as store, opened(EtcdConfig(etcd.urls, prefix=prefix)) as other:
            made = await store.write([Put("/a", b"", expect=0)])
            line.stall(requests=False)
            writing = asyncio.create_task(store.write([Delete("/a", expect=made)]))
            await until(lambda: other.revision > made)
            line.cut()
            line.heal()
            assert await asyncio.wait_for(writing, 90) == made + 1


async def test_a_write_that_never_arrived_is_tried_again(etcd: EtcdCluster) -> None:
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=new_prefix())) as store:
            base = await store.current()
            line.stall()
            writing = asyncio.create_task(store.write([Put("/a", b"ours", expect=0)]))
            await asyncio.sleep(0.2)
            line.cut()
            line.heal()
            made = await asyncio.wait_for(writing, 90)
            assert [event.revision for event in await store.changes(base, await store.current())] == [made]


async def test_a_write_without_an_expectation_is_not_done_twice(etcd: EtcdCluster) -> None:
    """Somebody else's might come in between."""
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=new_prefix())) as store:
            base = await store.current()
            line.stall(requests=False)
            writing = asyncio.create_task(store.write([Put("/a", b"ours")]))
            await asyncio.sleep(0.2)
            line.cut()
            line.heal()
            made = await asyncio.wait_for(writing, 90)
            assert [event.revision for event in await store.changes(base, await store.current())] == [made]


async def test_a_foreign_write_is_not_taken_for_our_own(etcd: EtcdCluster) -> None:
    """Two clients count from 0 to 1, and one of them is lost on the way. The API makes each write's bytes its own."""
    prefix = new_prefix()
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=prefix)) as store, opened(EtcdConfig(etcd.urls, prefix=prefix)) as other:
            zero = await store.write([Put("/n", b"0", expect=0)])
            line.stall()
            writing = asyncio.create_task(store.write([Put("/n", b"1 ", expect=zero)]))
            await asyncio.sleep(0.2)
            await other.write([Put("/n", b"1\t", expect=zero)])
            line.cut()
            line.heal()
            with pytest.raises((Mismatch, Unknown)):
                await asyncio.wait_for(writing, 90)


@pytest.mark.xfail(reason="a deletion has no bytes by which it could be told from another one of the same revision")
async def test_a_foreign_deletion_is_not_taken_for_our_own(etcd: EtcdCluster) -> None:
    prefix = new_prefix()
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=prefix)) as store, opened(EtcdConfig(etcd.urls, prefix=prefix)) as other:
            made = await store.write([Put("/n", b"", expect=0)])
            line.stall()
            writing = asyncio.create_task(store.write([Delete("/n", expect=made)]))
            await asyncio.sleep(0.2)
            await other.write([Delete("/n", expect=made)])
            line.cut()
            line.heal()
            with pytest.raises((Mismatch, Unknown)):
                await asyncio.wait_for(writing, 90)


async def test_a_write_that_a_hanging_member_still_holds_does_not_come_back_from_the_dead(three: EtcdCluster) -> None:
    """It is given up, done through another member, and undone; then the first member wakes up with it in its hands."""
    victim = follower(three)
    async with opened(first_first(three, victim, new_prefix())) as store:
        assert await store.get("/a") is None
        three.pause(victim)
        made = await asyncio.wait_for(persistently(store, "/a", b"once"), 90)
        gone = await asyncio.wait_for(store.write([Delete("/a", expect=made)]), 90)
        await asyncio.to_thread(three.restore)
        await asyncio.sleep(1)
        assert await store.get("/a") is None, "what was deleted is there again"
        assert [event.revision for event in await store.changes(made - 1, await store.current())] == [made, gone]


async def test_who_stops_waiting_for_a_write_leaves_the_store_usable(etcd: EtcdCluster) -> None:
    with Proxy(etcd.urls[0]) as line:
        async with opened(EtcdConfig((line.url,), prefix=new_prefix())) as store:
            line.stall()
            writing = [asyncio.create_task(store.write([Put(f"/{index}", b"")])) for index in range(100)]
            asking = [asyncio.create_task(store.current()) for _ in range(10)]
            await asyncio.sleep(0.2)
            for task in (*writing, *asking):
                task.cancel()
            await asyncio.gather(*writing, *asking, return_exceptions=True)
            line.cut()
            line.heal()
            await until(lambda: _works(store))


async def _works(store: EtcdStore) -> bool:
    try:
        await store.write([Put("/works", b"")])
    except StoreError:
        return False
    return True


async def test_closing_while_etcd_hangs_is_quick(etcd: EtcdCluster) -> None:
    with Proxy(etcd.urls[0]) as line:
        store = await EtcdStore.open(EtcdConfig((line.url,), prefix=new_prefix()), SYSTEM_CLOCK, Rng(1))
        line.stall()
        writing = asyncio.create_task(store.write([Put("/a", b"")]))
        asking = asyncio.create_task(store.current())
        await asyncio.sleep(0.1)
        await asyncio.wait_for(store.close(), 9)
        writing.cancel()
        answers = await asyncio.gather(writing, asking, return_exceptions=True)
        assert isinstance(answers[1], StoreError)
