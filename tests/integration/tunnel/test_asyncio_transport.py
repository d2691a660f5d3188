"""A client of Kubernetes whose every connection goes through a tunnel, with TLS inside it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.connection import Unreachable
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import KubeTarget
from remuda.client.tls import ContextOnDemand
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.tunnel import asyncio_transport
from remuda.tunnel.asyncio_transport import TunnelConnector
from remuda.tunnel.stream import Stream
from remuda.tunnel.tls import TlsStream, start_tls
from tests.waiting import until

from .pair import Door, listening

CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki") / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


def through(
    door: Door, target: KubeTarget, largest: int | None = None, *, keep: float = 45.0, watches: int = 1024
) -> HttpsClient:
    def connector(limit: int, context: ContextOnDemand | None) -> aiohttp.BaseConnector:
        def ways() -> list[Callable[[str], Stream]]:
            return door.tunnels.ways("c-test", "tcp", "", 2)

        return TunnelConnector(ways, context, SYSTEM_CLOCK, limit=limit, keep=keep)

    return HttpsClient(target, SYSTEM_CLOCK, connector=connector, largest=largest, watches=watches)


@asynccontextmanager
async def api_server(pki: Pki) -> AsyncIterator[KubeTarget]:
    server = await Server.open(Config(data_dir=None, pki=pki, port=0))
    await server.listen()
    admin: dict[str, Any] = {
        "client_certificate": pki.admin_certificate.read_bytes(),
        "client_key": pki.admin_key.read_bytes(),
    }
    try:
        yield KubeTarget(server.url, ca=pki.ca_pem, **admin)
    finally:
        await server.close()


def configmap(name: str, data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"x": data},
    }


async def test_a_client_reads_writes_and_watches_through_the_tunnel(pki: Pki) -> None:
    async with Door() as door, api_server(pki) as target:
        await door.join()
        async with through(door, target) as client:
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "herd"}})
            big = "x" * 700_000
            made = await client.create(CONFIGMAPS, configmap("a", big))
            assert (await client.get(CONFIGMAPS, "a", "default"))["data"] == {"x": big}
            events = client.watch(CONFIGMAPS, "default", resource_version=made["metadata"]["resourceVersion"])
            await client.create(CONFIGMAPS, configmap("b", "y"))
            event = await anext(aiter(events))
            assert event.object["metadata"]["name"] == "b"
            await events.aclose()  # type: ignore[attr-defined]
            await asyncio.gather(*(client.get(CONFIGMAPS, "a", "default") for _ in range(50)))
            with pytest.raises(ApiError, match="not found"):
                await client.get(CONFIGMAPS, "no", "default")


async def test_a_server_with_another_certificate_is_not_spoken_to(pki: Pki, tmp_path: Path) -> None:
    other = Pki.ensure(tmp_path / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    async with Door() as door, api_server(pki) as target:
        await door.join()
        async with through(door, KubeTarget(target.server, ca=other.ca_pem, token="secret")) as client:
            with pytest.raises(Unreachable, match="certificate"):
                await client.raw("GET", "/version")
        async with through(door, KubeTarget(target.server.replace("127.0.0.1", "127.0.0.2"), ca=pki.ca_pem)) as client:
            with pytest.raises(Unreachable):
                await client.raw("GET", "/version")


async def test_without_a_session_or_with_one_that_ends_there_is_no_answer(pki: Pki) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Door() as door, listening(mute) as address, through(door, KubeTarget(f"http://{address}")) as client:
        with pytest.raises(Unreachable, match="failed to find Session"):
            await client.raw("GET", "/version")
        await door.join()
        asking = asyncio.create_task(client.raw("GET", "/version"))
        await until(lambda: door.tunnels.sessions("c-test")[0].streams == 1)
        door.tunnels.drop("c-test", "revoked")
        with pytest.raises(Unreachable):
            await asking


async def test_an_unused_connection_is_closed_and_leaves_nothing_behind(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even until circles of objects are looked for, which is seldom: there is a TLS connection in it."""
    made: list[weakref.ref[TlsStream]] = []

    async def start(*about: Any, **more: Any) -> TlsStream:
        secured = await start_tls(*about, **more)
        made.append(weakref.ref(secured))
        return secured

    monkeypatch.setattr(asyncio_transport, "start_tls", start)
    async with Door() as door, api_server(pki) as target:
        await door.join()
        session = door.tunnels.sessions("c-test")[0]
        async with through(door, target, keep=1.5, watches=0) as client:
            gc.disable()
            try:
                with pytest.raises(ApiError, match="not found"):
                    await client.get(CONFIGMAPS, "no", "default")
                assert [event.type async for event in client.watch(CONFIGMAPS, timeout_seconds=1)] == ["BOOKMARK"]
                assert len(made) == 1, "a watch that ends leaves its connection to others"
                await until(lambda: session.streams == 0 and made[0]() is None)
            finally:
                gc.enable()
            await client.raw("GET", "/version")
            assert len(made) == 2


async def test_connections_are_kept_and_all_closed_with_the_client(pki: Pki) -> None:
    async with Door() as door, api_server(pki) as target:
        await door.join()
        session = door.tunnels.sessions("c-test")[0]
        async with through(door, target) as client:
            for _ in range(5):
                await client.raw("GET", "/version")
            assert session.streams == 1
        await until(lambda: session.streams == 0)


@pytest.mark.parametrize("head", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked", b"X: until-the-end"])
async def test_a_server_that_wants_our_memory_does_not_get_it(head: bytes) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head + b"\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n" if b"chunked" in head else b"x" * 65536
        while sent < 500_000_000:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()

    async with Door() as door, listening(flood) as address:
        await door.join()
        async with through(door, KubeTarget(f"http://{address}"), 1_000_000) as client:
            with pytest.raises(ApiError, match="longer than"):
                await client.raw("GET", "/version")
            with pytest.raises(ApiError, match="longer than"):
                async for _ in client.watch(CONFIGMAPS):
                    raise AssertionError("nobody said anything")
        assert sent < 100_000_000
