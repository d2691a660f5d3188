"""Machines of pools, in memory: replaces the programs in Jobs, and the infrastructure where they would make machines.

machineprovision makes its Jobs as usual. Each is done here after a while: a host starts that runs the script of its machine (a
:class:`~.hosts.SimulatedHost` that registers with the script's token), or ends as if its power were cut. Its driver is `paper`.
"""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api.management_cattle_io import API_VERSION
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, labels_of, name_of, namespace_of, uid_of
from remuda.machines import machine_state
from remuda.machines.machine_state import MachineState, Phase, dumps
from remuda.machines.machineprovision.well_known import CAPI_MACHINE, INFRA_NAME, INFRA_REMOVE, JOBS, STATE_KEY, state_name
from remuda.machines.nodedrivers.driver_schemas import NODE_TEMPLATE
from remuda.machines.nodedrivers.machine_crds import definitions
from remuda.machines.runner import job_status
from remuda.provisioning.well_known import (
    CONTROL_PLANE_ROLE,
    ETCD_ROLE,
    MACHINE_API_VERSION,
    MACHINE_GROUP,
    WORKER_ROLE,
    resource_of,
)
from remuda.runtime import Informers

from .delays_and_faults import Span
from .hosts import SimulatedHost, SimulatedHosts

Obj = dict[str, Any]

