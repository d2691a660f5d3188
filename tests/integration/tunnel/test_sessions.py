"""Who gets in, which session carries a stream, who is told, and how a client comes back."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from remuda.kube.clock import SYSTEM_CLOCK, Rng, VirtualClock
from remuda.tunnel import Refused, Server, TunnelClient, TunnelError
from tests.real.ports import free_port
from tests.waiting import until

from .pair import TOKEN, Door, echo, listening, read_exactly, stopped


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({}, 401, "failed authentication"),
        ({"X-API-Tunnel-Token": "wrong"}, 400, "cluster not found"),
        ({"X-API-Tunnel-Token": TOKEN}, 400, "Error during upgrade for host [c-test]: not a websocket handshake"),
    ],
)
async def test_who_is_turned_away_before_the_upgrade(headers: dict[str, str], status: int, text: str) -> None:
    async with Door() as door, aiohttp.ClientSession() as http:
        async with http.get(door.url.replace("ws:", "http:"), headers=headers) as answer:
            assert (answer.status, await answer.text()) == (status, text)
        assert door.tunnels.clients() == []


async def test_a_client_says_why_it_was_refused() -> None:
    async with Door() as door:
        with pytest.raises(Refused, match="answered 400"):
            await door.client(token="wrong").connect_once()


async def test_a_client_that_cannot_connect_says_so() -> None:
    client = TunnelClient(Server("ws://127.0.0.1:1/", proxy=""), dict, lambda *_: True, SYSTEM_CLOCK, Rng(1))
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.connect_once()


async def test_a_server_that_never_answers_is_given_up_after_ten_seconds() -> None:
    clock = VirtualClock()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with listening(silent) as address:
        client = TunnelClient(Server(f"ws://{address}/", proxy=""), dict, lambda *_: True, clock, Rng(1))
        task = asyncio.create_task(client.connect_once())
        await until(lambda: clock.next_timer() is not None)
        await asyncio.sleep(0.05)
        await clock.advance(10)
        with pytest.raises(TunnelError, match="did not answer within 10 s"):
            await task


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def session_added(self, key: str, number: int) -> None:
        self.told.append(("added", key, ""))

    def session_removed(self, key: str, number: int, reason: str) -> None:
        self.told.append(("removed", key, reason))


async def test_listeners_hear_of_every_session_even_of_earlier_ones() -> None:
    async with Door() as door:
        await door.join("c-one")
        heard = Heard()
        door.tunnels.add_listener(heard)
        _, second = await door.join("c-two")
        assert heard.told == [("added", "c-one", ""), ("added", "c-two", "")]
        assert sorted(door.tunnels.clients()) == ["c-one", "c-two"]
        await stopped(second)
        await until(lambda: len(heard.told) == 3)
        assert heard.told[2][:2] == ("removed", "c-two")
        assert not door.tunnels.has_session("c-two")


async def test_the_oldest_session_is_used_and_the_next_takes_over() -> None:
    async with Door() as door, listening(echo) as address:
        _, first = await door.join()
        await door.join()
        older, newer = door.tunnels.sessions("c-test")
        await door.tunnels.dial("c-test", "tcp", address)
        assert (older.streams, newer.streams) == (1, 0)
        await stopped(first)
        await until(lambda: door.tunnels.sessions("c-test") == [newer])
        stream = await door.tunnels.dial("c-test", "tcp", address)
        await stream.write(b"over here")
        assert await read_exactly(stream, 9) == b"over here"
        assert newer.streams == 1


async def test_a_silent_session_is_passed_over_before_it_counts_as_dead() -> None:
    clock = VirtualClock()
    async with Door(clock) as door, aiohttp.ClientSession() as http:
        headers = {"X-API-Tunnel-Token": TOKEN}
        async with (
            http.ws_connect(door.url, headers=headers, autoping=False),
            http.ws_connect(door.url, headers=headers) as second,
        ):
            await until(lambda: len(door.tunnels.sessions("c-test")) == 2)
            silent, heard = door.tunnels.sessions("c-test")
            await clock.advance(16)
            await second.ping()
            await until(lambda: heard.heard_at > silent.heard_at or silent.heard_at > heard.heard_at)
            stream = await door.tunnels.dial("c-test", "tcp", "x:1")
            chosen = max((silent, heard), key=lambda session: session.heard_at)
            assert stream._carrier is chosen


async def test_a_session_without_its_last_ping_is_passed_over_for_another_one() -> None:
    clock = VirtualClock()
    async with Door(clock) as door:
        await door.join()
        await door.join()
        older, newer = door.tunnels.sessions("c-test")
        assert door.tunnels.preferred("c-test") == [older, newer]
        older.heard_at, newer.heard_at = clock.monotonic() - 8, clock.monotonic() - 5
        assert door.tunnels.preferred("c-test") == [newer, older]
        assert door.tunnels.is_passed_over(older) and not door.tunnels.is_passed_over(newer)
        # All are silent: the network between may be slow, and the one heard from last is the best there is.
        older.heard_at, newer.heard_at = clock.monotonic() - 20, clock.monotonic() - 30
        assert door.tunnels.preferred("c-test") == [older, newer]
        assert not door.tunnels.is_passed_over(older)


async def test_a_session_that_dials_only_another_address_is_passed_over() -> None:
    async with Door() as door:
        await door.join()
        await door.join()
        await door.join()
        first, second, third = door.tunnels.sessions("c-test")
        first.address, second.address = "10.0.0.1:6443", "10.0.0.2:6443"
        assert door.tunnels.preferred("c-test", "10.0.0.2:6443") == [second, third]
        assert (await door.tunnels.dial("c-test", "tcp", "10.0.0.1:6443"))._carrier is first
        # The third one says nothing of itself; without it, any is tried rather than none.
        third.address = "10.0.0.3:6443"
        assert door.tunnels.preferred("c-test", "10.0.0.9:6443") == door.tunnels.preferred("c-test") == [first, second, third]


async def test_a_client_comes_back_to_a_server_that_was_restarted() -> None:
    clock = VirtualClock()
    # Nobody else is given it while nobody listens there.
    port = free_port()
    door = Door(clock)
    door.port = port
    async with door:
        client = door.client()
        task = asyncio.create_task(client.run())
        await until(lambda: door.tunnels.has_session("c-test"))
    await until(lambda: client.session is None)
    again = Door(clock)
    again.port = port
    async with again:
        for _ in range(3000):
            if again.tunnels.has_session("c-test"):
                break
            await clock.advance(1)
            await asyncio.sleep(0.02)
        await until(lambda: again.tunnels.has_session("c-test"))
        await stopped(task)


async def test_clients_do_not_come_back_in_one_moment() -> None:
    waits: list[float] = []

    class Recording(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            await super().sleep(seconds)

    clock = Recording()
    server = Server("ws://127.0.0.1:1/", proxy="")
    clients = [TunnelClient(server, dict, lambda *_: True, clock, Rng(seed)) for seed in range(20)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await until(lambda: len(waits) == 20)
    assert len(set(waits)) == 20
    assert all(2.5 <= wait <= 5 for wait in waits)
    for round_ in range(2, 6):
        await clock.advance(20)
        await until(lambda wanted=20 * round_: len(waits) >= wanted)  # type: ignore[misc]
    assert max(waits) <= 20
    assert max(waits) > 10
    for task in tasks:
        await stopped(task)


async def test_a_closed_server_takes_no_sessions() -> None:
    async with Door() as door:
        await door.join()
        door.tunnels.close()
        await until(lambda: not door.tunnels.clients())
        with pytest.raises(Refused, match="503"):
            await door.client().connect_once()


async def test_what_follows_a_connect_ends_the_session_when_it_fails() -> None:
    async with Door() as door:

        async def connected(session: object) -> None:
            raise ValueError("no secret to write")

        headers = {"X-API-Tunnel-Token": TOKEN}
        client = TunnelClient(
            Server(door.url, proxy=""), lambda: headers, lambda *_: True, SYSTEM_CLOCK, Rng(1), connected=connected
        )
        assert "no secret to write" in await client.connect_once()


@pytest.mark.parametrize("ca", [b"nonsense", "nö".encode()])
async def test_an_authority_that_is_none(ca: bytes) -> None:
    client = TunnelClient(Server("wss://127.0.0.1:1/", ca=ca, proxy=""), dict, lambda *_: True, SYSTEM_CLOCK, Rng(1))
    with pytest.raises(TunnelError, match="is not PEM"):
        await client.connect_once()


def test_a_proxys_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Server("wss://x/", proxy="http://me:hunter2@proxy:3128"))
