"""Both tunnels for one set of settings, kept up until they are closed.

The main one introduces the cluster and carries connections to its API; when it is up, the second is opened, which the agent
answers itself. Each reconnects by itself, after a random pause: many agents lose the same server at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from remuda.client.kubeconfig import ConfigError
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError

from .. import ByteStream, Departed, Session, Stream, StreamError, TunnelClient, TunnelError
from ..client import FIRST_PAUSE, LONGEST_PAUSE
from .own_cluster import Introduction, OwnCluster
from .server_trust import Trust, TrustError, establish, followed
from .settings import Settings

# A session that lasted this long was a success, however it ended.
_SETTLED = 60.0
# When a server says that it will end, its agents go to another one: not all at the same moment, and again soon for a while, since
# a load balancer may still lead to the same server.
_SPREAD, _HURRIED_PAUSE, _HURRY_FOR = 1.0, 1.0, 15.0
TRUST_EVERY = 300.0
# A server that says for this long that it has deleted the cluster is believed.
_DEPARTED_AFTER = 60.0

log = logging.getLogger(__name__)

MAIN, SECOND = "main", "second"

Connect = Callable[[Callable[[], None]], Coroutine[Any, Any, str]]
"""Serves one session to its end, the reason of which is the result; calls its argument when the server says that it will end."""


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """Values that stay the same while an agent runs."""

    clock: Clock
    rng: Rng
    allowed: tuple[AllowedAddress, ...] = ()
    # As in `remuda.tunnel.Server`: None reads the environment, "" means no proxy.
    proxy: str | None = None
    # The server has met this agent before: the path for first contacts is skipped.
    known: bool = False
    # The Secret that the agent's own Deployment mounts; empty outside a pod.
    credentials: str = ""


class Attachment:
    """Since `stands_since` (by the monotonic clock) both tunnels are up; None while one is down. `outdated`: the server hands out
    another CA than the trusted one."""

    def __init__(
        self,
        settings: Settings,
        introduction: Introduction,
        cluster: OwnCluster,
        around: ConnectionContext,
        on_stand: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.introduction = introduction
        self.stands_since: float | None = None
        self.outdated = False
        self._cluster = cluster
        self._on_stand = on_stand
        self._around = around
        self._trust: Trust | None = None
        self._trusting = asyncio.Lock()
        self._registered = around.known
        self._main_is_up = asyncio.Event()
        # The number of sessions of each tunnel: two while a server hands over to another one.
        self._sessions = {MAIN: 0, SECOND: 0}
        # Why the server wants no more of this agent, once it has said so for a while.
        self.departed: Departed | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._main, MAIN, group))
            group.create_task(self._second(group))
            group.create_task(self._follow_trust())

    async def _second(self, group: asyncio.TaskGroup) -> None:
        await self._main_is_up.wait()
        await self._keep(self._answered, SECOND, group)

    async def _keep(self, connect: Connect, which: str, group: asyncio.TaskGroup) -> None:
        clock, rng = self._around.clock, self._around.rng
        pause = FIRST_PAUSE
        departed_since: float | None = None
        hurry_until = 0.0
        while True:
            started = clock.monotonic()
            try:
                reason = await _session(connect, group)
                departed_since = None
                if reason is None:
                    log.info(
                        "%s tunnel: the server will end; connecting to another one", which, extra={"server": self.settings.url}
                    )
                    hurry_until = clock.monotonic() + _HURRY_FOR
                    await clock.sleep(rng.uniform(0.0, _SPREAD))
                    continue
            except Departed as error:
                reason = str(error)
                departed_since = started if departed_since is None else departed_since
                if started - departed_since >= _DEPARTED_AFTER:
                    self.departed = error
                    self._on_stand()
            except (TrustError, TunnelError, OSError, aiohttp.ClientError, ssl.SSLError) as error:
                reason = str(error) or type(error).__name__
                departed_since = None
                if isinstance(error, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
                    # The server may have another CA now, which is trusted if it has the right checksum.
                    self._trust = None
            if clock.monotonic() - started >= _SETTLED:
                pause = FIRST_PAUSE
            hurried = clock.monotonic() < hurry_until
            wait = rng.uniform(0.0, _HURRIED_PAUSE) if hurried else rng.uniform(pause / 2, pause)
            log.warning("%s tunnel: connecting in %.1f s: %s", which, wait, reason, extra={"server": self.settings.url})
            await clock.sleep(wait)
            pause = pause if hurried else min(2 * pause, LONGEST_PAUSE)

    async def _main(self, leaving: Callable[[], None]) -> str:
        trust = await self._trusted()
        parameters = self.introduction.parameters(trust.fingerprints)
        headers = {"X-API-Tunnel-Token": self.settings.token, "X-API-Tunnel-Params": parameters}
        path = "/v3/connect" if self._registered else "/v3/connect/register"
        allow = AllowList(self.introduction.address, self._around.allowed)

        async def connected(session: Session) -> None:
            self._registered = True
            with self._counted(MAIN, session, leaving):
                await self._announce(trust)
                await asyncio.get_running_loop().create_future()

        return await self._client(trust, path, headers, allow, connected).connect_once()

    async def _answered(self, leaving: Callable[[], None]) -> str:
        headers = {"Authorization": f"Bearer stv-cluster-{self.settings.token}"}

        async def connected(session: Session) -> None:
            with self._counted(SECOND, session, leaving):
                await asyncio.get_running_loop().create_future()

        trust = await self._trusted()
        return await self._client(trust, "/v3/connect", headers, lambda *_: True, connected, serve=answer).connect_once()

    @contextlib.contextmanager
    def _counted(self, which: str, session: Session, leaving: Callable[[], None]) -> Iterator[None]:
        """A session is up for as long as the block runs."""
        session.on_going_away = leaving
        self._sessions[which] += 1
        self._noted()
        try:
            yield
        finally:
            self._sessions[which] -= 1
            self._noted()

    def _noted(self) -> None:
        """One of the tunnels has come up or gone down."""
        if self._sessions[MAIN]:
            self._main_is_up.set()
        else:
            self._main_is_up.clear()
        if not all(self._sessions.values()):
            self.stands_since = None
        elif self.stands_since is None:
            self.stands_since = self._around.clock.monotonic()
            self._on_stand()

    def _client(
        self,
        trust: Trust,
        path: str,
        headers: dict[str, str],
        allow: Callable[[str, str], bool],
        connected: Callable[[Session], Awaitable[None]],
        serve: Callable[[Stream], Awaitable[None]] | None = None,
    ) -> TunnelClient:
        url = f"wss{self.settings.url.removeprefix('https')}{path}"
        server = trust.server(url, self._around.proxy)
        clock, rng = self._around.clock, self._around.rng
        return TunnelClient(server, lambda: headers, allow, clock, rng, serve=serve, connected=connected)

    async def _trusted(self) -> Trust:
        async with self._trusting:
            if self._trust is None:
                self._trust = await establish(self.settings, self._around.clock, self._around.proxy)
            return self._trust

    async def _follow_trust(self) -> None:
        """Check for a new CA of the server; the present one may verify it for a limited time only."""
        while True:
            await self._around.clock.sleep(TRUST_EVERY)
            trust = self._trust
            if trust is not None and await followed(self.settings.url, trust, self._around.clock, self._around.proxy) != trust:
                log.info("the server has another CA now: connecting again to trust it", extra={"server": self.settings.url})
                self.outdated = True

    async def _announce(self, trust: Trust) -> None:
        """Write it, with retries: an API that is unavailable for a moment is no reason to close the tunnel to it."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._cluster.announce(self.settings, trust)
            except (ApiError, ConfigError) as error:
                log.warning("the Secret with the server's address is not written yet: %s", error)
            await self._around.clock.sleep(self._around.rng.uniform(pause / 2, pause))
            pause = min(2 * pause, LONGEST_PAUSE)


