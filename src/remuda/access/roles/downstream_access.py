"""The controller of permissions inside each downstream cluster: applies the wanted roles and bindings whenever the cluster can
be reached.

Keyed by the management Cluster. The existing objects are compared as a whole with the wanted ones, so a binding removed while a
cluster was away is deleted when it reconnects, and no queue is needed for that. Objects that a user removes or edits in the
cluster are restored at the next look, after some minutes at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, GLOBAL_ROLE_BINDINGS, ROLE_TEMPLATES, USERS
from remuda.client.interface import Client
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.names import path_segment_problems
from remuda.kube.objects import Key, is_being_deleted, labels_of, name_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, spec_change

from ..agent_objects import MADE_FOR
from ..downstreams import Downstreams, not_connected
from .builtin_roles import ROLE_TEMPLATES as BUILTIN_TEMPLATES
from .cluster_access import comes_or_goes
from .globalroles import principals_change
from .rbac_writer import COMPLETE, ERROR, Id, bring_about, by_id, condition, generation, say
from .role_caches import Views, namespace_key
from .role_names import (
    ADMIN,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DOWNSTREAM,
    GLOBAL_BINDING_OWNER,
    LOCAL,
    RBAC_GROUP,
    RBAC_VERSION,
    TEMPLATE_BINDING_OWNER,
    digest,
    label_value,
)

Obj = dict[str, Any]

NAME = "downstream-access"
_BUILTIN = frozenset(name_of(each) for each in BUILTIN_TEMPLATES if not each.get("external"))
_OURS = f"{DOWNSTREAM}=true"


async def found_downstream(client: Client) -> dict[Id, Obj]:
    """Every role and binding of ours in a cluster."""
    roles = await client.list(CLUSTER_ROLES, labels=_OURS)
    bindings = await client.list(CLUSTER_ROLE_BINDINGS, labels=_OURS)
    return by_id("ClusterRole", roles["items"]) | by_id("ClusterRoleBinding", bindings["items"])


class DownstreamAccess:
    def __init__(self, manager: Manager, views: Views, downstreams: Downstreams) -> None:
        self._client, self._clock = manager.client, manager.clock
        self._manager = manager
        self._views = views
        self._downstreams = downstreams
        self.controller = Controller(
            NAME,
            CLUSTERS,
            when=comes_or_goes,
            watches=(
                Watch(CLUSTER_ROLE_TEMPLATE_BINDINGS, namespace_key, when=spec_change),
                Watch(ROLE_TEMPLATES, views.clusters_of_template, when=spec_change),
                Watch(GLOBAL_ROLE_BINDINGS, self._of_admin, when=spec_change),
                Watch(USERS, views.clusters_of_user, when=principals_change),
            ),
            concurrency=16,
            resync=300.0,
        )
        downstreams.on_change(self._changed)

    def _changed(self, cluster: str) -> None:
        working = self._manager.working(NAME)
        if working is not None and self._downstreams.is_connected(cluster):
            working.queue.add(Key("", cluster))

    def _of_admin(self, binding: Obj) -> list[Key]:
        return list(self._views.clusters.keys()) if binding.get("globalRoleName") == ADMIN else []

    async def reconcile(self, key: Key) -> Result:
        cluster = self._views.clusters.get(*key)
        # Cluster removal removes our objects; restoring them would interfere.
        if cluster is None or is_being_deleted(cluster):
            return DONE
        downstream = self._downstreams.get(key.name)
        if downstream is None:
            return Result(waits=(not_connected(cluster),))
        client = downstream.client
        problems = await bring_about(
            client,
            desired(self._snapshot(key.name)),
            await found_downstream(client),
            may_write=lambda existing, wanted: may_write(existing, wanted, _BUILTIN),
        )
        for binding in self._views.bindings_of(key.name):
            status = {
                "remoteConditions": [condition("ClusterRolesReconciled", problems)],
                "observedGenerationRemote": generation(binding),
                "summaryRemote": ERROR if problems else COMPLETE,
            }
            await say(self._client, self._clock, CLUSTER_ROLE_TEMPLATE_BINDINGS, binding, status)
        return DONE

    def _snapshot(self, cluster: str) -> DownstreamSnapshot:
        views = self._views
        given = []
        for binding in views.bindings_of(cluster):
            subject, included = views.subject_of(binding), views.included(binding.get("roleTemplateName") or "")
            if subject is not None and included:
                given.append(DownstreamBinding(Key.of(binding), subject, [self._template(each) for each in included]))
        return DownstreamSnapshot(cluster, given, {} if cluster == LOCAL else self._admins())

    def _template(self, template: Obj) -> Template:
        return Template(
            name_of(template), template.get("rules") or (), bool(template.get("external")), bool(template.get("builtin"))
        )

    def _admins(self) -> dict[str, Obj]:
        found = {}
        for binding in self._views.global_bindings.indexed("role", ADMIN):
            subject = self._views.subject_of(binding)
            if subject is not None and not is_being_deleted(binding):
                found[name_of(binding)] = subject
        return found


# --- downstream access desired --------------------------------------------------------------------------------------------
#
# The wanted roles and bindings inside a downstream cluster: pure, from a snapshot. The controller above writes them.
#
# Each RoleTemplate in use there becomes a ClusterRole of its name, each ClusterRoleTemplateBinding a ClusterRoleBinding to it
# and to each template that it includes. Global administrators are administrators of every cluster. A ClusterRole that came with
# Kubernetes, or that is not ours, is never overwritten: an external template refers to one.

_KUBERNETES_OWN = "kubernetes.io/bootstrapping"
ADMINISTRATOR = "cluster-admin"


@dataclass(frozen=True, slots=True)
class Template:
    """A RoleTemplate as a cluster sees it."""

    name: str
    rules: Sequence[Rule]
    external: bool = False
    builtin: bool = False


@dataclass(frozen=True, slots=True)
class DownstreamBinding:
    """A ClusterRoleTemplateBinding in force; `templates` are its template and all that it includes."""

    binding: Key
    subject: Obj
    templates: Sequence[Template]


@dataclass(frozen=True, slots=True)
class DownstreamSnapshot:
    """`admins` are the subjects of the bindings of the GlobalRole `admin`, by the binding's name."""

    cluster: str
    given: Sequence[DownstreamBinding] = ()
    admins: Mapping[str, Obj] = field(default_factory=dict)


