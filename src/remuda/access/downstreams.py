"""How controllers reach the clusters behind the tunnels, without knowing the tunnel. The gateway fulfils it.

A cluster is named as its management Cluster (`c-m-abcdefgh`). `local` is always connected, and its client is the management
API's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from remuda.client.interface import Client
from remuda.runtime import Manager


class Downstream(Protocol):
    """One cluster that can be reached at this moment."""

    @property
    def client(self) -> Client:
        """As the cluster agent's service account, which is an administrator there. Read it anew for each piece of work."""
        ...


class Downstreams(Protocol):
    """All clusters that can be reached."""

    def get(self, cluster: str) -> Downstream | None:
        """None for a cluster that is unknown, or whose agent is not connected."""
        ...

    def is_connected(self, cluster: str) -> bool: ...

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each cluster that connects, reconnects or is lost. Returns what ends that."""
        ...


# --- agents ---------------------------------------------------------------------------------------------------------------
#
# What this package asks of the cluster agents, which the gateway fulfils, and how somebody outside is listened to.


class Agents(Protocol):
    def is_connected(self, cluster: str) -> bool: ...

    async def ping(self, cluster: str) -> str:
        """Empty when an agent of the cluster answers; else what is wrong. Takes seconds, not minutes."""
        ...

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each cluster of which an agent comes or goes. Returns what ends that."""
        ...


def while_working(manager: Manager, *listen: Callable[[], Callable[[], None]]) -> None:
    """Listen (each gives back what ends it) for as long as the controllers of a manager work, and no longer."""

    async def run() -> None:
        stops = [begin() for begin in listen]
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for stop in stops:
                stop()

    manager.beside(run)
