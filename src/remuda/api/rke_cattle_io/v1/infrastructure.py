"""RKECluster: the infrastructure of a cluster whose machines need none in common; all it knows is where the API is found."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...cluster_x_k8s_io.v1beta2.cluster import Endpoint
from ...schema import Doc, Object
from .shared_types import Conditions, Provisioning


class RKEClusterSpec(TypedDict, total=False):
    """What is wanted of it."""

    controlPlaneEndpoint: Annotated[
        Endpoint,
        Doc("Where the cluster's API is found, such as a load balancer that is there already; unset: localhost, port 6443."),
    ]


class RKEClusterStatus(TypedDict, total=False):
    """What became of it."""

    conditions: Conditions
    initialization: Provisioning
    ready: Annotated[bool, Doc("Deprecated: use initialization.provisioned.")]


class RKECluster(Object, total=False):
    """The infrastructure of a cluster, for Cluster API."""

    spec: Required[RKEClusterSpec]
    status: RKEClusterStatus
