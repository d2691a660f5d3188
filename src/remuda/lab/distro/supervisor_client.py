"""The client of the supervisor, for a host that joins an existing server.

It first gets the CA, which is checked against the hash in the token before any secret is sent; without a hash any server is
trusted, as k3s does, and the log says so. :mod:`.cluster.supervisor` is the other side.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp

from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio

from . import DistroError
from .config.settings import NAME
from .pki import join_tokens
from .pki.join_tokens import Token

log = logging.getLogger(__name__)
T = TypeVar("T")

PREFIX = f"/v1-{NAME}"
NODE_NAME, NODE_PASSWORD, NODE_IP = "Remuda-Node-Name", "Remuda-Node-Password", "Remuda-Node-Ip"
_SECONDS = 30.0
_PAUSE = 2.0


class JoinError(DistroError):
    """The server refuses this host, or is not the right one; a retry is of no use."""


class NotYet(DistroError):
    """The server can't be reached, or is not ready: try again."""


@dataclass(frozen=True, slots=True)
class SupervisorServer:
    """A verified supervisor: its URL, and the CA (PEM) of its certificate."""

    url: str
    ca: bytes


class Supervisor:
    """Requests to one server, as the user of a token. Use it with `async with`."""

    def __init__(self, server: SupervisorServer, user: str, password: str, clock: Clock) -> None:
        self.server = server
        self._clock = clock
        context = ssl.create_default_context(cadata=server.ca.decode())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), headers={"Authorization": _basic(user, password)}
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def get(self, path: str) -> bytes:
        return await self._ask("GET", path)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        return await self._ask("POST", path, body, headers)

    async def json(self, path: str) -> Any:
        return jsonio.loads(await self.get(path))

    async def _ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        return await _asked(self._session, self._clock, method, f"{self.server.url}{path}", body, headers)


async def find(url: str, token: Token, clock: Clock) -> SupervisorServer:
    """The server at that URL, if its CA is the right one. Raises JoinError and NotYet."""
    if not urlsplit(url).hostname or urlsplit(url).scheme != "https":
        raise JoinError(f"{url!r} is not the address of a server: it must be like https://host:9345")
    ca = await _cacerts(url, clock)
    try:
        token.check_ca(ca, url)
    except join_tokens.TokenError as error:
        raise JoinError(str(error)) from None
    if not token.ca_hash:
        log.warning("the token has no hash of the cluster's CA, so that %s is believed to be the right server", url)
    return SupervisorServer(url, ca)


async def patiently(what: str, clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry as long as the server is only not ready."""
    said = ""
    while True:
        try:
            return await attempt()
        except NotYet as error:
            if str(error) != said:
                said = str(error)
                log.info("%s: %s; trying again", what, said)
        await clock.sleep(_PAUSE)


async def _cacerts(url: str, clock: Clock) -> bytes:
    """The CA, which needs no token; the server's certificate is not verified yet."""
    blind = ssl.create_default_context()
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=blind)) as session:
        ca = await _asked(session, clock, "GET", f"{url}/cacerts", None, None)
    try:
        ssl.create_default_context(cadata=ca.decode())
    except (ssl.SSLError, ValueError):
        raise JoinError(f"{url}/cacerts is not a certificate: is there a supervisor?") from None
    return ca


async def _asked(
    session: aiohttp.ClientSession, clock: Clock, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None
) -> bytes:
    try:
        async with deadline(clock, _SECONDS), session.request(method, url, data=body, headers=headers) as answer:
            content = await answer.read()
    except TimeoutError:
        raise NotYet(f"{url} does not answer in time") from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise JoinError(f"the certificate of {url} is not of the cluster's CA: {error.certificate_error}") from None
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
        raise NotYet(f"{url} can't be reached: {error}") from None
    if answer.status == 200:
        return content
    words = content[:500].decode(errors="replace").strip()
    if answer.status == 401:
        raise JoinError(f"{url} refuses the token: {words}")
    if answer.status in (429, 500, 502, 503, 504):
        raise NotYet(f"{url} is not ready: {words}")
    raise JoinError(f"{url} refuses ({answer.status}): {words}")


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
