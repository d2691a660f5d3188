"""The plainest object of every kind, and what the server makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from .definitions import Obj
from .harness import Pair

TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}
ONCE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/c"}]},
}
SELECTOR = {"matchLabels": {"app": "a"}}
HOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "namespaceSelector": {"matchLabels": {"never": "matches"}},
}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
RESOURCES = {"requests": {"storage": "1Gi"}}


def made(group: str, resource: str, kind: str, cluster: bool = False, version: str = "v1", **body: Any) -> tuple[str, bool, Obj]:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path = f"{root}/{resource}" if cluster else f"{root}/namespaces/{{ns}}/{resource}"
    return path, cluster, {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, **body}


PLAIN: dict[str, tuple[str, bool, Obj]] = {
    "configmap": made("", "configmaps", "ConfigMap"),
    "configmap with bytes": made("", "configmaps", "ConfigMap", binaryData={"a": "YQ=="}, immutable=True),
    "secret": made("", "secrets", "Secret"),
    "secret with text": made(
        "", "secrets", "Secret", stringData={"a": "1"}, data={"a": "Mg==", "b": "Mw=="}, type="example.com/x"
    ),
    "service account": made("", "serviceaccounts", "ServiceAccount"),
    "headless service": made("", "services", "Service", spec={"clusterIP": "None", "ports": [{"port": 80}]}),
    "external name": made("", "services", "Service", spec={"type": "ExternalName", "externalName": "example.com"}),
    "endpoints": made(
        "", "endpoints", "Endpoints", subsets=[{"addresses": [{"ip": "10.1.2.3"}, {"ip": "10.1.2.1"}], "ports": [{"port": 80}]}]
    ),
    "event": made(
        "",
        "events",
        "Event",
        involvedObject={"kind": "Pod", "name": "p", "namespace": "{ns}"},
        reason="R",
        message="m",
        type="Normal",
    ),
    "new event": made(
        "events.k8s.io",
        "events",
        "Event",
        regarding={"kind": "Pod", "name": "p", "namespace": "{ns}"},
        reason="R",
        action="A",
        type="Normal",
        eventTime="2020-01-01T00:00:00.000000Z",
        reportingController="example.com/c",
        reportingInstance="i",
    ),
    "pod template": made("", "podtemplates", "PodTemplate", template=TEMPLATE),
    "replication controller": made("", "replicationcontrollers", "ReplicationController", spec={"template": TEMPLATE}),
    "limit range": made("", "limitranges", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "2"}}]}),
    "resource quota": made("", "resourcequotas", "ResourceQuota", spec={"hard": {"services": "2", "cpu": "1500m"}}),
    "volume claim": made(
        "", "persistentvolumeclaims", "PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"], "resources": RESOURCES}
    ),
    "volume": made(
        "",
        "persistentvolumes",
        "PersistentVolume",
        True,
        spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    ),
    "node": made("", "nodes", "Node", True),
    "pod": made(
        "",
        "pods",
        "Pod",
        spec={"containers": TEMPLATE["spec"]["containers"], "nodeName": "n", "automountServiceAccountToken": False},
    ),
    "pod with everything": made(
        "",
        "pods",
        "Pod",
        spec={
            "nodeName": "n",
            "automountServiceAccountToken": False,
            "initContainers": [{"name": "i", "image": "example.com/i", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "c",
                    "image": "example.com/c:latest",
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "readinessProbe": {"tcpSocket": {"port": 80}},
                    "startupProbe": {"grpc": {"port": 80}},
                    "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "s", "secret": {"secretName": "x"}},
                {"name": "m", "configMap": {"name": "x"}},
                {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {"name": "h", "hostPath": {"path": "/h"}},
                {"name": "i", "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            ],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR}
            ],
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "k", "labelSelector": SELECTOR}}
                    ]
                }
            },
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"fsGroup": 1},
            "priority": 0,
        },
    ),
    "deployment": made("apps", "deployments", "Deployment", spec={"selector": SELECTOR, "template": TEMPLATE}),
    "deployment that recreates": made(
        "apps", "deployments", "Deployment", spec={"selector": SELECTOR, "template": TEMPLATE, "strategy": {"type": "Recreate"}}
    ),
    "replica set": made("apps", "replicasets", "ReplicaSet", spec={"selector": SELECTOR, "template": TEMPLATE}),
    "stateful set": made(
        "apps",
        "statefulsets",
        "StatefulSet",
        spec={
            "selector": SELECTOR,
            "template": TEMPLATE,
            "serviceName": "s",
            "volumeClaimTemplates": [
                {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": RESOURCES}}
            ],
        },
    ),
    "daemon set": made("apps", "daemonsets", "DaemonSet", spec={"selector": SELECTOR, "template": TEMPLATE}),
    "controller revision": made("apps", "controllerrevisions", "ControllerRevision", revision=1, data={"a": [1, None]}),
    "cron job": made(
        "batch", "cronjobs", "CronJob", spec={"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": ONCE}}}
    ),
    "lease": made(
        "coordination.k8s.io", "leases", "Lease", spec={"holderIdentity": "h", "renewTime": "2020-01-01T00:00:00.000001Z"}
    ),
    "disruption budget": made("policy", "poddisruptionbudgets", "PodDisruptionBudget", spec={"selector": SELECTOR}),
    "endpoint slice": made(
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.1.2.3"]}],
        ports=[{"port": 80}],
    ),
    "ingress": made(
        "networking.k8s.io",
        "ingresses",
        "Ingress",
        spec={
            "rules": [
                {
                    "host": "a.example.com",
                    "http": {
                        "paths": [
                            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}
                        ]
                    },
                }
            ]
        },
    ),
    "ingress class": made(
        "networking.k8s.io",
        "ingressclasses",
        "IngressClass",
        True,
        spec={"controller": "example.com/c", "parameters": {"kind": "X", "name": "y"}},
    ),
    "network policy": made(
        "networking.k8s.io", "networkpolicies", "NetworkPolicy", spec={"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}
    ),
    "network policy with egress": made(
        "networking.k8s.io", "networkpolicies", "NetworkPolicy", spec={"podSelector": {}, "egress": [{}]}
    ),
    "storage class": made("storage.k8s.io", "storageclasses", "StorageClass", True, provisioner="example.com/p"),
    "csi driver": made("storage.k8s.io", "csidrivers", "CSIDriver", True, spec={}),
    "volume attachment": made(
        "storage.k8s.io",
        "volumeattachments",
        "VolumeAttachment",
        True,
        spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}},
    ),
    "priority class": made("scheduling.k8s.io", "priorityclasses", "PriorityClass", True, value=10),
    "role": made("rbac.authorization.k8s.io", "roles", "Role"),
    "cluster role": made(
        "rbac.authorization.k8s.io", "clusterroles", "ClusterRole", True, rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}]
    ),
    "role binding": made(
        "rbac.authorization.k8s.io",
        "rolebindings",
        "RoleBinding",
        roleRef={"kind": "ClusterRole", "name": "view"},
        subjects=[
            {"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
            {"kind": "Group", "name": "g"},
        ],
    ),
    "cluster role binding": made(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        "ClusterRoleBinding",
        True,
        roleRef={"kind": "ClusterRole", "name": "view"},
    ),
    "validating webhooks": made(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        True,
        webhooks=[{**HOOK, "rules": [RULE]}],
    ),
    "mutating webhooks": made(
        "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", True, webhooks=[HOOK]
    ),
    "webhook at a service": made(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        True,
        webhooks=[{**HOOK, "clientConfig": {"service": {"name": "s", "namespace": "n"}}}],
    ),
}


def named(pair: Pair, name: str) -> tuple[str, Obj]:
    path, cluster, body = PLAIN[name]
    own = f"{pair.ns}-x" if cluster else "x"
    return path, {**_filled(body, pair.ns), "metadata": {"name": own}}


def _filled(value: Any, ns: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(child, ns) for key, child in value.items()}
    return ns if value == "{ns}" else value


# A field of the status: its controller writes it as soon as it sees the object, and a test waits until that has happened.
WRITTEN_BY_A_CONTROLLER = {"disruption budget": "observedGeneration", "resource quota": "used"}


@pytest.mark.parametrize("name", PLAIN)
def test_defaults(pair: Pair, name: str) -> None:
    path, body = named(pair, name)
    made = pair.post(path, body)
    assert made.status == 201, made.json
    at = f"{path}/{body['metadata']['name']}"
    written = WRITTEN_BY_A_CONTROLLER.get(name)
    now = pair.eventually(at, lambda answer: written is None or written in answer.json.get("status", {}))
    # What was read can be written again, and that changes nothing.
    pair.put(at, lambda side: now[side].json)
    pair.delete(at, compare=False)
