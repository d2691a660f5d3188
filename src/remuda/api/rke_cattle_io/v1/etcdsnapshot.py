"""ETCDSnapshot: a snapshot of a cluster's etcd that there is, on one of its nodes or in a bucket."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...provisioning_cattle_io.v1.cluster_configuration import SnapshotS3
from ...schema import Doc, Int64, Object, Time


class SnapshotFile(TypedDict, total=False):
    """The file."""

    createdAt: Annotated[Time, Doc("When it was taken.")]
    location: Annotated[str, Doc("Where it is: file:// on its node, or s3://.")]
    message: Annotated[str, Doc("What went wrong when it was taken.")]
    metadata: Annotated[
        str, Doc("What the cluster was to be like when it was taken: base64 of a JSON map, in which the spec is compressed.")
    ]
    name: Annotated[str, Doc("The name of the file.")]
    nodeName: Annotated[str, Doc("The node that it was taken on; s3 where it is in a bucket.")]
    s3: Annotated[SnapshotS3, Doc("The bucket that it is in; unset: it is on its node.")]
    size: Annotated[Int64, Doc("How large it is, in bytes.")]
    status: Annotated[str, Doc("successful or failed.")]


class ETCDSnapshotSpec(TypedDict, total=False):
    """Of what it is."""

    clusterName: Annotated[str, Doc("The name of the clusters.provisioning.cattle.io it was taken of.")]


class ETCDSnapshotStatus(TypedDict, total=False):
    """Of no use."""

    missing: Required[Annotated[bool, Doc("Of no effect.")]]


class ETCDSnapshot(Object, total=False):
    """A snapshot of a cluster's etcd that there is."""

    snapshotFile: SnapshotFile
    spec: ETCDSnapshotSpec
    status: ETCDSnapshotStatus