DRIVER = "paper"
FIELDS = ("size", "disk", "userdata", "sshKey")
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "paperconfigs")
MACHINES = GroupVersionResource("rke-machine.cattle.io", "v1", "papermachines")
TEMPLATES = GroupVersionResource("rke-machine.cattle.io", "v1", "papermachinetemplates")
_ROLES = ((ETCD_ROLE, "e"), (CONTROL_PLANE_ROLE, "c"), (WORKER_ROLE, "w"))
_TOKEN = re.compile(rb'^CATTLE_TOKEN="?([^"\n]+)"?$', re.MULTILINE)
_HOSTNAME = "--hostname-override="
_ALWAYS = 10**9


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Seconds until a machine exists, and until it is gone."""

    create: Span = (2.0, 6.0)
    remove: Span = (1.0, 3.0)


def schema(*fields: str) -> Obj:
    """The DynamicSchema of the driver, with `fields`."""
    known = {each: {"type": "string", "create": True, "update": True, "description": each} for each in fields}
    return {
        "apiVersion": API_VERSION,
        "kind": "DynamicSchema",
        "metadata": {"name": f"{DRIVER}config"},
        "spec": {"resourceFields": known},
    }


def offered() -> Obj:
    """The DynamicSchema that lists the active drivers."""
    return {
        "apiVersion": API_VERSION,
        "kind": "DynamicSchema",
        "metadata": {"name": NODE_TEMPLATE},
        "spec": {"resourceFields": {f"{DRIVER}Config": {"type": f"{DRIVER}config", "create": True, "update": True}}},
    }


def crds(*fields: str) -> list[Obj]:
    return definitions(DRIVER, schema(*fields)["spec"])


def config(name: str, namespace: str, **fields: str) -> Obj:
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "PaperConfig",
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


def pool(name: str, roles: str, quantity: int = 1, config: str = "small", **fields: Any) -> Obj:
    """`roles` are letters: e, c, w."""
    named = {"e": "etcdRole", "c": "controlPlaneRole", "w": "workerRole"}
    ref = {"kind": "PaperConfig", "name": config}
    return {"name": name, "quantity": quantity, "machineConfigRef": ref, **{named[each]: True for each in roles}, **fields}


class Trouble(Enum):
    """The failure of a machine with a bad config."""

    NOT_MADE = "its provider refuses it"
    NEVER_REGISTERS = "it is made, and its host never registers"
    PLANS_FAIL = "its host registers, and whatever it is to install fails"


@dataclass
class SimulatedJobs:
    """`failures` are the errors of the next Jobs that make machines, in the words of their programs. On the next `silent`
    machines no script ever runs. `troubles` apply to every machine of a size, again and again."""

    client: Client
    park: SimulatedHosts
    clock: Clock
    rng: Rng
    times: JobTimes = field(default_factory=JobTimes)
    failures: list[str] = field(default_factory=list)
    silent: int = 0
    troubles: dict[str, Trouble] = field(default_factory=dict)
    # The distribution of new hosts.
    runtime: str = "remuda"
    # By the name of the infrastructure machine: the existing hosts.
    hosts: dict[Key, SimulatedHost] = field(default_factory=dict)
    # Every machine that was made or removed, in order.
    made: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    async def run(self) -> None:
        informers = Informers(self.client, self.clock, self.rng)
        jobs = informers.of(JOBS, labels=INFRA_NAME)
        begun: set[str] = set()
        async with asyncio.TaskGroup() as group:

            def look(new: Obj | None, old: Obj | None) -> None:
                if new is not None and uid_of(new) not in begun and not job_status.is_over(new):
                    begun.add(uid_of(new))
                    group.create_task(self._run(new), name=f"job {name_of(new)}")

            jobs.on_change(look)
            group.create_task(informers.run())

    async def _run(self, job: Obj) -> None:
        try:
            job = await self._say(job, job_status.began(job, self.clock.time()))
            if labels_of(job)[INFRA_REMOVE] == "true":
                await self.clock.sleep(self.rng.uniform(*self.times.remove))
                await self._remove(job)
            elif (failure := await self._create(job)) is not None:
                retries = int(dig(job, "spec", "backoffLimit") or 0)
                await self._say(job, job_status.failed(job, failure, self.clock.time(), retries=retries))
                return
            await self._say(job, job_status.succeeded(job, self.clock.time()))
        except ApiError as error:
            # Its machine was given up meanwhile, and the Job with it.
            if not error.is_not_found:
                raise

    def adopt(self, machine: Obj, host: SimulatedHost) -> None:
        """The host of a Machine that a Job made before the simulation, which a Job is to remove again."""
        ref = dig(machine, "spec", "infrastructureRef") or {}
        if ref.get("apiGroup") == MACHINE_GROUP:
            self.hosts[Key(namespace_of(machine), str(ref.get("name") or ""))] = host

    async def _say(self, job: Obj, patch: Obj) -> Obj:
        return await self.client.patch(JOBS, name_of(job), patch, namespace_of(job), subresource="status")

    async def _create(self, job: Obj) -> str | None:
        """Create a machine; the error, if any. The program reads all its inputs before it begins."""
        key, namespace = Key(namespace_of(job), labels_of(job)[INFRA_NAME]), namespace_of(job)
        machine = await find(self.client, capi.MACHINES, labels_of(job)[CAPI_MACHINE], namespace)
        script = await find(self.client, SECRETS, dig(machine, "spec", "bootstrap", "dataSecretName") or "", namespace)
        token = _TOKEN.search(base64.b64decode(dig(script, "data", "value") or ""))
        await self.clock.sleep(self.rng.uniform(*self.times.create))
        if machine is None or token is None:
            return "Invalid: there is no script to run"
        if self.failures:
            return self.failures.pop(0)
        kind = str(dig(machine, "spec", "infrastructureRef", "kind") or "")
        infra = await self.client.get(resource_of(MACHINE_API_VERSION, kind), key.name, namespace)
        trouble = self.troubles.get(dig(infra, "spec", "size") or "")
        if trouble is Trouble.NOT_MADE:
            return f"Invalid: there is no size {dig(infra, 'spec', 'size')}"
        if key not in self.hosts:
            cluster = Key(namespace, dig(machine, "spec", "clusterName"))
            roles = letters_of(machine)
            known = "garbled" if trouble is Trouble.NEVER_REGISTERS else token[1].decode()
            self.hosts[key] = await self.park.add(cluster, "", _hostname(job), roles, self.runtime, known)
            self.hosts[key].failing = _ALWAYS if trouble is Trouble.PLANS_FAIL else 0
            self.made.append(key.name)
            if self.silent:
                self.silent -= 1
                await self.park.kill(self.hosts[key])
        kept = MachineState(
            key.name, kind.removesuffix("Machine").lower(), {"IPAddress": self.hosts[key].address}, phase=Phase.READY
        )
        await self._keep(key, dumps(kept, machine_state.HOME))
        return None

    async def _remove(self, job: Obj) -> None:
        key = Key(namespace_of(job), labels_of(job)[INFRA_NAME])
        host = self.hosts.pop(key, None)
        if host is not None:
            await self.park.remove(host)
            self.removed.append(key.name)
        await self._keep(key, {})

    async def _keep(self, key: Key, files: dict[str, bytes]) -> None:
        data = {STATE_KEY: base64.b64encode(machine_state.write(key.name, files)).decode()}
        await self.client.patch(SECRETS, state_name(key.name), {"data": data}, key.namespace)


def letters_of(machine: Obj) -> str:
    """The roles of a Machine as letters."""
    return "".join(letter for label, letter in _ROLES if labels_of(machine).get(label) == "true")


def _hostname(job: Obj) -> str:
    """The host name that the program would set."""
    said = dig(job, "spec", "template", "spec", "containers")[0]["args"]
    return next((str(each).removeprefix(_HOSTNAME) for each in said if each.startswith(_HOSTNAME)), str(said[-1]))
