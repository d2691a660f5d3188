"""The messages that wait until a client's websocket takes them, within a limit of bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

LARGEST: Final = 2 << 20


class Outbox:
    """`largest` bounds the characters of waiting messages; short ones that end a watch may exceed it."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._waiting: deque[str] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_flooded(self) -> bool:
        """True for a client that makes requests and does not read the answers."""
        return self._size > 2 * self._largest and len(self._waiting) > 1

    def offer(self, text: str) -> bool:
        """Add a message; False when the client is too far behind. A message that is large by itself waits alone."""
        if self._waiting and self._size + len(text) > self._largest:
            return False
        self.put(text)
        return True

    def put(self, text: str) -> None:
        self._waiting.append(text)
        self._size += len(text)
        self._filled.set()
        if self._size > self._largest // 2:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until half of the room is free."""
        await self._has_room.wait()

    async def send(self, write: Callable[[str], Awaitable[None]]) -> None:
        """Give each message to `write`, until cancelled."""
        while True:
            while self._waiting:
                text = self._waiting[0]
                await write(text)
                self._waiting.popleft()
                self._size -= len(text)
                if self._size <= self._largest // 2:
                    self._has_room.set()
            self._filled.clear()
            await self._filled.wait()
