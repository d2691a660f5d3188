"""Verification of a server's identity, before a password is sent to it.

By the system's authorities, a CA's file, or a CA's checksum. With none of these the server's own CA is shown by its checksum,
and a person says whether it is the right one; from then on no other counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from ..exit_codes import Code, Failure

if TYPE_CHECKING:
    from remuda.client.kubeconfig import KubeTarget

_SECONDS = 15.0
_LARGEST_CA = 1 << 20


@dataclass(frozen=True, slots=True)
class Trust:
    """`ca` is PEM, "" for whom the system trusts."""

    ca: str = ""
    insecure: bool = False


def server_address(text: str) -> str:
    """https://host[:port] of what a person typed."""
    url = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Failure(f"{text!r} is no address of a server") from None
    if parts.scheme != "https":
        raise Failure(f"{text!r}: only https is allowed, since a password must not be sent unencrypted")
    if not parts.hostname or parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"):
        raise Failure(f"{text!r} is no address of a server, such as https://remuda.example.com")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}" + (f":{port}" if port not in (None, 443) else "")


def checksum(ca: str) -> str:
    """The checksum as agents compare it: of the text with one end of line."""
    return hashlib.sha256((ca if ca.endswith("\n") else f"{ca}\n").encode()).hexdigest()


def establish(server: str, ca_file: Path | None, ca_checksum: str, insecure: bool) -> Trust:
    if sum((ca_file is not None, bool(ca_checksum), insecure)) > 1:
        raise click.UsageError("--ca-file, --ca-checksum and --insecure-skip-tls-verify exclude each other")
    if insecure:
        return Trust(insecure=True)
    if ca_file is not None:
        return Trust(ca_file.read_text())
    if ca_checksum:
        return Trust(_fetched(server, ca_checksum))
    return _found_out(server)


def _fetched(server: str, wanted: str) -> str:
    ca = _told_ca(server)
    if not hmac.compare_digest(checksum(ca).encode(), wanted.strip().lower().encode(errors="replace")):
        raise Failure(f"{server} has a CA with another checksum: it may be another server")
    return ca


def _found_out(server: str) -> Trust:
    """The trust by the system's CAs, or by asking the user."""
    problem = _verified(server, Trust())
    if not problem:
        return Trust()
    ca = _told_ca(server)
    click.echo(f"The certificate of {server} is not signed by a CA that this machine trusts: {problem}", err=True)
    click.echo(f"Its own CA has the checksum  {checksum(ca)}", err=True)
    if not sys.stdin.isatty():
        raise Failure(
            f"say that you trust it: --ca-checksum {checksum(ca)} (if the server's administrator has the same checksum)"
        )
    if not click.confirm("Do you trust this CA? (compare the checksum with that of the server's administrator)", err=True):
        raise Failure("the server is not trusted, nothing was sent to it")
    trust = Trust(ca)
    if problem := _verified(server, trust):
        raise Failure(f"the certificate of {server} is not signed by its own CA, or not for that name: {problem}")
    return trust


def target_for(server: str, trust: Trust, token: str = "") -> KubeTarget:
    from remuda.client.kubeconfig import KubeTarget

    return KubeTarget(server=server, ca=trust.ca.encode(), insecure=trust.insecure, token=token)


def _verified(server: str, trust: Trust) -> str:
    """The reason why the server's certificate is not valid; "" if it is. Raises when there is no server."""
    import aiohttp

    from remuda.client.connection import Unreachable

    try:
        _get(server, trust, "/ping")
    except Unreachable as error:
        if isinstance(error.__context__, aiohttp.ClientConnectorCertificateError):
            found = error.__context__.certificate_error
            return str(getattr(found, "verify_message", "") or found)
        raise
    return ""


def _get(server: str, trust: Trust, path: str) -> object:
    from remuda.client.https import HttpsClient
    from remuda.kube.clock import SYSTEM_CLOCK, deadline

    async def got() -> object:
        async with HttpsClient(target_for(server, trust)) as client, deadline(SYSTEM_CLOCK, _SECONDS):
            return await client.raw("GET", path)

    try:
        return asyncio.run(got())
    except TimeoutError:
        raise Failure(f"{server} does not answer", Code.TIMEOUT) from None


def _told_ca(server: str) -> str:
    """The CA that the server presents; untrusted until it was compared."""
    ca = _get(server, Trust(insecure=True), "/cacerts")
    if not isinstance(ca, str) or "BEGIN CERTIFICATE" not in ca or len(ca) > _LARGEST_CA:
        raise Failure(f"{server} publishes no CA, so its certificate must be one that this machine trusts")
    return ca
