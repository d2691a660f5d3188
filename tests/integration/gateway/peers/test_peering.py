"""Servers that find each other in a directory, over TLS: each reaches the clients of the others, and says whom it does not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from remuda.apiserver.http.listener import server_context
from remuda.apiserver.keys.encryption import Envelope
from remuda.apiserver.keys.pki import Pki
from remuda.gateway.peers.directory import sealed
from remuda.gateway.peers.peering import ID_HEADER, TOKEN_HEADER, Peering, PeerSetup
from remuda.gateway.server.dependencies import OtherServers
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import RequestContext, Routes
from remuda.gateway.server.serving_certificate import Files, ServingCertificate
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.runtime import Registry
from remuda.tunnel import NoSession, TunnelClient, TunnelServer
from remuda.tunnel import Server as Address
from tests.integration.tunnel.pair import echo, listening, read_exactly, stopped
from tests.waiting import until


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await stopped(task)


KEYS = [("key1", b"k" * 32)]


@dataclass
class Shared:
    """The place where servers publish."""

    texts: dict[str, str] = field(default_factory=dict)


class Place:
    """One server's part of it."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.id = name
        # Servers that this one can't reach, as if it had never heard of them.
        self.cut_from: set[str] = set()
        self.looks = 0
        self._shared = shared

    async def publish(self, peer: str) -> None:
        self._shared.texts[self.id] = peer

    async def published(self) -> dict[str, str]:
        self.looks += 1
        return {name: text for name, text in self._shared.texts.items() if name not in {self.id, *self.cut_from}}


@dataclass
class Surroundings:
    """What peering needs of the gateway's services."""

    tunnels: TunnelServer
    beside: list[object] = field(default_factory=list)
    routes: Routes = field(default_factory=Routes)
    clock = SYSTEM_CLOCK
    rng = Rng(1)
    entropy = Entropy()
    others: OtherServers = field(init=False)

    def __post_init__(self) -> None:
        self.others = OtherServers(self.tunnels)


class Node:
    """A server that listens, takes tunnels of agents without asking, and peers."""

    def __init__(self, directory: Path, shared: Shared, name: str, keys: list[tuple[str, bytes]] = KEYS) -> None:
        pki = Pki.ensure(directory / name, ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
        files = Files(pki.serving_certificate, pki.serving_key, pki.ca_certificate)
        self.certificate = ServingCertificate(files, SYSTEM_CLOCK)
        self.context: ssl.SSLContext = server_context(pki.serving_certificate, pki.serving_key, pki.ca_certificate)
        self.named = self.certificate.serving.fingerprint

        async def key_of(request: web.Request) -> str | None:
            return request.headers.get("X-Key")

        self.tunnels = TunnelServer(key_of, SYSTEM_CLOCK, Rng(2))
        self.asked: list[RequestContext] = []
        self.port = 0
        self.registry = Registry()
        envelope = Envelope(keys, Entropy())
        self.directory = Place(shared, name)
        setup = PeerSetup(self.directory, envelope, lambda: f"127.0.0.1:{self.port}", lambda: self.named)
        surroundings = Surroundings(self.tunnels)
        self.others = surroundings.others
        self.peering = Peering(surroundings, setup, self.registry)  # type: ignore[arg-type]
        self.ca = pki.ca_pem

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            asked = RequestContext(request, judge(request.path_qs), "127.0.0.1")
            self.asked.append(asked)
            if self.peering.is_call(asked):
                return await self.peering.answer(asked)
            return await self.tunnels.accept(request, request.headers["X-Key"])

        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.context)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            async with beside(self.peering.run()):
                yield self
        finally:
            self.tunnels.close()
            await runner.cleanup()

    def agent(self, key: str) -> TunnelClient:
        server = Address(f"wss://127.0.0.1:{self.port}/v3/connect", ca=self.ca, proxy="")
        return TunnelClient(server, lambda: {"X-Key": key}, lambda *_: True, SYSTEM_CLOCK, Rng(3))


@contextlib.asynccontextmanager
async def nodes(*made: Node) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for each in made:
            await stack.enter_async_context(each.running())
        yield


async def test_three_servers_reach_the_clients_of_each_other(tmp_path: Path) -> None:
    shared = Shared()
    first, second, third = (Node(tmp_path, shared, name) for name in ("a", "b", "c"))
    async with nodes(first, second, third), listening(echo) as address:
        for each in (first, second, third):
            await until(lambda each=each: each.peering.health()[0])  # type: ignore[misc]
        async with beside(first.agent("c-one").run()):
            for each in (second, third):
                await until(lambda each=each: each.tunnels.has_session("c-one"))  # type: ignore[misc]
                stream = await each.tunnels.dial("c-one", "tcp", address)
                await stream.write(b"over there")
                assert await read_exactly(stream, 10) == b"over there"
                stream.close()
            assert 'remuda_peers{reached="true"} 2' in second.registry.text()
            assert 'remuda_tunnel_clients{here="false"} 1' in second.registry.text()
            assert 'remuda_tunnel_clients{here="true"} 1' in first.registry.text()


