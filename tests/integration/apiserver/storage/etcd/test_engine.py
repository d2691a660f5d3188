"""What only the etcd engine has: certificates, versions, leases, other clients, and an etcd that comes and goes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore, hpack
from remuda.apiserver.storage.etcd.grpc import frame
from remuda.apiserver.storage.store import Compacted, Event, KeyValue, Mismatch, Put, StoreError, Unavailable, Unknown
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from tests.integration.apiserver.storage.conftest import new_prefix
from tests.integration.apiserver.storage.test_store_suite import fill, take
from tests.real import need
from tests.real.etcd import EtcdCluster
from tests.real.ports import free_ports
from tests.real.proxy import Proxy
from tests.waiting import until


@asynccontextmanager
async def opened(config: EtcdConfig, **changes: int) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(config, SYSTEM_CLOCK, Rng(1), **changes)
    try:
        yield store
    finally:
        await store.close()


async def persistently(store: EtcdStore, key: str, value: bytes) -> int:
    """As a client does that tries again; each try is of the same key, which must be there once in the end."""
    for _ in range(10):
        try:
            return await store.write([Put(key, value, expect=0)])
        except Mismatch as mismatch:
            assert mismatch.current is not None and mismatch.current.value == value
            return mismatch.current.mod_revision
        except (Unavailable, Unknown):
            continue
    raise AssertionError("never")


# Certificates


@pytest.fixture(scope="module")
def secure() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster(tls=True) as cluster:
        yield cluster


async def test_a_client_with_a_certificate_is_served(secure: EtcdCluster) -> None:
    config = EtcdConfig(secure.urls, secure.ca, secure.client_certificate, secure.client_key, new_prefix())
    async with opened(config) as store:
        base = store.revision
        async with store.watch(base) as events:
            await fill(store, "/a")
            assert await take(events, 1) == [Event(base + 1, "/a", KeyValue("/a", b"/a", base + 1, base + 1), None)]


async def test_a_client_without_a_certificate_is_refused(secure: EtcdCluster) -> None:
    with pytest.raises(StoreError, match=r"(?i)certificate") as refused:
        await EtcdStore.open(EtcdConfig(secure.urls, secure.ca), SYSTEM_CLOCK, Rng(1))
    assert not isinstance(refused.value, Unavailable), "to try again would not help"


async def test_a_client_with_a_certificate_for_servers_is_refused(secure: EtcdCluster) -> None:
    config = EtcdConfig(secure.urls, secure.ca, secure.wrong_certificate, secure.wrong_key)
    with pytest.raises(StoreError, match=r"(?i)certificate"):
        await EtcdStore.open(config, SYSTEM_CLOCK, Rng(1))


async def test_an_etcd_of_another_authority_is_not_trusted(secure: EtcdCluster) -> None:
    config = EtcdConfig(secure.urls, None, secure.client_certificate, secure.client_key)
    with pytest.raises(StoreError, match="not trusted") as refused:
        await EtcdStore.open(config, SYSTEM_CLOCK, Rng(1))
    assert not isinstance(refused.value, Unavailable), "to try again would not help"


async def test_plain_http_to_an_etcd_with_tls_fails_with_the_reason(secure: EtcdCluster) -> None:
    config = EtcdConfig(tuple(url.replace("https", "http") for url in secure.urls))
    with pytest.raises(StoreError, match=secure.urls[0].partition(":")[2]):
        await EtcdStore.open(config, SYSTEM_CLOCK, Rng(1))


async def test_certificates_that_are_not_there_are_named(tmp_path: Path, secure: EtcdCluster) -> None:
    missing = tmp_path / "missing.crt"
    with pytest.raises(StoreError, match="certificates for etcd"):
        await EtcdStore.open(EtcdConfig(secure.urls, secure.ca, missing, missing), SYSTEM_CLOCK, Rng(1))


# Versions


@pytest.fixture
async def old() -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Something that says it is an etcd of a version: real ones that are so old are not to be had, or run."""
    running: list[asyncio.Server] = []

    async def start(version: str) -> str:
        status = b"\x12" + bytes([len(version)]) + version.encode()
        head = hpack.encode([(":status", "200"), ("content-type", "application/grpc")])
        answer = frame(1, 4, 1, head) + frame(0, 0, 1, b"\0" + len(status).to_bytes(4) + status)
        end = frame(1, 5, 1, hpack.encode([("grpc-status", "0")]))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"SM\r\n\r\n")
            writer.write(frame(4, 0, 0))
            # Before a call there are only settings and windows.
            while (asked := await reader.readexactly(9))[3] != 1:
                await reader.readexactly(int.from_bytes(asked[:3]))
            writer.write(answer + end)
            await reader.read()
            writer.close()

        running.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        return f"http://127.0.0.1:{running[-1].sockets[0].getsockname()[1]}"

    yield start
    for server in running:
        server.close()


