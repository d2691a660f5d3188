"""Cluster: a Kubernetes cluster, and the objects of providers that it is made of."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions
from ...schema import Atomic, Between, Doc, Int32, Items, Length, ListMap, MinProperties, Object, rules
from ..shared_types import AvailabilityGates, ClusterPhase, KubernetesVersion, LegacyFailingStatus, StatusVersion
from .machine import ObservedGeneration
from .references import Reference
from .topology import Topology

_Port = Annotated[Int32, Between(1, 65535)]


class NetworkRanges(TypedDict, total=False):
    """Ranges of addresses."""

    cidrBlocks: Required[
        Annotated[list[Annotated[str, Length(1, 43)]], Doc("The ranges, in CIDR notation."), Items(1, 100), Atomic()]
    ]


@rules(MinProperties(1))
class ClusterNetwork(TypedDict, total=False):
    """The network inside the cluster."""

    apiServerPort: Annotated[_Port, Doc("The port that API servers listen on.")]
    pods: Annotated[NetworkRanges, Doc("Where addresses of pods come from.")]
    serviceDomain: Annotated[str, Doc("The DNS domain of services."), Length(1, 253)]
    services: Annotated[NetworkRanges, Doc("Where addresses of services come from.")]


@rules(MinProperties(1))
class Endpoint(TypedDict, total=False):
    """Where the cluster's API is found; valid with host and port."""

    host: Annotated[str, Doc("The host name or address."), Length(1, 512)]
    port: Annotated[_Port, Doc("The port.")]


@rules(MinProperties(1))
class ClusterSpec(TypedDict, total=False):
    """What is wanted of a Cluster."""

    availabilityGates: Annotated[AvailabilityGates, Items(1, 32)]
    clusterNetwork: ClusterNetwork
    controlPlaneEndpoint: Endpoint
    controlPlaneRef: Annotated[Reference, Doc("The object of a control-plane provider that runs the control plane.")]
    infrastructureRef: Annotated[Reference, Doc("The object of an infrastructure provider that the cluster lives on.")]
    paused: Annotated[bool, Doc("Nothing that belongs to this Cluster is changed while this is true.")]
    topology: Topology


class UpgradeStep(TypedDict, total=False):
    """One step of an upgrade."""

    version: Required[KubernetesVersion]


class ClusterMachines(TypedDict, total=False):
    """Machines of the Cluster, counted."""

    availableReplicas: Annotated[Int32, Doc("How many Machines are available.")]
    desiredReplicas: Annotated[Int32, Doc("How many Machines are wanted.")]
    readyReplicas: Annotated[Int32, Doc("How many Machines are ready.")]
    replicas: Annotated[Int32, Doc("How many Machines there are.")]
    upToDateReplicas: Annotated[Int32, Doc("How many Machines are as they are wanted.")]
    upgradePlan: Annotated[list[UpgradeStep], Doc("The versions that an upgrade still goes through."), Items(1, 32), Atomic()]
    versions: Annotated[
        list[StatusVersion], Doc("The versions of Kubernetes in use, and by how many Machines."), Items(1, 32), Atomic()
    ]


@rules(MinProperties(1))
class ClusterInitialization(TypedDict, total=False):
    """What was reached while the Cluster came up; afterwards it stays as it is."""

    controlPlaneInitialized: Annotated[bool, Doc("The control plane has answered for the first time.")]
    infrastructureProvisioned: Annotated[bool, Doc("The infrastructure provider has made what the cluster lives on.")]


class FailureDomain(TypedDict, total=False):
    """A part of the infrastructure that may fail by itself."""

    attributes: Annotated[dict[str, str], Doc("What the provider says of it.")]
    controlPlane: Annotated[bool, Doc("Whether control-plane machines may run there.")]
    name: Required[Annotated[str, Doc("Its name."), Length(1, 256)]]


class ClusterDeprecated(TypedDict, total=False):
    """What only older clients still read."""

    v1beta1: LegacyFailingStatus


@rules(MinProperties(1))
class ClusterStatus(TypedDict, total=False):
    """What is known of a Cluster."""

    conditions: Conditions
    controlPlane: Annotated[ClusterMachines, Doc("Control-plane Machines, counted.")]
    deprecated: ClusterDeprecated
    failureDomains: Annotated[
        list[FailureDomain], Doc("The failure domains that the infrastructure offers."), Items(1, 100), ListMap("name")
    ]
    initialization: ClusterInitialization
    observedGeneration: ObservedGeneration
    phase: ClusterPhase
    workers: Annotated[ClusterMachines, Doc("Worker Machines, counted.")]


class Cluster(Object, total=False):
    """A Kubernetes cluster and what it is made of."""

    spec: Required[ClusterSpec]
    status: ClusterStatus
