"""The syntax of cron schedules: five fields or a descriptor. Validation only."""

from __future__ import annotations

import re

from remuda.kube.errors import go_quote

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: i + 1 for i, name in enumerate(_MONTH_NAMES)}
_DAYS = {name: i for i, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS = frozenset(("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"))
_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))*|0")


class _Wrong(ValueError):
    """An error in a part of a schedule."""


def schedule_problem(schedule: str) -> str:
    """The error in `schedule`; "" when it is valid."""
    try:
        _check(schedule)
    except _Wrong as error:
        return str(error)
    return ""


def _check(schedule: str) -> None:
    if not schedule:
        raise _Wrong("empty spec string")
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        _, space, schedule = schedule.partition(" ")
        if not space:
            raise _Wrong("provided bad location")
        schedule = schedule.strip()
    if schedule.startswith("@"):
        _check_descriptor(schedule)
        return
    fields = schedule.split()
    if len(fields) != 5:
        raise _Wrong(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    for field, (low, high, names) in zip(fields, _FIELDS, strict=True):
        for expression in field.split(","):
            if expression:
                _check_range(expression, low, high, names)


def _check_descriptor(text: str) -> None:
    if text in _DESCRIPTORS:
        return
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        if not _DURATION.fullmatch(duration):
            raise _Wrong(f"failed to parse duration {text}: time: invalid duration {go_quote(duration)}")
        return
    raise _Wrong(f"unrecognized descriptor: {text}")


def _check_range(expression: str, low: int, high: int, names: dict[str, int]) -> None:
    parts = expression.split("/")
    ends = parts[0].split("-")
    single = len(ends) == 1
    if ends[0] in ("*", "?"):
        start, end = low, high
    else:
        start = _number(ends[0], names)
        if single:
            end = start
        elif len(ends) == 2:
            end = _number(ends[1], names)
        else:
            raise _Wrong(f"too many hyphens: {expression}")
    if len(parts) > 2:
        raise _Wrong(f"too many slashes: {expression}")
    step = 1
    if len(parts) == 2:
        step = _number(parts[1], {})
        if single:
            end = high
    if start < low:
        raise _Wrong(f"beginning of range ({start}) below minimum ({low}): {expression}")
    if end > high:
        raise _Wrong(f"end of range ({end}) above maximum ({high}): {expression}")
    if start > end:
        raise _Wrong(f"beginning of range ({start}) beyond end of range ({end}): {expression}")
    if step == 0:
        raise _Wrong(f"step of range should be a positive number: {expression}")


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not re.fullmatch(r"[-+]?\d+", text, re.ASCII):
        raise _Wrong(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    number = int(text)
    if number < 0:
        raise _Wrong(f"negative number ({number}) not allowed: {text}")
    return number
