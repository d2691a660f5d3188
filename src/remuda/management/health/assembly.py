"""The controllers of this room, for who starts a server or joins one."""

from __future__ import annotations

from remuda.runtime import Manager, Reconciler

from ..downstreams import Downstreams
from . import keeping, nodesync, removal
from .following import Followings
from .ports import Agents

CONTROLLERS = (keeping.CONTROLLER, nodesync.CONTROLLER, removal.CONTROLLER)


def controllers(manager: Manager, downstreams: Downstreams, agents: Agents) -> list[Reconciler]:
    """For `manager.add`."""
    followings = Followings(manager, downstreams)
    return [
        keeping.ClusterHealth(manager, downstreams, agents, followings),
        nodesync.NodeSync(manager, followings),
        removal.Removal(manager, downstreams),
    ]
