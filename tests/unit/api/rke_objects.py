"""Objects of the providers' kinds, such as Rancher's controllers make them, with every field that there is."""

from __future__ import annotations

from typing import Any

from remuda import api
from remuda.api import plan_cattle_io as plan
from remuda.api import rke_cattle_io as rke
from remuda.kube.objects import GroupVersionResource

from .rancher_objects import EVERYTHING

Obj = dict[str, Any]
GROUPS = (rke.GROUP, plan.GROUP)
FLEET = "fleet-default"
_KINDS = {(kind.group, kind.resource): kind.kind for kind in api.kinds(GROUPS)}


def obj(resource: GroupVersionResource, name: str, /, labels: Obj | None = None, **fields: Any) -> Obj:
    metadata: Obj = {"name": name, "namespace": FLEET}
    if labels:
        metadata["labels"] = labels
    kind = _KINDS[resource.group, resource.resource]
    return {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, "metadata": metadata, **fields}


_CONDITION: Obj = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "Waiting",
    "message": "waiting for probes: etcd",
    "lastUpdateTime": "2026-01-02T03:04:05Z",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
# What only the cluster that somebody wants has; the rest of its rkeConfig is the control plane's, word for word.
_OF_CLUSTERS = {"machinePools", "machinePoolDefaults", "infrastructureRef"}
CONTROL_PLANE: Obj = {
    **{name: value for name, value in EVERYTHING["rkeConfig"].items() if name not in _OF_CLUSTERS},
    "agentEnvVars": EVERYTHING["agentEnvVars"],
    "clusterName": "demo",
    "kubernetesVersion": "v1.34.1+rke2r1",
    "localClusterAuthEndpoint": EVERYTHING["localClusterAuthEndpoint"],
    "managementClusterName": "c-m-bcdfg245",
    "unmanagedConfig": False,
}
CONTROL_PLANE_STATUS: Obj = {
    "agentConnected": True,
    "appliedSpec": CONTROL_PLANE,
    "certificateRotationGeneration": 1,
    "conditions": [_CONDITION, {"type": "Stable", "status": "True"}],
    "configGeneration": 2,
    "etcdSnapshotCreate": {"generation": 1},
    "etcdSnapshotCreatePhase": "RestartCluster",
    "etcdSnapshotRestore": {"name": "demo-etcd-snapshot-1", "generation": 1, "restoreRKEConfig": "all"},
    "etcdSnapshotRestorePhase": "PostRestorePodCleanup",
    "initialization": {"controlPlaneInitialized": True},
    "initialized": True,
    "observedGeneration": 3,
    "ready": True,
    "recover": {
        "generation": 3,
        "snapshot": "demo-etcd-snapshot-1",
        "restoreRKEConfig": "none",
        "lost": [{"name": "demo-servers-1", "roles": "etcd,controlplane", "pool": True}],
    },
    "recoverPhase": "Hosts",
    "rotateEncryptionKeys": {"generation": 1},
    "rotateEncryptionKeysLeader": "custom-0123456789ab",
    "rotateEncryptionKeysPhase": "PostReencryptRestart",
}
BOOTSTRAP: Obj = {"clusterName": "demo", "userdata": {"inlineUserdata": "#cloud-config"}}
SNAPSHOT: Obj = {
    "createdAt": "2026-01-02T03:04:05Z",
    "location": "s3://snapshots/demo/etcd-snapshot-1",
    "message": "",
    "metadata": "e30=",
    "name": "etcd-snapshot-1",
    "nodeName": "s3",
    "s3": {**EVERYTHING["rkeConfig"]["etcd"]["s3"], "retention": None},
    "size": 8_000_000_000,
    "status": "successful",
}
_ADDRESSES = [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "n1"}]
_BEACON_CONDITION = {"type": "A", "status": "True", "reason": "B", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}

# A kind's object, and the status that is written to it afterwards.
GOOD: list[tuple[GroupVersionResource, Obj, Obj | None]] = [
    (
        rke.RKE_CONTROL_PLANES,
        obj(rke.RKE_CONTROL_PLANES, "demo", {"cluster.x-k8s.io/cluster-name": "demo"}, spec=CONTROL_PLANE),
        CONTROL_PLANE_STATUS,
    ),
    (
        rke.RKE_CLUSTERS,
        obj(rke.RKE_CLUSTERS, "demo", spec={"controlPlaneEndpoint": {"host": "localhost", "port": 6443}}),
        {"conditions": [_CONDITION], "initialization": {"provisioned": True}, "ready": True},
    ),
    (
        rke.RKE_BOOTSTRAPS,
        obj(rke.RKE_BOOTSTRAPS, "custom-0123456789ab", spec=BOOTSTRAP),
        {"dataSecretName": "custom-0123456789ab-machine-bootstrap", "initialization": {"dataSecretCreated": True}, "ready": True},
    ),
    (
        rke.RKE_BOOTSTRAP_TEMPLATES,
        obj(
            rke.RKE_BOOTSTRAP_TEMPLATES,
            "demo-cp",
            spec={"clusterName": "demo", "template": {"metadata": {"labels": {"a": "b"}}, "spec": BOOTSTRAP}},
        ),
        None,
    ),
    (
        rke.CUSTOM_MACHINES,
        obj(rke.CUSTOM_MACHINES, "custom-0123456789ab", spec={"providerID": None}),
        {
            "addresses": _ADDRESSES,
            "conditions": [{**_CONDITION, "status": "True"}],
            "initialization": {"provisioned": True},
            "ready": True,
        },
    ),
    (
        rke.ETCD_SNAPSHOTS,
        obj(rke.ETCD_SNAPSHOTS, "demo-etcd-snapshot-1-s3", spec={"clusterName": "demo"}, snapshotFile=SNAPSHOT),
        {"missing": False},
    ),
    (
        plan.BEACONS,
        obj(plan.BEACONS, "demo", spec={}),
        {
            "active": True,
            "conditions": [_BEACON_CONDITION],
            "delegates": ["etcd-snapshot-save/fleet-default/x"],
            "owner": "planner",
            "registrationEndpoint": "https://s/v3/connect/agent",
        },
    ),
]


