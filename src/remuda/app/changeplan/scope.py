"""Which objects a plan needs: those that reconcilers of the affected clusters read, and not those of the other clusters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import CLUSTER_NAME as CAPI_CLUSTER_NAME
from remuda.kube.builtin_resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.provisioning.well_known import CLUSTER_NAME

from .changes import Change

Obj = dict[str, Any]

# What every cluster's controllers may read, whichever cluster it is.
SHARED_NAMESPACES: Final = ("cattle-global-data", "cattle-system", "default", "fleet-local", "kube-system", "local")
_GROUPS: Final = ("cattle.io", "cluster.x-k8s.io", "remuda.dev")
# Kinds that are many, and that no plan of a machine depends on.
_LEFT_OUT: Final = frozenset({("management.cattle.io", "tokens")})
GLOBAL: Final = (NAMESPACES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
NAMESPACED: Final = (SECRETS, CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, JOBS)
_HELM: Final = "helm.sh/release.v1"


class Kind(NamedTuple):
    """A custom kind in its storage version."""

    resource: GroupVersionResource
    namespaced: bool


def kinds(definitions: Iterable[Obj]) -> list[Kind]:
    """The custom kinds that are copied."""
    found = []
    for definition in definitions:
        spec = definition["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        if is_ours(definition) and (group, plural) not in _LEFT_OUT:
            version = next(each["name"] for each in spec["versions"] if each.get("storage"))
            found.append(Kind(GroupVersionResource(group, version, plural), spec["scope"] == "Namespaced"))
    return found


def is_ours(definition: Obj) -> bool:
    """True for definitions of Rancher's, Cluster API's and its providers' kinds."""
    group = str(definition["spec"]["group"])
    return any(group == each or group.endswith(f".{each}") for each in _GROUPS)


# --- the affected clusters --------------------------------------------------------------------------------------------------


def affected(
    changes: Iterable[Change], clusters: Sequence[Obj], objects: Mapping[tuple[GroupVersionResource, Key], Obj]
) -> list[Key]:
    """The clusters that a change concerns: the changed ones, the owner of a changed object, those that name it; and all of them
    where it concerns every cluster. `objects` are the changed ones as they are now."""
    found: set[Key] = set()
    for change in changes:
        group, key = change.resource.group, change.key
        if change.resource.group_resource == provisioning.CLUSTERS.group_resource:
            found.add(key)
            continue
        present = objects.get((change.resource, key))
        owner = None if present is None else cluster_name(present, change.resource)
        if owner:
            found.add(Key(key.namespace, owner))
        elif group == management.GROUP and not key.namespace and change.resource.resource != "clusters":
            found.update(Key.of(each) for each in clusters if has_machines(each))
        else:
            found.update(
                Key.of(each) for each in clusters if _names(each, key.name) or managed_name(each) in (key.name, key.namespace)
            )
    return sorted(found)


def has_machines(cluster: Obj) -> bool:
    """False for imported clusters and the server's own, whose machines Remuda does not manage."""
    return isinstance(dig(cluster, "spec", "rkeConfig"), dict)


def managed_name(cluster: Obj) -> str:
    """The name of its management Cluster, and of that one's namespace."""
    return str(dig(cluster, "status", "clusterName") or "")


def _names(value: Any, name: str) -> bool:
    """True if a text anywhere in the value is that name, or `namespace:name`, as references of specs are written."""
    if isinstance(value, dict):
        return any(_names(each, name) for each in value.values())
    if isinstance(value, list):
        return any(_names(each, name) for each in value)
    return isinstance(value, str) and (value == name or value.endswith((f":{name}", f"://{name}")))


def cluster_name(obj: Obj, resource: GroupVersionResource) -> str:
    """The name of the cluster that an object of a workspace belongs to by what it says itself; "" if it does not say so."""
    if resource.group_resource in _CLUSTERS:
        return name_of(obj)
    labels = labels_of(obj)
    said = labels.get(CAPI_CLUSTER_NAME) or labels.get(CLUSTER_NAME) or annotations_of(obj).get(CLUSTER_NAME)
    return str(said or dig(obj, "spec", "clusterName") or "")


_CLUSTERS = frozenset(
    each.group_resource for each in (provisioning.CLUSTERS, capi.CLUSTERS, rke.RKE_CLUSTERS, rke.RKE_CONTROL_PLANES)
)


class Found(NamedTuple):
    """An object, and whether its kind is a custom one."""

    resource: GroupVersionResource
    obj: Obj
    custom: bool = False


def without_others(found: Iterable[Found], clusters: Collection[Key], known: Collection[Key]) -> list[Found]:
    """Without the objects of the other `known` clusters, by what they say and by their owners."""
    listed = list(found)
    owners = {uid_of(each.obj): each for each in listed}
    kept = []
    for each in listed:
        cluster = _cluster_of(each, owners, frozenset())
        if cluster is None or cluster in clusters or cluster not in known:
            kept.append(each)
    return kept


def _cluster_of(found: Found, owners: Mapping[str, Found], seen: frozenset[str]) -> Key | None:
    obj = found.obj
    if not namespace_of(obj):
        return None
    name = cluster_name(obj, found.resource)
    if name:
        return Key(namespace_of(obj), name)
    for reference in owner_references_of(obj):
        uid = str(reference.get("uid") or "")
        owner = owners.get(uid)
        if owner is not None and uid not in seen:
            return _cluster_of(owner, owners, seen | {uid})
    return None


def is_copied(found: Found) -> bool:
    """False for what no controller of clusters reads."""
    return found.resource != SECRETS or found.obj.get("type") != _HELM
