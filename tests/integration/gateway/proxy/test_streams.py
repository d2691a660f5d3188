"""Upgrades and long streams through the proxy, the tunnel and TLS: what exec, attach, cp and port-forward stand on. All of it
twice: with the agent's tunnel at this server, and at another one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from remuda.apiserver.http.listener import Listener, server_context
from tests.waiting import until

from .proxied_cluster import CLUSTER, World, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXEC = "/api/v1/namespaces/default/pods/x/exec"


class Kubelet:
    """An API server that knows no objects, but speaks websocket and SPDY (as far as changing to it goes)."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []
        self.open = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/token"):
            return web.json_response({"status": {"token": "t"}, "spec": {"expirationSeconds": 3600}}, status=201)
        if request.path.endswith("/subjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        if request.headers.get("Upgrade") is None:
            return web.json_response({"kind": "Status"})
        self.seen.append(dict(request.headers))
        self.open += 1
        try:
            return await (self._websocket(request) if request.headers["Upgrade"] == "websocket" else self._spdy(request))
        finally:
            self.open -= 1

    async def _websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data[::-1])
        return socket

    async def _spdy(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
        response.force_close()
        await response.prepare(request)
        ended = asyncio.get_running_loop().create_future()

        class Echo:
            def feed_data(self, data: bytes) -> tuple[bool, bytes]:
                assert request.transport is not None
                request.transport.write(data)
                return False, b""

            def feed_eof(self) -> None:
                if not ended.done():
                    ended.set_result(None)

        request.protocol.set_parser(Echo())  # type: ignore[arg-type]
        await ended
        return response


@asynccontextmanager
async def _kubelet(found: World) -> AsyncIterator[Kubelet]:
    made = Kubelet()
    listener = Listener(made, server_context(found.pki.serving_certificate, found.pki.serving_key, None))
    await listener.open("127.0.0.1", 0)
    await found.cluster_status(apiEndpoint=f"https://127.0.0.1:{listener.port}")
    address = f"127.0.0.1:{listener.port}"

    def moved() -> bool:
        reach = found.downstreams.reach(CLUSTER)
        return reach is not None and reach.address == address

    await until(moved)
    yield made
    await listener.close(0)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["here", "elsewhere"])
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[World, Kubelet]]:
    elsewhere = request.param == "elsewhere"
    async with world(tmp_path_factory.mktemp("world"), elsewhere=elsewhere) as found, _kubelet(found) as made:
        yield found, made


def _closed(found: World) -> bool:
    reach = found.downstreams.reach(CLUSTER)
    return reach is not None and reach.pool.busy == 0


async def test_a_websocket_goes_through_with_its_protocol(place: tuple[World, Kubelet]) -> None:
    found, kubelet = place
    content = random.Random(1).randbytes(1_500_000)
    async with found.session() as session:
        async with session.ws_connect(
            found.url + EXEC + "?command=tar", protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), max_msg_size=0
        ) as socket:
            assert socket.protocol == "v5.channel.k8s.io"
            for data in (b"hello", content, b""):
                await socket.send_bytes(data)
                assert await socket.receive_bytes() == data[::-1]
        await until(lambda: kubelet.open == 0 and _closed(found))
    headers = kubelet.seen[-1]
    assert headers["Impersonate-User"] == "u-admin" and headers["Authorization"] == "Bearer t"


async def test_a_token_in_a_websockets_protocol_goes_no_further(place: tuple[World, Kubelet]) -> None:
    found, kubelet = place
    shown = ("base64url.bearer.authorization.k8s.io.Zm9v", "v5.channel.k8s.io")
    async with found.session() as session, session.ws_connect(found.url + EXEC, protocols=shown) as socket:
        assert socket.protocol == "v5.channel.k8s.io"
    assert "bearer" not in kubelet.seen[-1]["Sec-WebSocket-Protocol"]
    assert "sec-websocket-protocol" in found.asked[-1].forged


async def _spdy(found: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
    lines = [
        f"POST /k8s/clusters/{CLUSTER}{EXEC}?command=sh HTTP/1.1",
        "Host: gate",
        "Authorization: Bearer token-a:admin",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v5.channel.k8s.io",
        "Content-Length: 0",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_spdy_goes_through_in_bulk_both_ways(place: tuple[World, Kubelet]) -> None:
    found, _ = place
    reader, writer = await _spdy(found)
    content = random.Random(2).randbytes(8_000_000)

    async def send() -> None:
        for at in range(0, len(content), 100_000):
            writer.write(content[at : at + 100_000])
            await writer.drain()

    sending = asyncio.create_task(send())
    assert await reader.readexactly(len(content)) == content
    await sending
    writer.close()
    await until(lambda: _closed(found))


async def test_many_at_once_do_not_disturb_each_other(place: tuple[World, Kubelet]) -> None:
    found, _ = place
    opened = await asyncio.gather(*(_spdy(found) for _ in range(40)))

    async def talk(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for turn in range(20):
            said = b"%d:%d;" % (number, turn)
            writer.write(said)
            assert await reader.readexactly(len(said)) == said

    await asyncio.gather(*(talk(number, *pair) for number, pair in enumerate(opened)))
    for _, writer in opened:
        writer.close()
    await until(lambda: _closed(found))


async def test_a_tunnel_that_is_cut_cuts_what_was_upgraded(place: tuple[World, Kubelet]) -> None:
    found, kubelet = place
    reader, writer = await _spdy(found)
    (found.elsewhere or found.services).tunnels.drop(CLUSTER, "cut")
    with pytest.raises((EOFError, ConnectionError)):
        await reader.readexactly(1)
    writer.close()
    await until(lambda: kubelet.open == 0)
    # It may be back already, if that took long.
    await found.leave()
    await found.join()


async def test_an_upgrade_to_something_else_is_a_request_like_any_other(place: tuple[World, Kubelet]) -> None:
    found, _ = place
    headers: dict[str, Any] = {"Connection": "Upgrade", "Upgrade": "h2c"}
    async with found.session() as session, session.get(found.url + "/api", headers=headers) as response:
        assert response.status == 200


async def test_aiohttp_gets_the_refusal_of_an_upgrade(place: tuple[World, Kubelet]) -> None:
    found, _ = place
    async with found.session("") as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await session.ws_connect(found.url + EXEC)
    assert refusal.value.status == 401
