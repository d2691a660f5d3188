"""The rights of the two parts on the Kubernetes where they are installed, as few as they can work with.

The controllers have upstream Cluster API's arrangement: their role aggregates every role with the label that providers set on
theirs (`cluster.x-k8s.io/aggregate-to-manager`). The gateway impersonates every user with a token of ours, and creates roles with
all rights that its users' roles hold: in effect it is an administrator, but the rights that it uses itself are listed here.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.api import cluster_x_k8s_io, management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP

Obj = dict[str, Any]

CONTROLLERS: Final = "remuda-controllers"
GATEWAY: Final = "remuda-gateway"
AGGREGATE: Final = "cluster.x-k8s.io/aggregate-to-manager"
# The groups whose definitions the two parts install.
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
    """All kinds of our groups and of providers', since their names are not known beforehand; with their subresources."""
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
        # The definitions of a removed driver's kinds are deleted with it.
        _rule("apiextensions.k8s.io", "customresourcedefinitions", "delete"),
        # Clusters, users and workspaces have namespaces, with Secrets and ConfigMaps for hosts and Jobs.
        _rule("", "namespaces secrets configmaps serviceaccounts", *_WRITE),
        _rule("", "serviceaccounts/token", "create"),
        # How the cluster itself is, and pods of Jobs.
        _rule("", "nodes pods", *_READ),
        _rule("batch", "jobs", *_WRITE),
        _rule("batch", "jobs/status", "update", "patch"),
        # Users' rights are in roles of ours, which become roles there: also rights that the gateway does not hold itself.
        _rule(_RBAC, "clusterroles roles", *_WRITE, "bind", "escalate"),
        _rule(_RBAC, "clusterrolebindings rolebindings", *_WRITE),
        _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        _rule("authentication.k8s.io", "tokenreviews", "create"),
        # Users with a token of ours are impersonated.
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
        # Without `rules`, which the aggregation controller fills in: applied again, the same manifest must not empty them.
    }


def _role(name: str, namespace: str) -> Obj:
    """The Lease, and the Secret of the webhooks' certificates."""
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
