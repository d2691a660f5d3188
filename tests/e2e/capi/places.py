"""Management clusters as users have them: `remuda serve`, or a real kube-apiserver with `remuda controllers`.

Each is a process or several. The simulated providers run in the test, over HTTPS, and all places may share one set of simulated
workload clusters, which listen: a cluster can move from one place to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.api import crds
from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.api.clusterctl_cluster_x_k8s_io import GROUP as PROVIDERS_GROUP
from remuda.apiserver.keys.pki import Pki
from remuda.client.https import HttpsClient
from remuda.clusterctl.providers import CORE
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig
from remuda.lab.sim.capi_world import NAMESPACE, World
from remuda.lab.sim.providers import BOOTSTRAP, INFRASTRUCTURE, SIM_CLUSTERS, ref
from remuda.lab.sim.providers import crds as sim_crds
from remuda.lab.sim.workload_clusters import SimulatedClusters
from tests.api.harness import Endpoint, RemudaProcess
from tests.e2e import upstream_capi
from tests.e2e.test_controllers_command import replica
from tests.real.cluster import RealCluster

from .reduction import Names, reduced

Obj = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs" / "clusterctl.md"


@dataclass
class Place:
    name: str
    kubeconfig: Path
    world: World
    endpoint: Endpoint
    log: Path

    def seen(self, namespace: str) -> Place:
        """The same place, looked at in another namespace; its providers work in all."""
        world = self.world
        return replace(self, world=World(world.client, world.client, world.clock, world.clusters, namespace=namespace))

    def tracebacks(self) -> list[str]:
        """What no log of ours may hold."""
        return [line for line in self.log.read_text().splitlines() if "Traceback" in line or "was never retrieved" in line]


async def started(stack: contextlib.AsyncExitStack) -> RealCluster:
    """A real control plane, stopped with the stack."""
    real = RealCluster(controllers=True, fsync=False)
    stack.callback(real.stop)
    await asyncio.to_thread(real.start)
    return real


@contextlib.asynccontextmanager
async def workloads(directory: Path) -> AsyncIterator[SimulatedClusters]:
    """Simulated workload clusters that anybody can reach."""
    pki = Pki.ensure(directory / "workload-pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    clusters = SimulatedClusters(SYSTEM_CLOCK, Rng(), Entropy(), pki=pki)
    try:
        yield clusters
    finally:
        await clusters.close()


@contextlib.asynccontextmanager
async def embedded(directory: Path, clusters: SimulatedClusters, definitions: Iterable[Obj] = ()) -> AsyncIterator[Place]:
    """`remuda serve`."""
    process = RemudaProcess(directory / "data", "--controllers=*,-access")
    await asyncio.to_thread(process.start)
    try:
        async with _furnished(process.kubeconfig, clusters, definitions) as world:
            yield Place("embedded", process.kubeconfig, world, process.endpoint, process.log)
    finally:
        await asyncio.to_thread(process.stop)


@contextlib.asynccontextmanager
async def attached(
    real: RealCluster, directory: Path, clusters: SimulatedClusters, definitions: Iterable[Obj] = ()
) -> AsyncIterator[Place]:
    """A real kube-apiserver, and `remuda controllers` on it."""
    kubeconfig = Path(real.kubeconfig)
    endpoint = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    manager = replica(kubeconfig, directory, "controllers")
    made = await asyncio.to_thread(manager.__enter__)
    try:
        async with _furnished(kubeconfig, clusters, definitions) as world:
            yield Place("attached", kubeconfig, world, endpoint, made.log)
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


class Upstream(upstream_capi.Manager):
    """Its definitions as clusterctl installs them: it finds them by a label of its own."""

    labels = {"cluster.x-k8s.io/v1beta2": "v1beta2", "clusterctl.cluster.x-k8s.io": ""}


@contextlib.asynccontextmanager
async def upstream(
    real: RealCluster, directory: Path, clusters: SimulatedClusters, namespace: str, *flags: str
) -> AsyncIterator[Place]:
    """A real kube-apiserver, and upstream's core on it."""
    kubeconfig = Path(real.kubeconfig)
    endpoint = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
    manager = Upstream("upstream", endpoint, kubeconfig, directory, *flags)
    try:
        await asyncio.to_thread(manager.start)
        await asyncio.to_thread(_listed, manager)
        async with _furnished(kubeconfig, clusters, (), namespace) as world:
            yield Place("upstream", kubeconfig, world, endpoint, manager.log)
    finally:
        await asyncio.to_thread(manager.stop)


