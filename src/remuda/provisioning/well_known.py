"""What machines, their plans and their accounts are called and marked with, byte for byte as others look for it (capr.md §1.13).

Names are found again by computing them, so they must never change.
"""

from __future__ import annotations

import hashlib
from typing import Final

from remuda.api.rke_cattle_io import well_known
from remuda.kube.objects import GroupVersionResource
from remuda.kube.safe_names import safe_concat

PREFIX: Final = "rke.cattle.io/"

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
SERVICE_ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")

# Types of Secrets.
PLAN_TYPE: Final = "rke.cattle.io/machine-plan"
BOOTSTRAP_TYPE: Final = "rke.cattle.io/bootstrap"
REQUEST_TYPE: Final = "rke.cattle.io/machine-request"
ACCOUNT_TOKEN_TYPE: Final = "kubernetes.io/service-account-token"

# Labels.
CLUSTER_NAME: Final = well_known.CLUSTER_NAME
MACHINE_NAME: Final = "rke.cattle.io/machine-name"
MACHINE_NAMESPACE: Final = "rke.cattle.io/machine-namespace"
MACHINE_ID: Final = "rke.cattle.io/machine-id"
NODE_MACHINE: Final = "rke.cattle.io/machine"  # on a Node of the cluster: the Machine's uid
BOOTSTRAP_NAME: Final = "rke.cattle.io/rkebootstrap-name"
ACCOUNT_ROLE: Final = "rke.cattle.io/service-account-role"
PLAN_SECRET_NAME: Final = "rke.cattle.io/plan-secret-name"
ETCD_ROLE: Final = well_known.ETCD_ROLE
CONTROL_PLANE_ROLE: Final = well_known.CONTROL_PLANE_ROLE
WORKER_ROLE: Final = well_known.WORKER_ROLE
INIT_NODE: Final = "rke.cattle.io/init-node"
NODE_NAME: Final = "rke.cattle.io/node-name"
BACKUP: Final = "resources.cattle.io/backup"
ACCOUNT_LABEL: Final = "cattle.io/service-account.name"
# Of Kubernetes: the API server labels a token's Secret with the day of the token's last use.
TOKEN_LAST_USED: Final = "kubernetes.io/legacy-token-last-used"

PLAN_CLUSTER_GROUP: Final = "plan.cattle.io/cluster-group"
PLAN_CLUSTER_KIND: Final = "plan.cattle.io/cluster-kind"
PLAN_CLUSTER_NAME: Final = "plan.cattle.io/cluster-name"
PLAN_MACHINE_GROUP: Final = "plan.cattle.io/machine-group"
PLAN_MACHINE_KIND: Final = "plan.cattle.io/machine-kind"
PLAN_MACHINE_NAME: Final = "plan.cattle.io/machine-name"

# Values of ACCOUNT_ROLE.
ROLE_PLAN: Final = "plan"
ROLE_BOOTSTRAP: Final = "bootstrap"

# Annotations.
JOIN_URL: Final = "rke.cattle.io/join-url"
JOINED_TO: Final = "rke.cattle.io/joined-to"
ADDRESS: Final = "rke.cattle.io/address"
INTERNAL_ADDRESS: Final = "rke.cattle.io/internal-address"
LABELS: Final = well_known.LABELS
TAINTS: Final = well_known.TAINTS
PLAN_UPDATED: Final = "rke.cattle.io/plan-last-updated"
PROBES_PASSED: Final = "rke.cattle.io/plan-probes-passed"
DRAIN_OPTIONS: Final = "rke.cattle.io/drain-options"
DRAIN_DONE: Final = "rke.cattle.io/drain-done"
DRAIN_ERROR: Final = "rke.cattle.io/drain-error"
PRE_DRAIN: Final = "rke.cattle.io/pre-drain"
POST_DRAIN: Final = "rke.cattle.io/post-drain"
UNCORDON: Final = "rke.cattle.io/uncordon"
BOOTSTRAP_TOKEN: Final = "rke.cattle.io/bootstrap-token"
TOKEN_INVALIDATED: Final = "rke.cattle.io/bootstrap-token-invalidated"
LAST_ACCESS: Final = "rke.cattle.io/last-access-timestamp"
ETCD_FORCE_REMOVE: Final = "rke.cattle.io/etcd-force-remove"
DELETE_MISSING_AFTER: Final = well_known.DELETE_MISSING_AFTER
ACCOUNT_OF_TOKEN: Final = "kubernetes.io/service-account.name"
UID_OF_TOKEN: Final = "kubernetes.io/service-account.uid"
TOKEN_OF_ACCOUNT: Final = "rancher.io/service-account.secret-ref"

PRE_TERMINATE_HOOK: Final = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
PRE_TERMINATE_OWNER: Final = "rke-bootstrap-controller"

# Ours. Written by the gateway on a request: the uid of the Machine whose plan token the caller showed.
PLAN_TOKEN_SHOWN: Final = "remuda.dev/plan-token-shown"
# Written by an administrator on a Machine: its machine-id may register once more, from a host that lost its token.
REGISTER_AGAIN: Final = "remuda.dev/register-again"
# Written by a user on a Machine: it may go although it is the only etcd machine of its cluster.
DELETE_LAST_ETCD: Final = "remuda.dev/delete-last-etcd"
# On a plan's Secret: the checksum of the CA that the server hands out now (:mod:`remuda.agent.ca_trust` reads it).
CA_CHECKSUM: Final = "remuda.dev/ca-checksum"
# Written on a request that is not followed: why.
REFUSED: Final = "remuda.dev/refused"

# Written on the Secret with a host's token: how often hosts were refused, since when and why (refusals.py).
REFUSALS: Final = "remuda.dev/registration-refusals"

CUSTOM_PREFIX: Final = "custom-"


def plan_name(bootstrap: str) -> str:
    """The plan Secret of a bootstrap; its ServiceAccount, Role and RoleBinding are called so, too."""
    return safe_concat(bootstrap, "machine", "plan")


def bootstrap_name(bootstrap: str) -> str:
    """The Secret with the install script, and the ServiceAccount whose token is in it."""
    return safe_concat(bootstrap, "machine", "bootstrap")


def request_name(machine_id: str, prefix: str = CUSTOM_PREFIX) -> str:
    """The machine-request Secret of a host, and what comes of it."""
    return prefix + hashlib.sha256(machine_id.encode()).hexdigest()[:12]