async def test_two_that_are_cut_from_each_other_keep_the_third_and_all_say_so(tmp_path: Path) -> None:
    shared = Shared()
    first, second, third = (Node(tmp_path, shared, name) for name in ("a", "b", "c"))
    first.directory.cut_from, second.directory.cut_from = {"b"}, {"a"}
    async with (
        nodes(first, second, third),
        listening(echo) as address,
        beside(first.agent("c-one").run()),
        beside(second.agent("c-two").run()),
        beside(third.agent("c-three").run()),
    ):
        await until(lambda: set(third.tunnels.clients()) == {"c-one", "c-two", "c-three"})
        await until(lambda: set(first.tunnels.clients()) == {"c-one", "c-three"})
        await until(lambda: set(second.tunnels.clients()) == {"c-two", "c-three"})
        # Not by way of the third, which reaches both.
        with pytest.raises(NoSession):
            await first.tunnels.dial("c-two", "tcp", address)
        await until(lambda: "it has not heard of it yet" in third.peering.health()[1])
        problems = [(each.caller, each.called) for each in third.peering.view().problems()]
        named = third.peering.view().names()
        assert sorted(problems) == sorted([(named["a"], named["b"]), (named["b"], named["a"])])
        first.directory.cut_from, second.directory.cut_from = set(), set()
        await until(lambda: "c-two" in first.tunnels.clients() and "c-one" in second.tunnels.clients())
        await until(lambda: third.peering.health()[0])


async def test_servers_ask_each_other_for_what_they_remember(tmp_path: Path) -> None:
    async def remembered(argument: str) -> object:
        if argument == "fleet/gone":
            raise ApiError(404, "NotFound", "it is gone")
        return {"about": argument}

    shared = Shared()
    first, second = Node(tmp_path, shared, "a"), Node(tmp_path, shared, "b")
    first.others.tell("machine", remembered)
    async with nodes(first, second):
        await until(lambda: first.tunnels.servers() and second.tunnels.servers())
        assert await second.others.ask("machine", "fleet/m1") == [{"about": "fleet/m1"}]
        assert await second.others.ask("machine", "fleet/gone") == []
        assert await first.others.ask("machine", "fleet/m1") == [], "the second knows nothing of machines"


async def test_a_server_that_left_the_directory_is_forgotten(tmp_path: Path) -> None:
    shared = Shared()
    first, second = Node(tmp_path, shared, "a"), Node(tmp_path, shared, "b")
    async with nodes(first):
        async with nodes(second):
            await until(lambda: first.peering.health()[0] and "b" in first.peering.view().servers)
        await until(lambda: "connection refused" in first.peering.health()[1])
        assert not first.peering.health()[0]
        del shared.texts["b"]
        await until(lambda: first.peering.health()[0] and "b" not in first.peering.view().servers)


async def test_a_caller_without_the_shared_keys_is_refused(tmp_path: Path) -> None:
    shared = Shared()
    known, stranger = Node(tmp_path, shared, "a"), Node(tmp_path, shared, "x", keys=[("key1", b"x" * 32)])
    async with nodes(known, stranger):
        await until(lambda: len(shared.texts) == 2)
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as http:
            for headers in (
                {ID_HEADER: "x"},
                {ID_HEADER: "x", TOKEN_HEADER: "0" * 64},
                {ID_HEADER: "x", TOKEN_HEADER: shared.texts["a"]},
                {ID_HEADER: "a b", TOKEN_HEADER: ""},
            ):
                async with http.get(f"https://127.0.0.1:{known.port}/v3/connect", headers=headers) as answer:
                    assert (answer.status, await answer.text()) == (401, "failed authentication")
                    assert known.asked[-1].why
        assert known.peering.view().servers.keys() == {"a"}
        assert stranger.peering.view().servers.keys() == {"x"}
        assert known.tunnels.servers() == {}


async def test_another_certificate_than_the_named_one_gets_no_token(tmp_path: Path) -> None:
    """The address leads to another program, as an attacker on the way would make it."""
    shared = Shared()
    first, second = Node(tmp_path, shared, "a"), Node(tmp_path, shared, "b")
    second.named = "ab" * 32
    async with nodes(first, second):
        await until(lambda: "another certificate is served there" in first.peering.health()[1])
        assert not [each for each in second.asked if each.request.headers.get(ID_HEADER) == "a"]
        assert second.tunnels.servers() == {}
        # The other way it works, and is told.
        await until(lambda: first.tunnels.servers() == {"b": 0})


async def test_what_a_stranger_publishes_is_ignored(tmp_path: Path) -> None:
    shared = Shared()
    first, second = Node(tmp_path, shared, "a"), Node(tmp_path, shared, "b")
    async with nodes(first, second):
        await until(lambda: first.peering.health()[0] and "b" in first.peering.view().servers)
        introduction = first.peering.view().servers["b"]
        shared.texts["c"] = shared.texts["b"]
        shared.texts["d"] = sealed(Envelope([("key1", b"x" * 32)], Entropy()), "d", introduction)
        looks = first.directory.looks
        await until(lambda: first.directory.looks > looks + 1)
        assert first.peering.view().servers.keys() == {"a", "b"}
