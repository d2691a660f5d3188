"""Addresses, networks and URLs, parsed like Go's netip and net/url."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from remuda.kube.encoding import go_format

from ..errors import EvalError, no_such_overload
from ..values import Opaque, Value

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Ip(Opaque):
    __slots__ = ("address",)
    type_name = "net.IP"

    def __init__(self, address: Address) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def cost_size(self) -> int:
        return 4 if self.address.version == 4 else 16


class Cidr(Opaque):
    __slots__ = ("address", "bits", "network")
    type_name = "net.CIDR"

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits
        self.network = ipaddress.ip_network((address, bits), strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def cost_size(self) -> int:
        return -(-self.bits // 8)


class _BadAddress(Exception):
    pass


def _address(text: str) -> Address:
    """netip.ParseAddr without a zone."""
    for char in text:
        if char == ".":
            return _ipv4(text)
        if char in ":%":
            break
    else:
        raise _BadAddress(f"ParseAddr({go_format.quote(text)}): unable to parse IP")
    if ":" not in text:
        raise _BadAddress(f"ParseAddr({go_format.quote(text)}): missing IPv6 address")
    base, percent, zone = text.partition("%")
    if percent and not zone:
        raise _BadAddress(f"ParseAddr({go_format.quote(text)}): zone must be a non-empty string")
    try:
        return ipaddress.IPv6Address(base)
    except ValueError:
        raise _BadAddress(f"ParseAddr({go_format.quote(text)}): {_ipv6_problem(base)}") from None


def _ipv4(text: str) -> Address:
    shown = f"ParseAddr({go_format.quote(text)})"
    parts = text.split(".")
    for part in parts:
        if not part:
            raise _BadAddress(f"{shown}: IPv4 field must have at least one digit (at {go_format.quote(text)})")
        if not part.isascii() or not part.isdigit():
            raise _BadAddress(f"{shown}: unexpected character (at {go_format.quote(part)})")
        if len(part) > 1 and part[0] == "0":
            raise _BadAddress(f"{shown}: IPv4 field has octet with leading zero")
        if len(part) > 3 or int(part) > 255:
            raise _BadAddress(f"{shown}: IPv4 field has value >255")
    if len(parts) != 4:
        raise _BadAddress(f"{shown}: IPv4 address too {'short' if len(parts) < 4 else 'long'}")
    return ipaddress.IPv4Address(text)


def _ipv6_problem(text: str) -> str:
    fields = text.split(":")
    if ":::" in text:
        rest = text[text.index(":::") + 2 :]
        return f"each colon-separated field must have at least one digit (at {go_format.quote(rest)})"
    for index, field in enumerate(fields):
        bad = re.search(r"[^0-9a-fA-F.]", field)
        if bad is not None or (not field and text.count("::") == 0 and 0 < index < len(fields) - 1):
            rest = ":".join([field[bad.start() :] if bad is not None else field, *fields[index + 1 :]])
            return f"each colon-separated field must have at least one digit (at {go_format.quote(rest)})"
        if len(field) > 4 and "." not in field:
            rest = ":".join(fields[index:])
            return f"each group must have four or less digits (at {go_format.quote(rest)})"
    return "address string too short" if "::" not in text and len(fields) < 8 else "unable to parse IP"


def _parse_ip(text: str) -> Ip:
    try:
        address = _address(text)
    except _BadAddress as error:
        raise EvalError(f"IP Address {go_format.quote(text)} parse error during conversion from string: {error}") from None
    if "%" in text:
        raise EvalError(f"IP address {go_format.quote(text)} with zone value is not allowed")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f"IPv4-mapped IPv6 address {go_format.quote(text)} is not allowed")
    return Ip(address)


_BITS = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_CIDR_PROBLEM = "network address parse error during conversion from string"


def _parse_cidr(text: str) -> Cidr:
    shown = f"{_CIDR_PROBLEM}: {_CIDR_PROBLEM}: netip.ParsePrefix({go_format.quote(text)})"
    base, slash, bits = text.rpartition("/")
    if not slash:
        raise EvalError(f"{shown}: no '/'")
    try:
        address = _address(base)
    except _BadAddress as error:
        raise EvalError(f"{shown}: {error}") from None
    if "%" in base:
        raise EvalError(f"{shown}: IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits):
        raise EvalError(f"{shown}: bad bits after slash: {go_format.quote(bits)}")
    if int(bits) > address.max_prefixlen:
        raise EvalError(f"{shown}: prefix length out of range")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f"{_CIDR_PROBLEM}: IPv4-mapped IPv6 address {go_format.quote(text)} is not allowed")
    return Cidr(address, int(bits))


def _reads(parse: Callable[[str], Value]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except EvalError:
            return False
        return True

    return check


def _is_global_unicast(value: Ip) -> bool:
    address = value.address
    if address.version == 4 and str(address) == "255.255.255.255":
        return False
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (special or _is_link_local(value))


def _is_link_local(value: Ip) -> bool:
    return value.address.is_link_local


_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24")


def _is_link_local_multicast(value: Ip) -> bool:
    if isinstance(value.address, ipaddress.IPv4Address):
        return value.address in _LOCAL_MULTICAST
    return value.address.packed[0] == 0xFF and value.address.packed[1] & 0x0F == 0x02


def _contains_ip(cidr: Cidr, other: Value) -> bool:
    if isinstance(other, str):
        try:
            other = _parse_ip(other)
        except EvalError:
            raise no_such_overload() from None
    return other.address.version == cidr.address.version and other.address in cidr.network


def _contains_cidr(cidr: Cidr, other: Value) -> bool:
    if isinstance(other, str):
        try:
            other = _parse_cidr(other)
        except EvalError:
            raise no_such_overload() from None
    if other.address.version != cidr.address.version:
        return False
    return cidr.bits <= other.bits and other.network.network_address in cidr.network


# --- URLs


class Url(Opaque):
    __slots__ = ("fragment", "host", "path", "query", "scheme", "source")
    type_name = "kubernetes.URL"

    def __init__(self, source: str, scheme: str, host: str, path: str, query: str, fragment: str) -> None:
        self.source = source
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query
        self.fragment = fragment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)


_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_HOST_OK = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%]|[^\x00-\x7f]")
# What Go leaves unescaped in a path.
_PATH_SAFE = "$&+,/:;=@-_.~!'()*%"


def parse_request_uri(text: str) -> Url:
    """Go's url.ParseRequestURI; ValueError has its error text."""
    shown = f"parse {go_format.quote(text)}"
    if any(ord(char) < 0x20 or char == "\x7f" for char in text):
        raise ValueError(f"{shown}: net/url: invalid control character in URL")
    if not text:
        raise ValueError(f"{shown}: empty url")
    if text == "*":
        return Url(text, "", "", "*", "", "")
    scheme, rest = "", text
    colon = text.find(":")
    if colon == 0:
        raise ValueError(f"{shown}: missing protocol scheme")
    if colon > 0 and _SCHEME.fullmatch(text[:colon]):
        scheme, rest = text[:colon].lower(), text[colon + 1 :]
    body, _, query = rest.partition("?")
    if not body.startswith("/"):
        if scheme:
            return Url(text, scheme, "", "", query, "")
        raise ValueError(f"{shown}: invalid URI for request")
    host = ""
    if body.startswith("//") and (scheme or not body.startswith("///")):
        authority, slash, path = body[2:].partition("/")
        host = _authority(authority, shown)
        body = slash + path
    bad = _BAD_ESCAPE.search(body)
    if bad is not None:
        raise ValueError(f"{shown}: invalid URL escape {go_format.quote(bad.group())}")
    return Url(text, scheme, host, body, query, "")


