"""What goes over the wire to etcd: header blocks, messages, frames; and whatever else a peer may send instead."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.storage.etcd import grpc, hpack
from remuda.apiserver.storage.etcd.grpc import Connection, Failed, Status, frame, head_of
from remuda.apiserver.storage.etcd.members import EtcdConfig, Member, Members
from remuda.apiserver.storage.etcd.rpc import PUT, RANGE, TXN, WATCH
from remuda.kube.clock import SYSTEM_CLOCK, Rng

# --- header blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "said"),
    [
        # The examples of RFC 7541, appendix C, as far as they need no table.
        ("040c2f73616d706c652f70617468", {":path": "/sample/path"}),
        ("100870617373776f726406736563726574", {"password": "secret"}),
        ("82", {":method": "GET"}),
        ("418cf1e3c2e5f23a6ba0ab90f4ff", {":authority": "www.example.com"}),
        ("5886a8eb10649cbf", {"cache-control": "no-cache"}),
        ("408825a849e95ba97d7f8925a849e95bb8e8b4bf", {"custom-key": "custom-value"}),
        # What etcd's servers say first, after they have given up their table.
        ("20885f8b1d75d0620d263d4c4d6564", {":status": "200", "content-type": "application/grpc"}),
    ],
)
def test_a_header_block(block: str, said: dict[str, str]) -> None:
    assert hpack.decode(bytes.fromhex(block)) == said


@given(st.dictionaries(st.text("abc-:", min_size=1), st.text(st.characters(max_codepoint=255), max_size=300)))
def test_what_is_written_is_read(headers: dict[str, str]) -> None:
    assert hpack.decode(hpack.encode(headers.items())) == headers


@given(st.binary(max_size=200))
@example(b"\x00\xff\xff\xff\xff\xff\xff\x0f")
@example(b"\xbe")
@example(b"\x3f\xe1\x1f")
def test_a_block_of_anything_is_read_or_refused(block: bytes) -> None:
    with contextlib.suppress(ValueError):
        hpack.decode(block)


# --- messages ---------------------------------------------------------------------------------------------------------------


def test_a_transaction_as_etcd_reads_it() -> None:
    compare = {"key": b"k", "target": "MOD", "result": "EQUAL", "mod_revision": 300}
    put = {"request_put": {"key": b"k", "value": b"v" * 200, "lease": -1}}
    found = TXN.encode({"compare": [compare], "success": [put], "failure": [{"request_range": {"key": b"k"}}]})
    lease = b"\x18" + b"\xff" * 9 + b"\x01"
    wanted_put = b"\x0a\x01k" + b"\x12\xc8\x01" + b"v" * 200 + lease
    assert found == (
        b"\x0a\x0a" + b"\x1a\x01k" + b"\x10\x02" + b"\x08\x00" + b"\x30\xac\x02"
        b"\x12\xdc\x01" + b"\x12\xd9\x01" + wanted_put + b"\x1a\x05" + b"\x0a\x03" + b"\x0a\x01k"
    )


def test_a_range_with_what_we_do_not_know() -> None:
    kv = b"\x0a\x01k\x10\x05\x18\xac\x02\x20\x01\x2a\x03abc\x30" + b"\xff" * 9 + b"\x01"
    unknown = b"\xf2\x3f\x02hi" + b"\x79" + b"12345678" + b"\x7d" + b"1234" + b"\x78\x01"
    found = RANGE.decode(b"\x0a\x04\x08\x09\x18\x07" + b"\x12" + bytes([len(kv)]) + kv + unknown + b"\x18\x01\x20\x2a")
    assert (found.header.revision, found.more, found.count) == (7, True, 42)
    (one,) = found.kvs
    assert (one.key, one.create_revision, one.mod_revision, one.value, one.lease) == (b"k", 5, 300, b"abc", -1)


def test_events_of_a_watch() -> None:
    made, gone = b"\x12\x07\x0a\x01k\x18\x09\x2a\x00", b"\x08\x01\x12\x05\x0a\x01k\x18\x0a\x1a\x03\x0a\x01k"
    body = b"\x18\x01\x20\x01\x28\x05\x32\x03why" + b"".join(b"\x5a" + bytes([len(each)]) + each for each in (made, gone))
    found = WATCH.decode(body)
    assert (found.created, found.canceled, found.compact_revision, found.cancel_reason) == (True, True, 5, "why")
    assert [(event.type, event.kv.mod_revision, event.prev_kv is None) for event in found.events] == [
        ("PUT", 9, True),
        ("DELETE", 10, False),
    ]


@pytest.mark.parametrize("method", [RANGE, PUT, TXN, WATCH], ids=lambda method: method.path)
@given(st.binary(max_size=300))
def test_a_message_of_anything_is_read_or_refused(method: Any, message: bytes) -> None:
    with contextlib.suppress(ValueError):
        method.decode(message)


@given(st.binary(min_size=1, max_size=40), st.integers(1, 60))
def test_a_message_that_is_cut_off_is_refused_or_shorter(value: bytes, cut: int) -> None:
    """Never more than what came."""
    kv = b"\x0a\x01k\x2a" + bytes([len(value)]) + value
    whole = b"\x12" + bytes([len(kv)]) + kv
    try:
        found = RANGE.decode(whole[:-cut])
    except ValueError:
        return
    assert not found.kvs


# --- frames -----------------------------------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.gone = False

    def write(self, data: Any) -> None:
        self.sent += data

    def abort(self) -> None:
        self.gone = True

    def is_closing(self) -> bool:
        return self.gone

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """What has been sent since the last look, without the preface."""
        data, self.sent = bytes(self.sent).removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytearray()
        found = []
        while data:
            high, low, kind, flags, stream = struct.unpack(">HBBBI", data[:9])
            size = high << 8 | low
            found.append((kind, flags, stream, data[9 : 9 + size]))
            data = data[9 + size :]
        return found


SETTINGS = frame(4, 0, 0)
HEAD = head_of("http", "h:1", "/a/B")
SAID_WELL = hpack.encode([("grpc-status", "0"), ("grpc-message", "")])
ANSWER_HEAD = hpack.encode([(":status", "200"), ("content-type", "application/grpc")])


def connected(settings: bytes = SETTINGS) -> tuple[Connection, Wire]:
    connection, wire = Connection(), Wire()
    connection.connection_made(wire)
    connection.data_received(settings)
    wire.frames()
    return connection, wire


def answer(stream: int, *messages: bytes) -> bytes:
    data = b"".join(struct.pack(">BI", 0, len(each)) + each for each in messages)
    return frame(1, 4, stream, ANSWER_HEAD) + frame(0, 0, stream, data) + frame(1, 5, stream, SAID_WELL)


@given(st.lists(st.integers(1, 40)))
def test_an_answer_in_pieces(cuts: list[int]) -> None:
    connection, wire = connected()
    call = connection.call(HEAD, b"ask")
    assert [each[:3] for each in wire.frames()] == [(1, 4, 1), (0, 1, 1)]
    data = answer(1, b"one", b"", b"three")
    for cut in cuts:
        connection.data_received(data[:cut])
        data = data[cut:]
    connection.data_received(data)
    assert (call.messages, call.ended) == ([b"one", b"", b"three"], Status(0, ""))
    assert connection.idle and connection.usable


def test_calls_at_once_are_answered_in_any_order() -> None:
    connection, _ = connected()
    calls = [connection.call(HEAD, b"ask") for _ in range(3)]
    for call in reversed(calls):
        connection.data_received(answer(call.number, b"%d" % call.number))
    assert [call.messages for call in calls] == [[b"1"], [b"3"], [b"5"]]


def test_a_long_request_waits_for_the_members_windows() -> None:
    connection, wire = connected()
    long = bytes(200_000)
    call = connection.call(HEAD, long)
    other = connection.call(HEAD, b"short")
    frames = wire.frames()
    assert sum(len(data) for kind, _, _, data in frames if kind == 0) == 65_535
    assert all(len(data) <= 16_384 for _, _, _, data in frames)
    got = b"".join(data for kind, _, stream, data in frames if kind == 0 and stream == call.number)
    for _ in range(20):
        for stream in (0, call.number, other.number):
            connection.data_received(frame(8, 0, stream, struct.pack(">I", 20_000)))
        frames = wire.frames()
        got += b"".join(data for kind, _, stream, data in frames if kind == 0 and stream == call.number)
        if any(flags & 1 for kind, flags, stream, _ in frames if kind == 0 and stream == call.number):
            break
    assert got[5:] == long
    connection.data_received(answer(call.number, b"") + answer(other.number, b""))
    assert call.ended == other.ended == Status(0, "")


def test_a_refusal_says_why() -> None:
    connection, _ = connected()
    call = connection.call(HEAD, b"ask")
    said = hpack.encode([(":status", "200"), ("grpc-status", "11"), ("grpc-message", "etcdserver: mvcc%3A gone%21")])
    connection.data_received(frame(1, 5, 1, said))
    assert call.ended == Status(11, "etcdserver: mvcc: gone!")


@pytest.mark.parametrize(
    "said", [frame(0, 1, 1), frame(1, 5, 1, ANSWER_HEAD), frame(1, 4, 1, ANSWER_HEAD) + frame(0, 1, 1, bytes(5))]
)
def test_an_end_without_a_word_is_no_refusal(said: bytes) -> None:
    """What was asked for may have been done."""
    connection, _ = connected()
    call = connection.call(HEAD, b"ask")
    connection.data_received(said)
    assert isinstance(call.ended, Failed) and call.ended.sent and connection.usable


def test_a_page_for_people_costs_only_the_call_that_it_answers() -> None:
    connection, _ = connected()
    call, other = connection.call(HEAD, b"a"), connection.call(HEAD, b"b")
    head = hpack.encode([(":status", "502"), ("content-type", "text/html")])
    connection.data_received(frame(1, 4, 1, head) + frame(0, 1, 1, b"<html>Bad Gateway</html>"))
    assert call.ended == Status(14, "it answers 502: is this etcd?")
    connection.data_received(answer(other.number, b"x"))
    assert other.messages == [b"x"] and connection.usable


def test_who_goes_has_not_begun_the_last_ones() -> None:
    connection, _ = connected()
    first, last = connection.call(HEAD, b"a"), connection.call(HEAD, b"b")
    connection.data_received(frame(7, 0, 0, struct.pack(">II", 1, 0)))
    assert isinstance(last.ended, Failed) and not last.ended.sent
    assert first.ended is None and not connection.usable
    connection.data_received(answer(1, b"x"))
    assert first.messages == [b"x"] and connection.closed


def test_a_refused_stream_was_not_begun_and_another_may_have_been() -> None:
    connection, _ = connected()
    refused, broken = connection.call(HEAD, b"a"), connection.call(HEAD, b"b")
    for call, code in ((refused, 7), (broken, 2)):
        connection.data_received(frame(3, 0, call.number, struct.pack(">I", code)))
    assert isinstance(refused.ended, Failed) and not refused.ended.sent
    assert isinstance(broken.ended, Failed) and broken.ended.sent


def test_what_was_cancelled_is_told_and_then_ignored() -> None:
    connection, wire = connected()
    call = connection.call(HEAD, b"a")
    wire.frames()
    call.cancel()
    assert wire.frames() == [(3, 0, 1, struct.pack(">I", 8))]
    connection.data_received(answer(1, b"late"))
    assert not call.messages and connection.usable


def test_no_more_calls_than_the_member_takes() -> None:
    connection, _ = connected(frame(4, 0, 0, struct.pack(">HI", 3, 1)))
    connection.call(HEAD, b"a")
    assert not connection.usable
    with pytest.raises(Failed):
        connection.call(HEAD, b"b")


def test_a_ping_is_answered() -> None:
    connection, wire = connected()
    connection.data_received(frame(6, 0, 0, b"12345678"))
    assert wire.frames() == [(6, 1, 0, b"12345678")]


def test_a_lost_connection_leaves_all_calls_uncertain() -> None:
    connection, _ = connected()
    call = connection.call(HEAD, b"a")
    connection.connection_lost(None)
    assert isinstance(call.ended, Failed) and call.ended.sent and not connection.usable


_FRAMES = st.builds(
    frame, st.integers(0, 12), st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 2**31 - 1]), st.binary(max_size=60)
)


@given(st.lists(st.one_of(_FRAMES, st.binary(max_size=30)), max_size=12))
@example([b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"])
@example([frame(0, 8, 1, b"\xff")])
@example([SETTINGS, frame(0, 0, 1, b"\x01\x00\x00\x00\x01x")])
@example([SETTINGS, frame(1, 4, 1, hpack.encode([("grpc-status", "x")]))])
def test_whatever_comes_is_an_answer_or_a_failure(pieces: list[bytes]) -> None:
    connection, wire = Connection(), Wire()
    connection.connection_made(wire)
    call = connection.call(HEAD, b"ask")
    for piece in pieces:
        if connection.closed:
            break
        connection.data_received(piece)
    if connection.closed:
        assert isinstance(call.ended, Failed | Status)
    else:
        # It waits for more; what it holds is what came.
        assert len(connection._buffer) <= sum(map(len, pieces))


def test_a_frame_beyond_what_was_agreed_is_refused() -> None:
    connection, wire = connected()
    call = connection.call(HEAD, b"ask")
    connection.data_received(struct.pack(">HBBBI", 0xFFFF, 0xFF, 0, 0, 1))
    assert wire.gone and isinstance(call.ended, Failed) and "frame" in str(call.ended)


# --- members ----------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(said: bytes, gate: asyncio.Event) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A peer that says this on each connection, once it was asked something and the gate is open; and its port."""
    asked = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(1) == b"P":
                # No TLS. Before a call there are only settings and windows.
                await reader.readuntil(b"SM\r\n\r\n")
                writer.write(SETTINGS)
                while (head := await reader.readexactly(9))[3] != 1:
                    await reader.readexactly(int.from_bytes(head[:3]))
            asked.set()
            await gate.wait()
            writer.write(said)
            await reader.read()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def test_an_answer_of_nothing_is_none() -> None:
    """An empty message would say that there is no such key."""
    gate = asyncio.Event()
    gate.set()
    async with listening(frame(1, 4, 1, ANSWER_HEAD) + frame(1, 5, 1, SAID_WELL), gate) as (port, _):
        member = Member(f"http://127.0.0.1:{port}", None)
        with pytest.raises(Failed, match="its answer is empty") as failed:
            await member.call(SYSTEM_CLOCK, RANGE.path, b"", 30.0)
        assert failed.value.sent
        member.close()


