"""A session that has to show something first: nobody dials through it before, and nobody hears of one that was refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.tunnel import Admit, Refused, Server, Session, TunnelClient, TunnelServer
from tests.waiting import until

from .pair import echo, listening, read_exactly, stopped


async def nobody(request: web.Request) -> str | None:
    return None


@asynccontextmanager
async def door(admit: Admit) -> AsyncIterator[tuple[TunnelServer, TunnelClient]]:
    tunnels = TunnelServer(nobody, SYSTEM_CLOCK, Rng(1))

    async def handle(request: web.Request) -> web.StreamResponse:
        return await tunnels.accept(request, "c-test", mark="digest", admit=admit)

    application = web.Application()
    application.router.add_get("/", handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"ws://127.0.0.1:{runner.addresses[0][1]}/"
        yield tunnels, TunnelClient(Server(url, proxy=""), dict, lambda *_: True, SYSTEM_CLOCK, Rng(2))
    finally:
        tunnels.close()
        await runner.cleanup()


async def test_a_session_is_verified_by_dialling_before_it_is_used() -> None:
    seen: list[tuple[bool, bytes]] = []
    async with listening(echo) as address:

        async def admit(session: Session) -> None:
            stream = session.open("tcp", address)
            await stream.write(b"who are you")
            seen.append((tunnels.has_session("c-test"), await read_exactly(stream, 11)))
            stream.close()

        async with door(admit) as (tunnels, client):
            task = asyncio.create_task(client.run())
            await until(lambda: tunnels.has_session("c-test"))
            assert seen == [(False, b"who are you")]
            assert [session.mark for session in tunnels.sessions("c-test")] == ["digest"]
            await stopped(task)
            await until(lambda: not tunnels.has_session("c-test"))


async def test_a_refused_session_ends_and_was_never_there() -> None:
    heard: list[str] = []

    class Heard:
        def session_added(self, key: str, number: int) -> None:
            heard.append(key)

        def session_removed(self, key: str, number: int, reason: str) -> None:
            heard.append(reason)

    ended: list[Session] = []

    async def admit(session: Session) -> None:
        ended.append(session)
        raise Refused("not the cluster that we know")

    async with door(admit) as (tunnels, client):
        tunnels.add_listener(Heard())
        task = asyncio.create_task(client.connect_once())
        await until(lambda: bool(ended) and not ended[0].alive)
        await asyncio.gather(task, return_exceptions=True)
        assert ended[0].reason == "not the cluster that we know"
        assert heard == [] and tunnels.clients() == []


async def test_a_line_that_breaks_meanwhile_is_not_taken() -> None:
    waiting = asyncio.Event()
    ended: list[Session] = []

    async def admit(session: Session) -> None:
        ended.append(session)
        await waiting.wait()

    async with door(admit) as (tunnels, client):
        task = asyncio.create_task(client.run())
        await until(lambda: bool(ended))
        await stopped(task)
        await until(lambda: not ended[0].alive)
        waiting.set()
        await asyncio.sleep(0.05)
        assert tunnels.clients() == []
