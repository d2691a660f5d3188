"""A cluster agent's claims about its cluster when it connects, and what they mean for a cluster that is known already.

Pure. The holder of a registration token may claim anything, so each value's format and size are checked
(docs/reference/tunnel.md#claims-of-an-agent). The rule of first contact: the first claims are stored. Later claims that change
nothing are accepted; all others must be proven by :mod:`.agent_verification`, through the session that makes them.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hmac
import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.kube.encoding import jsonio

Obj = dict[str, Any]

# Drivers for which the agent's claims count; with every other driver we know how to reach the cluster.
IMPORTED: Final = "imported"
IMPORT_LIKE: Final = frozenset(("", IMPORTED, "k3s", "k3os", "rke2", "rancherd"))

LONGEST_PARAMS: Final = 96 * 1024
_LONGEST_CA = 48 * 1024
_LONGEST_TOKEN = 16 * 1024
_MOST_TRUSTED = 16
_FINGERPRINT = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+", re.ASCII)
_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)


class BadParams(ValueError):
    """Params that can't be used; the text is for the agent that sent them, and contains no value."""


@dataclass(frozen=True, slots=True)
class Params:
    """`ca` is base64 of PEM, as sent and as stored. `trusts` are the fingerprints of the CAs by which the agent knows this
    server: None when it does not report them, as Rancher's agent, and empty when it needs none."""

    address: str
    token: str
    ca: str
    trusts: tuple[str, ...] | None = None

    @property
    def endpoint(self) -> str:
        return f"https://{self.address}"

    def __repr__(self) -> str:
        return f"<Params {self.address}>"


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored facts about a cluster."""

    endpoint: str
    token: str
    ca: str

    def __repr__(self) -> str:
        return f"<Stored {self.endpoint}>"


class Change(enum.Enum):
    """The difference between the params and the stored facts."""

    FIRST = "first contact"
    SAME = "nothing new"
    TOKEN = "another service account token at the same API"
    PLACE = "another API, or another CA"


def change_of(stored: Stored | None, params: Params) -> Change:
    """`stored` is None for an unknown cluster. A cluster of which only a part is known counts as known."""
    if stored is None:
        return Change.FIRST
    if stored.endpoint != params.endpoint or not same_ca(stored.ca, params.ca):
        return Change.PLACE
    return Change.SAME if hmac.compare_digest(stored.token.encode(), params.token.encode()) else Change.TOKEN


def same_ca(left: str, right: str) -> bool:
    """Tells whether two bundles hold the same certificates, regardless of formatting."""
    try:
        return left == right or _certificates(left) == _certificates(right)
    except ValueError:
        return False


def _certificates(ca: str) -> frozenset[bytes]:
    found = x509.load_pem_x509_certificates(pem_of(ca))
    return frozenset(each.public_bytes(Encoding.DER) for each in found)


def parse_params(header: str) -> Params:
    """Parses the params in an agent's header."""
    if len(header) > LONGEST_PARAMS:
        raise BadParams("the tunnel params are too long")
    try:
        said = jsonio.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError):
        raise BadParams("the tunnel params are not JSON in base64") from None
    cluster = said.get("cluster") if isinstance(said, dict) else None
    if not isinstance(cluster, dict):
        raise BadParams("the tunnel params do not describe a cluster")
    address, token, ca = (_said(cluster, name) for name in ("address", "token", "caCert"))
    return Params(checked_address(address), _checked_token(token.strip()), _checked_ca(ca), _checked_trusts(said))


def _checked_trusts(said: Obj) -> tuple[str, ...] | None:
    found = said.get("trusts")
    if not isinstance(found, list) or len(found) > _MOST_TRUSTED:
        return None
    return tuple(found) if all(isinstance(each, str) and _FINGERPRINT.fullmatch(each) for each in found) else None


def _said(cluster: Obj, name: str) -> str:
    value = cluster.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadParams(f"the tunnel params have no cluster.{name}")
    return value


def checked_address(address: str) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535 or not _is_host(host):
        raise BadParams("cluster.address does not have the form host:port")
    return address


def _is_host(host: str) -> bool:
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        # A malformed address, such as 1.2.3.04, is not accepted as a name.
        last = host.rpartition(".")[2]
        return not bracketed and len(host) <= 253 and bool(_NAME.fullmatch(host)) and not last.isdigit()
    return (found.version == 6) == bracketed and "%" not in host


def host_of(endpoint: str) -> tuple[str, str]:
    """The host alone, for TLS, and `host:port`, to dial, of a stored endpoint."""
    address = endpoint.removeprefix("https://")
    return address.rpartition(":")[0].strip("[]"), address


def _checked_token(token: str) -> str:
    if len(token) > _LONGEST_TOKEN or not _TOKEN.fullmatch(token):
        raise BadParams("cluster.token does not have the form of a token")
    return token


def _checked_ca(ca: str) -> str:
    try:
        pem = pem_of(ca)
        if len(pem) > _LONGEST_CA:
            raise BadParams("cluster.caCert is too long")
        x509.load_pem_x509_certificates(pem)
    except BadParams:
        raise
    except (binascii.Error, ValueError):
        raise BadParams("cluster.caCert is not base64 of certificates in PEM") from None
    return ca


def pem_of(ca: str) -> bytes:
    # Some encoders put line ends into base64; they mean nothing.
    return base64.b64decode("".join(ca.split()), validate=True)


def claims_of(token: str) -> Obj:
    """The unverified claims of a JSON web token; empty if it is not one."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = jsonio.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def subject_of(token: str) -> str:
    """The unverified subject of a service account token; empty if it is not a JSON web token."""
    subject = claims_of(token).get("sub")
    return subject if isinstance(subject, str) else ""
