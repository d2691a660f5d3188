"""Cron's five fields, as far as snapshots need them: the next scheduled time. Times are UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from .. import DistroError

_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"
_WEEKDAYS = "sunmontuewedthufrisat"
_NONE: dict[str, int] = {}
_NAMES = (
    _NONE,
    _NONE,
    _NONE,
    {_MONTHS[at : at + 3]: at // 3 + 1 for at in range(0, len(_MONTHS), 3)},
    {_WEEKDAYS[at : at + 3]: at // 3 for at in range(0, len(_WEEKDAYS), 3)},
)
# Four years contain every possible day.
_LONGEST = 366 * 4


class BadSchedule(DistroError):
    """A text that is not five valid cron fields."""


class Schedule:
    def __init__(self, text: str) -> None:
        """Raises BadSchedule."""
        fields = _WORDS.get(text.strip(), text).split()
        if len(fields) != len(_BOUNDS):
            raise BadSchedule(f"{text!r} is not a schedule: it has {len(fields)} fields, and cron's has five")
        self._minutes, self._hours, self._days, self._months, weekdays = (
            _values(field, *_BOUNDS[index], _NAMES[index], text) for index, field in enumerate(fields)
        )
        self._weekdays = {day % 7 for day in weekdays}
        # With both day fields set, either is enough.
        self._either = not fields[2].startswith("*") and not fields[4].startswith("*")

    def after(self, seconds: float) -> float | None:
        """The next time later than that; None when there is none."""
        moment = datetime.fromtimestamp(seconds, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = moment.replace(hour=0, minute=0)
        for _ in range(_LONGEST):
            if self._on(day):
                for hour in sorted(self._hours):
                    for minute in sorted(self._minutes):
                        found = day.replace(hour=hour, minute=minute)
                        if found >= moment:
                            return found.timestamp()
            day += timedelta(days=1)
        return None

    def _on(self, day: datetime) -> bool:
        if day.month not in self._months:
            return False
        of_month, of_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return of_month or of_week if self._either else of_month and of_week


def _values(field: str, low: int, high: int, names: dict[str, int], text: str) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            begin = low if first in ("*", "?") else _number(first, names)
            end = high if first in ("*", "?") or (slash and not dash) else _number(last, names) if dash else begin
            every = int(step) if slash else 1
        except ValueError:
            raise BadSchedule(f"{part!r} in {text!r} is not cron's") from None
        if not low <= begin <= end <= high or every < 1:
            raise BadSchedule(f"{part!r} in {text!r} is out of range")
        found |= set(range(begin, end + 1, every))
    return found


def _number(word: str, names: dict[str, int]) -> int:
    return names[word.lower()[:3]] if word.lower()[:3] in names else int(word)
