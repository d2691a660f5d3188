"""Rotation of registration tokens: when one is replaced, and how long its predecessor stays valid
(docs/reference/registration.md#tokens-of-a-cluster).

A token is replaced when it expires or on request; the old one stays valid for a grace period, in which agents learn the new one.
To invalidate a token at once, delete its Secret: the new one has no predecessor. Pure: the stored token and the moment come in,
the token to store and the next moment to look go out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.kube.clock import rfc3339, time_of

from .server_settings import ServerFacts

TOKEN_LENGTH = 54
# Minutes.
SHORTEST_TTL, SHORTEST_GRACE = 30, 10
LONGEST_TTL = 10 * 365 * 24 * 60
_LONGEST_SPREAD = 24 * 3600.0
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Times in seconds. `rotates`: tokens are replaced automatically."""

    ttl: float
    grace: float
    rotates: bool

    @property
    def spread(self) -> float:
        """The longest random extension of a token's life, so that those of many clusters are not all replaced together."""
        return min(self.ttl / 10, _LONGEST_SPREAD)


def terms_of(spec: Mapping[str, Any], facts: ServerFacts) -> Terms:
    """The terms that a ClusterRegistrationToken asks for, within bounds; 0 means the settings' value."""
    ttl = min(max(_minutes(spec, "ttl") or facts.ttl, SHORTEST_TTL), LONGEST_TTL)
    grace = max(_minutes(spec, "gracePeriod") or facts.grace, SHORTEST_GRACE)
    return Terms(ttl * _MINUTE, min(grace, ttl - 1) * _MINUTE, facts.rotates)


def _minutes(spec: Mapping[str, Any], field: str) -> int:
    found = spec.get(field)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


@dataclass(frozen=True, slots=True)
class Issued:
    """The contents of the Secret. Times are seconds since the epoch, or None."""

    token: str = ""
    previous: str = ""
    expires: float | None = None
    grace_ends: float | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> Issued:
        """Read from a Secret's data; an unreadable value counts as missing."""
        return cls(
            _text(data, "token"),
            _text(data, "previousToken"),
            time_of(_text(data, "expiresAt")),
            time_of(_text(data, "gracePeriodExpiresAt")),
        )

    def data(self) -> dict[str, str]:
        said = {
            "token": self.token,
            "previousToken": self.previous,
            "expiresAt": _moment(self.expires),
            "gracePeriodExpiresAt": _moment(self.grace_ends),
        }
        return {name: base64.b64encode(value.encode()).decode() for name, value in said.items() if value}

    def times(self) -> dict[str, str]:
        """The times, which are not secret."""
        return {"expiresAt": _moment(self.expires), "gracePeriodExpiresAt": _moment(self.grace_ends)}


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else rfc3339(seconds)


def _text(data: Mapping[str, Any] | None, name: str) -> str:
    found = (data or {}).get(name)
    try:
        return base64.b64decode(found, validate=True).decode() if isinstance(found, str) else ""
    except (binascii.Error, ValueError):
        return ""


def aged(
    found: Issued, terms: Terms, now: float, *, asked: bool, fresh: Callable[[], str], spread: Callable[[float], float]
) -> Issued:
    """The token to store now. `asked`: a new token is requested; `fresh` makes one; `spread` picks up to so many seconds."""

    def end() -> float | None:
        return float(int(now + terms.ttl + spread(terms.spread))) if terms.rotates else None

    if not found.token:
        return Issued(fresh(), expires=end())
    if asked or (terms.rotates and found.expires is not None and now >= found.expires):
        return Issued(fresh(), found.token, end(), float(int(now + terms.grace)))
    kept = found
    if found.previous or found.grace_ends is not None:
        # A grace period without an end is over.
        over = not found.previous or found.grace_ends is None or now >= found.grace_ends
        if over:
            kept = replace(kept, previous="", grace_ends=None)
        elif found.grace_ends is not None and found.grace_ends > now + terms.grace:
            kept = replace(kept, grace_ends=float(int(now + terms.grace)))
    if not terms.rotates:
        return replace(kept, expires=None)
    if kept.expires is None or kept.expires > now + terms.ttl + terms.spread:
        # Without an expiry, or the time to live was shortened since.
        return replace(kept, expires=end())
    return kept


def look_again(issued: Issued, now: float) -> float | None:
    """Seconds until the next expiry; None: never."""
    ends = [moment for moment in (issued.expires, issued.grace_ends) if moment is not None]
    return max(0.0, min(ends) - now) if ends else None
