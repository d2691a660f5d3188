"""Change budgets: how many machines may be restarted, drained, replaced or deleted at once, and when
(docs/change-budget.md). Pure, but for :func:`namespace_budget`.

A budget is the annotation :data:`CHANGE_BUDGET` of a cluster, a machine pool or a namespace: limits and windows, separated by
commas. The strictest of all holds. A budget that can't be read allows nothing. The controllers that act ask :func:`refusal` right
before each act; admission refuses text that :func:`parse` does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of

# Written by users on a cluster, on a Namespace, and among a pool's machineDeploymentAnnotations.
CHANGE_BUDGET = "remuda.dev/change-budget"
# On a MachineDeployment: the budget of its cluster, written together with its spec, so that a change never comes before it.
CLUSTER_CHANGE_BUDGET = "remuda.dev/cluster-change-budget"

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LIMIT = re.compile(r"([0-9]{1,6})(%?)")
_WINDOW = re.compile(r"(?:(?P<days>\S+) +)?(?P<start>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2})(?: +(?P<zone>\S+))?")
_DAY = 24 * 60
_LONGEST = 1024


class Act(StrEnum):
    RESTART = "restart"  # the services of a machine, by a new plan
    DRAIN = "drain"
    REPLACE = "replace"  # the deletion of a machine for which another one is made: a rollout, a health check
    DELETE = "delete"  # the deletion of a machine because fewer are wanted


class Role(StrEnum):
    ETCD = "etcd"
    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class BudgetError(ValueError):
    """The text is no change budget; the message says why."""


@dataclass(frozen=True, slots=True)
class Limit:
    number: int
    percent: bool = False

    def of(self, machines: int) -> int:
        """As a number of machines. A percentage is rounded down, and allows one machine unless it is 0."""
        if not self.percent:
            return self.number
        return max(machines * self.number // 100, 1) if self.number else 0

    def __str__(self) -> str:
        return f"{self.number}{'%' if self.percent else ''}"


@dataclass(frozen=True, slots=True)
class Window:
    """On each of `days` (Monday is 0) from `start` to `end` (minutes of the day), by the clock of `zone`. A window that ends
    before it starts ends on the next day."""

    days: frozenset[int]
    start: int
    end: int
    zone: str = "UTC"

    def is_open(self, now: float) -> bool:
        local = datetime.fromtimestamp(now, ZoneInfo(self.zone))
        day, minute = local.weekday(), local.hour * 60 + local.minute
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        return (day in self.days and minute >= self.start) or ((day - 1) % 7 in self.days and minute < self.end)

    def opens_at(self, now: float) -> float:
        """The next time when it opens."""
        zone = ZoneInfo(self.zone)
        today = datetime.fromtimestamp(now, zone).date()
        midnights = (today + timedelta(days=ahead) for ahead in range(9))
        starts = (
            datetime(day.year, day.month, day.day, self.start // 60, self.start % 60, tzinfo=zone).timestamp()
            for day in midnights
            if day.weekday() in self.days
        )
        return next(start for start in starts if start > now)


@dataclass(frozen=True, slots=True)
class Budget:
    """`limits` by key: an act, or an act and a role (`restart-etcd`). With windows, acts are allowed in one of them only."""

    limits: Mapping[str, Limit] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()

    def opens_at(self, now: float) -> float | None:
        """The next time when acts are allowed; None if they are now."""
        if not self.windows or any(window.is_open(now) for window in self.windows):
            return None
        return min(window.opens_at(now) for window in self.windows)


# --- grammar --------------------------------------------------------------------------------------------------------------


KEYS = frozenset(f"{act}{suffix}" for act in Act for suffix in ("", *(f"-{role}" for role in Role)))


def parse(text: str) -> Budget:
    """Raises BudgetError."""
    limits: dict[str, Limit] = {}
    windows: list[Window] = []
    if len(text) > _LONGEST:
        raise BudgetError(f"must be at most {_LONGEST} characters long")
    for entry in (each.strip() for each in text.split(",")):
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            raise BudgetError(f"{entry!r} must be a limit or a window, such as drain=10% or window=Mon-Fri 22:00-04:00")
        if key == "window":
            windows.append(_window(value))
        elif key not in KEYS:
            acts, roles = ", ".join(Act), ", ".join(Role)
            raise BudgetError(f"{key!r} must be window, or one of {acts}, which -{roles.replace(', ', ', -')} may follow")
        elif key in limits:
            raise BudgetError(f"{key} must be set once")
        else:
            limits[key] = _limit(key, value)
    return Budget(limits, tuple(windows))


def _limit(key: str, text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise BudgetError(f"{key}={text} must be a number of machines or a percentage, such as 1 or 10%")
    limit = Limit(int(found[1]), bool(found[2]))
    if limit.percent and limit.number > 100:
        raise BudgetError(f"{key}={text} must be at most 100%")
    return limit


def _window(text: str) -> Window:
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise BudgetError(f"window={text} must be days, hours and a time zone, such as Mon-Fri 22:00-04:00 Europe/Berlin")
    zone = found["zone"] or "UTC"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BudgetError(f"window={text}: {zone} is not a known time zone") from None
    return Window(_days(text, found["days"]), _minute(text, found["start"]), _minute(text, found["end"]), zone)


def _days(window: str, text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    first, dash, last = text.partition("-")
    if first not in _DAYS or (dash and last not in _DAYS):
        raise BudgetError(f"window={window}: {text} must be a day or a range of days of {', '.join(_DAYS)}")
    begin = _DAYS.index(first)
    length = (_DAYS.index(last) - begin) % 7 if dash else 0
    return frozenset((begin + ahead) % 7 for ahead in range(length + 1))


def _minute(window: str, text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if minute > 59 or hour * 60 + minute > _DAY:
        raise BudgetError(f"window={window}: {text} must be a time from 00:00 to 24:00")
    return (hour * 60 + minute) % _DAY


def format_budget(budget: Budget) -> str:
    """The text that gives this budget."""
    limits = [f"{key}={limit}" for key, limit in budget.limits.items()]
    return ", ".join([*limits, *(f"window={_window_text(window)}" for window in budget.windows)])


def _window_text(window: Window) -> str:
    clock = "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (window.start, window.end))
    if len(window.days) == 7:
        return f"{clock} {window.zone}"
    # A range of days has one first day.
    first = next(day for day in sorted(window.days) if (day - 1) % 7 not in window.days)
    last = (first + len(window.days) - 1) % 7
    return f"{_DAYS[first]}{f'-{_DAYS[last]}' if last != first else ''} {clock} {window.zone}"


# --- judgement ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """An annotation: the object that has it, and its text. With `pool` it is about the machines of that pool only. `problem` is
    the reason why the object could not be read."""

    where: str
    text: str = ""
    pool: str | None = None
    problem: str = ""


async def namespace_budget(client: Client, namespace: str) -> Holder | None:
    """The budget of a namespace, read now; None if it has none."""
    where = f"Namespace {namespace}"
    try:
        found = await find(client, NAMESPACES, namespace)
    except ApiError as error:
        return Holder(where, problem=error.message)
    text = annotations_of(found or {}).get(CHANGE_BUDGET)
    return None if text is None else Holder(where, text)


@dataclass(frozen=True, slots=True)
class Subject:
    """A machine as budgets count it; `acts` are those that are going on with it."""

    name: str
    roles: frozenset[Role] = frozenset()
    pool: str = ""
    acts: frozenset[Act] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """`opens_at` is the time when a window opens, if that is what the act waits for."""

    why: str
    opens_at: float | None = None


def refusal(act: Act, machine: Subject, machines: Iterable[Subject], holders: Iterable[Holder], now: float) -> Refusal | None:
    """The reason why this act on a machine has to wait; None if all budgets allow it. `machines` are all of the cluster."""
    everything = tuple(machines)
    for holder in holders:
        found = _refused_by(holder, act, machine, everything, now)
        if found is not None:
            return found
    return None


def _refused_by(holder: Holder, act: Act, machine: Subject, machines: tuple[Subject, ...], now: float) -> Refusal | None:
    if holder.problem:
        return Refusal(f"the change budget of {holder.where} can't be read: {holder.problem}")
    if not holder.text or holder.pool not in (None, machine.pool):
        return None
    try:
        budget = parse(holder.text)
    except BudgetError as error:
        return Refusal(f"the change budget of {holder.where} is not valid: {error}")
    opens_at = budget.opens_at(now)
    if opens_at is not None:
        return Refusal(f"the change budget of {holder.where} allows changes from {rfc3339(opens_at)}", opens_at)
    counted = [each for each in machines if holder.pool in (None, each.pool)]
    for key, role in ((str(act), None), *((f"{act}-{role}", role) for role in sorted(machine.roles))):
        limit = budget.limits.get(key)
        why = _over(limit, act, machine, [each for each in counted if role is None or role in each.roles]) if limit else ""
        if why:
            return Refusal(f"the change budget of {holder.where} is {key}={limit}{why}")
    return None


def _over(limit: Limit, act: Act, machine: Subject, counted: list[Subject]) -> str:
    """The end of the message if the act exceeds the limit: the machines that take it up. "" if it does not."""
    most = limit.of(len(counted))
    busy = sorted(each.name for each in counted if act in each.acts and each.name != machine.name)
    if len(busy) < most:
        return ""
    if not most:
        return ": not allowed"
    return f": taken by {', '.join(busy[:3])}{' and others' if len(busy) > 3 else ''}"
