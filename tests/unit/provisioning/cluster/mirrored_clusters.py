"""The whole of what keeps clusters in step, in the world of :mod:`tests.unit.access.management_api`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.access.clusters import ManagedClusters, RegistrationTokens, local_clusters, system_namespaces
from remuda.access.users.controllers import TokenController, UserController
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.fleet.fleetworkspace import FleetWorkspaces
from remuda.fleet.fleetworkspace import standing as standing_workspaces
from remuda.provisioning.cluster import ManagementMirror, ProvisioningMirror
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts, World

Obj = dict[str, Any]
FLEET = "fleet-default"
KEY = ("demo", FLEET)


def mirror(parts: Parts) -> Iterable[Reconciler]:
    yield ProvisioningMirror(parts.manager, parts.server, parts.entropy)
    yield ManagementMirror(parts.manager)


def everything(parts: Parts) -> Iterable[Reconciler]:
    yield from mirror(parts)
    yield ManagedClusters(parts.manager, parts.server)
    yield RegistrationTokens(parts.manager, parts.server, parts.entropy)
    yield FleetWorkspaces(parts.manager)
    yield standing_workspaces(parts.manager, parts.server)
    yield system_namespaces(parts.manager)
    yield local_clusters(parts.manager)
    yield UserController(parts.manager.client, parts.manager.informers)
    yield TokenController(parts.manager.client, parts.manager.informers, parts.manager.clock)


async def demo(made: World, name: str = "demo", namespace: str = FLEET) -> Obj:
    return await made.get(provisioning.CLUSTERS, name, namespace)


async def managed(made: World, name: str = "demo", namespace: str = FLEET) -> Obj:
    return await made.get(management.CLUSTERS, (await demo(made, name, namespace))["status"]["clusterName"])


async def connect(made: World, cluster: str, status: str = "True") -> None:
    """What the tunnel and the health checks say."""
    found = await made.get(management.CLUSTERS, cluster)
    kept = [each for each in (found.get("status") or {}).get("conditions") or [] if each["type"] != "Connected"]
    await made.patch(management.CLUSTERS, cluster, {"status": {"conditions": [*kept, {"type": "Connected", "status": status}]}})


async def others(made: World) -> list[Obj]:
    """The management Clusters there are but for `local`."""
    return [each for each in await made.list(management.CLUSTERS) if each["metadata"]["name"] != "local"]
