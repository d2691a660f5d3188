"""The policy for outbound connections on behalf of tenants, for every request whose address came from a tenant's object.

A tenant names endpoints, hosts and API servers; the server connects to them from its own place in the network, where it reaches
more than the tenant does. So loopback, link-local and multicast addresses, the metadata services of clouds and the addresses of
this machine are refused, and everything else, private networks included, is allowed. The setting `outbound-policy` changes that
by networks (:func:`Policy.of`): the longest network with the address decides, of two equal ones the setting's, and of
two of the setting's the one that refuses. So `allow:169.254.0.0/16` does not open the metadata service in it; naming its address
does.

A name is resolved once (:func:`resolved`), one refused address among its addresses refuses the name, and the checked addresses
are used for the connection. The tenant sees one of two messages (:func:`told`); the rest is in the log of this module.
:mod:`.outbound_http` does the same for HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final

log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# As getaddrinfo gives them: family, type, protocol, canonical name, address.
AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
Lookup = Callable[[str, int], Awaitable[list[AddressInfo]]]

# The policy in a Job's environment, in the form of the setting of the same name.
VARIABLE = "REMUDA_OUTBOUND_POLICY"
REFUSED, UNREACHABLE = "refused by policy", "can't be reached"
ALLOW, DENY = "allow", "deny"
_MOST = 1000

_LOOPBACK = ("127.0.0.0/8", "::1/128")
_NOWHERE = ("0.0.0.0/8", "::/128", "224.0.0.0/4", "255.255.255.255/32", "ff00::/8")
_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
# Addresses at which clouds give a machine its secrets, also outside of link-local networks.
METADATA = (
    "169.254.169.254/32",  # Amazon, Azure, DigitalOcean, Google, Hetzner, OpenStack and others
    "169.254.170.2/32",  # Amazon's, of containers
    "169.254.170.23/32",
    "fd00:ec2::254/128",
    "fd00:ec2::23/128",
    "fd20:ce::254/128",  # Google
    "fe80::a9fe:a9fe/128",  # OpenStack
    "169.254.42.42/32",  # Scaleway
    "fd00:42::42/128",
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's agent
    "192.0.0.192/32",  # Oracle
)
# IPv6 networks that embed an IPv4 address, and the number of bits after it: mapped, compatible, translated (SIIT, and
# NAT64 with the prefixes of RFC 6052 and RFC 8215), 6to4, and the server of Teredo.
_EMBEDDING = (
    ("::ffff:0:0/96", 0),
    ("::/96", 0),
    ("::ffff:0:0:0/96", 0),
    ("64:ff9b::/96", 0),
    ("64:ff9b:1::/48", 0),
    ("2002::/16", 80),
    ("2001::/32", 64),
)
_ISATAP = (0x00005EFE, 0x02005EFE)


class PolicyError(ValueError):
    """An invalid policy; the text names the part that is wrong."""


class AddressRefused(OSError):
    """The policy refuses an address."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is {REFUSED}")


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Allows or refuses connections to the addresses of a network. Between equal networks the smaller rank counts."""

    network: Network
    allows: bool
    rank: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The addresses that may be connected to. `own` says whether an address is this machine's."""

    rules: tuple[AddressRule, ...]
    own: Callable[[Address], bool] = field(default=lambda address: False)
    text: str = ""

    @classmethod
    def of(cls, text: str = "") -> Policy:
        """The policy for hosts that tenants name: the default, changed by `allow:NETWORK,deny:NETWORK,…`. Raises PolicyError."""
        return _tenants(text)

    @classmethod
    def for_administrators(cls, text: str = "") -> Policy:
        """The policy for hosts that only administrators name (webhooks, downloads): this machine itself is allowed, too."""
        return _administrators(text)

    def permits(self, address: Address) -> bool:
        """True if connections to an address are allowed, and to every IPv4 address embedded in it."""
        return all(self._permits(each) for each in (address, *embedded(address)))

    def _permits(self, address: Address) -> bool:
        plain = _plain(address)
        held = [rule for rule in self.rules if rule.network.version == plain.version and plain in rule.network]
        found = min(held, key=lambda rule: (-rule.network.prefixlen, rule.rank), default=None)
        # An address of this machine counts as a refused network of its own.
        alone = found is not None and found.network.prefixlen == found.network.max_prefixlen
        if not alone and not plain.is_loopback and not _is_mapped(plain) and self.own(plain):
            return False
        return found is None or found.allows

    def check(self, host: str, found: Iterable[AddressInfo]) -> None:
        """Raises Refused if one of a name's addresses may not be connected to."""
        for info in found:
            text = str(info[4][0])
            if not self.permits(ipaddress.ip_address(text)):
                log.info("%s (%s) is %s", host, text, REFUSED)
                raise AddressRefused(host)


