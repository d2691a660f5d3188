"""The controller of access to clusters on the management API: the roles and bindings that each cluster needs there.

:func:`desired` computes them, pure. A user with a role in a cluster may see that cluster and its objects, by name, and nothing
else:

- everywhere: the management Cluster (`<id>-clusterowner` for owners, `<id>-clustermember` for all others);
- in the namespace `<id>`: the template's rules about the kinds there (a Role of its name), and for owners the Secrets of its
  registration tokens;
- in the workspace: the provisioning Cluster, its machines and their objects (`r-cluster-<name>-admin`,
  `r-cluster-<name>-view`), and for owners its Secrets.

Other tenants' objects are in the same workspace, so every permission there is limited by name. A label or an owner assigns a
Secret to a cluster, and only users who may write Secrets there can set these. Two permissions are never given: to tokens of
service accounts (another user may own them), and to write Secrets on which our own controllers act (kubeconfigs, plans).

The controller is keyed by the management Cluster for every kind of change: its bindings, their templates, its Secrets and
machines, or one of the roles made here. Deleting the cluster deletes all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, GROUP, ROLE_TEMPLATES, TOKENS, USERS
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING
from remuda.api.rke_cattle_io import ETCD_SNAPSHOTS
from remuda.capi.well_known import SECRET_TYPE as CAPI_SECRET
from remuda.client.idempotent import remove
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata, name_of, uid_of
from remuda.kube.owners import is_owned_by, reference
from remuda.kube.wrangler import safe_concat
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, created_or_deleted, logger, spec_change

from ..users.user_objects import is_enabled
from .binding_subjects import leaving
from .globalroles import principals_change
from .rbac_writer import COMPLETE, ERROR, bring_about, condition, generation, say, summary, summed
from .role_caches import (
    DRIVER_CONFIGS,
    SECRETS,
    DriverKinds,
    Views,
    cluster_of_rbac,
    is_made_for,
    name_key,
    namespace_key,
    nothing,
    provisioning_key,
    rbac_watches,
    without_data,
    workspace_watch,
)
from .role_names import (
    CLUSTER,
    CLUSTER_ROLES,
    RBAC_GROUP,
    RBAC_KINDS,
    RBAC_VERSION,
    TEMPLATE_BINDING_OWNER,
    cluster_member,
    cluster_owner,
    digest,
    label_value,
    workspace_role,
)
from .role_rules import is_owning, management_rules

log = logger(__name__)

Obj = dict[str, Any]

NAME = "cluster-access"
# Retry delay if an object can't be written, for example because its namespace is missing.
_AGAIN = 30.0


# Ignores a Cluster's status, which changes all the time.
comes_or_goes = changed(uid_of, is_being_deleted)


def _other_cluster(new: Obj | None, old: Obj | None) -> bool:
    return comes_or_goes(new, old) or dig(new, "status", "clusterName") != dig(old, "status", "clusterName")


# True if the owner or the labels of an object have changed.
marks_change = changed("metadata.labels", "metadata.ownerReferences")


def _owner_change(new: Obj | None, old: Obj | None) -> bool:
    return marks_change(new, old) or annotations_of(new or {}) != annotations_of(old or {})


def _binding_change(new: Obj | None, old: Obj | None) -> bool:
    """True also if the remote summary has changed: the total is computed here."""
    if new is None or old is None or spec_change(new, old):
        return True
    return summary(new, "summaryRemote") != summary(old, "summaryRemote")


def _user_change(new: Obj | None, old: Obj | None) -> bool:
    return principals_change(new, old) or (new is not None and old is not None and is_enabled(new) != is_enabled(old))


def _made(obj: Obj) -> str:
    return str(metadata(obj).get("creationTimestamp") or "")


class ClusterAccess:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client, self._clock, self._fresh = manager.client, manager.clock, manager.freshness
        self._views = views
        if views.provisions:
            DriverKinds(manager, views, NAME, marks_change)
        self.controller = Controller(
            NAME,
            CLUSTERS,
            when=comes_or_goes,
            watches=(
                *rbac_watches(CLUSTER, RBAC_KINDS, cluster_of_rbac),
                Watch(CLUSTER_ROLE_TEMPLATE_BINDINGS, namespace_key, when=_binding_change),
                Watch(ROLE_TEMPLATES, views.clusters_of_template, when=spec_change),
                Watch(CLUSTER_ROLES, nothing),
                Watch(NAMESPACES, name_key, when=created_or_deleted),
                Watch(USERS, views.clusters_of_user, when=_user_change),
                Watch(TOKENS, nothing),
                Watch(PROVISIONING_CLUSTERS, provisioning_key, when=_other_cluster),
                Watch(SECRETS, views.clusters_of_secret, when=marks_change, transform=without_data),
                *(workspace_watch(each, views.clusters_of_capi, marks_change) for each in views.kinds),
                *(
                    Watch(each, views.clusters_of_capi_cluster, when=_owner_change, metadata_only=True)
                    for each in views.kinds
                    if each == CAPI_CLUSTERS
                ),
            ),
            concurrency=8,
        )

    async def reconcile(self, key: Key) -> Result:
        await self._fresh.caught_up((NAME, key))
        views, cluster = self._views, self._views.clusters.get(*key)
        if cluster is None:
            self._fresh.forget((NAME, key))
            await bring_about(self._client, [], views.existing(key.name))
            return DONE

        def wrote(kind: str, obj: Obj) -> None:
            self._fresh.wrote((NAME, key), views.rbac[kind], obj)

        snapshot = self._snapshot(cluster)
        wanted, existing = desired(snapshot), views.existing(key.name)
        left = leaving([Key.of(each) for each, _ in snapshot.provisioning], existing.values(), wanted)
        if left:
            log.info("owners of the cluster have left, or were disabled: %s", ", ".join(sorted(left)))
        # Before, so that a crash in between is repaired; and after, since they may have read the token made in the meantime.
        await self._replace_tokens(key.name, left)
        problems = await bring_about(self._client, wanted, existing, wrote=wrote)
        await self._replace_tokens(key.name, left)
        for binding in views.bindings_of(key.name):
            await self._tell(binding, problems)
        return Result(after=_AGAIN) if problems and not is_being_deleted(cluster) else DONE

    async def _replace_tokens(self, cluster: str, left: set[str]) -> None:
        """A former owner may know the token that our controllers use there. The token's controller makes a new one."""
        for token in self._views.tokens.indexed("opens", cluster) if left else ():
            if left - {f"User/{token.get('userId')}"}:
                await remove(self._client, TOKENS, token)

    def _is_shut_out(self, subject: Obj) -> bool:
        user = self._views.users.get("", subject["name"]) if subject["kind"] == "User" else None
        return user is not None and not is_enabled(user)

    def _snapshot(self, cluster: Obj) -> AccessSnapshot:
        views, name = self._views, name_of(cluster)
        given = []
        for binding in views.bindings_of(name):
            template = binding.get("roleTemplateName") or ""
            included = views.included(template)
            subject = views.subject_of(binding)
            if included and subject is not None and not self._is_shut_out(subject):
                rules = [rule for each in included for rule in views.rules_of(each)]
                given.append(ActiveBinding(Key.of(binding), template, subject, rules))
        provisioning = sorted(views.provisioning.indexed("cluster", name), key=Key.of)
        return AccessSnapshot(
            cluster,
            given,
            views.secrets.indexed("namespace", name),
            [(each, self._belongings(each)) for each in provisioning],
        )

    def _belongings(self, provisioning: Obj) -> WorkspaceObjects:
        views, key = self._views, Key.of(provisioning)
        capi = views.capi_clusters.get(*key) if views.capi_clusters is not None else None
        ours = capi is not None and is_made_for(capi, provisioning)
        # Objects labelled with the name belong to the other cluster then.
        foreign = capi is not None and not ours

        def belonging(found: Iterable[Obj]) -> list[Obj]:
            # Objects older than the cluster belonged to another one of that name, perhaps of another user.
            return [obj for obj in found if _made(obj) >= _made(provisioning)]

        secrets = [
            secret
            for secret in belonging(views.secrets.indexed("cluster", key))
            if ours or is_owned_by(secret, provisioning) or not (foreign or secret.get("type") == CAPI_SECRET)
        ]
        kinds = {} if foreign else views.in_workspaces
        others = {
            kind.group_resource: [
                name_of(obj)
                # A config is older than its cluster, which becomes its owner when it uses it.
                for obj in (
                    [obj for obj in of.indexed("cluster", key) if is_owned_by(obj, provisioning)]
                    if kind.group == DRIVER_CONFIGS
                    else belonging(of.indexed("cluster", key))
                )
            ]
            for kind, of in kinds.items()
        }
        if ours:
            # It has no label with its cluster's name; it is the cluster.
            others[CAPI_CLUSTERS.group_resource] = sorted({key.name, *others.get(CAPI_CLUSTERS.group_resource, ())})
        return WorkspaceObjects(secrets, others)

    async def _tell(self, binding: Obj, problems: list[str]) -> None:
        views, said = self._views, list(problems)
        if not views.included(binding.get("roleTemplateName") or ""):
            said.append(f"RoleTemplate {binding.get('roleTemplateName')} is not there")
        if views.subject_of(binding) is None:
            said.append("there is no user with this name")
        local = ERROR if said else COMPLETE
        status = {
            "localConditions": [condition("ClusterMembershipReconciled", said)],
            "observedGenerationLocal": generation(binding),
            "summaryLocal": local,
            "summary": summed(local, summary(binding, "summaryRemote")),
        }
        await say(self._client, self._clock, CLUSTER_ROLE_TEMPLATE_BINDINGS, binding, status)