async def _session(connect: Connect, group: asyncio.TaskGroup) -> str | None:
    """One session; the reason for its end, or None when its server will end: then it lasts beside the next one. Raises what
    connecting raises."""
    leaving = asyncio.Event()
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            reason = await connect(leaving.set)
        except (TrustError, TunnelError, OSError, aiohttp.ClientError, ssl.SSLError) as error:
            if not outcome.done():
                outcome.set_exception(error)
            return
        if not outcome.done():
            outcome.set_result(reason)

    group.create_task(run())
    left = asyncio.ensure_future(leaving.wait())
    try:
        await asyncio.wait((outcome, left), return_when=asyncio.FIRST_COMPLETED)
        return outcome.result() if outcome.done() else None
    finally:
        left.cancel()
        outcome.cancel()


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- the second tunnel ------------------------------------------------------------------------------------------------------
#
# The agent itself answers, for any dialled address. So far there is one answer: `GET /ping`, by which the server knows that the
# agent is alive (docs/reference/tunnel.md#conditions-of-a-connected-cluster). That needs a small part of HTTP/1.1 only; a request
# with a body is answered, and the connection closed after it.

LARGEST_HEAD = 16 * 1024


async def answer(stream: ByteStream) -> None:
    """Serve one connection until either side ends it."""
    received = bytearray()
    try:
        while (head := await _head(stream, received)) is not None:
            response, lasting = _response(head)
            await stream.write(response)
            if not lasting:
                return
    except StreamError:
        # The peer or the session is gone: there is no receiver.
        return
    finally:
        stream.close()


