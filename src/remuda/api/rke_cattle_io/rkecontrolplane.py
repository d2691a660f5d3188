"""RKEControlPlane: what all machines of a cluster are told, and how far they are; the object that the planner works on."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ..cattle import Conditions, LocalClusterAuthEndpoint, Text
from ..provisioning_cattle_io.cluster import (
    EnvVar,
    EtcdSnapshotCreate,
    EtcdSnapshotRestore,
    RotateCertificates,
    RotateEncryptionKeys,
)
from ..provisioning_cattle_io.cluster_configuration import ClusterConfiguration
from ..schema import Doc, Int64, Items, Length, MinProperties, Object, rules

CreatePhase = Literal["Started", "RestartCluster", "Finished", "Failed"]
RestorePhase = Literal[
    "Started",
    "Shutdown",
    "Restore",
    "PostRestorePodCleanup",
    "InitialRestartCluster",
    "PostRestoreNodeCleanup",
    "RestartCluster",
    "Finished",
    "Failed",
]
UpgradeSnapshotPhase = Literal["Started", "Finished", "Failed", "Retry"]
RecoverPhase = Literal["Survey", "Machines", "Hosts", "Restoring", "Finished", "Failed"]
RotationPhase = Literal[
    "Prepare",
    "PostPrepareRestart",
    "Rotate",
    "PostRotateRestart",
    "Reencrypt",
    "PostReencryptRestart",
    "Done",
    "Failed",
]


class RKEControlPlaneSpec(ClusterConfiguration, total=False):
    """The desired state of the machines; a copy of the cluster's spec."""

    agentEnvVars: Annotated[list[EnvVar] | None, Doc("Environment variables of the agents on the nodes and in the cluster.")]
    clusterName: Required[Annotated[str, Doc("The name of the clusters.provisioning.cattle.io."), Length(most=63)]]
    etcdSnapshotCreate: Annotated[EtcdSnapshotCreate | None, Doc("Asks for a snapshot of etcd, by a new generation.")]
    etcdSnapshotRestore: Annotated[
        EtcdSnapshotRestore | None, Doc("Asks for a snapshot of etcd to be restored, by a new generation.")
    ]
    kubernetesVersion: Annotated[Text, Doc("The version of RKE2 or K3s, such as v1.34.1+rke2r1.")]
    localClusterAuthEndpoint: Annotated[
        LocalClusterAuthEndpoint, Doc("The way to the cluster's API that does not lead through this server.")
    ]
    managementClusterName: Required[Annotated[str, Doc("The id of the cluster: the name of its clusters.management.cattle.io.")]]
    rotateCertificates: Annotated[RotateCertificates | None, Doc("Asks for new certificates, by a new generation.")]
    rotateEncryptionKeys: Annotated[
        RotateEncryptionKeys | None, Doc("Asks for a new key that Secrets are encrypted with, by a new generation.")
    ]
    unmanagedConfig: Annotated[bool, Doc("Another program writes files on the machines; plans have neither files nor tokens.")]


@rules(MinProperties(1))
class ControlPlaneInitialization(TypedDict, total=False):
    """The progress, in the form of Cluster API's contract of a control plane."""

    controlPlaneInitialized: Annotated[bool, Doc("The cluster's API has answered, so that workers may join.")]


class LostServer(TypedDict, total=False):
    """A server that did not answer when a recovery began."""

    name: Required[Annotated[str, Doc("The name of its Machine.")]]
    pool: Annotated[bool, Doc("A machine pool replaces it; else a host has to be registered.")]
    roles: Annotated[str, Doc("Its roles, separated by commas.")]


class Recovery(TypedDict, total=False):
    """A recovery of the cluster after the loss of its servers."""

    generation: Required[Annotated[Int64, Doc("The generation of the request.")]]
    lost: Annotated[list[LostServer], Doc("The servers that did not answer."), Items(most=1000)]
    machine: Annotated[str, Doc("The Machine whose etcd data is used.")]
    restoreRKEConfig: Annotated[str, Doc("The part of the cluster's spec that comes back with the snapshot.")]
    snapshot: Annotated[str, Doc("The ETCDSnapshot that is restored.")]


_FromVersion = TypedDict("_FromVersion", {"from": Annotated[str, Doc("The version that it was taken with.")]}, total=False)


class UpgradeSnapshot(_FromVersion, total=False):
    """A snapshot of etcd before a change of the minor version."""

    message: Annotated[str, Doc("The machines that have it, or why none has.")]
    name: Annotated[str, Doc("What the names of its files begin with.")]
    phase: Required[Annotated[UpgradeSnapshotPhase, Doc("How far it is.")]]
    request: Required[Annotated[str, Doc("The request that it belongs to: both versions, and a number.")]]
    to: Annotated[str, Doc("The version that waits for it.")]


class RKEControlPlaneStatus(TypedDict, total=False):
    """The observed state of the machines."""

    agentConnected: Annotated[bool, Doc("The cluster agent is connected.")]
    appliedSpec: Annotated[RKEControlPlaneSpec, Doc("The configuration that all machines had applied last.")]
    certificateRotationGeneration: Annotated[Int64, Doc("The rotation of certificates that was done last.")]
    clusterID: Annotated[
        str, Doc("The uid of the cluster's namespace kube-system, by which copies in a bucket name their cluster.")
    ]
    conditions: Conditions
    configGeneration: Annotated[Int64, Doc("Goes up when a snapshot was restored, so that every node is configured again.")]
    etcdSnapshotCreate: Annotated[EtcdSnapshotCreate, Doc("The snapshot that is being taken, or was last.")]
    etcdSnapshotCreatePhase: Annotated[CreatePhase, Doc("The progress of the snapshot.")]
    etcdSnapshotRestore: Annotated[EtcdSnapshotRestore, Doc("The snapshot that is being restored, or was last.")]
    etcdSnapshotRestorePhase: Annotated[RestorePhase, Doc("The progress of the restore.")]
    initialization: ControlPlaneInitialization
    initialized: Annotated[bool, Doc("Deprecated: use initialization.controlPlaneInitialized.")]
    observedGeneration: Required[Annotated[Int64, Doc("The metadata.generation that was looked at last.")]]
    ready: Annotated[bool, Doc("Deprecated: use initialization.controlPlaneInitialized.")]
    recover: Annotated[Recovery, Doc("The recovery that is being done, or was last.")]
    recoverPhase: Annotated[RecoverPhase, Doc("The progress of the recovery.")]
    rotateEncryptionKeys: Annotated[RotateEncryptionKeys, Doc("The key rotation that is being done, or was last.")]
    rotateEncryptionKeysLeader: Annotated[str, Doc("The Machine that the key rotation begins on.")]
    rotateEncryptionKeysPhase: Annotated[RotationPhase, Doc("The progress of the key rotation.")]
    upgradeSnapshot: Annotated[UpgradeSnapshot, Doc("The snapshot of etcd before a change of the minor version.")]


class RKEControlPlane(Object, total=False):
    """The desired and the observed state of all machines of a cluster."""

    spec: RKEControlPlaneSpec
    status: RKEControlPlaneStatus
