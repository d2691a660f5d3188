"""Cluster: a Kubernetes cluster, and the objects of providers that it is made of."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import DNS_LABEL, DNS_SUBDOMAIN, Conditions
from ...schema import Atomic, Between, Doc, Int32, Items, Length, ListMap, MinProperties, Object, Pattern, rules
from ..shared_types import (
    AvailabilityGates,
    ClusterPhase,
    DeleteOrder,
    FailureDomainName,
    KubernetesVersion,
    LegacyFailingStatus,
    ObjectMeta,
    Reference,
    Replicas,
    StatusVersion,
    Subdomain,
    Taints,
    Variable,
)
from .machine import DeletionTimeouts, Gates, MinReadySeconds, ObservedGeneration
from .machinedeployment import MaxInFlight, Rollout, RolloutAfter
from .machinehealthcheck import Checks, Remediation

# --- topology -------------------------------------------------------------------------------------------------------------
#
# The topology of a Cluster: what is wanted of it in terms of a ClusterClass.

_Variables = Annotated[list[Variable], Doc("Values for the variables of the ClusterClass."), Items(1, 1000), ListMap("name")]
_GroupName = Annotated[str, Doc("The name of this group, unique in the Cluster."), Length(1, 63), Pattern(DNS_SUBDOMAIN)]
_Enabled = Annotated[bool, Doc("Whether there is a MachineHealthCheck; missing: as the ClusterClass has it.")]

# `class` is a word of Python's own, hence not written as a field.
OfClass = TypedDict(
    "OfClass",
    {"class": Required[Annotated[str, Doc("The class of the ClusterClass that this group is made from."), Length(1, 256)]]},
    total=False,
)


class ClassReference(TypedDict, total=False):
    """The ClusterClass that the Cluster is made from."""

    name: Required[Annotated[Subdomain, Doc("The name of the ClusterClass.")]]
    namespace: Annotated[str, Doc("Its namespace; missing: the Cluster's own."), Length(1, 63), Pattern(DNS_LABEL)]


@rules(MinProperties(1))
class VariableOverrides(TypedDict, total=False):
    """Values that hold in this place only."""

    overrides: _Variables


@rules(MinProperties(1))
class ControlPlaneHealthCheck(TypedDict, total=False):
    """The health check of control-plane Machines, and their remediation."""

    checks: Checks
    enabled: _Enabled
    remediation: Remediation


@rules(MinProperties(1))
class WorkerRemediation(Remediation, total=False):
    """The remediation of unhealthy Machines."""

    maxInFlight: MaxInFlight


@rules(MinProperties(1))
class WorkerHealthCheck(TypedDict, total=False):
    """The health check of worker Machines, and their remediation."""

    checks: Checks
    enabled: _Enabled
    remediation: WorkerRemediation


@rules(MinProperties(1))
class RolloutMoment(TypedDict, total=False):
    """The time after which Machines are replaced."""

    after: RolloutAfter


@rules(MinProperties(1))
class ControlPlaneTopology(TypedDict, total=False):
    """The desired state of the control plane."""

    deletion: DeletionTimeouts
    healthCheck: ControlPlaneHealthCheck
    metadata: ObjectMeta
    readinessGates: Gates
    replicas: Replicas
    rollout: RolloutMoment
    taints: Taints
    variables: VariableOverrides


@rules(MinProperties(1))
class WorkerDeletion(DeletionTimeouts, total=False):
    """The order in which worker Machines are deleted."""

    order: DeleteOrder


class MachineDeploymentTopology(OfClass, total=False):
    """A MachineDeployment that is wanted."""

    deletion: WorkerDeletion
    failureDomain: FailureDomainName
    healthCheck: WorkerHealthCheck
    metadata: ObjectMeta
    minReadySeconds: MinReadySeconds
    name: Required[_GroupName]
    readinessGates: Gates
    replicas: Replicas
    rollout: Rollout
    taints: Taints
    variables: VariableOverrides


class MachinePoolTopology(OfClass, total=False):
    """A MachinePool that is wanted."""

    deletion: DeletionTimeouts
    failureDomains: Annotated[
        list[Annotated[str, Length(1, 256)]],
        Doc("The failure domains to spread over."),
        Items(1, 100),
        Atomic(),
    ]
    metadata: ObjectMeta
    minReadySeconds: MinReadySeconds
    name: Required[_GroupName]
    replicas: Replicas
    taints: Taints
    variables: VariableOverrides


@rules(MinProperties(1))
class WorkersTopology(TypedDict, total=False):
    """The desired state of the workers."""

    machineDeployments: Annotated[
        list[MachineDeploymentTopology], Doc("The MachineDeployments that are wanted."), Items(1, 2000), ListMap("name")
    ]
    machinePools: Annotated[list[MachinePoolTopology], Doc("The MachinePools that are wanted."), Items(1, 2000), ListMap("name")]


class Topology(TypedDict, total=False):
    """The desired state of the Cluster in terms of a ClusterClass."""

    classRef: Required[ClassReference]
    controlPlane: ControlPlaneTopology
    variables: _Variables
    version: Required[KubernetesVersion]
    workers: WorkersTopology


# --- cluster --------------------------------------------------------------------------------------------------------------

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
    pods: Annotated[NetworkRanges, Doc("The ranges of the addresses of pods.")]
    serviceDomain: Annotated[str, Doc("The DNS domain of services."), Length(1, 253)]
    services: Annotated[NetworkRanges, Doc("The ranges of the addresses of services.")]


@rules(MinProperties(1))
class Endpoint(TypedDict, total=False):
    """The endpoint of the cluster's API; valid with host and port."""

    host: Annotated[str, Doc("The host name or address."), Length(1, 512)]
    port: Annotated[_Port, Doc("The port.")]


@rules(MinProperties(1))
class ClusterSpec(TypedDict, total=False):
    """The desired state of a Cluster."""

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

    availableReplicas: Annotated[Int32, Doc("The number of Machines that are available.")]
    desiredReplicas: Annotated[Int32, Doc("The number of Machines that are wanted.")]
    readyReplicas: Annotated[Int32, Doc("The number of Machines that are ready.")]
    replicas: Annotated[Int32, Doc("The number of Machines.")]
    upToDateReplicas: Annotated[Int32, Doc("The number of Machines that are up to date.")]
    upgradePlan: Annotated[list[UpgradeStep], Doc("The versions that an upgrade still goes through."), Items(1, 32), Atomic()]
    versions: Annotated[
        list[StatusVersion], Doc("The versions of Kubernetes in use, and by how many Machines."), Items(1, 32), Atomic()
    ]


@rules(MinProperties(1))
class ClusterInitialization(TypedDict, total=False):
    """Steps of the initialization of the Cluster that are done; afterwards these fields do not change."""

    controlPlaneInitialized: Annotated[bool, Doc("The control plane has answered for the first time.")]
    infrastructureProvisioned: Annotated[bool, Doc("The infrastructure provider has made what the cluster lives on.")]


class FailureDomain(TypedDict, total=False):
    """A part of the infrastructure that may fail by itself."""

    attributes: Annotated[dict[str, str], Doc("The provider's attributes of it.")]
    controlPlane: Annotated[bool, Doc("Whether control-plane machines may run there.")]
    name: Required[Annotated[str, Doc("Its name."), Length(1, 256)]]


class ClusterDeprecated(TypedDict, total=False):
    """Deprecated fields, for older clients."""

    v1beta1: LegacyFailingStatus


@rules(MinProperties(1))
class ClusterStatus(TypedDict, total=False):
    """The observed state of a Cluster."""

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
