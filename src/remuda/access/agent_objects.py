"""Names of our objects in a managed cluster: those that the manifest creates and that removal deletes.

:mod:`remuda.gateway.registration.agent_manifest` makes them, :mod:`remuda.access.health.cluster_removal` removes what carries
`MADE_FOR`.
"""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "cattle-system"
IMPERSONATION_NAMESPACE: Final = "cattle-impersonation-system"
AGENT: Final = "cattle-cluster-agent"
SERVICE_ACCOUNT: Final = "cattle"
ADMIN_ROLE: Final = "cattle-admin"
ADMIN_BINDING: Final = "cattle-admin-binding"
PROXY_ROLE: Final = "proxy-clusterrole-kubeapiserver"
PROXY_BINDING: Final = "proxy-role-binding-kubernetes-master"
BUDGET: Final = "cattle-cluster-agent-pod-disruption-budget"
PRIORITY_CLASS: Final = "cattle-cluster-agent-priority-class"
# The program that checks tokens for the cluster's API server, where it has an authorised endpoint.
AUTH: Final = "kube-api-auth"
AUTH_PORT: Final = 6440
AUTH_COMMAND: Final = ("/usr/local/bin/remuda", "kube-api-auth", "--listen", f"127.0.0.1:{AUTH_PORT}")
# A label of the Secrets that images are pulled with.
PULL_SECRET: Final = "management.cattle.io/cattle-cluster-agent-pull-secret"
CREDENTIALS_PREFIX: Final = "cattle-credentials-"
AGGREGATION_SECRET: Final = "stv-aggregation"
# An annotation: the id of the cluster that an object was made for.
MADE_FOR: Final = "remuda.dev/made-for"
# On the agent's Deployment, Rancher's: how many replicas a cluster with that many nodes gets.
SCALE_AVAILABLE: Final = "management.cattle.io/scale-available"
# An annotation of the agent's Deployment: a digest of the manifest it came with.
STAMP: Final = "remuda.dev/manifest"
# An annotation of objects that an agent created without an applied manifest; such an agent knows no id.
MADE_BY: Final = "remuda.dev/made-by"
BY_AGENT: Final = "cluster-agent"


def credentials_name(key: str) -> str:
    return CREDENTIALS_PREFIX + key
