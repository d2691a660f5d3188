"""Two management clusters, both real, with the same simulated providers: upstream's core reconciles one, Remuda's the other.

Remuda's side also has its own CRDs and webhooks, so whatever differs is the core's doing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from remuda.api import crds
from remuda.api.cluster_x_k8s_io import MACHINE_HEALTH_CHECKS, MACHINE_SETS
from remuda.apiserver.keys.pki import Pki
from remuda.app import controllers as table
from remuda.app.parts import Parts
from remuda.capi.admission import admitted
from remuda.capi.clustercache import HttpsConnector
from remuda.capi.controller_context import Core
from remuda.capi.conversion import converter
from remuda.capi.well_known import CLUSTER_NAME
from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.lab.sim.capi_world import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINES, World
from remuda.lab.sim.providers import (
    SIM_CLUSTERS,
    SIM_CONFIG_TEMPLATES,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
)
from remuda.lab.sim.providers import crds as sim_crds
from remuda.lab.sim.workload_clusters import SimulatedClusters
from remuda.runtime import Manager
from remuda.runtime.webhook_certificates import SharedCertificates
from remuda.runtime.webhook_server import Registration, WebhookAddress, WebhookServer
from tests.api.harness import Endpoint
from tests.e2e import upstream_capi
from tests.real.cluster import RealCluster
from tests.real.ports import free_ports
from tests.unit.capi.memory_clusters import INFRA, provider_crd

from .places import Meeting, defaulted, patiently, started
from .reduction import PASSING_EVENTS, POKE, Names, reduced
from .replicas import Patient

Obj = dict[str, Any]
OURS, THEIRS = "ours", "theirs"
EVENTS = GroupVersionResource("", "v1", "events")
SECRETS = GroupVersionResource("", "v1", "secrets")

REMEDIATIONS = GroupVersionResource(INFRA, "v1", "testremediations")
REMEDIATION_TEMPLATES = GroupVersionResource(INFRA, "v1", "testremediationtemplates")

COMPARED = {
    "remediations": REMEDIATIONS,
    "clusters": CLUSTERS,
    "machinedeployments": MACHINE_DEPLOYMENTS,
    "machinesets": MACHINE_SETS,
    "machines": MACHINES,
    "machinehealthchecks": MACHINE_HEALTH_CHECKS,
    "simclusters": SIM_CLUSTERS,
    "simmachines": SIM_MACHINES,
    "simmachinetemplates": SIM_MACHINE_TEMPLATES,
    "simconfigs": SIM_CONFIGS,
    "simconfigtemplates": SIM_CONFIG_TEMPLATES,
    "simcontrolplanes": SIM_CONTROL_PLANES,
}


class Side(World):
    """One core's namespace."""

    core = ""
    pokes = 0
    pki: Pki
    meeting: Meeting

    async def snapshot(self, cluster: str) -> Obj:
        """Everything of a cluster, comparable."""
        found: dict[str, list[Obj]] = {}
        for name, resource in COMPARED.items():
            listed = await self.all(resource)
            found[name] = [obj for obj in listed if _of(obj, cluster)]
        everything = [obj for objs in found.values() for obj in objs]
        names = Names(everything)
        result: Obj = {
            kind: {names.plain(obj["metadata"]["name"]): reduced(obj, names) for obj in objs} for kind, objs in found.items()
        }
        result["events"] = await self._events(names, cluster)
        result["nodes"] = await self._nodes(names, cluster)
        result["secrets"] = {
            names.plain(obj["metadata"]["name"]): sorted(obj.get("data") or {})
            for obj in await self.all(SECRETS, f"{CLUSTER_NAME}={cluster}")
        }
        return result

    async def _events(self, names: Names, cluster: str) -> dict[str, str]:
        found = set()
        for event in await self.all(EVENTS):
            about = event["involvedObject"]
            if event["reason"] in PASSING_EVENTS:
                continue
            if about["apiVersion"].startswith("cluster.x-k8s.io/") and about["name"].startswith(cluster):
                found.add(f"{about['kind']} {names.gone(names.plain(about['name']))} {event['type']} {event['reason']}")
        return dict.fromkeys(sorted(found), "sent")

    async def _nodes(self, names: Names, cluster: str) -> Obj:
        workload = self.clusters.get(Key(self.namespace, cluster))
        if workload is None:
            return {}
        nodes = (await workload.client.list(NODES))["items"]
        known = {dig(machine, "status", "nodeRef", "name") for machine in await self.machines(cluster)}
        return {
            names.plain(node["metadata"]["name"]): _node(node, names) for node in nodes if node["metadata"]["name"] in known
        } | {"without a machine": sum(node["metadata"]["name"] not in known for node in nodes)}

    async def settled(self, cluster: str, quiet: float = 3.0) -> Obj:
        """The snapshot once nothing changes any more, and the other side's is like it, or another one for long."""
        found: Obj = await self.meeting.agreed(self.core, cluster, lambda: self._settled(cluster, quiet))
        return found

    async def _settled(self, cluster: str, quiet: float) -> Obj:
        """The snapshot once nothing has changed for a while, nor after the core was made to look at the Cluster again.

        Upstream's sums of machines follow only some of what they sum up; the rest waits for the next look.
        """
        await self._quiet(cluster, quiet)
        if await self.find(CLUSTERS, cluster) is not None:
            self.pokes += 1
            await self.patch(CLUSTERS, cluster, {"metadata": {"annotations": {POKE: str(self.pokes)}}})
        return await self._quiet(cluster, quiet)

    async def _quiet(self, cluster: str, quiet: float, seconds: float = 600.0) -> Obj:
        before = await self.snapshot(cluster)
        still = SYSTEM_CLOCK.monotonic()
        end = still + seconds
        while SYSTEM_CLOCK.monotonic() - still < quiet:
            await self.settle(0.5)
            now = await self.snapshot(cluster)
            if now != before:
                before, still = now, SYSTEM_CLOCK.monotonic()
            if SYSTEM_CLOCK.monotonic() > end:
                raise AssertionError(f"{self.core}: {cluster} does not come to rest")
        return before