def _builtin(refused: Iterable[str]) -> tuple[AddressRule, ...]:
    return tuple(AddressRule(ipaddress.ip_network(each), False, 2) for each in refused)


_STANDARD = (*_builtin(_LOOPBACK), *_builtin(_NOWHERE), *_builtin(_LINK_LOCAL), *_builtin(METADATA))


@lru_cache(maxsize=64)
def _tenants(text: str) -> Policy:
    return Policy((*parsed(text), *_STANDARD), is_this_machine, text)


@lru_cache(maxsize=64)
def _administrators(text: str) -> Policy:
    rules = tuple(rule for rule in _STANDARD if str(rule.network) not in _LOOPBACK)
    return Policy((*parsed(text), *rules), text=text)


# For programs that a user starts on the user's own machine.


def parsed(text: str) -> list[AddressRule]:
    """The rules of a setting. Raises PolicyError."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) > _MOST:
        raise PolicyError(f"must have at most {_MOST} networks")
    return [_rule(entry) for entry in entries]


def _rule(entry: str) -> AddressRule:
    word, colon, written = entry.partition(":")
    shown = entry if len(entry) <= 60 and entry.isprintable() else f"{entry[:60]!r}…"
    if not colon or word.strip() not in (ALLOW, DENY):
        raise PolicyError(f"must be {ALLOW}:NETWORK and {DENY}:NETWORK with commas between them, and {shown} is neither")
    try:
        network = ipaddress.ip_network(written.strip())
    except ValueError:
        why = "is no network such as 10.0.0.0/8 or fd00::/8"
        with contextlib.suppress(ValueError):
            why = f"has bits behind its prefix: {ipaddress.ip_network(written.strip(), strict=False)} is the network"
        raise PolicyError(f"has {shown}, which {why}") from None
    if network.version == 6 and network.network_address.ipv4_mapped is not None and network.prefixlen >= 96:
        raise PolicyError(f"has {shown}: write an IPv4 network as such")
    return AddressRule(network, word.strip() == ALLOW, 1 if word.strip() == ALLOW else 0)


def problem_of(text: str) -> str:
    """The error in a policy; "" when there is none."""
    try:
        parsed(text)
    except PolicyError as error:
        return str(error)
    return ""


# --- addresses ----------------------------------------------------------------------------------------------------------------


def _plain(address: Address) -> Address:
    """The address without a zone, which names the interface that reaches it, not its owner."""
    return ipaddress.IPv6Address(int(address)) if isinstance(address, ipaddress.IPv6Address) else address


def _is_mapped(address: Address) -> bool:
    """True if an address is an IPv4-mapped one; the IPv4 address is judged by itself."""
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


@cache
def _embedding() -> tuple[tuple[ipaddress.IPv6Network, int], ...]:
    return tuple((ipaddress.IPv6Network(network), behind) for network, behind in _EMBEDDING)


def embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address may lead to."""
    if not isinstance(address, ipaddress.IPv6Address):
        return
    number = int(address)
    for network, behind in _embedding():
        # ::/96 holds :: and ::1, which are no IPv4 addresses.
        if _plain(address) in network and number > 1:
            yield ipaddress.IPv4Address(number >> behind & 0xFFFFFFFF)
    if address.teredo is not None:
        yield address.teredo[1]
    if number >> 80 == 0x0064FF9B0001:
        # RFC 6052 with a prefix of 48 bits: 16 bits, a zero octet, 16 bits.
        yield ipaddress.IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        yield ipaddress.IPv4Address(number & 0xFFFFFFFF)


