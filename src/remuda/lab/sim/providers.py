"""What the simulated providers share: their caches, the world they live in, and how they write.

Providers follow the contract of Cluster API as strangers would: they find their owner, wait for what the core must do first,
and say what they did in the fields of the contract. They know nothing of the core's code but its kinds and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.capi.contracts import Contracts
from remuda.capi.well_known import CLUSTER_NAME
from remuda.kube.conditions import TRUE, with_condition
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, labels_of, namespace_of, owner_references_of
from remuda.runtime import Informer, Manager
from remuda.runtime.patching import Patch

from .delays_and_faults import Weather
from .provider_crds import HOLD, MOVED_AWAY
from .workload_clusters import SimulatedClusters

Obj = dict[str, Any]

BY_CLUSTER = "cluster"


class Land:
    """One simulated world, as its providers see it."""

    def __init__(self, manager: Manager, clusters: SimulatedClusters, weather: Weather, seed: int) -> None:
        self.manager = manager
        self.client = manager.client
        self.clock = manager.clock
        self.rng = manager.rng
        self.clusters = clusters
        self.weather = weather
        self.seed = seed
        self.contracts = Contracts(manager.informers)
        self.core_clusters = manager.informers.of(CLUSTERS)
        self.core_machines = manager.informers.of(MACHINES)
        self.core_machines.add_index(BY_CLUSTER, by_cluster)

    def cluster_of(self, obj: Obj) -> Obj | None:
        name = labels_of(obj).get(CLUSTER_NAME)
        return self.core_clusters.get(namespace_of(obj), name) if name else None

    def machine_of(self, obj: Obj) -> Obj | None:
        """The Machine that controls an infra machine or a bootstrap config."""
        for reference in owner_references_of(obj):
            if reference.get("kind") == "Machine" and reference.get("controller"):
                return self.core_machines.get(namespace_of(obj), reference["name"])
        return None

    def patch(self, informer: Informer, obj: Obj) -> Patch:
        key = (informer.resource, Key.of(obj))
        return Patch(
            self.client,
            informer.resource,
            obj,
            self.clock,
            owned={"Ready", "Available", "ScalingUp", "ScalingDown", "RollingOut"},
            on_written=lambda written: self.manager.freshness.wrote(key, informer, written),
        )

    async def fresh(self, informer: Informer, key: Key) -> None:
        await self.manager.freshness.caught_up((informer.resource, key))

    async def delete(self, resource: GroupVersionResource, name: str, namespace: str = "") -> None:
        try:
            await self.client.delete(resource, name, namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise

    def ready(self, obj: Obj) -> Obj:
        return with_condition(obj, "Ready", TRUE, "Ready", now=self.clock.time())


def by_cluster(obj: Obj) -> Iterable[Key]:
    name = labels_of(obj).get(CLUSTER_NAME)
    return (Key(namespace_of(obj), name),) if name else ()


def of_cluster(informer: Informer) -> Callable[[Obj], Iterable[Key]]:
    """A Cluster concerns all objects that carry its name."""
    informer.add_index(BY_CLUSTER, by_cluster)
    return lambda cluster: [Key.of(obj) for obj in informer.indexed(BY_CLUSTER, Key.of(cluster))]


def handed_over(new: Obj | None, old: Obj | None) -> bool:
    """What providers wait for on a Cluster: its flags, its pause, its end."""
    if new is None or old is None:
        return True
    return any(
        dig(new, *path) != dig(old, *path)
        for path in (("status", "initialization"), ("spec", "paused"), ("metadata", "deletionTimestamp"))
    )


def held(obj: Obj) -> bool:
    """Not ours to touch: played by hand, or on its way to another management cluster."""
    return not annotations_of(obj).keys().isdisjoint((HOLD, MOVED_AWAY))
