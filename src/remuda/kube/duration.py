"""Durations as text: for people in tables ("5d", "3m12s", "<unknown>"), and in Go's form ("5m0s"), which is also parsed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_NS = 10**9
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _NS, "m": 60 * _NS, "h": 3600 * _NS}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def _two(whole: int, unit: str, rest: int, small: str) -> str:
    return f"{whole}{unit}{rest}{small}" if rest else f"{whole}{unit}"


def human_duration(seconds: float) -> str:
    """Two units while the first is small, one when it is not; up to two seconds in the future count as now."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes, hours = whole // _MINUTE, whole // _HOUR
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def seconds_of(timestamp: str) -> float | None:
    """An RFC 3339 timestamp as seconds since the epoch; None when it is invalid."""
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def human_age(timestamp: str | None, now: float) -> str:
    """The age of `timestamp`, in the form of a table's Age column."""
    since = seconds_of(timestamp) if timestamp else None
    return "<unknown>" if since is None else human_duration(now - since)


def go_duration(seconds: int) -> str:
    """Seconds in the form of Go's time.Duration: all units from the first non-zero one down to seconds."""
    sign, whole = ("-", -seconds) if seconds < 0 else ("", seconds)
    hours, minutes, rest = whole // _HOUR, whole % _HOUR // _MINUTE, whole % _MINUTE
    if hours:
        return f"{sign}{hours}h{minutes}m{rest}s"
    return f"{sign}{minutes}m{rest}s" if minutes else f"{sign}{rest}s"


def parse_go_duration(text: str) -> int | None:
    """Nanoseconds of a duration in Go's form: `1h30m`, `-1.5s`, `0`; None when it is invalid, or too large for Go."""
    if len(text) > 256:
        return None
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total = 0
    at = 0
    while at < len(body):
        match = _PART.match(body, at)
        if match is None:
            return None
        total += int(Decimal(match[1]) * _UNITS[match[2]])
        at = match.end()
    if not body:
        return None
    total = -total if text.startswith("-") else total
    return total if -(1 << 63) <= total < 1 << 63 else None
