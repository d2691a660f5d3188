"""The roles and bindings that one cluster needs on the management API: pure. :mod:`.cluster_access` writes them.

A user with a role in a cluster may see that cluster and its objects, by name, and nothing else:

- everywhere: the management Cluster (`<id>-clusterowner` for owners, `<id>-clustermember` for all others);
- in the namespace `<id>`: the template's rules about the kinds there (a Role of its name), and for owners the Secrets of its
  registration tokens;
- in the workspace: the provisioning Cluster, its machines and their objects (`r-cluster-<name>-admin`,
  `r-cluster-<name>-view`), and for owners its Secrets.

Other tenants' objects are in the same workspace, so every permission there is limited by name. A label or an owner assigns a
Secret to a cluster, and only users who may write Secrets there can set these. Two permissions are never given: to tokens of
service accounts (another user may own them), and to write Secrets on which our own controllers act (kubeconfigs, plans).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.api.management_cattle_io import GROUP
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING
from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.objects import Key, name_of
from remuda.kube.owners import reference
from remuda.kube.wrangler import safe_concat

from .role_names import (
    CLUSTER,
    RBAC_GROUP,
    RBAC_VERSION,
    TEMPLATE_BINDING_OWNER,
    cluster_member,
    cluster_owner,
    digest,
    label_value,
    workspace_role,
)
from .role_rules import is_owning, management_rules

Obj = dict[str, Any]

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
class Belongings:
    """Other objects in the workspace that belong to one provisioning Cluster. `others` are names, by group and plural."""

    secrets: Sequence[Obj] = ()
    others: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Given:
    """A ClusterRoleTemplateBinding in force: its subject, and the rules of its template."""

    binding: Key
    template: str
    subject: Obj
    rules: Sequence[Rule]

    @property
    def owning(self) -> bool:
        return is_owning(self.rules)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`secrets` are those of the cluster's namespace, `provisioning` its provisioning Clusters with what belongs to them."""

    cluster: Obj
    given: Sequence[Given] = ()
    secrets: Sequence[Obj] = ()
    provisioning: Sequence[tuple[Obj, Belongings]] = ()


def desired(snapshot: Snapshot) -> list[Obj]:
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


def _by_template(given: Iterable[Given]) -> dict[str, Sequence[Rule]]:
    return {each.template: each.rules for each in given}


def _workspace(made: _Making, snapshot: Snapshot, provisioning: Obj, belongings: Belongings) -> None:
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
    """Verbs of a cluster's owner on the objects that it consists of. Owners configure their machines and may have one replaced;
    only controllers write the rest."""
    if group == MACHINE_CONFIGS:
        return EDITING
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

    def binding(self, namespace: str, role_kind: str, role: str, given: Given) -> None:
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
