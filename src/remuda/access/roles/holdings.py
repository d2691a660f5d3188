"""Permissions that a user holds: on the management API, in one cluster, in every cluster; users can't grant more than that.

:mod:`.admission` calls it while a write waits, so every lookup is synchronous: in the API server's own cache, or, on an external
Kubernetes, in informers (:class:`InformerSource`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.api.cluster_x_k8s_io import GROUP as CAPI
from remuda.api.management_cattle_io import (
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    DYNAMIC_SCHEMAS,
    GLOBAL_ROLE_BINDINGS,
    GLOBAL_ROLES,
    GROUP,
    NODE_DRIVERS,
    ROLE_TEMPLATES,
    SETTINGS,
    USERS,
)
from remuda.api.provisioning_cattle_io import CLUSTERS as WANTED_CLUSTERS
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING
from remuda.api.rke_cattle_io import ETCD_SNAPSHOTS, RKE_CONTROL_PLANES
from remuda.api.rke_cattle_io import GROUP as RKE
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.policy_rules import Rule, compact, quoted, text, uncovered
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import AUTHENTICATED, MASTERS, User
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.errors import go_quote, unavailable
from remuda.kube.objects import GroupVersionResource, Key, Listener, ObjectSource, dig, is_being_deleted
from remuda.runtime import Informer, Informers

from .binding_subjects import subject_of
from .builtin_roles import BUILTIN
from .role_caches import DRIVER_GROUPS
from .role_names import CLUSTER_ROLES, RBAC_KINDS
from .role_rules import EVERYTHING, all_rules, holds_everything

Obj = dict[str, Any]

CAPI_CLUSTERS: Final = (CAPI, CLUSTERS.resource)
_CAPI_CLUSTERS_DEFINITION: Final = f"{CLUSTERS.resource}.{CAPI}"


class InformerSource:
    """An ObjectSource on informers, for the checks on an external Kubernetes."""

    KINDS = (
        *RBAC_KINDS.values(),
        GLOBAL_ROLES,
        GLOBAL_ROLE_BINDINGS,
        ROLE_TEMPLATES,
        CLUSTER_ROLE_TEMPLATE_BINDINGS,
        USERS,
        SETTINGS,
        GroupVersionResource(GROUP, "v3", "clusters"),
        NAMESPACES,
    )
    # Kinds for other rules; a server that does not provision clusters may not serve them.
    BESIDES = (RKE_CONTROL_PLANES, ETCD_SNAPSHOTS, MACHINES, WANTED_CLUSTERS, NODE_DRIVERS, DYNAMIC_SCHEMAS)

    def __init__(self, informers: Informers, objects: Iterable[tuple[GroupVersionResource, Key]] = ()) -> None:
        """`objects` are known of kinds of which the others are not."""
        self._capi = CapiClusters(informers)
        self._alone = {
            (*resource.group_resource, *key): informers.of(resource, key.namespace, fields=f"metadata.name={key.name}")
            for resource, key in objects
        }
        self._all = informers
        kinds = (*self.KINDS, *self.BESIDES)
        self._informers: dict[tuple[str, str], Informer] = {each.group_resource: informers.of(each) for each in kinds}
        for informer in self._informers.values():
            informer.add_index("namespace", lambda obj: ((obj.get("metadata") or {}).get("namespace") or "",))

    def is_complete(self) -> bool:
        """False while decisions about permissions are not possible yet."""
        return all(self._informers[each.group_resource].synced.is_set() for each in self.KINDS)

    def _found(self, group: str, resource: str) -> Informer | None:
        """Raises ApiError for kinds that other rules depend on, while they are not known. The kinds of node drivers may not be
        served at all: until known, they count as empty."""
        found = self._informers.get((group, resource))
        if found is None and group in DRIVER_GROUPS:
            found = self._informers[group, resource] = self._all.of(GroupVersionResource(group, "v1", resource))
            found.add_index("namespace", lambda obj: ((obj.get("metadata") or {}).get("namespace") or "",))
        if found is not None and found.resource in self.BESIDES and not found.synced.is_set():
            raise unavailable(f"{resource}.{group} are not known yet; try again", 1)
        return found

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        if (group, resource) == CAPI_CLUSTERS:
            return self._capi.get(namespace, name)
        found = self._alone.get((group, resource, namespace, name)) or self._found(group, resource)
        return None if found is None else found.get(namespace, name)

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        found = self._found(group, resource)
        if found is None:
            return []
        return found.indexed("namespace", namespace) if namespace else list(found.objects())

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        self._informers[group, resource].on_change(listener)


class CapiClusters:
    """Cluster API's Clusters on an external Kubernetes, which serves that kind, or begins to while we run, or never does.

    A user who names a cluster like one of those would count as its owner, so a name is free only if none is known for certain to
    exist: until this is known, `get` answers 503, and the client tries again.
    """

    def __init__(self, informers: Informers) -> None:
        self._of = informers.of
        self._followed: Informer | None = None
        self._definitions = informers.of(CRDS, fields=f"metadata.name={_CAPI_CLUSTERS_DEFINITION}")
        self._definitions.on_change(self._defined)

    def _defined(self, new: Obj | None, old: Obj | None) -> None:
        version = served_version(new or {})
        if not version:
            self._followed = None
            return
        self._followed = self._of(GroupVersionResource(CAPI, version, CLUSTERS.resource), metadata_only=True)

    def get(self, namespace: str, name: str) -> Obj | None:
        """The Cluster's metadata. Raises ApiError (503)."""
        if not self._definitions.synced.is_set():
            raise unavailable("it is not known yet whether Cluster API is installed; try again", 1)
        if self._followed is None:
            return None
        if not self._followed.synced.is_set():
            raise unavailable("Cluster API's clusters are not known yet; try again", 1)
        return self._followed.get(namespace, name)


