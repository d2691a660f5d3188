"""What somebody holds: on the management API, in one cluster, in every cluster; so that nobody grants more than that.

Asked by :mod:`.admission` while a write waits, so everything is looked up synchronously: in the API server's own cache, or, on
somebody else's Kubernetes, in informers (:class:`InformerSource`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from remuda.api.cluster_x_k8s_io import GROUP as CAPI
from remuda.api.cluster_x_k8s_io import MACHINES
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
from remuda.apiserver.server import Server
from remuda.apiserver.watch.filtered_list import Partly
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.policy_rules import Rule, compact, quoted, text, uncovered
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import AUTHENTICATED, MASTERS, User
from remuda.kube.errors import go_quote, unavailable
from remuda.kube.object_reader import Listener, ObjectSource
from remuda.kube.objects import GroupVersionResource, is_being_deleted
from remuda.runtime import Informer, Informers

from .binding_subjects import subject_of
from .builtin_roles import BUILTIN
from .capi_cluster_source import KIND as CAPI_CLUSTERS
from .capi_cluster_source import CapiClusters
from .driver_kinds import GROUPS as DRIVERS
from .role_names import CLUSTER_ROLES, RBAC_KINDS
from .role_rules import EVERYTHING, all_rules, holds_everything

Obj = dict[str, Any]


class InformerSource:
    """An ObjectSource on informers: what the checks need of a Kubernetes that is not ours."""

    KINDS = (
        *RBAC_KINDS.values(),
        GLOBAL_ROLES,
        GLOBAL_ROLE_BINDINGS,
        ROLE_TEMPLATES,
        CLUSTER_ROLE_TEMPLATE_BINDINGS,
        USERS,
        SETTINGS,
        GroupVersionResource(GROUP, "v3", "clusters"),
        GroupVersionResource("", "v1", "namespaces"),
    )
    # What other rules look up; it may not be served at all where nobody provisions clusters.
    BESIDES = (RKE_CONTROL_PLANES, ETCD_SNAPSHOTS, MACHINES, WANTED_CLUSTERS, NODE_DRIVERS, DYNAMIC_SCHEMAS)
    # Groups whose kinds come with node drivers; of those that are asked for.
    DRIVERS = frozenset({"rke-machine.cattle.io", "rke-machine-config.cattle.io"})

    def __init__(self, informers: Informers) -> None:
        self._capi = CapiClusters(informers)
        self._all = informers
        kinds = (*self.KINDS, *self.BESIDES)
        self._informers: dict[tuple[str, str], Informer] = {each.group_resource: informers.of(each) for each in kinds}
        for informer in self._informers.values():
            informer.add_index("namespace", lambda obj: ((obj.get("metadata") or {}).get("namespace") or "",))

    def is_complete(self) -> bool:
        """Nothing about who holds what may be decided before."""
        return all(self._informers[each.group_resource].synced.is_set() for each in self.KINDS)

    def _found(self, group: str, resource: str) -> Informer | None:
        """Raises ApiError for what other rules rest on, as long as it is not known. What node drivers bring may not be served at
        all: until it is known it is as if there was none."""
        found = self._informers.get((group, resource))
        if found is None and group in self.DRIVERS:
            found = self._informers[group, resource] = self._all.of(GroupVersionResource(group, "v1", resource))
            found.add_index("namespace", lambda obj: ((obj.get("metadata") or {}).get("namespace") or "",))
        if found is not None and found.resource in self.BESIDES and not found.synced.is_set():
            raise unavailable(f"{resource}.{group} are not known yet; try again", 1)
        return found

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        if (group, resource) == CAPI_CLUSTERS:
            return self._capi.get(namespace, name)
        found = self._found(group, resource)
        return None if found is None else found.get(namespace, name)

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        found = self._found(group, resource)
        if found is None:
            return []
        return found.indexed("namespace", namespace) if namespace else list(found.objects())

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        self._informers[group, resource].on_change(listener)


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
        """Raises ApiError while not all of it is known: neither yes nor no would be true."""
        if self._incomplete is not None:
            if not self._incomplete.is_complete():
                raise unavailable("who holds what is not known yet; try again", 1)
            self._incomplete = None

    # --- objects ------------------------------------------------------------------------------------------------------

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
        return self._source.get(resource.group, resource.resource, namespace, name)

    def every(self, resource: GroupVersionResource, namespace: str = "") -> Iterable[Obj]:
        return self._source.list(resource.group, resource.resource, namespace)

    def template(self, name: str) -> Obj | None:
        """Built-in ones count also before they are stored: whoever starts the server refers to them."""
        return self.find(ROLE_TEMPLATES, name) or BUILTIN.get(("RoleTemplate", name))

    def global_role(self, name: str) -> Obj | None:
        return self.find(GLOBAL_ROLES, name) or BUILTIN.get(("GlobalRole", name))

    def cluster_role(self, name: str) -> Obj | None:
        return self.find(CLUSTER_ROLES, name)

    def template_rules(self, name: str) -> list[Rule]:
        return all_rules(name, self.template, self.cluster_role)

    # --- what somebody holds --------------------------------------------------------------------------------------------

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
        """Who may act as whoever may do everything may do everything: a gateway, whose own role names little besides."""
        return self._rbac.authorize(Action(user, "impersonate", "", "v1", "groups", "", "", MASTERS)).allowed

    def in_cluster(self, user: User, cluster: str) -> Sequence[Rule]:
        """By their bindings there. What somebody holds on the server counts in a cluster only if it is everything."""
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
        """Whether `user` may decide who the user `name` is (their login name, password, whether they may come in): it is `user`,
        somebody whom they may impersonate, or somebody who holds nothing that they do not hold."""
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
    """What is wrong with `user` granting `wanted`, in Kubernetes' words; "" when nothing is."""
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
# What somebody sees when they list clusters, or what those are made of: theirs. For the embedded API
# (:mod:`remuda.apiserver.watch.filtered_list`), and for who asks another Kubernetes for somebody, which refuses such a list as
# a whole.

# Where a list that is forbidden as a whole shows the part that is not.
GROUPS: Final = (GROUP, PROVISIONING, CAPI, RKE, *sorted(DRIVERS))


def show_what_is_theirs(server: Server) -> None:
    """From now on lists and watches of our kinds show everybody what they may see of them."""
    server.handler.partly = Partly(server.rbac, GROUPS, lambda: server.cache.revision)


def visible(rbac: Rbac, user: User, resource: GroupVersionResource, namespace: str = "", verb: str = "list") -> Permitted | None:
    """Which objects `user` may see of a resource, in one namespace or in all; None: all of them."""
    action = Action(user, verb, *resource, "", namespace)
    return None if rbac.authorize(action).allowed else rbac.permitted(action)
