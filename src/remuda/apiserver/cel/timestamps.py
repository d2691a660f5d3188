"""Timestamps and durations: parsing, printing, arithmetic and calendar fields, as in Go's `time` package.

Nothing here reads the clock; the functions work on values inside expressions and objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

from remuda.kube.duration import parse_go_duration

from .errors import EvalError
from .values import INT_MAX, INT_MIN, Duration, Timestamp

_NS = 10**9
MIN_SECONDS = -62135596800
MAX_SECONDS = 253402300799
_EPOCH = date(1970, 1, 1).toordinal()
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)


def parse_timestamp(text: str) -> Timestamp | None:
    match = _RFC3339.fullmatch(text)
    if match is None or int(match[1]) < 1:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None
    offset = 0
    if match[8]:
        if int(match[9]) > 23 or int(match[10]) > 59:
            return None
        offset = (int(match[9]) * 3600 + int(match[10]) * 60) * (1 if match[8] == "+" else -1)
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset
    return Timestamp(seconds * _NS + fraction, offset)


def parse_date(text: str) -> Timestamp | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return Timestamp((date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH) * 86400 * _NS)
    except ValueError:
        return None


def checked_timestamp(stamp: Timestamp) -> Timestamp:
    if not MIN_SECONDS <= stamp.ns // _NS <= MAX_SECONDS:
        raise EvalError("timestamp overflow")
    return stamp


def format_timestamp(stamp: Timestamp) -> str:
    seconds, fraction = divmod(stamp.ns, _NS)
    days, rest = divmod(seconds + stamp.offset, 86400)
    try:
        day = date.fromordinal(days + _EPOCH).isoformat()
    except (ValueError, OverflowError):
        raise EvalError("timestamp overflow") from None
    text = f"{day}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    if not stamp.offset:
        return text + "Z"
    sign, away = ("+", stamp.offset) if stamp.offset > 0 else ("-", -stamp.offset)
    return f"{text}{sign}{away // 3600:02d}:{away // 60 % 60:02d}"


def parse_duration(text: str) -> Duration | None:
    found = parse_go_duration(text)
    return None if found is None else Duration(found)


def format_duration(value: Duration) -> str:
    return format_plain(value.ns / _NS) + "s"


def format_plain(number: float) -> str:
    """The shortest exact decimal form without an exponent."""
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text or "0"


def checked_duration(ns: int) -> Duration:
    if not INT_MIN <= ns <= INT_MAX:
        raise EvalError("integer overflow")
    return Duration(ns)


def add_duration(stamp: Timestamp, duration: Duration) -> Timestamp:
    return checked_timestamp(Timestamp(stamp.ns + duration.ns, stamp.offset))


def subtract_duration(stamp: Timestamp, duration: Duration) -> Timestamp:
    return checked_timestamp(Timestamp(stamp.ns - duration.ns, stamp.offset))


def between(left: Timestamp, right: Timestamp) -> Duration:
    return checked_duration(left.ns - right.ns)


_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def _zone(name: str) -> tzinfo:
    if ":" in name:
        hours, _, minutes = name.partition(":")
        for part in (hours, minutes):
            if not _NUMBER.fullmatch(part) or len(part) > 4:
                raise EvalError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        total = int(hours) * 60 - int(minutes) if name.startswith("-") else int(hours) * 60 + int(minutes)
        if abs(total) >= 1440:
            raise EvalError(f"unknown time zone {name}")
        return timezone(timedelta(minutes=total))
    if name in ("", "UTC"):
        return UTC
    try:
        if not _ZONE_NAME.fullmatch(name):
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise EvalError(f"unknown time zone {name}") from None


def calendar(stamp: Timestamp, zone: str | None = None) -> datetime:
    seconds = stamp.ns // _NS
    try:
        base = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        return base.astimezone(_zone(zone)) if zone is not None else base
    except OverflowError:
        raise EvalError("timestamp overflow") from None


def timestamp_field(name: str, stamp: Timestamp, zone: str | None = None) -> int:
    if name == "getMilliseconds":
        calendar(stamp, zone)
        return stamp.ns % _NS // 10**6
    when = calendar(stamp, zone)
    return _FIELDS[name](when)


_FIELDS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda t: t.year,
    "getMonth": lambda t: t.month - 1,
    "getDayOfYear": lambda t: t.timetuple().tm_yday - 1,
    "getDate": lambda t: t.day,
    "getDayOfMonth": lambda t: t.day - 1,
    "getDayOfWeek": lambda t: t.isoweekday() % 7,
    "getHours": lambda t: t.hour,
    "getMinutes": lambda t: t.minute,
    "getSeconds": lambda t: t.second,
}
_PER = {"getHours": 3600 * _NS, "getMinutes": 60 * _NS, "getSeconds": _NS, "getMilliseconds": 10**6}


def duration_field(name: str, value: Duration) -> int:
    whole = abs(value.ns) // _PER[name]
    return whole if value.ns >= 0 else -whole
