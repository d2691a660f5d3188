"""Shared parts of the core's controllers: one client, the caches of the core kinds with their indexes, providers' objects,
workload clusters, and the options.

Every controller gets the one :class:`Core`. Caches are shared and read-only. A reconcile begins with :meth:`Core.fresh`, so that
it never decides on a cache older than its own writes, and ends with :meth:`Core.patch`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda.api.cluster_x_k8s_io import (
    CLUSTERS,
    GROUP,
    MACHINE_DEPLOYMENTS,
    MACHINE_DRAIN_RULES,
    MACHINE_HEALTH_CHECKS,
    MACHINE_SETS,
    MACHINES,
)
from remuda.kube.objects import (
    GroupVersion,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.owners import controller_of
from remuda.runtime import Informer, Manager, Recorder, synced
from remuda.runtime.controller import Mapping
from remuda.runtime.patching import Patch

from .contracts import Contracts
from .drain_count import DrainCount
from .external_objects import Externals
from .well_known import CLUSTER_NAME, DEPLOYMENT_NAME, HOLDS_DATA, WATCH_FILTER
from .workload_clusters import Workloads

Obj = dict[str, Any]

# Indexes of the caches.
BY_CLUSTER = "cluster"  # (namespace, cluster name), by label and spec.clusterName
BY_CONTROLLER = "controller"  # the uid of the owner that controls the object
BY_OWNER = "owner"  # the uid of any owner
BY_DEPLOYMENT = "deployment"  # machines and sets: (namespace, deployment's name), by label
BY_NODE = "node"  # machines: (namespace, cluster name, node name)
BY_PROVIDER_ID = "providerID"  # machines: (namespace, cluster name, providerID)


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The operator's options; names and defaults as the flags of Cluster API's manager. Times are seconds.

    concurrency: of each controller. Upstream's 50 and 100 make up for waiting on requests, which here are few.
    """

    namespace: str = ""
    watch_filter: str = ""
    sync_period: float = 600.0
    remote_connection_grace: float = 50.0
    remote_conditions_grace: float = 300.0
    preflight_checks: frozenset[str] = frozenset({"All"})
    additional_sync_labels: tuple[re.Pattern[str], ...] = ()
    additional_sync_annotations: tuple[re.Pattern[str], ...] = ()
    concurrency: int = 10


def cluster_name_of(obj: Obj) -> str:
    return dig(obj, "spec", "clusterName") or labels_of(obj).get(CLUSTER_NAME) or ""


def cluster_key_of(obj: Obj) -> Key:
    return Key(namespace_of(obj), cluster_name_of(obj))


class Core:
    def __init__(
        self,
        manager: Manager,
        workloads: Workloads,
        options: ControllerOptions = ControllerOptions(),
        drains: DrainCount | None = None,
    ) -> None:
        """`drains` is the count that other controllers of this process share, if they drain machines, too."""
        self.manager = manager
        self.drains = drains or DrainCount(manager.clock)
        self.client = manager.client
        self.clock = manager.clock
        self.rng = manager.rng
        self.options = options
        self.workloads = workloads
        self.contracts = Contracts(manager.informers)
        self.externals = Externals(manager, self.contracts, options.namespace)
        of = manager.informers.of
        self.clusters = of(CLUSTERS, options.namespace)
        self.machines = of(MACHINES, options.namespace)
        self.pending = PendingMachines(self.machines)
        self.machine_sets = of(MACHINE_SETS, options.namespace)
        self.machine_deployments = of(MACHINE_DEPLOYMENTS, options.namespace)
        self.health_checks = of(MACHINE_HEALTH_CHECKS, options.namespace)
        self.drain_rules = of(MACHINE_DRAIN_RULES, options.namespace)
        for informer in (self.machines, self.machine_sets, self.machine_deployments, self.health_checks):
            informer.add_index(BY_CLUSTER, _clusters)
            informer.add_index(BY_CONTROLLER, _controllers)
            informer.add_index(BY_OWNER, lambda obj: [ref.get("uid") for ref in owner_references_of(obj)])
        for informer in (self.machines, self.machine_sets):
            informer.add_index(BY_DEPLOYMENT, _deployments)
        self.machines.add_index(BY_NODE, _nodes)
        self.machines.add_index(BY_PROVIDER_ID, _provider_ids)
        self._caches = (
            self.contracts.crds,
            self.clusters,
            self.machines,
            self.machine_sets,
            self.machine_deployments,
            self.health_checks,
            self.drain_rules,
        )

    # --- reading --------------------------------------------------------------------------------------------------------

    def cluster_of(self, obj: Obj) -> Obj | None:
        """The Cluster that an object belongs to."""
        return self.clusters.get(*cluster_key_of(obj))

    def in_cluster(self, informer: Informer, cluster: Key) -> list[Obj]:
        """The machines (sets, deployments, …) of a cluster, by name."""
        return sorted(informer.indexed(BY_CLUSTER, cluster), key=Key.of)

    def controlled(self, informer: Informer, owner: Obj) -> list[Obj]:
        """The objects that `owner` controls, by name."""
        return sorted(informer.indexed(BY_CONTROLLER, owner["metadata"]["uid"]), key=Key.of)

    def wants(self, obj: Obj) -> bool:
        """True if an object is for this manager (`--watch-filter`)."""
        return not self.options.watch_filter or labels_of(obj).get(WATCH_FILTER) == self.options.watch_filter

    def lane(self, informer: Informer) -> Callable[[Key], Hashable]:
        """The cluster of a key: queues let clusters take turns."""

        def lane(key: Key) -> Hashable:
            obj = informer.get(*key)
            return key if obj is None else cluster_key_of(obj)

        return lane

    def of_cluster(self, informer: Informer) -> Mapping:
        """A Cluster concerns all objects of a kind that belong to it."""
        return lambda cluster: [Key.of(obj) for obj in informer.indexed(BY_CLUSTER, Key.of(cluster))]

    def woken_by_connections(self, controller: str, informer: Informer) -> None:
        """Queue a cluster's objects for a controller when the cluster is connected or disconnected."""

        def changed(cluster: Key) -> None:
            working = self.manager.working(controller)
            if working is not None:
                for obj in informer.indexed(BY_CLUSTER, cluster):
                    working.queue.add(Key.of(obj))

        self.workloads.on_change(changed)

    def now(self) -> float:
        return self.clock.time()

    # --- writing --------------------------------------------------------------------------------------------------------

    async def fresh(self, controller: str, key: Key) -> None:
        """Wait until the caches are filled, and have this controller's earlier writes for this key; Retry if they don't in time.

        It waits for all caches, not only those that a controller watches: otherwise a controller that has just started would take
        an object that it has not read yet for a missing one, and report that.
        """
        await synced(*self._caches)
        await self.manager.freshness.caught_up((controller, key))

    def wrote(self, controller: str, key: Key, informer: Informer, obj: Obj) -> None:
        """Note a write (`obj` as the server answered) that the next reconcile of `key` must see in `informer`."""
        self.manager.freshness.wrote((controller, key), informer, obj)

    def deleted(self, controller: str, key: Key, informer: Informer, obj: Obj) -> None:
        self.manager.freshness.deleted((controller, key), informer, obj)

    def patch(self, controller: str, informer: Informer, obj: Obj, owned: Collection[str] = ()) -> Patch:
        """The writer of what a reconcile changes of its own object; `owned` are the condition types of the controller."""
        key = Key.of(obj)
        return Patch(
            self.client,
            informer.resource,
            obj,
            self.clock,
            owned=owned,
            on_written=lambda written: self.wrote(controller, key, informer, written),
        )

    def recorder(self, controller: str) -> Recorder:
        return self.manager.recorder(controller)


