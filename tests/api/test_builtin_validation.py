"""What built-in kinds refuse, on create and on update. Each case is a kind's plain object changed by a merge patch."""

from __future__ import annotations

from typing import Any

import pytest

from .definitions import Obj
from .harness import Pair
from .test_builtin_defaulting import WRITTEN_BY_A_CONTROLLER, named

CREATE: dict[str, list[Obj]] = {
    "configmap": [
        {"data": {"a b": "x"}},
        {"data": {"a": "1"}, "binaryData": {"a": "YQ=="}},
        {"data": {"": "x"}},
        {"binaryData": {"a": "!"}},
    ],
    "secret": [
        {"type": "kubernetes.io/tls"},
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30"}},
        {"data": {"../x": "YQ=="}},
        {"type": "kubernetes.io/basic-auth"},
    ],
    "headless service": [
        {"spec": {"ports": [{"port": 0}]}},
        {"spec": {"ports": [{"port": 80}, {"port": 81}]}},
        {"spec": {"type": "LoadBalancer"}},
        {"spec": {"clusterIP": "10.0.0.300"}},
        {"spec": {"sessionAffinity": "Maybe"}},
        {"spec": {"externalIPs": ["127.0.0.1"]}},
    ],
    "external name": [{"spec": {"externalName": ""}}, {"spec": {"externalName": "-x-"}}, {"spec": {"clusterIP": "10.96.0.9"}}],
    "endpoints": [
        {"subsets": [{}]},
        {"subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 80}]}]},
        {"subsets": [{"addresses": [{"ip": "x"}], "ports": [{"port": 70000, "protocol": "X"}]}]},
    ],
    "event": [{"involvedObject": {"namespace": "other"}}, {"type": "Loud"}, {"metadata": {"name": "A_B"}}],
    "new event": [
        {"reason": ""},
        {"action": None},
        {"eventTime": None},
        {"reportingController": "a b"},
        {"type": "Loud"},
        {"note": "x" * 1025},
    ],
    "limit range": [
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}},
        {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}},
        {"spec": {"limits": [{"type": "x y"}]}},
    ],
    "resource quota": [
        {"spec": {"hard": {"cpu": "-1"}}},
        {"spec": {"hard": {"nothing": "1"}}},
        {"spec": {"scopes": ["Some"]}},
        {"spec": {"hard": {"pods": "1500m"}}},
    ],
    "volume claim": [
        {"spec": {"accessModes": []}},
        {"spec": {"accessModes": ["Any"]}},
        {"spec": {"resources": {"requests": {"storage": "0"}}}},
        {"spec": {"volumeMode": "Odd"}},
        {"spec": {"storageClassName": "A_B"}},
    ],
    "volume": [
        {"spec": {"capacity": None}},
        {"spec": {"hostPath": None}},
        {"spec": {"nfs": {"server": "s", "path": "/"}}},
        {"spec": {"persistentVolumeReclaimPolicy": "Burn"}},
        {"spec": {"hostPath": {"path": "a/../b"}}},
    ],
    "node": [
        {"spec": {"podCIDR": "x"}},
        {"spec": {"taints": [{"key": "a", "effect": "Odd"}]}},
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
    ],
    "pod": [
        {"spec": {"containers": []}},
        {"spec": {"containers": [{"name": "A", "image": "x"}]}},
        {"spec": {"containers": [{"name": "a", "image": ""}, {"name": "a", "image": "x"}]}},
        {"spec": {"containers": [{"name": "a", "image": " x", "imagePullPolicy": "Maybe", "terminationMessagePolicy": "X"}]}},
        {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "x",
                        "ports": [
                            {"containerPort": 0},
                            {"containerPort": 80, "name": "TOO-LONG-A-NAME-FOR"},
                            {"containerPort": 80, "name": "a"},
                            {"containerPort": 81, "name": "a"},
                        ],
                    }
                ]
            }
        },
        {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "x",
                        "env": [
                            {"name": ""},
                            {"name": "=", "value": "1"},
                            {"name": "B", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nothing"}}},
                        ],
                    }
                ]
            }
        },
        {"spec": {"containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}},
        # One name each: the real server walks these maps in any order.
        {"spec": {"containers": [{"name": "a", "image": "x", "resources": {"requests": {"example.com/x": "1.5"}}}]}},
        {"spec": {"containers": [{"name": "a", "image": "x", "resources": {"limits": {"what": "1"}}}]}},
        {"spec": {"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "none", "mountPath": ""}]}]}},
        {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "x",
                        "livenessProbe": {"periodSeconds": -1},
                        "readinessProbe": {"httpGet": {"port": 0}, "exec": {"command": []}},
                    }
                ]
            }
        },
        {
            "spec": {
                "volumes": [
                    {"name": "v"},
                    {"name": "v", "emptyDir": {}},
                    {"name": "w", "emptyDir": {}, "hostPath": {"path": "/"}},
                ]
            }
        },
        {
            "spec": {
                "restartPolicy": "Sometimes",
                "dnsPolicy": "Odd",
                "terminationGracePeriodSeconds": -1,
                "activeDeadlineSeconds": 0,
            }
        },
        {
            "spec": {
                "nodeSelector": {"a b": "c"},
                "tolerations": [{"key": "a", "operator": "Odd"}, {"operator": "Exists", "value": "x"}],
            }
        },
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}},
        {"spec": {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Odd"}]}},
        {
            "spec": {
                "hostNetwork": True,
                "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 80, "hostPort": 81}]}],
            }
        },
        {"spec": {"securityContext": {"runAsUser": -1, "sysctls": [{"name": "a b", "value": "1"}]}}},
        {"spec": {"hostname": "A_B", "subdomain": "x.y", "schedulerName": "", "nodeName": "A_B"}},
        {"spec": {"initContainers": [{"name": "c", "image": "x", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]}},
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "x"}]}},
        {"spec": {"priorityClassName": "none-such"}},
        {"spec": {"serviceAccountName": "none-such"}},
        {"metadata": {"labels": {"a": "b c"}, "annotations": {"A B": "x"}}},
    ],
    "deployment": [
        {"spec": {"selector": None}},
        {"spec": {"selector": {"matchLabels": {"x": "y"}}}},
        {"spec": {"selector": {}}},
        {"spec": {"replicas": -1, "minReadySeconds": -1}},
        {"spec": {"strategy": {"type": "Odd"}}},
        {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}},
        {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}},
        {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "x%"}}}},
        {"spec": {"template": {"spec": {"restartPolicy": "Never"}}}},
        {"spec": {"progressDeadlineSeconds": 0}},
        {"spec": {"template": None}},
    ],
    "replica set": [
        {"spec": {"replicas": -1}},
        {"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}},
        {"spec": {"template": {"metadata": {"labels": None}}}},
    ],
    "stateful set": [
        {"spec": {"podManagementPolicy": "Odd"}},
        {"spec": {"updateStrategy": {"type": "Odd"}}},
        {"spec": {"updateStrategy": {"rollingUpdate": {"partition": -1}}}},
        {"spec": {"ordinals": {"start": -1}}},
        {"spec": {"serviceName": "A_B"}},
    ],
    "daemon set": [
        {"spec": {"updateStrategy": {"type": "Odd"}}},
        {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}},
        {"spec": {"template": {"spec": {"restartPolicy": "Never"}}}},
    ],
    "controller revision": [{"data": None}, {"revision": -1}],
    "cron job": [
        {"spec": {"schedule": "often"}},
        {"spec": {"schedule": ""}},
        {"spec": {"concurrencyPolicy": "Odd"}},
        {"spec": {"timeZone": "Mars/Base"}},
        {"spec": {"schedule": "TZ=UTC * * * * *"}},
        {"spec": {"jobTemplate": {"spec": {"parallelism": -1}}}},
        {"metadata": {"name": "x" * 53}},
    ],
    "lease": [
        {"spec": {"leaseDurationSeconds": 0}},
        {"spec": {"leaseTransitions": -1}},
        {"spec": {"holderIdentity": ""}},
        {"spec": {"renewTime": "soon"}},
        {"spec": {"renewTime": "2020-01-01T00:00:00Z"}},
        {"spec": {"renewTime": "2020-01-01T00:00:00.1234567Z"}},
    ],
    "disruption budget": [
        {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
        {"spec": {"minAvailable": -1}},
        {"spec": {"maxUnavailable": "101%"}},
        {"spec": {"unhealthyPodEvictionPolicy": "Odd"}},
        {"spec": {"selector": {"matchLabels": {"a b": "c"}}}},
    ],
    "endpoint slice": [
        {"addressType": "IPX"},
        {"addressType": None},
        {"endpoints": [{"addresses": []}]},
        {"endpoints": [{"addresses": ["x"], "hostname": "A_B"}]},
        {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]},
        {"ports": [{"port": 0, "protocol": "X"}]},
    ],
    "ingress": [
        {"spec": {"rules": None}},
        {"spec": {"rules": [{"host": "10.0.0.1"}]}},
        {"spec": {"rules": [{"host": "*.*.x"}]}},
        {"spec": {"defaultBackend": {"service": {"name": "s"}}}},
        {"spec": {"tls": [{"hosts": ["A_B"]}]}},
        {"spec": {"ingressClassName": "A_B"}},
        {"spec": {"rules": [{"http": {"paths": [{"path": "x", "pathType": "Exact", "backend": {}}]}}]}},
        {
            "spec": {
                "rules": [
                    {
                        "http": {
                            "paths": [{"path": "/", "backend": {"service": {"name": "s", "port": {"name": "p", "number": 1}}}}]
                        }
                    }
                ]
            }
        },
    ],
    "ingress class": [
        {"spec": {"controller": "A_B"}},
        {"spec": {"parameters": {"scope": "Odd"}}},
        {"spec": {"parameters": {"scope": "Namespace"}}},
    ],
    "network policy": [
        {"spec": {"policyTypes": ["Odd"]}},
        {"spec": {"ingress": [{"ports": [{"protocol": "X"}]}]}},
        {"spec": {"ingress": [{"from": [{}]}]}},
        {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}]}},
        {"spec": {"ingress": [{"ports": [{"port": 80, "endPort": 70}]}]}},
    ],
    "storage class": [
        {"provisioner": ""},
        {"provisioner": "A B"},
        {"reclaimPolicy": "Odd"},
        {"volumeBindingMode": "Odd"},
        {"parameters": {"": "x"}},
    ],
    "priority class": [{"value": 2000000001}, {"preemptionPolicy": "Odd"}, {"metadata": {"name": "system-x"}}],
    "role": [
        {"rules": [{"verbs": []}]},
        {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
        {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": []}]},
    ],
    "cluster role": [
        {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"], "apiGroups": [""]}]},
        {"aggregationRule": {"clusterRoleSelectors": []}},
    ],
    "role binding": [
        {"roleRef": {"name": ""}},
        {"roleRef": {"kind": "Odd"}},
        {"roleRef": {"apiGroup": "x"}},
        {"subjects": [{"kind": "ServiceAccount", "name": "A_B"}, {"kind": "User", "name": ""}, {"kind": "Odd", "name": "x"}]},
    ],
    "cluster role binding": [{"roleRef": {"kind": "Role"}}, {"subjects": [{"kind": "ServiceAccount", "name": "s"}]}],
    "validating webhooks": [
        {"webhooks": [{"name": "x"}]},
        {"webhooks": [{"name": "a.b.c", "sideEffects": "Some", "clientConfig": {}, "admissionReviewVersions": []}]},
    ],
    "mutating webhooks": [
        {
            "webhooks": [
                {
                    "name": "a.example.com",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": "http://x"},
                    "timeoutSeconds": 31,
                    "failurePolicy": "Odd",
                    "reinvocationPolicy": "Odd",
                    "matchPolicy": "Odd",
                }
            ]
        }
    ],
}

UPDATE: dict[str, list[Obj]] = {
    "configmap with bytes": [{"data": {"x": "y"}}, {"immutable": False}, {"metadata": {"labels": {"a": "b"}}}],
    "secret with text": [{"type": "Opaque"}],
    "headless service": [{"spec": {"clusterIP": "10.96.0.99"}}, {"spec": {"clusterIP": ""}}],
    "volume claim": [
        {"spec": {"accessModes": ["ReadWriteMany"]}},
        {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
        {"spec": {"storageClassName": "x"}},
    ],
    "volume": [{"spec": {"hostPath": {"path": "/y"}}}, {"spec": {"volumeMode": "Block"}}],
    "pod": [
        {"spec": {"nodeName": "m"}},
        {"spec": {"containers": [{"name": "c", "image": "example.com/c:2"}]}},
        {"spec": {"activeDeadlineSeconds": 5}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"terminationGracePeriodSeconds": 1}},
        {"metadata": {"name": "y"}},
        {"metadata": {"generateName": "y"}},
    ],
    "deployment": [
        {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
        {"spec": {"template": {"metadata": {"labels": {"app": "b"}}}}},
        {"spec": {"replicas": 5}},
    ],
    "replica set": [{"spec": {"selector": {"matchLabels": {"app": "b"}}}}],
    "stateful set": [
        {"spec": {"serviceName": "t"}},
        {"spec": {"podManagementPolicy": "Parallel"}},
        {"spec": {"volumeClaimTemplates": None}},
        {"spec": {"replicas": 3}},
    ],
    "daemon set": [
        {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
        {"spec": {"template": {"spec": {"hostNetwork": True}}}},
    ],
    "controller revision": [{"data": {"b": 1}}],
    "lease": [{"spec": {"holderIdentity": "i"}}, {"spec": {"leaseDurationSeconds": -1}}],
    "endpoint slice": [{"addressType": "IPv6"}, {"endpoints": None}],
    "ingress class": [{"spec": {"controller": "example.com/d"}}],
    "storage class": [
        {"provisioner": "example.com/q"},
        {"reclaimPolicy": "Retain"},
        {"parameters": {"a": "b"}},
        {"allowVolumeExpansion": True},
    ],
    "csi driver": [{"spec": {"attachRequired": False}}, {"spec": {"podInfoOnMount": True}}],
    "volume attachment": [{"spec": {"nodeName": "m"}}],
    "priority class": [{"value": 11}, {"globalDefault": True, "value": 10}, {"preemptionPolicy": "Never"}],
    "role binding": [{"roleRef": {"name": "edit"}}, {"subjects": None}],
    "limit range": [{"spec": {"limits": [{"type": "Container", "max": {"cpu": "3"}}]}}],
    "resource quota": [{"spec": {"scopes": ["BestEffort"]}}, {"spec": {"hard": {"cpu": "2"}}}],
    "service account": [{"automountServiceAccountToken": False}, {"secrets": [{"name": "s"}]}],
    "disruption budget": [{"spec": {"minAvailable": 2}}, {"spec": {"selector": {"matchLabels": {"app": "b"}}}}],
    "network policy": [{"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}],
}


def merged(base: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def cases(table: dict[str, list[Obj]]) -> list[Any]:
    return [
        pytest.param(kind, change, id=f"{kind}-{number}")
        for kind, changes in table.items()
        for number, change in enumerate(changes)
    ]


@pytest.mark.parametrize(("kind", "change"), cases(CREATE))
def test_create(pair: Pair, kind: str, change: Obj) -> None:
    path, body = named(pair, kind)
    pair.post(path + "?dryRun=All", merged(body, change))


@pytest.mark.parametrize("kind", UPDATE)
def test_update(pair: Pair, kind: str) -> None:
    path, body = named(pair, kind)
    pair.post(path, body)
    at = f"{path}/{body['metadata']['name']}"
    if kind in WRITTEN_BY_A_CONTROLLER:
        pair.eventually(at, lambda answer: WRITTEN_BY_A_CONTROLLER[kind] in answer.json.get("status", {}), compare=False)
    try:
        for change in UPDATE[kind]:
            pair.patch(at + "?dryRun=All", change)
    finally:
        pair.delete(at, compare=False)
