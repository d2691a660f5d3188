"""Ports through which controllers reach downstream clusters, without knowing the tunnel, and their wait for one that they can't
reach. The gateway implements them.

A cluster is named as its management Cluster (`c-m-abcdefgh`). `local` is always connected, and its client is the management
API's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from remuda.api import management_cattle_io as management
from remuda.client.interface import Client
from remuda.kube.objects import dig, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Manager

from .rancher_conditions import FALSE, condition_of


class Downstream(Protocol):
    """One cluster that can be reached at this moment."""

    @property
    def client(self) -> Client:
        """A client as the cluster agent's service account, an administrator there. Read it again for each piece of work."""
        ...


class Downstreams(Protocol):
    """All clusters that can be reached."""

    def get(self, cluster: str) -> Downstream | None:
        """The cluster; None if it is unknown, or its agent is not connected."""
        ...

    def is_connected(self, cluster: str) -> bool: ...

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each cluster that connects, reconnects or is lost. The result ends the subscription."""
        ...


def not_connected(cluster: dict[str, Any]) -> Wait:
    """The wait of a cluster whose agent is not connected: since when, or that it never was."""
    subject = Ref(management.GROUP, "Cluster", "", name_of(cluster))
    connected = condition_of(cluster, "Connected") or {}
    if not dig(cluster, "status", "apiEndpoint") and condition_of(cluster, "AgentDeployed") is None:
        return Wait(Code.CLUSTER_AGENT, subject, Actor.USER, evidence="its agent has never connected")
    since = str(connected.get("lastUpdateTime") or "") if connected.get("status") == FALSE else ""
    return Wait(Code.CONNECTION, subject, Actor.USER, evidence="its agent is not connected", since=since)


# --- agents ---------------------------------------------------------------------------------------------------------------
#
# What this package needs of the cluster agents (the gateway implements it), and how a controller listens to outside sources.


class Agents(Protocol):
    def is_connected(self, cluster: str) -> bool: ...

    async def ping(self, cluster: str) -> str:
        """Ask the cluster's agents: empty if one answers, else the problem. Takes seconds, not minutes."""
        ...

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each cluster whose agent connects or disconnects. The result ends the subscription."""
        ...


def while_working(manager: Manager, *listen: Callable[[], Callable[[], None]]) -> None:
    """Listen while the controllers of a manager run, and no longer; each of `listen` returns the function that ends it."""

    async def run() -> None:
        stops = [begin() for begin in listen]
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for stop in stops:
                stop()

    manager.beside(run)
