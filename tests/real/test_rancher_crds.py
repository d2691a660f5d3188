"""Our definitions of Rancher's kinds on a real kube-apiserver: it serves them, takes and refuses the same objects, and the
controllers of clusters work on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda import api
from remuda.access.clusters.server_settings import ServerSettings
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.crd_installation import established, install
from remuda.client.https import HttpsClient
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig
from remuda.runtime import Manager
from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.taking_up import taken_up
from tests.unit.access.management_api import CA, ENVIRONMENT
from tests.unit.api.rancher_objects import GROUPS, NAMESPACES, apply_good
from tests.unit.api.rancher_refusals import check_refused
from tests.unit.provisioning.cluster.mirrored_clusters import everything

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

Obj = dict[str, Any]
_NAMESPACES = GroupVersionResource("", "v1", "namespaces")
_SECRETS = GroupVersionResource("", "v1", "secrets")


@asynccontextmanager
async def served() -> AsyncIterator[HttpsClient]:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False) as cluster:
        async with HttpsClient.from_kubeconfig(cluster.kubeconfig) as client:
            await established(client, SYSTEM_CLOCK, await install(client, SYSTEM_CLOCK, api.crds(GROUPS)))
            await taken_up(client, api.crds(GROUPS))
            yield client


async def test_a_real_api_server_takes_and_refuses_the_same_objects() -> None:
    async with served() as client:
        for name in NAMESPACES:
            await client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await apply_good(client)
        await check_refused(client)


class Parts:
    """What the controllers are made from (:class:`tests.unit.access.management_api.Parts`), on real time."""

    def __init__(self, client: HttpsClient) -> None:
        self.manager = Manager(client, SYSTEM_CLOCK, Rng())
        self.entropy = Entropy()
        self.server = ServerSettings(self.manager.informers, ENVIRONMENT, lambda: CA)


async def until(found: Callable[[], Awaitable[Any]], seconds: float = 120) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            if value := await found():
                return value
            await asyncio.sleep(0.1)


async def gone(client: HttpsClient, resource: GroupVersionResource, name: str, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace)
    except ApiError as error:
        return error.is_not_found
    return False


async def test_the_controllers_keep_clusters_in_step_on_a_real_api_server() -> None:
    async with served() as client:
        parts = Parts(client)
        for reconciler in everything(parts):  # type: ignore[arg-type]
            parts.manager.add(reconciler)
        running = asyncio.create_task(parts.manager.run())
        try:
            await until(lambda: there(client, _NAMESPACES, "fleet-default"))
            await _one_life(client)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def there(client: HttpsClient, resource: GroupVersionResource, name: str, namespace: str = "") -> bool:
    try:
        await client.get(resource, name, namespace)
    except ApiError:
        return False
    return True


async def _one_life(client: HttpsClient) -> None:
    metadata = {"name": "demo", "namespace": "fleet-default"}
    spec: Obj = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {}, "agentEnvVars": [{"name": "A", "value": "b"}]}
    wanted = {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}
    await client.create(provisioning.CLUSTERS, wanted, "fleet-default")

    async def status(field: str) -> Any:
        return dig(await client.get(provisioning.CLUSTERS, "demo", "fleet-default"), "status", field)

    name = await until(lambda: status("clusterName"))
    await until(lambda: there(client, _SECRETS, "crt-token-node-token", name))
    # What is no longer wanted goes from the other one, and what others said of it stays.
    await client.patch(management.CLUSTERS, name, {"spec": {"theirs": "kept"}})
    await client.patch(provisioning.CLUSTERS, "demo", {"spec": {"agentEnvVars": None}}, "fleet-default")

    async def followed() -> bool:
        found = (await client.get(management.CLUSTERS, name))["spec"]
        return "agentEnvVars" not in found and found["theirs"] == "kept"

    await until(followed)
    found = await until(lambda: _connected(client, name))
    assert await until(lambda: status("clientSecretName")) == "demo-kubeconfig"
    owners = dig(await client.get(_NAMESPACES, name), "metadata", "ownerReferences")
    assert [owner["uid"] for owner in owners] == [dig(found, "metadata", "uid")], "it goes with the cluster"
    await client.delete(management.CLUSTERS, name)
    for what in ((provisioning.CLUSTERS, "demo", "fleet-default"), (management.CLUSTERS, name)):
        await until(lambda what=what: gone(client, *what))  # type: ignore[misc]


async def _connected(client: HttpsClient, name: str) -> Obj | None:
    """Said beside whatever the controllers say of it at the same time."""
    found = await client.get(management.CLUSTERS, name)
    conditions = [*dig(found, "status", "conditions", default=[]), {"type": "Connected", "status": "True"}]
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    try:
        return await client.patch(management.CLUSTERS, name, {"metadata": version, "status": {"conditions": conditions}})
    except ApiError as error:
        if error.is_conflict:
            return None
        raise
