"""The caches that the controllers of machines share, and the lookups between a machine, its bootstrap and its plan.

A host can write its plan's Secret, including labels and owners, so these are not trusted. The Secret's name can't change,
and it follows from the bootstrap's name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import CLUSTER_NAME
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import GroupVersion, Key, dig, labels_of, name_of, namespace_of, owner_references_of, uid_of
from remuda.runtime import Informer, Informers, synced
from remuda.runtime.informer import without_managed_fields

from .well_known import PLAN_TYPE, plan_name

Obj = dict[str, Any]

PLAN_FIELDS = f"type={PLAN_TYPE}"
_BY_CLUSTER, _BY_BOOTSTRAP, _BY_PLAN, _BY_MACHINE = "cluster", "bootstrap", "plan", "machine"


class MachineCaches:
    def __init__(self, informers: Informers) -> None:
        self.bootstraps = informers.of(rke.RKE_BOOTSTRAPS)
        self.machines = informers.of(capi.MACHINES)
        self.clusters = informers.of(capi.CLUSTERS)
        self.control_planes = informers.of(rke.RKE_CONTROL_PLANES)
        self.plans = plan_secrets(informers)
        self.bootstraps.add_index(_BY_PLAN, lambda obj: (Key(namespace_of(obj), plan_name(name_of(obj))),))
        self.bootstraps.add_index(_BY_CLUSTER, lambda obj: _cluster_keys(obj, dig(obj, "spec", "clusterName")))
        self.bootstraps.add_index(_BY_MACHINE, _owning_machines)
        self.machines.add_index(_BY_BOOTSTRAP, _bootstraps)
        self.machines.add_index(_BY_CLUSTER, lambda obj: _cluster_keys(obj, dig(obj, "spec", "clusterName")))
        self.caches = (self.bootstraps, self.machines, self.clusters, self.control_planes, self.plans)

    async def synced(self) -> None:
        await synced(*self.caches)

    def machine_of(self, bootstrap: Obj) -> Obj | None:
        """The Machine that owns it, by uid: another Machine may have the same name."""
        for key in _owning_machines(bootstrap):
            found = self.machines.get(*key)
            if found is not None and any(each.get("uid") == uid_of(found) for each in owner_references_of(bootstrap)):
                return found
        return None

    def machines_with(self, bootstrap: Key) -> list[Obj]:
        """The Machines that reference this bootstrap, even if it is gone."""
        return sorted(self.machines.indexed(_BY_BOOTSTRAP, bootstrap), key=name_of)

    def cluster_of(self, obj: Obj) -> Obj | None:
        """The Cluster API Cluster of a bootstrap or a Machine."""
        name = dig(obj, "spec", "clusterName") or ""
        return self.clusters.get(namespace_of(obj), name) if name else None

    def control_plane_of(self, cluster: Obj) -> Obj | None:
        """The control plane; None also if it is of another kind."""
        ref = dig(cluster, "spec", "controlPlaneRef") or {}
        if ref.get("kind") != "RKEControlPlane" or ref.get("apiGroup") != rke.GROUP:
            return None
        return self.control_planes.get(namespace_of(cluster), ref.get("name") or "")

    def plan_of(self, bootstrap: Obj) -> Obj | None:
        return self.plans.get(namespace_of(bootstrap), plan_name(name_of(bootstrap)))

    def bootstrap_of_plan(self, secret: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self.bootstraps.indexed(_BY_PLAN, Key.of(secret))]

    def bootstrap_of_machine(self, machine: Obj) -> Iterable[Key]:
        return _bootstraps(machine)

    def bootstraps_of_cluster(self, cluster: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self.bootstraps.indexed(_BY_CLUSTER, Key.of(cluster))]

    def machines_of_cluster(self, cluster: Key) -> list[Obj]:
        return sorted(self.machines.indexed(_BY_CLUSTER, cluster), key=name_of)

    def bootstraps_in(self, cluster: Key) -> list[Obj]:
        return sorted(self.bootstraps.indexed(_BY_CLUSTER, cluster), key=name_of)


def plan_secrets(informers: Informers) -> Informer:
    """The one cache of plan Secrets, shared by all callers."""
    return informers.of(SECRETS, fields=PLAN_FIELDS, transform=without_managed_fields)


def _cluster_keys(obj: Obj, name: str | None) -> Iterable[Hashable]:
    found = name or labels_of(obj).get(CLUSTER_NAME)
    return (Key(namespace_of(obj), found),) if found else ()


def _bootstraps(machine: Obj) -> list[Key]:
    ref = dig(machine, "spec", "bootstrap", "configRef") or {}
    if ref.get("kind") != "RKEBootstrap" or ref.get("apiGroup") != rke.GROUP:
        return []
    return [Key(namespace_of(machine), ref.get("name") or "")]


def _owning_machines(bootstrap: Obj) -> list[Key]:
    return [
        Key(namespace_of(bootstrap), each.get("name") or "")
        for each in owner_references_of(bootstrap)
        if each.get("kind") == "Machine" and GroupVersion.parse(each.get("apiVersion") or "").group == capi.GROUP
    ]
