"""A server on its way out: what is under way is finished, and who is answered last is told not to come back."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.server import Server
from tests.unit.apiserver.serving import config_map, served
from tests.waiting import until

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0, default_roles=False) as made:
        await made.listen()
        yield made


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)


async def head(reader: asyncio.StreamReader) -> list[str]:
    return (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()


async def test_connections_are_kept_until_it_stops(server: Server) -> None:
    reader, writer = await connect(server)
    for _ in range(2):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        lines = await head(reader)
        assert lines[0] == "http/1.1 200 ok"
        assert "connection: close" not in lines
        await reader.readexactly(2)
    # Told to stop, but still within its delay: not ready, and otherwise as ever.
    server.draining = True
    writer.write(b"GET /readyz/shutdown HTTP/1.1\r\nHost: x\r\n\r\n")
    lines = await head(reader)
    assert lines[0].startswith("http/1.1 500")
    assert "connection: close" not in lines
    writer.close()


async def test_a_request_under_way_is_finished_and_its_connection_closed(server: Server) -> None:
    reader, writer = await connect(server)
    body = json.dumps(config_map("slow", a="x" * 1000)).encode()
    start = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    # When what came before it is answered, it is under way.
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n" + start.encode() + body[:500])
    await head(reader)
    await reader.readexactly(2)
    stopping = asyncio.create_task(server.close(60))
    await until(lambda: server.handler.stopping)
    writer.write(body[500:])
    lines = await head(reader)
    assert lines[0] == "http/1.1 201 created"
    assert "connection: close" in lines
    assert await reader.read(), "and the object"
    await stopping
    writer.close()


async def test_an_idle_connection_is_closed_and_new_ones_are_refused(server: Server) -> None:
    reader, writer = await connect(server)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    await head(reader)
    await reader.readexactly(2)
    await server.close()
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await connect(server)
