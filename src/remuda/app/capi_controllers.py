"""The core put together: the controllers and rules of `capi`.

:class:`CoreControllers` are the controllers. :func:`admitted_types` are the rules of its kinds, which the embedded API runs
in-process and a real one calls as webhooks; they apply no matter which program runs the controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from remuda.capi import CONTROLLERS
from remuda.capi.admission import admitted
from remuda.capi.cluster import Clusters
from remuda.capi.clustercache import CacheOptions, ClusterCache
from remuda.capi.controller_context import Core, Options
from remuda.capi.conversion import ContractVersions, converter
from remuda.capi.machine.controller import Machines
from remuda.capi.machinedeployment import MachineDeployments
from remuda.capi.machinehealthcheck import MachineHealthChecks
from remuda.capi.machineset import MachineSets
from remuda.capi.workload_clusters import Connector
from remuda.runtime import Manager, Reconciler
from remuda.runtime.admitted_types import AdmittedType

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
    """The types to default, check and convert; `versions` is a :class:`~remuda.capi.contracts.Contracts`, or acts as one."""
    return admitted(converter(versions))
