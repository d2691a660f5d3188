"""The client side: dials out, keeps a session to a server, and serves the streams that the server opens on it.

An allow-list decides which addresses may be dialled. The Go client ends its whole session over one refused address; ours
fails that stream only, which a Go server understands just as well: otherwise one bad request would disconnect all users.

When a session ends the client reconnects, after a random pause, so that a thousand clients of a restarted server do not
reconnect at the same moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import aiohttp
from yarl import URL

from remuda.client.proxies import introduced, proxy_for
from remuda.kube.clock import Clock, Rng, deadline

from .errors import Departed, Refused, StreamError, TunnelError
from .session import DEAF_AFTER, LARGEST_MESSAGE, Accept, ClientSocket, Session, Wire
from .stream import CHUNK, ByteStream, Stream

HANDSHAKE_WITHIN = 10.0
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 20.0
# A session that lasted this long was a success, however it ended.
_SETTLED = 60.0
_LONGEST_ANSWER = 1024
# In the answer 410 to an agent whose cluster was deleted.
DEPARTED_HEADER = "X-Remuda-Departed"

log = logging.getLogger(__name__)

Allow = Callable[[str, str], bool]
Headers = Callable[[], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Server:
    """Address and trust: `url` is ws:// or wss://, `ca` is PEM of the trusted CAs (the system's if empty)."""

    url: str
    ca: bytes = b""
    # Also trusts the system's CAs, beside `ca`.
    system_too: bool = False
    insecure: bool = False
    # The SHA-256 of the only certificate that the server may show; it decides alone, without any CA.
    certificate: bytes = b""
    # An http:// URL, optionally with user and password; None reads the environment, "" means no proxy.
    proxy: str | None = field(default=None, repr=False)

    def verification(self) -> ssl.SSLContext | aiohttp.Fingerprint:
        return aiohttp.Fingerprint(self.certificate) if self.certificate else self.context()

    def context(self) -> ssl.SSLContext:
        if self.ca and not self.insecure and not self.system_too:
            return _trusting(self.ca, self.url)
        context = _context()
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        if self.ca:
            _load(context, self.ca, self.url)
        # Read again each time: the system's trusted CAs may have changed.
        context.load_default_certs()
        return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # CAs made by older installers lack an extension that Python requires since 3.13, and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, ca: bytes, url: str) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise TunnelError(f"the certificate authority for {url} is not PEM") from None


@lru_cache(maxsize=4)
def _trusting(ca: bytes, url: str) -> ssl.SSLContext:
    """A context shared by both tunnels of an agent, and by all agents in a process."""
    context = _context()
    _load(context, ca, url)
    return context


