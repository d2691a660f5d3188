"""A management API with machines of RKE clusters, and workload clusters in memory, on the virtual clock."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from remuda import kcm
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import crds
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app import controllers as table
from remuda.app import parts as app_parts
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.owners import reference
from remuda.lab.sim.workload_clusters import Beginning
from remuda.provisioning.bootstrap.rkebootstrap import Scripts
from remuda.provisioning.plans.machine_plan_secret import with_plan
from remuda.provisioning.well_known import plan_name
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts, World
from tests.unit.capi.memory_clusters import MemoryWorkloads

Obj = dict[str, Any]
FLEET = "fleet-default"
DEMO = "demo"
ETCD = {"rke.cattle.io/etcd-role": "true"}
Make = Callable[[Parts, "Machines"], Iterable[Reconciler]]
OF_MACHINES = (
    "rke-bootstrap",
    "bootstraptoken",
    "awaited-host",
    "unmanaged-machine",
    "custom-machine",
    "plansecret",
    "machine-node-lookup",
    "machine-drain",
)


class Machines(World):
    """The world, with machines in it."""

    def __init__(self, server: Server, clock: VirtualClock, make: tuple[Make, ...]) -> None:
        super().__init__(server, clock, tuple(self._bound(each) for each in make))
        self.workloads = MemoryWorkloads(clock, Rng(3))

    def _bound(self, make: Make) -> Callable[[Parts], Iterable[Reconciler]]:
        def made(parts: Parts) -> Iterable[Reconciler]:
            self.workloads.manager = parts.manager
            return make(parts, self)

        return made

    async def demo(self, name: str = DEMO, *, provisioned: bool = True, version: str = "v1.34.1+rke2r1") -> Obj:
        """A Cluster API Cluster with its control plane, as the object graph has them."""
        meta = {"name": name, "namespace": FLEET}
        ref = {"apiGroup": rke.GROUP, "kind": "RKEControlPlane", "name": name}
        spec = {"controlPlaneRef": ref, "infrastructureRef": {**ref, "kind": "RKECluster"}}
        cluster = await self.create(
            capi.CLUSTERS, {"apiVersion": capi.API_VERSION, "kind": "Cluster", "metadata": meta, "spec": spec}
        )
        control = {"kubernetesVersion": version, "clusterName": name, "managementClusterName": "c-m-bcdfg245"}
        await self.create(
            rke.RKE_CONTROL_PLANES,
            {"apiVersion": rke.API_VERSION, "kind": "RKEControlPlane", "metadata": meta, "spec": control},
        )
        if provisioned:
            status = {"status": {"initialization": {"infrastructureProvisioned": True}}}
            cluster = await self.patch(capi.CLUSTERS, name, status, FLEET, "status")
        return cluster

    async def machine(self, name: str, cluster: str = DEMO, labels: Obj | None = None, *, infra: str = rke.GROUP) -> Obj:
        """A Machine with its RKEBootstrap, which it owns."""
        labels = {"cluster.x-k8s.io/cluster-name": cluster, "rke.cattle.io/cluster-name": cluster, **(labels or {})}
        meta: Obj = {"name": name, "namespace": FLEET, "labels": labels}
        spec = {
            "clusterName": cluster,
            "bootstrap": {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}},
            "infrastructureRef": {"apiGroup": infra, "kind": "CustomMachine", "name": name},
        }
        machine = await self.create(
            capi.MACHINES, {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": meta, "spec": spec}
        )
        owned = {**meta, "ownerReferences": [reference(machine, controller=True)]}
        bootstrap = {"apiVersion": rke.API_VERSION, "kind": "RKEBootstrap", "metadata": owned, "spec": {"clusterName": cluster}}
        await self.create(rke.RKE_BOOTSTRAPS, bootstrap)
        return machine

    async def plan(self, name: str) -> Obj:
        return await self.get(SECRETS, plan_name(name), FLEET)

    async def give_plan(self, name: str, plan: bytes = b'{"error":"x"}', **options: Any) -> Obj:
        """What the planner writes."""
        return await self.client.update(SECRETS, with_plan(await self.plan(name), plan, now=self.clock.time(), **options))

    async def answer(self, name: str, annotations: Obj | None = None, **data: bytes | str) -> Obj:
        """What a host writes; keys with _ for -."""
        encoded = {
            key.replace("_", "-"): base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
            for key, value in data.items()
        }
        patch: Obj = {"data": encoded}
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        return await self.patch(SECRETS, plan_name(name), patch, FLEET)


_BEGINNING = Beginning(lambda: crds([management.GROUP, provisioning.GROUP, capi.GROUP, rke.GROUP]), (FLEET,))


@contextlib.asynccontextmanager
async def machines(*make: Make, begin: bool = True) -> AsyncIterator[Machines]:
    """`make` gives the reconcilers of one life of the controllers."""
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, base=await _BEGINNING.base(), clock=clock, rng=Rng(1), entropy=Entropy(1)))
    made = Machines(server, clock, make)
    keeping = InProcessClient(server, manager="kube-controller-manager")
    keeper = asyncio.create_task(kcm.run(keeping, clock, Rng(2), tokens=server.issuer))
    try:
        await made.settle()
        if begin:
            made.begin()
            await made.settle()
        yield made
    finally:
        await made.end()
        await made.workloads.close()
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()


def machine_controllers(parts: Parts, made: Machines, scripts: Scripts) -> Iterable[Reconciler]:
    """The controllers for single machines; `scripts` gives the install script of a bootstrap."""
    return table.reconcilers(app_parts.Parts(parts.manager, workloads=made.workloads, scripts=scripts), OF_MACHINES)
