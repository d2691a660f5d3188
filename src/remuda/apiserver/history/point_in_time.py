"""A moment of the past: a revision, a time, or a duration before now; and the errors when no history of it is kept."""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.kube import errors
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.duration import seconds_of
from remuda.kube.errors import ApiError

from ..storage.store import Compacted, FutureRevision, HistoryStore

_AGO = re.compile(r"(?:\d{1,9}(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DIGITS = 18


class RequestedTime(NamedTuple):
    """One of the three."""

    revision: int = 0
    time: float | None = None
    ago: float | None = None


class Moment(NamedTuple):
    """A revision, and the requested time."""

    revision: int
    time: float


def parse(text: str) -> RequestedTime:
    """Raises ValueError with a sentence."""
    if text.isascii() and text.isdigit():
        if len(text) > _DIGITS or not int(text):
            raise ValueError(f"{text!r} is no revision: they begin with 1")
        return RequestedTime(revision=int(text))
    if _AGO.fullmatch(text):
        return RequestedTime(ago=sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    time = seconds_of(text)
    if time is None:
        raise ValueError(
            f"{text!r} is no moment: give a revision such as 4711, how long ago it was such as 10m or 2h30m, "
            "or a time such as 2026-11-16T12:00:00Z"
        )
    return RequestedTime(time=time)


async def resolve(history: HistoryStore, clock: Clock, text: str) -> Moment:
    """Raises ApiError: 400 for an invalid or future moment, 410 for one that is no longer kept."""
    try:
        asked = parse(text)
    except ValueError as error:
        raise errors.bad_request(f"at: {error}") from None
    if asked.revision:
        if asked.revision > history.revision:
            raise in_future(FutureRevision(asked.revision, history.revision))
        if asked.revision < history.history_floor:
            raise forgotten(history, Compacted(asked.revision, history.history_floor))
        return Moment(asked.revision, await history.time_of(asked.revision))
    now = clock.time()
    time = now - asked.ago if asked.ago is not None else asked.time
    assert time is not None
    if time > now:
        raise errors.bad_request(f"at: {text} is in the future, it is {rfc3339(now)} here")
    if time < history.history_time:
        raise errors.expired(f"at: {text} is longer ago than what is kept: {_reach(history)}")
    revision = await history.revision_at(time)
    if not revision:
        raise errors.expired(
            f"at: at {rfc3339(time)} there was nothing yet, history begins at {rfc3339(await history.time_of(1))}"
        )
    return Moment(revision, time)


def in_future(error: FutureRevision) -> ApiError:
    return errors.bad_request(f"at: revision {error.revision} is in the future, the newest is {error.current}")


def forgotten(history: HistoryStore, error: Compacted, resource: str = "") -> ApiError:
    if error.floor > history.history_floor:
        return errors.expired(
            f"at: of {resource or 'this kind'} the past is not kept for longer than watches go back: revision {error.revision} "
            f"is gone, the oldest is {error.floor}"
        )
    return errors.expired(f"at: revision {error.revision} is forgotten: {_reach(history)}")


def _reach(history: HistoryStore) -> str:
    since = f" ({rfc3339(history.history_time)})" if history.history_time else ""
    return f"history goes back to revision {max(history.history_floor, 1)}{since}"
