"""The core put together: what runs when somebody says `capi`.

:class:`CoreControllers` are the controllers. :func:`admitted_types` are the rules of its kinds, which the embedded API takes
in-process and a real one as webhooks; they hold whoever runs the controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from remuda.runtime import Manager, Reconciler
from remuda.runtime.admission import AdmittedType

from . import CONTROLLERS
from .admission import admitted
from .cluster import Clusters
from .clustercache import CacheOptions, ClusterCache
from .conversion import ContractVersions, converter
from .core import Core, Options
from .machine.controller import Machines
from .machinedeployment import MachineDeployments
from .machinehealthcheck import MachineHealthChecks
from .machineset import MachineSets
from .workloads import Connector

_MAKERS: tuple[Callable[[Core], Reconciler], ...] = (Clusters, Machines, MachineSets, MachineDeployments, MachineHealthChecks)


class CoreControllers:
    """The controllers of the core, or `only` some of them, added to a manager that has not begun to run."""

    def __init__(
        self,
        manager: Manager,
        connector: Connector,
        options: Options = Options(),  # noqa: B008 - a constant
        only: Collection[str] | None = None,
    ) -> None:
        cached = CacheOptions(namespace=options.namespace, watch_filter=options.watch_filter)
        self.workloads = ClusterCache(manager, connector, cached)
        self.core = Core(manager, self.workloads, options)
        for name, make in zip(CONTROLLERS, _MAKERS, strict=True):
            if only is None or name in only:
                manager.add(make(self.core))
        manager.beside(self.workloads.run)


def admitted_types(versions: ContractVersions) -> tuple[AdmittedType, ...]:
    """What is defaulted, checked and converted; `versions` is a :class:`~remuda.capi.contracts.Contracts`, or acts as one."""
    return admitted(converter(versions))
