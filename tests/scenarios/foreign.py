"""A provider that is not ours and knows nothing of us but Cluster API's contract: its machines run cloud-config."""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
from dataclasses import dataclass, field
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.apiserver.inprocess import InProcessClient
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Rng
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.owners import with_finalizer, without_finalizer
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.providers import FINALIZER, SIM_CLUSTERS, SIM_MACHINES
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.runtime import Informers

Obj = dict[str, Any]

HEAD = "## template: jinja\n#cloud-config\n"
ENDPOINT = {"host": "10.99.0.1", "port": 6443}
_TOKEN = re.compile(rb'^CATTLE_TOKEN="?([^"\n]+)"?$', re.MULTILINE)
_ROLES = {"etcd": "e", "control-plane": "c", "worker": "w"}


@dataclass
class ForeignProvider:
    world: ProvisioningWorld
    # What each machine was started with, by name.
    started: dict[str, Obj] = field(default_factory=dict)
    hosts: dict[Key, SimulatedHost] = field(default_factory=dict)
    _looking: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def client(self) -> Client:
        return InProcessClient(self.world.server, manager="foreign")

    async def run(self) -> None:
        informers = Informers(self.client, self.world.clock, Rng(9))
        followed = [informers.of(each) for each in (SIM_CLUSTERS, SIM_MACHINES, capi.MACHINES)]
        for each in followed:
            each.on_change(lambda new, old: self._looking.set())
        following = asyncio.create_task(informers.run())
        try:
            while True:
                await self._looking.wait()
                self._looking.clear()
                await self.world.clock.sleep(0.5)
                await self._look()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _look(self) -> None:
        client = self.client
        for cluster in (await client.list(SIM_CLUSTERS))["items"]:
            if dig(cluster, "spec", "controlPlaneEndpoint") is None and owner_references_of(cluster):
                await self._patch(SIM_CLUSTERS, cluster, {"spec": {"controlPlaneEndpoint": ENDPOINT}})
                await self._patch(SIM_CLUSTERS, cluster, _ready({"provisioned": True}), "status")
        for machine in (await client.list(SIM_MACHINES))["items"]:
            try:
                await (self._remove(machine) if is_being_deleted(machine) else self._make(machine))
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):
                    raise
                self._looking.set()

    async def _make(self, infra: Obj) -> None:
        key = Key.of(infra)
        owner = next((each["name"] for each in owner_references_of(infra) if each["kind"] == "Machine"), "")
        machine = await find(self.client, capi.MACHINES, owner, key.namespace) if owner else None
        data = await find(self.client, SECRETS, dig(machine, "spec", "bootstrap", "dataSecretName") or "", key.namespace)
        if machine is None or data is None or key in self.hosts:
            return
        if FINALIZER not in (infra["metadata"].get("finalizers") or ()):
            await self.client.update(SIM_MACHINES, with_finalizer(infra, FINALIZER))
            return
        started = read(base64.b64decode(data["data"]["value"]))
        self.started[key.name] = started
        said = labels_of(machine)
        roles = "".join(letter for role, letter in _ROLES.items() if said.get(f"rke.cattle.io/{role}-role") == "true")
        cluster = Key(key.namespace, dig(machine, "spec", "clusterName"))
        self.hosts[key] = await self.world.hosts.add(cluster, "", key.name, roles, token=started["token"])
        await self._patch(SIM_MACHINES, infra, {"spec": {"providerID": f"remuda://{key.name}"}})
        addresses = [{"type": "InternalIP", "address": self.hosts[key].address}]
        await self._patch(SIM_MACHINES, infra, _ready({"provisioned": True}, addresses=addresses), "status")

    async def _remove(self, infra: Obj) -> None:
        host = self.hosts.pop(Key.of(infra), None)
        if host is not None:
            await self.world.hosts.remove(host)
        await self.client.update(SIM_MACHINES, without_finalizer(infra, FINALIZER))

    async def _patch(self, resource: GroupVersionResource, obj: Obj, patch: Obj, subresource: str = "") -> None:
        await self.client.patch(resource, name_of(obj), patch, namespace_of(obj), subresource=subresource)


def _ready(initialization: Obj, **status: Any) -> Obj:
    condition = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"status": {"initialization": initialization, "conditions": [condition], **status}}


def read(data: bytes) -> Obj:
    """Cloud-config as cloud-init would read it; and the token in the script that it runs first."""
    text = data.decode()
    assert text.startswith(HEAD), text[:80]
    found: Obj = dict(yamlio.loads(text.removeprefix("## template: jinja\n")) or {})
    first = found["write_files"][0]
    script = gzip.decompress(base64.b64decode(first["content"]))
    token = _TOKEN.search(script)
    assert token is not None and found["runcmd"][0] == f"sh {first['path']}"
    return {**found, "token": token[1].decode()}
