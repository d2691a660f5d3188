"""CSRF protection: where a session's cookie counts, and the proof that a request comes from our own page.

A browser adds our cookie to requests that other sites make. So the session's cookie counts only on paths that the page uses, and
a request that changes something with it needs two more things: an origin that is ours, and in a header a token that our page
reads from a second cookie (which another origin can't). That token is derived from the session's secret, so that one set by a
neighbouring host is not valid. A Bearer needs none of this, since no browser adds one by itself; some remember Basic, so there
the origin is checked.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from remuda.kube.clock import Entropy

from .credentials import COOKIE, Presented, cookie_values
from .path_validation import Target

CSRF_COOKIE = "CSRF"
CSRF_HEADER = "X-API-CSRF"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
# Compared with the first segment of a validated path; everything under `v3…` is Rancher's old API and its public part.
_COOKIE_SEGMENTS = frozenset(
    ("dashboard", "v1", "v1-k3s-release", "v1-public", "v1-remuda", "v1-rke2-release", "v3", "v3-public")
)
_NONCE = 16


# The façade for Rancher's clients on the management API under its name as a cluster, which is not passed on to any cluster.
_LOCAL_FACADE = ("k8s", "clusters", "local", "v1")


def cookie_counts(target: Target) -> bool:
    """Tells whether the session's cookie counts. Never on the Kubernetes API, nor on requests passed on to a cluster."""
    segments = target.segments
    return bool(segments) and (segments[0] in _COOKIE_SEGMENTS or segments[:4] == _LOCAL_FACADE)


def issue(session: Presented, entropy: Entropy) -> str:
    """A token for our page, valid as long as the session."""
    nonce = entropy.token_bytes(_NONCE).hex()
    return nonce + _proof(session, nonce)


def _proof(session: Presented, nonce: str) -> str:
    key = hashlib.sha256(b"remuda csrf\0" + session.text.encode()).digest()
    return hmac.new(key, nonce.encode(), hashlib.sha256).hexdigest()


def is_issued(session: Presented, token: str) -> bool:
    nonce, proof = token[: 2 * _NONCE], token[2 * _NONCE :]
    if len(nonce) != 2 * _NONCE or not token.isascii():
        return False
    return hmac.compare_digest(proof.encode(), _proof(session, nonce).encode())


def origin_of(url: str) -> str:
    """Scheme, host and port, as browsers write an origin; "" for a URL without one."""
    try:
        parts = urlsplit(url.strip())
        port, host = parts.port, parts.hostname
    except ValueError:
        return ""
    if parts.scheme not in ("https", "http") or not host or parts.username is not None or parts.password is not None:
        return ""
    shown = f"[{host}]" if ":" in host else host
    usual = {"https": 443, "http": 80}[parts.scheme]
    return f"{parts.scheme}://{shown}" if port in (None, usual) else f"{parts.scheme}://{shown}:{port}"


def origin_problem(headers: Iterable[tuple[str, str]], ours: Iterable[str], *, required: bool = False) -> str:
    """The reason why a request seems to come from another site's page; "" when it does not.

    `ours` are origins such as https://remuda.example:8443. With `required` the request must name its origin, as every browser
    does when it opens a websocket.
    """
    said = _grouped(headers)
    known = {origin_of(origin) for origin in ours} - {""}
    site = said.get("sec-fetch-site", [])
    if any(value.strip().lower() not in ("same-origin", "none") for value in site):
        return "the request comes from a page of another site"
    origins, referers = said.get("origin", []), said.get("referer", [])
    if len(origins) > 1:
        return "there is more than one Origin header"
    if origins:
        # Sandboxed pages send "null", those of clusters among them. A value with a path is not an origin.
        origin = origins[0].strip()
        is_ours = bool(origin_of(origin)) and urlsplit(origin).path == "" and origin_of(origin) in known
        return "" if is_ours else "the request comes from a page of another origin"
    if referers:
        return "" if origin_of(referers[0]) in known else "the request comes from a page of another origin"
    return "the request does not name its origin" if required else ""


def added_by_browser_problem(method: str, headers: Iterable[tuple[str, str]], *, upgrade: bool = False) -> str:
    """The reason why a request to the Kubernetes API is a foreign page's, made with what its browser adds by itself: a client
    certificate, or Basic that it remembers; "" when it is not. Any page may send a body without a type, and it is JSON there.

    Only headers that browsers set count: `kubectl proxy` passes on an Origin of its own.
    """
    if method.upper() in SAFE_METHODS and not upgrade:
        return ""
    foreign = False
    for name, value in headers:
        lower = name.lower()
        if lower == "authorization" and value.strip()[:7].lower() == "bearer ":
            return ""
        if lower == "sec-fetch-site" and value.strip().lower() not in ("same-origin", "none"):
            foreign = True
    return "the request comes from a page of another site" if foreign else ""


def problem(
    method: str, headers: Iterable[tuple[str, str]], session: Presented | None, ours: Iterable[str], *, upgrade: bool = False
) -> str:
    """The reason why a session must not be used for a request; "" when it may. `session` is None before a login.

    Reading is safe, since another origin can't read the answer; a websocket is not, since there it can.
    """
    if session is not None and not session.from_cookie and not session.from_basic:
        return ""
    listed = list(headers)
    if method.upper() in SAFE_METHODS and not upgrade:
        return ""
    by_cookie = session is not None and session.from_cookie
    wrong = origin_problem(listed, ours, required=upgrade and by_cookie)
    if wrong or session is None or not by_cookie or upgrade:
        # A page can't set a header on a websocket; the origin must suffice, and a browser always sends it.
        return wrong
    return _token_problem(_grouped(listed), session)


def _token_problem(said: Mapping[str, list[str]], session: Presented) -> str:
    shown = said.get(CSRF_HEADER.lower(), [])
    if len(shown) != 1:
        return f"there must be one {CSRF_HEADER} header"
    cookies = cookie_values(said.get("cookie", []), CSRF_COOKIE)
    if not any(hmac.compare_digest(cookie.encode(), shown[0].encode(errors="replace")) for cookie in cookies):
        return f"the {CSRF_HEADER} header is not what the cookie {CSRF_COOKIE} says"
    return "" if is_issued(session, shown[0]) else f"the {CSRF_HEADER} header was not issued for this session"


def _grouped(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


# --- cookies that we set ---------------------------------------------------------------------------------------------------


def session_cookie(session: Presented, seconds: int) -> str:
    """`Set-Cookie` for a session: not for scripts, not without TLS, not on requests from other sites."""
    return f"{COOKIE}={session.text}; Path=/; Max-Age={max(seconds, 0)}; Secure; HttpOnly; SameSite=Strict"


def csrf_cookie(token: str, seconds: int) -> str:
    """`Set-Cookie` for the token, which our page must be able to read."""
    return f"{CSRF_COOKIE}={token}; Path=/; Max-Age={max(seconds, 0)}; Secure; SameSite=Strict"


def ended_cookies() -> tuple[str, str]:
    """`Set-Cookie` twice, to delete both at the end of a session."""
    return (
        f"{COOKIE}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict",
        f"{CSRF_COOKIE}=; Path=/; Max-Age=0; Secure; SameSite=Strict",
    )
