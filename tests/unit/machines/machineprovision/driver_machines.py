"""A management API on the virtual clock with clusters whose machines a driver makes, and a hand that does the work of Jobs."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import API_VERSION, NODE_DRIVERS
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.kube.builtin_resources import CRDS, NAMESPACES, SECRETS
from remuda.kube.objects import GroupVersionResource, dig
from remuda.kube.owners import reference
from remuda.machines import machine_state
from remuda.machines.machineprovision.controller import MachineProvision
from remuda.machines.machineprovision.job_outcome import JobAttempt, attempts_of
from remuda.machines.machineprovision.well_known import CONFIG_MAPS, JOBS, STATE_KEY, attempts_name, job_name, state_name
from remuda.machines.nodedrivers.machine_crds import definitions
from remuda.machines.runner import job_status
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machines

Obj = dict[str, Any]

PAPERS = GroupVersionResource("rke-machine.cattle.io", "v1", "papermachines")
CREDENTIAL = "cattle-global-data:cc-paper"
FIELDS = {name: {"type": "string", "create": True, "update": True} for name in ("size", "userdata")}
_LABELS = {
    "cluster.x-k8s.io/cluster-name": DEMO,
    "rke.cattle.io/cluster-name": DEMO,
    "rke.cattle.io/rke-machine-pool-name": "workers",
}


class Papers:
    """The world, with machines of the driver `paper`."""

    def __init__(self, world: Machines) -> None:
        self.world = world

    async def cluster(self, credential: str = "") -> Obj:
        """A cluster that somebody asked for, up to where its machines are made."""
        pool = {"name": "workers", "quantity": 1, "workerRole": True, "machineConfigRef": {"kind": "PaperConfig", "name": "c"}}
        spec = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {"machinePools": [pool]}}
        if credential:
            spec["cloudCredentialSecretName"] = credential
        wanted = await self.world.wanted(DEMO, FLEET, **spec)
        await self.world.demo()
        return wanted

    async def credential(self, **fields: str) -> Obj:
        if await self.world.find(NAMESPACES, "cattle-global-data") is None:
            await self.world.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-global-data"}}
            )
        meta = {"name": "cc-paper", "namespace": "cattle-global-data"}
        data = {f"papercredentialConfig-{name}": base64.b64encode(value.encode()).decode() for name, value in fields.items()}
        return await self.world.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})

    async def machine(self, name: str = "m1", *, credential: str = "", bootstrapped: bool = True, **spec: Any) -> Obj:
        """A Machine as Cluster API makes it, and its PaperMachine."""
        common = {"common": {"cloudCredentialSecretName": credential}} if credential else {}
        ref = {"apiGroup": "rke-machine.cattle.io", "kind": "PaperMachine", "name": name}
        body: Obj = {"clusterName": DEMO, "bootstrap": {"dataSecretName": f"{name}-script"}, "infrastructureRef": ref}
        if not bootstrapped:
            body["bootstrap"] = {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}}
        meta: Obj = {"name": name, "namespace": FLEET, "labels": _LABELS}
        machine = await self.world.create(
            capi.MACHINES, {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": meta, "spec": body}
        )
        script = {"value": base64.b64encode(b"#!/bin/sh\n").decode()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{name}-script", "namespace": FLEET},
            "data": script,
        }
        await self.world.create(SECRETS, secret)
        owned = {**meta, "ownerReferences": [reference(machine, controller=True)]}
        infra = {"apiVersion": "rke-machine.cattle.io/v1", "kind": "PaperMachine", "metadata": owned, "spec": {**spec, **common}}
        return await self.world.create(PAPERS, infra)

    async def get(self, name: str = "m1") -> Obj:
        return await self.world.get(PAPERS, name, FLEET)

    async def gone(self, name: str = "m1") -> bool:
        return await self.world.find(PAPERS, name, FLEET) is None

    async def job(self, name: str = "m1") -> Obj | None:
        return await self.world.find(JOBS, job_name(name), FLEET)

    async def condition(self, kind: str, name: str = "m1") -> tuple[str, str]:
        """Status and reason."""
        found = condition_of(await self.get(name), kind) or {}
        return found.get("status", ""), found.get("reason", "")

    async def attempts(self) -> list[JobAttempt]:
        return attempts_of(await self.world.find(CONFIG_MAPS, attempts_name(DEMO, "workers"), FLEET))

    # --- what a Job's program does ----------------------------------------------------------------------------------------

    async def keep(self, name: str = "m1", *, empty: bool = False) -> None:
        """The program keeps its machine, or that there is none any more."""
        data = machine_state.write(name, {} if empty else {"config.json": b"{}"})
        patch = {"data": {STATE_KEY: base64.b64encode(data).decode()}}
        await self.world.patch(SECRETS, state_name(name), patch, FLEET)

    async def begins(self, name: str = "m1") -> None:
        await self._status(name, lambda job: job_status.began(job, self.world.clock.time()))

    async def succeeds(self, name: str = "m1") -> None:
        await self._status(name, lambda job: job_status.succeeded(job, self.world.clock.time()))
        await self.world.settle()

    async def fails(self, said: str = "AuthFailed: the key is wrong", name: str = "m1") -> None:
        await self._status(name, lambda job: job_status.failed(job, said, self.world.clock.time(), retries=0))
        await self.world.settle()

    async def _status(self, name: str, patch: Any) -> None:
        job = await self.job(name)
        assert job is not None, "there is no Job"
        await self.world.patch(JOBS, job_name(name), patch(job), FLEET, "status")

    async def made(self, name: str = "m1") -> Obj:
        """Until the machine is there."""
        await self.machine(name)
        await self.world.settle()
        await self.begins(name)
        await self.keep(name)
        await self.succeeds(name)
        return await self.get(name)


@contextlib.asynccontextmanager
async def papers(*, local: bool = True, begin: bool = True) -> AsyncIterator[Papers]:
    def provision(parts: Parts, world: Machines) -> list[Reconciler]:
        access = ReviewedAccess(parts.manager.client, parts.manager.clock)
        return [MachineProvision(parts.manager, access, {}, local=local)]

    async with machines(provision, begin=False) as world:
        for crd in definitions("paper", {"resourceFields": FIELDS}):
            await world.create(CRDS, crd)
        annotations = {"nodedriver.cattle.io/file-to-field-aliases": "userdata:userdata"}
        driver = {"metadata": {"name": "paper", "annotations": annotations}, "spec": {"active": True, "url": "local://"}}
        await world.create(NODE_DRIVERS, {"apiVersion": API_VERSION, "kind": "NodeDriver", **driver})
        if begin:
            world.begin()
        await world.settle()
        yield Papers(world)


def provider_id(obj: Obj) -> str:
    return str(dig(obj, "spec", "providerID") or "")


CLUSTERS = provisioning.CLUSTERS
