"""Concurrent calls with a limit, and no new ones once one has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 10


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> list[Exception]:
    """`do` for every item, in their order as far as possible; the errors. What has begun is finished.

    When it is cancelled, it cancels what has begun: the next reconcile finds what is half done.
    """
    waiting: Iterator[T] = iter(items)
    errors: list[Exception] = []

    async def work() -> None:
        for item in waiting:
            try:
                await do(item)
            except Exception as error:
                errors.append(error)
            if errors:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return errors
