"""The objects that every cluster has, with or without machine pools: those of Cluster API, and the planner's input."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import plan_cattle_io as plan
from remuda.api import rke_cattle_io as rke
from remuda.capi.change_budget import CHANGE_BUDGET
from remuda.kube.encoding import gojson
from remuda.kube.objects import GroupVersion, Key, annotations_of, dig, labels_of, name_of
from remuda.kube.owners import reference

from ..well_known import (
    ACCEPT_RENDERING,
    AUTOSCALER_ENABLED,
    AUTOSCALER_PAUSED,
    CLUSTER_SPEC,
    DELETE_MISSING_AFTER,
    INIT_NODE_MACHINE,
    POOL_CHANGE_BUDGETS,
    PRIME,
    RECOVER,
    RECOVERED,
    REDEPLOY_AGENT,
    RESTORED_SPEC,
    UPGRADE_SNAPSHOT,
)
from . import podsecurity
from .generated import Generated, Unrenderable, generated
from .machine_pools import budget_of_pool, pool_objects, pools_written
from .podsecurity import with_admission

Obj = dict[str, Any]

# Fields of `spec.rkeConfig` copied to a control plane: the configuration of its machines
# (docs/reference/objects.md#copied-fields) ...
CONFIGURATION = (
    "additionalManifest",
    "chartValues",
    "dataDirectories",
    "etcd",
    "machineGlobalConfig",
    "machineSelectorConfig",
    "machineSelectorFiles",
    "networking",
    "provisionGeneration",
    "registries",
    "upgradeStrategy",
)
# ... and the operations that a user requested.
OPERATIONS = ("etcdSnapshotCreate", "etcdSnapshotRestore", "rotateCertificates", "rotateEncryptionKeys")
# Fields of `spec` itself.
_COPIED = ("agentEnvVars", "localClusterAuthEndpoint")


def infrastructure_of(wanted: Obj) -> Obj:
    """The reference to the cluster's infrastructure: another provider's, or the RKECluster that is made for it."""
    other = dig(wanted, "spec", "rkeConfig", "infrastructureRef")
    if not isinstance(other, dict) or not other:
        return {"apiGroup": rke.GROUP, "kind": "RKECluster", "name": name_of(wanted)}
    group = GroupVersion.parse(other.get("apiVersion") or "").group
    if not (group and other.get("kind") and other.get("name")):
        raise Unrenderable("spec.rkeConfig.infrastructureRef: apiVersion (with a group), kind and name must be set")
    return {"apiGroup": group, "kind": other["kind"], "name": other["name"]}


def rke_cluster(wanted: Obj) -> Generated | None:
    """The RKECluster; None if another provider has the infrastructure. The endpoint is left to its controller and to users."""
    if dig(wanted, "spec", "rkeConfig", "infrastructureRef"):
        return None
    after = annotations_of(wanted).get(DELETE_MISSING_AFTER)
    annotations = {DELETE_MISSING_AFTER: after} if after else {}
    return generated(rke.RKE_CLUSTERS, rke.API_VERSION, "RKECluster", wanted, spec={}, annotations=annotations)


def control_plane(wanted: Obj, managed: str, admission: bytes | None = None) -> Generated:
    """`managed` is the id of the cluster, `admission` a file for its API servers. The spec is a copy: field names are the same
    on both sides."""
    spec = wanted.get("spec") or {}
    configuration = spec.get("rkeConfig") or {}
    told = {field: configuration[field] for field in (*CONFIGURATION, *OPERATIONS) if configuration.get(field) is not None}
    told |= {field: spec[field] for field in _COPIED if spec.get(field) is not None}
    told |= {
        "kubernetesVersion": spec["kubernetesVersion"],
        "clusterName": name_of(wanted),
        "managementClusterName": managed,
    }
    told = with_admission(told, wanted, admission)
    annotations = {CLUSTER_SPEC: packed_spec(spec)}
    if prime := annotations_of(wanted).get(PRIME):
        annotations[PRIME] = prime
    if again := spec.get("redeploySystemAgentGeneration"):
        annotations[REDEPLOY_AGENT] = str(again)
    annotations |= {key: said for key in (RESTORED_SPEC, RECOVER, RECOVERED) if (said := annotations_of(wanted).get(key))}
    if accepted := annotations_of(wanted).get(ACCEPT_RENDERING):
        annotations[ACCEPT_RENDERING] = accepted
    if (upgrade := annotations_of(wanted).get(UPGRADE_SNAPSHOT)) is not None:
        annotations[UPGRADE_SNAPSHOT] = upgrade
    annotations |= change_budgets(wanted)
    # Also when empty: removing the label from the cluster removes it here.
    labels = {INIT_NODE_MACHINE: labels_of(wanted).get(INIT_NODE_MACHINE) or ""}
    return generated(
        rke.RKE_CONTROL_PLANES, rke.API_VERSION, "RKEControlPlane", wanted, spec=told, labels=labels, annotations=annotations
    )


def change_budgets(wanted: Obj) -> dict[str, str]:
    """The budgets of the cluster and of its pools, written together with the spec, so that the planner never sees it alone."""
    budgets = ((str(pool.get("name")), budget_of_pool(pool)) for pool in pools_written(wanted))
    pools = {name: budget for name, budget in sorted(budgets, key=lambda each: each[0]) if budget is not None}
    own = annotations_of(wanted).get(CHANGE_BUDGET)
    said = {} if own is None else {CHANGE_BUDGET: own}
    return said | ({POOL_CHANGE_BUDGETS: gojson.dumps(pools).decode()} if pools else {})


def packed_spec(spec: Obj) -> str:
    """The spec as stored in etcd snapshots, so that it can be restored with one; operations are left out."""
    kept = dict(spec)
    if isinstance(spec.get("rkeConfig"), dict):
        kept["rkeConfig"] = {field: value for field, value in spec["rkeConfig"].items() if field not in OPERATIONS}
    return base64.b64encode(gzip.compress(gojson.dumps(kept), mtime=0)).decode()


def capi_cluster(wanted: Obj) -> Generated:
    spec = {
        "controlPlaneRef": {"apiGroup": rke.GROUP, "kind": "RKEControlPlane", "name": name_of(wanted)},
        "infrastructureRef": infrastructure_of(wanted),
    }
    return generated(
        capi.CLUSTERS,
        capi.API_VERSION,
        "Cluster",
        wanted,
        spec=spec,
        annotations=_autoscaling(wanted),
        owners=[reference(wanted, controller=True)],
    )


def beacon(wanted: Obj) -> Generated:
    """The lock by whose status the writers of plans take turns; Rancher's controllers honour it."""
    return generated(plan.BEACONS, plan.API_VERSION, "Beacon", wanted, owners=[reference(wanted)])


