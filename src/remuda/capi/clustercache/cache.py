"""All workload clusters: a :class:`.accessor.Accessor` for each Cluster with infrastructure, for as long as the Cluster exists.

It needs only the Manager, since controllers need it before they are made. Run it with `manager.beside(cache.run)`: it then
connects while this process leads, and drops all connections when leadership ends.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.client.kubeconfig import ConfigError, KubeTarget, parse, select
from remuda.kube.builtin_resources import NODES, SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.errors import ApiError
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import Key, dig, labels_of, name_of, namespace_of
from remuda.runtime import Manager, Watch, synced

from ..well_known import WATCH_FILTER, kubeconfig_secret
from ..workload_clusters import KUBECONFIG_KEY, Connector, Health, cluster_secrets, data_of
from . import accessor
from .accessor import Accessor, AttemptLimits, CacheOptions, Connected, ProbeSchedule

log = logging.getLogger(__name__)

Obj = dict[str, Any]
_SUFFIX = kubeconfig_secret("")
_LABELS = ("cluster_name", "cluster_namespace")


class ClusterCache:
    """The port `Workloads`."""

    def __init__(self, manager: Manager, connector: Connector, options: CacheOptions = CacheOptions()) -> None:  # noqa: B008 - a constant
        self._manager = manager
        self._connector = connector
        self._options = options
        self._clusters = manager.informers.of(CLUSTERS, options.namespace)
        self._secrets = cluster_secrets(manager.informers, options.namespace)
        self._links: dict[Key, tuple[Accessor, asyncio.Task[None]]] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._followers: list[tuple[str, Callable[[Key, Obj], Iterable[Key]]]] = []
        self._turns = AttemptLimits(options.connecting)
        self._rhythm = ProbeSchedule(manager.clock, options.probe)
        self._count(manager)

    # --- the port -------------------------------------------------------------------------------------------------------

    def get(self, cluster: Key) -> Connected | None:
        found = self._links.get(cluster)
        return None if found is None else found[0].connected

    def health(self, cluster: Key) -> Health:
        found = self._links.get(cluster)
        return Health() if found is None else found[0].health

    def on_change(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def follow_nodes(self, controller: str, to: Callable[[Key, Obj], Iterable[Key]]) -> None:
        self._followers.append((controller, to))
        for key, (link, _) in self._links.items():
            if link.connected is not None:
                self._follow(key, link.connected, controller, to)

    # --- keeping it -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep clusters connected until cancelled."""
        await synced(self._clusters, self._secrets)
        try:
            async with asyncio.TaskGroup() as group:
                stops = [
                    self._clusters.on_change(lambda new, old: self._cluster_changed(group, new, old)),
                    self._secrets.on_change(self._secret_changed),
                ]
                try:
                    await self._rhythm.run()
                finally:
                    for stop in stops:
                        stop()
        finally:
            self._links.clear()

    def _cluster_changed(self, group: asyncio.TaskGroup, new: Obj | None, old: Obj | None) -> None:
        cluster = new or old
        assert cluster is not None
        key = Key.of(cluster)
        found = self._links.get(key)
        if new is None or not self._wants(new):
            if found is not None:
                del self._links[key]
                found[1].cancel()
            return
        if found is None:
            self._begin(group, key)
        elif old is not None and _initialized(new) and not _initialized(old):
            found[0].nudge()

    def _wants(self, cluster: Obj) -> bool:
        if self._options.watch_filter and labels_of(cluster).get(WATCH_FILTER) != self._options.watch_filter:
            return False
        return dig(cluster, "status", "initialization", "infrastructureProvisioned") is True

    def _begin(self, group: asyncio.TaskGroup, key: Key) -> None:
        manager = self._manager
        link = Accessor(
            key,
            self._connector,
            self._kubeconfig,
            self._turns,
            self._rhythm,
            self._options,
            manager.clock,
            manager.rng,
            self._link_changed,
        )
        self._links[key] = link, group.create_task(link.run(), name=f"cluster {key}")

    def _secret_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None or not name_of(new).endswith(_SUFFIX):
            return
        if old is not None and old.get("data") == new.get("data"):
            return
        found = self._links.get(Key(namespace_of(new), name_of(new).removesuffix(_SUFFIX)))
        if found is not None:
            found[0].nudge()

    async def _kubeconfig(self, cluster: Key) -> bytes | None:
        name = kubeconfig_secret(cluster.name)
        secret = self._secrets.get(cluster.namespace, name)
        if secret is None:
            # A secret without the label is not in the cache, but is as good.
            try:
                secret = await self._manager.client.get(SECRETS, name, cluster.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                raise
        found = data_of(secret, KUBECONFIG_KEY)
        if found is None:
            raise ValueError(f'missing key "{KUBECONFIG_KEY}" in secret data')
        return found

    # --- telling --------------------------------------------------------------------------------------------------------

    def _link_changed(self, cluster: Key, connected: Connected | None) -> None:
        if connected is not None and connected.stops is None:
            connected.stops = []
            for controller, to in self._followers:
                self._follow(cluster, connected, controller, to)
        for handler in list(self._handlers):
            try:
                handler(cluster)
            except Exception:
                log.exception("a handler failed on a change of %s", cluster)

    def _follow(self, cluster: Key, connected: Connected, controller: str, to: Callable[[Key, Obj], Iterable[Key]]) -> None:
        watch = Watch(NODES, lambda node: to(cluster, node), accessor.node_change)
        if connected.stops is not None:
            connected.stops.append(self._manager.follow(controller, watch, connected.nodes))

    def _count(self, manager: Manager) -> None:
        """Metrics under Cluster API's names."""
        registry = manager.registry
        up = registry.gauge("capi_cluster_cache_connection_up", "Whether the connection to the cluster is up.", _LABELS)
        up.read(lambda: [((key.name, key.namespace), float(link.connected is not None)) for key, link in self._all()])
        health = registry.gauge("capi_cluster_cache_healthcheck", "Result of the last clustercache healthcheck.", _LABELS)
        health.read(lambda: [((key.name, key.namespace), float(link.health.failures == 0)) for key, link in self._all()])
        total = registry.tally(
            "capi_cluster_cache_healthchecks_total", "Results of all clustercache healthchecks.", (*_LABELS, "status")
        )
        total.read(lambda: [((key.name, key.namespace, "success"), link.good_probes) for key, link in self._all()])
        total.read(lambda: [((key.name, key.namespace, "error"), link.failed_probes) for key, link in self._all()])

    def _all(self) -> list[tuple[Key, Accessor]]:
        return [(key, link) for key, (link, _) in self._links.items()]


def _initialized(cluster: Obj) -> bool:
    return dig(cluster, "status", "initialization", "controlPlaneInitialized") is True


# --- clients over HTTPS -------------------------------------------------------------------------------------------------
#
# A workload cluster's kubeconfig comes from any user who may write a Secret. So it may name no program to run and no file of this
# machine: everything is inline.

_FILES = ("certificate-authority", "client-certificate", "client-key")


class HttpsConnector:
    """`seconds`: the timeout of one request (watches may take longer). `policy`: the addresses that may be connected to."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, seconds: float = 10.0, connections: int = 10, policy: Current = Policy.of
    ) -> None:
        self._clock = clock
        self._policy = policy
        self._seconds = seconds
        self._connections = connections

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        try:
            return HttpsClient(
                workload_target(kubeconfig),
                self._clock,
                connections=self._connections,
                request_seconds=self._seconds,
                policy=self._policy,
            )
        except (ConfigError, ssl.SSLError) as error:
            raise ValueError(f"the kubeconfig of {cluster} can't be used: {error}") from None


def workload_target(kubeconfig: bytes) -> KubeTarget:
    """The API server of a kubeconfig that holds everything inline. Raises ConfigError."""
    config = parse(kubeconfig, Path("kubeconfig"))
    for users in config["users"].values():
        if users.get("exec"):
            raise ConfigError("ExecProvider is not supported in ClusterCache")
        if users.get("auth-provider"):
            raise ConfigError("AuthProvider is not supported in ClusterCache")
    for section in ("clusters", "users"):
        for name, entry in config[section].items():
            for field in _FILES:
                if entry.get(field) and not entry.get(f"{field}-data"):
                    raise ConfigError(f"{section} {name} names a file ({field}): put what is in it inline")
    for name, entry in config["users"].items():
        # A tokenFile would win over an inline token: the workload's API server would receive a file of ours as a token.
        if entry.get("tokenFile"):
            raise ConfigError(f"users {name} names a file (tokenFile): put what is in it inline, as token")
    return select(config)
