"""The caches of this package's controllers: one set, with the indexes that lead from an object to those it affects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, GLOBAL_ROLE_BINDINGS, GROUP, TOKENS, USERS
from remuda.api.management_cattle_io import GLOBAL_ROLES as GLOBAL_ROLE_KIND
from remuda.api.management_cattle_io import ROLE_TEMPLATES as ROLE_TEMPLATE_KIND
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING_GROUP
from remuda.api.rke_cattle_io import CLUSTER_NAME as RKE_CLUSTER_NAME
from remuda.api.rke_cattle_io import CUSTOM_MACHINES, ETCD_SNAPSHOTS, RKE_BOOTSTRAPS, RKE_CLUSTERS, RKE_CONTROL_PLANES
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.owners import is_owned_by
from remuda.kube.wrangler import OWNER_NAME, OWNER_NAMESPACE
from remuda.runtime import Informer, Informers, Manager, Watch
from remuda.runtime.controller import Predicate

from .binding_subjects import opens, subject_of
from .rbac_writer import Id, by_id
from .role_names import CLUSTER, CLUSTER_ROLES, RBAC_KINDS
from .role_rules import included, rules_of_template

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
# Cluster API's kinds in a workspace to which access is given by name.
CAPI_KINDS = (CAPI_CLUSTERS, MACHINES, MACHINE_SETS, MACHINE_DEPLOYMENTS)
# And our own kinds; ConfigMaps record how machines were made.
RKE_KINDS = (RKE_CLUSTERS, RKE_CONTROL_PLANES, RKE_BOOTSTRAPS, CUSTOM_MACHINES, ETCD_SNAPSHOTS, CONFIG_MAPS)
CAPI_GROUP, CLUSTER_NAME = "cluster.x-k8s.io", "cluster.x-k8s.io/cluster-name"
# Groups of node drivers' kinds.
DRIVER_MACHINES, DRIVER_CONFIGS = "rke-machine.cattle.io", "rke-machine-config.cattle.io"
DRIVER_GROUPS: Final = frozenset({DRIVER_MACHINES, DRIVER_CONFIGS})
_DRIVER_LABELS: Final = "auth.cattle.io/cluster-indexed=true"
_DRIVER_VERSION: Final = "v1"
_CLUSTER_LABELS = (CLUSTER_NAME, RKE_CLUSTER_NAME)


def without_data(secret: Obj) -> Obj:
    """A Secret's name, labels, owners and type: this package never needs its data."""
    meta = secret.get("metadata") or {}
    kept = {key: value for key, value in meta.items() if key not in ("managedFields", "annotations")}
    return {"metadata": kept, "type": secret.get("type") or ""}


def cluster_of_secret(secret: Obj) -> Iterable[Key]:
    """The clusters (by their names in the workspace) to which a Secret says that it belongs."""
    named = {labels_of(secret).get(label) or "" for label in _CLUSTER_LABELS}
    for owner in owner_references_of(secret):
        group = GroupVersion.parse(owner.get("apiVersion") or "").group
        if owner.get("kind") == "Cluster" and group in (PROVISIONING_GROUP, CAPI_GROUP):
            named.add(owner.get("name") or "")
    return [Key(namespace_of(secret), name) for name in sorted(named - {""})]


def cluster_of_capi(obj: Obj) -> Iterable[Key]:
    """A machine's cluster by its label; a Cluster of Cluster API has the name of its provisioning Cluster."""
    labels = labels_of(obj)
    name = labels.get(CLUSTER_NAME) or labels.get(RKE_CLUSTER_NAME)
    return (Key(namespace_of(obj), name),) if name else ()


def workspace_watch(kind: GroupVersionResource, to: Any, when: Any) -> Watch:
    """A watch on kinds to which access is given by name: by the label that names their cluster."""
    return Watch(kind, to, when=when, labels=_label_of(kind), metadata_only=True)


def _label_of(kind: GroupVersionResource) -> str:
    return RKE_CLUSTER_NAME if kind in (ETCD_SNAPSHOTS, CONFIG_MAPS) else CLUSTER_NAME


def is_made_for(capi: Obj, provisioning: Obj) -> bool:
    """True if a Cluster of Cluster API exists because of this one. An equal name proves nothing: users who may make clusters
    choose their names."""
    said = annotations_of(capi)
    marked = Key(said.get(OWNER_NAMESPACE) or "", said.get(OWNER_NAME) or "") == Key.of(provisioning)
    return is_owned_by(capi, provisioning) or (marked and _made(capi) >= _made(provisioning))