SEEING = ["get", "list", "watch"]
EDITING = ["get", "list", "watch", "update", "patch", "delete"]
CAPI = "cluster.x-k8s.io"
MACHINE_CONFIGS = "rke-machine-config.cattle.io"
REGISTRATION_SECRET = "crt-token-"
# A Secret's type states its purpose, and can't be changed.
_FOR_NOBODY = "kubernetes.io/service-account-token"
_FOR_USERS = frozenset(
    (
        "",
        "Opaque",
        "kubernetes.io/basic-auth",
        "kubernetes.io/dockerconfigjson",
        "kubernetes.io/ssh-auth",
        "kubernetes.io/tls",
        "rke.cattle.io/auth-config",
    )
)
_KUBECONFIG = "-kubeconfig"


@dataclass(frozen=True, slots=True)
class WorkspaceObjects:
    """Other objects in the workspace that belong to one provisioning Cluster. `others` are names, by group and plural."""

    secrets: Sequence[Obj] = ()
    others: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveBinding:
    """A ClusterRoleTemplateBinding in force: its subject, and the rules of its template."""

    binding: Key
    template: str
    subject: Obj
    rules: Sequence[Rule]

    @property
    def owning(self) -> bool:
        return is_owning(self.rules)


@dataclass(frozen=True, slots=True)
class AccessSnapshot:
    """`secrets` are those of the cluster's namespace, `provisioning` its provisioning Clusters with what belongs to them."""

    cluster: Obj
    given: Sequence[ActiveBinding] = ()
    secrets: Sequence[Obj] = ()
    provisioning: Sequence[tuple[Obj, WorkspaceObjects]] = ()


