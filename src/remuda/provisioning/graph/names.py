"""What the objects of a cluster are called and marked with, byte for byte as Rancher looks for it (capr.md §0.3, §3).

Names are found again by computing them, and a machine template of another name replaces every machine of its pool: none of this
may ever change.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from remuda.api.rke_cattle_io import well_known
from remuda.kube.encoding import gojson
from remuda.kube.objects import GroupVersion, GroupVersionResource
from remuda.kube.safe_names import safe_concat

Obj = dict[str, Any]

# The name of Rancher's handler, which shows in marks, and that of the one that undoes it, which shows in finalizers.
SET_ID: Final = "rke-cluster"
FINALIZER: Final = "wrangler.cattle.io/rke-cluster-remove"

MACHINE_GROUP: Final = "rke-machine.cattle.io"
MACHINE_API_VERSION: Final = f"{MACHINE_GROUP}/v1"
CONFIG_GROUP: Final = "rke-machine-config.cattle.io"
CONFIG_API_VERSION: Final = f"{CONFIG_GROUP}/v1"

# Labels.
CLUSTER_NAME: Final = well_known.CLUSTER_NAME
POOL_NAME: Final = "rke.cattle.io/rke-machine-pool-name"
TEMPLATE_HASH: Final = "rke.cattle.io/machine-template-hash"
INIT_NODE_MACHINE: Final = well_known.INIT_NODE_MACHINE
ETCD_ROLE: Final = well_known.ETCD_ROLE
CONTROL_PLANE_ROLE: Final = well_known.CONTROL_PLANE_ROLE
WORKER_ROLE: Final = well_known.WORKER_ROLE
OPERATING_SYSTEM: Final = well_known.OPERATING_SYSTEM
PRUNE: Final = "objectset.rio.cattle.io/prune"

# Annotations.
CLUSTER_SPEC: Final = well_known.CLUSTER_SPEC
DELETE_MISSING_AFTER: Final = well_known.DELETE_MISSING_AFTER
HOSTNAME_LIMIT: Final = "rke.cattle.io/hostname-length-limit"
LABELS: Final = well_known.LABELS
TAINTS: Final = well_known.TAINTS
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