def _made(obj: Obj) -> str:
    return str((obj.get("metadata") or {}).get("creationTimestamp") or "")


def owners_of(kind: str) -> Any:
    """A mapping to the cluster-scoped owners of this kind of ours, also for namespaced objects."""

    def keys(obj: Obj) -> Iterable[Key]:
        for owner in owner_references_of(obj):
            if owner.get("kind") == kind and GroupVersion.parse(owner.get("apiVersion") or "").group == GROUP:
                yield Key("", owner.get("name") or "")

    return keys


cluster_of_rbac = owners_of("Cluster")


def rbac_watches(label: str, kinds: Iterable[str], to: Any) -> tuple[Watch, ...]:
    return tuple(Watch(RBAC_KINDS[kind], to, labels=label) for kind in kinds)


class Views:
    def __init__(self, informers: Informers, *, machines: bool = True, provisions: bool = False) -> None:
        """`machines`: Cluster API's kinds are served; `provisions`: our own providers' are. Those of node drivers are added to
        `in_workspaces` when they appear (:class:`DriverKinds`)."""
        self._informers = informers
        self.provisions = provisions
        self.clusters = informers.of(CLUSTERS)
        self.bindings = informers.of(CLUSTER_ROLE_TEMPLATE_BINDINGS)
        self.templates = informers.of(ROLE_TEMPLATE_KIND)
        self.global_roles = informers.of(GLOBAL_ROLE_KIND)
        self.global_bindings = informers.of(GLOBAL_ROLE_BINDINGS)
        self.users = informers.of(USERS)
        self.provisioning = informers.of(PROVISIONING_CLUSTERS)
        self.secrets = informers.of(SECRETS, transform=without_data)
        self.cluster_roles = informers.of(CLUSTER_ROLES)
        self.namespaces = informers.of(NAMESPACES)
        self.kinds = (*(CAPI_KINDS if machines else ()), *(RKE_KINDS if provisions else ()))
        self.in_workspaces = {each: informers.of(each, labels=_label_of(each), metadata_only=True) for each in self.kinds}
        self.capi_clusters = informers.of(CAPI_CLUSTERS, metadata_only=True) if machines else None
        self.tokens = informers.of(TOKENS)
        self.rbac = {kind: informers.of(resource, labels=CLUSTER) for kind, resource in RBAC_KINDS.items()}
        self._index()

    def _index(self) -> None:
        self.bindings.add_index("template", lambda obj: (obj.get("roleTemplateName") or "",))
        for bindings in (self.bindings, self.global_bindings):
            bindings.add_index("user", lambda obj: filter(None, (obj.get("userName"),)))
        self.bindings.add_index("principal", lambda obj: filter(None, (obj.get("userPrincipalName"),)))
        self.bindings.add_index("namespace", lambda obj: (namespace_of(obj),))
        self.templates.add_index("included", lambda obj: obj.get("roleTemplateNames") or ())
        self.global_bindings.add_index("role", lambda obj: (obj.get("globalRoleName") or "",))
        self.users.add_index("principal", lambda obj: obj.get("principalIds") or ())
        self.provisioning.add_index("cluster", lambda obj: (dig(obj, "status", "clusterName") or "",))
        self.tokens.add_index("opens", opens)
        self.secrets.add_index("cluster", cluster_of_secret)
        self.secrets.add_index("namespace", lambda obj: (namespace_of(obj),))
        for informer in self.in_workspaces.values():
            informer.add_index("cluster", cluster_of_capi)
        for informer in self.rbac.values():
            informer.add_index("cluster", lambda obj: [key.name for key in cluster_of_rbac(obj)])

    # --- looking up ---------------------------------------------------------------------------------------------------

    def template(self, name: str) -> Obj | None:
        return self.templates.get("", name)

    def cluster_role(self, name: str) -> Obj | None:
        return self.cluster_roles.get("", name)

    def user_of(self, principal: str) -> str:
        found = self.users.indexed("principal", principal)
        return name_of(found[0]) if len(found) == 1 else ""

    def bindings_of(self, cluster: str) -> list[Obj]:
        """The ClusterRoleTemplateBindings in force in a cluster, ordered by name."""
        found = self.bindings.indexed("namespace", cluster)
        return sorted((each for each in found if each.get("clusterName") == cluster and not is_being_deleted(each)), key=name_of)

    def included(self, template: str) -> list[Obj]:
        return included(template, self.template)

    def rules_of(self, template: Obj) -> list[Obj]:
        return rules_of_template(template, self.cluster_role)

    def subject_of(self, binding: Obj) -> Obj | None:
        return subject_of(binding, self.user_of)

    def existing(self, cluster: str) -> dict[Id, Obj]:
        """The existing roles and bindings on the management API for this cluster."""
        found: dict[Id, Obj] = {}
        for kind, informer in self.rbac.items():
            found |= by_id(kind, informer.indexed("cluster", cluster))
        return found

    def inheriting(self) -> list[tuple[Obj, Obj]]:
        """The GlobalRoleBindings whose role gives permissions in every cluster, each with that role."""
        return [
            (binding, role)
            for role in self.global_roles.objects()
            if role.get("inheritedClusterRoles")
            for binding in self.global_bindings.indexed("role", name_of(role))
            if not is_being_deleted(binding)
        ]

    # --- objects that a change affects ----------------------------------------------------------------------------------

    def clusters_of_template(self, template: Obj) -> Iterable[Key]:
        """The clusters with a binding of the template, or of one that includes it."""
        names = {name_of(template)}
        waiting = list(names)
        while waiting:
            for including in self.templates.indexed("included", waiting.pop()):
                if name_of(including) not in names:
                    names.add(name_of(including))
                    waiting.append(name_of(including))
        return {Key("", namespace_of(each)) for name in names for each in self.bindings.indexed("template", name)}

    def clusters_of_user(self, user: Obj) -> Iterable[Key]:
        """The clusters with a binding for the user, or for one of their principals."""
        found = [each for name in user.get("principalIds") or () for each in self.bindings.indexed("principal", name)]
        found += self.bindings.indexed("user", name_of(user))
        return {Key("", namespace_of(each)) for each in found}

    def clusters_of_secret(self, secret: Obj) -> Iterable[Key]:
        if self.clusters.get("", namespace_of(secret)) is not None:
            return (Key("", namespace_of(secret)),)
        return self.behind(cluster_of_secret(secret))

    def clusters_of_capi(self, obj: Obj) -> Iterable[Key]:
        return self.behind(cluster_of_capi(obj))

    def clusters_of_capi_cluster(self, obj: Obj) -> Iterable[Key]:
        return self.behind((Key.of(obj),))

    def behind(self, keys: Iterable[Key]) -> Iterable[Key]:
        """The management Clusters of provisioning Clusters."""
        for key in keys:
            found = self.provisioning.get(*key)
            if found is not None and (name := dig(found, "status", "clusterName")):
                yield Key("", name)