def is_this_machine(address: Address) -> bool:
    """True if an address is one of this machine's interfaces: only then its own source address equals it. Sends nothing."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False


# --- connecting ---------------------------------------------------------------------------------------------------------------


async def looked_up(host: str, port: int) -> list[AddressInfo]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), int(kind), protocol, name, where) for family, kind, protocol, name, where in found]


async def resolved(policy: Policy, host: str, port: int, lookup: Lookup = looked_up) -> list[AddressInfo]:
    """A name's addresses, resolved once and all of them permitted. Raises Refused, and OSError for a name without any."""
    found = await lookup(bare(host), port)
    policy.check(host, found)
    return found


async def check_ahead(policy: Policy, host: str, port: int = 0, lookup: Lookup = looked_up) -> None:
    """Refuse a host that another program or a proxy will connect to. Raises Refused. A name that can't be resolved here passes:
    the program that connects may know it."""
    try:
        await resolved(policy, host, port, lookup)
    except AddressRefused:
        raise
    except (OSError, UnicodeError) as error:
        log.info("%s is left to the program that connects: %s", host, error)


async def connected(policy: Policy, host: str, port: int, lookup: Lookup = looked_up) -> socket.socket:
    """A connection to the first of a name's permitted addresses that answers. Raises Refused and OSError."""
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, where in await resolved(policy, host, port, lookup):
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, where)
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failure


def bare(host: str) -> str:
    """A host as URLs write it, without brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


# --- what is told -------------------------------------------------------------------------------------------------------------


def is_refusal(error: BaseException | None) -> bool:
    """True if the policy was the reason, however deep it is wrapped."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, AddressRefused):
            return True
        inner = getattr(error, "os_error", None) or getattr(error, "reason", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
        seen += 1
    return False


def told(error: BaseException, what: str) -> str:
    """A tenant's message for a failed connection to `what`: one of two sentences. The log has the rest."""
    if is_refusal(error):
        return f"{what} is {REFUSED}"
    log.info("%s %s: %s", what, UNREACHABLE, str(error) or type(error).__name__)
    return f"{what} {UNREACHABLE}"


# --- names of fields that hold a host -----------------------------------------------------------------------------------
#
# Fields, options and variables that hold a connection's target, found by their names and values. A name is read by its words, in
# any spelling (`authUrl`, `--openstack-auth-url`, `OS_AUTH_URL`). A false match is better than a missed address: the result is
# only used for checks, never for a connection.

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z][A-Z0-9]*(?![a-z])")
# The last word of a name for hosts: the whole word, or its end.
_HOST: Final = re.compile(
    r"ips?|apis?|\w*(?:ur[il]|endpoint|host|hostname|server|vcenter|domain)s?|\w*(?:address|addresses|proxy)"
)
_URL: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Parts of host names. The rest of the name is the provider's, unless a character ends it.
_PARTS: Final = frozenset({"region", "zone", "location", "environment", "datacenter"})
_ENDS_A_NAME: Final = re.compile(r"[/?#@:\\]")
# Settings by which a program verifies the host.
_TRUST: Final = frozenset({"insecure", "cacert"})


def names_host(name: str) -> bool:
    """True if a field, option or variable of this name holds a host, or a value that begins with one."""
    words = _words(name)
    return bool(words) and _HOST.fullmatch(words[-1]) is not None


def says_where(name: str, value: Any) -> bool:
    """True if a field decides which host receives the data: it names the host, or how the host is verified."""
    if isinstance(value, list):
        return any(says_where(name, each) for each in value)
    if value is True:
        return not _TRUST.isdisjoint(_words(name))
    if not isinstance(value, str) or not value.strip():
        return False
    if names_host(name) or _URL.match(value):
        return True
    words = _words(name)
    if not _TRUST.isdisjoint(words):
        return True
    return bool(words) and words[-1] in _PARTS and _ENDS_A_NAME.search(value.strip()) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
