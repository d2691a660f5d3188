"""Objects of Rancher's kinds, such as its own documents and programs make; :mod:`.rancher_refusals` has the bad ones."""

from __future__ import annotations

from typing import Any

from remuda import api
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.interface import Client
from remuda.kube.objects import GroupVersionResource, name_of, namespace_of

Obj = dict[str, Any]
GROUPS = (management.GROUP, provisioning.GROUP)
KINDS = {(kind.group, kind.resource): kind for kind in api.kinds(GROUPS)}


def obj(resource: GroupVersionResource, name: str, namespace: str = "", /, **fields: Any) -> Obj:
    kind = KINDS[resource.group, resource.resource]
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind.kind, "metadata": metadata, **fields}


# ---- clusters.provisioning.cattle.io

POOL: Obj = {
    "name": "cp",
    "quantity": 3,
    "etcdRole": True,
    "controlPlaneRole": True,
    "machineConfigRef": {"kind": "PodConfig", "name": "nc-demo-cp-x7k2p"},
    "machineOS": "linux",
}
_DRAIN: Obj = {
    "enabled": True,
    "force": False,
    "ignoreDaemonSets": None,
    "deleteEmptyDirData": True,
    "disableEviction": False,
    "gracePeriod": -1,
    "timeout": 120,
    "skipWaitForDeleteTimeoutSeconds": 0,
    "preDrainHooks": [{"annotation": "example.com/pre"}],
    "postDrainHooks": None,
}
_AFFINITY: Obj = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}}
        ],
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}, "namespaces": ["x"]}
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "matchLabelKeys": ["v"], "namespaceSelector": {}}}
        ],
    },
}
CUSTOMIZATION: Obj = {
    "appendTolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "overrideAffinity": _AFFINITY,
    "overrideResourceRequirements": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}},
    "schedulingCustomization": {
        "priorityClass": {"value": -1_000_000_000, "preemptionPolicy": "Never"},
        "podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "0"},
    },
}
_WEBHOOK: Obj = {
    "replicaCount": 2,
    "appendTolerations": [],
    "overrideAffinity": None,
    "overrideResourceRequirements": None,
    "podDisruptionBudget": {"maxUnavailable": "50%"},
}
# docs/reference/node-plan.md: what becomes the MachineDeployment demo-cp, and 50-rancher.yaml of an rke2 init node.
DEMO: Obj = {
    "kubernetesVersion": "v1.34.1+rke2r1",
    "rkeConfig": {
        "machineGlobalConfig": {"cni": "calico"},
        "etcd": {"snapshotRetention": 5, "snapshotScheduleCron": "0 */5 * * *"},
        "machinePools": [POOL],
    },
}
EVERYTHING: Obj = {
    "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "EMPTY", "value": None}],
    "cloudCredentialSecretName": "cattle-global-data:cc-x2k4p",
    "clusterAPIConfig": {"clusterName": "other"},
    "clusterAgentDeploymentCustomization": CUSTOMIZATION,
    "defaultClusterRoleForProjectMembers": "",
    "defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-privileged",
    "enableNetworkPolicy": False,
    "fleetAgentDeploymentCustomization": CUSTOMIZATION,
    "kubernetesVersion": "v1.34.1+k3s1",
    "localClusterAuthEndpoint": {"enabled": True, "fqdn": "demo.example.com:6443", "caCerts": "PEM"},
    "redeploySystemAgentGeneration": 2,
    "webhookDeploymentCustomization": _WEBHOOK,
    "rkeConfig": {
        "additionalManifest": "apiVersion: v1\nkind: Namespace\nmetadata: {name: extra}\n",
        "chartValues": {"rke2-calico": {"installation": {"calicoNetwork": {"mtu": 1400}}}},
        "dataDirectories": {"systemAgent": "/data/agent", "provisioning": "/data/capr", "k8sDistro": "/data/rke2"},
        "etcd": {
            "disableSnapshots": False,
            "snapshotRetention": 5,
            "snapshotScheduleCron": "0 */5 * * *",
            "s3": {
                "bucket": "snapshots",
                "cloudCredentialName": "cattle-global-data:cc-s3",
                "endpoint": "s3.example.com",
                "endpointCA": "/etc/ssl/my.crt",
                "folder": "demo",
                "region": "eu-1",
                "retention": 10,
                "skipSSLVerify": False,
            },
        },
        "etcdSnapshotCreate": {"generation": 1},
        "etcdSnapshotRestore": {"name": "demo-etcd-snapshot-1", "generation": 1, "restoreRKEConfig": "kubernetesVersion"},
        "infrastructureRef": {
            "apiVersion": "rke.cattle.io/v1",
            "kind": "RKECluster",
            "name": "demo",
            "namespace": "fleet-default",
        },
        "machineGlobalConfig": {"cni": "calico", "tls-san": ["a", "b"], "protect-kernel-defaults": False},
        "machinePoolDefaults": {"hostnameLengthLimit": 15},
        "machinePools": [
            POOL,
            {
                "name": "w",
                "autoscalingMinSize": 0,
                "autoscalingMaxSize": 4,
                "cloudCredentialSecretName": "cattle-global-data:cc-other",
                "controlPlaneRole": False,
                "displayName": "w",
                "drainBeforeDelete": True,
                "drainBeforeDeleteTimeout": "10m0s",
                "dynamicSchemaSpec": '{"resourceFields":{}}',
                "etcdRole": False,
                "hostnameLengthLimit": 63,
                "labels": {"tier": "w"},
                "machineConfigRef": {"apiVersion": "infrastructure.example.io/v1", "kind": "FooMachineTemplate", "name": "w"},
                "machineDeploymentAnnotations": {"a": "b"},
                "machineDeploymentLabels": {"c": "d"},
                "machineOS": "windows",
                "maxUnhealthy": "40%",
                "nodeStartupTimeout": "10m",
                "paused": True,
                "quantity": None,
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"},
                "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "unhealthyNodeTimeout": "5m",
                "unhealthyRange": "[1-3]",
                "userdata": {"inlineUserdata": "#cloud-config"},
                "workerRole": True,
            },
        ],
        "machineSelectorConfig": [
            {"config": {"profile": "cis", "kubelet-arg": ["a=b"]}},
            {"machineLabelSelector": {"matchLabels": {"cattle.io/os": "linux"}}, "config": {"selinux": True}},
        ],
        "machineSelectorFiles": [
            {
                "machineLabelSelector": None,
                "fileSources": [
                    {
                        "secret": {
                            "name": "audit",
                            "defaultPermissions": "0600",
                            "items": [{"key": "p", "path": "/etc/p.yaml", "dynamic": True, "permissions": "0644", "hash": "ab"}],
                        },
                        "configMap": {"name": ""},
                    }
                ],
            }
        ],
        "networking": {"stackPreference": "dual"},
        "provisionGeneration": 3,
        "registries": {
            "configs": {
                "r.example.com": {
                    "authConfigSecretName": "registry-auth",
                    "caBundle": "UEVN",
                    "insecureSkipVerify": False,
                    "tlsSecretName": None,
                }
            },
            "mirrors": {"docker.io": {"endpoint": ["https://r.example.com"], "rewrite": {"^rancher/(.*)": "m/$1"}}},
        },
        "rotateCertificates": {"generation": 1, "services": ["etcd"]},
        "rotateEncryptionKeys": {"generation": 1},
        "upgradeStrategy": {
            "controlPlaneConcurrency": "1",
            "controlPlaneDrainOptions": _DRAIN,
            "workerConcurrency": "10%",
            "workerDrainOptions": _DRAIN,
        },
    },
}
# A cluster that is there already, as a program in Go sends it.
IMPORTED: Obj = {"rkeConfig": None, "agentEnvVars": None, "kubernetesVersion": None, "localClusterAuthEndpoint": {}}
PROVISIONING_STATUS: Obj = {
    "agentDeployed": True,
    "clientSecretName": "demo-kubeconfig",
    "clusterName": "c-m-bcdfg245",
    "conditions": [
        {"type": "Created", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z"},
        {"type": "Reconciling", "status": "True", "reason": "Reconciling", "message": "waiting for probes: etcd"},
    ],
    "fleetWorkspaceName": "fleet-default",
    "observedGeneration": 1,
    "ready": True,
}

# ---- management.cattle.io

_CONDITION = {"type": "Connected", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z", "error": False}
_REF = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "namespace": "fleet-default", "name": "demo"}
_CLUSTER: Obj = {
    "spec": {
        "displayName": "demo",
        "description": "",
        "internal": False,
        "importedConfig": {},
        "fleetWorkspaceName": "fleet-default",
        "desiredAgentImage": "rancher/rancher-agent:head",
        "desiredAuthImage": "rancher/kube-api-auth:v0.2.4",
        "desiredAssetsImage": "",
        "agentImageOverride": "",
        "assetsImageOverride": "",
        "agentEnvVars": [{"name": "A", "value": "b"}],
        "enableNetworkPolicy": None,
        "localClusterAuthEndpoint": {"enabled": False},
        "clusterSecrets": {"privateRegistrySecret": "s", "privateRegistryURL": "r.example.com", "s3CredentialSecret": "t"},
        "clusterAgentDeploymentCustomization": CUSTOMIZATION,
        "fleetAgentDeploymentCustomization": CUSTOMIZATION,
        "webhookDeploymentCustomization": _WEBHOOK,
        "defaultPodSecurityAdmissionConfigurationTemplateName": "",
        "windowsPreferedCluster": False,
        "eksConfig": {"region": "eu-1"},
    },
    "status": {
        "conditions": [_CONDITION],
        "driver": "imported",
        "provider": "rke2",
        "apiEndpoint": "https://10.43.0.1:443",
        "serviceAccountTokenSecret": "cluster-serviceaccounttoken-x",
        "caCert": "UEVN",
        "agentImage": "rancher/rancher-agent:head",
        "authImage": "",
        "assetsImage": "",
        "agentFeatures": {"rke2": False},
        "appliedAgentEnvVars": None,
        "version": {"gitVersion": "v1.34.1+rke2r1", "major": "1", "minor": "34", "goVersion": "go1.25"},
        "nodeCount": 3,
        "readyReconciling": True,
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": 110},
        "allocatable": {"cpu": "3900m"},
        "requested": {"cpu": "1"},
        "limits": {},
        "info": {
            "machineProvider": "Pod",
            "kubernetesVersion": "v1.34.1+rke2r1",
            "nodeCount": 3,
            "arch": "amd64",
            "provisioningClusterRef": _REF,
        },
        "componentStatuses": [{"name": "etcd-0", "conditions": [{"type": "Healthy", "status": "True"}]}],
        "appliedSpec": {"displayName": "demo", "deep": [{"er": 1}]},
    },
}
_COMMAND = (
    "curl -fL https://s/system-agent-install.sh | sudo sh -s - --server https://s --label 'cattle.io/os=linux' --token {token}"
)
_REGISTRATION: Obj = {
    "spec": {"clusterName": "c-m-bcdfg245", "ttl": 43200, "gracePeriod": None},
    "status": {
        "token": "",
        "tokenSecretName": "crt-token-default-token",
        "expiresAt": "2026-02-01T00:00:00Z",
        "gracePeriodExpiresAt": "",
        "manifestUrl": "https://s/v3/import/{token}_c-m-bcdfg245.yaml",
        "command": "kubectl apply -f https://s/v3/import/{token}_c-m-bcdfg245.yaml",
        "insecureCommand": "curl --insecure -sfL https://s/v3/import/{token}_c-m-bcdfg245.yaml | kubectl apply -f -",
        "nodeCommand": _COMMAND,
        "insecureNodeCommand": _COMMAND,
        "windowsNodeCommand": _COMMAND,
        "insecureWindowsNodeCommand": _COMMAND,
    },
}
_NODE: Obj = {
    "spec": {
        "etcd": True,
        "controlPlane": True,
        "worker": True,
        "customConfig": None,
        "imported": True,
        "displayName": "n1",
        "requestedHostname": "n1",
        "internalNodeSpec": {"podCIDR": "10.42.0.0/24", "providerID": "rke2://n1"},
        "desiredNodeTaints": None,
        "desiredNodeUnschedulable": "drain",
        "nodeDrainInput": {"force": True, "gracePeriod": -1, "timeout": 120},
        "metadataUpdate": {"labels": {"add": {"a": "b"}, "delete": {"c": True}}, "annotations": {}},
    },
    "status": {
        "conditions": [{"type": "Registered", "status": "True", "reason": "", "message": "registered with kubernetes"}],
        "internalNodeStatus": {"nodeInfo": {"kubeletVersion": "v1.34.1"}, "addresses": [{"type": "Hostname", "address": "n1"}]},
        "nodeName": "n1",
        "nodeLabels": {"kubernetes.io/os": "linux"},
        "nodeAnnotations": {"a": "b"},
        "nodeTaints": [{"key": "k", "effect": "NoSchedule"}],
        "requested": {"cpu": "100m"},
        "limits": {"memory": "1Gi"},
        "dockerInfo": {"ServerVersion": "none"},
    },
}
_PRINCIPAL = "system://provisioning/fleet-default/demo"
_TOKEN: Obj = {
    "authProvider": "local",
    "current": False,
    "description": "",
    "enabled": None,
    "expired": False,
    "expiresAt": "",
    "groupPrincipals": [{"metadata": {"name": "g", "creationTimestamp": None}, "displayName": "g", "principalType": "group"}],
    "isDerived": True,
    "lastUsedAt": "2026-01-02T03:04:05Z",
    "activityLastSeenAt": None,
    "token": "$3:1:c2FsdA:aGFzaA",
    "ttl": 0,
    "userId": "u-b4qkhsnliz",
    "userPrincipal": {"metadata": {"name": _PRINCIPAL, "creationTimestamp": None}, "provider": "local", "principalType": "user"},
}
_RULE = {"apiGroups": ["management.cattle.io"], "resources": ["clusters"], "verbs": ["get", "list"], "resourceNames": ["c-m-x"]}
_ROLE_CONDITION = {
    "type": "ClusterRoleExists",
    "status": "True",
    "reason": "ClusterRoleExists",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
_GLOBAL_ROLE: Obj = {
    "displayName": "Autoscaler",
    "builtin": False,
    "newUserDefault": False,
    "rules": [_RULE, {"nonResourceURLs": ["/version"], "verbs": ["get"]}],
    "inheritedClusterRoles": ["cluster-owner"],
    "namespacedRules": {"fleet-default": [_RULE]},
    "inheritedFleetWorkspacePermissions": {"resourceRules": [_RULE], "workspaceVerbs": ["get"]},
}
_ROLE_TEMPLATE: Obj = {
    "displayName": "Cluster Owner",
    "builtin": True,
    "context": "cluster",
    "external": False,
    "hidden": False,
    "clusterCreatorDefault": True,
    "administrative": True,
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    "roleTemplateNames": ["cluster-member"],
}
_MEMBER: Obj = {"userName": "u-b4qkhsnliz", "clusterName": "c-m-bcdfg245", "roleTemplateName": "cluster-owner"}
ROLE_STATUS: Obj = {"summary": "Complete", "conditions": [_ROLE_CONDITION], "observedGeneration": 1}
BINDING_STATUS: Obj = {
    "summary": "Complete",
    "summaryLocal": "Complete",
    "summaryRemote": "Complete",
    "localConditions": [_ROLE_CONDITION],
    "remoteConditions": [_ROLE_CONDITION],
    "observedGenerationLocal": 1,
    "observedGenerationRemote": 1,
    "lastUpdateTime": "2026-01-02T03:04:05Z",
}
_NODE_DRIVER: Obj = {
    "spec": {
        "active": False,
        "addCloudCredential": False,
        "builtin": False,
        "checksum": "d9c3b8c389a022b0e5c5e8912496c18a673fa74bb52ec6ab51c0a93e0f4de06d",
        "description": "",
        "displayName": "linode",
        "externalId": "",
        "uiUrl": "",
        "url": "https://example.com/docker-machine-driver-linode_linux-amd64.zip",
        "whitelistDomains": ["api.linode.com"],
    },
    "status": {
        "appliedChecksum": "",
        "appliedDockerMachineVersion": "",
        "appliedURL": "",
        "conditions": [{"type": "Inactive", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z"}],
    },
}
_VALUES: Obj = {"boolValue": False, "intValue": 0, "stringSliceValue": None, "stringValue": "us-east"}
_SCHEMA: Obj = {
    "spec": {
        "resourceFields": {
            "region": {"type": "string", "default": _VALUES, "create": True, "update": True, "description": "Where"},
            "tags": {"type": "array[string]", "nullable": True, "default": {**_VALUES, "stringSliceValue": ["a"]}},
        }
    },
    "status": {},
}
FLEET = "fleet-default"
ID = "c-m-bcdfg245"
NAMESPACES = (FLEET, ID)

# What is applied, and must come back as it was.
GOOD: list[tuple[GroupVersionResource, Obj]] = [
    (provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "demo", FLEET, spec=DEMO)),
    (provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "everything", FLEET, spec=EVERYTHING)),
    (provisioning.CLUSTERS, obj(provisioning.CLUSTERS, "imported", FLEET, spec=IMPORTED)),
    (management.CLUSTERS, obj(management.CLUSTERS, ID, **_CLUSTER)),
    (
        management.CLUSTERS,
        obj(management.CLUSTERS, "local", spec={"displayName": "local", "internal": True}, status=None, more={"a": 1}),
    ),
    (management.CLUSTER_REGISTRATION_TOKENS, obj(management.CLUSTER_REGISTRATION_TOKENS, "default-token", ID, **_REGISTRATION)),
    (management.NODES, obj(management.NODES, "m-0123456789ab", ID, **_NODE)),
    (management.SETTINGS, obj(management.SETTINGS, "server-url", value="https://s", default="", customized=False, source="db")),
    (management.SETTINGS, obj(management.SETTINGS, "cacerts", value=None, default=None)),
    (
        management.FEATURES,
        obj(
            management.FEATURES,
            "rke2",
            spec={"value": None},
            status={"default": True, "dynamic": False, "description": "Enable RKE2", "lockedValue": True, "prime": False},
        ),
    ),
    (
        management.USERS,
        obj(
            management.USERS,
            "u-b4qkhsnliz",
            username="demo",
            displayName="Demo",
            description="",
            enabled=True,
            mustChangePassword=True,
            principalIds=["local://u-b4qkhsnliz", _PRINCIPAL],
            status={"conditions": [{"type": "InitialRolesPopulated", "status": "True"}]},
        ),
    ),
    (management.TOKENS, obj(management.TOKENS, "u-b4qkhsnliz", **_TOKEN)),
    (management.GLOBAL_ROLES, obj(management.GLOBAL_ROLES, "autoscaler", **_GLOBAL_ROLE)),
    (management.ROLE_TEMPLATES, obj(management.ROLE_TEMPLATES, "cluster-owner", **_ROLE_TEMPLATE)),
    (
        management.GLOBAL_ROLE_BINDINGS,
        obj(management.GLOBAL_ROLE_BINDINGS, "grb-x", userName="u-b4qkhsnliz", globalRoleName="user"),
    ),
    (management.CLUSTER_ROLE_TEMPLATE_BINDINGS, obj(management.CLUSTER_ROLE_TEMPLATE_BINDINGS, "owner", ID, **_MEMBER)),
    (management.NODE_DRIVERS, obj(management.NODE_DRIVERS, "linode", **_NODE_DRIVER)),
    (management.DYNAMIC_SCHEMAS, obj(management.DYNAMIC_SCHEMAS, "linodeconfig", **_SCHEMA)),
    (
        management.DYNAMIC_SCHEMAS,
        obj(
            management.DYNAMIC_SCHEMAS,
            "nodetemplateconfig",
            spec={"embed": True, "embedType": "nodeTemplate", "resourceFields": {"linodeConfig": {"type": "linodeconfig"}}},
        ),
    ),
    (management.FLEET_WORKSPACES, obj(management.FLEET_WORKSPACES, FLEET)),
    (
        management.POD_SECURITY_TEMPLATES,
        obj(
            management.POD_SECURITY_TEMPLATES,
            "rancher-restricted",
            description="Restricted.",
            configuration={
                "defaults": {
                    "enforce": "restricted",
                    "enforce-version": "latest",
                    "audit": "restricted",
                    "warn-version": "v1.30",
                },
                "exemptions": {"usernames": [], "runtimeClasses": ["kata"], "namespaces": ["kube-system"]},
            },
        ),
    ),
]


def content(found: Obj) -> Obj:
    return {name: value for name, value in found.items() if name != "metadata"}


async def apply_good(client: Client) -> None:
    """Every good object is taken, and nothing of it is lost."""
    for resource, wanted in GOOD:
        await client.apply(resource, wanted, field_manager="test")
        found = await client.get(resource, name_of(wanted), namespace_of(wanted))
        assert content(found) == content(wanted), f"{resource.resource} {name_of(wanted)}"
