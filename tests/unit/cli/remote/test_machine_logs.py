"""Following a log: what is new is told once, until nobody writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.cli.remote.machines import added, follow
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\n", "a\nb\n", "b\n"),
        ("a\nb\n", "a\nb\n", ""),
        # The oldest lines have made room.
        ("a\nb\nc\n", "c\nd\n", "d\n"),
        ("a\na\nb\n", "a\nb\nc\n", "c\n"),
        # All of it is another one: the next pod's.
        ("a\nb\n", "x\n", "x\n"),
        ("half a li", "half a line\n", "ne\n"),
    ],
)
def test_what_is_new(before: str, now: str, new: str) -> None:
    assert added(before, now) == new


async def _followed(texts: list[str | ApiError | None]) -> tuple[bool, str, list[str]]:
    """One text at a time; with the last nobody goes on."""
    at: Iterator[int] = iter(range(len(texts)))
    now = 0

    async def going() -> bool:
        nonlocal now
        now = next(at)
        return now < len(texts) - 1

    async def read() -> str | None:
        found = texts[now]
        if isinstance(found, ApiError):
            raise found
        return found

    said: list[str] = []
    warned: list[str] = []
    return await follow(read, going, said.append, warned.append, _Hasty()), "".join(said), warned


class _Hasty(VirtualClock):
    async def sleep(self, seconds: float) -> None:
        return


async def test_every_line_is_told_once() -> None:
    assert await _followed([None, "a\n", "a\n", "a\nb\n", "b\nc\n"]) == (True, "a\nb\nc\n", [])


async def test_a_log_that_has_ended_is_told_whole() -> None:
    assert await _followed(["a\nb\n"]) == (True, "a\nb\n", [])


async def test_nothing_at_all_is_told_apart() -> None:
    assert await _followed([None, None]) == (False, "", [])


async def test_a_server_that_is_away_is_asked_again_and_said_once() -> None:
    away = ApiError(503, "ServiceUnavailable", "it is away")
    assert await _followed(["a\n", away, away, "a\nb\n"]) == (True, "a\nb\n", ["it is away; trying again"])


async def test_who_may_not_read_it_is_told() -> None:
    with pytest.raises(ApiError, match="not for you"):
        await _followed([ApiError(403, "Forbidden", "not for you"), "a\n"])
