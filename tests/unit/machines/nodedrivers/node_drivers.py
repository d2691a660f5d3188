"""A management API with the controllers of node drivers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.builtin_resources import CRDS
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.machines.nodedrivers.builtin_drivers import BuiltIn, builtin
from remuda.machines.nodedrivers.dynamicschema import DynamicSchemas
from remuda.machines.nodedrivers.flag_sources import Sources
from remuda.machines.nodedrivers.nodedriver import NodeDrivers
from remuda.runtime import Reconciler
from remuda.runtime.admitted_types import AdmittedType
from tests.unit.access.management_api import Parts, World, world

Obj = dict[str, Any]
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "azureconfigs")
MACHINES = GroupVersionResource("rke-machine.cattle.io", "v1", "azuremachines")
CONFIG_API, MACHINE_API = "rke-machine-config.cattle.io/v1", "rke-machine.cattle.io/v1"
# No rancher-machine there.
NOWHERE = {"PATH": "/nonexistent"}


def few() -> dict[str, BuiltIn]:
    """Enough of them for most tests: definitions take their time."""
    return {name: each for name, each in builtin().items() if name in ("azure", "exoscale", "google", "linode")}


def controllers(
    sources: Callable[[Parts], Sources] | None = None, ours: Callable[[], Mapping[str, BuiltIn]] = few
) -> Callable[[Parts], Iterable[Reconciler]]:
    def make(parts: Parts) -> Iterable[Reconciler]:
        found = sources(parts) if sources is not None else Sources(parts.manager.clock, NOWHERE)
        yield NodeDrivers(parts.manager, found, ours)
        yield DynamicSchemas(parts.manager)

    return make


@contextlib.asynccontextmanager
async def drivers_world(
    sources: Callable[[Parts], Sources] | None = None,
    ours: Callable[[], Mapping[str, BuiltIn]] = few,
    admitted: Iterable[AdmittedType] = (),
) -> AsyncIterator[World]:
    async with world(controllers(sources, ours), admitted=admitted, begin=False) as made:
        made.begin()
        await made.settle(2.0)
        yield made


def node_driver(name: str, **spec: Any) -> Obj:
    said = {"displayName": name, "url": "local://", "active": True, **spec}
    return {"apiVersion": API_VERSION, "kind": "NodeDriver", "metadata": {"name": name}, "spec": said}


def config(name: str = "nc", **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": "fleet-default"}
    return {"apiVersion": CONFIG_API, "kind": "AzureConfig", "metadata": metadata, **fields}


def machine(name: str = "m", **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": "fleet-default"}
    return {"apiVersion": MACHINE_API, "kind": "AzureMachine", "metadata": metadata, "spec": spec}


async def kinds(made: World, group: str = "rke-machine") -> set[str]:
    """The definitions that node drivers brought."""
    return {name_of(each).partition(".")[0] for each in await made.list(CRDS) if each["spec"]["group"].startswith(group)}
