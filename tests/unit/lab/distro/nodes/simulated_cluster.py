"""A small Kubernetes in memory: a real API server, all controllers, a scheduler and simulated nodes, on the virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kcm import TokenIssuer
from remuda.kube.builtin_resources import DEPLOYMENTS, NODES, PODS
from remuda.kube.clock import Clock, Entropy, Rng, VirtualClock
from remuda.kube.conditions import is_true
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, is_being_deleted, name_of
from remuda.kube.owners import controller_of
from remuda.lab.distro.cluster.apiserver import run_cluster_controllers
from remuda.lab.distro.nodes import NodeConfig, run_node, run_nodes
from remuda.runtime import Informer

Obj = dict[str, Any]
NAMESPACE = "default"


class Village:
    """`connect` makes a client for whoever is named; `tokens` signs legacy token Secrets."""

    def __init__(
        self, connect: Callable[[str], Client], clock: Clock, *, root_ca: str = "ca", tokens: TokenIssuer | None = None
    ) -> None:
        self.connect = connect
        self.clock = clock
        self.client = connect("kubectl")
        self.root_ca = root_ca
        self.server: Server | None = None
        self.nodes: dict[str, asyncio.Task[None]] = {}
        self._tokens = tokens
        self._tasks: list[asyncio.Task[None]] = []
        self._controllers: asyncio.Task[None] | None = None

    # --- life --------------------------------------------------------------------------------------------------------------

    def control(self, through: Callable[[Client], Any] = lambda client: client, **told: Any) -> None:
        """Start the controllers; `through` may put something before their client, and more may be told them."""
        client = through(self.connect("kube-controller-manager"))
        running = run_cluster_controllers(client, self.clock, Rng(1), tokens=self._tokens, root_ca=self.root_ca, **told)
        self._controllers = asyncio.create_task(running)

    async def kill_controllers(self) -> None:
        if self._controllers is not None:
            self._controllers.cancel()
            await asyncio.gather(self._controllers, return_exceptions=True)

    async def add_node(self, name: str, **told: Any) -> None:
        """A node that runs until :meth:`kill`; it is ready when this returns."""
        config = NodeConfig(name=name, client=self.connect("kubelet"), version="v1.36.3+remuda1", **told)
        self.nodes[name] = asyncio.create_task(run_node(config, self.clock, Rng(2)))
        await self.until(f"node {name} is ready", lambda: self.node_is_ready(name))

    async def add_many(self, count: int) -> None:
        configs = [NodeConfig(name=f"n{number:04}", version="v1.36.3+remuda1") for number in range(count)]
        self._tasks.append(asyncio.create_task(run_nodes(configs, self.connect("kubelet"), self.clock, Rng(2))))

    async def kill(self, name: str) -> None:
        task = self.nodes.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        tasks = [*self.nodes.values(), *self._tasks, *([self._controllers] if self._controllers is not None else [])]
        failed = [task for task in tasks if task.done() and not task.cancelled()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in failed:
            task.result()

    # --- time --------------------------------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 1.0) -> None:
        if isinstance(self.clock, VirtualClock):
            await self.clock.advance(seconds)
        else:
            await self.clock.sleep(seconds)

    async def until(self, what: str, check: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> Any:
        end = self.clock.monotonic() + seconds
        while True:
            if found := await check():
                return found
            assert self.clock.monotonic() < end, f"{what} did not happen within {seconds:.0f} s"
            await self.settle(0.5 if isinstance(self.clock, VirtualClock) else 0.05)

    # --- objects -----------------------------------------------------------------------------------------------------------

    async def make(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, obj["metadata"].get("namespace", ""))

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = NAMESPACE) -> Obj:
        return await self.client.get(resource, name, namespace)

    async def find(self, resource: GroupVersionResource, name: str, namespace: str = NAMESPACE) -> Obj | None:
        return await find(self.client, resource, name, namespace)

    async def patch(self, resource: GroupVersionResource, name: str, patch: Obj, namespace: str = NAMESPACE) -> Obj:
        return await self.client.patch(resource, name, patch, namespace)

    async def node(self, name: str) -> Obj:
        return await self.client.get(NODES, name)

    async def node_is_ready(self, name: str) -> bool:
        node = await self.find(NODES, name, "")
        tainted = any(each["key"].startswith("node.kubernetes.io/") for each in dig(node, "spec", "taints") or ())
        return node is not None and is_true(node, "Ready") and not tainted

    async def pods(self, app: str = "") -> list[Obj]:
        found = await self.client.list(PODS, NAMESPACE, labels=f"app={app}" if app else "")
        items: list[Obj] = found["items"]
        return items

    async def running(self, app: str, count: int) -> list[Obj]:
        """The pods of an app if exactly so many are ready, and none is on its way."""
        found = await self.pods(app)
        return found if len(found) == count and all(is_true(pod, "Ready") and not is_being_deleted(pod) for pod in found) else []

    async def current(self, app: str, count: int, image: str) -> list[Obj]:
        """As :meth:`running`, of that image only."""
        found = await self.running(app, count)
        return found if all(dig(pod, "spec", "containers", 0, "image") == image for pod in found) else []

    async def deploy(self, name: str, replicas: int, **spec: Any) -> None:
        """A Deployment, up and running."""
        await self.make(DEPLOYMENTS, deployment(name, replicas, **spec))
        await self.until(f"{name} runs", lambda: self.running(name, replicas))

    async def evict(self, pod: Obj) -> None:
        meta = pod["metadata"]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        }
        await self.client.create(PODS, eviction, meta["namespace"], name=meta["name"], subresource="eviction")

    async def drain(self, node: str) -> list[str]:
        """As `kubectl drain` does it: cordon, then evict all until they are gone; what refusals said."""
        await self.cordon(node)
        refusals: list[str] = []

        async def empty() -> bool:
            here = [pod for pod in await self.pods() if dig(pod, "spec", "nodeName") == node and not _is_daemon(pod)]
            for pod in here:
                if is_being_deleted(pod):
                    continue
                try:
                    await self.evict(pod)
                except ApiError as error:
                    assert error.code == 429
                    assert error.details is not None
                    refusals.append(error.details["causes"][0]["reason"])
            return not here

        await self.until(f"{node} is empty", empty, 300)
        return refusals

    async def witness(self, app: str) -> Witness:
        """Somebody who sees every change of an app's pods from now on."""
        informer = Informer(self.client, PODS, self.clock, Rng(3), labels=f"app={app}")
        self._tasks.append(asyncio.create_task(informer.run()))
        await self.until("the witness sees", lambda: _answer(informer.synced.is_set()))
        return Witness(informer)

    async def cordon(self, node: str) -> None:
        await self.client.patch(NODES, node, {"spec": {"unschedulable": True}})


