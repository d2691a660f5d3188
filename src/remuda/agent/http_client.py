"""HTTP as the agent needs it: proxies from the environment, trust from files, deadlines always.

``http.client`` and ``ssl`` underneath, and not ``urllib.request``, which costs more memory than the rest of the agent.
Proxy rules are Go's: HTTPS_PROXY and HTTP_PROXY in either case, NO_PROXY with names, suffixes, addresses and networks, and
never for the host itself.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import AgentError


class WebError(AgentError):
    """No answer: refused, unreachable, too slow, or not trusted. ``untrusted`` tells the last from the others."""

    def __init__(self, message: str, untrusted: bool = False) -> None:
        super().__init__(message)
        self.untrusted = untrusted


class Trust(NamedTuple):
    """The CAs to trust, and the client's certificate."""

    ca_data: str = ""
    ca_file: str = ""
    system_roots: bool = True
    insecure: bool = False
    cert_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            else:
                if self.system_roots:
                    context.load_default_certs()
                if self.ca_file:
                    context.load_verify_locations(cafile=self.ca_file)
                if self.ca_data:
                    context.load_verify_locations(cadata=self.ca_data)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except (OSError, ValueError) as reason:
            files = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
            raise WebError(f"can't use the certificates {files}: {reason}") from reason
        return context


def connect(
    url: SplitResult, context: ssl.SSLContext | None, timeout: float | None, env: Mapping[str, str] | None = None
) -> http.client.HTTPConnection:
    """A connection for requests to this URL, through a proxy when the environment names one. ``env={}``: no proxy."""
    host = url.hostname or ""
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    proxy = proxy_for(url, os.environ if env is None else env)
    if proxy is None:
        if secure:
            return _KeptAlive(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)
    headers = _proxy_auth(proxy)
    proxy_port = proxy.port or (443 if proxy.scheme == "https" else 80)
    if secure:
        tunnel = _KeptAlive(proxy.hostname or "", proxy_port, timeout=timeout, context=context)
        tunnel.set_tunnel(host, port, headers)
        return tunnel
    return _Forwarded(proxy.hostname or "", proxy_port, timeout, f"http://{url.netloc.rpartition('@')[2]}", headers)


class _KeptAlive(http.client.HTTPSConnection):
    """HTTPS that notices when the peer vanishes: a watch may be silent for minutes."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Forwarded(http.client.HTTPConnection):
    """Plain HTTP through a proxy: the request line holds the whole URL."""

    def __init__(self, host: str, port: int, timeout: float | None, origin: str, headers: dict[str, str]) -> None:
        super().__init__(host, port, timeout=timeout)
        self._origin = origin
        self._proxy_headers = headers

    def putrequest(self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False) -> None:
        super().putrequest(method, self._origin + url, skip_host, skip_accept_encoding)
        for name, value in self._proxy_headers.items():
            self.putheader(name, value)


def request(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
) -> http.client.HTTPResponse:
    """Send one request; every lack of an answer is one exception."""
    try:
        connection.request(method, target, body=body, headers=dict(headers))
        return connection.getresponse()
    except ssl.SSLCertVerificationError as reason:
        connection.close()
        raise WebError(f"the certificate of {connection.host} is not trusted: {reason.verify_message}", True) from reason
    except (OSError, http.client.HTTPException) as reason:
        connection.close()
        raise WebError(f"no answer from {connection.host}:{connection.port}: {reason or type(reason).__name__}") from reason


def read_all(answer: http.client.HTTPResponse, largest: int) -> bytes:
    """The whole body, unless it is larger than allowed. Older Pythons reserve memory for the most that may be read."""
    data = bytearray()
    while True:
        chunk = answer.read(1 << 16)
        if not chunk:
            return bytes(data)
        data += chunk
        if len(data) > largest:
            raise WebError(f"an answer of more than {largest} bytes is not read")


def target_of(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def proxy_for(url: SplitResult, env: Mapping[str, str]) -> SplitResult | None:
    """The proxy for this URL, if any."""
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    proxy = env.get(name) or env.get(name.lower()) or ""
    if not proxy or _direct(url, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _direct(url: SplitResult, exceptions: str) -> bool:
    host = (url.hostname or "").lower().rstrip(".")
    port = url.port or (443 if url.scheme == "https" else 80)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(item.strip().lower(), host, port, address) for item in exceptions.split(",") if item.strip())


def _matches(item: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if item == "*":
        return True
    if "/" in item:
        try:
            return address is not None and address in ipaddress.ip_network(item, strict=False)
        except ValueError:
            return False
    name, colon, wanted = item.rpartition(":")
    if colon and wanted.isdigit() and ("[" in name or ":" not in name):
        if int(wanted) != port:
            return False
        item = name
    item = item.strip("[]")
    if address is not None:
        return _address(item) == address
    if item.startswith("*."):
        item = item[1:]
    if item.startswith("."):
        return host.endswith(item)
    return host == item or host.endswith("." + item)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _proxy_auth(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