def served_version(definition: Obj) -> str:
    """The version with which to read a kind, the stored one if it is served; empty if there is none."""
    versions = [each for each in dig(definition, "spec", "versions") or () if each.get("served")]
    return str(max(versions, key=lambda each: bool(each.get("storage")))["name"]) if versions else ""


class Holdings:
    def __init__(self, source: ObjectSource, rbac: Rbac) -> None:
        self._everything = source
        self._whole_rbac = rbac
        self._incomplete = source if isinstance(source, InformerSource) else None

    @property
    def _source(self) -> ObjectSource:
        self._check()
        return self._everything

    @property
    def _rbac(self) -> Rbac:
        self._check()
        return self._whole_rbac

    def _check(self) -> None:
        """Raises ApiError until everything is known: no decision would be correct."""
        if self._incomplete is not None:
            if not self._incomplete.is_complete():
                raise unavailable("permissions are not known yet; try again", 1)
            self._incomplete = None

    # --- objects ------------------------------------------------------------------------------------------------------

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
        return self._source.get(resource.group, resource.resource, namespace, name)

    def every(self, resource: GroupVersionResource, namespace: str = "") -> Iterable[Obj]:
        return self._source.list(resource.group, resource.resource, namespace)

    def template(self, name: str) -> Obj | None:
        """Built-in templates count even before they are stored: the first start refers to them."""
        return self.find(ROLE_TEMPLATES, name) or BUILTIN.get(("RoleTemplate", name))

    def global_role(self, name: str) -> Obj | None:
        return self.find(GLOBAL_ROLES, name) or BUILTIN.get(("GlobalRole", name))

    def cluster_role(self, name: str) -> Obj | None:
        return self.find(CLUSTER_ROLES, name)

    def template_rules(self, name: str) -> list[Rule]:
        return all_rules(name, self.template, self.cluster_role)

    # --- permissions of a user ------------------------------------------------------------------------------------------

    def may(self, user: User, verb: str, resource: GroupVersionResource, name: str = "", namespace: str = "") -> bool:
        return self._rbac.authorize(Action(user, verb, *resource, "", namespace, name)).allowed

    def may_write_status(self, user: User, resource: GroupVersionResource, name: str, namespace: str = "") -> bool:
        return self._rbac.authorize(Action(user, "update", *resource, "status", namespace, name)).allowed

    def may_impersonate(self, user: User, other: str) -> bool:
        return self._rbac.authorize(Action(user, "impersonate", "", "v1", "users", "", "", other)).allowed

    def on_the_server(self, user: User, namespace: str = "") -> Sequence[Rule]:
        if MASTERS in user.groups or self._may_be_master(user):
            return EVERYTHING
        return self._rbac.rules_for(user, namespace)[0]

    def _may_be_master(self, user: User) -> bool:
        """A user who may act as one who may do everything, may do everything: a gateway, whose own role names little else."""
        return self._rbac.authorize(Action(user, "impersonate", "", "v1", "groups", "", "", MASTERS)).allowed

    def in_cluster(self, user: User, cluster: str) -> Sequence[Rule]:
        """The user's rules by their bindings there. Permissions on the server count in a cluster only if they are everything."""
        if holds_everything(self.on_the_server(user)):
            return EVERYTHING
        names = {
            binding.get("roleTemplateName") or ""
            for binding in self.every(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster)
            if binding.get("clusterName") == cluster and self._is_for(binding, user)
        }
        return [rule for name in sorted(names) for rule in self.template_rules(name)]

    def in_every_cluster(self, user: User) -> Sequence[Rule]:
        if holds_everything(self.on_the_server(user)):
            return EVERYTHING
        found: list[Rule] = []
        for binding in self.every(GLOBAL_ROLE_BINDINGS):
            if self._is_for(binding, user):
                role = self.global_role(binding.get("globalRoleName") or "") or {}
                found += [rule for name in role.get("inheritedClusterRoles") or () for rule in self.template_rules(name)]
        return found

    def may_stand_for(self, user: User, name: str) -> bool:
        """True if `user` may decide who the user `name` is (login name, password, enabled): `name` is `user` itself, a user that
        they may impersonate, or a user without permissions that `user` lacks."""
        return (
            user.name == name or self.may_impersonate(user, name) or self._holds_all_of(user, User(name, name, (AUTHENTICATED,)))
        )

    def _holds_all_of(self, user: User, other: User) -> bool:
        if holds_everything(self.on_the_server(user)):
            return True
        for namespace in ("", *sorted(self._rbac.namespaces_of(other))):
            if uncovered(self.on_the_server(user, namespace), self.on_the_server(other, namespace)):
                return False
        if uncovered(self.in_every_cluster(user), self.in_every_cluster(other)):
            return False
        for binding in self.every(CLUSTER_ROLE_TEMPLATE_BINDINGS):
            if self._is_for(binding, other):
                held = self.in_cluster(user, str(binding.get("clusterName") or ""))
                if uncovered(held, self.template_rules(str(binding.get("roleTemplateName") or ""))):
                    return False
        return True

    def _is_for(self, binding: Obj, user: User) -> bool:
        if is_being_deleted(binding):
            return False
        subject = subject_of(binding, lambda principal: self._known_as(user, principal))
        if subject is None:
            return False
        return subject["name"] in user.groups if subject["kind"] == "Group" else subject["name"] == user.name

    def _known_as(self, user: User, principal: str) -> str:
        found = self.find(USERS, user.name) or {}
        return user.name if principal in (found.get("principalIds") or ()) else ""


def excess(user: User, held: Iterable[Rule], wanted: Iterable[Rule]) -> str:
    """The reason why `user` may not grant `wanted`, in Kubernetes' words; "" if they may."""
    missing = uncovered(held, wanted)
    if not missing:
        return ""
    lines = "\n".join(sorted({text(rule) for rule in compact(missing)}))
    return (
        f"user {go_quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions "
        f"not currently held:\n{lines}"
    )


# --- visible objects ------------------------------------------------------------------------------------------------------
#
# Lists of clusters and their objects show users what they may see. For the embedded API
# (:mod:`remuda.apiserver.watch.filtered_list`), and for clients of an external Kubernetes that act for a user, since it refuses
# such a list as a whole.

# Groups in which a list that is forbidden as a whole shows its permitted part.
GROUPS: Final = (GROUP, PROVISIONING, CAPI, RKE, *sorted(DRIVER_GROUPS))