@pytest.mark.parametrize("version", ["3.5.5", "3.4.27", "3.5.0", "2.3.8"])
async def test_an_etcd_that_corrupts_data_is_refused_with_the_reason(old: Callable[[str], Awaitable[str]], version: str) -> None:
    url = await old(version)
    with pytest.raises(StoreError, match=r"corrupt.*3\.5\.6") as caught:
        await EtcdStore.open(EtcdConfig((url,)), SYSTEM_CLOCK, Rng(1))
    assert url in str(caught.value) and version in str(caught.value)
    assert not isinstance(caught.value, Unavailable), "trying again would not help"


async def test_one_old_member_among_good_ones_is_refused_too(etcd: EtcdCluster, old: Callable[[str], Awaitable[str]]) -> None:
    with pytest.raises(StoreError, match=r"3\.5\.5"):
        await EtcdStore.open(EtcdConfig((*etcd.urls, await old("3.5.5"))), SYSTEM_CLOCK, Rng(1))


async def test_something_that_is_no_etcd_is_refused(old: Callable[[str], Awaitable[str]]) -> None:
    with pytest.raises(StoreError, match="is this etcd"):
        await EtcdStore.open(EtcdConfig((await old("latest"),)), SYSTEM_CLOCK, Rng(1))


async def test_a_server_of_http_alone_is_no_etcd() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(StoreError, match=rf"{url} does not speak gRPC: is this etcd, 3\.5\.6 or newer") as caught:
            await EtcdStore.open(EtcdConfig((url,)), SYSTEM_CLOCK, Rng(1))
    assert not isinstance(caught.value, Unavailable), "trying again would not help"


async def test_the_error_for_no_listener_has_every_address() -> None:
    urls = tuple(f"http://127.0.0.1:{port}" for port in free_ports(2))
    with pytest.raises(Unavailable, match="refused") as caught:
        await EtcdStore.open(EtcdConfig(urls), SYSTEM_CLOCK, Rng(1))
    assert all(url in str(caught.value) for url in urls)


# Several clients of one etcd


async def test_two_states_in_one_etcd_do_not_see_each_other(etcd: EtcdCluster) -> None:
    prefix = new_prefix()
    first, second = (EtcdConfig(etcd.urls, prefix=prefix + name) for name in ("/one", "/two"))
    async with opened(first) as one, opened(second) as two:
        base = one.revision
        await fill(one, "/a", "/b")
        revision = await two.write([Put("/a", b"other", expect=0)])
        assert [kv.value for kv in (await one.range("")).items] == [b"/a", b"/b"]
        assert [kv.value for kv in (await two.range("")).items] == [b"other"]
        async with one.watch(base) as events:
            await fill(one, "/c")
            assert [event.key for event in await take(events, 3)] == ["/a", "/b", "/c"]
        await until(lambda: one.revision >= revision)


async def test_what_one_writes_the_other_is_told_in_order(config: EtcdConfig) -> None:
    async with opened(config) as one, opened(config) as two:
        base = await one.current()
        async with one.watch(base) as here, two.watch(base) as there:
            for index in range(50):
                await (one if index % 2 else two).write([Put(f"/{index % 7}", str(index).encode())])
            seen = await take(here, 50)
            assert seen == await take(there, 50)
        assert [event.kv.value for event in seen if event.kv] == [str(index).encode() for index in range(50)]