def desired(snapshot: DownstreamSnapshot) -> list[Obj]:
    """Roles first: a binding to a role that does not exist yet is an error in some clients."""
    roles: dict[str, Obj] = {}
    bindings: list[Obj] = []
    for given in snapshot.given:
        for template in given.templates:
            if not template.external:
                roles[template.name] = _role(snapshot.cluster, template)
            name = f"crb-{digest(*given.binding, template.name, given.subject['kind'], given.subject['name'])}"
            labels = {TEMPLATE_BINDING_OWNER: label_value(*given.binding)}
            bindings.append(_binding(snapshot.cluster, name, labels, template.name, given.subject))
    for owner, subject in snapshot.admins.items():
        name = f"globaladmin-{_short(subject)}"
        bindings.append(_binding(snapshot.cluster, name, {GLOBAL_BINDING_OWNER: label_value(owner)}, ADMINISTRATOR, subject))
    return [*roles.values(), *{name_of(each): each for each in bindings}.values()]


def may_write(existing: Obj, wanted: Obj, builtin: frozenset[str]) -> bool:
    """True if an existing object is ours, or may become ours: a role with the name of one of our built-in templates may."""
    labels = labels_of(existing)
    if DOWNSTREAM in labels:
        return True
    return wanted["kind"] == "ClusterRole" and _KUBERNETES_OWN not in labels and name_of(wanted) in builtin


def _short(subject: Obj) -> str:
    """A user's id is a valid name; a group's name may contain any characters."""
    name = str(subject["name"])
    return digest(name) if subject["kind"] == "Group" or path_segment_problems(name) or len(name) > 63 else name


def _metadata(cluster: str, name: str, labels: Mapping[str, str]) -> Obj:
    return {"name": name, "labels": {DOWNSTREAM: "true", **labels}, "annotations": {MADE_FOR: cluster}}


def _role(cluster: str, template: Template) -> Obj:
    return {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRole",
        "metadata": _metadata(cluster, template.name, {}),
        "rules": list(template.rules),
    }


def _binding(cluster: str, name: str, labels: Mapping[str, str], role: str, subject: Obj) -> Obj:
    return {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(cluster, name, labels),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
