"""Wall time, elapsed time and waiting, behind one object that tests can replace; and Go's UnixDate.

Deadlines inside one run of the process use ``monotonic``, which no clock jump moves. Times that must outlive the process are
written as UnixDate, the one format of the protocol, and are only ever compared through ``elapsed``: a stamp from the future (the
clock was set back) counts as long ago, since waiting for a wrong clock to be right again could take years.
"""

from __future__ import annotations

import threading
import time

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

#: Clocks of one host may differ from themselves by a leap second or an adjustment; that is no jump.
_SKEW = 5.0


class Clock:
    """The host's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time has passed; true when it is set."""
        return event.wait(max(0.0, seconds))


def unix_date(moment: float) -> str:
    """``Sun Nov 15 07:03:16 UTC 2026``, in the host's zone."""
    t = time.localtime(moment)
    clock = f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    return f"{_DAYS[t.tm_wday]} {_MONTHS[t.tm_mon - 1]} {t.tm_mday:2} {clock} {t.tm_zone or 'UTC'} {t.tm_year}"


def parse_unix_date(text: str) -> float | None:
    """The moment, or nothing when this is no UnixDate. A zone that is not ours is taken as UTC, as Go does."""
    parts = text.split()
    if len(parts) != 6 or parts[1] not in _MONTHS:
        return None
    try:
        hour, minute, second = (int(piece) for piece in parts[3].split(":"))
        fields = (int(parts[5]), _MONTHS.index(parts[1]) + 1, int(parts[2]), hour, minute, second)
    except ValueError:
        return None
    zone = parts[4]
    try:
        if zone in time.tzname and zone not in ("UTC", "GMT"):
            return time.mktime((*fields, 0, 0, time.tzname.index(zone)))
        return _utc_seconds(fields)
    except OverflowError:
        return None


def _utc_seconds(fields: tuple[int, int, int, int, int, int]) -> float | None:
    from datetime import datetime, timezone

    try:
        return datetime(*fields, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def elapsed(stamp: str, seconds: float, now: float) -> bool:
    """True if so many seconds have passed since the stamp; also for an empty, unreadable or future stamp."""
    then = parse_unix_date(stamp)
    if then is None or then > now + _SKEW:
        return True
    return now >= then + seconds


def compact(moment: float) -> str:
    """``20261115-070316``, for names of files and directories."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
