"""Names, labels and annotations of machines, their plans and accounts, byte for byte as Rancher's
(docs/reference/objects.md#labels-and-annotations).

Names are recomputed to find objects again, so they must never change.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.api import rke_cattle_io
from remuda.kube.encoding import gojson
from remuda.kube.objects import GroupVersion, GroupVersionResource, Key, dig
from remuda.kube.wrangler import origin_of, safe_concat

# Types of Secrets.
PLAN_TYPE: Final = "rke.cattle.io/machine-plan"
BOOTSTRAP_TYPE: Final = "rke.cattle.io/bootstrap"
REQUEST_TYPE: Final = "rke.cattle.io/machine-request"
ACCOUNT_TOKEN_TYPE: Final = "kubernetes.io/service-account-token"

# Labels.
CLUSTER_NAME: Final = rke_cattle_io.CLUSTER_NAME
MACHINE_NAME: Final = "rke.cattle.io/machine-name"
MACHINE_NAMESPACE: Final = "rke.cattle.io/machine-namespace"
MACHINE_ID: Final = "rke.cattle.io/machine-id"
NODE_MACHINE: Final = "rke.cattle.io/machine"  # on a Node of the cluster: the Machine's uid
BOOTSTRAP_NAME: Final = "rke.cattle.io/rkebootstrap-name"
ACCOUNT_ROLE: Final = "rke.cattle.io/service-account-role"
PLAN_SECRET_NAME: Final = "rke.cattle.io/plan-secret-name"
ETCD_ROLE: Final = rke_cattle_io.ETCD_ROLE
CONTROL_PLANE_ROLE: Final = rke_cattle_io.CONTROL_PLANE_ROLE
WORKER_ROLE: Final = rke_cattle_io.WORKER_ROLE
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
LABELS: Final = rke_cattle_io.LABELS
TAINTS: Final = rke_cattle_io.TAINTS
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
DELETE_MISSING_AFTER: Final = rke_cattle_io.DELETE_MISSING_AFTER
ACCOUNT_OF_TOKEN: Final = "kubernetes.io/service-account.name"
UID_OF_TOKEN: Final = "kubernetes.io/service-account.uid"
TOKEN_OF_ACCOUNT: Final = "rancher.io/service-account.secret-ref"

PRE_TERMINATE_HOOK: Final = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
PRE_TERMINATE_OWNER: Final = "rke-bootstrap-controller"

# Ours. Written by the gateway on a request: the uid of the Machine whose plan token the caller presented.
PLAN_TOKEN_SHOWN: Final = "remuda.dev/plan-token-shown"
# Written by an administrator on a Machine: its machine-id may register once more, from a host that lost its token.
REGISTER_AGAIN: Final = "remuda.dev/register-again"
# Written by a user on a Machine: it may be deleted although it is the only etcd machine of its cluster.
DELETE_LAST_ETCD: Final = "remuda.dev/delete-last-etcd"
# The same for more members of etcd than a majority can spare, and for the last machine of the control plane.
DELETE_ETCD_MAJORITY: Final = "remuda.dev/delete-etcd-majority"
DELETE_LAST_CONTROL_PLANE: Final = "remuda.dev/delete-last-control-plane"
# Written by a user on a Machine, or on a Cluster for all of its machines: "true" makes hosts that outlive their machine remove
# what was installed on them. The finalizer on their CustomMachine has the same name.
UNINSTALL: Final = "remuda.dev/uninstall"
# On an RKEControlPlane: the change budgets of the cluster's pools, as JSON. Its own is in CHANGE_BUDGET.
POOL_CHANGE_BUDGETS: Final = "remuda.dev/pool-change-budgets"
# On a plan's Secret: the checksum of the CA that the server hands out now (:mod:`remuda.agent.ca_trust` reads it).
CA_CHECKSUM: Final = "remuda.dev/ca-checksum"
# Written on a request that was refused: the reason.
REFUSED: Final = "remuda.dev/refused"

# Written on the Secret with a host's token: number, start and reason of refused registrations (host_identity.py).
REFUSALS: Final = "remuda.dev/registration-refusals"

CUSTOM_PREFIX: Final = "custom-"


def plan_name(bootstrap: str) -> str:
    """The name of a bootstrap's plan Secret, and of its ServiceAccount, Role and RoleBinding."""
    return safe_concat(bootstrap, "machine", "plan")


def bootstrap_name(bootstrap: str) -> str:
    """The name of the Secret with the install script, and of the ServiceAccount whose token is in it."""
    return safe_concat(bootstrap, "machine", "bootstrap")


