"""How the agent knows that a server is the one it was made for.

The import manifest came with the checksum of the server's CA. The CA itself is fetched without believing anybody, and believed
when its checksum is right; from then on a connection must verify against it (and, unless strict, may verify against whom the
system believes). Nothing secret is sent before. Without a checksum the system's own roots decide.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from dataclasses import dataclass

from remuda.client.fetching import FetchError, fetched
from remuda.client.proxies import proxy_for
from remuda.kube import jsonio
from remuda.kube.clock import Clock
from remuda.tunnel import Server, TunnelError

from .settings import Settings

ANSWER_WITHIN = 10.0
_LARGEST_ANSWER = 1 << 20
_END = "-----END CERTIFICATE-----"


class TrustError(Exception):
    """The server is not, or not provably, the right one; or it could not be asked."""


@dataclass(frozen=True, slots=True)
class Trust:
    """`ca` (PEM) empty: the system's roots only."""

    ca: bytes = b""
    system_too: bool = False

    def server(self, url: str, proxy: str | None = None) -> Server:
        return Server(url, self.ca, system_too=self.system_too, proxy=proxy)


async def establish(settings: Settings, clock: Clock, proxy: str | None = None) -> Trust:
    """Whom to believe; the server has then answered to it. Raises TrustError."""
    trust = Trust()
    if settings.ca_checksum:
        trust = Trust(await _fetch_ca(settings, clock, proxy), system_too=not settings.strict)
    body = await _get(f"{settings.url}/ping", trust.server(settings.url, proxy), clock)
    if body.strip() != b"pong":
        raise TrustError(f"{settings.url}/ping did not answer pong: this is not the server, or something is before it")
    return trust


async def _fetch_ca(settings: Settings, clock: Clock, proxy: str | None) -> bytes:
    where = f"{settings.url}/v3/settings/cacerts"
    body = await _get(where, Server(settings.url, insecure=True, proxy=proxy), clock)
    try:
        value = jsonio.loads(body)["value"]
    except (jsonio.JsonError, KeyError, TypeError):
        raise TrustError(f"{where} did not answer with a setting") from None
    if not isinstance(value, str) or not value:
        raise TrustError(f"{where} has no CA, but the checksum of one was given")
    known = next((part for part in _leading(value) if matches(part, settings.ca_checksum)), None)
    if known is None:
        raise TrustError(
            f"the CA of {settings.url} has another checksum than the one given: this is another server, or its CA was "
            "changed; in the second case apply its import manifest again"
        )
    ca = known.encode()
    try:
        Server(settings.url, ca).context()
    except TunnelError:
        raise TrustError(f"{where} has the right checksum, but is not PEM") from None
    return ca


def _leading(bundle: str) -> Iterator[str]:
    """All of it; then what it begins with. A server whose CA is being replaced shows the old one first, and the checksum may be
    of that one alone, which is then the only one that is believed."""
    yield bundle
    end = bundle.find(_END)
    while end >= 0:
        yield bundle[: end + len(_END)]
        end = bundle.find(_END, end + 1)


def matches(ca: str, checksum: str) -> bool:
    """Checksums are of the CA with one end of line; some servers show it with, some without."""
    forms = (f"{ca}\n", ca, f"{ca.rstrip()}\n")
    return any(hmac.compare_digest(hashlib.sha256(form.encode()).hexdigest(), checksum) for form in forms)


async def _get(url: str, server: Server, clock: Clock) -> bytes:
    proxy = proxy_for(url, os.environ) if server.proxy is None else server.proxy
    try:
        return await fetched(
            url, clock, context=server.context(), proxy=proxy or None, within=ANSWER_WITHIN, largest=_LARGEST_ANSWER
        )
    except FetchError as error:
        raise TrustError(str(error)) from None