def desired(snapshot: AccessSnapshot) -> list[Obj]:
    """Every role and binding that this cluster needs on the management API; the namespaced ones after the others."""
    made = _Making(snapshot.cluster)
    name = name_of(snapshot.cluster)
    clusters = {"apiGroups": [GROUP], "resources": ["clusters"], "resourceNames": [name]}
    made.role("ClusterRole", "", cluster_owner(name), [{**clusters, "verbs": EDITING}])
    made.role("ClusterRole", "", cluster_member(name), [{**clusters, "verbs": SEEING}])
    for given in snapshot.given:
        made.binding("", "ClusterRole", cluster_owner(name) if given.owning else cluster_member(name), given)
    for template, rules in _by_template(snapshot.given).items():
        in_namespace = management_rules(rules)
        if is_owning(rules):
            in_namespace += _secret_rules(each for each in snapshot.secrets if name_of(each).startswith(REGISTRATION_SECRET))
        if in_namespace:
            made.role("Role", name, template, in_namespace)
            for given in snapshot.given:
                if given.template == template:
                    made.binding(name, "Role", template, given)
    for provisioning, belongings in snapshot.provisioning:
        _workspace(made, snapshot, provisioning, belongings)
    return made.objects


def _by_template(given: Iterable[ActiveBinding]) -> dict[str, Sequence[Rule]]:
    return {each.template: each.rules for each in given}