def request_name(machine_id: str, prefix: str = CUSTOM_PREFIX) -> str:
    """The name of a host's machine-request Secret, and of the objects made from it."""
    return prefix + hashlib.sha256(machine_id.encode()).hexdigest()[:12]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# Names and annotations of the two Clusters of one cluster, as Rancher and its clients expect them.

Obj = dict[str, Any]

# Names of Rancher's handlers, which appear in finalizers and annotations (docs/reference/objects.md#origin-marks).
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
    """The id of a new cluster: as good as random, but the same at each attempt, so that a retry or a concurrent attempt
    creates no second cluster."""
    digest = hashlib.sha256(f"{uid}/{attempt}".encode()).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(8):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return f"c-m-{''.join(letters)}"


def belongs(managed: Obj, wanted: Obj) -> bool:
    """True if a management Cluster was made from this one: a cluster that names another's must not gain access to it."""
    return origin_of(managed, FROM_WANTED) == Key.of(wanted)


def is_administrated(wanted: Obj) -> bool:
    """True if this server creates and configures its machines; false for an imported cluster."""
    return dig(wanted, "spec", "rkeConfig") is not None


def managed_name_of(wanted: Obj) -> str:
    """The id of its management Cluster; "" if not known yet."""
    found = dig(wanted, "status", "clusterName")
    return found if isinstance(found, str) else ""


# --- names ----------------------------------------------------------------------------------------------------------------
#
# Names and labels of a cluster's objects, byte for byte as Rancher expects them (docs/reference/objects.md#names,
# docs/reference/objects.md#graph).
#
# Names are recomputed to find objects again, and a machine template with another name replaces every machine of its pool:
# none of this may ever change.

# The name of Rancher's handler, as in annotations, and of the one that undoes it, as in finalizers.
SET_ID: Final = "rke-cluster"
FINALIZER: Final = "wrangler.cattle.io/rke-cluster-remove"

MACHINE_GROUP: Final = "rke-machine.cattle.io"
MACHINE_API_VERSION: Final = f"{MACHINE_GROUP}/v1"
CONFIG_GROUP: Final = "rke-machine-config.cattle.io"
CONFIG_API_VERSION: Final = f"{CONFIG_GROUP}/v1"

POOL_NAME: Final = "rke.cattle.io/rke-machine-pool-name"
TEMPLATE_HASH: Final = "rke.cattle.io/machine-template-hash"
INIT_NODE_MACHINE: Final = rke_cattle_io.INIT_NODE_MACHINE
OPERATING_SYSTEM: Final = rke_cattle_io.OPERATING_SYSTEM
PRUNE: Final = "objectset.rio.cattle.io/prune"

# Annotations.
CLUSTER_SPEC: Final = rke_cattle_io.CLUSTER_SPEC
HOSTNAME_LIMIT: Final = "rke.cattle.io/hostname-length-limit"
CLONED_FROM_VERSION: Final = "rke.cattle.io/cloned-from-group-version"
CLONED_FROM_KIND: Final = "rke.cattle.io/cloned-from-kind"
CLONED_FROM_NAME: Final = "rke.cattle.io/cloned-from-name"
# Ours. On a machine config: the digest of its template before its secret fields were sealed, by the digest since.
SEALED_DIGESTS: Final = "remuda.dev/sealed-template-digests"
# Ours. On a machine config, and copied to its templates: the author of each address in it (remuda.provisioning.references).
ADDRESS_AUTHORS: Final = "remuda.dev/address-authors"
PRIME: Final = rke_cattle_io.PRIME
REDEPLOY_AGENT: Final = rke_cattle_io.REDEPLOY_AGENT
AUTOSCALER_ENABLED: Final = "provisioning.cattle.io/cluster-autoscaler-enabled"
AUTOSCALER_PAUSED: Final = "provisioning.cattle.io/cluster-autoscaler-paused"


def pool_name(cluster: str, pool: str) -> str:
    """The name of a pool's MachineDeployment and of its MachineHealthCheck."""
    return safe_concat(cluster, pool)


def shared_bootstrap_name(cluster: str) -> str:
    return safe_concat(cluster, "bootstrap", "template")


def bootstrap_hash(pool: str, userdata: str) -> str:
    """`pool` is the name of the pool's MachineDeployment."""
    return _digest(pool, userdata.encode())


def template_hash(pool: str, fields: Obj) -> str:
    """A short hash of a machine's properties: the driver's fields, without empty ones and without `common`, which may change
    while machines stay. `pool` is the name of the pool's MachineDeployment."""
    said = {name: value for name, value in fields.items() if name != "common" and not _is_empty(value)}
    return _digest(pool, gojson.dumps(said))


def hashed_name(pool: str, digest: str) -> str:
    return safe_concat(pool, digest)


def template_kind(config_kind: str) -> str:
    """`PodConfig` describes the machines of a `PodMachineTemplate`."""
    return f"{config_kind.removesuffix('Config')}MachineTemplate"


