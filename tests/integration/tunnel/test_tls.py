"""TLS inside a tunnel: believed only when it should be, whole at its end, and as slow as the other side wants."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from remuda.apiserver.keys.pki import Pki
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.tunnel import Server, StreamError, TlsStream, TunnelClient, start_tls
from remuda.tunnel.stream import Stream
from tests.waiting import until

from .pair import TOKEN, Door, Serve, echo, listening, read_all, read_exactly, stopped


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki") / "pki", ["127.0.0.1", "kubernetes"], SYSTEM_CLOCK, Entropy())


def server_context(pki: Pki) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.serving_certificate, pki.serving_key)
    return context


def client_context(pki: Pki) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pki.ca_pem.decode())


@asynccontextmanager
async def tls_service(pki: Pki, serve: Serve) -> AsyncIterator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=server_context(pki))
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_there_and_back_in_bulk(pki: Pki) -> None:
    content = random.Random(1).randbytes(4_000_000)
    async with Door() as door, tls_service(pki, echo) as address:
        await door.join()
        tls = await start_tls(
            await door.tunnels.dial("c-test", "tcp", address), client_context(pki), server_hostname="kubernetes"
        )
        assert tls.ssl_object.version() == "TLSv1.3"
        writing = asyncio.create_task(tls.write(content))
        assert await read_exactly(tls, len(content)) == content
        await writing
        await tls.finish()


async def test_an_end_is_an_end(pki: Pki) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"all there is")

    async with Door() as door, tls_service(pki, send) as address:
        await door.join()
        tls = await start_tls(await door.tunnels.dial("c-test", "tcp", address), client_context(pki), server_hostname="127.0.0.1")
        assert await read_all(tls) == b"all there is"


@pytest.mark.parametrize("options", [0, ssl.OP_IGNORE_UNEXPECTED_EOF], ids=["plain", "as Debian has it"])
async def test_a_cut_is_no_end(pki: Pki, options: int) -> None:
    async def serve(stream: Stream) -> None:
        tls = await start_tls(stream, server_context(pki), server_side=True)
        await tls.write(b"not all")
        tls.close()

    context = client_context(pki)
    context.options |= options
    async with Door() as door:
        await door.join(serve=serve)
        tls = await start_tls(await door.tunnels.dial("c-test", "tcp", "x:1"), context, server_hostname="kubernetes")
        assert await tls.read() == b"not all"
        with pytest.raises(StreamError, match="without TLS's close_notify"):
            await tls.read()


async def test_both_ends_in_the_tunnel(pki: Pki) -> None:
    async def serve(stream: Stream) -> None:
        tls = await start_tls(stream, server_context(pki), server_side=True)
        while data := await tls.read():
            await tls.write(data.upper())
        await tls.finish()

    async with Door() as door:
        await door.join(serve=serve)
        tls: TlsStream = await start_tls(
            await door.tunnels.dial("c-test", "tcp", "x:1"), client_context(pki), server_hostname="kubernetes"
        )
        await tls.write(b"hello")
        assert await tls.read() == b"HELLO"
        await tls.finish()
        await until(lambda: door.tunnels.sessions("c-test")[0].streams == 0)


@pytest.mark.parametrize("name", ["evil.example.com", "10.0.0.1"])
async def test_another_name_is_not_believed(pki: Pki, name: str) -> None:
    async with Door() as door, tls_service(pki, echo) as address:
        await door.join()
        stream = await door.tunnels.dial("c-test", "tcp", address)
        with pytest.raises(ssl.SSLCertVerificationError):
            await start_tls(stream, client_context(pki), server_hostname=name)
        assert stream.over


async def test_another_authority_is_not_believed(pki: Pki) -> None:
    async with Door() as door, tls_service(pki, echo) as address:
        await door.join()
        stream = await door.tunnels.dial("c-test", "tcp", address)
        with pytest.raises(ssl.SSLCertVerificationError):
            await start_tls(stream, ssl.create_default_context(), server_hostname="127.0.0.1")


async def test_a_service_that_speaks_no_tls(pki: Pki) -> None:
    async def serve(stream: Stream) -> None:
        await stream.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await stream.read()

    async with Door() as door:
        await door.join(serve=serve)
        with pytest.raises(ssl.SSLError):
            await start_tls(await door.tunnels.dial("c-test", "tcp", "x:1"), client_context(pki), server_hostname="kubernetes")


@asynccontextmanager
async def secure_door(pki: Pki) -> AsyncIterator[tuple[Door, str]]:
    """A tunnel server behind TLS, and its URL."""
    async with Door() as door:
        application = web.Application()
        application.router.add_get("/v3/connect", door.tunnels.handle)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(pki)).start()
        yield door, f"wss://127.0.0.1:{runner.addresses[0][1]}/v3/connect"
        door.tunnels.close()
        await runner.cleanup()


def client_of(server: Server) -> TunnelClient:
    return TunnelClient(server, lambda: {"X-API-Tunnel-Token": TOKEN}, lambda *_: True, SYSTEM_CLOCK, Rng(1))


async def test_the_tunnel_itself_over_tls(pki: Pki) -> None:
    async with secure_door(pki) as (door, url), listening(echo) as address:
        task = asyncio.create_task(client_of(Server(url, ca=pki.ca_pem, proxy="")).run())
        await until(lambda: door.tunnels.has_session("c-test"))
        stream = await door.tunnels.dial("c-test", "tcp", address)
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        await stopped(task)


async def test_a_server_of_another_authority_is_not_connected_to(pki: Pki) -> None:
    async with secure_door(pki) as (door, url):
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client_of(Server(url, proxy="")).connect_once()
        assert door.tunnels.clients() == []


@pytest.mark.parametrize("known", [True, False])
async def test_the_tunnel_through_a_proxy_with_authentication(pki: Pki, known: bool) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        if base64.b64encode(b"user:pa ss") not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = head.split()[1].decode().partition(":")
        onward_reader, onward = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, onward), copy(onward_reader, writer))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async with secure_door(pki) as (door, url), listening(proxy) as address:
        who = "user:pa%20ss@" if known else ""
        client = client_of(Server(url, ca=pki.ca_pem, proxy=f"http://{who}{address}"))
        if not known:
            with pytest.raises(aiohttp.ClientHttpProxyError):
                await client.connect_once()
            return
        task = asyncio.create_task(client.run())
        await until(lambda: door.tunnels.has_session("c-test"))
        assert asked[0].startswith(b"CONNECT 127.0.0.1:")
        assert TOKEN.encode() not in asked[0]
        await stopped(task)
