"""Cluster: a Kubernetes cluster to provision, or an existing one to register (without `rkeConfig`)."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import (
    AgentDeploymentCustomization,
    Condition,
    FreeMap,
    LocalClusterAuthEndpoint,
    Opaque,
    Text,
    WebhookDeploymentCustomization,
)
from ..kubernetes import ObjectReference
from ..schema import Doc, Form, Int64, Items, Length, ListMap, Names, NoEffect, Object, Pattern
from .cluster_configuration import ClusterConfiguration
from .machinepool import CredentialName, MachinePool, MachinePoolDefaults


class EtcdSnapshotCreate(TypedDict, total=False):
    """Asks for a snapshot of etcd."""

    generation: Annotated[int, Doc("Change it to have a snapshot taken.")]


class EtcdSnapshotRestore(TypedDict, total=False):
    """Asks for a snapshot of etcd to be restored."""

    fromMachine: Annotated[Text, Doc("Instead of a snapshot: the Machine whose etcd data all others get.")]
    generation: Annotated[int, Doc("Change it to have the snapshot restored.")]
    name: Annotated[Text, Doc("The ETCDSnapshot, or the name of a file on the node where there is none.")]
    restoreRKEConfig: Annotated[
        Text,
        Doc("The part of this spec that is put back too: none (or empty), kubernetesVersion or all."),
        Pattern("^(none|kubernetesVersion|all|)$"),
    ]


class RotateCertificates(TypedDict, total=False):
    """Asks for new certificates."""

    generation: Annotated[Int64, Doc("Change it to have certificates made anew.")]
    services: Annotated[list[str] | None, Doc("Of which services; empty: of all.")]


class RotateEncryptionKeys(TypedDict, total=False):
    """Asks for a new key that Secrets are encrypted with."""

    generation: Annotated[Int64, Doc("Change it to have the key replaced.")]


# A new field also needs a line in `CONFIGURATION` or `OPERATIONS` of `provisioning/graph/cluster_objects.py`.
class RKEConfig(ClusterConfiguration, total=False):
    """The machines of the cluster, their configuration, and operations on it."""

    controlPlaneConfig: Annotated[
        FreeMap, NoEffect("write these arguments in machineGlobalConfig, which replaced it in Rancher 2.6")
    ]
    etcdSnapshotCreate: Annotated[EtcdSnapshotCreate | None, Doc("Asks for a snapshot of etcd, by a new generation.")]
    etcdSnapshotRestore: Annotated[
        EtcdSnapshotRestore | None, Doc("Asks for a snapshot of etcd to be restored, by a new generation.")
    ]
    infrastructureRef: Annotated[
        ObjectReference | None,
        Doc("An infrastructure cluster of Cluster API that is there already; unset: an RKECluster is made."),
        Names("", "", Form.OBJECT),
    ]
    localClusterAuthEndpoint: Annotated[Opaque, NoEffect("write it in spec.localClusterAuthEndpoint")]
    machinePoolDefaults: Annotated[MachinePoolDefaults, Doc("Defaults of the pools.")]
    machinePools: Annotated[
        list[MachinePool] | None,
        Doc("The machines to make; none where nodes are registered by hand."),
        Items(most=1000),
        ListMap("name"),
    ]
    rotateCertificates: Annotated[RotateCertificates | None, Doc("Asks for new certificates, by a new generation.")]
    rotateEncryptionKeys: Annotated[
        RotateEncryptionKeys | None, Doc("Asks for a new key that Secrets are encrypted with, by a new generation.")
    ]
    workerConfig: Annotated[
        list[Opaque] | None, NoEffect("write these arguments in machineSelectorConfig, which replaced it in Rancher 2.6")
    ]


class ClusterAPIConfig(TypedDict, total=False):
    """Deprecated: a cluster of Cluster API that is there already."""

    clusterName: Annotated[Text, Doc("Deprecated: the name of that cluster.")]


class EnvVar(TypedDict, total=False):
    """An environment variable."""

    name: Annotated[str, Doc("Its name.")]
    value: Annotated[Text, Doc("Its value.")]


class ClusterSpec(TypedDict, total=False):
    """The desired state of the cluster."""

    agentEnvVars: Annotated[list[EnvVar] | None, Doc("Environment variables of the agents on the nodes and in the cluster.")]
    cloudCredentialSecretName: Annotated[
        CredentialName, Doc("The Secret to make machines with, as cattle-global-data:name, or its name in this namespace.")
    ]
    clusterAPIConfig: Annotated[ClusterAPIConfig | None, NoEffect("import that cluster as any other")]
    clusterAgentDeploymentCustomization: Annotated[
        AgentDeploymentCustomization | None, Doc("Changes to the deployment of the cluster agent.")
    ]
    defaultClusterRoleForProjectMembers: Annotated[Text, NoEffect("roles are given in clusters, not in projects")]
    defaultPodSecurityAdmissionConfigurationTemplateName: Annotated[
        Text, Doc("The template of the cluster's pod security admission.")
    ]
    defaultPodSecurityPolicyTemplateName: Annotated[
        Text,
        NoEffect(
            "Kubernetes 1.25 removed pod security policies; write defaultPodSecurityAdmissionConfigurationTemplateName instead"
        ),
    ]
    enableNetworkPolicy: Annotated[bool | None, NoEffect("projects are not kept apart in the network")]
    fleetAgentDeploymentCustomization: Annotated[AgentDeploymentCustomization | None, NoEffect("there is no fleet agent yet")]
    kubernetesVersion: Annotated[
        Text, Doc("The version and the distribution (+rke2r1, +k3s1, +remuda1), such as v1.34.1+rke2r1; needed with rkeConfig.")
    ]
    localClusterAuthEndpoint: Annotated[
        LocalClusterAuthEndpoint, Doc("The way to the cluster's API that does not lead through this server.")
    ]
    rancherValues: Annotated[Opaque, NoEffect("the cluster agent has no chart with values")]
    redeploySystemAgentGeneration: Annotated[Int64, Doc("Change it to have the system agents installed again.")]
    rkeConfig: Annotated[
        RKEConfig | None, Doc("The machines and their configuration; without it, the cluster is an existing one.")
    ]
    webhookDeploymentCustomization: Annotated[WebhookDeploymentCustomization | None, NoEffect("there is no such webhook yet")]


class BoundReference(TypedDict, total=False):
    """The object that a name in the spec stands for."""

    uid: Annotated[str, Doc("The uid of the object; another object of the same name is not used.")]
    written: Annotated[str, Doc("For which writing of the reference it was found; empty: one from before there were records.")]


class ClusterStatus(TypedDict, total=False):
    """The observed state."""

    agentDeployed: Annotated[bool, Doc("The cluster agent was deployed.")]
    clientSecretName: Annotated[str, Doc("The Secret with the kubeconfig, in the same namespace."), Length(most=253)]
    clusterName: Annotated[str, Doc("The id of the cluster: the name of its clusters.management.cattle.io.")]
    conditions: Annotated[list[Condition], Doc("The state of this object, aspect by aspect."), ListMap("type")]
    fleetWorkspaceName: Annotated[str, Doc("The fleet workspace it is in; as a rule its namespace."), Length(most=63)]
    observedGeneration: Annotated[Int64, Doc("The metadata.generation that was passed on to the cluster.")]
    ready: Annotated[bool, Doc("It has been connected; stays true.")]
    references: Annotated[
        dict[str, BoundReference],
        Doc("The objects to which the spec's names refer: group/resource/namespace/name."),
    ]


class Cluster(Object, total=False):
    """A Kubernetes cluster to provision, or an existing one to register."""

    spec: ClusterSpec
    status: ClusterStatus