def resource_of(api_version: str, kind: str) -> GroupVersionResource:
    """The resource of a driver's kind; all their plurals are formed alike."""
    group, version = GroupVersion.parse(api_version)
    return GroupVersionResource(group, version, f"{kind.lower()}s")


def _digest(pool: str, said: bytes) -> str:
    return hashlib.sha256(pool.encode() + said).hexdigest()[:8]


def _is_empty(value: Any) -> bool:
    """True for None, "" and []; `false`, 0 and an empty map are values."""
    return value is None or value in ("", [])


# --- keys -----------------------------------------------------------------------------------------------------------------
#
# Labels and annotations that only the planner reads or writes; all others are above.

OS_LABEL: Final = rke_cattle_io.OPERATING_SYSTEM
INIT_NODE_MACHINE_ID: Final = rke_cattle_io.INIT_NODE_MACHINE
JOIN_URL_AUTOSET_DISABLED: Final = "rke.cattle.io/join-url-autoset-disabled"

# Ours: the number of failures of the plan, and the time of the next try. Rancher never retries, so it has no name for this.
PLAN_FAILURE: Final = "remuda.dev/plan-failure"

# Ours: the drain hash of the plan before an operation's, which has none.
DRAIN_HASH_BEFORE: Final = "remuda.dev/drain-hash-before"

# Ours, on a plan's Secret: the request and phase of the operation that the plan was written for, so that it is written once.
TASK: Final = "remuda.dev/task"

# Ours, on the Cluster API Cluster: the operation that has paused it.
PAUSED_FOR: Final = "remuda.dev/paused-for"

# Ours, on a cluster and its control plane: the request of a restore for which its spec was set back.
RESTORED_SPEC: Final = "remuda.dev/restored-spec"

# Ours, on a cluster and its control plane: the request of a recovery, and the one whose restore was requested.
RECOVER: Final = "remuda.dev/recover"
RECOVERED: Final = "remuda.dev/recovered"

# Ours, on a control plane: the change of the minor version that waits for a snapshot of etcd, as `FROM TO NUMBER`.
UPGRADE_SNAPSHOT: Final = "remuda.dev/upgrade-snapshot"

# On an ETCDSnapshot: where it is (`local`, `s3`), its file, the cluster's own object of it, and what a restore may bring back.
SNAPSHOT_STORAGE: Final = "etcdsnapshot.rke.io/storage"
SNAPSHOT_FILE_NAME: Final = "etcdsnapshot.rke.io/snapshot-file-name"
SNAPSHOT_NAME: Final = "etcdsnapshot.rke.io/snapshot-name"
RESTORE_MODES: Final = "etcdsnapshot.rke.io/restore-mode-options"

# Ours, on an ETCDSnapshot: the time of a request to check its file (annotation), and what its file is deleted for (finalizer).
VERIFY_SNAPSHOT: Final = "remuda.dev/verify"
SNAPSHOT_FILE: Final = "remuda.dev/snapshot-file"
# Ours, on a cluster: the request to import a snapshot from a bucket. On its ETCDSnapshot: it is of another cluster, and may be.
IMPORT_SNAPSHOT: Final = "remuda.dev/import-snapshot"
OTHER_CLUSTER: Final = "remuda.dev/other-cluster"
# Since when its copy in a bucket is deleted, in seconds: it goes when a later list of the bucket does not show it.
FILE_DELETED: Final = "remuda.dev/file-deleted"

# Ours: the time when a machine's agent was last asked for a sign of life.
ASKED_AT: Final = "remuda.dev/asked-at"

# Ours: the agent that a host was given in its plan, and the result. The other one, on the control plane, is a user's request
# for another try.
AGENT_UPDATE: Final = "remuda.dev/agent-update"
# On a plan's Secret: the version of Remuda that rendered the plan; and, while the plan is held although the present version
# would render another one, that version and the digest of its rendering.
RENDERED_BY: Final = "remuda.dev/rendered-by"
HELD_RENDERING: Final = "remuda.dev/held-rendering"
# Written by users on a Cluster, copied to its RKEControlPlane: the version whose renderings they accept.
ACCEPT_RENDERING: Final = "remuda.dev/accept-rendering"

# On a Machine: the certificates of its host, as JSON, and the last warning that one of them expires.
CERTIFICATES: Final = "remuda.dev/certificates"
CERTIFICATE_WARNING: Final = "remuda.dev/certificate-warning"

# On Machines: they allow the deletion of a machine whose node can't be drained.
EXCLUDE_NODE_DRAINING: Final = "machine.cluster.x-k8s.io/exclude-node-draining"
EXCLUDE_VOLUME_DETACH: Final = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
