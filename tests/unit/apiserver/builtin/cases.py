"""Objects and changes to them whose treatment by a real kube-apiserver is on record in `rules.json`.

A case is a kind's plain object, changed by a JSON merge patch; with `update` it is first created as it is and then
changed. `tests/real/test_builtin_rules.py` asks the real server and can write the record anew.
"""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True)
class Kind:
    group: str
    version: str
    kind: str
    resource: str
    namespaced: bool
    base: Obj

    @property
    def path(self) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/default/{self.resource}" if self.namespaced else f"{root}/{self.resource}"


@dataclass(frozen=True)
class Case:
    kind: str
    label: str
    change: Obj
    update: bool = False
    subresource: str = ""

    @property
    def id(self) -> str:
        how = f"update {self.subresource}".strip() if self.update else "create"
        return f"{self.kind}: {how} {self.label}"


def merged(base: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


CONTAINER = {"name": "main", "image": "nginx"}
POD_SPEC = {"containers": [CONTAINER], "automountServiceAccountToken": False}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
SELECTOR = {"matchLabels": {"app": "a"}}


def _kind(group: str, kind: str, resource: str, namespaced: bool = True, **base: Any) -> Kind:
    api = f"{group}/v1" if group else "v1"
    return Kind(group, "v1", kind, resource, namespaced, {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, **base})


WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
}