async def test_only_one_of_two_clients_wins_a_key(config: EtcdConfig) -> None:
    async with opened(config) as one, opened(config) as two:
        results = await asyncio.gather(
            *((one if index % 2 else two).write([Put("/a", str(index).encode(), expect=0)]) for index in range(20)),
            return_exceptions=True,
        )
        won = [index for index, result in enumerate(results) if isinstance(result, int)]
        assert len(won) == 1
        held = await one.get("/a")
        assert held is not None and held.value == str(won[0]).encode()
        assert all(isinstance(result, Mismatch) and result.current == held for result in results if not isinstance(result, int))


async def test_a_write_behind_our_back_is_told_like_any_other(etcd: EtcdCluster, config: EtcdConfig) -> None:
    async with opened(config) as store:
        base = await store.current()
        async with store.watch(base) as events:
            key = base64.b64encode((config.prefix + "/a").encode()).decode()
            etcd.call("/v3/kv/put", {"key": key, "value": base64.b64encode(b"theirs").decode()}, timeout=60)
            etcd.call("/v3/kv/deleterange", {"key": key}, timeout=60)
            held = KeyValue("/a", b"theirs", base + 1, base + 1)
            assert await take(events, 2) == [Event(base + 1, "/a", held, None), Event(base + 2, "/a", None, held)]


# Forgetting, together


async def test_a_compaction_by_one_is_known_to_the_other(config: EtcdConfig) -> None:
    async with opened(config) as one, opened(config) as two:
        revisions = await fill(one, "/a", "/b", "/c")
        await one.compact(revisions[1])
        await until(lambda: two.floor == revisions[1])
        with pytest.raises(Compacted):
            await two.get("/a", revisions[0])
        with pytest.raises(Compacted):
            async with two.watch(revisions[0]):
                pass
        async with two.watch(revisions[1]) as events:
            assert [event.key for event in await take(events, 1)] == ["/c"]
        # Whoever comes later knows it too, and an older wish changes nothing.
        async with opened(config) as three:
            assert three.floor == revisions[1]
            await three.compact(revisions[0])
            assert three.floor == revisions[1]


async def test_clients_that_compact_at_once_agree(config: EtcdConfig) -> None:
    async with opened(config) as one, opened(config) as two, opened(config) as three:
        revisions = await fill(one, *(f"/{index}" for index in range(10)))
        await until(lambda: min(each.revision for each in (two, three)) >= revisions[-1])
        await asyncio.gather(one.compact(revisions[3]), two.compact(revisions[5]), three.compact(revisions[4]))
        await until(lambda: one.floor == two.floor == three.floor >= revisions[3])
        assert one.floor in revisions[3:6]
        assert [event.revision for event in await one.changes(one.floor, revisions[-1])] == [
            revision for revision in revisions if revision > one.floor
        ]


async def test_a_foreign_compaction_is_noticed_by_reads_of_the_past(etcd: EtcdCluster, config: EtcdConfig) -> None:
    async with opened(config) as store:
        revisions = await fill(store, "/a", "/b", "/c")
        etcd.call("/v3/kv/compaction", {"revision": str(revisions[2])}, timeout=60)
        with pytest.raises(Compacted):
            await store.get("/a", revisions[0])
        with pytest.raises(Compacted):
            await store.changes(revisions[0], revisions[2])
        with pytest.raises(Compacted):
            async with store.watch(revisions[0]) as events:
                await anext(events)
        assert [kv.key for kv in (await store.range("/")).items] == ["/a", "/b", "/c"]
        async with store.watch(store.revision) as events:
            await fill(store, "/d")
            assert [event.key for event in await take(events, 1)] == ["/d"]


async def test_compacting_again_and_again_without_a_change_writes_nothing(config: EtcdConfig) -> None:
    async with opened(config) as store:
        revisions = await fill(store, "/a", "/b")
        await store.compact(revisions[-1])
        after = await store.current()
        await until(lambda: store.revision >= after)
        await asyncio.sleep(0.1)
        for _ in range(5):
            await store.compact(store.revision)
        assert await store.current() == after


