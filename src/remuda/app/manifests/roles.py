"""What the two parts may do on the Kubernetes that they are put onto, as little as they can work with.

The controllers get upstream Cluster API's arrangement: their role takes in every role with the label by which providers offer
theirs (`cluster.x-k8s.io/aggregate-to-manager`). The gateway acts as everybody who comes with a token of ours, and makes roles of
whatever its users' roles hold: it can't be less than an administrator in effect, but what it does by itself is written down here.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.api import cluster_x_k8s_io, management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP

Obj = dict[str, Any]

CONTROLLERS: Final = "remuda-controllers"
GATEWAY: Final = "remuda-gateway"
AGGREGATE: Final = "cluster.x-k8s.io/aggregate-to-manager"
# Groups whose definitions the two install.
DEFINED: Final = (
    cluster_x_k8s_io.GROUP,
    management_cattle_io.GROUP,
    plan_cattle_io.GROUP,
    provisioning_cattle_io.GROUP,
    rke_cattle_io.GROUP,
)
_PROVIDERS = ("bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io")
_OURS = (*DEFINED[1:], MACHINE_GROUP, CONFIG_GROUP)
_READ = ("get", "list", "watch")
_WRITE = (*_READ, "create", "update", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"


def objects(namespace: str) -> list[Obj]:
    return [
        *(_account(name, namespace) for name in (CONTROLLERS, GATEWAY)),
        _aggregated(),
        _cluster_role(f"{CONTROLLERS}-manager", _controllers_rules(), {AGGREGATE: "true"}),
        _cluster_role(GATEWAY, _gateway_rules()),
        *(_role(name, namespace) for name in (CONTROLLERS, GATEWAY)),
        *(_cluster_binding(name, namespace) for name in (CONTROLLERS, GATEWAY)),
        *(_binding(name, namespace) for name in (CONTROLLERS, GATEWAY)),
    ]


def _rule(group: str, resources: str, *verbs: str) -> Obj:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


def _whole(*groups: str) -> Obj:
    """Kinds of ours, and of providers, whose names nobody knows beforehand; with their subresources."""
    return {"apiGroups": list(groups), "resources": ["*"], "verbs": list(_WRITE)}


def _installing() -> list[Obj]:
    """Both install definitions, convert their objects and serve webhooks."""
    return [
        _rule("apiextensions.k8s.io", "customresourcedefinitions", *_READ, "create", "update", "patch"),
        _rule("apiextensions.k8s.io", "customresourcedefinitions/status", "update", "patch"),
        _rule(
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations validatingwebhookconfigurations",
            *("get", "create", "update", "patch"),
        ),
        _rule("", "events", "create", "patch"),
    ]


def _controllers_rules() -> list[Obj]:
    return [
        _whole(cluster_x_k8s_io.GROUP, *_PROVIDERS),
        *_installing(),
        # Kubeconfigs of clusters, bootstrap data, certificates.
        _rule("", "secrets", *_READ, "create", "patch"),
        _rule("", "namespaces", "get"),
    ]


def _gateway_rules() -> list[Obj]:
    return [
        _whole(*_OURS, cluster_x_k8s_io.GROUP),
        *_installing(),
        # Kinds of drivers that are removed go with them.
        _rule("apiextensions.k8s.io", "customresourcedefinitions", "delete"),
        # Clusters, users and workspaces have namespaces; what hosts and Jobs are told is in Secrets and ConfigMaps of theirs.
        _rule("", "namespaces secrets configmaps serviceaccounts", *_WRITE),
        _rule("", "serviceaccounts/token", "create"),
        # How the cluster itself is, and pods of Jobs.
        _rule("", "nodes pods", *_READ),
        _rule("batch", "jobs", *_WRITE),
        _rule("batch", "jobs/status", "update", "patch"),
        # What people may do is said in roles of ours, which become roles there: also such as it does not hold itself.
        _rule(_RBAC, "clusterroles roles", *_WRITE, "bind", "escalate"),
        _rule(_RBAC, "clusterrolebindings rolebindings", *_WRITE),
        _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        _rule("authentication.k8s.io", "tokenreviews", "create"),
        # Whoever comes with a token of ours is passed on as themselves.
        _rule("", "users groups serviceaccounts", "impersonate"),
        # Uids, and extras by any name: a role can't say `userextras/*`.
        _rule("authentication.k8s.io", "*", "impersonate"),
    ]


# --- as objects ---------------------------------------------------------------------------------------------------------------


def _account(name: str, namespace: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def _cluster_role(name: str, rules: list[Obj], labels: dict[str, str] | None = None) -> Obj:
    metadata: Obj = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _aggregated() -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": CONTROLLERS},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {AGGREGATE: "true"}}]},
        # Without `rules`, which whoever aggregates fills in: applied again, the same manifest must not empty them.
    }


def _role(name: str, namespace: str) -> Obj:
    """Whose turn it is, and the certificates of its webhooks."""
    rules = [
        _rule("coordination.k8s.io", "leases", "get", "create", "update", "patch"),
        _rule("", "secrets", "get", "create", "update", "patch"),
    ]
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}


def _cluster_binding(name: str, namespace: str) -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _binding(name: str, namespace: str) -> Obj:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
