"""A watch over a websocket while it lives: events as they happen, pings, tokens among the protocols, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from remuda.apiserver.auth.authenticator import PROTOCOL_PREFIX
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, served
from tests.waiting import until

ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
MAPS = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion="


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0) as made:
        await made.listen()
        yield made


@asynccontextmanager
async def opened(
    server: Server, path: str, *, admin: bool = True, **options: Any
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    if admin:
        context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.ws_connect(server.url + path, **options) as websocket,
    ):
        yield websocket


async def event(websocket: aiohttp.ClientWebSocketResponse) -> tuple[str, str]:
    found = json.loads(await websocket.receive_str(timeout=60))
    return found["type"], found["object"]["metadata"]["name"]


async def test_events_come_as_they_happen(server: Server) -> None:
    client = InProcessClient(server)
    async with opened(server, f"{MAPS}{server.cache.revision}") as websocket:
        await client.create(CONFIG_MAPS, config_map("a", x="y" * 70_000))
        assert await event(websocket) == ("ADDED", "a")
        # What a client says is dropped; a ping is answered.
        await websocket.send_str("hello")
        await websocket.ping()
        await client.delete(CONFIG_MAPS, "a", "default")
        assert await event(websocket) == ("DELETED", "a")


async def test_a_client_that_closes_is_forgotten(server: Server) -> None:
    async with opened(server, f"{MAPS}{server.cache.revision}") as websocket:
        assert len(server.handler.streams) == 1
        await websocket.close()
        await until(lambda: not server.handler.streams)
    assert sum(feed.count for feed in server.feeds.all()) == 0


async def test_a_client_that_vanishes_is_forgotten(server: Server) -> None:
    async with opened(server, f"{MAPS}{server.cache.revision}") as websocket:
        connection = websocket._response.connection
        assert connection is not None and connection.transport is not None
        connection.transport.abort()
        await until(lambda: not server.handler.streams)
    assert sum(feed.count for feed in server.feeds.all()) == 0


async def test_the_server_ends_its_watches_when_it_stops(server: Server) -> None:
    async with opened(server, f"{MAPS}{server.cache.revision}") as websocket:
        closing = asyncio.create_task(server.close())
        assert (await websocket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
        await closing


async def test_a_token_among_the_protocols(server: Server) -> None:
    client = InProcessClient(server)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "page", "namespace": "default"}}
    await client.create(ACCOUNTS, account)
    await client.create(
        BINDINGS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "page"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "page", "namespace": "default"}],
        },
    )
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await client.create(ACCOUNTS, wanted, "default", name="page", subresource="token")
    token = made["status"]["token"]
    name = PROTOCOL_PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    path = f"{MAPS}{server.cache.revision}"
    async with opened(server, path, admin=False, protocols=(name, "v4.channel.k8s.io")) as websocket:
        # The token is not sent back.
        assert websocket.protocol == "v4.channel.k8s.io"
        await client.create(CONFIG_MAPS, config_map("a"))
        assert await event(websocket) == ("ADDED", "a")
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        async with opened(server, path, admin=False, protocols=(name[:-8], "v4.channel.k8s.io")):
            pass
