"""Requests to one Kubernetes API server with one identity: connections, credentials, repeats, errors.

Requests and watches have a bounded pool of connections each, so that many watches never keep a request from being sent. A GET
that the server asks to repeat later (429 or 503 with Retry-After) is repeated; nothing else is, because only the caller
knows whether a repeat is safe. :mod:`.https` has the verbs, :mod:`.responses` reads the answers.
"""

from __future__ import annotations

import copy
import logging
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from remuda import __version__
from remuda.kube.clock import SYSTEM_CLOCK, Clock, deadline
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.network import outbound, outbound_http

from . import responses
from .credentials import Credential, CredentialSource, source_for
from .kubeconfig import ConfigError, KubeTarget
from .proxies import proxy_for
from .tls import ContextOnDemand, client_context

log = logging.getLogger(__name__)

REQUEST_SECONDS = 60.0
CONNECT_SECONDS = 15.0
RETRIES = 10
LONGEST_PAUSE = 30.0

# Makes a connector from the number of connections and the TLS context (None: no TLS).
Connector = Callable[[int, ContextOnDemand | None], aiohttp.BaseConnector]

_USER_AGENT = f"remuda/{__version__} ({sys.platform})"


class Unreachable(ApiError):
    """No response: the connection failed or ended before one. It is unknown whether a write took place."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(503, "ServiceUnavailable", f"{server} can't be reached: {why}")


class NotConnected(ApiError):
    """As Unreachable, for a server that a tenant named: the text is one of two sentences
    (:func:`remuda.kube.network.outbound.told`).
    """

    def __init__(self, server: str, error: BaseException) -> None:
        super().__init__(503, "ServiceUnavailable", outbound.told(error, server))


# The interval of checks whether the peer of a websocket is still there.
_HEARTBEAT = 30.0

# Every error by which aiohttp reports a missing or incomplete response.
_CUT = (aiohttp.ClientError, ConnectionError, ssl.SSLError)


class ServerConnection:
    """One server and one identity; close it when done. Its sessions are opened with the first request."""

    def __init__(
        self,
        target: KubeTarget,
        clock: Clock = SYSTEM_CLOCK,
        *,
        connections: int = 64,
        watches: int = 1024,
        request_seconds: float = REQUEST_SECONDS,
        on_warning: Callable[[str], None] | None = None,
        connector: Connector | None = None,
        credentials: CredentialSource | None = None,
        largest: int | None = None,
        policy: outbound_http.Current | None = None,
    ) -> None:
        """`connector` replaces this machine's network, `credentials` replace the target's own.

        Without `watches` of their own they share the connections of requests, which is enough for short watches.
        `largest` limits a response, and an event of a watch: for servers that are not trusted with our memory.
        `policy` has the addresses that may be connected to: for servers that a tenant named.
        """
        self.target = target
        self._clock = clock
        self._limits = (connections, watches)
        self._request_seconds = request_seconds
        self._on_warning = on_warning or LoggedOnce()
        self._credentials = credentials or source_for(target, clock)
        self._connector = connector
        self._largest = largest
        self._policy = policy
        self._proxy = _proxy(target) if connector is None else None
        # The connection whose sessions this one uses; None for its own.
        self._lender: ServerConnection | None = None
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None
        self._closed = False
        self._shown = (b"", b"")

    def impersonating(self, target: KubeTarget) -> ServerConnection:
        """The same server, credential and sessions, as the user that `target` impersonates. It needs no closing."""
        made = copy.copy(self)
        made.target = target
        made._lender = self
        return made

    async def request(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, content_type: str = "", accept: str = ""
    ) -> tuple[bytes, str]:
        try:
            async with deadline(self._clock, self._request_seconds):
                response = await self._answered(method, path, query, body, content_type, accept)
                async with response:
                    return await self._read(response), response.content_type
        except TimeoutError as error:
            raise self._unreached(error, f"no answer in {self._request_seconds:.0f} s") from None
        except _CUT as error:
            raise self._unreached(error, _reason(error)) from None

    @asynccontextmanager
    async def lines(self, path: str, query: Mapping[str, str], accept: str = "") -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch's stream of lines, once the server has begun to answer."""
        async with self._streaming(path, query, accept) as response:
            yield responses.lines(response.content.iter_any(), _CUT, self._largest)

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Mapping[str, str], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open websocket with this protocol. Raises ApiError with the server's refusal."""
        credential = await self._credentials.current()
        session = (await self._open(credential))[1]
        headers = self._headers(credential, None, "*/*")
        try:
            socket = await session.ws_connect(
                self._url(path, query),
                protocols=(protocol,),
                headers=headers,
                proxy=self._proxy,
                compress=0,
                heartbeat=_HEARTBEAT,
                server_hostname=self.target.tls_server_name or None,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise await self._refused(path, query, headers, error.status) from None
        except TimeoutError as error:
            raise self._unreached(error, str(error) or "no connection in time") from None
        except _CUT as error:
            raise self._unreached(error, _reason(error)) from None
        try:
            yield socket
        finally:
            await socket.close()

    async def close(self) -> None:
        """Close for good: later calls raise Unreachable instead of opening a connection that would never be closed."""
        self._closed = True
        if self._lender is None:
            await self._drop_sessions()

    # --- responses -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _streaming(self, path: str, query: Mapping[str, str], accept: str) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with deadline(self._clock, self._request_seconds):
                response = await self._answered("GET", path, query, None, "", accept, streaming=True)
        except TimeoutError as error:
            raise self._unreached(error, f"no answer in {self._request_seconds:.0f} s") from None
        try:
            yield response
        finally:
            # Not release(): the rest of this stream must not reach the next request on the connection.
            response.close()

    async def _refused(self, path: str, query: Mapping[str, str], headers: CIMultiDict[str], status: int) -> ApiError:
        """The reason why no websocket was opened: a second, plain request gets the body that the websocket client hides."""
        session = (await self._open(await self._credentials.current()))[0]
        handshake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        key = {"Sec-WebSocket-Key": "cmVtdWRhIHdoeSBub3Q/IQ=="}
        try:
            async with session.get(
                self._url(path, query),
                headers={**headers, **handshake, **key},
                proxy=self._proxy,
                server_hostname=self.target.tls_server_name or None,
            ) as response:
                if response.status >= 400:
                    return responses.failure(response.status, await self._read(response), response.headers, "GET", path)
        except (*_CUT, TimeoutError) as error:
            return self._unreached(error, _reason(error))
        return ApiError(status, "InternalError", f"{self.target.server} opens no websocket")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if self._largest is None:
            return await response.read()
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > self._largest:
                response.close()
                raise responses.too_long(self._largest)
        return b"".join(pieces)

    async def _answered(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        accept: str,
        *,
        streaming: bool = False,
    ) -> aiohttp.ClientResponse:
        """The response of a request that succeeded; its body is still to be read."""
        refused = False
        for attempt in range(RETRIES + 1):
            response = await self._send(method, path, query, body, content_type, accept, streaming)
            for warning in responses.warnings(response.headers.getall("Warning", ())):
                self._on_warning(warning)
            if 200 <= response.status < 300:
                return response
            async with response:
                error = responses.failure(response.status, await self._read(response), response.headers, method, path)
            if response.status == 401 and not refused and self._credentials.forget():
                refused = True
                continue
            pause = responses.pause(response.status, response.headers) if method == "GET" else None
            if pause is None or attempt == RETRIES:
                try:
                    raise error
                finally:
                    # The error refers to this frame; a cycle would keep both, and the response, until the garbage collector runs.
                    del error
            await self._clock.sleep(min(pause, LONGEST_PAUSE))
        raise AssertionError("unreachable")

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        accept: str,
        streaming: bool,
    ) -> aiohttp.ClientResponse:
        credential = await self._credentials.current()
        session = (await self._open(credential))[1 if streaming else 0]
        data = body if body is None or isinstance(body, bytes) else jsonio.dumps(body)
        try:
            if self._policy is not None and self._proxy is not None:
                await outbound.check_ahead(self._policy(), urlsplit(self.target.server).hostname or "")
            return await session.request(
                method,
                self._url(path, query),
                data=data,
                headers=self._headers(credential, content_type if data is not None else None, accept),
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self.target.tls_server_name or None,
            )
        except TimeoutError as error:
            raise self._unreached(error, str(error) or "no connection in time") from None
        except (*_CUT, outbound.AddressRefused) as error:
            raise self._unreached(error, _reason(error)) from None

    def _unreached(self, error: BaseException, why: str) -> ApiError:
        return Unreachable(self.target.server, why) if self._policy is None else NotConnected(self.target.server, error)

    async def _open(self, credential: Credential) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        """The two sessions; new ones when a plug-in returned another client certificate."""
        if self._lender is not None:
            return await self._lender._open(credential)
        pair = (credential.certificate, credential.key)
        if self._sessions is not None and pair == self._shown:
            return self._sessions
        if self._closed:
            raise Unreachable(self.target.server, "the client is closed")
        await self._drop_sessions()
        self._shown = pair
        connect = self._connecting(*pair)
        requests, watches = self._limits
        asking = self._session(connect(requests))
        self._sessions = asking, self._session(connect(watches)) if watches else asking
        return self._sessions

    async def _drop_sessions(self) -> None:
        sessions, self._sessions = self._sessions, None
        for session in sessions or ():
            await session.close()

    def _connecting(self, certificate: bytes, key: bytes) -> Callable[[int], aiohttp.BaseConnector]:
        secure, special = self.target.server.startswith("https:"), self._connector
        if special is not None:
            on_demand = ContextOnDemand(self.target, certificate, key) if secure else None
            return lambda limit: special(limit, on_demand)
        tls = client_context(self.target, certificate, key) if secure else True
        policy = self._policy
        # A proxy of this process' own environment is the administrator's choice; one in a kubeconfig is the tenant's.
        if policy is not None and (self._proxy is None or self.target.proxy_url):
            return lambda limit: outbound_http.connector(policy, make=_socket, limit=limit, ssl=tls, keepalive_timeout=90)
        return lambda limit: aiohttp.TCPConnector(limit=limit, ssl=tls, keepalive_timeout=90, socket_factory=_socket)

    def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        return aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**18
        )

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        given = {key: value for key, value in query.items() if value}
        question = f"{'&' if '?' in path else '?'}{urlencode(given)}" if given else ""
        return URL(f"{self.target.server}{path if path.startswith('/') else '/' + path}{question}", encoded=True)

    def _headers(self, credential: Credential, content_type: str | None, accept: str) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict({"Accept": accept or "application/json, */*", "User-Agent": _USER_AGENT})
        if content_type is not None:
            headers["Content-Type"] = content_type or "application/json"
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        target = self.target
        if target.impersonate:
            headers["Impersonate-User"] = target.impersonate
        if target.impersonate_uid:
            headers["Impersonate-Uid"] = target.impersonate_uid
        for group in target.impersonate_groups:
            headers.add("Impersonate-Group", group)
        for key, values in target.impersonate_extra:
            for value in values:
                headers.add(f"Impersonate-Extra-{quote(key, safe='')}", value)
        return headers


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that detects a vanished peer: a watch may be silent for long, and must not wait for a dead server."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _proxy(target: KubeTarget) -> URL | None:
    """The kubeconfig's proxy, else the environment's. (aiohttp's own way would read ~/.netrc, too.)"""
    chosen = target.proxy_url or proxy_for(target.server, os.environ)
    if not chosen:
        return None
    if urlsplit(chosen).scheme not in ("http", "https"):
        raise ConfigError(f"the proxy {chosen} is neither http nor https")
    return URL(chosen)


def _reason(error: BaseException) -> str:
    # TLS errors have their own texts and numbers; the others are an errno that uvloop and asyncio word differently.
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return str(error.args[-1])
    if isinstance(error, aiohttp.ClientConnectorError):
        # An unresolvable name has no errno, or one of its own.
        known = os.strerror(error.os_error.errno or 0) if (error.os_error.errno or 0) > 0 else error.os_error.strerror
        return known or str(error)
    return str(error) or type(error).__name__


class LoggedOnce:
    """Logs a server's warnings, each sentence once: controllers do the same thing to a thousand objects."""

    # Established names can't be changed: the server's warnings about their style are useless.
    _STYLE = "prefer a domain-qualified finalizer name"
    _MOST = 256

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text in self._said or self._STYLE in text:
            return
        if len(self._said) < self._MOST:
            self._said.add(text)
        log.warning("the server warns: %s", text)
