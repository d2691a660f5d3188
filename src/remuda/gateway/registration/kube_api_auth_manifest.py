"""The part of the manifest for a cluster with an authorised endpoint: the token webhook of its API server
(docs/reference/registration.md#import-manifest).

`remuda kube-api-auth`, beside every API server, on an address that only the host itself can reach. It may read only the objects
that :mod:`remuda.access.clusters.cluster_auth` has written into the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.access.agent_objects import AUTH, AUTH_COMMAND, AUTH_PORT, NAMESPACE
from remuda.access.clusters.cluster_auth import is_wanted
from remuda.api.cluster_cattle_io import CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP

Obj = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"k8s-app": AUTH}
_ON_SERVERS: Final = tuple(
    {"matchExpressions": [{"key": f"node-role.kubernetes.io/{role}", "operator": "In", "values": ["true", ""]}]}
    for role in ("control-plane", "controlplane", "master")
)


def authentication(cluster: Obj, agent: Obj) -> Iterable[Obj]:
    """`agent` is the pod of the cluster agent; this pod has the same image and pull secrets."""
    if not is_wanted(cluster):
        return
    rule = {
        "apiGroups": [GROUP],
        "resources": [CLUSTER_AUTH_TOKENS.resource, CLUSTER_USER_ATTRIBUTES.resource],
        "verbs": ["get", "list", "watch"],
    }
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AUTH, "namespace": NAMESPACE}}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": AUTH}, "rules": [rule]}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": AUTH},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": AUTH},
        "subjects": [{"kind": "ServiceAccount", "name": AUTH, "namespace": NAMESPACE}],
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AUTH, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": dict(_LABELS)},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": _pod(agent)},
        },
    }


def _pod(agent: Obj) -> Obj:
    container = {
        "name": AUTH,
        "image": agent["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": list(AUTH_COMMAND),
        "livenessProbe": {"httpGet": {"host": "127.0.0.1", "path": "/healthcheck", "port": AUTH_PORT}, "periodSeconds": 10},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
    }
    placed = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(_ON_SERVERS)}}}
    pod: Obj = {
        "serviceAccountName": AUTH,
        # The API server connects to the host's own address.
        "hostNetwork": True,
        "affinity": placed,
        # Beside every API server, also on tainted nodes.
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    if "imagePullSecrets" in agent:
        pod["imagePullSecrets"] = agent["imagePullSecrets"]
    return pod
