"""The proxy for a server, from the environment, by Go's rules: HTTPS_PROXY for https and wss, HTTP_PROXY, NO_PROXY.

Python's own `urllib.request.proxy_bypass` knows no networks in NO_PROXY, and a cluster's are usually given as such.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import aiohttp
from yarl import URL


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy's URL, or None to connect directly."""
    target = URL(url)
    name = "HTTPS_PROXY" if target.scheme in ("https", "wss") else "HTTP_PROXY"
    proxy = _value(environment, name)
    if not proxy or target.host is None or _direct(target.host, target.port, _value(environment, "NO_PROXY")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def introduced(proxy: str) -> tuple[URL, dict[str, str]]:
    """The proxy's URL without user and password, and the header with these credentials."""
    url = URL(proxy)
    if url.user is None:
        return url, {}
    return url.with_user(None), {"Proxy-Authorization": aiohttp.encode_basic_auth(url.user, url.password or "")}


def _value(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.lower()) or "").strip()


def _direct(host: str, port: int | None, exceptions: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(host, address, port, entry.strip().lower()) for entry in exceptions.split(",") if entry.strip())


def _matches(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int | None, entry: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and (":" not in name or name.startswith("[")):
        if port != int(wanted):
            return False
        entry = name
    entry = entry.strip("[]")
    listed = _address(entry)
    if listed is not None:
        return listed == address
    if address is not None:
        return False
    if entry.startswith("*."):
        entry = entry[1:]
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith("." + entry)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
