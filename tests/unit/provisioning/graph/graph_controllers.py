"""The world of :mod:`tests.unit.provisioning.cluster.mirrored_clusters`, with Cluster API's core, a driver and their kinds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import crds, plan_cattle_io, rke_cattle_io
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.app import controllers as table
from remuda.app import parts as app_parts
from remuda.capi.admission import admitted
from remuda.capi.contracts import Contracts
from remuda.capi.conversion import converter
from remuda.client.interface import Client
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Rng
from remuda.kube.objects import GroupVersionResource, Key
from remuda.provisioning.cluster.provisioninglog import ProvisioningLogs
from remuda.provisioning.cluster.rkecluster import RKEClusters
from remuda.provisioning.cluster.rkecontrolplane import RKEControlPlanes
from remuda.provisioning.graph.provisioningcluster import ProvisioningClusters
from remuda.runtime import Informers, Reconciler
from tests.unit.access.management_api import Parts, World, world
from tests.unit.provisioning.cluster.mirrored_clusters import everything

Obj = dict[str, Any]
POD_CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "podconfigs")
POD_TEMPLATES = GroupVersionResource("rke-machine.cattle.io", "v1", "podmachinetemplates")
SCHEMAS = GroupVersionResource("management.cattle.io", "v3", "dynamicschemas")
VERSION = "v1.34.1+rke2r1"


class Nowhere:
    """Workload clusters that can't be reached."""

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        raise OSError("there is nothing")


def controllers(parts: Parts) -> Iterable[Reconciler]:
    yield from everything(parts)
    yield ProvisioningClusters(parts.manager, ReviewedAccess(parts.manager.client, parts.manager.clock))
    yield ProvisioningLogs(parts.manager)
    yield RKEClusters(parts.manager)
    yield RKEControlPlanes(parts.manager)


def core(parts: Parts) -> Iterable[Reconciler]:
    return table.reconcilers(app_parts.Parts(parts.manager, connector=Nowhere()), table.names(table.CAPI))


def definition(group: str, version: str, kind: str, plural: str, scope: str = "Namespaced") -> Obj:
    """A kind that may say anything, by the contract of Cluster API."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {"cluster.x-k8s.io/v1beta2": version}},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@contextlib.asynccontextmanager
async def cluster_world(
    *make: Callable[[Parts], Iterable[Reconciler]], wrap: Callable[[Client], Client] | None = None
) -> AsyncIterator[World]:
    """Without `make`: all controllers, and Cluster API's core."""
    async with world(*(make or (controllers, core)), begin=False) as made:
        contracts = Contracts(Informers(InProcessClient(made.server), made.clock, Rng(3)))
        install(admitted(converter(contracts)), made.server.hooks, made.server.converters)
        for crd in crds([capi.GROUP, plan_cattle_io.GROUP, rke_cattle_io.GROUP]):
            await made.create(CRDS, crd)
        await made.create(CRDS, definition("rke-machine-config.cattle.io", "v1", "PodConfig", "podconfigs"))
        await made.create(CRDS, definition("rke-machine.cattle.io", "v1", "PodMachineTemplate", "podmachinetemplates"))
        await made.settle()
        made.begin(*([wrap] if wrap is not None else []))
        await made.settle()
        yield made
