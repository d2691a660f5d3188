"""Objects of providers in the caches of the core."""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.capi.cluster import Clusters
from remuda.capi.controller_context import ControllerOptions
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import Key, dig

from .memory_clusters import INFRA, NAMESPACE, TEST_CLUSTERS, core_object, thing, world


async def test_who_looks_after_one_namespace_reads_nothing_of_others() -> None:
    async with world(Clusters, options=ControllerOptions(namespace=NAMESPACE)) as w:
        await w.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        await w.cluster("ours", control_plane=False)
        spec = {"infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "theirs"}}
        for resource, obj in (
            (TEST_CLUSTERS, thing(INFRA, "TestCluster", "theirs")),
            (CLUSTERS, core_object("Cluster", "theirs", spec)),
        ):
            obj["metadata"]["namespace"] = "elsewhere"
            await w.create(resource, obj)
        await w.settle()
        found, _ = await w.core.externals.of(INFRA, "TestCluster")
        assert [Key.of(obj) for obj in found.objects()] == [Key(NAMESPACE, "ours")]
        assert dig(await w.get(TEST_CLUSTERS, "ours"), "metadata", "ownerReferences")
        assert not dig(await w.get(CLUSTERS, "theirs", "elsewhere"), "metadata", "finalizers")
