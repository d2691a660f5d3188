"""Cluster, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import DNS_LABEL, Conditions, ObjectReference
from ...schema import Doc, Int32, Items, Length, ListMap, Object, Pattern, Time
from ..shared_types import (
    AvailabilityGates,
    ClusterPhase,
    DeletionTimeouts,
    FailureDomainName,
    Gates,
    KubernetesVersion,
    LegacyFailingStatus,
    ObservedGeneration,
    Replicas,
    Taints,
    TemplateLabels,
)
from ..shared_types import Variable as NewVariable
from ..v1beta2.cluster import ClusterMachines, OfClass, RolloutMoment
from .machinedeployment import Strategy
from .machinehealthcheck import Checks
from .machineset import MinReadySeconds

# --- topology -------------------------------------------------------------------------------------------------------------
#
# The topology of a Cluster, as v1beta1 has it.

_GroupName = Annotated[str, Doc("The name of this group, unique in the Cluster."), Length(1, 63)]


class Variable(NewVariable, total=False):
    """The value of a variable of the ClusterClass."""

    definitionFrom: Annotated[str, Doc("Deprecated: has no effect."), Length(most=256)]


_Variables = Annotated[list[Variable], Doc("Values for the variables of the ClusterClass."), Items(most=1000), ListMap("name")]


class VariableOverrides(TypedDict, total=False):
    """Values that hold in this place only."""

    overrides: _Variables


class HealthCheck(Checks, total=False):
    """When Machines are unhealthy, and what is done about it."""

    enable: Annotated[bool, Doc("Whether there is a MachineHealthCheck; missing: as the ClusterClass has it.")]


class ControlPlaneTopology(DeletionTimeouts, total=False):
    """What is wanted of the control plane."""

    machineHealthCheck: HealthCheck
    metadata: TemplateLabels
    readinessGates: Gates
    replicas: Replicas
    rollout: RolloutMoment
    taints: Taints
    variables: VariableOverrides


class MachineDeploymentTopology(OfClass, DeletionTimeouts, total=False):
    """A MachineDeployment that is wanted."""

    failureDomain: FailureDomainName
    machineHealthCheck: HealthCheck
    metadata: TemplateLabels
    minReadySeconds: MinReadySeconds
    name: Required[_GroupName]
    readinessGates: Gates
    replicas: Replicas
    rollout: RolloutMoment
    strategy: Strategy
    taints: Taints
    variables: VariableOverrides


class MachinePoolTopology(OfClass, DeletionTimeouts, total=False):
    """A MachinePool that is wanted."""

    failureDomains: Annotated[list[Annotated[str, Length(1, 256)]], Doc("The failure domains to spread over."), Items(most=100)]
    metadata: TemplateLabels
    minReadySeconds: MinReadySeconds
    name: Required[_GroupName]
    replicas: Replicas
    taints: Taints
    variables: VariableOverrides


class WorkersTopology(TypedDict, total=False):
    """What is wanted of the workers."""

    machineDeployments: Annotated[
        list[MachineDeploymentTopology], Doc("The MachineDeployments that are wanted."), Items(most=2000), ListMap("name")
    ]
    machinePools: Annotated[
        list[MachinePoolTopology], Doc("The MachinePools that are wanted."), Items(most=2000), ListMap("name")
    ]


# `class` is a word of Python's own, hence not written as a field.
_FromClass = TypedDict(
    "_FromClass", {"class": Required[Annotated[str, Doc("The name of the ClusterClass."), Length(1, 253)]]}, total=False
)


class Topology(_FromClass, total=False):
    """What is wanted of the Cluster in terms of a ClusterClass."""

    classNamespace: Annotated[
        str, Doc("The namespace of the ClusterClass; missing: the Cluster's own."), Length(1, 63), Pattern(DNS_LABEL)
    ]
    controlPlane: ControlPlaneTopology
    rolloutAfter: Annotated[Time, Doc("Deprecated: has no effect.")]
    variables: _Variables
    version: Required[KubernetesVersion]
    workers: WorkersTopology


# --- cluster --------------------------------------------------------------------------------------------------------------


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
