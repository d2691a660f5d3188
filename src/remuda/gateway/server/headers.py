"""Headers of requests and answers: those a client may not send, those that end here, and those that every answer carries.

On the way to a cluster three kinds are removed: those of this connection only (hop by hop), those that name the caller (we set
them, after :mod:`..auth.authenticator`), and those whose name some servers read as another's, such as `Impersonate_User`. The
caller's own `Impersonate-*` headers are returned, to be authorised. On the way back, headers by which a cluster could attack a
logged-in browser are removed, and `Content-Security-Policy: sandbox` is added: its pages run in an origin of their own.
:mod:`.path_validation` checks request lines.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Headers = Iterable[tuple[str, str]]

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    )
)
# Headers that tell a server the caller's identity, address or host: never accepted from a client.
_IDENTITY = frozenset(
    (
        "authorization",
        "cookie",
        "cookie2",
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "true-client-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-original-uri",
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x-user",
        "x-groups",
        "x-authenticated-user",
        "x-webauth-user",
        "x-csrf-token",
        "x-api-csrf",
        "x-api-url-prefix",
        "x-api-host",
        "x-api-cattle-auth",
    )
)
_IDENTITY_PREFIXES = (
    "impersonate-",
    "x-remote-",
    "x-forwarded-",
    "x-api-tunnel-",
    "x-auth-request-",
    "x-cattle-",
    "x-ssl-",
    "x-client-cert",
    "ssl-client-",
)
_IMPERSONATE = "impersonate-"
_BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."
_NAME = re.compile(r"[!#$%&'*+.^`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[\t -~\x80-\U0010ffff]*")
_LONGEST_LENGTH = 18

# Headers with which a cluster could affect the origin that users are logged in at.
_NOT_FROM_CLUSTERS = frozenset(
    (
        "set-cookie",
        "set-cookie2",
        "clear-site-data",
        "strict-transport-security",
        "public-key-pins",
        "alt-svc",
        "www-authenticate",
        "proxy-authenticate",
        "service-worker-allowed",
        "content-security-policy",
        "content-security-policy-report-only",
        "x-content-security-policy",
        "x-webkit-csp",
        "x-frame-options",
        "x-content-type-options",
        "referrer-policy",
        "refresh",
        "link",
        "nel",
        "report-to",
        "reporting-endpoints",
        "sourcemap",
        "x-sourcemap",
        "timing-allow-origin",
        "origin-agent-cluster",
        "permissions-policy",
        "document-policy",
        "server",
        "x-powered-by",
    )
)
# The last three would make a web server in front of us fetch something else in place of the answer.
_NOT_FROM_CLUSTERS_PREFIXES = ("access-control-", "cross-origin-", "x-api-", "x-cattle-", "x-accel-", "x-sendfile", "x-lighttpd-")

_EVERY_ANSWER: Mapping[str, str] = {
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Our own page loads nothing from elsewhere, can't be framed, and connects to its own origin only.
OWN_ANSWER: Mapping[str, str] = {
    **_EVERY_ANSWER,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
PROXIED_ANSWER: Mapping[str, str] = {**_EVERY_ANSWER, "Content-Security-Policy": "sandbox"}


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The headers to pass on, the `Impersonate-*` headers, and the (lower case) names of others that were removed as forged."""

    headers: list[tuple[str, str]]
    impersonation: list[tuple[str, str]]
    forged: list[str]


def says_identity(name: str) -> bool:
    """Tells whether a header of this name, in any spelling that some server knows it by, names a caller's identity or address."""
    known = name.strip().lower().replace("_", "-")
    return known in _IDENTITY or known.startswith(_IDENTITY_PREFIXES)


class _Kind(enum.Enum):
    """The treatment of a header on its way to a cluster, by its name."""

    KEPT = enum.auto()
    IMPERSONATION = enum.auto()
    # Our own headers are not forged, but must not be passed on.
    OURS = enum.auto()
    FORGED = enum.auto()
    ENDING = enum.auto()


@lru_cache(maxsize=1024)
def _kind(name: str) -> tuple[_Kind, str]:
    """The kind, and the name in lower case. Cached, since clients send the same few names again and again."""
    lower = name.lower()
    if lower.startswith(_IMPERSONATE) and _NAME.fullmatch(name):
        return _Kind.IMPERSONATION, lower
    if says_identity(name):
        return (_Kind.OURS if lower in ("authorization", "cookie", "x-api-csrf") else _Kind.FORGED), lower
    if lower in HOP_BY_HOP or lower == "host" or not _NAME.fullmatch(name):
        return _Kind.ENDING, lower
    return _Kind.KEPT, lower


