"""Clients of one server are dialled through another one: announced, reached in one hop, withdrawn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from remuda.tunnel import NoSession, StreamError
from tests.integration.tunnel.pair import echo, listening, read_all, read_exactly, stopped
from tests.integration.tunnel.peer_door import PeerDoor
from tests.waiting import until


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[PeerDoor, PeerDoor, asyncio.Task[None]]]:
    """Two servers, and the call by which the second reaches the clients of the first."""
    async with PeerDoor() as first, PeerDoor() as second:
        call = asyncio.create_task(first.calling(second.port, "first").run())
        await until(lambda: "first" in second.tunnels.servers())
        try:
            yield first, second, call
        finally:
            await stopped(call)


async def test_a_client_of_one_server_is_dialled_at_the_other_byte_for_byte() -> None:
    async with pair() as (first, second, _), listening(echo) as address:
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        assert second.tunnels.clients() == ["c-one"]
        assert second.tunnels.own_clients() == []
        assert second.tunnels.servers() == {"first": 1}
        stream = await second.tunnels.dial("c-one", "tcp", address)
        sent = bytes(range(256)) * 8192
        writing = asyncio.create_task(stream.write(sent))
        assert await read_exactly(stream, len(sent)) == sent
        await writing
        stream.close()


async def test_what_a_target_sent_before_it_closed_arrives_whole() -> None:
    said = b"x" * 1_000_003

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async with pair() as (first, second, _), listening(say) as address:
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        for _ in range(3):
            stream = await second.tunnels.dial("c-one", "tcp", address)
            assert await read_all(stream) == said


async def test_a_failed_dial_is_reported_with_its_reason() -> None:
    async with pair() as (first, second, _):
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        stream = await second.tunnels.dial("c-one", "tcp", "127.0.0.1:1")
        with pytest.raises(StreamError, match="connection refused"):
            await stream.read()


async def test_a_client_that_has_left_is_withdrawn_and_listeners_are_told() -> None:
    heard: list[str] = []

    class Listener:
        def session_added(self, key: str, number: int) -> None:
            heard.append(f"+{key}")

        def session_removed(self, key: str, number: int, reason: str) -> None:
            heard.append(f"-{key}")

    async with pair() as (first, second, _):
        second.tunnels.add_listener(Listener())
        _, task = await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        await stopped(task)
        await until(lambda: not second.tunnels.has_session("c-one"))
        assert heard == ["+c-one", "-c-one"]
        with pytest.raises(NoSession):
            await second.tunnels.dial("c-one", "tcp", "127.0.0.1:1")


async def test_when_the_other_server_is_gone_so_are_its_clients() -> None:
    async with pair() as (first, second, call):
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        await stopped(call)
        await until(lambda: not second.tunnels.has_session("c-one"))
        assert second.tunnels.servers() == {}


async def test_own_sessions_come_first_until_this_server_leaves() -> None:
    async with pair() as (first, second, _):
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        remote = second.tunnels.preferred("c-one")[0]
        await second.join("c-one")
        own = second.tunnels.sessions("c-one")[0]
        assert second.tunnels.preferred("c-one") == [own, remote]
        assert second.tunnels.is_passed_over(remote) and not second.tunnels.is_passed_over(own)
        second.tunnels.leaving = True
        assert second.tunnels.preferred("c-one") == [remote, own]


async def test_a_stream_of_another_server_goes_no_further() -> None:
    """Both call each other, and each has announced a client that only the other one has: there is no circle."""
    async with pair() as (first, second, _):
        back = asyncio.create_task(second.calling(first.port, "second").run())
        _, task = await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one") and "second" in first.tunnels.servers())
        remote = second.tunnels.preferred("c-one")[0]
        await stopped(task)
        await until(lambda: not first.tunnels.has_session("c-one"))
        # As if the withdrawal were still on its way, and the second had the client from a third.
        stream = remote.open("tcp", "127.0.0.1:1")
        with pytest.raises(StreamError, match="failed to find Session for client c-one"):
            await stream.read()
        await stopped(back)


async def test_an_agent_can_neither_announce_clients_nor_open_streams() -> None:
    from remuda.tunnel.frames import Kind

    async with PeerDoor() as door:
        client, _ = await door.join("c-one")
        assert client.session is not None
        client.session.announce(Kind.ADD_CLIENT, "c-two", 7)
        sessions = door.tunnels.sessions("c-one")
        client.session.open("c-two::tcp", "127.0.0.1:1")
        await until(lambda: not sessions[0].alive)
        assert sessions[0].reason == "connect not allowed"
        assert "c-two" not in door.tunnels.clients()


async def test_only_streams_for_a_client_are_relayed() -> None:
    async with pair() as (first, second, _), listening(echo) as address:
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        session = second.tunnels.preferred("c-one")[0].session  # type: ignore[attr-defined]
        stream = session.open("tcp", address)
        with pytest.raises(StreamError, match="connect not allowed"):
            await stream.read()


async def test_a_server_asks_the_others_what_they_know() -> None:
    async with pair() as (first, second, _):
        assert await second.tunnels.ask_servers("echo", "a/b?c", 60) == [b"a/b?c" * 10_000]
        assert await second.tunnels.ask_servers("secrets", "a", 60) == [], "a refusal is no answer"
        assert await first.tunnels.ask_servers("echo", "a", 60) == [], "none has called it"


async def test_a_new_session_of_a_server_replaces_the_last_one() -> None:
    async with pair() as (first, second, _):
        await first.join("c-one")
        await until(lambda: second.tunnels.has_session("c-one"))
        before = second.tunnels.preferred("c-one")[0]
        again = asyncio.create_task(first.calling(second.port, "first").connect_once())
        await until(lambda: not before.alive and second.tunnels.has_session("c-one"))
        assert second.tunnels.servers() == {"first": 1}
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
