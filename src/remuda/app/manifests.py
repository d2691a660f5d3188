"""Plain manifests that install Remuda on an existing Kubernetes: the output of `remuda manifests`.

:func:`manifests` puts them in an order that `kubectl apply -f -` can follow: the rights of the two parts there, as few as they
can work with, and their workloads, for the Pod Security level `restricted`. The controllers have upstream Cluster API's
arrangement: their role aggregates every role with the label that providers set on theirs
(`cluster.x-k8s.io/aggregate-to-manager`). The gateway impersonates every user with a token of ours, and creates roles with all
rights that its users' roles hold: in effect it is an administrator, but the rights that it uses itself are listed here.

Not here: manifests of the cluster agent (:mod:`remuda.gateway.registration.agent_manifest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from remuda.api import (
    addons_cluster_x_k8s_io,
    cluster_x_k8s_io,
    clusterctl_cluster_x_k8s_io,
    management_cattle_io,
    plan_cattle_io,
    provisioning_cattle_io,
    rke_cattle_io,
)
from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.clusterctl.providers import ProviderType
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP

Obj = dict[str, Any]

CONTROLLERS: Final = "remuda-controllers"
GATEWAY: Final = "remuda-gateway"
AGGREGATE: Final = "cluster.x-k8s.io/aggregate-to-manager"
# The groups whose definitions the two parts install.
DEFINED: Final = (
    addons_cluster_x_k8s_io.GROUP,
    cluster_x_k8s_io.GROUP,
    management_cattle_io.GROUP,
    plan_cattle_io.GROUP,
    provisioning_cattle_io.GROUP,
    rke_cattle_io.GROUP,
)
_PROVIDERS = ("bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io")
_OURS = (*DEFINED[2:], MACHINE_GROUP, CONFIG_GROUP)
_READ = ("get", "list", "watch")
_WRITE = (*_READ, "create", "update", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"
_CONTROLLERS_WEBHOOKS: Final = f"{CONTROLLERS}-webhooks"
_GATEWAY_WEBHOOKS: Final = f"{GATEWAY}-webhooks"
_USER: Final = 65532
_DATA: Final = "/var/lib/remuda"
_TLS: Final = "/etc/remuda/tls"


@dataclass(frozen=True, slots=True)
class Wishes:
    """`hostname` is how users, hosts and agents reach the gateway; `tls_secret` holds the certificate that it shows them."""

    image: str
    hostname: str = ""
    namespace: str = "remuda-system"
    replicas: int = 2
    gateway_replicas: int = 1
    tls_sans: tuple[str, ...] = ()
    tls_secret: str = ""
    # Clients have to trust the Secret's `ca.crt`: it is not a public CA.
    private_ca: bool = False
    service_type: str = "ClusterIP"
    storage_class: str = ""
    storage: str = "2Gi"
    pull_secret: str = ""
    crds: bool = False

    @property
    def keeps_state(self) -> bool:
        """True if the gateway has to keep a CA of its own, because no other certificate is given."""
        return not self.tls_secret


def manifests(wishes: Wishes) -> list[Obj]:
    return [
        _namespace(wishes),
        *(_definitions() if wishes.crds else ()),
        *_roles(wishes.namespace),
        *_workloads(wishes),
    ]


def components(wishes: Wishes) -> dict[ProviderType, list[Obj]]:
    """The same for clusterctl, without the namespace: the controllers are the core, the gateway is what our providers need."""
    made: dict[ProviderType, list[Obj]] = {ProviderType.CORE: [], ProviderType.INFRASTRUCTURE: []}
    for obj in manifests(wishes)[1:]:
        part = ProviderType.INFRASTRUCTURE if name_of(obj).startswith(GATEWAY) else ProviderType.CORE
        made[part].append(obj)
    return made


def _namespace(wishes: Wishes) -> Obj:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": wishes.namespace, "labels": labels}}


def _definitions() -> list[Obj]:
    from remuda import api

    return api.crds(DEFINED)


# --- rights -------------------------------------------------------------------------------------------------------------------


def _roles(namespace: str) -> list[Obj]:
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
        # clusterctl's inventory.
        _rule(clusterctl_cluster_x_k8s_io.GROUP, "providers", *_WRITE),
    ]


def _controllers_rules() -> list[Obj]:
    return [
        _whole(cluster_x_k8s_io.GROUP, addons_cluster_x_k8s_io.GROUP, *_PROVIDERS),
        # What ClusterResourceSets put into clusters.
        _rule("", "configmaps", *_READ, "patch"),
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
    """The Lease, and the Secret of the webhooks' certificates; of gateways also the Leases by which they find each other."""
    peers = ("list", "delete") if name == GATEWAY else ()
    rules = [
        _rule("coordination.k8s.io", "leases", "get", "create", "update", "patch", *peers),
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


# --- workloads ----------------------------------------------------------------------------------------------------------------


def _workloads(wishes: Wishes) -> list[Obj]:
    return [
        _service(wishes, _CONTROLLERS_WEBHOOKS, CONTROLLERS, "webhooks"),
        _service(wishes, _GATEWAY_WEBHOOKS, GATEWAY, "webhooks"),
        _service(wishes, GATEWAY, GATEWAY, "https", wishes.service_type),
        *([_claim(wishes)] if wishes.keeps_state else []),
        _controllers(wishes),
        _gateway(wishes),
        # One for a single replica would only keep its node from being drained.
        *(_budget(wishes, CONTROLLERS) for _ in range(wishes.replicas > 1)),
        *(_budget(wishes, GATEWAY) for _ in range(wishes.gateway_replicas > 1)),
    ]


def _controllers(wishes: Wishes) -> Obj:
    arguments = [
        "controllers",
        f"--webhook-service={wishes.namespace}/{_CONTROLLERS_WEBHOOKS}",
        "--metrics-bind-address=:8080",
        "--log-format=json",
    ]
    ports = {"webhooks": 9443, "health": 9440, "metrics": 8080}
    container = _container(wishes, "controllers", arguments, ports, memory="128Mi")
    return _deployment(wishes, CONTROLLERS, wishes.replicas, container, [])


def _gateway(wishes: Wishes) -> Obj:
    names = ",".join(dict.fromkeys((*([wishes.hostname] if wishes.hostname else []), *wishes.tls_sans)))
    arguments = [
        "gateway",
        "--listen=0.0.0.0:8443",
        f"--data-dir={_DATA}",
        f"--webhook-service={wishes.namespace}/{_GATEWAY_WEBHOOKS}",
        "--wait-for-cluster-api",
        "--log-format=json",
    ]
    if wishes.tls_secret:
        arguments += [f"--tls-cert-file={_TLS}/tls.crt", f"--tls-private-key-file={_TLS}/tls.key"]
        arguments += [f"--tls-ca-file={_TLS}/ca.crt"] if wishes.private_ca else []
    else:
        within = f"{GATEWAY}.{wishes.namespace}.svc"
        arguments.append(f"--tls-san={','.join(filter(None, (names, within, f'{within}.cluster.local')))}")
    ports = {"https": 8443, "webhooks": 9444, "health": 9441}
    container = _container(wishes, "gateway", arguments, ports, memory="256Mi")
    if wishes.hostname:
        container["env"].append({"name": "REMUDA_SERVER_URL", "value": f"https://{wishes.hostname}"})
    container["volumeMounts"].append({"name": "data", "mountPath": _DATA})
    kept: Obj = {"persistentVolumeClaim": {"claimName": GATEWAY}} if wishes.keeps_state else {"emptyDir": {}}
    volumes: list[Obj] = [{"name": "data", **kept}]
    if wishes.tls_secret:
        container["volumeMounts"].append({"name": "tls", "mountPath": _TLS, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": wishes.tls_secret}})
    made = _deployment(wishes, GATEWAY, wishes.gateway_replicas, container, volumes)
    if wishes.keeps_state:
        # Its volume is for one at a time.
        made["spec"]["strategy"] = {"type": "Recreate"}
    return made


def _container(wishes: Wishes, name: str, arguments: list[str], ports: dict[str, int], memory: str) -> Obj:
    return {
        "name": name,
        "image": wishes.image,
        "command": ["remuda"],
        "args": arguments,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": each, "containerPort": number, "protocol": "TCP"} for each, number in ports.items()],
        # It may have to wait for the other part, for definitions, or for its lease.
        "startupProbe": _probe("/healthz", 5, 120),
        "livenessProbe": _probe("/healthz", 10, 6),
        "readinessProbe": _probe("/readyz", 5, 3),
        "resources": {"requests": {"cpu": "100m", "memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _probe(path: str, every: int, failures: int) -> Obj:
    return {
        "httpGet": {"path": path, "port": "health", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _deployment(wishes: Wishes, name: str, replicas: int, container: Obj, volumes: list[Obj]) -> Obj:
    labels = {"app.kubernetes.io/name": name}
    pod: Obj = {
        "serviceAccountName": name,
        "securityContext": {
            "runAsNonRoot": True,
            **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _USER),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 60,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
    }
    if wishes.pull_secret:
        pod["imagePullSecrets"] = [{"name": wishes.pull_secret}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": wishes.namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(wishes: Wishes, name: str, of: str, port: str, kind: str = "ClusterIP") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": wishes.namespace, "labels": {"app.kubernetes.io/name": of}},
        "spec": {
            "type": kind,
            "selector": {"app.kubernetes.io/name": of},
            "ports": [{"name": port, "port": 443, "targetPort": port, "protocol": "TCP"}],
            # The API server calls webhooks of pods that are not ready yet: other parts wait for their conversion.
            **({"publishNotReadyAddresses": True} if port == "webhooks" else {}),
        },
    }


def _claim(wishes: Wishes) -> Obj:
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": wishes.storage}}}
    if wishes.storage_class:
        spec["storageClassName"] = wishes.storage_class
    metadata = {"name": GATEWAY, "namespace": wishes.namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _budget(wishes: Wishes, name: str) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": wishes.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": name}}},
    }


# --- upstream's Cluster API ---------------------------------------------------------------------------------------------------
#
# The rights of upstream's manager on our providers' kinds: a ClusterRole that its own role aggregates by a label. Our core does
# not need it; a user who installs upstream's core instead should not have to find out what is missing.

CLUSTER_ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
_PROVIDERS_ROLE: Final = "remuda-providers"


def manager_role() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _PROVIDERS_ROLE, "labels": {AGGREGATE: "true"}},
        "rules": [
            {
                "apiGroups": [rke_cattle_io.GROUP, MACHINE_GROUP],
                "resources": ["*"],
                "verbs": sorted(_WRITE),
            }
        ],
    }


async def ensure_manager_role(client: Client) -> None:
    await apply_owned(client, CLUSTER_ROLES, manager_role(), "remuda")
