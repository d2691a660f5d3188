"""What this room asks of the cluster agents. The gateway, which has their sessions, fulfils it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Agents(Protocol):
    def is_connected(self, cluster: str) -> bool: ...

    async def ping(self, cluster: str) -> str:
        """Empty when an agent of the cluster answers; else what is wrong. Takes seconds, not minutes."""
        ...

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each cluster of which an agent comes or goes. Returns what ends that."""
        ...
