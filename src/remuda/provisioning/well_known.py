"""What machines, their plans and their accounts are called and marked with, byte for byte as others look for it (capr.md §1.13).

Names are found again by computing them, so they must never change.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.api.rke_cattle_io import well_known
from remuda.kube.encoding import gojson
from remuda.kube.objects import GroupVersion, GroupVersionResource, Key, dig
from remuda.kube.wrangler import origin_of, safe_concat

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


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the two Clusters of one cluster are called and marked with, as Rancher and its clients look for it.

Obj = dict[str, Any]

# Names of Rancher's handlers, which show in finalizers and marks (capr.md §2.1).
FROM_WANTED: Final = "cluster-create"
FROM_MANAGED: Final = "provisioning-cluster-create"
WANTED_FINALIZER: Final = "wrangler.cattle.io/provisioning-cluster-remove"
MANAGED_FINALIZER: Final = "wrangler.cattle.io/mgmt-cluster-remove"

MANAGEMENT_NAME: Final = "provisioning.cattle.io/management-cluster-name"
DISPLAY_NAME: Final = "provisioning.cattle.io/management-cluster-display-name"
WORKSPACE_NAME: Final = "provisioning.cattle.io/fleet-workspace-name"
ADMINISTRATED: Final = "provisioning.cattle.io/administrated"
DESCRIPTION: Final = "field.cattle.io/description"
UI_PROVIDER: Final = "ui.rancher/provider"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

CONTROL_PLANES: Final = GroupVersionResource("rke.cattle.io", "v1", "rkecontrolplanes")

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def cluster_id(uid: str, attempt: int = 0) -> str:
    """The id that a cluster gets: as good as random, but the same for whoever tries, so that one that died in between, or two at
    the same time, don't make two."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(8):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return f"c-m-{''.join(letters)}"


def belongs(managed: Obj, wanted: Obj) -> bool:
    """Whether a management Cluster was made from this one: whoever names another's must not get hold of it."""
    return origin_of(managed, FROM_WANTED) == Key.of(wanted)


def is_administrated(wanted: Obj) -> bool:
    """Whether its machines are ours to make and configure, as opposed to a cluster that is there already."""
    return dig(wanted, "spec", "rkeConfig") is not None


def managed_name_of(wanted: Obj) -> str:
    """The id of its management Cluster as far as it is known."""
    found = dig(wanted, "status", "clusterName")
    return found if isinstance(found, str) else ""


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the objects of a cluster are called and marked with, byte for byte as Rancher looks for it (capr.md §0.3, §3).
#
# Names are found again by computing them, and a machine template of another name replaces every machine of its pool: none of
# this may ever change.

# The name of Rancher's handler, which shows in marks, and that of the one that undoes it, which shows in finalizers.
SET_ID: Final = "rke-cluster"
FINALIZER: Final = "wrangler.cattle.io/rke-cluster-remove"

MACHINE_GROUP: Final = "rke-machine.cattle.io"
MACHINE_API_VERSION: Final = f"{MACHINE_GROUP}/v1"
CONFIG_GROUP: Final = "rke-machine-config.cattle.io"
CONFIG_API_VERSION: Final = f"{CONFIG_GROUP}/v1"

POOL_NAME: Final = "rke.cattle.io/rke-machine-pool-name"
TEMPLATE_HASH: Final = "rke.cattle.io/machine-template-hash"
INIT_NODE_MACHINE: Final = well_known.INIT_NODE_MACHINE
OPERATING_SYSTEM: Final = well_known.OPERATING_SYSTEM
PRUNE: Final = "objectset.rio.cattle.io/prune"

# Annotations.
CLUSTER_SPEC: Final = well_known.CLUSTER_SPEC
HOSTNAME_LIMIT: Final = "rke.cattle.io/hostname-length-limit"
CLONED_FROM_VERSION: Final = "rke.cattle.io/cloned-from-group-version"
CLONED_FROM_KIND: Final = "rke.cattle.io/cloned-from-kind"
CLONED_FROM_NAME: Final = "rke.cattle.io/cloned-from-name"
# Ours. On a machine config: the digest of its template before its secret fields were sealed, by the digest since.
SEALED_DIGESTS: Final = "remuda.dev/sealed-template-digests"
# Ours. On a machine config, and copied to its templates: who wrote which address in it (remuda.provisioning.references).
ADDRESS_AUTHORS: Final = "remuda.dev/address-authors"
PRIME: Final = well_known.PRIME
REDEPLOY_AGENT: Final = well_known.REDEPLOY_AGENT
AUTOSCALER_ENABLED: Final = "provisioning.cattle.io/cluster-autoscaler-enabled"
AUTOSCALER_PAUSED: Final = "provisioning.cattle.io/cluster-autoscaler-paused"


def pool_name(cluster: str, pool: str) -> str:
    """The MachineDeployment of a pool, and its MachineHealthCheck."""
    return safe_concat(cluster, pool)


def shared_bootstrap_name(cluster: str) -> str:
    return safe_concat(cluster, "bootstrap", "template")


def bootstrap_hash(pool: str, userdata: str) -> str:
    """`pool` is the name of the pool's MachineDeployment."""
    return _digest(pool, userdata.encode())


def template_hash(pool: str, fields: Obj) -> str:
    """What a machine is like, in few characters: the driver's fields, without those that say nothing and without `common`,
    which may change while machines stay. `pool` is the name of the pool's MachineDeployment."""
    said = {name: value for name, value in fields.items() if name != "common" and not _is_empty(value)}
    return _digest(pool, gojson.dumps(said))


def hashed_name(pool: str, digest: str) -> str:
    return safe_concat(pool, digest)


def template_kind(config_kind: str) -> str:
    """`PodConfig` says what the machines of a `PodMachineTemplate` are like."""
    return f"{config_kind.removesuffix('Config')}MachineTemplate"


def resource_of(api_version: str, kind: str) -> GroupVersionResource:
    """Where objects of a driver's kinds are found; their plurals are all made alike."""
    group, version = GroupVersion.parse(api_version)
    return GroupVersionResource(group, version, f"{kind.lower()}s")


def _digest(pool: str, said: bytes) -> str:
    return hashlib.sha256(pool.encode() + said).hexdigest()[:8]


def _is_empty(value: Any) -> bool:
    """Only nothing, no text and no items: `false`, 0 and a map without entries say something."""
    return value is None or value in ("", [])


# --- keys -----------------------------------------------------------------------------------------------------------------
#
# Labels and annotations that only the planner reads or writes; the rest of them are in :mod:`remuda.provisioning.well_known`.

OS_LABEL: Final = well_known.OPERATING_SYSTEM
INIT_NODE_MACHINE_ID: Final = well_known.INIT_NODE_MACHINE
JOIN_URL_AUTOSET_DISABLED: Final = "rke.cattle.io/join-url-autoset-disabled"

# Ours: how often the plan has failed, and when it is tried again. Rancher never tries again, so it has no name for it.
PLAN_FAILURE: Final = "remuda.dev/plan-failure"

# Ours: when the agent of a machine was last asked whether it is there.
ASKED_AT: Final = "remuda.dev/asked-at"

# Ours: the agent that a host was given in its plan, and what came of it. By the other one, on the control plane, somebody asks
# for another try.
AGENT_UPDATE: Final = "remuda.dev/agent-update"

# On Machines: what lets one go whose node can't be drained.
EXCLUDE_NODE_DRAINING: Final = "machine.cluster.x-k8s.io/exclude-node-draining"
EXCLUDE_VOLUME_DETACH: Final = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
