"""Objects with a life behind them, whose table rows a real kube-apiserver printed are on record in `rows.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .cases import KINDS, TEMPLATE, Obj, merged

LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Row:
    kind: str
    label: str
    change: Obj = field(default_factory=dict)
    status: Obj | None = None

    @property
    def id(self) -> str:
        return f"{self.kind} {self.label}"


def _state(name: str = "main", ready: bool = False, restarts: int = 0, **state: Any) -> Obj:
    return {"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": restarts, "state": state}


def _pod(label: str, phase: str = "Running", spec: Obj | None = None, **status: Any) -> Row:
    return Row("Pod", label, {"spec": spec or {}}, {"phase": phase, **status})


_INIT = {"initContainers": [{"name": "i1", "image": "x"}, {"name": "i2", "image": "x"}]}
_SIDECAR = {"initContainers": [{"name": "s", "image": "x", "restartPolicy": "Always"}]}
_RUNNING = {"running": {"startedAt": LONG_AGO}}
_TRUE = {"status": "True", "lastTransitionTime": LONG_AGO}

ROWS: list[Row] = [
    *(Row(kind, "as it is") for kind in KINDS),
    _pod("that runs", containerStatuses=[_state(ready=True, **_RUNNING)], podIPs=[{"ip": "10.1.1.1"}], podIP="10.1.1.1"),
    _pod("that crashed", containerStatuses=[_state(restarts=3, waiting={"reason": "CrashLoopBackOff"})]),
    _pod("that was killed", containerStatuses=[_state(terminated={"exitCode": 137, "signal": 9})]),
    _pod("that failed", "Failed", containerStatuses=[_state(terminated={"exitCode": 1})]),
    _pod("that is done", "Succeeded", containerStatuses=[_state(terminated={"exitCode": 0, "reason": "Completed"})]),
    _pod("that waits for init", "Pending", _INIT, initContainerStatuses=[_state("i1", **_RUNNING), _state("i2", waiting={})]),
    _pod(
        "whose second init failed",
        "Pending",
        _INIT,
        initContainerStatuses=[_state("i1", terminated={"exitCode": 0}), _state("i2", terminated={"exitCode": 2}, restarts=2)],
    ),
    _pod(
        "with a sidecar",
        "Running",
        _SIDECAR,
        initContainerStatuses=[{**_state("s", ready=True, **_RUNNING), "started": True}],
        containerStatuses=[_state(ready=True, **_RUNNING)],
    ),
    _pod("that was evicted", "Failed", reason="Evicted"),
    _pod(
        "with gates",
        "Running",
        {"readinessGates": [{"conditionType": "a.b/c"}, {"conditionType": "a.b/d"}]},
        conditions=[{"type": "a.b/c", **_TRUE}],
    ),
    Row(
        "Node",
        "that is ready",
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}}},
        {
            "conditions": [{"type": "Ready", **_TRUE}],
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {
                "kubeletVersion": "v1",
                "osImage": "os",
                "kernelVersion": "k",
                "architecture": "amd64",
                "containerRuntimeVersion": "c",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
            },
        },
    ),
    Row("Node", "that is cordoned", {"spec": {"unschedulable": True}}, {"conditions": [{"type": "Ready", "status": "False"}]}),
    Row(
        "Service",
        "of type LoadBalancer",
        {"spec": {"type": "LoadBalancer", "clusterIP": "10.96.8.8", "allocateLoadBalancerNodePorts": False}},
        {"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}, {"hostname": "a.b"}]}},
    ),
    Row(
        "Service", "that is external", {"spec": {"type": "ExternalName", "clusterIP": None, "externalName": "e.x", "ports": None}}
    ),
    Row("Service", "without an address", {"spec": {"clusterIP": "None", "selector": {"b": "2", "a": "1"}}}),
    Row(
        "Endpoints",
        "with many",
        {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(1, 6)], "ports": [{"port": 80}]}]},
    ),
    Row("EndpointSlice", "with many", {"endpoints": [{"addresses": [f"10.0.0.{n}"]} for n in range(1, 6)]}),
    Row(
        "Event",
        "with a series",
        {
            "eventTime": "2020-01-01T00:00:00.000000Z",
            "reportingComponent": "a/b",
            "reportingInstance": "i",
            "action": "a",
            "series": {"count": 5, "lastObservedTime": "2020-01-01T00:00:00.000000Z"},
        },
    ),
    Row(
        "Event",
        "with a source",
        {
            "source": {"component": "c", "host": "h"},
            "count": 3,
            "message": " m ",
            "type": "Warning",
            "firstTimestamp": LONG_AGO,
            "lastTimestamp": LONG_AGO,
        },
    ),
    Row(
        "Deployment",
        "that is up",
        {"spec": {"replicas": 3}},
        {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
    ),
    Row(
        "Deployment",
        "with expressions",
        {
            "spec": {
                "selector": {
                    "matchExpressions": [
                        {"key": "b", "operator": "In", "values": ["y", "x"]},
                        {"key": "c", "operator": "Exists"},
                        {"key": "d", "operator": "DoesNotExist"},
                    ]
                },
                "template": merged(TEMPLATE, {"metadata": {"labels": {"b": "x", "c": "1"}}}),
            }
        },
    ),
    Row("StatefulSet", "that is up", {"spec": {"replicas": 2}}, {"replicas": 2, "readyReplicas": 1}),
    Row(
        "DaemonSet",
        "that is up",
        {},
        {
            "desiredNumberScheduled": 3,
            "currentNumberScheduled": 2,
            "numberReady": 1,
            "numberMisscheduled": 0,
            "numberAvailable": 1,
            "updatedNumberScheduled": 2,
        },
    ),
    Row("ReplicaSet", "that is up", {}, {"replicas": 1, "readyReplicas": 1}),
    Row("Job", "that is suspended", {"spec": {"suspend": True}}, {"conditions": [{"type": "Suspended", **_TRUE}]}),
    Row(
        "Job",
        "that has been done",
        {},
        {
            "startTime": LONG_AGO,
            "completionTime": "2020-01-01T00:05:05Z",
            "succeeded": 1,
            "conditions": [{"type": "SuccessCriteriaMet", **_TRUE}, {"type": "Complete", **_TRUE}],
        },
    ),
    Row("Job", "that is parallel", {"spec": {"parallelism": 3}}),
    Row("CronJob", "that ran", {"spec": {"timeZone": "Etc/UTC", "suspend": True}}, {"active": [{"name": "a"}]}),
    Row(
        "PersistentVolume",
        "that is bound",
        {
            "spec": {
                "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "s",
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            }
        },
        {"phase": "Bound"},
    ),
    Row(
        "PersistentVolumeClaim",
        "that is bound",
        {"spec": {"volumeName": "v", "storageClassName": "s"}},
        {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]},
    ),
    Row(
        "ResourceQuota",
        "that is used",
        {"spec": {"hard": {"configmaps": "50", "limits.cpu": "20"}}},
        {"hard": {"configmaps": "50", "limits.cpu": "20"}, "used": {"configmaps": "1", "limits.cpu": "0"}},
    ),
    Row("PodDisruptionBudget", "with a percentage", {"spec": {"minAvailable": None, "maxUnavailable": "30%"}}),
    Row(
        "RoleBinding",
        "of everybody",
        {
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"kind": "User", "name": "v"},
            ]
        },
    ),
    Row(
        "ControllerRevision",
        "of a set",
        {
            "metadata": {
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}]
            }
        },
    ),
    Row(
        "StorageClass",
        "that is the default",
        {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}},
    ),
    Row(
        "IngressClass",
        "that is the default",
        {
            "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"parameters": {"apiGroup": "a.b", "kind": "K", "name": "n"}},
        },
    ),
    Row(
        "Ingress",
        "with hosts",
        {"spec": {"rules": [{"host": f"h{n}.x"} for n in range(5)], "tls": [{"hosts": ["h0.x"]}], "ingressClassName": "c"}},
        {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"hostname": "a.b"}]}},
    ),
    Row(
        "CSIDriver",
        "with audiences",
        {"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]}},
    ),
    Row("NetworkPolicy", "of some pods", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}),
]
