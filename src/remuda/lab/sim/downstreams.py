"""The tunnels of simulated clusters: what :mod:`remuda.access.downstreams` and the health checks ask, without a tunnel.

A cluster is connected from the moment that its agent is started in it (:meth:`SimulatedDownstreams.connect`), and as long as its
API answers.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.apiserver.inprocess import InProcessClient
from remuda.client.interface import Client

from .workload_clusters import Line, SimulatedCluster

LOCAL = "local"


class _Reached:
    def __init__(self, cluster: SimulatedCluster | None, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    @property
    def answers(self) -> bool:
        return self.cluster is None or self.cluster.answers


class SimulatedDownstreams:
    """By the names of management Clusters; `local` is the management API's own client."""

    def __init__(self, local: Client) -> None:
        self._reached = {LOCAL: _Reached(None, local)}
        self._handlers: list[Callable[[str], None]] = []

    def connect(self, name: str, cluster: SimulatedCluster) -> None:
        found = self._reached.get(name)
        if found is None or found.cluster is not cluster:
            line = Line(InProcessClient(cluster.server, manager="cattle"), lambda: cluster.answers)
            self._reached[name] = _Reached(cluster, line)
            self.tell(name)

    def disconnect(self, name: str) -> None:
        if self._reached.pop(name, None) is not None:
            self.tell(name)

    def tell(self, name: str) -> None:
        """Something about a cluster's line has changed."""
        for handler in list(self._handlers):
            handler(name)

    def get(self, cluster: str) -> _Reached | None:
        return self._reached.get(cluster) if self.is_connected(cluster) else None

    def is_connected(self, cluster: str) -> bool:
        found = self._reached.get(cluster)
        return found is not None and found.answers

    async def ping(self, cluster: str) -> str:
        return "" if self.is_connected(cluster) else "Cluster agent is not connected"

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)