def _autoscaling(wanted: Obj) -> Obj:
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
    sizes = ("autoscalingMinSize", "autoscalingMaxSize")
    if not any(all(pool.get(size) is not None for size in sizes) for pool in pools):
        return {}
    paused = annotations_of(wanted).get(AUTOSCALER_PAUSED) == "true"
    return {AUTOSCALER_PAUSED if paused else AUTOSCALER_ENABLED: "true"}


# --- rendering ------------------------------------------------------------------------------------------------------------
#
# The whole graph of one cluster (docs/reference/objects.md#graph).


def graph_of(wanted: Obj, managed: str, configs: Mapping[str, Obj] | None = None, template: Obj | None = None) -> list[Generated]:
    """All objects, in the order of writing: objects come after those they refer to.

    `managed` is the id of the cluster; `configs` are the machine configs of those pools that have one
    (:func:`.machine_pools.has_config`), by pool name; `template` is the one for pod security that it names
    (:func:`.podsecurity.template_of`). Raises :class:`Unrenderable`.
    """
    if not dig(wanted, "spec", "kubernetesVersion"):
        raise Unrenderable(f"spec.kubernetesVersion: must be set for cluster {Key.of(wanted)}, since its machines are to be made")
    infrastructure = infrastructure_of(wanted)
    own = rke_cluster(wanted)
    admission = None if template is None else podsecurity.content(template, wanted["spec"]["kubernetesVersion"])
    secrets = [] if admission is None else [podsecurity.secret(wanted, admission)]
    every = [*secrets, control_plane(wanted, managed, admission), capi_cluster(wanted), beacon(wanted)]
    return [*([own] if own is not None else []), *every, *pool_objects(wanted, infrastructure, configs or {})]
