"""Simulated workload clusters: each a real API server in memory, reached in process or, when it listens, over the network.

A cluster answers once its first control-plane machine is up (:meth:`SimulatedCluster.power_on`) and while its line is not cut.
:class:`SimulatedClusters` is the :class:`~remuda.capi.workload_clusters.Connector` of the core in a simulation.

:class:`Beginning` is the initial state of their servers. The objects that a server makes at its first start, and the definitions
of all kinds, are the same for each simulation, and take most of the time of a short one. They are made once in a process, by a
real server with its controllers; servers in memory start from the result
(:class:`remuda.apiserver.storage.memory.InitialState`), and their writes are their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda import kcm
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import InitialState
from remuda.apiserver.storage.store import MAX_OPS, Delete, Put
from remuda.client.interface import Client, Send, WatchEvent, WrappedClient
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import Clock, Entropy, Rng, VirtualClock, rfc3339
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted
from remuda.runtime import DONE, Controller, Manager, Result

Obj = dict[str, Any]

_ALL = "/registry/"


class CutableClient(WrappedClient):
    """A `Client` over a line that can be cut: calls fail as on a broken connection, watches end."""

    def __init__(self, client: Client, up: Callable[[], bool]) -> None:
        super().__init__(client)
        self._up = up

    def _check(self) -> None:
        if not self._up():
            raise ConnectionError("the simulated line is cut")

    async def _call(self, send: Send, *, write: bool) -> Any:
        self._check()
        return await send()

    async def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> AsyncIterator[WatchEvent]:
        self._check()
        async for event in super().watch(resource, namespace, **options):
            self._check()
            yield event


class SimulatedCluster:
    def __init__(self, key: Key, server: Server) -> None:
        self.key = key
        self.server = server
        # The connection of nodes and kubelets, independent of the line.
        self.client = InProcessClient(server, manager="kubelet")
        self.on = False
        self.cut = False
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def answers(self) -> bool:
        return self.on and not self.cut

    async def state(self) -> dict[str, bytes]:
        """All that is stored, by key: the content of a snapshot of etcd."""
        return {found.key: found.value for found in (await self.server.store.range(_ALL)).items}

    async def go_back(self, state: Mapping[str, bytes]) -> None:
        """Write the state of a snapshot. Revisions go on, as after a real restore."""
        now = await self.state()
        ops: list[Put | Delete] = [Delete(key) for key in now if key not in state]
        ops += [Put(key, value) for key, value in state.items() if now.get(key) != value]
        for first in range(0, len(ops), MAX_OPS):
            await self.server.store.write(ops[first : first + MAX_OPS])

    def power_on(self) -> None:
        """The first machine of the control plane is up."""
        self.on = True


class SimulatedClusters:
    def __init__(
        self, clock: Clock, rng: Rng, entropy: Entropy, *, pki: Pki | None = None, pods: bool = False, host: str = "127.0.0.1"
    ) -> None:
        """With `pki` they listen on ports of `host`. With `pods` they have the controllers and kubelets that pods need."""
        self._clock = clock
        self._rng = rng
        self._entropy = entropy
        self._pki = pki
        self._pods = pods
        self._host = host
        self._clusters: dict[Key, SimulatedCluster] = {}
        self._making: dict[Key, asyncio.Lock] = {}

    def get(self, key: Key) -> SimulatedCluster | None:
        return self._clusters.get(key)

    async def ensure(self, key: Key) -> SimulatedCluster:
        """The cluster, made if it does not exist."""
        async with self._making.setdefault(key, asyncio.Lock()):
            found = self._clusters.get(key)
            if found is None:
                found = self._clusters[key] = await self._make(key)
        return found

    async def _make(self, key: Key) -> SimulatedCluster:
        server = await Server.open(
            Config(
                data_dir=None,
                base=await EMPTY.base(),
                host=self._host,
                port=0,
                clock=self._clock,
                rng=self._rng,
                entropy=self._entropy,
                default_roles=False,
                pki=self._pki,
            )
        )
        if self._pki is not None:
            await server.listen()
        made = SimulatedCluster(key, server)
        if self._pods:
            keeper = InProcessClient(server, manager="kube-controller-manager")
            made.tasks.append(asyncio.create_task(kcm.run(keeper, self._clock, self._rng)))
            made.tasks.append(asyncio.create_task(Kubelet(made.client, self._clock, self._rng).run()))
        return made

    async def remove(self, key: Key) -> None:
        found = self._clusters.pop(key, None)
        self._making.pop(key, None)
        if found is None:
            return
        found.on = False
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        # Its power is cut: connected clients notice.
        await found.server.close(grace=0.0)

    async def close(self) -> None:
        for key in list(self._clusters):
            await self.remove(key)

    def endpoint(self, key: Key) -> tuple[str, int]:
        """Host and port of its API, which listens there only if it has certificates."""
        server = self._clusters[key].server
        return (self._host, int(server.url.rpartition(":")[2])) if self._pki is not None else (self._host, 6443)

    def kubeconfig(self, key: Key) -> bytes:
        """The kubeconfig of the cluster, for its Secret."""
        host, port = self.endpoint(key)
        if self._pki is not None:
            return yamlio.dumps(self._pki.kubeconfig(f"https://{host}:{port}")).encode()
        shown = {"name": key.name, "cluster": {"server": f"https://{host}:{port}"}}
        return yamlio.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [shown]}).encode()

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        """The core's connector: straight into the server in memory."""
        found = self._clusters.get(cluster)
        if found is None or not found.answers:
            raise ConnectionError(f"the simulated cluster {cluster} does not answer")
        return CutableClient(InProcessClient(found.server, manager="manager"), lambda: found.answers)


