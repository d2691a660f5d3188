"""Tokens: how `management.cattle.io/v3` Token objects are made, checked and expired.

A token is `token-xxxxx:secret`; the object's name is the first half, only a hash of the second is kept (:mod:`.token_hashes`).
The gateway reads tokens from requests (:mod:`remuda.gateway.server.credentials`). Pure: the object, the moment and the cluster
come in, a refusal goes out. A value that can't be read (an expiry that is no time, a negative time to live) counts against the
token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.clock import Entropy, parse_rfc3339, rfc3339

from .token_hashes import hashed_secret, same_secret
from .user_objects import LOCAL_PRINCIPAL

Obj = Mapping[str, Any]

SECRET_LENGTH = 54
NAME_PREFIX = "token-"
USER_LABEL = "authn.management.cattle.io/token-userId"
KIND_LABEL = "authn.management.cattle.io/kind"
# The kind of the token that our own controllers use in a cluster. It is in a Secret that the cluster's owners may read.
CONTROLLERS_KIND = "provisioning"
HASHED_ANNOTATION = "authn.management.cattle.io/token-hashed"
LOCAL_PROVIDER = "local"
# The last use is kept to the minute: a token in constant use costs one write a minute, not one per request.
LAST_USE_SECONDS = 60
LONGEST_TTL = 100 * 365 * 86_400
_LONGEST_DESCRIPTION = 1024
# Milliseconds; a larger number is not a valid time to live (neither is NaN).
_NO_TIME = 1e18


@dataclass(frozen=True, slots=True)
class Presented:
    """A token as the client presented it. The repr omits the secret, so that no log contains it."""

    name: str
    secret: str = field(repr=False)
    from_cookie: bool = False
    from_basic: bool = field(default=False, compare=False)

    @property
    def text(self) -> str:
        """The text that a client presents."""
        return f"{self.name}:{self.secret}"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made: the object to store, and the text that its owner is told this once."""

    manifest: dict[str, Any] = field(repr=False)
    presented: Presented


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """The properties of a new token. `ttl` is in seconds, 0 for one that never expires; `derived` means that it is no session."""

    user: str
    ttl: float
    kind: str = ""
    description: str = ""
    derived: bool = True
    cluster: str = ""
    provider: str = LOCAL_PROVIDER
    principal: Mapping[str, Any] | None = None
    # The user's groups according to the provider.
    groups: Sequence[Mapping[str, Any]] = ()
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def make_token(wish: TokenSpec, now: float, entropy: Entropy) -> NewToken:
    if not 0 <= wish.ttl <= LONGEST_TTL:
        raise ValueError("a token's time to live must be from 0 (no end) to a hundred years")
    name = wish.name or NAME_PREFIX + entropy.token_text(5)
    secret = entropy.token_text(SECRET_LENGTH)
    labels = {**wish.labels, USER_LABEL: wish.user, **({KIND_LABEL: wish.kind} if wish.kind else {})}
    manifest: dict[str, Any] = {
        "apiVersion": "management.cattle.io/v3",
        "kind": "Token",
        "metadata": {"name": name, "labels": labels, "annotations": {HASHED_ANNOTATION: "true"}},
        "token": hashed_secret(secret, entropy),
        "userId": wish.user,
        "authProvider": wish.provider,
        "userPrincipal": dict(wish.principal or {}),
        "groupPrincipals": [dict(group) for group in wish.groups],
        # Milliseconds, as Rancher counts them.
        "ttl": int(wish.ttl * 1000),
        "expiresAt": rfc3339(now + wish.ttl) if wish.ttl else "",
        "isDerived": wish.derived,
        "description": wish.description[:_LONGEST_DESCRIPTION],
        "clusterName": wish.cluster,
        "current": False,
        "enabled": True,
    }
    return NewToken(manifest, Presented(name, secret))


def owns(token: Obj, presented: Presented) -> bool:
    """True if the presented secret is this token's."""
    stored = token.get("token")
    metadata = _metadata(token)
    annotations = metadata.get("annotations")
    marked = isinstance(annotations, Mapping) and annotations.get(HASHED_ANNOTATION) == "true"
    return (
        metadata.get("name") == presented.name and isinstance(stored, str) and same_secret(stored, bool(marked), presented.secret)
    )


def refusal(token: Obj, presented: Presented, now: float, *, cluster: str = "", idle: float = 0) -> str:
    """The reason for refusing the token, for the audit log (callers are all told the same); "" if it is valid.

    `cluster` is the one whose address is requested, "" for none; `idle` seconds without use end a session, 0 for never.
    """
    if not owns(token, presented):
        return "the secret is wrong"
    if _metadata(token).get("deletionTimestamp"):
        return "the token is being deleted"
    if token.get("enabled") is False:
        return "the token is disabled"
    if not isinstance(token.get("userId"), str) or not token["userId"]:
        return "the token has no user"
    if is_expired(token, now):
        return "the token is expired"
    if idle and not token.get("isDerived") and is_idle(token, now, idle):
        return "the session was idle for too long"
    bound = token.get("clusterName") or ""
    if bound and bound != cluster:
        return "the token is valid for another cluster only"
    return ""


def ends_at(token: Obj) -> float | None:
    """The token's expiry, None for never: the earlier of its time to live and its `expiresAt`.

    0 (long ago) when either can't be read.
    """
    ends: list[float] = []
    ttl, expires = token.get("ttl") or 0, token.get("expiresAt") or ""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 <= ttl < _NO_TIME:
        return 0.0
    try:
        if ttl:
            ends.append(parse_rfc3339(str(_metadata(token).get("creationTimestamp") or "")) + ttl / 1000)
        if expires:
            ends.append(parse_rfc3339(str(expires)))
    except ValueError:
        return 0.0
    return min(ends, default=None)


def is_expired(token: Obj, now: float) -> bool:
    ends = ends_at(token)
    return token.get("expired") is True or (ends is not None and now >= ends)


def is_idle(token: Obj, now: float, seconds: float) -> bool:
    """True for a session without use in that time; one that was never used counts from its creation."""
    seen = token.get("activityLastSeenAt") or token.get("lastUsedAt") or _metadata(token).get("creationTimestamp")
    try:
        # The last use is rounded down, which must not end a session early.
        return now - parse_rfc3339(str(seen)) >= seconds + LAST_USE_SECONDS
    except ValueError:
        return True


def last_use(token: Obj, now: float) -> str | None:
    """The new value of `lastUsedAt`, or None if the present one is the same or later."""
    rounded = int(now // LAST_USE_SECONDS) * LAST_USE_SECONDS
    try:
        before = parse_rfc3339(str(token.get("lastUsedAt") or ""))
    except ValueError:
        return rfc3339(rounded)
    return rfc3339(rounded) if rounded > before else None


def groups_of(token: Obj) -> list[str]:
    """The bearer's groups according to the login provider, without those that have a meaning in Kubernetes itself."""
    named = [principal_name(found).removeprefix(LOCAL_PRINCIPAL) for found in token.get("groupPrincipals") or ()]
    return list(dict.fromkeys(group for group in named if group and not group.startswith("system:")))


def principal_name(found: object) -> str:
    """The name of a principal, as a token holds it; "" if it can't be read."""
    if not isinstance(found, Mapping):
        return ""
    named = _metadata(found).get("name")
    return str(named or found.get("name") or "")


def _metadata(token: Obj) -> Mapping[str, Any]:
    metadata = token.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
