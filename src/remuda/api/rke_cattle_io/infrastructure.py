"""RKECluster: the infrastructure of a cluster whose machines need none in common; all it knows is where the API is found."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..cattle import Conditions, Provisioning, Text
from ..cluster_x_k8s_io.v1beta2.cluster import Endpoint
from ..cluster_x_k8s_io.v1beta2.machine import MachineAddress
from ..provisioning_cattle_io.cluster_configuration import SnapshotS3
from ..schema import Doc, Int64, Object, Time


class RKEClusterSpec(TypedDict, total=False):
    """The desired state."""

    controlPlaneEndpoint: Annotated[
        Endpoint,
        Doc("The endpoint of the cluster's API, such as an existing load balancer; unset: localhost, port 6443."),
    ]


class RKEClusterStatus(TypedDict, total=False):
    """The observed state."""

    conditions: Conditions
    initialization: Provisioning
    ready: Annotated[bool, Doc("Deprecated: use initialization.provisioned.")]


class RKECluster(Object, total=False):
    """The infrastructure of a cluster, for Cluster API."""

    spec: Required[RKEClusterSpec]
    status: RKEClusterStatus


# --- custommachine --------------------------------------------------------------------------------------------------------
#
# CustomMachine: a host that a user registered, as infrastructure for Cluster API.


class CustomMachineSpec(TypedDict, total=False):
    """The observed state of the host."""

    providerID: Annotated[Text, Doc("The identity of its node, as the node says it; set when there is one.")]


class CustomMachineStatus(TypedDict, total=False):
    """The observed state."""

    addresses: Annotated[list[MachineAddress], Doc("Its addresses, as its node says them.")]
    conditions: Conditions
    initialization: Provisioning
    ready: Annotated[bool, Doc("Deprecated: use initialization.provisioned.")]


class CustomMachine(Object, total=False):
    """A host that a user registered."""

    spec: CustomMachineSpec
    status: CustomMachineStatus


class SnapshotFile(TypedDict, total=False):
    """The file."""

    createdAt: Annotated[Time, Doc("When it was taken.")]
    location: Annotated[str, Doc("The location: file:// on its node, or s3://.")]
    message: Annotated[str, Doc("The error when it was taken.")]
    metadata: Annotated[str, Doc("The cluster's spec when it was taken: base64 of a JSON map, in which the spec is compressed.")]
    name: Annotated[str, Doc("The name of the file.")]
    nodeName: Annotated[str, Doc("The node that it was taken on; s3 where it is in a bucket.")]
    s3: Annotated[SnapshotS3, Doc("The bucket that it is in; unset: it is on its node.")]
    size: Annotated[Int64, Doc("The size, in bytes.")]
    status: Annotated[str, Doc("successful or failed.")]


class ETCDSnapshotSpec(TypedDict, total=False):
    """The cluster that the snapshot was taken of."""

    clusterName: Annotated[str, Doc("The name of the clusters.provisioning.cattle.io it was taken of.")]


class SnapshotVerification(TypedDict, total=False):
    """The result of its last check."""

    at: Annotated[Time, Doc("When it was checked.")]
    keys: Annotated[Int64, Doc("The number of keys in it.")]
    message: Annotated[str, Doc("The problem that was found.")]
    result: Annotated[str, Doc("valid, invalid, or unknown if it could not be checked.")]
    revision: Annotated[Int64, Doc("The revision of etcd in it.")]
    sha256: Annotated[str, Doc("The SHA-256 of the file that was checked.")]


class ETCDSnapshotStatus(TypedDict, total=False):
    """The observed state."""

    message: Annotated[str, Doc("The reason why its storage can't be read, or why its file is not deleted yet.")]
    missing: Required[Annotated[bool, Doc("Its storage can't be seen at the moment, so that it may still be there, or not.")]]
    seenAt: Annotated[Time, Doc("When its storage was last seen, for one that is missing.")]
    sha256: Annotated[str, Doc("The SHA-256 of the file, as its host or the bucket says it.")]
    verification: SnapshotVerification


class ETCDSnapshot(Object, total=False):
    """A snapshot of a cluster's etcd that there is."""

    snapshotFile: SnapshotFile
    spec: ETCDSnapshotSpec
    status: ETCDSnapshotStatus
