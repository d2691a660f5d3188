"""RKECluster: the infrastructure of a cluster whose machines need none in common; all it knows is where the API is found."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...cattle import Conditions, Provisioning, Text
from ...cluster_x_k8s_io.v1beta2.cluster import Endpoint
from ...cluster_x_k8s_io.v1beta2.machine import MachineAddress
from ...schema import Doc, Object


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


# --- custommachine --------------------------------------------------------------------------------------------------------
#
# CustomMachine: a host that somebody registered by hand, as infrastructure for Cluster API.


class CustomMachineSpec(TypedDict, total=False):
    """What is known of the host."""

    providerID: Annotated[Text, Doc("The identity of its node, as the node says it; set when there is one.")]


class CustomMachineStatus(TypedDict, total=False):
    """What became of it."""

    addresses: Annotated[list[MachineAddress], Doc("Its addresses, as its node says them.")]
    conditions: Conditions
    initialization: Provisioning
    ready: Annotated[bool, Doc("Deprecated: use initialization.provisioned.")]


class CustomMachine(Object, total=False):
    """A host that somebody registered by hand."""

    spec: CustomMachineSpec
    status: CustomMachineStatus
