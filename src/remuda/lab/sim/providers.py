"""Shared parts of the simulated providers: their caches, their world, and their writes.

Providers follow the contract of Cluster API as external ones would: they find their owner, wait for the core, and report in the
fields of the contract. They know nothing of the core's code but its kinds and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.capi.contracts import Contracts
from remuda.capi.well_known import CLUSTER_NAME, MOVED_AWAY
from remuda.kube.conditions import TRUE, with_condition
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, labels_of, namespace_of, owner_references_of
from remuda.runtime import Informer, Manager, changed
from remuda.runtime.patching import Patch

from .delays_and_faults import Weather
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
    """Maps a Cluster to all objects that carry its name."""
    informer.add_index(BY_CLUSTER, by_cluster)
    return lambda cluster: [Key.of(obj) for obj in informer.indexed(BY_CLUSTER, Key.of(cluster))]


# Tells whether a Cluster has changed in what providers wait for: its initialization, its pause, its deletion.
handed_over = changed("status.initialization", "spec.paused", "metadata.deletionTimestamp")


def held(obj: Obj) -> bool:
    """Tells whether a test plays its provider by hand, or it is being moved to another management cluster."""
    return not annotations_of(obj).keys().isdisjoint((HOLD, MOVED_AWAY))


# --- provider crds --------------------------------------------------------------------------------------------------------
#
# The simulated providers' kinds: names, references and CustomResourceDefinitions.

INFRASTRUCTURE = "infrastructure.sim.remuda.dev"
BOOTSTRAP = "bootstrap.sim.remuda.dev"
CONTROL_PLANE = "controlplane.sim.remuda.dev"
VERSION = "v1"

SIM_CLUSTERS = GroupVersionResource(INFRASTRUCTURE, VERSION, "simclusters")
SIM_MACHINES = GroupVersionResource(INFRASTRUCTURE, VERSION, "simmachines")
SIM_MACHINE_TEMPLATES = GroupVersionResource(INFRASTRUCTURE, VERSION, "simmachinetemplates")
SIM_CONFIGS = GroupVersionResource(BOOTSTRAP, VERSION, "simconfigs")
SIM_CONFIG_TEMPLATES = GroupVersionResource(BOOTSTRAP, VERSION, "simconfigtemplates")
SIM_CONTROL_PLANES = GroupVersionResource(CONTROL_PLANE, VERSION, "simcontrolplanes")

FINALIZER = "sim.remuda.dev/provider"
# The simulation ignores an object with this annotation: a test plays its provider by hand.
HOLD = "sim.remuda.dev/hold"

_KINDS = (
    (INFRASTRUCTURE, "SimCluster"),
    (INFRASTRUCTURE, "SimMachine"),
    (INFRASTRUCTURE, "SimMachineTemplate"),
    (BOOTSTRAP, "SimConfig"),
    (BOOTSTRAP, "SimConfigTemplate"),
    (CONTROL_PLANE, "SimControlPlane"),
)


def crds() -> list[Obj]:
    """The provider CRDs. They accept any spec and status: a stand-in has no rules of its own."""
    return [_crd(group, kind) for group, kind in _KINDS]


def _crd(group: str, kind: str) -> Obj:
    plural = f"{kind.lower()}s"
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Obj = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": f"A simulated {kind.removeprefix('Sim')}: no machine stands behind it.",
                "properties": {"spec": loose, "status": loose},
            }
        },
    }
    if kind == "SimControlPlane":
        version["subresources"]["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    labels = {"cluster.x-k8s.io/v1beta2": VERSION, "cluster.x-k8s.io/provider": "sim", "clusterctl.cluster.x-k8s.io": ""}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": labels},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                "categories": ["cluster-api"],
            },
            "versions": [version],
        },
    }


def ref(group: str, kind: str, name: str) -> Obj:
    """A reference as Cluster API's v1beta2 requires it."""
    return {"apiGroup": group, "kind": kind, "name": name}