def _of(obj: Obj, cluster: str) -> bool:
    name: str = obj["metadata"]["name"]
    return name == cluster or name.startswith(f"{cluster}-")


def _node(node: Obj, names: Names) -> Obj:
    meta = node["metadata"]
    plain = {"metadata": {**meta, "uid": "", "creationTimestamp": ""}, "spec": node.get("spec") or {}}
    return reduced(plain, names)


Scenario = Callable[[Side], Awaitable[dict[str, Obj]]]


class Both:
    def __init__(self, ours: Side, theirs: Side, alike: Callable[[Obj, Obj], bool]) -> None:
        self.ours = ours
        self.theirs = theirs
        ours.meeting = theirs.meeting = Meeting(OURS, THEIRS, alike=alike)

    async def play(self, scenario: Scenario) -> tuple[dict[str, Obj], dict[str, Obj]]:
        """The same story on both sides, at the same time."""
        found = await asyncio.gather(scenario(self.ours), scenario(self.theirs))
        return found[0], found[1]


@contextlib.asynccontextmanager
async def both_sides(directory: Path, *upstream_flags: str, alike: Callable[[Obj, Obj], bool]) -> AsyncIterator[Both]:
    # One API server each: upstream's `--namespace` does not work in the version that is pinned, so they can't share one.
    async with contextlib.AsyncExitStack() as stack:
        mine, other = await asyncio.gather(started(stack), started(stack))
        theirs, ours = await asyncio.gather(
            stack.enter_async_context(upstream_side(other, directory / THEIRS, *upstream_flags)),
            stack.enter_async_context(our_side(mine, directory / OURS)),
        )
        # A server hears of webhooks a moment after they were configured.
        await asyncio.gather(*(patiently(lambda side=side: defaulted(side)) for side in (ours, theirs)))  # type: ignore[misc]
        yield Both(ours, theirs, alike)


@contextlib.asynccontextmanager
async def upstream_side(real: RealCluster, directory: Path, *flags: str) -> AsyncIterator[Side]:
    endpoint = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    upstream = upstream_capi.Manager("upstream", endpoint, Path(real.kubeconfig), directory, *flags)
    try:
        await asyncio.to_thread(upstream.start)
        async with _providers(real, directory, THEIRS) as side:
            yield side
    finally:
        upstream.stop()


@contextlib.asynccontextmanager
async def our_side(real: RealCluster, directory: Path) -> AsyncIterator[Side]:
    clock = SYSTEM_CLOCK
    async with HttpsClient.from_kubeconfig(Path(real.kubeconfig)) as client, _providers(real, directory, OURS, crds()) as side:
        manager = Manager(client, clock, Rng())
        connector = HttpsConnector(clock, policy=lambda: Policy.of("allow:127.0.0.0/8"))
        parts = Parts(manager, connector=connector)
        table.add(parts, table.names(table.CAPI))
        async with _webhooks(client, parts.core), _running(manager.run()):
            yield side


@contextlib.asynccontextmanager
async def _webhooks(client: HttpsClient, core: Core) -> AsyncIterator[None]:
    types = admitted(converter(core.contracts))
    (port,) = free_ports(1)
    address = WebhookAddress(url=f"https://127.0.0.1:{port}")
    certificates = SharedCertificates(
        client, SYSTEM_CLOCK, Entropy(), namespace="default", name="remuda-webhooks", names=address.names()
    )
    hooks = WebhookServer(types, certificates, Registration(client, "remuda", types, address), SYSTEM_CLOCK, Rng())
    await hooks.open("127.0.0.1", port)
    try:
        yield
    finally:
        await hooks.close()


@contextlib.asynccontextmanager
async def _providers(real: RealCluster, directory: Path, name: str, definitions: Iterable[Obj] = ()) -> AsyncIterator[Side]:
    """The simulated providers on one API server, their workload clusters listening."""
    clock = SYSTEM_CLOCK
    pki = Pki.ensure(directory / "workload-pki", ["127.0.0.1"], clock, Entropy())
    clusters = SimulatedClusters(clock, Rng(), Entropy(), pki=pki, pods=True)
    kubeconfig = Path(real.kubeconfig)
    async with HttpsClient.from_kubeconfig(kubeconfig) as user, HttpsClient.from_kubeconfig(kubeconfig) as own:
        side = Side(Patient(user), own, clock, clusters)
        side.core = name
        side.pki = pki
        others = (provider_crd(INFRA, kind) for kind in ("TestRemediation", "TestRemediationTemplate"))
        await side.prepare([*definitions, *sim_crds(), *others])
        try:
            async with _running(side.manager.run()):
                yield side
        finally:
            await clusters.close()


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
