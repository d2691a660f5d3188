"""A gateway before an embedded API, both in this process, on a port without TLS: for tests of everything behind the door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from remuda.access.users.tokens import Presented, TokenSpec, make_token
from remuda.api.management_cattle_io import API_VERSION, SETTINGS, TOKENS, USERS
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import chosen, running
from remuda.app.embedded_gateway import Embedded
from remuda.gateway.gateway import Gateway
from remuda.gateway.handler import GatewayHandler
from remuda.gateway.server.audit_log import Record
from remuda.gateway.server.routing import InProcess
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from tests.waiting import until

Obj = dict[str, Any]


@dataclass
class Lines:
    """The audit log as a list."""

    records: list[Record] = field(default_factory=list)

    def record(self, record: Record) -> bool:
        self.records.append(record)
        return True


@dataclass
class Standing:
    server: Server
    client: InProcessClient
    gateway: Gateway
    audit: Lines
    url: str
    port: int
    http: aiohttp.ClientSession

    async def user(self, name: str, **fields: Any) -> Obj:
        manifest = {"apiVersion": API_VERSION, "kind": "User", "metadata": {"name": name}, "username": name, **fields}
        return await self.client.create(USERS, manifest)

    async def token(self, user: str, ttl: float = 3600, **changes: Any) -> Presented:
        cluster = changes.pop("cluster", "")
        made = make_token(TokenSpec(user, ttl, cluster=cluster), SYSTEM_CLOCK.time(), Entropy())
        await self.client.create(TOKENS, {**made.manifest, **changes})
        return made.presented

    async def setting(self, name: str, value: str) -> None:
        await until(lambda: self.gateway.services.informers.of(SETTINGS).get("", name))
        await self.client.patch(SETTINGS, name, {"value": value})
        await until(lambda: self.gateway.services.settings().text(name) == value)

    async def get(self, path: str, token: Presented | None = None, method: str = "GET", **options: Any) -> aiohttp.ClientResponse:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token.text}"
        response = await self.http.request(method, self.url + path, headers=headers, **options)
        await response.read()
        return response

    async def raw(self, data: bytes, seconds: float = 60.0) -> bytes:
        """What comes back for these bytes, until the server ends the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def standing() -> AsyncIterator[Standing]:
    holder: list[Embedded] = []

    def made(embedded: Embedded) -> None:
        holder.append(embedded)
        # Its password costs more to hash than most tests take.
        embedded.gateway.services.beside.remove(embedded.gateway.identity.first.run)

    async with running(Config(None), listen=False, choice=chosen("settings"), on_gateway=made) as server:
        gateway = holder[0].gateway
        audit = Lines()
        gateway.audit = None
        door = GatewayHandler(
            gateway.services, gateway.callers, InProcess(server.handler), audit, gateway.lines, lambda: ("127.0.0.1",)
        )
        listener = Listener(door, None, gateway.lines)
        await listener.open("127.0.0.1", 0)
        await until(lambda: all(informer.synced.is_set() for informer in gateway.services.informers))
        async with aiohttp.ClientSession() as http:
            url = f"http://127.0.0.1:{listener.port}"
            yield Standing(server, InProcessClient(server), gateway, audit, url, listener.port, http)
        await listener.close(0.0)