def _workspace(made: _Making, snapshot: AccessSnapshot, provisioning: Obj, belongings: WorkspaceObjects) -> None:
    namespace, name = Key.of(provisioning)
    for admin in (True, False):
        concerned = [given for given in snapshot.given if given.owning is admin]
        if not concerned:
            continue
        role = workspace_role(name, admin=admin)
        rules: list[Rule] = [_named(EDITING if admin else SEEING, PROVISIONING, "clusters", [name])]
        for (group, plural), names in sorted(belongings.others.items()):
            if names:
                rules.append(_named(_verbs(group, plural) if admin else SEEING, group, plural, sorted(names)))
                if admin and (group, plural) == (CAPI, "machines"):
                    # Its keys and a shell on it, without the right to change it
                    # (:mod:`remuda.gateway.proxy.machine_access`).
                    rules.append(_named(["create"], group, "machines/shell", sorted(names)))
        if admin:
            rules += _secret_rules(belongings.secrets)
        made.role("Role", namespace, role, rules)
        for given in concerned:
            made.binding(namespace, "Role", role, given)


def _verbs(group: str, plural: str) -> list[str]:
    """Verbs of a cluster's owner on the objects that it consists of. Owners configure their machines, may have one replaced, and
    have snapshots checked and deleted; only controllers write the rest."""
    if group == MACHINE_CONFIGS:
        return EDITING
    if (group, plural) == ETCD_SNAPSHOTS.group_resource:
        # Admission limits what a patch may change (:mod:`remuda.provisioning.admission.snapshots`).
        return [*SEEING, "patch", "delete"]
    return [*SEEING, "delete"] if (group, plural) == (CAPI, "machines") else SEEING


def _secret_rules(secrets: Iterable[Obj]) -> list[Rule]:
    readable: list[str] = []
    writable: list[str] = []
    for secret in secrets:
        if secret.get("type") == _FOR_NOBODY:
            continue
        (writable if _is_users(secret) else readable).append(name_of(secret))
    found: list[Rule] = []
    if readable:
        found.append(_named(SEEING, "", "secrets", sorted(readable)))
    if writable:
        found.append(_named(EDITING, "", "secrets", sorted(writable)))
    return found


def _is_users(secret: Obj) -> bool:
    name = name_of(secret)
    controllers = name.endswith(_KUBECONFIG) or name.startswith(REGISTRATION_SECRET)
    return not controllers and (secret.get("type") or "") in _FOR_USERS


def _named(verbs: list[str], group: str, resource: str, names: list[str]) -> Rule:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": [resource], "resourceNames": names}


class _Making:
    """Collects the objects; each has the cluster's label and is owned by the cluster."""

    def __init__(self, cluster: Obj) -> None:
        self.objects: list[Obj] = []
        self._labels = {CLUSTER: label_value(name_of(cluster))}
        self._owners = [reference(cluster)]

    def _metadata(self, namespace: str, name: str, labels: Mapping[str, str]) -> Obj:
        made: Obj = {"name": name, "labels": {**self._labels, **labels}, "ownerReferences": self._owners}
        return {**made, "namespace": namespace} if namespace else made

    def role(self, kind: str, namespace: str, name: str, rules: list[Rule]) -> None:
        self.objects.append(
            {"apiVersion": RBAC_VERSION, "kind": kind, "metadata": self._metadata(namespace, name, {}), "rules": rules}
        )

    def binding(self, namespace: str, role_kind: str, role: str, given: ActiveBinding) -> None:
        kind, prefix = ("RoleBinding", "rb") if namespace else ("ClusterRoleBinding", "crb")
        # A binding's roleRef can't be changed, so it is part of its name.
        who = f"{given.subject['kind']}/{given.subject['name']}"
        name = safe_concat(prefix, digest(*given.binding, namespace, role_kind, role, who))
        self.objects.append(
            {
                "apiVersion": RBAC_VERSION,
                "kind": kind,
                "metadata": self._metadata(namespace, name, {TEMPLATE_BINDING_OWNER: label_value(*given.binding)}),
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role},
                "subjects": [given.subject],
            }
        )
