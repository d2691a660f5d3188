"""Machines put together: the controllers of node drivers, those that make machines, and the runner of their Jobs.

`--job-runner=local` runs Jobs as processes of this server, `cluster` leaves them to the underlying Kubernetes, as pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from remuda.machines import CONTROLLERS
from remuda.machines.machineconfigcleanup import MachineConfigCleanup
from remuda.machines.machineprovision.controller import MachineProvision
from remuda.machines.nodedrivers.dynamicschema import DynamicSchemas
from remuda.machines.nodedrivers.flag_sources import Sources
from remuda.machines.nodedrivers.nodedriver import NodeDrivers
from remuda.machines.runner import restart_hosts
from remuda.machines.runner.controller import Ground, JobRunner
from remuda.machines.secretfields.machinesecrets import MachineSecrets
from remuda.provisioning.references import Access
from remuda.runtime import Manager, Reconciler

from .provisioning_controllers import for_administrators

LOCAL, CLUSTER = "local", "cluster"
RUNNERS = (LOCAL, CLUSTER)


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts that the process must provide. `runner` is one of RUNNERS; `ground` the surroundings of its processes. `drivers`
    is the directory of downloaded drivers; without it they are downloaded again when this process restarts."""

    ground: Ground
    runner: str = LOCAL
    drivers: Path | None = None


class MachineControllers:
    """The controllers, or `only` some of them, added to a manager that has not begun to run."""

    def __init__(self, manager: Manager, ports: Ports, access: Access, only: Collection[str] = CONTROLLERS) -> None:
        """`access` decides who may read the credentials that clusters name."""
        for each in _all(manager, ports, access, only):
            if each.controller.name in only:
                manager.add(each)


async def power_on(ports: Ports, only: Collection[str] = CONTROLLERS) -> None:
    """Start the hosts that this process keeps, when it starts; nothing where others run the Jobs."""
    if ports.runner == LOCAL and JobRunner.controller.name in only:
        await restart_hosts.power_on(ports.ground)


def _all(manager: Manager, ports: Ports, access: Access, only: Collection[str]) -> Iterable[Reconciler]:
    local = ports.runner == LOCAL
    if NodeDrivers.controller.name in only:
        # As with the job runner below: a deselected controller starts nothing.
        outbound = for_administrators(manager.informers, ports.ground.environment)
        yield NodeDrivers(manager, Sources(manager.clock, ports.ground.environment, ports.drivers, policy=outbound))
    yield DynamicSchemas(manager)
    yield MachineConfigCleanup(manager)
    if MachineSecrets.controller.name in only:
        yield MachineSecrets(manager)
    yield MachineProvision(manager, access, ports.ground.environment, local=local)
    if local and JobRunner.controller.name in only:
        # Runs something beside the controllers, so it is not even made where it is not wanted.
        yield JobRunner(manager, access, ports.ground)