def nothing(obj: Obj) -> Iterable[Key]:
    """Mapping for kinds that must be known before the first decision, but whose changes queue nothing."""
    return ()


def name_key(obj: Obj) -> Iterable[Key]:
    """The cluster of the object's name: the object is its namespace."""
    return (Key("", name_of(obj)),)


def namespace_key(obj: Obj) -> Iterable[Key]:
    """The cluster of an object's namespace."""
    return (Key("", namespace_of(obj)),)


def provisioning_key(obj: Obj) -> Iterable[Key]:
    name = dig(obj, "status", "clusterName")
    return (Key("", name),) if name else ()


class DriverKinds:
    """Keeps `views` up to date with the kinds of node drivers, which come and go with their definitions.

    Users of a cluster see its objects of them. A label assigns a machine to its cluster; a cluster owns a config as soon as it
    uses it.

    The controller `follower` gets events of their objects if `when` accepts the change.
    """

    def __init__(self, manager: Manager, views: Views, follower: str, when: Predicate) -> None:
        self._manager = manager
        self._views = views
        self._follower = follower
        self._when = when
        self._stops: dict[GroupVersionResource, Callable[[], None]] = {}
        manager.informers.of(CRDS, labels=_DRIVER_LABELS).on_change(self._changed)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        spec = (new or old or {}).get("spec") or {}
        if spec.get("group") not in DRIVER_GROUPS:
            return
        resource = GroupVersionResource(spec["group"], _DRIVER_VERSION, dig(spec, "names", "plural") or "")
        if new is None:
            self._views.in_workspaces.pop(resource, None)
            if stop := self._stops.pop(resource, None):
                stop()
        elif resource not in self._stops:
            informer = self._informer(resource)
            self._views.in_workspaces[resource] = informer
            watch = Watch(resource, self._clusters, self._when, metadata_only=True)
            self._stops[resource] = self._manager.follow(self._follower, watch, informer)

    def _informer(self, resource: GroupVersionResource) -> Informer:
        informer = self._manager.informers.of(resource, metadata_only=True)
        informer.add_index("cluster", cluster_of_secret)
        return informer

    def _clusters(self, obj: Obj) -> Iterable[Key]:
        return self._views.behind(cluster_of_secret(obj))
