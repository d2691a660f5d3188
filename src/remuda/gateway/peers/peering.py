"""The connections between the servers of one state: this server calls each of the others, and answers their calls.

A server that calls announces the clients that are connected to it (:class:`remuda.tunnel.Announcer`), and the called one reaches
them through that session; so two servers that reach each other have two sessions, one each way. Each looks every few seconds
which others there are (:class:`.directory.Directory`), and at once when it is called by one that it has not heard of.

`GET /v3/connect` with `X-API-Tunnel-ID` is a call, as Rancher's servers make it (docs/reference/tunnel.md#peers).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

from remuda.apiserver.keys.encryption import Envelope
from remuda.apiserver.storage.store import StoreError
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.clock import deadline
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.runtime import Registry
from remuda.tunnel import PEER_DEAF_AFTER, Announcer, Session, Stream, TunnelClient, TunnelError, serve_relayed
from remuda.tunnel import Server as Address

from ..server.dependencies import Services
from ..server.routing import RequestContext
from .directory import Directory, Introduction, NotSealed, is_token, opened, sealed, token
from .peer_view import PeerView

log = logging.getLogger(__name__)

ID_HEADER: Final = "X-API-Tunnel-ID"
TOKEN_HEADER: Final = "X-API-Tunnel-Token"
PATH: Final = "/v3/connect"
HEALTH_PATH: Final = "/healthz/peers"

LOOK_EVERY = 3.0
# The keys may be rotated meanwhile: an introduction is sealed again with the current one.
_SEAL_EVERY = 60.0
# A server that was called in vain is called again after at most this, as Rancher's.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class PeerSetup:
    """How a gateway takes part: where servers find each other, the shared keys, the `host:port` at which the others reach this
    server (empty before it listens), and the SHA-256 of the certificate that it serves."""

    directory: Directory
    envelope: Envelope
    address: Callable[[], str]
    certificate: Callable[[], str]


class _Peer:
    """One of the others. `problem` says why it can't be reached; it is empty while it can."""

    def __init__(self, introduction: Introduction) -> None:
        self.introduction = introduction
        self.problem = "it was not called yet"
        self.calling: asyncio.Task[None] | None = None