KINDS: dict[str, Kind] = {
    each.kind if each.group != "events.k8s.io" else "NewEvent": each
    for each in (
        _kind("", "Namespace", "namespaces", False),
        _kind("", "Secret", "secrets", data={"a": b64("1")}),
        _kind("", "ConfigMap", "configmaps", data={"a": "1"}),
        _kind("", "ServiceAccount", "serviceaccounts"),
        _kind("", "Event", "events", involvedObject={"kind": "Pod", "name": "p", "namespace": "default"}, reason="R"),
        _kind("", "Node", "nodes", False),
        _kind("", "Pod", "pods", spec=POD_SPEC),
        _kind("", "Service", "services", spec={"ports": [{"port": 80}], "clusterIP": "10.96.7.7"}),
        _kind("", "Endpoints", "endpoints", subsets=[{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]),
        _kind(
            "",
            "PersistentVolume",
            "persistentvolumes",
            False,
            spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
        ),
        _kind(
            "",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        _kind("", "ResourceQuota", "resourcequotas", spec={"hard": {"pods": "2"}}),
        _kind("", "LimitRange", "limitranges", spec={"limits": [{"type": "Container", "max": {"cpu": "2"}}]}),
        _kind("", "ReplicationController", "replicationcontrollers", spec={"template": TEMPLATE}),
        _kind("", "PodTemplate", "podtemplates", template=TEMPLATE),
        _kind("apps", "Deployment", "deployments", spec={"selector": SELECTOR, "template": TEMPLATE}),
        _kind("apps", "ReplicaSet", "replicasets", spec={"selector": SELECTOR, "template": TEMPLATE}),
        _kind("apps", "StatefulSet", "statefulsets", spec={"selector": SELECTOR, "template": TEMPLATE, "serviceName": "s"}),
        _kind("apps", "DaemonSet", "daemonsets", spec={"selector": SELECTOR, "template": TEMPLATE}),
        _kind("apps", "ControllerRevision", "controllerrevisions", revision=1, data={"a": 1}),
        _kind("batch", "Job", "jobs", spec={"template": merged(TEMPLATE, {"spec": {"restartPolicy": "Never"}})}),
        _kind(
            "batch",
            "CronJob",
            "cronjobs",
            spec={
                "schedule": "*/5 * * * *",
                "jobTemplate": {"spec": {"template": merged(TEMPLATE, {"spec": {"restartPolicy": "Never"}})}},
            },
        ),
        _kind("coordination.k8s.io", "Lease", "leases", spec={"holderIdentity": "me"}),
        _kind(
            "rbac.authorization.k8s.io",
            "Role",
            "roles",
            rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        ),
        _kind(
            "rbac.authorization.k8s.io",
            "ClusterRole",
            "clusterroles",
            False,
            rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        ),
        _kind(
            "rbac.authorization.k8s.io",
            "RoleBinding",
            "rolebindings",
            roleRef={"kind": "Role", "name": "r"},
            subjects=[{"kind": "User", "name": "u"}],
        ),
        _kind(
            "rbac.authorization.k8s.io",
            "ClusterRoleBinding",
            "clusterrolebindings",
            False,
            roleRef={"kind": "ClusterRole", "name": "r"},
            subjects=[{"kind": "Group", "name": "g"}],
        ),
        _kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", spec={"selector": SELECTOR, "minAvailable": 1}),
        _kind(
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            addressType="IPv4",
            endpoints=[{"addresses": ["10.0.0.1"]}],
            ports=[{"port": 80}],
        ),
        _kind("storage.k8s.io", "StorageClass", "storageclasses", False, provisioner="example.com/p"),
        _kind("storage.k8s.io", "CSINode", "csinodes", False, spec={"drivers": [{"name": "d", "nodeID": "n"}]}),
        _kind("storage.k8s.io", "CSIDriver", "csidrivers", False, spec={}),
        _kind(
            "storage.k8s.io",
            "VolumeAttachment",
            "volumeattachments",
            False,
            spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}},
        ),
        _kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", False, value=5),
        _kind(
            "networking.k8s.io",
            "Ingress",
            "ingresses",
            spec={"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
        ),
        _kind("networking.k8s.io", "IngressClass", "ingressclasses", False, spec={"controller": "example.com/c"}),
        _kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", spec={"podSelector": {}}),
        _kind(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            False,
            webhooks=[WEBHOOK],
        ),
        _kind(
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            False,
            webhooks=[WEBHOOK],
        ),
        _kind(
            "events.k8s.io",
            "Event",
            "events",
            eventTime="2026-01-02T03:04:05.000006Z",
            reportingController="example.com/c",
            reportingInstance="i",
            action="a",
            reason="r",
            type="Normal",
            regarding={"kind": "Pod", "name": "p", "namespace": "default"},
        ),
    )
}


def _new(kind: str, label: str, change: Obj) -> Case:
    return Case(kind, label, change)


def _changed(kind: str, label: str, change: Obj, subresource: str = "") -> Case:
    return Case(kind, label, change, True, subresource)


def _pod(label: str, **spec: Any) -> Case:
    return _new("Pod", label, {"spec": spec})


def _container(label: str, **fields: Any) -> Case:
    return _pod(label, containers=[{**CONTAINER, **fields}])


def _owner(**fields: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", **fields}


CASES: list[Case] = [
    *(_new(kind, "as it is", {}) for kind in KINDS),
    # Metadata
    _new("ConfigMap", "with a bad name", {"metadata": {"name": "Bad_Name"}}),
    _new("ConfigMap", "with a long name", {"metadata": {"name": "a" * 254}}),
    _new("ConfigMap", "with a bad generateName", {"metadata": {"name": "ok", "generateName": "Bad-"}}),
    _new("ConfigMap", "with a bad label key", {"metadata": {"labels": {"a b": "c"}}}),
    _new("ConfigMap", "with a bad label value", {"metadata": {"labels": {"a": "-c"}}}),
    _new("ConfigMap", "with a long label value", {"metadata": {"labels": {"a": "c" * 64}}}),
    _new("ConfigMap", "with a long label prefix", {"metadata": {"labels": {"a" * 254 + "/b": "c"}}}),
    _new("ConfigMap", "with a bad annotation", {"metadata": {"annotations": {"a b": "c"}}}),
    _new(
        "ConfigMap",
        "with two controllers",
        {"metadata": {"ownerReferences": [_owner(controller=True), _owner(name="q", uid="v", controller=True)]}},
    ),
    _new("ConfigMap", "with an empty owner", {"metadata": {"ownerReferences": [{}]}}),
    _new("ConfigMap", "with an event as owner", {"metadata": {"ownerReferences": [_owner(kind="Event")]}}),
    _new("ConfigMap", "with a plain finalizer", {"metadata": {"finalizers": ["x"]}}),
    _new("ConfigMap", "with a bad finalizer", {"metadata": {"finalizers": ["a/b/c", "-"]}}),
    _new("ConfigMap", "with two gc finalizers", {"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}}),
    _changed("ConfigMap", "of a label to nonsense", {"metadata": {"labels": {"a": "b c"}}}),
    # Namespaces
    _new("Namespace", "with a dotted name", {"metadata": {"name": "a.b"}}),
    _new("Namespace", "with finalizers", {"spec": {"finalizers": ["example.com/f", "bad"]}}),
    _changed("Namespace", "of its finalizers", {"spec": {"finalizers": []}}),
    _changed("Namespace", "to terminating", {"status": {"phase": "Terminating"}}, "status"),
    # Secrets
    _new("Secret", "with stringData", {"stringData": {"b": "x", "a": "2"}}),
    _new("Secret", "with a bad key", {"data": {"a b": b64("x")}}),
    _new("Secret", "of type tls without keys", {"type": "kubernetes.io/tls"}),
    _new(
        "Secret", "of type tls with nonsense", {"type": "kubernetes.io/tls", "data": {"tls.crt": b64("x"), "tls.key": b64("y")}}
    ),
    _new("Secret", "of type basic-auth", {"type": "kubernetes.io/basic-auth"}),
    _new("Secret", "of type ssh-auth", {"type": "kubernetes.io/ssh-auth"}),
    _new("Secret", "of type dockercfg", {"type": "kubernetes.io/dockercfg"}),
    _new(
        "Secret",
        "of type dockerconfigjson with nonsense",
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": b64("nonsense")}},
    ),
    _new("Secret", "of type service-account-token", {"type": "kubernetes.io/service-account-token"}),
    _new("Secret", "that is too large", {"data": {"a": b64("x" * (1024 * 1024 + 1))}}),
    _changed("Secret", "of its type", {"type": "other"}),
    _new("ConfigMap", "with a key twice", {"binaryData": {"a": b64("x")}}),
    _new("ConfigMap", "with dots for a key", {"data": {"..": "x", "a": None}}),
    _new("ConfigMap", "that is too large", {"data": {"a": "x" * (1024 * 1024 + 1)}}),
    # Events and nodes
    _new("Event", "of another namespace", {"involvedObject": {"namespace": "other"}}),
    _new("Event", "with a time but nothing else", {"eventTime": "2026-01-02T03:04:05.000006Z"}),
    _new(
        "NewEvent",
        "without anything",
        {
            "eventTime": None,
            "type": None,
            "action": None,
            "reason": None,
            "reportingController": None,
        },
    ),
    _changed("NewEvent", "of its reason", {"reason": "other", "regarding": {"name": "q"}}),
    _new("Node", "with bad taints", {"spec": {"taints": [{"key": "a b", "effect": "x"}, {"key": "a", "value": "-"}]}}),
    _new("Node", "with the same taint twice", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}] * 2}}),
    _new("Node", "with pod ranges", {"spec": {"podCIDR": "10.0.0.0/24"}}),
    _new("Node", "with bad pod ranges", {"spec": {"podCIDRs": ["10.0.0.1/24", "x"]}}),
    _new("Node", "with capacity", {"status": {"capacity": {"cpu": "2", "pods": "1.5"}}}),
    _changed("Node", "of its provider id", {"spec": {"providerID": "x"}}),
    # Pods
    _pod("without containers", containers=[]),
    _container("with a bad name", name="A"),
    _container("without a name and image", name="", image=""),
    _container("with a padded image", image=" nginx "),
    _container("with a tag", image="nginx:1.2"),
    _container("with a digest", image="nginx@sha256:" + "a" * 64),
    _container("with ports", ports=[{"containerPort": 80}, {"containerPort": 70000, "name": "Bad_Name-Too-Long"}]),
    _container("with the same host port twice", ports=[{"containerPort": 80, "hostPort": 80}] * 2),
    _container(
        "with the same port name twice",
        ports=[{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81, "protocol": "X"}],
    ),
    _container(
        "with bad variables",
        env=[
            {"name": "a=b", "value": "x"},
            {"name": ""},
            {"name": "c", "valueFrom": {}},
            {"name": "d", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "e", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}},
            {"name": "f", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}},
            {"name": "g", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}},
            {"name": "h", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "5"}}},
            {"name": "i", "valueFrom": {"secretKeyRef": {"name": "A", "key": ""}}},
        ],
    ),
    _container("with bad envFrom", envFrom=[{}, {"prefix": "a=", "configMapRef": {"name": ""}}]),
    _container("with the same variable twice", env=[{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]),
    _container(
        "with bad mounts",
        volumeMounts=[
            {"name": "no", "mountPath": "/a"},
            {"name": "", "mountPath": ""},
            {"name": "no", "mountPath": "/a", "subPath": "../x"},
        ],
    ),
    _container(
        "with probes",
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"tcpSocket": {"port": "http"}},
        startupProbe={"grpc": {"port": 5}},
        lifecycle={"preStop": {"sleep": {"seconds": 5}}},
    ),
    _container(
        "with bad probes",
        livenessProbe={"successThreshold": 2},
        readinessProbe={"exec": {}, "tcpSocket": {"port": 0}, "terminationGracePeriodSeconds": 0, "periodSeconds": -1},
        startupProbe={"httpGet": {"port": "A", "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": "c"}]}},
        lifecycle={"preStop": {"sleep": {"seconds": 50}}, "postStart": {}},
    ),
    _container("with limits only", resources={"limits": {"cpu": "500m", "memory": "1Gi"}}),
    _container("with requests above limits", resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
    _container("with bad resources", resources={"limits": {"nope": "1"}}),
    _container("with a negative request", resources={"requests": {"memory": "-1"}}),
    _container("with a fractional extended resource", resources={"limits": {"example.com/gpu": "1.5"}}),
    _container("with huge pages alone", resources={"limits": {"hugepages-2Mi": "2Mi"}}),
    _container("with fractional memory", resources={"requests": {"memory": "100m"}}),
    _container("with a bad pull policy", imagePullPolicy="Sometimes"),
    _container("with bad ids", securityContext={"runAsUser": -1, "procMount": "X", "seccompProfile": {"type": "X"}}),
    _container(
        "that may and may not escalate",
        securityContext={"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}},
    ),
    _pod(
        "with volumes",
        volumes=[
            {"name": "a"},
            {"name": "b", "configMap": {"name": "c"}},
            {"name": "c", "secret": {"secretName": "s"}},
            {"name": "d", "hostPath": {"path": "/x"}},
            {"name": "e", "emptyDir": {"medium": "Memory"}},
            {"name": "f", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
            {"name": "g", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ],
    ),
    _pod(
        "with bad volumes",
        volumes=[
            {"name": "A", "emptyDir": {}, "hostPath": {"path": "/"}},
            {"name": "a", "configMap": {"name": ""}},
            {"name": "b", "hostPath": {"path": "/../x", "type": "No"}},
            {"name": "b2", "secret": {"secretName": "s", "defaultMode": 1000, "items": [{"key": "", "path": "/x"}]}},
            {"name": "c", "nfs": {"server": "", "path": "x"}},
            {"name": "d", "emptyDir": {}},
            {"name": "d", "emptyDir": {}},
        ],
    ),
    _pod("with bad policies", restartPolicy="X", dnsPolicy="Y"),
    _pod("with dnsPolicy None", dnsPolicy="None"),
    _pod("with bad dns", dnsConfig={"nameservers": ["x", "1.1.1.1", "2.2.2.2", "3.3.3.3"], "searches": ["A"], "options": [{}]}),
    _pod("with bad names", nodeName="A", serviceAccountName="default", hostname="a.b", subdomain="B", priorityClassName=""),
    _pod("with a bad node selector", nodeSelector={"a b": "c d"}),
    _pod("with an old node selector", nodeSelector={"beta.kubernetes.io/os": "linux"}),
    _pod(
        "with bad tolerations",
        tolerations=[
            {"operator": "Equal"},
            {"key": "a", "operator": "Exists", "value": "x"},
            {"key": "a", "tolerationSeconds": 5},
            {"key": "a", "operator": "X"},
            {"key": "a", "effect": "X"},
            {"key": "b", "value": "-"},
        ],
    ),
    _pod(
        "with bad affinity",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "X"}],
                            "matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}],
            },
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]},
        },
    ),
    _pod(
        "with bad spreading",
        topologySpreadConstraints=[
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"},
            {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
            {
                "maxSkew": 1,
                "topologyKey": "a",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"a": "-"}},
            },
        ],
    ),
    _pod(
        "with bad init containers",
        initContainers=[
            {"name": "main", "image": "x"},
            {"name": "b", "image": "x", "livenessProbe": {"tcpSocket": {"port": 1}}},
            {"name": "c", "image": "x", "restartPolicy": "X"},
        ],
    ),
    _pod("with a sidecar", initContainers=[{"name": "b", "image": "x", "restartPolicy": "Always"}]),
    _pod("with ephemeral containers", ephemeralContainers=[{"name": "e", "image": "x"}]),
    _pod("on the host network", hostNetwork=True, containers=[{**CONTAINER, "ports": [{"containerPort": 80}]}]),
    _pod("with a deadline of zero", activeDeadlineSeconds=0),
    _pod("with a negative grace", terminationGracePeriodSeconds=-5),
    _pod("with scheduling gates", schedulingGates=[{"name": "a"}, {"name": "a"}, {"name": "b c"}]),
    _pod("that is gated", schedulingGates=[{"name": "example.com/a"}]),
    _pod("with host aliases", hostAliases=[{"ip": "x", "hostnames": ["A"]}, {"ip": "010.0.0.1"}]),
    _pod("with an operating system", os={"name": "plan9"}),
    _new("Pod", "with a dotted name", {"metadata": {"name": "a.b"}}),
    _new("Pod", "with a bad deletion cost", {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}}),
    _changed("Pod", "of its image", {"spec": {"containers": [{**CONTAINER, "image": "other"}]}}),
    _changed("Pod", "of its containers", {"spec": {"containers": [CONTAINER, {"name": "b", "image": "c"}]}}),
    _changed("Pod", "of its deadline", {"spec": {"activeDeadlineSeconds": 5}}),
    _changed("Pod", "of its annotations", {"metadata": {"annotations": {"a": "b"}}}),
    _changed(
        "Pod", "of its phase", {"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}}, "status"
    ),
    _changed(
        "Pod",
        "to nonsense",
        {"status": {"qosClass": "Guaranteed", "nominatedNodeName": "A", "conditions": [{"type": "a b", "status": "True"}]}},
        "status",
    ),
    # Services
    _new("Service", "without ports", {"spec": {"ports": []}}),
    _new("Service", "without a name for its ports", {"spec": {"ports": [{"port": 80}, {"port": 81}]}}),
    _new(
        "Service",
        "with bad ports",
        {
            "spec": {
                "ports": [
                    {"name": "a", "port": 0, "targetPort": "A_"},
                    {"name": "a", "port": 80, "protocol": "X", "appProtocol": "a b"},
                    {"name": "c", "port": 90, "nodePort": 30000},
                    {"name": "d", "port": 90},
                ]
            }
        },
    ),
    _new("Service", "of a bad type", {"spec": {"type": "X", "sessionAffinity": "Y"}}),
    _new("Service", "that is headless", {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
    _new("Service", "that is an external name", {"spec": {"type": "ExternalName", "clusterIP": None, "externalName": "a.b"}}),
    _new("Service", "that is an external name without one", {"spec": {"type": "ExternalName", "clusterIP": None}}),
    _new("Service", "with a node port", {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}}),
    _new("Service", "with an address out of range", {"spec": {"clusterIP": "10.0.0.1"}}),
    _new("Service", "with a bad address", {"spec": {"clusterIP": "nope"}}),
    _new("Service", "with client affinity", {"spec": {"sessionAffinity": "ClientIP"}}),
    _new(
        "Service",
        "with a bad timeout",
        {"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}},
    ),
    _new("Service", "with external addresses", {"spec": {"externalIPs": ["127.0.0.1", "1.2.3.4", "x"]}}),
    _new(
        "Service",
        "with policies it can't have",
        {
            "spec": {
                "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30001,
                "loadBalancerClass": "a",
                "loadBalancerSourceRanges": ["1.2.3.4/33"],
                "internalTrafficPolicy": "X",
                "trafficDistribution": "Y",
            }
        },
    ),
    _new("Service", "with a name that starts with a digit", {"metadata": {"name": "1a"}}),
    _changed("Service", "of its address", {"spec": {"clusterIP": "10.96.7.8", "clusterIPs": ["10.96.7.8"]}}),
    _changed("Service", "of its ports", {"spec": {"ports": [{"port": 81}]}}),
    _new(
        "Endpoints",
        "with bad subsets",
        {
            "subsets": [
                {},
                {
                    "addresses": [{"ip": "127.0.0.1", "hostname": "A"}, {"ip": "x"}],
                    "ports": [{"port": 0}, {"port": 1, "protocol": "X"}],
                },
            ]
        },
    ),
    # Volumes, quotas
    _new("PersistentVolume", "without anything", {"spec": {"capacity": None, "accessModes": None, "hostPath": None}}),
    _new(
        "PersistentVolume",
        "with too much",
        {
            "spec": {
                "accessModes": ["X", "ReadWriteOncePod", "ReadWriteOnce"],
                "capacity": {"storage": "0"},
                "local": {"path": "/../x"},
                "persistentVolumeReclaimPolicy": "X",
                "volumeMode": "Y",
                "storageClassName": "A",
                "nfs": {"server": "a", "path": "/"},
            }
        },
    ),
    _new("PersistentVolumeClaim", "without anything", {"spec": {"accessModes": None, "resources": None}}),
    _new(
        "PersistentVolumeClaim",
        "with bad fields",
        {
            "spec": {
                "resources": {"requests": {"storage": "-1"}},
                "storageClassName": "A",
                "volumeMode": "X",
                "dataSource": {"kind": "Y"},
            }
        },
    ),
    _new("ResourceQuota", "with bad resources", {"spec": {"hard": {"nope": "1"}}}),
    _new("ResourceQuota", "with a fraction", {"spec": {"hard": {"pods": "1.5"}}}),
    _new("ResourceQuota", "with bad scopes", {"spec": {"scopes": ["X", "BestEffort", "NotBestEffort"]}}),
    _new("ResourceQuota", "with a lower limit than request", {"spec": {"hard": {"cpu": "2", "limits.cpu": "1"}}}),
    _new(
        "LimitRange",
        "with a wrong order",
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}},
    ),
    _new("LimitRange", "of a bad type", {"spec": {"limits": [{"type": "X"}, {"type": "Pod", "default": {"cpu": "1"}}]}}),
    _new("ReplicationController", "without a template", {"spec": {"template": None}}),
    _new("ReplicationController", "with another selector", {"spec": {"selector": {"app": "b"}, "replicas": -1}}),
    # Workloads
    _new("Deployment", "without a selector", {"spec": {"selector": None}}),
    _new("Deployment", "with an empty selector", {"spec": {"selector": {"matchLabels": None}}}),
    _new("Deployment", "with another selector", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
    _new("Deployment", "without containers", {"spec": {"template": {"spec": {"containers": []}}}}),
    _new("Deployment", "with a bad strategy", {"spec": {"strategy": {"type": "X"}}}),
    _new("Deployment", "that recreates but rolls", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}}),
    _new("Deployment", "that rolls badly", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}}),
    _new(
        "Deployment", "that rolls worse", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": "101%"}}}}
    ),
    _new("Deployment", "with bad numbers", {"spec": {"replicas": -1, "minReadySeconds": 700, "revisionHistoryLimit": -1}}),
    _new(
        "Deployment",
        "that does not restart",
        {"spec": {"template": {"spec": {"restartPolicy": "Never", "activeDeadlineSeconds": 5}}}},
    ),
    _changed(
        "Deployment",
        "of its selector",
        {"spec": {"selector": {"matchLabels": {"app": "b"}}, "template": {"metadata": {"labels": {"app": "b"}}}}},
    ),
    _changed("Deployment", "of its annotations", {"metadata": {"annotations": {"a": "b"}}}),
    _changed("Deployment", "of its replicas", {"spec": {"replicas": 3}}),
    _changed("Deployment", "to bad numbers", {"status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}}, "status"),
    _new(
        "StatefulSet",
        "with bad policies",
        {
            "spec": {
                "podManagementPolicy": "X",
                "updateStrategy": {"type": "Y"},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Z"},
                "serviceName": "A",
            }
        },
    ),
    _new(
        "StatefulSet",
        "with claims",
        {
            "spec": {
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                ]
            }
        },
    ),
    _new("StatefulSet", "with bad claims", {"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}}),
    _new("StatefulSet", "with a dotted name", {"metadata": {"name": "a.b"}}),
    _changed("StatefulSet", "of its service", {"spec": {"serviceName": "t"}}),
    _new("DaemonSet", "that rolls badly", {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}),
    _new("DaemonSet", "that can't roll", {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}}),
    _changed("DaemonSet", "of its template", {"spec": {"template": {"metadata": {"labels": {"b": "c"}}}}}),
    _new("ReplicaSet", "without a selector", {"spec": {"selector": None}}),
    _new("ControllerRevision", "without data", {"data": None}),
    _new("Job", "that restarts", {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}),
    _new("Job", "with bad numbers", {"spec": {"parallelism": -1, "completions": -1, "backoffLimit": -1, "maxFailedIndexes": 1}}),
    _new(
        "Job",
        "with a bad failure policy",
        {
            "spec": {
                "podFailurePolicy": {
                    "rules": [
                        {"action": "X"},
                        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0, 2, 1], "containerName": "no"}},
                    ]
                }
            }
        },
    ),
    _new("Job", "with its own selector", {"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
    _changed("Job", "of its completions", {"spec": {"completions": 5}}),
    _changed("Job", "of its parallelism", {"spec": {"parallelism": 5}}),
    _new("CronJob", "with a bad schedule", {"spec": {"schedule": "* * *"}}),
    _new("CronJob", "with a bad minute", {"spec": {"schedule": "61 * * * *"}}),
    _new("CronJob", "with a word for a minute", {"spec": {"schedule": "x * * * *"}}),
    _new("CronJob", "with a zone in the schedule", {"spec": {"schedule": "TZ=UTC * * * * *"}}),
    _new("CronJob", "with a bad zone", {"spec": {"timeZone": "Nowhere/Land", "concurrencyPolicy": "X"}}),
    _new("CronJob", "with a long name", {"metadata": {"name": "a" * 53}}),
    # The rest
    _new("Lease", "with bad numbers", {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
    _new("Role", "with bad rules", {"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/"], "resources": ["x"]}]}),
    _new("ClusterRole", "with an empty aggregation", {"aggregationRule": {}}),
    _new("ClusterRole", "with a slash in its name", {"metadata": {"name": "a:b"}}),
    _new(
        "RoleBinding",
        "with bad subjects",
        {
            "roleRef": {"kind": "X", "name": ""},
            "subjects": [
                {"kind": "ServiceAccount", "name": ""},
                {"kind": "User", "name": "u", "apiGroup": "x"},
                {"kind": "Y", "name": "z"},
            ],
        },
    ),
    _changed("RoleBinding", "of its role", {"roleRef": {"name": "other"}}),
    _new("PodDisruptionBudget", "with both numbers", {"spec": {"maxUnavailable": "101%", "minAvailable": "x"}}),
    _new("PodDisruptionBudget", "with a bad policy", {"spec": {"unhealthyPodEvictionPolicy": "X", "minAvailable": -1}}),
    _new(
        "EndpointSlice",
        "with bad endpoints",
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": []}, {"addresses": ["x", "::1", "127.0.0.1"], "nodeName": "A", "hostname": "B"}],
            "ports": [{"name": "A"}, {"name": "", "protocol": "X"}],
        },
    ),
    _new("EndpointSlice", "of a bad type", {"addressType": "X"}),
    _new("StorageClass", "with bad fields", {"provisioner": "", "reclaimPolicy": "X", "volumeBindingMode": "Y"}),
    _changed("StorageClass", "of its provisioner", {"provisioner": "other", "parameters": {"a": "b"}}),
    _new(
        "CSINode",
        "with bad drivers",
        {"spec": {"drivers": [{"name": "", "nodeID": ""}, {"name": "d", "nodeID": "n"}, {"name": "d", "nodeID": "n"}]}},
    ),
    _new("CSIDriver", "with bad modes", {"spec": {"fsGroupPolicy": "X", "volumeLifecycleModes": ["Y"]}}),
    _new(
        "VolumeAttachment",
        "without anything",
        {"spec": {"attacher": "", "nodeName": "", "source": {"persistentVolumeName": None}}},
    ),
    _new("PriorityClass", "with a high value", {"value": 1000000001}),
    _new("PriorityClass", "with a reserved name", {"metadata": {"name": "system-x"}}),
    _changed("PriorityClass", "of its value", {"value": 6}),
    _new("Ingress", "without anything", {"spec": {"defaultBackend": None}}),
    _new(
        "Ingress",
        "with bad rules",
        {
            "spec": {
                "rules": [
                    {"host": "1.2.3.4"},
                    {"host": "*.a_b", "http": {"paths": []}},
                    {
                        "host": "A",
                        "http": {
                            "paths": [
                                {"path": "x", "pathType": "Exact", "backend": {}},
                                {
                                    "path": "/a//b",
                                    "pathType": "X",
                                    "backend": {"service": {"name": "S", "port": {"name": "a", "number": 1}}},
                                },
                                {"backend": {}},
                            ]
                        },
                    },
                ],
                "tls": [{"hosts": ["*", "A"], "secretName": "B"}],
                "ingressClassName": "C",
            }
        },
    ),
    _new(
        "IngressClass", "with bad fields", {"spec": {"controller": "x", "parameters": {"kind": "", "name": "a/b", "scope": "X"}}}
    ),
    _new(
        "NetworkPolicy",
        "with bad peers",
        {
            "spec": {
                "policyTypes": ["X"],
                "ingress": [
                    {
                        "from": [
                            {},
                            {"ipBlock": {"cidr": "x"}},
                            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8", "10.0.0.0/8"]}, "podSelector": {}},
                        ],
                        "ports": [
                            {"protocol": "X", "port": 0},
                            {"port": "a", "endPort": 5},
                            {"endPort": 5},
                            {"port": 9, "endPort": 5},
                        ],
                    }
                ],
            }
        },
    ),
    _new("ValidatingWebhookConfiguration", "with a bad hook", {"webhooks": [{"name": "short"}]}),
    _new(
        "ValidatingWebhookConfiguration",
        "with bad fields",
        {
            "webhooks": [
                merged(
                    WEBHOOK,
                    {
                        "clientConfig": {"url": "http://u:p@/x?q#f"},
                        "failurePolicy": "X",
                        "matchPolicy": "Y",
                        "timeoutSeconds": 31,
                        "sideEffects": "Some",
                        "admissionReviewVersions": ["v2", "v2", "A"],
                        "matchConditions": [{"name": "a b", "expression": " "}, {"name": "", "expression": "true"}],
                        "rules": [
                            {
                                "operations": ["*", "X"],
                                "apiGroups": [],
                                "apiVersions": ["", "*"],
                                "resources": ["a/*", "a/b", "*", "c", ""],
                                "scope": "Z",
                            }
                        ],
                    },
                )
            ]
        },
    ),
    _new(
        "MutatingWebhookConfiguration",
        "with a bad service",
        {
            "webhooks": [
                merged(
                    WEBHOOK,
                    {
                        "clientConfig": {"url": None, "service": {"name": "", "namespace": "n", "path": "a//B", "port": 0}},
                        "reinvocationPolicy": "X",
                    },
                )
            ]
            * 2
        },
    ),
    # Second round: status, updates and rarer fields
    _changed(
        "ReplicaSet", "to bad numbers", {"status": {"replicas": 1, "fullyLabeledReplicas": 2, "observedGeneration": -1}}, "status"
    ),
    _changed("StatefulSet", "to bad numbers", {"status": {"replicas": 1, "readyReplicas": 2, "collisionCount": -1}}, "status"),
    _changed("DaemonSet", "to bad numbers", {"status": {"numberReady": -1}}, "status"),
    _changed("ReplicationController", "to bad numbers", {"status": {"replicas": 1, "availableReplicas": 2}}, "status"),
    _changed("Job", "to done without conditions", {"status": {"completionTime": "2026-01-01T00:00:00Z"}}, "status"),
    _changed(
        "Job", "to failed at once", {"status": {"conditions": [{"type": "Failed", "status": "True"}], "active": 1}}, "status"
    ),
    _changed("Job", "to more ready than active", {"status": {"ready": 2, "active": 1, "failed": -1}}, "status"),
    _changed("Job", "of its backoff", {"spec": {"backoffLimit": 2, "completionMode": "Indexed"}}),
    _changed(
        "PodDisruptionBudget", "to bad numbers", {"status": {"currentHealthy": -1, "conditions": [{"type": "a b"}]}}, "status"
    ),
    _changed("PersistentVolumeClaim", "of its modes", {"spec": {"accessModes": ["ReadOnlyMany"]}}),
    _changed("PersistentVolumeClaim", "to a smaller size", {"spec": {"resources": {"requests": {"storage": "1Mi"}}}}),
    _changed("PersistentVolumeClaim", "to bound", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}, "status"),
    _changed("PersistentVolume", "of its labels", {"metadata": {"labels": {"a": "b"}}}),
    _changed("PersistentVolume", "of its capacity", {"spec": {"capacity": {"storage": "2Gi"}}}),
    _changed("ResourceQuota", "of its scopes", {"spec": {"scopes": ["BestEffort"]}}),
    _changed("ResourceQuota", "of its use", {"status": {"hard": {"pods": "2"}, "used": {"pods": "1"}}}, "status"),
    _changed("Node", "of its status", {"status": {"addresses": [{"type": "InternalIP", "address": "a"}] * 2}}, "status"),
    _changed("Node", "of its spec through status", {"spec": {"unschedulable": True}, "status": {"phase": "x"}}, "status"),
    _changed("Node", "to another pod range", {"spec": {"podCIDR": "10.1.0.0/24"}}),
    _changed("Service", "to an external name", {"spec": {"type": "ExternalName", "externalName": "a.b"}}),
    _changed("Service", "to headless", {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
    _changed("Service", "of its status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}, "status"),
    _changed("Secret", "of its data", {"data": {"b": b64("2")}}),
    _changed("Endpoints", "of its subsets", {"subsets": []}),
    _changed("EndpointSlice", "of its type", {"addressType": "IPv6", "endpoints": [{"addresses": ["2001:db8::1"]}]}),
    _changed("EndpointSlice", "of its endpoints", {"endpoints": [{"addresses": ["10.0.0.2"]}]}),
    _changed("Lease", "of its holder", {"spec": {"holderIdentity": "you"}}),
    _changed("Role", "of its rules", {"rules": [{"verbs": []}]}),
    _changed("Ingress", "of its backend", {"spec": {"defaultBackend": {"service": {"name": "t"}}}}),
    _changed(
        "Ingress", "of its status", {"status": {"loadBalancer": {"ingress": [{"ip": "x", "hostname": "1.2.3.4"}]}}}, "status"
    ),
    _changed("IngressClass", "of its controller", {"spec": {"controller": "example.com/d"}}),
    _changed("NetworkPolicy", "of its peers", {"spec": {"egress": [{"to": [{"podSelector": {}}]}]}}),
    _changed("CSIDriver", "of its modes", {"spec": {"volumeLifecycleModes": ["Ephemeral"], "attachRequired": False}}),
    _changed("CSIDriver", "of its tokens", {"spec": {"tokenRequests": [{"audience": "a"}]}}),
    _changed("ControllerRevision", "of its number", {"revision": 2}),
    _changed("CronJob", "of its schedule", {"spec": {"schedule": "@hourly", "suspend": True}}),
    _changed("LimitRange", "of its limits", {"spec": {"limits": [{"type": "Pod", "min": {"memory": "1Gi"}}]}}),
    _changed("ValidatingWebhookConfiguration", "of its effects", {"webhooks": [merged(WEBHOOK, {"sideEffects": "Some"})]}),
    _changed("ValidatingWebhookConfiguration", "of its timeout", {"webhooks": [merged(WEBHOOK, {"timeoutSeconds": 5})]}),
    _changed("Namespace", "of its labels", {"metadata": {"labels": {"kubernetes.io/metadata.name": "other", "a": "b"}}}),
    _changed("Event", "of its count", {"count": 5}),
    _changed("NewEvent", "of its series", {"series": {"count": 1}}),
    _changed("Pod", "of its tolerations", {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}),
    _changed("Pod", "of its restart policy", {"spec": {"restartPolicy": "Never"}}),
    _changed("Pod", "of its gates", {"spec": {"schedulingGates": [{"name": "a"}]}}),
    _changed("ServiceAccount", "of its secrets", {"secrets": [{"name": "a", "kind": "Secret"}]}),
    _changed("DaemonSet", "of its labels", {"metadata": {"labels": {"a": "b"}}}),
    _changed("StatefulSet", "of its replicas", {"spec": {"replicas": 2}}),
    _changed("ReplicaSet", "of its selector", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
    _changed("PodTemplate", "of its labels", {"template": {"metadata": {"labels": {"b": "c"}}}}),
    _changed("PriorityClass", "of its policy", {"preemptionPolicy": "Never"}),
    _changed("ClusterRoleBinding", "of its subjects", {"subjects": [{"kind": "ServiceAccount", "name": "a"}]}),
    _changed("VolumeAttachment", "to attached", {"status": {"attached": True}}, "status"),
    _container(
        "with overlapping ports", ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 80, "hostPort": 5, "name": "b"}]
    ),
    _container("with nonsense for a stop signal", lifecycle={"stopSignal": "X"}),
    _container("with resize policies", resizePolicy=[{"resourceName": "cpu", "restartPolicy": "X"}]),
    _container(
        "with restart rules",
        restartPolicy="Never",
        restartPolicyRules=[{"action": "X"}, {"action": "Restart", "exitCodes": {"operator": "X", "values": [1]}}],
    ),
    _container("with bidirectional mounts", volumeMounts=[{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
    _container("with claims", resources={"claims": [{"name": "a"}, {"name": "a"}, {"name": ""}]}),
    _pod(
        "with its own resources",
        resources={"limits": {"cpu": "1"}},
        containers=[
            {**CONTAINER, "resources": {"requests": {"cpu": "500m"}}},
            {"name": "b", "image": "c", "resources": {"requests": {"cpu": "1"}}},
        ],
    ),
    _pod(
        "with projected tokens",
        volumes=[
            {
                "name": "a",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t"}},
                        {"serviceAccountToken": {"path": "", "expirationSeconds": 5}},
                        {
                            "secret": {"name": ""},
                            "configMap": {"name": "b", "items": [{"key": "k", "path": "p"}, {"key": "k", "path": "p"}]},
                        },
                    ]
                },
            }
        ],
    ),
    _pod(
        "with rare volumes",
        volumes=[
            {"name": "a", "csi": {"driver": "A_"}},
            {"name": "b", "ephemeral": {}},
            {"name": "c", "image": {"reference": ""}},
            {"name": "d", "gitRepo": {"repository": "", "directory": "/x"}},
            {"name": "e", "fc": {}},
            {"name": "f", "iscsi": {"targetPortal": "", "iqn": "", "lun": 0}},
            {"name": "g", "azureDisk": {"diskName": "", "diskURI": ""}},
            {"name": "h", "persistentVolumeClaim": {"claimName": ""}},
            {"name": "i", "downwardAPI": {"items": [{"path": ""}]}},
        ],
    ),
    _pod(
        "with overlapping paths",
        volumes=[{"name": "a", "configMap": {"name": "c", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}}],
    ),
    _pod(
        "with security settings",
        securityContext={
            "fsGroup": -1,
            "sysctls": [{"name": "a b", "value": ""}, {"name": "net.x", "value": ""}, {"name": "net.x", "value": ""}],
            "fsGroupChangePolicy": "X",
            "seccompProfile": {"type": "Localhost"},
            "appArmorProfile": {"type": "X"},
            "supplementalGroupsPolicy": "Y",
            "supplementalGroups": [-1],
        },
        hostNetwork=True,
        hostPID=True,
        shareProcessNamespace=True,
    ),
    _pod("without users of the host", hostUsers=False, hostPID=True, hostIPC=True),
    _pod("with image pull secrets", imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
    _pod("with readiness gates", readinessGates=[{"conditionType": "a b"}]),
    _pod(
        "with label keys",
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "a",
                "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": ["x"],
                "labelSelector": {"matchLabels": {"a": "b"}},
            }
        ],
    ),
    _pod("on linux with windows options", os={"name": "linux"}, securityContext={"windowsOptions": {"runAsUserName": "x"}}),
    _new("Pod", "with mirror annotation", {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
    _new(
        "Pod",
        "with apparmor annotation",
        {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/no": "bad"}}},
    ),
    _new("Deployment", "with warnings", {"spec": {"template": {"spec": {"nodeSelector": {"beta.kubernetes.io/arch": "x"}}}}}),
    _new("Deployment", "with a dotted name", {"metadata": {"name": "a.b"}}),
    _new("Service", "with two families", {"spec": {"ipFamilyPolicy": "RequireDualStack"}}),
    _new("Service", "with the other family", {"spec": {"ipFamilies": ["IPv6"], "clusterIP": None}}),
    _new("Service", "that is headless without a selector", {"spec": {"clusterIP": "None"}}),
    _new(
        "Service",
        "with a load balancer",
        {
            "spec": {
                "type": "LoadBalancer",
                "ports": [{"port": 80, "nodePort": 30777}],
                "loadBalancerSourceRanges": [" 1.2.3.0/24 "],
            }
        },
    ),
    _new("StorageClass", "with topologies", {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a b"}, {"key": "a b"}]}]}),
    _new(
        "PodDisruptionBudget",
        "with a bad selector",
        {
            "spec": {
                "selector": {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "X", "values": ["-"]}]}
            }
        },
    ),
    _new("ClusterRoleBinding", "of a role", {"roleRef": {"kind": "Role", "apiGroup": "x"}}),
    _new(
        "ResourceQuota",
        "with a scope selector",
        {
            "spec": {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "X", "operator": "In"},
                        {"scopeName": "BestEffort", "operator": "In", "values": ["a"]},
                    ]
                }
            }
        },
    ),
    _new(
        "Job",
        "that is indexed without completions",
        {"spec": {"completionMode": "Indexed", "completions": None, "parallelism": 2}},
    ),
    _new("Job", "with a success policy", {"spec": {"successPolicy": {"rules": []}}}),
    _new("CronJob", "with its own selector", {"spec": {"jobTemplate": {"spec": {"selector": {}, "manualSelector": True}}}}),
    _new(
        "MutatingWebhookConfiguration",
        "with conditions",
        {
            "webhooks": [
                merged(
                    WEBHOOK,
                    {
                        "matchConditions": [
                            {"name": "a", "expression": "true"},
                            {"name": "a", "expression": "object.metadata.name == 'x'"},
                        ]
                    },
                )
            ]
        },
    ),
    _new("EndpointSlice", "of names", {"addressType": "FQDN", "endpoints": [{"addresses": ["a.b", "A", "x"]}]}),
    # Errors that end in a diff of Go structs
    _changed("Pod", "of its command", {"spec": {"containers": [{**CONTAINER, "command": ["a", "<b>"]}]}}),
    _changed("Pod", "of its node and host", {"spec": {"nodeName": "n", "hostNetwork": True, "hostAliases": [{"ip": "1.2.3.4"}]}}),
    _changed(
        "Pod",
        "of its volumes",
        {"spec": {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "b", "configMap": {"name": "c"}}]}},
    ),
    _changed(
        "Pod",
        "of its affinity",
        {
            "spec": {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "a", "labelSelector": {"matchLabels": {"a": "b"}}}
                        ]
                    }
                }
            }
        },
    ),
    _changed(
        "Pod",
        "of its resources",
        {
            "spec": {
                "containers": [
                    {
                        **CONTAINER,
                        "resources": {"limits": {"cpu": "1"}},
                        "ports": [{"containerPort": 80}],
                        "env": [{"name": "a", "value": "b"}],
                        "livenessProbe": {"tcpSocket": {"port": 80}},
                    }
                ]
            }
        },
    ),
    _changed(
        "PersistentVolumeClaim", "of its class", {"spec": {"storageClassName": "a", "selector": {"matchLabels": {"a": "b"}}}}
    ),
    _changed("PersistentVolume", "of its source", {"spec": {"hostPath": None, "nfs": {"server": "a", "path": "/"}}}),
    _changed("Job", "of its template", {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}),
    _new(
        "ValidatingWebhookConfiguration",
        "with conditions that do not compile",
        {
            "webhooks": [
                merged(
                    WEBHOOK,
                    {
                        "matchConditions": [
                            {"name": "a", "expression": "1 +"},
                            {"name": "b", "expression": "'x'"},
                            {"name": "c", "expression": "nope.x"},
                            {"name": "d", "expression": "request.nope"},
                        ]
                    },
                )
            ]
        },
    ),
]
