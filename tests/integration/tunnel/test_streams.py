"""Streams between our two sides: what is written arrives, ends are seen, failures are told, and nobody starves."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.tunnel import NoSession, StreamClosed, StreamError
from remuda.tunnel.stream import CHUNK, PAUSE_ABOVE, RESUME_BELOW, Stream
from tests.waiting import until

from .pair import Door, echo, listening, read_all, read_exactly


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with Door() as opened:
        yield opened


async def test_a_stream_is_there_and_back(door: Door) -> None:
    await door.join()
    async with listening(echo) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        assert stream.id == 2
        await stream.write(b"hello")
        assert await read_exactly(stream, 5) == b"hello"
        stream.close()


async def test_a_unix_socket_can_be_dialled(door: Door, tmp_path: Path) -> None:
    await door.join()
    async with listening(echo, tmp_path / "s") as address:
        stream = await door.tunnels.dial("c-test", "unix", address)
        await stream.write(b"hello")
        assert await read_exactly(stream, 5) == b"hello"


async def test_the_far_end_is_seen_after_everything_it_sent(door: Door) -> None:
    content = random.Random(3).randbytes(5_000_000)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()

    client, _ = await door.join()
    async with listening(send) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        assert hashlib.sha256(await read_all(stream)).digest() == hashlib.sha256(content).digest()
        assert await stream.read() == b""
        with pytest.raises(StreamClosed):
            await stream.write(b"more")
    await until(lambda: client.session is not None and client.session.streams == 0)


async def test_our_end_is_seen_after_everything_we_wrote(door: Door) -> None:
    content = random.Random(4).randbytes(5_000_000)
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set_result(await reader.read(-1))

    await door.join()
    async with listening(take) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        await stream.write(content)
        stream.close()
        assert await got == content
    with pytest.raises(StreamClosed):
        await stream.read()
    await until(lambda: door.tunnels.sessions("c-test")[0].streams == 0)


async def test_what_was_sent_before_the_far_side_ended_is_handed_over(door: Door) -> None:
    """The far side shuts down its writing half and still reads: as much as a tunnel without half-close can do for it."""
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        got.set_result(await reader.read(-1))

    await door.join()
    async with listening(answer_first) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        await stream.write(b"early")
        assert await read_all(stream) == b"bye"
        assert await got in (b"early", b"")


async def test_a_port_without_a_listener(door: Door) -> None:
    await door.join()
    stream = await door.tunnels.dial("c-test", "tcp", "127.0.0.1:1")
    with pytest.raises(StreamError, match=r"dial tcp 127\.0\.0\.1:1: connect: connection refused"):
        await stream.read()
    with pytest.raises(StreamError, match="unknown network"):
        await (await door.tunnels.dial("c-test", "carrier-pigeon", "x:1")).read()
    with pytest.raises(StreamError, match="not host:port"):
        await (await door.tunnels.dial("c-test", "tcp", "nonsense")).read()


async def test_what_is_not_allowed_fails_alone(door: Door) -> None:
    async with listening(echo) as address:
        await door.join(allow=lambda network, wanted: network == "tcp" and wanted == address)
        good = await door.tunnels.dial("c-test", "tcp", address)
        with pytest.raises(StreamError, match="connect not allowed"):
            await (await door.tunnels.dial("c-test", "tcp", "127.0.0.1:22")).read()
        await good.write(b"still here")
        assert await read_exactly(good, 10) == b"still here"


async def test_no_agent_is_connected(door: Door) -> None:
    with pytest.raises(NoSession, match="failed to find Session for client c-test"):
        await door.tunnels.dial("c-test", "tcp", "127.0.0.1:1")


async def test_many_streams_at_once(door: Door) -> None:
    await door.join()

    async def one(number: int) -> None:
        content = random.Random(number).randbytes(random.Random(-number).randrange(1, 200_000))
        stream = await door.tunnels.dial("c-test", "tcp", address)
        writing = asyncio.create_task(stream.write(content))
        assert await read_exactly(stream, len(content)) == content
        await writing
        stream.close()

    async with listening(echo) as address:
        await asyncio.gather(*(one(number) for number in range(60)))
    await until(lambda: door.tunnels.sessions("c-test")[0].streams == 0)


async def test_bulk_both_ways_at_once(door: Door) -> None:
    await door.join()
    content = random.Random(5).randbytes(12_000_000)
    async with listening(echo) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        writing = asyncio.create_task(stream.write(content))
        assert await read_exactly(stream, len(content)) == content
        await writing


async def test_a_reader_that_stops_holds_up_only_its_own_stream(door: Door) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(1024):
            writer.write(bytes(CHUNK))
            await writer.drain()
            sent += CHUNK

    await door.join()
    async with listening(flood) as flooding, listening(echo) as echoing:
        stuck = await door.tunnels.dial("c-test", "tcp", flooding)
        await until(lambda: stuck.buffered > PAUSE_ABOVE)
        other = await door.tunnels.dial("c-test", "tcp", echoing)
        content = random.Random(6).randbytes(3_000_000)
        writing = asyncio.create_task(other.write(content))
        assert await read_exactly(other, len(content)) == content
        await writing
        # What is held anywhere is what the brakes allow, and far from all that there is to send.
        assert stuck.buffered < 2 * PAUSE_ABOVE
        assert sent < 1024 * CHUNK
        assert len(await read_all(stuck)) == 1024 * CHUNK


async def test_a_far_reader_that_stops_makes_our_writer_wait(door: Door) -> None:
    go_on = asyncio.Event()
    got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        count = 0
        while data := await reader.read(65536):
            count += len(data)
        got.set_result(count)

    written = 0

    async def write(stream: Stream) -> None:
        nonlocal written
        for _ in range(1024):
            await stream.write(bytes(CHUNK))
            written += CHUNK
        stream.close()

    client, _ = await door.join()
    async with listening(slow) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        writing = asyncio.create_task(write(stream))
        assert client.session is not None
        await until(lambda: stream._paused)
        far = next(iter(client.session._streams.values()))
        # The socket behind it may take a little more before it is full.
        await until(lambda: far.buffered > PAUSE_ABOVE)
        assert far.buffered < 2 * PAUSE_ABOVE
        assert not writing.done()
        assert written < 1024 * CHUNK
        go_on.set()
        await writing
        assert await got == 1024 * CHUNK


async def test_resume_is_asked_for_when_little_is_left(door: Door) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(256):
            writer.write(bytes(CHUNK))
            await writer.drain()
        await reader.read(1)

    client, _ = await door.join()
    async with listening(flood) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        await until(lambda: stream.buffered > PAUSE_ABOVE)
        await until(lambda: client.session is not None and next(iter(client.session._streams.values()))._paused)
        while stream.buffered >= RESUME_BELOW:
            await stream.read(CHUNK)
        await until(lambda: stream.buffered > PAUSE_ABOVE)
        stream.close()


async def test_a_stream_is_served_without_dialling(door: Door) -> None:
    async def serve(stream: Stream) -> None:
        await stream.write(f"{stream.network} {stream.address}".encode())

    await door.join(serve=serve)
    stream = await door.tunnels.dial("c-test", "tcp", "anything:1")
    assert await read_all(stream) == b"tcp anything:1"


async def test_streams_fail_when_their_session_ends(door: Door) -> None:
    await door.join()
    async with listening(echo) as address:
        stream = await door.tunnels.dial("c-test", "tcp", address)
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0.05)
        assert door.tunnels.drop("c-test", "token revoked") == 1
        with pytest.raises(StreamError, match="tunnel disconnect"):
            await reading
        with pytest.raises(StreamClosed):
            await stream.write(b"x")