class Peering:
    def __init__(self, services: Services, setup: PeerSetup, registry: Registry) -> None:
        self._services = services
        self._clock = services.clock
        self._tunnels = services.tunnels
        self._setup = setup
        self._directory = setup.directory
        self._secret = services.entropy.token_text(43)
        self._since = services.clock.time()
        self._peers: dict[str, _Peer] = {}
        self._unsealed: dict[str, str] = {}
        self._published: tuple[Introduction, str, float] | None = None
        self._look_now = asyncio.Event()
        self._problem = ""
        services.beside.append(self.run)
        peers = registry.gauge("remuda_peers", "Other servers of this state, by whether this server reaches them.", ("reached",))
        peers.read(lambda: [((str(flag).lower(),), float(self._reached().count(flag))) for flag in (True, False)])
        clients = registry.gauge("remuda_tunnel_clients", "Connected clients of tunnels, by the server that has them.", ("here",))
        clients.read(self._counted)

    # --- calls by others ------------------------------------------------------------------------------------------------

    @staticmethod
    def is_call(asked: RequestContext) -> bool:
        return ID_HEADER in asked.request.headers

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        """Accept the session of another server of this state."""
        headers = asked.request.headers
        names, shown = headers.getall(ID_HEADER, []), headers.getall(TOKEN_HEADER, [])
        own = self._directory.id
        if len(names) != 1 or len(shown) != 1 or not is_token(shown[0], self._secret, names[0], own):
            asked.why = "it does not prove to be a server of this state"
            return web.Response(status=401, text="failed authentication")
        if names[0] not in self._peers:
            self._look_now.set()
        return await self._tunnels.accept_server(asked.request, names[0])

    # --- calling others -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._look(group)
                    await self._until_next()
        finally:
            self._peers.clear()

    async def _until_next(self) -> None:
        try:
            async with deadline(self._clock, LOOK_EVERY):
                await self._look_now.wait()
        except TimeoutError:
            pass
        self._look_now.clear()

    async def _look(self, group: asyncio.TaskGroup) -> None:
        address = self._setup.address()
        if not address:
            return
        try:
            self._know(opened_all(self._setup.envelope, await self._directory.published(), self._unsealed), group)
            await self._directory.publish(self._sealed(address))
            self._problem = ""
        except (StoreError, ApiError, OSError) as error:
            # The others are still called: what is known of them stays true.
            if self._problem != str(error):
                log.warning("the other servers can't be looked up: %s", error)
            self._problem = str(error)

    def _know(self, found: dict[str, Introduction], group: asyncio.TaskGroup) -> None:
        for name in self._peers.keys() - found.keys():
            gone = self._peers.pop(name)
            if gone.calling is not None:
                gone.calling.cancel()
            log.info("a server has left", extra={"peer": name, "host": gone.introduction.host})
        for name, introduction in found.items():
            known = self._peers.get(name)
            if known is not None:
                known.introduction = introduction
                continue
            log.info("a server has come: %s at %s", introduction.host, introduction.address, extra={"peer": name})
            peer = self._peers[name] = _Peer(introduction)
            peer.calling = group.create_task(self._call(name, peer), name=f"peer {introduction.host}")

    def _sealed(self, address: str) -> str:
        """This server's introduction; the same text as long as nothing has changed."""
        introduction = self._introduction(address)
        now = self._clock.monotonic()
        last = self._published
        if last is None or last[0] != introduction or now - last[2] >= _SEAL_EVERY:
            last = self._published = introduction, sealed(self._setup.envelope, self._directory.id, introduction), now
        return last[1]

    def _introduction(self, address: str) -> Introduction:
        return Introduction(
            host=socket.gethostname(),
            address=address,
            certificate=self._setup.certificate(),
            secret=self._secret,
            since=self._since,
            sees={name: peer.problem for name, peer in sorted(self._peers.items())},
        )

    async def _call(self, name: str, peer: _Peer) -> None:
        pause = _FIRST_PAUSE
        while True:
            started = self._clock.monotonic()
            try:
                reason = await self._client(name, peer).connect_once()
            except (TunnelError, OSError, aiohttp.ClientError, ssl.SSLError, ValueError) as error:
                reason = _why(error)
            if peer.problem != reason:
                log.warning("no connection to another server: %s", reason, extra={"peer": name, "host": peer.introduction.host})
            peer.problem = reason
            if self._clock.monotonic() - started >= PEER_DEAF_AFTER:
                pause = _FIRST_PAUSE
            await self._clock.sleep(self._services.rng.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _client(self, name: str, peer: _Peer) -> TunnelClient:
        there, own = peer.introduction, self._directory.id
        headers = {ID_HEADER: own, TOKEN_HEADER: token(there.secret, own, name)}

        async def connected(session: Session) -> None:
            stop = self._tunnels.add_own_listener(Announcer(session))
            peer.problem = ""
            # The others shall know that this server is reached again.
            self._look_now.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                stop()

        return TunnelClient(
            Address(f"wss://{there.address}{PATH}", certificate=bytes.fromhex(there.certificate), proxy=""),
            lambda: headers,
            lambda network, address: True,
            self._clock,
            self._services.rng,
            serve=self._serve,
            connected=connected,
            deaf_after=PEER_DEAF_AFTER,
        )

    async def _serve(self, stream: Stream) -> None:
        await serve_relayed(stream, self._tunnels.own, self._services.others.answer)

    # --- who sees whom --------------------------------------------------------------------------------------------------

    def view(self) -> PeerView:
        servers = {name: peer.introduction for name, peer in self._peers.items()}
        servers[self._directory.id] = self._introduction(self._setup.address())
        return PeerView(self._directory.id, servers, self._tunnels.servers())

    def health(self) -> tuple[bool, str]:
        """Whether all servers reach each other, and the details."""
        view = self.view()
        text = view.text()
        if self._problem:
            text = f"the other servers can't be looked up: {self._problem}\n{text}"
        return not self._problem and not view.problems(), text

    def shown(self, request: web.BaseRequest) -> web.Response:
        """The answer at :data:`HEALTH_PATH`: text as of other health checks, or with `?output=json` always 200."""
        if request.query.get("output") == "json":
            return web.Response(body=jsonio.dumps(self.view().document()), content_type="application/json")
        good, text = self.health()
        return web.Response(text=text, status=200 if good else 500)

    async def show(self, asked: RequestContext) -> web.StreamResponse:
        """The same as a route, for callers who may read that path."""
        action = Action.on_path(asked.user, "get", HEALTH_PATH)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)
        return self.shown(asked.request)

    def _reached(self) -> list[bool]:
        there = self._tunnels.servers()
        return [not peer.problem and name in there for name, peer in self._peers.items()]

    def _counted(self) -> list[tuple[tuple[str], float]]:
        own, all_ = len(self._tunnels.own_clients()), len(self._tunnels.clients())
        return [(("true",), float(own)), (("false",), float(all_ - own))]


def opened_all(envelope: Envelope, texts: dict[str, str], complained: dict[str, str]) -> dict[str, Introduction]:
    """The introductions that can be opened; of two for one address, as after a restart, the later. `complained` has the texts
    whose failure is logged already."""
    found: dict[str, Introduction] = {}
    for name, text in texts.items():
        try:
            found[name] = opened(envelope, name, text)
        except NotSealed as error:
            if complained.get(name) != text:
                log.warning("what a server tells of itself is ignored: %s", error, extra={"peer": name})
            complained[name] = text
    for name in complained.keys() - texts.keys():
        del complained[name]
    latest: dict[str, float] = {}
    for each in found.values():
        latest[each.address] = max(each.since, latest.get(each.address, each.since))
    return {name: each for name, each in found.items() if each.since == latest[each.address]}


def _why(error: BaseException) -> str:
    """In words that stay the same from one try to the next, and that the other servers can be told."""
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return "another certificate is served there than it tells of: its address must lead to itself, not to a load balancer"
    if isinstance(error, aiohttp.ClientConnectorError):
        found = error.os_error
        return (os.strerror(found.errno) if found.errno is not None and found.errno > 0 else str(found)).lower()
    return str(error) or type(error).__name__
