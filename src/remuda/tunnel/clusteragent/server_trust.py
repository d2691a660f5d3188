"""Verification that a server is the one for which the agent was made.

The import manifest contains the checksum of the server's CA. The CA itself is fetched without verification, and trusted if its
checksum matches; from then on a connection must verify against it (or, unless strict, against the system's trusted CAs). No
secret is sent before. Without a checksum the system's trusted CAs decide.

A server whose CA was replaced hands out its former CAs, too. If the checksum matches one of those, the connection must verify
against that one, through the old CA's signature of the new one; the CA that the server then hands out is trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from remuda.agent.key_fingerprints import fingerprints
from remuda.client.download import FetchError, fetched
from remuda.client.proxies import proxy_for
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio

from .. import Server, TunnelError
from .settings import Settings

ANSWER_WITHIN = 10.0
_LARGEST_ANSWER = 1 << 20
_END = "-----END CERTIFICATE-----"
_MOST_FORMER = 8

log = logging.getLogger(__name__)


class TrustError(Exception):
    """The server is not the right one, or can't prove it; or it could not be asked."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted CAs. `ca` (PEM) empty: the system's only."""

    ca: bytes = b""
    system_too: bool = False

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the trusted CAs' keys; none if the system's trusted CAs decide."""
        return fingerprints(self.ca.decode())

    def server(self, url: str, proxy: str | None = None) -> Server:
        return Server(url, self.ca, system_too=self.system_too, proxy=proxy)


async def establish(settings: Settings, clock: Clock, proxy: str | None = None) -> Trust:
    """The trusted CAs, verified by an answer of the server. Raises TrustError."""
    trust, is_current = Trust(), True
    if settings.ca_checksum:
        ca, is_current = await _fetch_ca(settings, clock, proxy)
        trust = Trust(ca, system_too=not settings.strict)
    body = await _get(f"{settings.url}/ping", trust.server(settings.url, proxy), clock)
    if body.strip() != b"pong":
        raise TrustError(f"{settings.url}/ping did not answer pong: this is not the server, or a proxy is in front of it")
    return trust if is_current else await followed(settings.url, trust, clock, proxy)


async def followed(url: str, trust: Trust, clock: Clock, proxy: str | None = None) -> Trust:
    """The trust to use from now on: the CA that the server hands out over a connection that the present one verifies."""
    if not trust.ca:
        return trust
    try:
        # Not the system's CAs: they must not decide about this CA.
        value = await _handed_out(url, replace(trust, system_too=False).server(url, proxy), clock)
        Server(url, value.encode()).context()
    except (TrustError, TunnelError) as error:
        log.debug("the CA of %s can't be checked: %s", url, error)
        return trust
    return replace(trust, ca=value.encode()) if value.strip() != trust.ca.decode().strip() else trust


async def _fetch_ca(settings: Settings, clock: Clock, proxy: str | None) -> tuple[bytes, bool]:
    """The CA that matches the checksum, and whether the server hands it out now."""
    server = Server(settings.url, insecure=True, proxy=proxy)
    value = await _handed_out(settings.url, server, clock)
    if not value:
        raise TrustError(f"{settings.url} has no CA, but the checksum of one was given")
    known = _known_part(value, settings.ca_checksum)
    if known is None:
        former = await _former(settings.url, server, clock)
        known = next((part for each in former if (part := _known_part(each, settings.ca_checksum))), None)
    if known is None:
        raise TrustError(
            f"the CA of {settings.url} has another checksum than the one given: this is another server, or its CA was "
            "changed; in the second case apply its import manifest again"
        )
    ca = known.encode()
    try:
        Server(settings.url, ca).context()
    except TunnelError:
        raise TrustError(f"the CA of {settings.url} has the right checksum, but is not PEM") from None
    return ca, known == value


async def _handed_out(url: str, server: Server, clock: Clock) -> str:
    where = f"{url}/v3/settings/cacerts"
    body = await _get(where, server, clock)
    try:
        value = jsonio.loads(body)["value"]
    except (jsonio.JsonError, KeyError, TypeError):
        raise TrustError(f"{where} did not answer with a setting") from None
    return value if isinstance(value, str) else ""


async def _former(url: str, server: Server, clock: Clock) -> list[str]:
    """The former CA bundles of the server; none from a server that does not support this."""
    try:
        found = jsonio.loads(await _get(f"{url}/cacerts/former", server, clock))
    except (TrustError, jsonio.JsonError):
        return []
    bundles = found.get("bundles") if isinstance(found, dict) else None
    return [each for each in bundles[:_MOST_FORMER] if isinstance(each, str)] if isinstance(bundles, list) else []


def _known_part(bundle: str, checksum: str) -> str | None:
    return next((part for part in _leading(bundle) if matches(part, checksum)), None)


def _leading(bundle: str) -> Iterator[str]:
    """The whole bundle; then its beginnings. A server whose CA is being replaced shows the old one first, and the checksum may
    match that one alone."""
    yield bundle
    end = bundle.find(_END)
    while end >= 0:
        yield bundle[: end + len(_END)]
        end = bundle.find(_END, end + 1)


def matches(ca: str, checksum: str) -> bool:
    """Checksums are of the CA with one newline at the end; some servers send it, some do not."""
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