class TunnelClient:
    """Keeps one session to a server. `serve` replaces dialling: it gets each stream, and may do anything with it."""

    def __init__(
        self,
        server: Server,
        headers: Headers,
        allow: Allow,
        clock: Clock,
        rng: Rng,
        *,
        serve: Accept | None = None,
        connected: Callable[[Session], Awaitable[None]] | None = None,
        deaf_after: float = DEAF_AFTER,
    ) -> None:
        self._server = server
        self._headers = headers
        self._allow = allow
        self._clock = clock
        self._rng = rng
        self._serve = serve or self._dial
        self._connected = connected
        self._deaf_after = deaf_after
        self.session: Session | None = None

    async def run(self) -> None:
        """Connect, serve, and reconnect, until cancelled."""
        pause = FIRST_PAUSE
        while True:
            started = self._clock.monotonic()
            try:
                reason = await self.connect_once()
            except (TunnelError, OSError, aiohttp.ClientError, ssl.SSLError) as error:
                reason = str(error) or type(error).__name__
            if self._clock.monotonic() - started >= _SETTLED:
                pause = FIRST_PAUSE
            wait = self._rng.uniform(pause / 2, pause)
            log.warning("tunnel ended, connecting again in %.1f s: %s", wait, reason, extra={"server": self._server.url})
            await self._clock.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def connect_once(self) -> str:
        """Run one session, from the handshake to its end; the result is the reason for its end. Raises if it did not begin."""
        timeout = aiohttp.ClientTimeout(total=None)
        # No pool and no environment: one connection, and the proxy of `proxy_for`.
        async with aiohttp.ClientSession(timeout=timeout, ws_response_class=ClientSocket, trust_env=False) as http:
            socket = await self._handshake(http)
            wire = Wire(socket, socket.abort)
            session = Session(wire, self._clock, self._rng, accept=self._accept, deaf_after=self._deaf_after)
            log.info("tunnel connected", extra={"server": self._server.url})
            self.session = session
            try:
                return await self._carry(session)
            finally:
                self.session = None
                session.end("stopped")

    async def _carry(self, session: Session) -> str:
        if self._connected is None:
            return await session.serve()
        greeting = asyncio.ensure_future(self._connected(session))

        def failed(task: asyncio.Future[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                session.end(f"a handler of the connection failed: {error}")

        greeting.add_done_callback(failed)
        try:
            return await session.serve()
        finally:
            greeting.cancel()
            await asyncio.gather(greeting, return_exceptions=True)

    async def _handshake(self, http: aiohttp.ClientSession) -> ClientSocket:
        url = URL(self._server.url)
        secure = url.scheme in ("wss", "https")
        proxy, shown = self._proxy()
        headers = dict(self._headers())
        if not secure:
            # A forwarding proxy reads the request itself; a tunnelling one gets a request of its own.
            headers |= shown
        try:
            async with deadline(self._clock, HANDSHAKE_WITHIN):
                socket = await http.ws_connect(
                    # A proxy that reads the request knows no ws:// URLs.
                    url.with_scheme("https" if secure else "http"),
                    headers=headers,
                    proxy=proxy,
                    proxy_headers=shown if secure and proxy else None,
                    ssl=self._server.verification() if secure else True,
                    autoping=False,
                    autoclose=False,
                    compress=0,
                    max_msg_size=LARGEST_MESSAGE,
                )
        except TimeoutError:
            raise TunnelError(f"{self._server.url} did not answer within {HANDSHAKE_WITHIN:.0f} s") from None
        except aiohttp.WSServerHandshakeError as error:
            # A proxy may answer 410 for reasons of its own, but does not know our header.
            if error.status == 410 and error.headers is not None and error.headers.get(DEPARTED_HEADER):
                raise Departed(f"the cluster was deleted on {url.host}") from None
            raise Refused(f"{self._server.url} answered {error.status}: {error.message[:_LONGEST_ANSWER]}") from None
        assert isinstance(socket, ClientSocket)
        return socket

    def _proxy(self) -> tuple[URL | None, dict[str, str]]:
        """The proxy, and the headers that authenticate the client to it."""
        found = proxy_for(self._server.url, os.environ) if self._server.proxy is None else self._server.proxy
        return introduced(found) if found else (None, {})

    async def _accept(self, stream: Stream) -> None:
        if not self._allow(stream.network, stream.address):
            log.warning("refused to dial", extra={"network": repr(stream.network), "address": repr(stream.address)})
            raise StreamError("connect not allowed")
        await self._serve(stream)

    async def _dial(self, stream: Stream) -> None:
        await serve_by_dialling(stream, dial_network, self._clock)


# --- dialing --------------------------------------------------------------------------------------------------------------
#
# The target of a stream: a connection dialled on this side, and copying of bytes between the two.
#
# Half-closed connections do not exist in the tunnel. When the local side ends, data that the other side had sent by then is
# still delivered before everything is closed; when the other side ends, all its data is delivered first.

DIAL_WITHIN = 60.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str, str], Awaitable[Connection]]


def split_address(address: str) -> tuple[str, int]:
    """Split Go's `host:port`, an IPv6 address in brackets; ValueError if it is invalid."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"address {address}: not host:port")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"address {address}: too many colons in address")
    return host or "localhost", int(port)


async def dial_network(network: str, address: str) -> Connection:
    """Connect through the machine's own network: tcp, tcp4, tcp6 or unix."""
    if network == "unix":
        return await asyncio.open_unix_connection(address, limit=2 * CHUNK)
    if network not in ("tcp", "tcp4", "tcp6"):
        raise ValueError(f"unknown network {network}")
    host, port = split_address(address)
    return await asyncio.open_connection(host, port, limit=2 * CHUNK)


async def serve_by_dialling(stream: Stream, dial: Dial, clock: Clock) -> None:
    """Dial the stream's address and copy bytes both ways until one side ends."""
    try:
        async with deadline(clock, DIAL_WITHIN):
            reader, writer = await dial(stream.network, stream.address)
    except (OSError, ValueError) as error:
        raise StreamError(f"dial {stream.network} {stream.address}: {_why(error)}") from None
    await join(stream, reader, writer)


def _why(error: Exception) -> str:
    """Go's words for an error, since users may search for them."""
    if isinstance(error, TimeoutError) and not getattr(error, "errno", None):
        return "i/o timeout"
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number in errno.errorcode:
        return f"connect: {os.strerror(number).lower()}"
    return str(error)


async def join(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes between a stream and a connection; both are closed afterwards."""
    outward = asyncio.ensure_future(_to_stream(reader, stream))
    inward = asyncio.ensure_future(_to_connection(stream, writer))
    try:
        await asyncio.wait((outward, inward), return_when=asyncio.FIRST_COMPLETED)
        if outward.done() and not inward.done():
            inward.cancel()
            await asyncio.wait((inward,))
            rest = stream.leftover()
            if rest and not writer.is_closing():
                writer.write(rest)
    finally:
        for task in (outward, inward):
            task.cancel()
        await asyncio.gather(outward, inward, return_exceptions=True)
        stream.close()
        writer.close()


async def _to_stream(reader: asyncio.StreamReader, stream: ByteStream) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await stream.write(data)


async def _to_connection(stream: ByteStream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