def for_cluster(headers: Headers) -> Cleaned:
    """The client's headers that may go on to a cluster; we then add `Authorization` and identity."""
    listed = list(headers)
    ending = _named_by_connection(listed)
    kept: list[tuple[str, str]] = []
    impersonation: list[tuple[str, str]] = []
    forged: list[str] = []
    for name, value in listed:
        kind, lower = _kind(name)
        if kind is _Kind.KEPT:
            if lower not in ending and _VALUE.fullmatch(value):
                kept.append((name, value))
        elif kind is _Kind.IMPERSONATION:
            # Also when Connection names it: impersonation must not depend on that.
            if _VALUE.fullmatch(value):
                impersonation.append((name, value))
            else:
                forged.append(lower)
        elif kind is _Kind.FORGED:
            forged.append(lower)
    return Cleaned(kept, impersonation, forged)


def without_shown_tokens(headers: Headers) -> list[tuple[str, str]]:
    """The headers without tokens among a websocket's protocols, where browsers send them for want of headers: beside ours, such a
    token would be a second credential."""
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        if _BEARER_PROTOCOL in value and name.lower() == "sec-websocket-protocol":
            parts = [part.strip() for part in value.split(",")]
            value = ", ".join(part for part in parts if not part.startswith(_BEARER_PROTOCOL))
            if not value:
                continue
        kept.append((name, value))
    return kept


def from_cluster(headers: Headers) -> list[tuple[str, str]]:
    """The cluster's headers that may go on to a client, with ours added."""
    listed = list(headers)
    ending = _named_by_connection(listed)
    kept = [
        (name, value)
        for name, value in listed
        if _passes(name) and (not ending or name.lower() not in ending) and _VALUE.fullmatch(value)
    ]
    return [*kept, *PROXIED_ANSWER.items()]


@lru_cache(maxsize=1024)
def _passes(name: str) -> bool:
    lower = name.lower()
    if lower in HOP_BY_HOP or lower in _NOT_FROM_CLUSTERS or lower.startswith(_NOT_FROM_CLUSTERS_PREFIXES):
        return False
    return _NAME.fullmatch(name) is not None


def _named_by_connection(headers: list[tuple[str, str]]) -> frozenset[str]:
    values = [value for name, value in headers if name.lower() == "connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(","))


def upgrade_of(headers: Headers) -> str:
    """The protocol of an upgrade request, if we pass it on: "websocket", "SPDY/3.1" or ""."""
    listed = list(headers)
    wanted = [value.strip().lower() for name, value in listed if name.lower() == "upgrade"]
    if len(wanted) != 1 or "upgrade" not in _named_by_connection(listed):
        return ""
    return {"websocket": "websocket", "spdy/3.1": "SPDY/3.1"}.get(wanted[0], "")


def framing_problem(headers: Headers) -> str:
    """The reason why this request's end or host is uncertain; "" when it is certain. The answer is 400 and a closed
    connection."""
    listed = list(headers)
    names = [name.lower() for name, _ in listed]
    # All names in one match, and all values: every character counts by itself, and this is done for each request.
    if "" in names or (names and not _NAME.fullmatch("".join(names).replace("_", "-"))):
        return "a header's name has an invalid character"
    if not _VALUE.fullmatch("".join([value for _, value in listed])):
        return "a header's value has an invalid character"
    if "content_length" in names or "transfer_encoding" in names:
        return "a header is written with _ for -"
    if ("content-length" in names or "transfer-encoding" in names) and (problem := _length_problem(names, listed)):
        return problem
    if names.count("host") != 1:
        return "there must be one Host header"
    return ""


def _length_problem(names: list[str], listed: list[tuple[str, str]]) -> str:
    lengths = [value for name, (_, value) in zip(names, listed, strict=True) if name == "content-length"]
    encodings = [value for name, (_, value) in zip(names, listed, strict=True) if name == "transfer-encoding"]
    if lengths and encodings:
        return "there are both Content-Length and Transfer-Encoding"
    if len(lengths) > 1 or len(encodings) > 1:
        return "the length of the body is stated more than once"
    if lengths and not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) <= _LONGEST_LENGTH):
        return "Content-Length is not a number"
    if encodings and encodings[0].lower() != "chunked":
        return "Transfer-Encoding is not chunked"
    return ""


def is_known_host(host: str, known: Iterable[str]) -> bool:
    """Tells whether a Host header names us: `known` are names and addresses, with a port where only that one is ours."""
    wanted = host.strip().lower()
    bare = wanted.rpartition(":")[0] if re.fullmatch(r".*:\d{1,5}", wanted) and not wanted.endswith("]") else wanted
    names = {name.lower() for name in known}
    return bool(wanted) and (wanted in names or bare.strip("[]") in names or bare in names)