class Witness:
    """How many pods were there at least and at most, of those that are not on their way out; and in which order they came."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self.most = 0
        self.least_ready = len(informer)
        self.came: list[str] = []
        self.images: set[frozenset[str]] = set()
        informer.on_change(self._changed)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and old is None:
            self.came.append(name_of(new))
        pods = list(self._informer.objects())
        staying = [pod for pod in pods if not is_being_deleted(pod)]
        self.images.add(frozenset(dig(pod, "spec", "containers", 0, "image") for pod in pods))
        self.most = max(self.most, len(staying))
        self.least_ready = min(self.least_ready, sum(1 for pod in staying if is_true(pod, "Ready")))


def _is_daemon(pod: Obj) -> bool:
    return bool(dig(controller_of(pod), "kind") == "DaemonSet")


async def _answer(value: bool) -> bool:
    return value


@contextlib.asynccontextmanager
async def village(*nodes: str, clock: Clock | None = None, pki: Pki | None = None) -> AsyncIterator[Village]:
    """With `pki` its API can listen (`server.listen`), and its CA is known in every namespace."""
    clock = clock or VirtualClock()
    config = Config(
        data_dir=None,
        host="127.0.0.1",
        port=0,
        clock=clock,
        rng=Rng(1),
        entropy=Entropy(1),
        default_roles=pki is not None,
        pki=pki,
    )
    server = await Server.open(config)
    ca = pki.ca_pem.decode() if pki is not None else "ca"
    found = Village(lambda who: InProcessClient(server, manager=who), clock, root_ca=ca, tokens=server.issuer)
    found.server = server
    try:
        found.control()
        for name in nodes:
            await found.add_node(name)
        yield found
    finally:
        try:
            await found.close()
        finally:
            await server.close()


def template(app: str, **spec: Any) -> Obj:
    container = {"name": "main", "image": f"example.org/{app}:1"}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def workload(kind: str, name: str, **spec: Any) -> Obj:
    pod = spec.pop("pod", {})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name, **pod), **spec},
    }


def deployment(name: str, replicas: int, **spec: Any) -> Obj:
    return workload("Deployment", name, replicas=replicas, **spec)


def on(pods: list[Obj]) -> list[str]:
    """The nodes of pods, in order."""
    return sorted(dig(pod, "spec", "nodeName") or "" for pod in pods)


def budget(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


def job(name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Obj:
    pod = template(name, restartPolicy="Never")
    pod["metadata"]["annotations"] = annotations or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": pod, **spec},
    }


def image(name: str, image: str) -> Obj:
    return {"spec": {"template": template(name, containers=[{"name": "main", "image": image}])}}


def service(name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }
