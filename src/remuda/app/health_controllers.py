"""The controllers of :mod:`remuda.access.health`, put together for :mod:`.embedded` and the attached programs."""

from __future__ import annotations

from remuda.access.downstreams import Agents, Downstreams
from remuda.access.health import cluster_health, cluster_removal, nodesync
from remuda.access.health.downstream_caches import Followings
from remuda.runtime import Manager, Reconciler

CONTROLLERS = (cluster_health.CONTROLLER, nodesync.CONTROLLER, cluster_removal.CONTROLLER)


def controllers(manager: Manager, downstreams: Downstreams, agents: Agents) -> list[Reconciler]:
    """For `manager.add`."""
    followings = Followings(manager, downstreams)
    return [
        cluster_health.ClusterHealth(manager, downstreams, agents, followings),
        nodesync.NodeSync(manager, followings),
        cluster_removal.Removal(manager, downstreams),
    ]
