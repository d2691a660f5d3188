"""A request passed on and its answer passed back: what both sides see, whatever the other one does."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.gateway.proxy.connection_pool import IDLE_SECONDS, PooledConnection, direct
from remuda.gateway.proxy.http1_parser import BadAnswer, Chunked, body_of, parse_head, request_head
from remuda.kube.clock import VirtualClock
from tests.waiting import until

from .upstreams import Serve, caller, gate, saying, upstream

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# --- what comes through -------------------------------------------------------------------------------------------------


async def test_an_answer_comes_back_with_its_own_headers_and_ours() -> None:
    said = b"HTTP/1.1 200 Fine\r\nContent-Type: text/html\r\nSet-Cookie: R_SESS=x\r\nAudit-Id: 7\r\nContent-Length: 2\r\n\r\nok"
    seen: list[bytes] = []
    async with upstream(saying(said, seen=seen)) as port, gate(port) as door, caller(door.port) as client:
        status, headers, body = await client.get("/api?x=%20", "X-Remote-User: root", "Accept: */*", "Authorization: Bearer s")
    assert (status, body) == (200, b"ok")
    assert headers["audit-id"] == "7" and headers["content-security-policy"] == "sandbox"
    assert "set-cookie" not in headers
    assert seen == [b"GET /api?x=%20 HTTP/1.1\r\nHost: upstream\r\nAccept: */*\r\n\r\n"]


@pytest.mark.parametrize("method,head", [("HEAD", b"200 OK"), ("GET", b"204 No Content"), ("GET", b"304 Not Modified")])
async def test_an_answer_without_a_body_has_none(method: str, head: bytes) -> None:
    first = b"HTTP/1.1 " + head + b"\r\nContent-Length: 5\r\n\r\n"
    async with upstream(saying(first, OK)) as port, gate(port) as door, caller(door.port) as client:
        client.send(f"{method} / HTTP/1.1\r\nHost: gate\r\n\r\n".encode())
        assert head in await client.head()
        assert (await client.get())[2] == b"ok"


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=400), max_size=8),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    trailer=st.booleans(),
)
def test_chunks_are_undone_wherever_they_are_split(pieces: list[bytes], cuts: list[int], trailer: bool) -> None:
    framed = b"".join(b"%X;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    framed += b"0\r\n" + (b"Expires: never\r\n" if trailer else b"") + b"\r\n"
    body, found, at = Chunked(), b"", 0
    for step in [*cuts, len(framed)]:
        found += body.feed(framed[at : at + step])
        at += step
    found += body.feed(framed[at:])
    assert found == b"".join(pieces) and body.done and body.left == 0
    body.end()


async def test_a_chunked_answer_is_framed_anew_and_its_connection_kept() -> None:
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n"
    async with upstream(saying(first, OK)) as port, gate(port) as door, caller(door.port) as client:
        assert (await client.get())[2] == b"abcdefg"
        assert door.pool.idle == 1
        assert (await client.get())[2] == b"ok"
        assert door.pool.idle == 1


async def test_an_answer_that_ends_with_its_connection_is_passed_on_in_chunks() -> None:
    async with upstream(saying(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as port, gate(port) as door, caller(door.port) as client:
        status, headers, body = await client.get()
        assert (status, body, headers["transfer-encoding"]) == (200, b"all of it", "chunked")
        assert door.pool.idle == 0


async def test_a_client_that_knows_no_chunks_gets_none() -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with upstream(saying(said)) as port, gate(port) as door, caller(door.port) as client:
        client.send(b"GET / HTTP/1.0\r\nHost: gate\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = (await client.reader.read()).partition(b"\r\n\r\n")
        assert body == b"abc" and b"chunked" not in head


async def test_events_of_a_watch_arrive_one_by_one_and_its_head_before_them() -> None:
    more = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            await more.wait()
            more.clear()
            writer.write(b"5\r\nevt%d\n\r\n" % number)
        await reader.read()

    async with upstream(serve) as port, gate(port) as door, caller(door.port) as client:
        client.send(b"GET /watch HTTP/1.1\r\nHost: gate\r\n\r\n")
        assert b"200" in await client.head()
        for number in range(3):
            more.set()
            assert await client.reader.readexactly(10) == b"5\r\nevt%d\n\r\n" % number


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [0, 10, 200_000, 3_000_000])
async def test_bodies_go_through_both_ways(chunked: bool, size: int) -> None:
    content = random.Random(size).randbytes(size)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert (b"transfer-encoding: chunked" in head) is chunked
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if chunked:
            while count := int(await reader.readuntil(b"\r\n"), 16):
                data = await reader.readexactly(count)
                await reader.readexactly(2)
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await writer.drain()
            await reader.readexactly(2)
        else:
            data = await reader.readexactly(size)
            if data:
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        writer.write(b"0\r\n\r\n")

    async with upstream(echo) as port, gate(port) as door, caller(door.port) as client:
        if chunked:
            client.send(b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, size, 50_000):
                part = content[at : at + 50_000]
                client.send(b"%x\r\n%s\r\n" % (len(part), part))
            client.send(b"0\r\n\r\n")
        else:
            client.send(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n%s" % (size, content))
        status, _, body = await client.answer()
        assert status == 200 and body == content


async def test_a_body_is_only_asked_for_when_the_upstream_wants_it() -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        await go.wait()
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(4) == b"body"
        writer.write(OK)

    async with upstream(serve) as port, gate(port, VirtualClock()) as door, caller(door.port) as client:
        client.send(b"PUT / HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        await until(lambda: door.pool.busy == 1)
        go.set()
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"body")
        assert (await client.answer())[2] == b"ok"


async def test_an_early_refusal_comes_through_while_the_body_is_still_being_sent() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"
    async with upstream(saying(refusal, end=False)) as port, gate(port) as door, caller(door.port) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 100000000\r\n\r\n" + bytes(50_000))
        status, headers, body = await client.answer()
        assert (status, body, headers["connection"]) == (413, b"big", "close")
        assert door.pool.idle == 0


# --- upgrades -----------------------------------------------------------------------------------------------------------

_UPGRADED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n"
)


def _shouting(first: bytes = b"") -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" in head
        writer.write(_UPGRADED + first)
        while data := await reader.read(65536):
            writer.write(data.upper())
            await writer.drain()

    return serve


_ASK = b"POST /exec HTTP/1.1\r\nHost: g\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"


async def test_after_an_upgrade_bytes_go_both_ways_and_the_first_ones_are_not_lost() -> None:
    async with upstream(_shouting(b"hello")) as port, gate(port) as door, caller(door.port) as client:
        client.send(_ASK)
        head = await client.head()
        assert b"101" in head and b"X-Stream-Protocol-Version: v4" in head and b"Upgrade: SPDY/3.1" in head
        assert await client.reader.readexactly(5) == b"hello"
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.reader.readexactly(18) == b"GET / HTTP/1.1\r\n\r\n"
        big = b"abc" * 1_000_000
        client.send(big)
        assert await client.reader.readexactly(len(big)) == big.upper()
        client.writer.close()
        await until(lambda: door.pool.busy == 0 and door.open == 0)
        assert door.pool.idle == 0


async def test_the_end_of_an_upgraded_upstream_ends_the_client_after_its_last_byte() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_UPGRADED + b"last words")

    async with upstream(serve) as port, gate(port) as door, caller(door.port) as client:
        client.send(_ASK)
        await client.head()
        assert await client.reader.read() == b"last words"


async def test_an_upgrade_that_is_refused_is_an_answer_like_any_other() -> None:
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    async with upstream(saying(refusal, end=False)) as port, gate(port) as door, caller(door.port) as client:
        client.send(_ASK)
        assert (await client.answer())[::2] == (403, b"no")
        assert door.pool.idle == 0


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_a_protocol_that_was_not_requested_is_refused(said: bytes) -> None:
    async with upstream(saying(said, said)) as port, gate(port) as door:
        for ask in (_ASK, b"GET / HTTP/1.1\r\nHost: g\r\n\r\n"):
            async with caller(door.port) as client:
                client.send(ask)
                assert (await client.answer())[0] == 502


async def test_an_upgrade_with_a_body_is_refused() -> None:
    async with upstream(saying(_UPGRADED)) as port, gate(port) as door, caller(door.port) as client:
        client.send(_ASK.replace(b"Content-Length: 0", b"Content-Length: 3") + b"abc")
        assert (await client.answer())[0] == 400


# --- upstreams that lie, stall or break ---------------------------------------------------------------------------------

_LIES = [
    b"garbage\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 99 No\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2,2\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\x00\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 300 + b"\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\n" * 100,
    b"",
    b"HTTP/1.1 200 O",
]


@pytest.mark.parametrize("said", _LIES, ids=range(len(_LIES)))
async def test_what_can_be_read_in_two_ways_is_not_passed_on(said: bytes) -> None:
    async with upstream(saying(said)) as port, gate(port) as door, caller(door.port) as client:
        status, _, body = await client.get()
        assert status == 502 and b'"kind":"Status"' in body
        assert door.pool.busy == door.pool.idle == 0


_TORN = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0x2\r\nab\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n-1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\n0\n\n",
]


@pytest.mark.parametrize("said", _TORN, ids=range(len(_TORN)))
async def test_half_an_answer_never_looks_like_a_whole_one(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, _, body = said.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        await writer.drain()
        # Sent when the head has been passed on.
        await client.heard.wait()
        writer.write(body)

    async with upstream(serve) as port, gate(port) as door, caller(door.port) as client:
        with pytest.raises((EOFError, ConnectionError)):
            await client.get()
        await until(lambda: door.noted and "cut off" in door.noted[0])
        assert door.pool.busy == door.pool.idle == 0


async def test_data_after_an_answer_is_dropped() -> None:
    poison = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    async with upstream(saying(poison, OK, end=False)) as port, gate(port) as door, caller(door.port) as client:
        assert (await client.get())[2] == b"ok"
        assert door.pool.idle == 0
        assert (await client.get())[2] == b"ok"


@pytest.mark.parametrize("at", range(0, 60, 7))
async def test_an_upstream_may_break_at_any_byte(at: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    async with upstream(saying(whole[:at])) as port, gate(port) as door, caller(door.port) as client:
        try:
            status, _, body = await client.get()
        except (EOFError, ConnectionError):
            return
        assert status == 502 and b"Status" in body


async def test_a_kept_connection_that_was_closed_meanwhile_is_not_the_clients_problem() -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        if connections == 1:
            # Closed only when the next request has come: the race that nobody can win.
            await reader.readuntil(b"\r\n\r\n")
            return
        await reader.read()

    async with upstream(once) as port, gate(port) as door, caller(door.port) as client:
        assert (await client.get())[2] == b"ok"
        assert door.pool.idle == 1
        assert (await client.get())[2] == b"ok"
        assert connections == 2


async def test_what_may_have_been_done_already_is_not_asked_twice() -> None:
    seen: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        seen.append(await reader.readuntil(b"\r\n\r\n"))

    async with upstream(once) as port, gate(port) as door, caller(door.port) as client:
        assert (await client.get())[2] == b"ok"
        assert (await client.get("/x", "Content-Length: 0", method="DELETE"))[0] == 502
        assert len(seen) == 2


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_read_goes_another_way_when_the_first_falls_silent(method: str) -> None:
    """Nothing ends on the silent one; what may change something stays there, for it may have been done."""
    clock, silent, ways = VirtualClock(), asyncio.Event(), 0

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with upstream(mute) as first, upstream(saying(OK, end=False)) as second:

        async def connect() -> PooledConnection:
            nonlocal ways
            ways += 1
            line = await direct("127.0.0.1", first if ways == 1 else second, None)()
            return PooledConnection(line.stream, lambda: line.stale, silent.is_set if ways == 1 else lambda: False)

        asked = asyncio.Event()
        async with gate(connect, clock) as door, caller(door.port) as client:
            answer = asyncio.ensure_future(client.get("/x", method=method))
            await asked.wait()
            await clock.advance(10.0)
            assert not answer.done() and ways == 1
            silent.set()
            await clock.advance(2.0)
            if method == "GET":
                assert (await answer)[2] == b"ok" and ways == 2
            else:
                assert ways == 1
                answer.cancel()


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    clock = VirtualClock()
    async with upstream(saying(OK, end=False)) as port, gate(port, clock) as door, caller(door.port) as client:
        await client.get()
        assert door.pool.idle == 1
        await clock.advance(IDLE_SECONDS + 1)
        assert door.pool.idle == 0


async def test_an_upstream_that_is_not_there_is_said_to_be_so() -> None:
    async with upstream(saying(OK)) as port:
        pass
    async with gate(port) as door, caller(door.port) as client:
        status, _, body = await client.get()
        assert status == 503 and b"can't be reached" in body


# --- clients that leave -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_leaves_takes_its_request_with_it(answered: bool) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        if answered:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()
        ended.set()

    async with upstream(serve) as port, gate(port) as door:
        async with caller(door.port) as client:
            client.send(b"GET /watch HTTP/1.1\r\nHost: g\r\n\r\n")
            await asked.wait()
            if answered:
                await client.head()
        await until(lambda: ended.is_set() and door.open == 0)
        assert door.pool.busy == door.pool.idle == 0


async def test_half_a_body_never_looks_like_a_whole_one() -> None:
    got: list[bytes] = []
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        got.append(await reader.read())

    async with upstream(serve) as port, gate(port) as door:
        async with caller(door.port) as client:
            client.send(b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            await asked.wait()
        await until(lambda: bool(got))
        assert not got[0].endswith(b"0\r\n\r\n")


async def test_a_slow_reader_holds_up_the_upstream_and_not_our_memory() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while sent < 1_000_000_000:
            writer.write(bytes(100_000))
            await writer.drain()
            sent += 100_000

    async with upstream(serve) as port, gate(port) as door, caller(door.port) as client:
        client.send(b"GET /big HTTP/1.1\r\nHost: g\r\n\r\n")
        await client.head()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        # What the sockets of two connections hold, and a little of ours.
        assert sent < 30_000_000


# --- the pure parts -----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data: bytes) -> None:
    try:
        head = parse_head(data)
        body_of(head, "GET")
    except BadAnswer:
        return
    assert all("\n" not in value and "\r" not in value for _, value in head.headers)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_chunks_or_refused(pieces: list[bytes]) -> None:
    body = Chunked()
    try:
        for piece in pieces:
            body.feed(piece)
    except BadAnswer:
        return


@pytest.mark.parametrize("name,value", [("X", "a\r\nY: b"), ("X\n", "a"), ("X", "a\x00")])
def test_no_header_becomes_two(name: str, value: str) -> None:
    with pytest.raises(ValueError):
        request_head("GET", "/", [(name, value)])


async def test_no_answer_reaches_another_client() -> None:
    """Many clients on few connections, with an upstream and clients that break off, say too much or are slow."""
    chance = random.Random(7)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1]
            body = path * chance.randint(1, 400)
            mood = chance.random()
            if mood < 0.3:
                await asyncio.sleep(chance.random() * 0.01)
            if mood < 0.5:
                whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            else:
                whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            if mood > 0.93:
                writer.write(whole[: chance.randrange(len(whole))])
                return
            writer.write(whole)
            if mood > 0.88:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
            elif mood > 0.84:
                return

    async def ask(port: int, number: int) -> int:
        whole = 0
        for turn in range(25):
            async with caller(port) as client:
                path = f"/{number}/{turn}"
                client.send(f"GET {path} HTTP/1.1\r\nHost: g\r\n\r\n".encode())
                if chance.random() < 0.2:
                    await asyncio.sleep(chance.random() * 0.005)
                    continue
                try:
                    status, _, body = await client.answer()
                except (EOFError, ConnectionError):
                    continue
                if status == 200:
                    assert body.replace(path.encode(), b"") == b"", (path, body[:100])
                    whole += 1
                else:
                    assert status == 502
        return whole

    async with upstream(serve) as port, gate(port) as door:
        done = await asyncio.gather(*(ask(door.port, number) for number in range(20)))
        assert sum(done) > 250
        await until(lambda: door.pool.busy == 0 and door.open == 0)