# Keys that go by themselves


async def test_keys_with_a_ttl_go_by_themselves(config: EtcdConfig) -> None:
    async with opened(config) as store:
        base = await store.current()
        await store.write([Put("/short", b"1", ttl=1)])
        await store.write([Put("/long", b"1", ttl=600)])
        await store.write([Put("/kept", b"1", ttl=1)])
        await store.write([Put("/kept", b"2")])
        assert await store.expire(SYSTEM_CLOCK.time() + 1000) == 0, "etcd has a clock of its own"
        # On a slow machine it goes before the others have come.
        async with asyncio.timeout(60), store.watch(base, "/short") as events:
            held = KeyValue("/short", b"1", base + 1, base + 1)
            made, gone = await take(events, 2)
            assert made == Event(base + 1, "/short", held, None)
            assert gone == Event(gone.revision, "/short", None, held)
        await asyncio.sleep(2)
        assert [kv.key for kv in (await store.range("/")).items] == ["/kept", "/long"]


async def test_a_key_that_is_written_again_lives_on(config: EtcdConfig) -> None:
    async with opened(config) as store:
        base = await store.current()
        times = [SYSTEM_CLOCK.monotonic()]
        await store.write([Put("/renewed", b"1", ttl=2)])
        await store.write([Put("/other", b"1", ttl=2)])
        for _ in range(4):
            await asyncio.sleep(1)
            times.append(SYSTEM_CLOCK.monotonic())
            await store.write([Put("/renewed", b"2", ttl=2)])
        await until(lambda: _absent(store, "/other"))
        changes = await store.changes(base, await store.current())
        times.append(SYSTEM_CLOCK.monotonic())
        # Unless the machine was too slow for us to come in time.
        if all(later - earlier < 2 for earlier, later in itertools.pairwise(times)):
            assert [event.kv is not None for event in changes if event.key == "/renewed"] == [True] * 5
        await until(lambda: _absent(store, "/renewed"))


async def _absent(store: EtcdStore, key: str) -> bool:
    return await store.get(key) is None


async def test_many_keys_with_a_ttl_share_few_leases(etcd: EtcdCluster, config: EtcdConfig) -> None:
    def leases() -> int:
        return len(etcd.call("/v3/lease/leases", timeout=60).get("leases", []))

    async with opened(config) as store:
        before = leases()
        await asyncio.gather(*(store.write([Put(f"/{index}", b"", ttl=3600)]) for index in range(300)))
        assert leases() - before <= 3


async def test_a_lease_that_was_revoked_is_replaced(etcd: EtcdCluster, config: EtcdConfig) -> None:
    async with opened(config) as store:
        await store.write([Put("/a", b"", ttl=3600)])
        for lease in etcd.call("/v3/lease/leases", timeout=60)["leases"]:
            etcd.call("/v3/lease/revoke", {"ID": lease["ID"]}, timeout=60)
        assert await store.get("/a") is None
        await store.write([Put("/b", b"", ttl=3600)])
        assert await store.get("/b") is not None


# Slowness


async def test_a_watcher_slower_than_the_backlog_misses_nothing(config: EtcdConfig) -> None:
    async with opened(config, watch_backlog=8) as store:
        base = await store.current()
        async with store.watch(base) as slow, store.watch(base, "/2") as choosy:
            await fill(store, *(f"/{index % 3}/{index}" for index in range(100)))
            assert [event.revision for event in await take(slow, 100)] == list(range(base + 1, base + 101))
            assert [event.key for event in await take(choosy, 33)] == [f"/2/{index}" for index in range(2, 100, 3)]
            await fill(store, "/2/more")
            assert [event.key for event in await take(slow, 1)] == [event.key for event in await take(choosy, 1)] == ["/2/more"]


