"""Provisioning put together: its controllers and those of machines, with their needs of the gateway."""

from __future__ import annotations

from collections.abc import Collection

from remuda.access.downstreams import while_working
from remuda.capi.clustercache import ClusterCache, HttpsConnector
from remuda.capi.workload_clusters import Workloads
from remuda.gateway.gateway import Gateway
from remuda.gateway.provisioning_port import ProvisioningDoor
from remuda.provisioning import CONTROLLERS
from remuda.runtime import Manager

from .machine_controllers import MachineControllers
from .machine_controllers import Ports as MachinePorts
from .provisioning_controllers import HandedOut, Ports, ProvisioningControllers

# The settings that install scripts contain.
_IN_SCRIPTS = frozenset({"server-url", "cacerts", "agent-tls-mode"})


def add_provisioning(
    manager: Manager,
    gateway: Gateway,
    workloads: Workloads | None = None,
    only: Collection[str] = CONTROLLERS,
    machines: MachinePorts | None = None,
) -> None:
    """The controllers of provisioning, or `only` some of them, for a manager that has not begun to run. Without `workloads`, as
    with another Cluster API, they have connections to clusters of their own. With `machines` they make machines, too."""
    ground = gateway.ground
    if workloads is None:
        workloads = cache = ClusterCache(manager, gateway.connector(HttpsConnector(ground.clock, policy=gateway.outbound)))
        manager.beside(cache.run)
    while_working(manager, lambda: gateway.waits.follow(manager.waits))
    door = ProvisioningDoor(gateway, manager.informers)
    ca = HandedOut(door.ca_checksum, gateway.services.on_trust)
    ports = Ports(workloads, door, ground.access, door.script, ground.entropy, ground.environment, _IN_SCRIPTS, ca=ca)
    ProvisioningControllers(manager, ports, only)
    if machines is not None:
        MachineControllers(manager, machines, ground.access, only)
