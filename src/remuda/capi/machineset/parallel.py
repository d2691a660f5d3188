"""Several things at once, but not too many, and no more of them once one has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 10


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> list[Exception]:
    """`do` for every item, in their order as far as that goes; what went wrong. What has begun is finished.

    Cancelled, it cancels what has begun: whatever is half done then is found by the next reconcile.
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