async def _head(stream: ByteStream, received: bytearray) -> bytes | None:
    """The next request's head without its empty line; the rest stays in `received`. None at the end."""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > LARGEST_HEAD:
            await stream.write(_message(431, "Request Header Fields Too Large", b"", lasting=False))
            return None
        data = await stream.read()
        if not data:
            return None
        received += data
    head = bytes(received[:end])
    del received[: end + 4]
    return head


def _response(head: bytes) -> tuple[bytes, bool]:
    """The response, and whether another request may follow on the same connection."""
    line, *rest = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        return _message(400, "Bad Request", b"", lasting=False), False
    headers = {name.strip().lower(): value.strip().lower() for name, _, value in (field.partition(":") for field in rest)}
    lasting = words[2] == "HTTP/1.1" and headers.get("connection") != "close" and not _has_body(headers)
    method, path = words[0], words[1].partition("?")[0]
    if path == "/ping" and method in ("GET", "HEAD"):
        return _message(200, "OK", b"pong", lasting=lasting, bodiless=method == "HEAD"), lasting
    return _message(404, "Not Found", b"404 page not found\n", lasting=lasting, bodiless=method == "HEAD"), lasting


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _message(status: int, reason: str, body: bytes, *, lasting: bool, bodiless: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"{'' if lasting else 'Connection: close' + chr(13) + chr(10)}\r\n"
    )
    return head.encode() + (b"" if bodiless else body)


# --- addresses that may be dialled --------------------------------------------------------------------------------------
#
# The cluster's own API endpoint, and those that the operator allows. Rancher's agent dials any TCP address: an attacker in
# control of its server could reach every address that the agent's pod can reach, cloud metadata services among them. The API
# server's own proxy, which authorises, gives access to pods and services; so no other address is needed.

_NETWORKS = frozenset({"tcp", "tcp4", "tcp6"})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class AllowedAddress:
    """A host (a name, an address, a network, `*` for all) and a port (None: all)."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> AllowedAddress:
        """`HOST:PORT`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or (":" in host and not host.startswith("[")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        if port != "*" and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{port!r} of {text!r} is neither a port nor *")
        host = _bare(host)
        if "/" in host:
            ipaddress.ip_network(host, strict=False)
        return cls(host, None if port == "*" else int(port))

    def holds(self, host: str, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.host == "*":
            return True
        address = _address(host)
        if "/" in self.host:
            # A name is not resolved: it may resolve differently when it is dialled.
            return address is not None and address in ipaddress.ip_network(self.host, strict=False)
        return host == self.host if address is None else address == _address(self.host)


class AllowList:
    def __init__(self, endpoint: str, others: Iterable[AllowedAddress] = ()) -> None:
        self._places = (AllowedAddress.parse(endpoint), *others)

    def __call__(self, network: str, address: str) -> bool:
        host, colon, port = address.rpartition(":")
        if network not in _NETWORKS or not colon or not (port.isascii() and port.isdigit()) or not host:
            return False
        return any(place.holds(_bare(host), int(port)) for place in self._places)


def _bare(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host.lower().rstrip(".")


def _address(host: str) -> Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