def control_plane(**fields: Any) -> Obj:
    return obj(rke.RKE_CONTROL_PLANES, "bad", spec={"clusterName": "demo", "managementClusterName": "c-m-bcdfg245", **fields})


_SHARE = "'^((([1-9]|[1-9][0-9]|100)%)|([1-9][0-9]*|0)|)$'"
# What is refused: the field that must be named, and how it goes on.
BAD: list[tuple[GroupVersionResource, Obj, str, str]] = [
    (rke.RKE_CONTROL_PLANES, obj(rke.RKE_CONTROL_PLANES, "bad", spec={}), "spec.clusterName", "Required value"),
    (rke.RKE_CONTROL_PLANES, obj(rke.RKE_CONTROL_PLANES, "bad", spec={}), "spec.managementClusterName", "Required value"),
    (rke.RKE_CONTROL_PLANES, control_plane(clusterName="a" * 64), "spec.clusterName", "Too long: may not be more than 63 bytes"),
    (
        rke.RKE_CONTROL_PLANES,
        control_plane(upgradeStrategy={"workerConcurrency": "many"}),
        "spec.upgradeStrategy.workerConcurrency",
        f'Invalid value: "many": spec.upgradeStrategy.workerConcurrency in body should match {_SHARE}',
    ),
    (
        rke.RKE_CONTROL_PLANES,
        control_plane(networking={"stackPreference": "both"}),
        "spec.networking.stackPreference",
        "Invalid value: \"both\": spec.networking.stackPreference in body should match '^(ipv4|ipv6|dual|)$'",
    ),
    (
        rke.RKE_CONTROL_PLANES,
        control_plane(etcd={"s3": {"retention": -1}}),
        "spec.etcd.s3.retention",
        "Invalid value: -1: spec.etcd.s3.retention in body should be greater than or equal to 0",
    ),
    (rke.RKE_CLUSTERS, obj(rke.RKE_CLUSTERS, "bad"), "spec", "Required value"),
    (
        rke.RKE_CLUSTERS,
        obj(rke.RKE_CLUSTERS, "bad", spec={"controlPlaneEndpoint": {"host": "lb", "port": 70000}}),
        "spec.controlPlaneEndpoint.port",
        "Invalid value: 70000: spec.controlPlaneEndpoint.port in body should be less than or equal to 65535",
    ),
    (rke.RKE_BOOTSTRAPS, obj(rke.RKE_BOOTSTRAPS, "bad"), "spec", "Required value"),
    (rke.RKE_BOOTSTRAP_TEMPLATES, obj(rke.RKE_BOOTSTRAP_TEMPLATES, "bad", spec={}), "spec.template", "Required value"),
    (
        rke.RKE_BOOTSTRAP_TEMPLATES,
        obj(rke.RKE_BOOTSTRAP_TEMPLATES, "bad", spec={"template": {}}),
        "spec.template.spec",
        "Required value",
    ),
    (
        rke.ETCD_SNAPSHOTS,
        obj(rke.ETCD_SNAPSHOTS, "bad", snapshotFile={"s3": {"bucket": "b" * 64}}),
        "snapshotFile.s3.bucket",
        "Too long: may not be more than 63 bytes",
    ),
]
# Statuses that are refused.
BAD_STATUS: list[tuple[GroupVersionResource, str, Obj, str]] = [
    (rke.RKE_CONTROL_PLANES, "demo", {"agentConnected": True}, "status.observedGeneration"),
    (
        rke.RKE_CONTROL_PLANES,
        "demo",
        {"observedGeneration": 1, "etcdSnapshotCreatePhase": "Shutdown"},
        "status.etcdSnapshotCreatePhase",
    ),
    (
        rke.RKE_CONTROL_PLANES,
        "demo",
        {"observedGeneration": 1, "etcdSnapshotRestorePhase": "Begun"},
        "status.etcdSnapshotRestorePhase",
    ),
    (
        rke.RKE_CONTROL_PLANES,
        "demo",
        {"observedGeneration": 1, "rotateEncryptionKeysPhase": "Finished"},
        "status.rotateEncryptionKeysPhase",
    ),
    (rke.RKE_CONTROL_PLANES, "demo", {"observedGeneration": 1, "initialization": {}}, "status.initialization"),
    (rke.RKE_BOOTSTRAPS, "custom-0123456789ab", {"dataSecretName": ""}, "status.dataSecretName"),
    (
        rke.CUSTOM_MACHINES,
        "custom-0123456789ab",
        {"addresses": [{"type": "Street", "address": "1"}]},
        "status.addresses[0].type",
    ),
    (plan.BEACONS, "demo", {"owner": "planner"}, "status.active"),
]