def _authority(authority: str, shown: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and re.search(r"[^A-Za-z0-9\-._:~!$&'()*+,;=%@]", user):
        raise ValueError(f"{shown}: net/url: invalid userinfo")
    port = host
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise ValueError(f"{shown}: missing ']' in host")
        port = host[closing + 1 :]
    elif ":" in host:
        port = host[host.rfind(":") :]
    else:
        port = ""
    if port and not re.fullmatch(r":[0-9]*", port):
        raise ValueError(f"{shown}: invalid port {go_format.quote(port)} after host")
    for char in host:
        if not _HOST_OK.fullmatch(char):
            raise ValueError(f"{shown}: invalid character {go_format.quote(char)} in host name")
    bad = _BAD_ESCAPE.search(host)
    if bad is not None:
        raise ValueError(f"{shown}: invalid URL escape {go_format.quote(bad.group())}")
    return host


def _parse_url(text: str) -> Url:
    try:
        return parse_request_uri(text.partition("#")[0] if "#" in text and text.index("#") else text)
    except ValueError as error:
        raise EvalError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request_uri(text)
    except ValueError:
        return False
    return True


def _hostname(url: Url) -> str:
    if url.host.startswith("["):
        return url.host[1 : url.host.rfind("]")]
    return url.host.rpartition(":")[0] if ":" in url.host else url.host


def _port(url: Url) -> str:
    tail = url.host[url.host.rfind("]") + 1 :]
    return tail.rpartition(":")[2] if ":" in tail else ""


def _escaped_path(url: Url) -> str:
    if re.fullmatch(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%\[\]]*", url.path):
        return url.path
    return quote(unquote_to_bytes(url.path), safe=_PATH_SAFE.replace("%", "").replace("!", "").replace("'()*", ""))


def _query(url: Url) -> dict[Value, Value]:
    found: dict[Value, Value] = {}
    for part in url.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        if _BAD_ESCAPE.search(key) or _BAD_ESCAPE.search(value):
            continue
        found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "string_to_ip": _parse_ip,
    "is_ip": _reads(_parse_ip),
    "ip_is_canonical": lambda text: str(_parse_ip(text).address) == text,
    "ip_to_string": lambda value: str(value.address),
    "ip_family": lambda value: value.address.version,
    "ip_is_unspecified": lambda value: value.address.is_unspecified,
    "ip_is_loopback": lambda value: value.address.is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": _is_link_local,
    "ip_is_global_unicast": _is_global_unicast,
    "string_to_cidr": _parse_cidr,
    "is_cidr": _reads(_parse_cidr),
    "cidr_to_string": lambda cidr: f"{cidr.address}/{cidr.bits}",
    "cidr_ip": lambda cidr: Ip(cidr.address),
    "cidr_masked": lambda cidr: Cidr(cidr.network.network_address, cidr.bits),
    "cidr_prefix_length": lambda cidr: cidr.bits,
    "cidr_contains_ip_string": _contains_ip,
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": _contains_cidr,
    "cidr_contains_cidr": _contains_cidr,
    "string_to_url": _parse_url,
    "is_url_string": _is_url,
    "url_get_scheme": lambda url: url.scheme,
    "url_get_host": lambda url: url.host,
    "url_get_hostname": _hostname,
    "url_get_port": _port,
    "url_get_escaped_path": _escaped_path,
    "url_get_query": _query,
}