async def test_members_that_go_answer_what_they_were_asked() -> None:
    gate, other = asyncio.Event(), asyncio.Event()
    other.set()
    async with listening(answer(1, b"\x0a\x02\x18\x07"), gate) as (port, asked), listening(answer(1, b""), other) as (second, _):
        members = Members(EtcdConfig((f"http://127.0.0.1:{port}",)), SYSTEM_CLOCK, Rng(1))
        until = SYSTEM_CLOCK.monotonic() + 30
        write = asyncio.create_task(members.write(PUT, {"key": b"k"}, until))
        await asked.wait()
        members.use([f"http://127.0.0.1:{second}"])
        gate.set()
        assert (await write).header.revision == 7
        members.close()
        # Who tries again meanwhile opens nothing that nobody would close.
        with pytest.raises(Failed, match="it is not asked any more"):
            await members.pick().call(SYSTEM_CLOCK, RANGE.path, b"", 30.0)


async def test_a_member_that_goes_before_a_call_cancels_no_call() -> None:
    never, other = asyncio.Event(), asyncio.Event()
    other.set()
    # One that begins no TLS, and so keeps waiting whoever connects.
    async with listening(b"", never) as (port, asked), listening(answer(1, b"\x0a\x02\x18\x07"), other) as (second, _):
        members = Members(EtcdConfig((f"https://127.0.0.1:{port}",)), SYSTEM_CLOCK, Rng(1))
        read = asyncio.create_task(members.read(RANGE, {"key": b"k"}))
        await asked.wait()
        members.use([f"http://127.0.0.1:{second}"])
        assert (await read).header.revision == 7
        members.close()
        never.set()


def test_the_head_is_a_constant() -> None:
    assert hpack.decode(HEAD)[":path"] == "/a/B" and grpc.head_of("http", "h:1", "/a/B") == HEAD