# --- kubelet --------------------------------------------------------------------------------------------------------------
#
# The kubelets of a simulated cluster: pods run in name, and stop when they are deleted.

PODS = GroupVersionResource("", "v1", "pods")
# A pod with this annotation ignores its deletion, as one whose process hangs.
STUBBORN = "sim.remuda.dev/stubborn"


class Kubelet:
    """One for all nodes of a cluster."""

    controller = Controller("kubelet", PODS, concurrency=4, resync=0)

    def __init__(self, client: Client, clock: Clock, rng: Rng) -> None:
        self._client = client
        self._clock = clock
        self._manager = Manager(client, clock, rng)
        self._pods = self._manager.informers.of(PODS)
        self._manager.add(self)

    async def run(self) -> None:
        await self._manager.run(asyncio.Event())

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        if pod is None or not dig(pod, "spec", "nodeName"):
            return DONE
        try:
            if is_being_deleted(pod):
                if STUBBORN not in (dig(pod, "metadata", "annotations") or {}):
                    await self._client.delete(PODS, key.name, key.namespace, grace_seconds=0)
            elif dig(pod, "status", "phase", default="Pending") == "Pending":
                await self._client.patch(PODS, key.name, {"status": _running(self._clock)}, key.namespace, subresource="status")
        except ApiError as error:
            if not error.is_not_found:
                raise
        return DONE


def _running(clock: Clock) -> Obj:
    now = rfc3339(clock.time())
    ready = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Initialized", "Ready", "ContainersReady")]
    return {"phase": "Running", "conditions": ready, "startTime": now}


# --- downstreams ----------------------------------------------------------------------------------------------------------
#
# The tunnels of simulated clusters: the interfaces of :mod:`remuda.access.downstreams` and of health checks, without a tunnel.
#
# A cluster is connected once its agent is started in it (:meth:`SimulatedDownstreams.connect`), and as long as its API
# answers.

LOCAL = "local"


class _Reached:
    def __init__(self, cluster: SimulatedCluster | None, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    @property
    def answers(self) -> bool:
        return self.cluster is None or self.cluster.answers


class SimulatedDownstreams:
    """The simulated clusters by the names of management Clusters; `local` is the management API's own client."""

    def __init__(self, local: Client) -> None:
        self._reached = {LOCAL: _Reached(None, local)}
        self._handlers: list[Callable[[str], None]] = []

    def connect(self, name: str, cluster: SimulatedCluster) -> None:
        found = self._reached.get(name)
        if found is None or found.cluster is not cluster:
            line = CutableClient(InProcessClient(cluster.server, manager="cattle"), lambda: cluster.answers)
            self._reached[name] = _Reached(cluster, line)
            self.tell(name)

    def disconnect(self, name: str) -> None:
        if self._reached.pop(name, None) is not None:
            self.tell(name)

    def tell(self, name: str) -> None:
        """Report a change of a cluster's line."""
        for handler in list(self._handlers):
            handler(name)

    def get(self, cluster: str) -> _Reached | None:
        return self._reached.get(cluster) if self.is_connected(cluster) else None

    def is_connected(self, cluster: str) -> bool:
        found = self._reached.get(cluster)
        return found is not None and found.answers

    async def ping(self, cluster: str) -> str:
        return "" if self.is_connected(cluster) else "Cluster agent is not connected"

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)


# Earlier than the clock of any simulation, also the system's: no timestamp is in the future.
_TIME = 1_600_000_000.0
_REST_SECONDS = 60.0


@dataclass
class Beginning:
    """Kinds by their definitions, namespaces, and whether the default roles and kube-controller-manager's work exist."""

    definitions: Callable[[], Iterable[Obj]] = tuple
    namespaces: tuple[str, ...] = ()
    default_roles: bool = True
    controllers: bool = True
    _base: InitialState | None = field(default=None, init=False, repr=False)

    async def base(self) -> InitialState:
        """The content of a server whose kinds are established and whose controllers have become idle."""
        if self._base is None:
            self._base = await self._make()
        return self._base

    async def _make(self) -> InitialState:
        clock = VirtualClock(_TIME)
        config = Config(data_dir=None, clock=clock, rng=Rng(0), entropy=Entropy(0), default_roles=self.default_roles)
        server = await Server.open(config)
        running = []
        if self.controllers:
            keeper = InProcessClient(server, manager="kube-controller-manager")
            running.append(asyncio.create_task(kcm.run(keeper, clock, Rng(0))))
        try:
            client = InProcessClient(server, manager="kubectl")
            for definition in self.definitions():
                await client.create(CRDS, definition)
            for name in self.namespaces:
                await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            if running:
                await clock.advance(_REST_SECONDS)
            return InitialState.of(await server.store.range(""))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await server.close()


# A new Kubernetes: with its controllers' first work done; without it; and without the default roles, too.
FURNISHED = Beginning()
BARE = Beginning(controllers=False)
EMPTY = Beginning(default_roles=False, controllers=False)
