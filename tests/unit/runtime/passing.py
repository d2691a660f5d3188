"""Time that passes while something is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from remuda.kube.clock import VirtualClock

T = TypeVar("T")


async def passing(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, however long it takes on `clock`."""
    task = asyncio.create_task(work)
    while not task.done():
        await clock.advance(1)
    return task.result()
