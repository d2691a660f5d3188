"""ClusterResourceSetBindings: the record, one for each cluster, of what its ClusterResourceSets have applied. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.addons_cluster_x_k8s_io import API_VERSION
from remuda.kube.clock import rfc3339
from remuda.kube.objects import dig, name_of, namespace_of, with_path
from remuda.kube.owners import reference, with_owner, without_owner

Obj = dict[str, Any]


def new_binding(cluster: Obj) -> Obj:
    metadata = {"name": name_of(cluster), "namespace": namespace_of(cluster), "ownerReferences": [reference(cluster)]}
    spec = {"clusterName": name_of(cluster), "bindings": []}
    return {"apiVersion": API_VERSION, "kind": "ClusterResourceSetBinding", "metadata": metadata, "spec": spec}


def entries_of(binding: Obj | None, resource_set: Obj) -> dict[tuple[str, str], Obj]:
    """What is recorded of a ClusterResourceSet, by the kind and name of the resource."""
    for each in dig(binding, "spec", "bindings") or ():
        if each.get("clusterResourceSetName") == name_of(resource_set):
            return {(entry["kind"], entry["name"]): entry for entry in each.get("resources") or ()}
    return {}


def entry(named: Obj, applied: bool, digest: str, now: float) -> Obj:
    made: Obj = {"kind": named["kind"], "name": named["name"], "applied": applied, "lastAppliedTime": rfc3339(now)}
    return {**made, "hash": digest} if digest else made


def with_entries(binding: Obj, resource_set: Obj, entries: Iterable[Obj]) -> Obj:
    """The binding with this record of the set, which becomes one of its owners."""
    record = {"clusterResourceSetName": name_of(resource_set), "resources": list(entries)}
    found = dig(binding, "spec", "bindings") or []
    if record in found:
        return with_owner(binding, reference(resource_set))
    changed = with_path(binding, ("spec", "bindings"), [*_of_others(binding, resource_set), record])
    return with_owner(changed, reference(resource_set))


def without_entries(binding: Obj, resource_set: Obj) -> Obj:
    """The binding after the set is gone."""
    return without_owner(with_path(binding, ("spec", "bindings"), _of_others(binding, resource_set)), reference(resource_set))


def _of_others(binding: Obj, resource_set: Obj) -> list[Obj]:
    found = dig(binding, "spec", "bindings") or []
    return [each for each in found if each.get("clusterResourceSetName") != name_of(resource_set)]
