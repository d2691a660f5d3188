"""An etcd that is none, or has gone mad: whatever it answers, a value or the errors that a store has, and never a hang."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore, rpc
from remuda.apiserver.storage.etcd.grpc import Failed, frame
from remuda.apiserver.storage.etcd.hpack import decode as header_block
from remuda.apiserver.storage.etcd.hpack import encode as headers
from remuda.apiserver.storage.etcd.keyspace import COMPACTION_KEY, Keyspace
from remuda.apiserver.storage.etcd.members import Members
from remuda.apiserver.storage.etcd.rpc import RANGE as RANGE_CALL
from remuda.apiserver.storage.etcd.rpc import TXN as TXN_CALL
from remuda.apiserver.storage.etcd.rpc import WATCH as WATCH_CALL
from remuda.apiserver.storage.etcd.rpc import Outgoing
from remuda.apiserver.storage.etcd.watch_feed import Feed, _checked
from remuda.apiserver.storage.store import Delete, Event, Put, StoreError
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.encoding.varints import write_varint
from remuda.lab.distro.etcd.client import ADMINISTRATION

from .budget import complaints, fuzzing
from .shapes import mangled

Obj = dict[str, Any]


# --- what an etcd in its right mind says ------------------------------------------------------------------------------------

_HEADER = Outgoing(cluster_id=(1, int), member_id=(2, int), revision=(3, int), raft_term=(4, int))
_KEY_VALUE = Outgoing(
    key=(1, bytes), create_revision=(2, int), mod_revision=(3, int), version=(4, int), value=(5, bytes), lease=(6, int)
)
_RANGE = Outgoing(header=(1, _HEADER), kvs=(2, [_KEY_VALUE]), more=(3, bool), count=(4, int))
_TXN = Outgoing(header=(1, _HEADER), succeeded=(2, bool), responses=(3, [Outgoing(response_range=(1, _RANGE))]))
_EVENT = Outgoing(type=(1, {"PUT": 0, "DELETE": 1}), kv=(2, _KEY_VALUE), prev_kv=(3, _KEY_VALUE))
_WATCH = Outgoing(header=(1, _HEADER), created=(3, bool), events=(11, [_EVENT]))
_STATUS = Outgoing(header=(1, _HEADER), version=(2, bytes), leader=(4, int), errors=(8, [bytes]), isLearner=(10, bool))
_MEMBER = Outgoing(ID=(1, int), name=(2, bytes), peerURLs=(3, [bytes]), clientURLs=(4, [bytes]), isLearner=(5, bool))
_MEMBERS = Outgoing(header=(1, _HEADER), members=(2, [_MEMBER]))
_PIECE = Outgoing(header=(1, _HEADER), remaining_bytes=(2, int), blob=(3, bytes))


def key_value(key: bytes, revision: int = 5, value: bytes = b"{}") -> Obj:
    return {"key": key, "create_revision": 2, "mod_revision": revision, "version": 1, "value": value, "lease": 7}


HEADER = {"cluster_id": 1, "member_id": 2, "revision": 9, "raft_term": 2}
RANGE: Obj = {"header": HEADER, "kvs": [key_value(b"/registry/a"), key_value(b"/registry/b")], "count": 2}
TXN: Obj = {
    "header": HEADER,
    "succeeded": False,
    "responses": [{"response_range": {"header": HEADER}}, {"response_range": {**RANGE, "kvs": RANGE["kvs"][:1]}}],
}
EVENTS = [
    {"kv": key_value(b"/registry/a", 7), "prev_kv": key_value(b"/registry/a", 6)},
    {"type": "DELETE", "kv": {"key": b"/registry/b", "mod_revision": 8}},
    {"kv": key_value(COMPACTION_KEY, 8, b"3")},
]
STORY = [{"header": HEADER, "created": True}, {"header": HEADER, "events": EVENTS}, {"header": HEADER}]
STATUS: Obj = {
    "header": HEADER,
    "version": b"3.6.0",
    "leader": 2**64 - 1,
    "errors": [b"etcdserver: no leader"],
    "isLearner": True,
}
MEMBERS: Obj = {"members": [{"ID": 2**64 - 7, "name": b"a", "peerURLs": [b"http://a:1"], "isLearner": True}]}
OF_AGE = _STATUS.encode({"version": b"3.6.0"})
PIECE: Obj = {"header": HEADER, "remaining_bytes": 7, "blob": b"piece"}

fields = st.builds(
    lambda number, kind, payload: write_varint(number << 3 | kind) + payload,
    st.integers(0, 20),
    st.integers(0, 7),
    st.one_of(
        st.binary(max_size=12),
        st.binary(max_size=12).map(lambda data: write_varint(len(data)) + data),
        st.integers().map(write_varint),
    ),
)


def wires(*good: bytes) -> st.SearchStrategy[bytes]:
    """Right, right but for a few bytes, with fields of anything, or anything."""
    right = st.sampled_from(good)
    return st.one_of(
        right,
        right.flatmap(mangled),
        st.tuples(right, st.lists(fields, max_size=3).map(b"".join)).map(b"".join),
        st.lists(fields, max_size=5).map(b"".join),
        st.binary(max_size=40),
    )


ranges = wires(_RANGE.encode(RANGE), _RANGE.encode({**RANGE, "more": True}))
transactions = wires(_TXN.encode(TXN), _TXN.encode({**TXN, "succeeded": True}))
watches = wires(*(_WATCH.encode(each) for each in STORY))

administration = wires(_STATUS.encode(STATUS), _MEMBERS.encode(MEMBERS), _PIECE.encode(PIECE))


# --- what is said -----------------------------------------------------------------------------------------------------


@fuzzing(200)
@given(st.one_of(ranges, transactions, watches, administration))
def test_messages(data: bytes) -> None:
    for call in (RANGE_CALL, TXN_CALL, WATCH_CALL, rpc.STATUS, *ADMINISTRATION):
        with contextlib.suppress(ValueError):
            call.decode(data)
    rpc.number(data)


@fuzzing(200)
@given(st.lists(watches, max_size=5), st.sampled_from(["", "/registry", "é"]))
@example([_WATCH.encode({"events": [{"kv": key_value(COMPACTION_KEY, 8, b"9" * 5000)}]})], "")
def test_what_the_watch_brings(story: list[bytes], prefix: str) -> None:
    """Revisions only rise, and what is delivered is what the position says."""
    told: list[tuple[list[Event], int]] = []

    async def nobody(_: Exception) -> int:
        return 0

    async def follow() -> None:
        members = Members(EtcdConfig(("http://127.0.0.1:1",)), SYSTEM_CLOCK, Rng(1))
        feed = Feed(members, Keyspace(prefix), SYSTEM_CLOCK, lambda *each: told.append(each), nobody, lambda _: None)
        for message in story:
            with contextlib.suppress(Failed, StoreError, ValueError):
                feed._take(_checked(WATCH_CALL.decode(message), feed.position))

    asyncio.run(follow())
    reached = [position for _, position in told]
    assert reached == sorted(set(reached))


# --- the whole engine -------------------------------------------------------------------------------------------------


class Mad:
    """Speaks HTTP/2 well enough, and says what it is told to say."""

    def __init__(self) -> None:
        self.range = self.txn = b""
        self.watch: list[bytes] = []
        self.url = ""
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"PRI "):
                await reader.readexactly(6)
                writer.write(frame(4, 0, 0))
                await self.calls(reader, writer)
        writer.close()

    async def calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths: dict[int, str] = {}
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
            if kind == 1:
                paths[stream] = header_block(payload)[":path"]
            elif kind == 0 and flags & 1:
                self.answer(paths.pop(stream), stream, writer)

    def answer(self, path: str, stream: int, writer: asyncio.StreamWriter) -> None:
        said = {RANGE_CALL.path: [self.range], TXN_CALL.path: [self.txn], WATCH_CALL.path: self.watch, rpc.STATUS.path: [OF_AGE]}
        writer.write(frame(1, 4, stream, headers([(":status", "200"), ("content-type", "application/grpc")])))
        for message in said.get(path, [b""]):
            writer.write(frame(0, 0, stream, b"\0" + len(message).to_bytes(4) + message))
        if path != WATCH_CALL.path:
            writer.write(frame(1, 5, stream, headers([("grpc-status", "0")])))


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[asyncio.Runner, Mad]]:
    with asyncio.Runner() as runner:
        mad = Mad()

        async def start() -> asyncio.Server:
            return await asyncio.start_server(mad.serve, "127.0.0.1", 0)

        server = runner.run(start())
        mad.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield runner, mad
        server.close()

        async def stop() -> None:
            for writer in mad.writers:
                writer.close()
            await asyncio.sleep(0)

        runner.run(stop())


@fuzzing(80)
@given(ranges, transactions, st.lists(watches, max_size=3))
@example(_RANGE.encode({**RANGE, "more": True, "kvs": []}), _TXN.encode(TXN), [])
@example(_RANGE.encode({**RANGE, "more": True}), _TXN.encode(TXN), [])
@example(_RANGE.encode(RANGE), _TXN.encode({"header": HEADER, "responses": []}), [])
@example(_RANGE.encode({**RANGE, "kvs": [key_value(b"/registry/\xff")]}), _TXN.encode(TXN), [])
def test_a_store_on_an_etcd_that_has_gone_mad(
    world: tuple[asyncio.Runner, Mad], caplog: pytest.LogCaptureFixture, ranged: bytes, txn: bytes, watch: list[bytes]
) -> None:
    runner, mad = world
    mad.range, mad.txn, mad.watch = ranged, txn, watch
    caplog.clear()

    async def use() -> None:
        try:
            store = await EtcdStore.open(EtcdConfig((mad.url,)), SYSTEM_CLOCK, Rng(1))
        except StoreError:
            return
        try:
            for call in (
                lambda: store.get("/registry/a"),
                lambda: store.range("/registry/"),
                lambda: store.current(),
                lambda: store.write([Put("/registry/a", b"x", 1)]),
                lambda: store.write([Delete("/registry/a")]),
                lambda: store.compact(store.revision),
            ):
                with contextlib.suppress(StoreError):
                    async with asyncio.timeout(60):
                        await call()
        finally:
            await store.close()

    runner.run(use())
    assert complaints(caplog.records) == []
