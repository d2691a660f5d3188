"""A server that listens, on the real clock, with machineprovision and the runner; the program in Jobs is :mod:`.program`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from remuda import kcm
from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import crds
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.crd_installation import established
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, namespace_of, uid_of
from remuda.kube.owners import reference
from remuda.kube.waits import Wait
from remuda.machines.machineprovision.controller import MachineProvision
from remuda.machines.machineprovision.well_known import CONFIG_MAPS, JOBS, job_name, log_name, state_name
from remuda.machines.nodedrivers.machine_crds import definitions
from remuda.machines.runner.controller import JobRunner, RunnerConfig
from remuda.machines.runner.job_token import cluster_of
from remuda.machines.secretfields.admission import admitted
from remuda.machines.secretfields.vault import Vault
from remuda.runtime import Elector, Manager
from tests.real.taking_up import taken_up
from tests.waiting import until

Obj = dict[str, Any]

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
PAPERS = GroupVersionResource("rke-machine.cattle.io", "v1", "papermachines")
FLEET, DEMO = "fleet-default", "demo"
CREDENTIAL, TOKEN = "cattle-global-data:cc-paper", "paper-s3cret-s3cret"
PROGRAM = (sys.executable, str(Path(__file__).with_name("program.py")))
_FIELDS = {name: {"type": "string", "create": True, "update": True} for name in ("size", "userdata", "sshKey", "password")}
_LABELS = {"cluster.x-k8s.io/cluster-name": DEMO, "rke.cattle.io/cluster-name": DEMO}
_PATIENCE = 240.0
# Each definition costs a moment.
_GROUPS = (management.GROUP, provisioning.GROUP, capi.GROUP)
_KINDS = frozenset({"settings", "nodedrivers", "clusters", "machines"})


class Runners:
    def __init__(self, client: Client, api: Obj, directory: Path, data: Path | None = None) -> None:
        """`client` is an administrator's; `data` is the server's own directory."""
        self.client = client
        self.api = api
        self.directory = directory
        self.data = data
        self.managers: list[tuple[Manager, asyncio.Task[None]]] = []

    def begin(self, *, concurrency: int = 4, elector: Elector | None = None, hosts: Path | None = None) -> Manager:
        """One server's controllers."""
        manager = Manager(self.client, SYSTEM_CLOCK, Rng(len(self.managers)), elector=elector)
        # The stand-in is among the tests.
        path = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(Path(__file__).resolve().parent)}
        environment = {**path, "SERVERS_SECRET": "x", "REMUDA_DATA_DIR": "x"}
        ground = RunnerConfig(lambda: self.api, environment, PROGRAM, concurrency, self.directory, hosts)
        access = ReviewedAccess(self.client, SYSTEM_CLOCK)
        manager.add(MachineProvision(manager, access, environment, local=True))
        manager.add(JobRunner(manager, access, ground))
        self.managers.append((manager, asyncio.create_task(manager.run())))
        return manager

    async def end(self) -> None:
        """As if killed, but for the processes, which see that by themselves."""
        for _, task in self.managers:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.managers), return_exceptions=True)
        self.managers.clear()

    def waits(self) -> list[Wait]:
        return [wait for manager, _ in self.managers for wait in manager.waits()]

    async def find(self, resource: GroupVersionResource, name: str, namespace: str = FLEET) -> Obj | None:
        try:
            return await self.client.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def create(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, namespace_of(obj))

    async def cluster(self) -> None:
        data = {"papercredentialConfig-token": base64.b64encode(TOKEN.encode()).decode()}
        meta = {"name": "cc-paper", "namespace": "cattle-global-data"}
        await self.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        pool = {"name": "w", "workerRole": True, "machineConfigRef": {"kind": "PaperConfig", "name": "c"}}
        spec = {"kubernetesVersion": "v1.34.1+rke2r1", "cloudCredentialSecretName": CREDENTIAL}
        wanted = {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": {"name": DEMO, "namespace": FLEET}}
        await self.create(provisioning.CLUSTERS, {**wanted, "spec": {**spec, "rkeConfig": {"machinePools": [pool]}}})
        ref = {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": DEMO}
        await self.create(capi.CLUSTERS, {**wanted, "apiVersion": capi.API_VERSION, "spec": {"infrastructureRef": ref}})
        ready = {"status": {"initialization": {"infrastructureProvisioned": True}}}
        await self.client.patch(capi.CLUSTERS, DEMO, ready, FLEET, subresource="status")

    async def machine(self, name: str, size: str = "works", **spec: Any) -> Obj:
        meta = {"name": name, "namespace": FLEET, "labels": _LABELS}
        ref = {"apiGroup": "rke-machine.cattle.io", "kind": "PaperMachine", "name": name}
        body = {"clusterName": DEMO, "bootstrap": {"dataSecretName": f"{name}-script"}, "infrastructureRef": ref}
        machine = {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": meta, "spec": body}
        owner = await self.create(capi.MACHINES, machine)
        script = {"value": base64.b64encode(b"the script").decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": f"{name}-script"}, "data": script}
        await self.create(SECRETS, secret)
        owned = {**meta, "ownerReferences": [reference(owner, controller=True)]}
        fields = {"size": size, "common": {"cloudCredentialSecretName": CREDENTIAL}, **spec}
        infra = {"apiVersion": "rke-machine.cattle.io/v1", "kind": "PaperMachine", "metadata": owned, "spec": fields}
        return await self.create(PAPERS, infra)

    # --- what is seen -----------------------------------------------------------------------------------------------------

    async def said(self, name: str, kind: str) -> str:
        infra = await self.find(PAPERS, name) or {}
        return str((condition_of(infra, kind) or {}).get("status") or "")

    async def log(self, name: str) -> str:
        return str(dig(await self.find(CONFIG_MAPS, log_name(name)), "data", "log") or "")

    async def runs(self, name: str) -> int:
        """How often the program was started for a machine, as it kept it."""
        text = dig(await self.find(SECRETS, state_name(name)), "data", "runs")
        return int(base64.b64decode(text)) if text else 0

    async def job(self, name: str) -> Obj | None:
        return await self.find(JOBS, job_name(name))

    def processes(self) -> list[int]:
        """Those of Jobs that run now, of this very server: by the directory in their environment."""
        mark = f"HOME={self.directory}".encode()
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and mark in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    async def eventually(self, check: Callable[[], Awaitable[Any]], what: str = "what is to come true") -> Any:
        return await until(check, what, quiet=_PATIENCE)

    async def until(self, name: str, kind: str, status: str) -> None:
        async def so() -> bool:
            return await self.said(name, kind) == status

        await self.eventually(so, f"{kind} of {name} is {status}")

    async def until_said(self, name: str, words: str) -> str:
        async def so() -> bool:
            return words in await self.log(name)

        await self.eventually(so, f"{name} says {words!r}")
        return await self.log(name)


@contextlib.asynccontextmanager
async def runners(directory: Path) -> AsyncIterator[Runners]:
    server = await Server.open(Config(data_dir=directory / "data", port=0))
    keeping = InProcessClient(server, manager="kube-controller-manager")
    keeper = asyncio.create_task(kcm.run(keeping, SYSTEM_CLOCK, Rng(1), tokens=server.issuer))
    try:
        vault = Vault(InProcessClient(server, manager="remuda"), SYSTEM_CLOCK, server.config.entropy)
        install(admitted(server.source, server.rbac, vault), server.hooks, server.converters)
        await server.listen()
        assert server.pki is not None
        api = cluster_of(server.url, server.pki.ca_pem)
        async with furnished(InProcessClient(server, manager="kubectl"), api, directory, directory / "data") as made:
            yield made
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()


@contextlib.asynccontextmanager
async def furnished(client: Client, api: Obj, directory: Path, data: Path | None = None) -> AsyncIterator[Runners]:
    """A cluster that wants machines, on any Kubernetes."""
    jobs = Path(directory.anchor) / "tmp" / f"remuda-test-{os.getpid()}-{directory.name}"
    jobs.mkdir(mode=0o755, exist_ok=True)
    made = Runners(client, api, jobs, data)
    try:
        wanted = [each for each in crds(list(_GROUPS)) if each["spec"]["names"]["plural"] in _KINDS]
        wanted += definitions("paper", {"resourceFields": _FIELDS})
        for crd in wanted:
            await made.create(CRDS, crd)
        await established(made.client, SYSTEM_CLOCK, [each["metadata"]["name"] for each in wanted])
        await taken_up(client, wanted)
        for name in (FLEET, "cattle-global-data"):
            await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        annotations = {"nodedriver.cattle.io/file-to-field-aliases": "userdata:userdata,sshKey:sshKey"}
        driver = {"metadata": {"name": "paper", "annotations": annotations}, "spec": {"active": True, "url": "local://"}}
        await made.create(management.NODE_DRIVERS, {"apiVersion": management.API_VERSION, "kind": "NodeDriver", **driver})
        await made.cluster()
        yield made
    finally:
        await made.end()
        with contextlib.suppress(OSError):
            jobs.rmdir()


def forged(infra: Obj, name: str = "") -> Obj:
    """A Job that looks like the machine's, made by somebody else."""
    own = infra["metadata"]["name"]
    labels = {
        "rke.cattle.io/infra-machine-group": "rke-machine.cattle.io",
        "rke.cattle.io/infra-machine-version": "v1",
        "rke.cattle.io/infra-machine-kind": "PaperMachine",
        "rke.cattle.io/infra-machine-name": own,
        "rke.cattle.io/infra-remove": "true",
        "rke.cattle.io/capi-machine-name": own,
    }
    container = {"name": "machine", "image": "evil", "command": ["touch", "/tmp/evil"], "args": ["rm", "-y", own]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    owner = {"apiVersion": infra["apiVersion"], "kind": infra["kind"], "name": own, "uid": uid_of(infra), "controller": True}
    meta = {"name": name or job_name(own), "namespace": FLEET, "labels": labels, "ownerReferences": [owner]}
    spec = {"managedBy": "remuda.dev/job-runner", "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