def _clusters(obj: Obj) -> Iterable[Hashable]:
    name = cluster_name_of(obj)
    return (Key(namespace_of(obj), name),) if name else ()


def _controllers(obj: Obj) -> Iterable[Hashable]:
    owner = controller_of(obj)
    return () if owner is None else (owner.get("uid"),)


def _deployments(obj: Obj) -> Iterable[Hashable]:
    name = labels_of(obj).get(DEPLOYMENT_NAME)
    return (Key(namespace_of(obj), name),) if name else ()


def _nodes(machine: Obj) -> Iterable[Hashable]:
    name = dig(machine, "status", "nodeRef", "name")
    return ((*cluster_key_of(machine), name),) if name else ()


def _provider_ids(machine: Obj) -> Iterable[Hashable]:
    found = dig(machine, "spec", "providerID")
    return ((*cluster_key_of(machine), found),) if found else ()


def owner_is(reference: Obj, kind: str, group: str = GROUP) -> bool:
    return reference.get("kind") == kind and GroupVersion.parse(reference.get("apiVersion") or "").group == group


# --- pending machines -----------------------------------------------------------------------------------------------------
#
# Machines that are being made and are not in the cache yet, by the set that makes them.
#
# A deployment that shrinks an old set counts the machines of that set, to know how far its new set may grow. The old set may
# be making machines at that moment, for its earlier size. Both run in one process (there is one leader), so the set
# records here what it has begun.

_BEGUN = ""


class PendingMachines:
    def __init__(self, machines: Informer) -> None:
        self._machines = machines
        # Set's uid: machine: revision of its creation, or _BEGUN.
        self._made: defaultdict[str, dict[Key, str]] = defaultdict(dict)

    def begin(self, owner: str, machine: Key) -> None:
        self.count(owner)
        self._made[owner][machine] = _BEGUN

    def failed(self, owner: str, machine: Key) -> None:
        self._made[owner].pop(machine, None)

    def made(self, owner: str, machine: Key, revision: str) -> None:
        self._made[owner][machine] = revision

    def count(self, owner: str) -> int:
        found = self._made.get(owner)
        if not found:
            self._made.pop(owner, None)
            return 0
        for machine in [machine for machine, revision in found.items() if self._seen(machine, revision)]:
            del found[machine]
        return len(found)

    def _seen(self, machine: Key, revision: str) -> bool:
        """True if its creation has been seen here; by now it may be gone again."""
        if revision == _BEGUN:
            return self._machines.get(*machine) is not None
        return self._machines.has_reached(revision)


# --- stillborn ------------------------------------------------------------------------------------------------------------
#
# Machines that never became nodes: nothing runs on them, so an outdated one may go before another is there. Pure.
#
# A Machine with the provider's annotation that it holds data is not one of them, with or without a node.


def never_was_node(machine: Obj) -> bool:
    if is_being_deleted(machine) or dig(machine, "status", "nodeRef", "name"):
        return False
    return HOLDS_DATA not in annotations_of(machine)
