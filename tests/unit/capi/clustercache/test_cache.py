"""Connections to workload clusters: when they are made, how they are watched, what ends them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from remuda import kcm
from remuda.api import crds
from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.capi.clustercache import CacheOptions, ClusterCache
from remuda.capi.clustercache import accessor as nodes
from remuda.capi.machine.noderef import node_info
from remuda.capi.workload_clusters import PROVIDER_ID
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, OutOfReach
from remuda.kube.objects import GroupVersionResource, Key
from remuda.lab.sim.workload_clusters import BARE, Beginning
from remuda.runtime import DONE, Controller, Manager, Result
from tests.unit.capi.memory_clusters import NAMESPACE, core_object

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")
UNREACHABLE = OSError("no route to host")
UNAUTHORIZED = ApiError(401, "Unauthorized", "Unauthorized")


class FlakyClient(InProcessClient):
    """A way to a workload cluster that can be cut."""

    def __init__(self, fleet: Fleet, key: Key, kubeconfig: bytes) -> None:
        super().__init__(fleet.server, manager="workload")
        self.kubeconfig = kubeconfig
        self.closed = False
        self._fleet, self._key = fleet, key

    async def raw(self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None) -> Any:
        self._fleet.probes.append((self._key, self._fleet.clock.time()))
        self._fleet.probing += 1
        self._fleet.most_at_once = max(self._fleet.most_at_once, self._fleet.probing)
        try:
            await self._fleet.clock.sleep(self._fleet.delay)
        finally:
            self._fleet.probing -= 1
        if (broken := self._fleet.broken.get(self._key)) is not None:
            raise broken
        return await super().raw(method, path, query=query, body=body)

    async def close(self) -> None:
        self.closed = True


class TunnelClient(FlakyClient):
    """One that is told when its way has gone: a `Losable`."""

    def __init__(self, fleet: Fleet, key: Key, kubeconfig: bytes) -> None:
        super().__init__(fleet, key, kubeconfig)
        self.holders: list[Callable[[], None]] = []
        self.gone = False

    def on_lost(self, handler: Callable[[], None]) -> Callable[[], None]:
        if self.gone:
            handler()
        self.holders.append(handler)
        return lambda: self.holders.remove(handler)

    def lose(self) -> None:
        self.gone = True
        for handler in list(self.holders):
            handler()


class Fleet:
    """The connector: all clusters are one server behind many flaky clients."""

    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.delay = 0.0
        self.broken: dict[Key, Exception] = {}
        self.clients: list[FlakyClient] = []
        self.probes: list[tuple[Key, float]] = []
        self.probing = self.most_at_once = 0
        self.bad_kubeconfig = b""
        self.kind: type[FlakyClient] = FlakyClient

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        if kubeconfig == self.bad_kubeconfig:
            raise ValueError("that is no kubeconfig")
        client = self.kind(self, cluster, kubeconfig)
        self.clients.append(client)
        return client

    @property
    def nodes(self) -> InProcessClient:
        return InProcessClient(self.server, manager="kubelet")


class Sleeper:
    """A controller that notes what it is woken for."""

    controller = Controller("sleeper", CLUSTERS, resync=0)

    def __init__(self) -> None:
        self.seen: list[Key] = []

    async def reconcile(self, key: Key) -> Result:
        self.seen.append(key)
        return DONE


class Ranch:
    def __init__(self, server: Server, clock: VirtualClock, fleet: Fleet, manager: Manager, cache: ClusterCache) -> None:
        self.client = InProcessClient(server, manager="kubectl")
        self.clock = clock
        self.fleet = fleet
        self.manager = manager
        self.cache = cache
        self.sleeper = Sleeper()
        self.changes: list[tuple[str, bool]] = []
        cache.on_change(lambda key: self.changes.append((key.name, cache.get(key) is not None)))
        self._running: asyncio.Task[None] | None = None

    async def settle(self, seconds: float = 0.0) -> None:
        await self.clock.advance(seconds)

    async def cluster(self, name: str = "c1", *, provisioned: bool = True, kubeconfig: str | None = "one") -> Key:
        await self.client.create(CLUSTERS, core_object("Cluster", name, {"paused": False}), NAMESPACE)
        if kubeconfig is not None:
            await self.secret(name, kubeconfig)
        if provisioned:
            await self.status(name, {"infrastructureProvisioned": True})
        await self.settle()
        return Key(NAMESPACE, name)

    async def status(self, name: str, initialization: Obj) -> None:
        await self.client.patch(CLUSTERS, name, {"status": {"initialization": initialization}}, NAMESPACE, subresource="status")

    async def secret(self, name: str, kubeconfig: str, *, labelled: bool = True) -> None:
        metadata: Obj = {"name": f"{name}-kubeconfig", "namespace": NAMESPACE}
        if labelled:
            metadata["labels"] = {"cluster.x-k8s.io/cluster-name": name}
        data = {"value": base64.b64encode(kubeconfig.encode()).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            await self.client.create(SECRETS, secret, NAMESPACE)
        except ApiError:
            await self.client.patch(SECRETS, metadata["name"], {"data": data}, NAMESPACE)

    async def node(self, name: str, **fields: Any) -> None:
        await self.fleet.nodes.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **fields})
        await self.settle()

    def start(self) -> None:
        self._running = asyncio.create_task(self.manager.run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


_BEGINNING = Beginning(crds, (NAMESPACE,))


@contextlib.asynccontextmanager
async def ranch(options: CacheOptions = CacheOptions()) -> AsyncIterator[Ranch]:  # noqa: B008 - a constant
    clock, rng = VirtualClock(), Rng(1)
    server = await Server.open(Config(data_dir=None, base=await _BEGINNING.base(), clock=clock, rng=rng, entropy=Entropy(1)))
    workload = await Server.open(Config(data_dir=None, base=await BARE.base(), clock=clock, rng=rng, entropy=Entropy(2)))
    fleet = Fleet(workload, clock)
    manager = Manager(InProcessClient(server, manager="manager"), clock, rng)
    cache = ClusterCache(manager, fleet, options)
    manager.beside(cache.run)
    made = Ranch(server, clock, fleet, manager, cache)
    manager.add(made.sleeper)
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, rng))
    try:
        await made.settle(1)
        made.start()
        await made.settle(1)
        yield made
    finally:
        await made.stop()
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()
        await fleet.server.close()


async def test_a_cluster_is_connected_once_its_infrastructure_is_there() -> None:
    async with ranch() as r:
        key = await r.cluster(provisioned=False)
        await r.settle(60)
        assert r.cache.get(key) is None
        assert r.cache.health(key).last_attempt is None
        await r.status("c1", {"infrastructureProvisioned": True})
        await r.settle()
        assert r.cache.get(key) is not None
        assert r.cache.health(key).last_success == r.clock.time()
        assert r.changes == [("c1", True)]


async def test_a_kubeconfig_that_comes_later_connects_at_once() -> None:
    async with ranch() as r:
        key = await r.cluster(kubeconfig=None)
        await r.settle(10)
        assert r.cache.get(key) is None
        assert r.cache.health(key).failures == 1
        await r.secret("c1", "one")
        await r.settle()
        assert r.cache.get(key) is not None
        assert r.cache.health(key).failures == 0


async def test_a_kubeconfig_without_the_label_is_found_at_the_next_try() -> None:
    async with ranch() as r:
        key = await r.cluster(kubeconfig=None)
        await r.secret("c1", "one", labelled=False)
        await r.settle(40)
        assert r.cache.get(key) is not None


async def test_nodes_are_cached_slim_and_found_by_provider_id() -> None:
    async with ranch() as r:
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
        status = {"images": [{"names": ["big"]}], "conditions": [beat]}
        await r.node("n1", spec={"providerID": "test:///n1", "podCIDR": "10.0.0.0/24"})
        await r.fleet.nodes.patch(NODES, "n1", {"status": status}, subresource="status")
        workload = r.cache.get(await r.cluster())
        assert workload is not None
        [node] = workload.nodes.indexed(PROVIDER_ID, "test:///n1")
        assert node["metadata"]["name"] == "n1"
        assert "managedFields" not in node["metadata"]
        assert node["spec"]["providerID"] == "test:///n1"
        assert "podCIDR" not in node["spec"]
        assert "images" not in node["status"]
        assert "lastHeartbeatTime" not in node["status"]["conditions"][0]


async def test_a_connection_is_probed_every_ten_seconds() -> None:
    async with ranch() as r:
        key = await r.cluster()
        r.fleet.probes.clear()
        await r.settle(100)
        assert 10 <= len(r.fleet.probes) <= 11
        assert r.clock.time() - (r.cache.health(key).last_success or 0) <= 10


async def test_five_failed_probes_end_the_connection() -> None:
    async with ranch() as r:
        key = await r.cluster()
        connected_at = r.cache.health(key).last_success or 0
        r.fleet.broken[key] = UNREACHABLE
        await r.settle(39)
        assert r.cache.get(key) is not None
        await r.settle(12)
        assert r.cache.get(key) is None
        assert (r.cache.health(key).last_success or 0) - connected_at < 10
        assert r.cache.health(key).failures >= 5
        assert r.changes == [("c1", True), ("c1", True), ("c1", False)]
        assert r.fleet.clients[0].closed


async def test_probes_that_begin_and_cease_to_fail_are_told() -> None:
    async with ranch() as r:
        key = await r.cluster()
        r.changes.clear()
        r.fleet.broken[key] = UNREACHABLE
        await r.settle(25)
        assert r.changes == [("c1", True)]
        del r.fleet.broken[key]
        await r.settle(25)
        assert r.changes == [("c1", True), ("c1", True)]
        assert r.cache.health(key).failures == 0


async def test_a_probe_that_hangs_has_failed_after_five_seconds() -> None:
    async with ranch() as r:
        key = await r.cluster()
        r.fleet.delay = 3600
        await r.settle(15.1)
        assert r.cache.health(key).failures == 1


async def test_a_lost_cluster_is_connected_again_when_it_comes_back() -> None:
    async with ranch() as r:
        key = await r.cluster()
        r.fleet.broken[key] = UNREACHABLE
        await r.settle(3600)
        assert r.cache.get(key) is None
        del r.fleet.broken[key]
        await r.settle(36)
        assert r.cache.get(key) is not None


async def test_unauthorized_reads_the_kubeconfig_again_at_once() -> None:
    async with ranch() as r:
        key = await r.cluster()
        r.fleet.broken[key] = UNAUTHORIZED
        while r.cache.get(key) is not None:
            await r.settle(0.1)
        assert r.cache.health(key).failures <= 2
        assert len(r.fleet.clients) == 2
        del r.fleet.broken[key]
        await r.settle(1)
        assert r.cache.get(key) is not None


async def test_a_changed_kubeconfig_reconnects_at_once() -> None:
    async with ranch() as r:
        key = await r.cluster(kubeconfig="one")
        await r.secret("c1", "two")
        await r.settle()
        workload = r.cache.get(key)
        assert workload is not None
        assert workload.client is r.fleet.clients[-1]
        assert [client.kubeconfig for client in r.fleet.clients] == [b"one", b"two"]
        assert r.fleet.clients[0].closed


async def test_a_secret_that_changes_but_for_its_data_or_goes_leaves_the_connection_alone() -> None:
    async with ranch() as r:
        key = await r.cluster()
        await r.client.patch(SECRETS, "c1-kubeconfig", {"metadata": {"annotations": {"a": "b"}}}, NAMESPACE)
        await r.client.delete(SECRETS, "c1-kubeconfig", NAMESPACE)
        await r.settle(60)
        assert r.cache.get(key) is not None
        assert len(r.fleet.clients) == 1


@pytest.mark.parametrize("broken", [UNREACHABLE, ApiError(500, "InternalError", "boom"), RuntimeError("a bug")])
async def test_tries_come_with_growing_pauses(broken: Exception) -> None:
    async with ranch() as r:
        key = Key(NAMESPACE, "c1")
        r.fleet.broken[key] = broken
        await r.cluster()
        await r.settle(300)
        tried = [time for _, time in r.fleet.probes]
        pauses = [after - before for before, after in itertools.pairwise(tried)]
        assert pauses[0] < 1
        assert pauses[1] > pauses[0]
        assert all(24 <= pause <= 36 for pause in pauses[6:])
        assert r.cache.health(key).failures >= 5


async def test_quick_tries_in_a_row_count_as_one_failure() -> None:
    async with ranch() as r:
        key = Key(NAMESPACE, "c1")
        r.fleet.broken[key] = UNREACHABLE
        await r.cluster()
        await r.settle(15)
        assert len(r.fleet.probes) >= 4
        assert r.cache.health(key).failures == 1


async def test_a_cluster_that_never_answered_is_told_about_after_five_failures() -> None:
    async with ranch() as r:
        r.fleet.broken[Key(NAMESPACE, "c1")] = UNREACHABLE
        await r.cluster()
        await r.settle(300)
        assert r.changes == [("c1", False)]


async def test_an_unusable_kubeconfig_is_tried_again_when_it_changes() -> None:
    async with ranch() as r:
        r.fleet.bad_kubeconfig = b"nonsense"
        key = await r.cluster(kubeconfig="nonsense")
        await r.settle(300)
        assert r.cache.get(key) is None
        await r.secret("c1", "good")
        await r.settle()
        assert r.cache.get(key) is not None


async def test_a_control_plane_that_comes_up_is_tried_at_once() -> None:
    async with ranch() as r:
        key = Key(NAMESPACE, "c1")
        r.fleet.broken[key] = UNREACHABLE
        await r.cluster()
        await r.settle(600)
        del r.fleet.broken[key]
        await r.status("c1", {"controlPlaneInitialized": True})
        await r.settle()
        assert r.cache.get(key) is not None


async def test_a_cluster_that_comes_within_reach_is_tried_at_once() -> None:
    waiting: list[Callable[[], None]] = []

    def watch(handler: Callable[[], None]) -> Callable[[], None]:
        waiting.append(handler)
        return lambda: waiting.remove(handler)

    async with ranch() as r:
        key = Key(NAMESPACE, "c1")
        r.fleet.broken[key] = OutOfReach("its agent is away", watch)
        await r.cluster()
        await r.settle(600)
        assert len(waiting) == 1
        del r.fleet.broken[key]
        waiting[0]()
        await r.settle()
        assert r.cache.get(key) is not None
        assert not waiting


def tunnelled(r: Ranch) -> list[TunnelClient]:
    return [client for client in r.fleet.clients if isinstance(client, TunnelClient)]


async def test_a_connection_whose_way_has_gone_is_given_up_at_once_and_made_anew() -> None:
    async with ranch() as r:
        r.fleet.kind = TunnelClient
        key = await r.cluster()
        before = r.cache.get(key)
        assert before is not None and before.client is tunnelled(r)[0]
        r.changes.clear()
        tunnelled(r)[0].lose()
        await r.settle()
        after = r.cache.get(key)
        assert after is not None and after is not before and after.client is tunnelled(r)[1]
        assert tunnelled(r)[0].closed and not tunnelled(r)[0].holders, "nothing of the old one is left"
        assert r.changes == [("c1", False), ("c1", True)]
        assert r.cache.health(key).failures == 0


async def test_a_probe_that_waits_for_an_answer_ends_with_the_way() -> None:
    async with ranch() as r:
        r.fleet.kind = TunnelClient
        key = await r.cluster()
        r.fleet.delay = 3.0
        await r.settle(11)
        assert r.fleet.probing == 1
        r.fleet.delay = 0.0
        tunnelled(r)[0].lose()
        await r.settle()
        assert r.cache.get(key) is not None and len(r.fleet.clients) == 2


async def test_a_way_that_goes_while_it_is_taken_is_looked_for_anew() -> None:
    async with ranch() as r:
        r.fleet.kind = TunnelClient
        r.fleet.delay = 2.0
        key = await r.cluster()
        assert r.fleet.probing == 1 and r.cache.get(key) is None
        tunnelled(r)[0].lose()
        await r.settle(0.7)
        assert len(r.fleet.clients) == 2 and tunnelled(r)[0].closed
        await r.settle(5)
        assert r.cache.get(key) is not None


async def test_a_connection_that_was_lost_at_once_is_not_held() -> None:
    class Gone(TunnelClient):
        def __init__(self, fleet: Fleet, key: Key, kubeconfig: bytes) -> None:
            super().__init__(fleet, key, kubeconfig)
            self.gone = not fleet.clients

    async with ranch() as r:
        r.fleet.kind = Gone
        key = await r.cluster()
        await r.settle(1)
        assert len(r.fleet.clients) == 2 and tunnelled(r)[0].closed
        assert r.cache.get(key) is not None


async def test_a_cluster_that_goes_is_dropped_and_forgotten() -> None:
    async with ranch() as r:
        r.cache.follow_nodes("sleeper", lambda cluster, node: (cluster,))
        key = await r.cluster()
        workload = r.cache.get(key)
        assert workload is not None
        informer = weakref.ref(workload.nodes)
        del workload
        await r.client.delete(CLUSTERS, "c1", NAMESPACE)
        await r.settle(1)
        assert r.cache.get(key) is None
        assert r.cache.health(key).last_success is None
        assert r.fleet.clients[0].closed
        await r.settle(60)  # a virtual clock keeps what a timer held until its time
        gc.collect()
        assert informer() is None
        assert 'cluster_name="c1"' not in r.manager.registry.text()


async def test_a_cluster_made_anew_under_the_same_name_is_connected_anew() -> None:
    async with ranch() as r:
        key = await r.cluster()
        await r.client.delete(CLUSTERS, "c1", NAMESPACE)
        await r.cluster(kubeconfig="two")
        await r.settle(1)
        assert r.cache.get(key) is not None
        assert r.fleet.clients[-1].kubeconfig == b"two"


async def test_controllers_are_woken_by_nodes_of_every_cluster() -> None:
    async with ranch() as r:
        r.cache.follow_nodes("sleeper", lambda cluster, node: (Key(cluster.name, node["metadata"]["name"]),))
        await r.cluster("c1")
        await r.cluster("c2")
        r.sleeper.seen.clear()
        await r.node("n1")
        assert sorted(r.sleeper.seen) == [Key("c1", "n1"), Key("c2", "n1")]


async def test_heartbeats_of_nodes_wake_no_controller() -> None:
    async with ranch() as r:
        r.cache.follow_nodes("sleeper", lambda cluster, node: (cluster,))
        await r.cluster()
        await r.node("n1")
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
        await r.fleet.nodes.patch(NODES, "n1", {"status": {"conditions": [condition]}}, subresource="status")
        await r.settle()
        r.sleeper.seen.clear()
        later = {**condition, "lastHeartbeatTime": "2030-01-01T00:05:00Z"}
        await r.fleet.nodes.patch(NODES, "n1", {"status": {"conditions": [later]}}, subresource="status")
        await r.settle()
        assert r.sleeper.seen == []
        await r.fleet.nodes.patch(NODES, "n1", {"spec": {"unschedulable": True}})
        await r.settle()
        assert r.sleeper.seen == [Key(NAMESPACE, "c1")]


async def test_connections_end_with_a_term_and_come_back_with_the_next() -> None:
    async with ranch() as r:
        r.cache.follow_nodes("sleeper", lambda cluster, node: (cluster,))
        key = await r.cluster()
        await r.stop()
        assert r.cache.get(key) is None
        assert r.fleet.clients[0].closed
        r.start()
        await r.settle(1)
        assert r.cache.get(key) is not None
        r.sleeper.seen.clear()
        await r.node("n1")
        assert r.sleeper.seen == [key]


async def test_a_thousand_clusters_are_connected_a_few_at_a_time_and_probed_spread_out() -> None:
    async with ranch(CacheOptions(connecting=20)) as r:
        await r.stop()
        for number in range(200):
            await r.cluster(f"c{number}")
        r.fleet.delay = 0.5
        r.start()
        await r.settle(0.4)
        assert r.fleet.most_at_once == 20
        await r.settle(10)
        assert all(r.cache.get(Key(NAMESPACE, f"c{number}")) is not None for number in range(200))
        r.fleet.probes.clear()
        await r.settle(10)
        seconds = [int(time) for _, time in r.fleet.probes]
        assert max(seconds.count(second) for second in set(seconds)) < 60


async def test_clusters_that_never_answer_do_not_keep_others_waiting() -> None:
    async with ranch(CacheOptions(connecting=5)) as r:
        for number in range(50):
            r.fleet.broken[Key(NAMESPACE, f"dead{number}")] = UNREACHABLE
            await r.cluster(f"dead{number}")
        await r.settle(300)
        r.fleet.delay = 4.9  # every try of a dead one takes its time
        await r.settle(120)
        r.fleet.delay = 0.1
        key = await r.cluster("alive")
        await r.settle(1)
        assert r.cache.get(key) is not None


async def test_the_watch_filter_leaves_other_clusters_alone() -> None:
    async with ranch(CacheOptions(watch_filter="mine")) as r:
        key = await r.cluster()
        assert r.cache.get(key) is None
        await r.client.patch(CLUSTERS, "c1", {"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "mine"}}}, NAMESPACE)
        await r.settle()
        assert r.cache.get(key) is not None


async def test_numbers_are_told_under_the_names_of_cluster_api() -> None:
    async with ranch() as r:
        await r.cluster()
        await r.settle(100)
        text = r.manager.registry.text()
        assert f'capi_cluster_cache_connection_up{{cluster_name="c1",cluster_namespace="{NAMESPACE}"}} 1' in text
        assert f'capi_cluster_cache_healthcheck{{cluster_name="c1",cluster_namespace="{NAMESPACE}"}} 1' in text
        assert "# TYPE capi_cluster_cache_healthchecks_total counter" in text


def test_a_node_of_a_hostile_cluster_is_kept_within_bounds() -> None:
    long = "x" * 100_000
    node = {
        "metadata": {"name": "n1", "labels": {f"l{at}": long for at in range(100)}, "annotations": {"a": long}},
        "spec": {"providerID": "p://1", "taints": [{"key": long}] * 1000},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "message": long}] * 1000 + ["none"],
            "addresses": [{"type": "InternalIP", "address": long}] * 1000,
            "nodeInfo": {"kubeletVersion": long},
        },
    }
    slim = nodes.slim(node)
    assert len(jsonio.dumps(slim)) < 1 << 20
    assert slim["metadata"]["name"] == "n1" and slim["spec"]["providerID"] == "p://1"
    assert len(node_info(slim)["kubeletVersion"]) == 256