def _listed(manager: Upstream) -> None:
    """As clusterctl leaves the core that it installs: a move needs every provider of one place at the other, too."""
    for definition in crds([PROVIDERS_GROUP]):
        manager.apply(definition, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        manager.until("the inventory", functools.partial(manager.established, definition))
    manager.apply(CORE.entry(manager.namespace), f"/apis/{PROVIDERS_GROUP}/v1alpha3/namespaces/{manager.namespace}/providers")


@contextlib.asynccontextmanager
async def _furnished(
    kubeconfig: Path, clusters: SimulatedClusters, definitions: Iterable[Obj], namespace: str = NAMESPACE
) -> AsyncIterator[World]:
    async with HttpsClient.from_kubeconfig(kubeconfig) as user, HttpsClient.from_kubeconfig(kubeconfig) as own:
        world = World(user, own, SYSTEM_CLOCK, clusters, namespace=namespace)
        await world.prepare([*sim_crds(), *definitions])
        await patiently(lambda: user.list(SIM_CLUSTERS))
        await patiently(lambda: defaulted(world))
        task = asyncio.create_task(world.manager.run())
        try:
            yield world
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def defaulted(world: World) -> bool:
    """Whether the core's rules are there: they come a moment after its definitions."""
    await world.client.list(CLUSTERS._replace(version="v1beta1"))
    spec = {
        "clusterName": "c",
        "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfig", "probe")},
        "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", "probe"),
    }
    made = await world.client.create(MACHINES, world.core_object("Machine", "probe", spec), world.namespace, dry_run=True)
    return bool(dig(made, "spec", "deletion", "nodeDeletionTimeoutSeconds") == 10)


async def patiently(found: Callable[[], Awaitable[Any]], seconds: float = 240) -> Any:
    """What is found, once it is; answers of a server that still sets things up are no answers."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(ApiError):
                if answer := await found():
                    return answer
            await asyncio.sleep(0.05)


async def rested(look: Callable[[], Awaitable[Any]], quiet: float = 3.0, seconds: float = 300.0) -> None:
    """Until what is seen has been the same for a while."""
    before, still = await look(), SYSTEM_CLOCK.monotonic()
    end = still + seconds
    while SYSTEM_CLOCK.monotonic() - still < quiet:
        assert SYSTEM_CLOCK.monotonic() < end, "it does not come to rest"
        await asyncio.sleep(0.5)
        if (now := await look()) != before:
            before, still = now, SYSTEM_CLOCK.monotonic()


# A control-plane Machine that never says whether it is up to date is not missed for its first ten seconds. When the Cluster is
# summed up anew after that is chance.
BY_AGE = "ControlPlaneMachinesUpToDate"


def comparable(objects: Iterable[Obj], names: Names) -> dict[str, Obj]:
    """Objects by kind and name, without times and chance."""
    found = {f"{obj['kind']} {names.plain(obj['metadata']['name'])}": reduced(obj, names) for obj in objects}
    for obj in found.values():
        if conditions := dig(obj, "status", "conditions"):
            obj["status"]["conditions"] = [each for each in conditions if each["type"] != BY_AGE]
    return found


class Meeting:
    """Where what was found in two places is laid side by side, each time that both have come to rest.

    A process that stands still for a while looks as if it were done. What differs may only be late, so it is looked at again.
    """

    ROUNDS = 12

    def __init__(self, *places: str, alike: Callable[[Any, Any], bool]) -> None:
        self._places = places
        self._alike = alike
        self._brought: dict[tuple[str, int], dict[str, asyncio.Future[Any]]] = {}
        self._visits: dict[tuple[str, str], int] = {}

    async def agreed(self, place: str, about: str, look: Callable[[], Awaitable[Any]]) -> Any:
        """What is found here, once the same is found there, or not for long. Both ask as often about the same."""
        for _ in range(self.ROUNDS):
            found = await look()
            if self._alike(*await self._both(place, about, found)):
                break
        return found

    async def _both(self, place: str, about: str, found: Any) -> list[Any]:
        visit = self._visits[place, about] = self._visits.get((place, about), 0) + 1
        brought = self._brought.setdefault((about, visit), {each: asyncio.Future() for each in self._places})
        brought[place].set_result(found)
        return [await brought[each] for each in self._places]


def page_commands(*headings: str) -> list[str]:
    """The commands below these headings of docs/clusterctl.md, without the files that they write."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    found = {section.partition("\n")[0]: section for section in sections}
    lines = [line for heading in headings for line in found[heading].splitlines()]
    return [line.removeprefix("$ ").partition(" > ")[0] for line in lines if line.startswith("$ ")]


class Tool:
    """A program of somebody else, with a home of its own."""

    def __init__(self, program: Path, home: Path, **environ: str) -> None:
        self._program = program
        # What was called for, in order.
        self.calls: list[tuple[str, ...]] = []
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            # It would ask the Internet for a newer one.
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
            "NO_COLOR": "1",
            **environ,
        }

    async def __call__(self, *arguments: str | Path) -> str:
        """Its standard output; what it says besides if it fails."""
        command = [str(self._program), *map(str, arguments)]
        self.calls.append((self._program.name, *command[1:]))
        done = await asyncio.to_thread(
            subprocess.run, command, env=self._environ, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.asynccontextmanager
    async def killed(self, *arguments: str | Path) -> AsyncIterator[None]:
        """It runs for as long as the block does, and is killed at its end."""
        process = subprocess.Popen(
            [str(self._program), *map(str, arguments)],
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
            assert process.poll() is None, "it ended by itself"
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