async def test_a_watcher_slower_than_compaction_is_told_so(config: EtcdConfig) -> None:
    async with opened(config, watch_backlog=8) as store:
        base = await store.current()
        async with store.watch(base) as slow:
            await fill(store, "/first")
            assert [event.key for event in await take(slow, 1)] == ["/first"]
            revisions = await fill(store, *(f"/{index}" for index in range(100)))
            async with store.watch(revisions[0]) as quick:
                await take(quick, 99)
            await store.compact(revisions[-2])
            with pytest.raises(Compacted):
                await take(slow, 100)


async def test_a_big_state_is_read_in_pages_of_one_revision(config: EtcdConfig) -> None:
    async with opened(config) as store:
        await asyncio.gather(*(store.write([Put(f"/k/{index:05}", b"x" * 100)]) for index in range(1600)))

        async def change() -> None:
            for index in range(200):
                await store.write([Put(f"/k/{index * 7:05}", b"changed"), Put(f"/k/{index * 7:05}x", b"new")])

        changing = asyncio.create_task(change())
        for _ in range(5):
            whole = await store.range("/k/")
            state = {kv.key: kv for kv in whole.items}
            assert all(kv.mod_revision <= whole.revision for kv in whole.items)
            changed = {key for key, kv in state.items() if kv.value == b"changed"}
            assert {f"{key}x" for key in changed} == {key for key in state if key.endswith("x")}
            assert len(state) == 1600 + len(changed)
        await changing


# An etcd that comes and goes


@pytest.fixture
def mortal() -> Iterator[EtcdCluster]:
    """One member for this test alone, which may die."""
    need.programs("etcd")
    with EtcdCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_restart_of_etcd_loses_nothing_and_tells_no_event_twice(mortal: EtcdCluster, how: str) -> None:
    async with opened(EtcdConfig(mortal.urls, prefix="/p")) as store:
        base = await store.current()
        async with store.watch(base) as events:
            await fill(store, "/a", "/b")
            assert len(await take(events, 2)) == 2
            getattr(mortal, how)(0)
            writing = asyncio.create_task(store.write([Put("/c", b"", expect=0)]))
            await asyncio.sleep(0.3)
            mortal.start(0)
            # A slow machine starts it after the patience of a write, and has done it or not.
            with contextlib.suppress(Unavailable, Unknown):
                await writing
            made = [await persistently(store, "/c", b""), *await fill(store, "/d")]
            told = [(event.revision, event.key) for event in await asyncio.wait_for(take(events, 2), 60)]
            assert told == list(zip(made, ("/c", "/d"), strict=True))
        assert [kv.key for kv in (await store.range("/")).items] == ["/a", "/b", "/c", "/d"]


async def test_an_etcd_that_stays_away_is_unavailable_with_its_address(mortal: EtcdCluster) -> None:
    async with opened(EtcdConfig(mortal.urls)) as store:
        mortal.kill(0)
        calls = (store.get("/a"), store.range("/"), store.current(), store.write([Put("/a", b"")]))
        for told in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(told, Unavailable) and mortal.urls[0] in str(told)
        mortal.restore()
        await store.write([Put("/a", b"")])


async def test_a_compaction_while_we_were_away_ends_watches_and_spares_the_rest(mortal: EtcdCluster) -> None:
    with Proxy(mortal.urls[0]) as line:
        config = EtcdConfig((line.url,), prefix="/p")
        async with opened(config) as cut, opened(EtcdConfig(mortal.urls, prefix="/p")) as other:
            await fill(cut, "/a")
            at = await cut.current()
            async with cut.watch(at) as events:
                line.cut()
                revisions = await fill(other, "/b", "/c", "/d")
                await other.compact(revisions[-1])
                line.heal()
                with pytest.raises(Compacted):
                    await asyncio.wait_for(take(events, 3), 60)
            await until(lambda: cut.floor >= revisions[-1])
            async with cut.watch(await cut.current()) as events:
                await fill(other, "/e")
                assert [event.key for event in await asyncio.wait_for(take(events, 1), 60)] == ["/e"]
            assert [kv.key for kv in (await cut.range("/")).items] == ["/a", "/b", "/c", "/d", "/e"]
