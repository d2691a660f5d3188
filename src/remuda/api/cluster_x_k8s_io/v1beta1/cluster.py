"""Cluster, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions, ObjectReference
from ...schema import Doc, Int32, Items, Length, Object
from ..shared_types import AvailabilityGates, ClusterPhase, LegacyFailingStatus
from ..v1beta2.cluster import ClusterMachines
from .shared_types import ObservedGeneration
from .topology import Topology


class NetworkRanges(TypedDict, total=False):
    """Ranges of addresses."""

    cidrBlocks: Required[Annotated[list[Annotated[str, Length(1, 43)]], Doc("The ranges, in CIDR notation."), Items(most=100)]]


class ClusterNetwork(TypedDict, total=False):
    """The network inside the cluster."""

    apiServerPort: Annotated[Int32, Doc("The port that API servers listen on.")]
    pods: Annotated[NetworkRanges, Doc("Where addresses of pods come from.")]
    serviceDomain: Annotated[str, Doc("The DNS domain of services."), Length(1, 253)]
    services: Annotated[NetworkRanges, Doc("Where addresses of services come from.")]


class Endpoint(TypedDict, total=False):
    """Where the cluster's API is found; valid with host and port."""

    host: Annotated[str, Doc("The host name or address."), Length(most=512)]
    port: Annotated[Int32, Doc("The port.")]


class ClusterSpec(TypedDict, total=False):
    """What is wanted of a Cluster."""

    availabilityGates: Annotated[AvailabilityGates, Items(most=32)]
    clusterNetwork: ClusterNetwork
    controlPlaneEndpoint: Endpoint
    controlPlaneRef: Annotated[ObjectReference, Doc("The object of a control-plane provider that runs the control plane.")]
    infrastructureRef: Annotated[ObjectReference, Doc("The object of an infrastructure provider that the cluster lives on.")]
    paused: Annotated[bool, Doc("Nothing that belongs to this Cluster is changed while this is true.")]
    topology: Topology


class FailureDomain(TypedDict, total=False):
    """A part of the infrastructure that may fail by itself."""

    attributes: Annotated[dict[str, str], Doc("What the provider says of it.")]
    controlPlane: Annotated[bool, Doc("Whether control-plane machines may run there.")]


class NewStatus(TypedDict, total=False):
    """What v1beta2 says of the status."""

    conditions: Conditions
    controlPlane: Annotated[ClusterMachines, Doc("Control-plane Machines, counted.")]
    workers: Annotated[ClusterMachines, Doc("Worker Machines, counted.")]


class ClusterStatus(LegacyFailingStatus, total=False):
    """What is known of a Cluster."""

    controlPlaneReady: Annotated[bool, Doc("The control plane has answered for the first time.")]
    failureDomains: Annotated[dict[str, FailureDomain], Doc("The failure domains that the infrastructure offers, by name.")]
    infrastructureReady: Annotated[bool, Doc("The infrastructure provider has made what the cluster lives on.")]
    observedGeneration: ObservedGeneration
    phase: ClusterPhase
    v1beta2: NewStatus


class Cluster(Object, total=False):
    """A Kubernetes cluster and what it is made of."""

    spec: ClusterSpec
    status: ClusterStatus
