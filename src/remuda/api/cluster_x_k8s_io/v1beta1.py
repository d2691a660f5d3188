"""The kinds of v1beta1, which is served for older clients and converted (`capi/conversion`); MachineDrainRule has one form."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ..kubernetes import DNS_LABEL, Conditions, ConditionStatus, NodeSystemInfo, ObjectReference
from ..schema import AtLeast, Atomic, Doc, Duration, Int32, IntOrString, Items, Length, ListMap, Object, Pattern, Time
from .shared_types import (
    AvailabilityGates,
    ClusterName,
    ClusterPhase,
    DeleteOrder,
    DeletionTimeouts,
    FailureDomainName,
    Gates,
    KubernetesVersion,
    LegacyFailingStatus,
    LegacyStatus,
    MachineDeploymentPhase,
    MachineSelector,
    NameTemplate,
    NewConditions,
    ObservedGeneration,
    Replicas,
    SelectorText,
    StrategyType,
    Taints,
    TemplateLabels,
    UnhealthyRange,
    Versions,
    WatchableConditionType,
)
from .shared_types import Variable as NewVariable
from .v1beta2.cluster import ClusterMachines, OfClass, RolloutMoment
from .v1beta2.machine import MachineAddress, MachineDeletionStatus
from .v1beta2.machinedeployment import MachineDeploymentLegacyStatus, MaxInFlight, RolloutAfter
from .v1beta2.machineset import MachineCounts, MachineSetLegacyStatus


class Bootstrap(TypedDict, total=False):
    """The source of the bootstrap data, which turns the machine into a node: one of both."""

    configRef: Annotated[ObjectReference, Doc("The object of a bootstrap provider that makes the data.")]
    dataSecretName: Annotated[str, Doc("The Secret that holds the data. Set by hand, no provider is asked."), Length(0, 253)]


class MachineSpec(DeletionTimeouts, total=False):
    """The desired state of a Machine."""

    bootstrap: Required[Bootstrap]
    clusterName: Required[ClusterName]
    failureDomain: FailureDomainName
    infrastructureRef: Required[Annotated[ObjectReference, Doc("The object of an infrastructure provider that is the machine.")]]
    providerID: Annotated[str, Doc("The machine's identity at its provider; equals its node's spec.providerID."), Length(1, 512)]
    readinessGates: Gates
    taints: Taints
    version: KubernetesVersion


class MachineStatus(LegacyFailingStatus, total=False):
    """The observed state of a Machine."""

    addresses: Annotated[list[MachineAddress], Doc("The machine's addresses.")]
    bootstrapReady: Annotated[bool, Doc("The bootstrap provider has made the data.")]
    certificatesExpiryDate: Annotated[Time, Doc("When the certificates of a control-plane machine expire.")]
    deletion: MachineDeletionStatus
    infrastructureReady: Annotated[bool, Doc("The infrastructure provider has made the machine.")]
    lastUpdated: Annotated[Time, Doc("When the phase last changed.")]
    nodeInfo: NodeSystemInfo
    nodeRef: Annotated[ObjectReference, Doc("The node that this Machine became.")]
    observedGeneration: ObservedGeneration
    phase: Annotated[
        Literal["Pending", "Provisioning", "Provisioned", "Running", "Deleting", "Deleted", "Failed", "Unknown"],
        Doc("The phase of the Machine, in one word."),
    ]
    v1beta2: NewConditions


class Machine(Object, total=False):
    """A machine that is to become, or is, a node of a Cluster."""

    spec: MachineSpec
    status: MachineStatus


class MachineTemplate(TypedDict, total=False):
    """The template of Machines."""

    metadata: TemplateLabels
    spec: MachineSpec


# --- machineset -----------------------------------------------------------------------------------------------------------

MinReadySeconds = Annotated[Int32, Doc("The time that a node must have been ready to count as available, in seconds.")]


class MachineNaming(TypedDict, total=False):
    """The names of new Machines."""

    template: NameTemplate


class MachineSetSpec(TypedDict, total=False):
    """The desired state of a MachineSet."""

    clusterName: Required[ClusterName]
    deletePolicy: DeleteOrder
    machineNamingStrategy: MachineNaming
    minReadySeconds: MinReadySeconds
    replicas: Replicas
    selector: Required[MachineSelector]
    template: MachineTemplate


class NewCounts(MachineCounts, total=False):
    """The fields of the status that v1beta2 has."""

    conditions: Conditions


class MachineSetStatus(MachineSetLegacyStatus, total=False):
    """The observed state of a MachineSet."""

    observedGeneration: ObservedGeneration
    replicas: Annotated[Int32, Doc("The number of Machines.")]
    selector: SelectorText
    v1beta2: NewCounts
    versions: Versions


class MachineSet(Object, total=False):
    """Keeps a number of Machines alive that are made from one template."""

    spec: MachineSetSpec
    status: MachineSetStatus


# --- machinedeployment ----------------------------------------------------------------------------------------------------


class RollingUpdate(TypedDict, total=False):
    """The bounds of a rolling update; not both may be 0."""

    deletePolicy: DeleteOrder
    maxSurge: Annotated[
        IntOrString, Doc("The number of Machines that may exist beyond the wanted number, or a percentage. Default 1.")
    ]
    maxUnavailable: Annotated[IntOrString, Doc("The number of Machines that may be unavailable, or a percentage. Default 0.")]


class RemediationStrategy(TypedDict, total=False):
    """The limits for the replacement of unhealthy Machines."""

    maxInFlight: MaxInFlight


class Strategy(TypedDict, total=False):
    """The strategy by which Machines are replaced."""

    remediation: RemediationStrategy
    rollingUpdate: RollingUpdate
    type: StrategyType


class MachineDeploymentSpec(TypedDict, total=False):
    """The desired state of a MachineDeployment."""

    clusterName: Required[ClusterName]
    machineNamingStrategy: MachineNaming
    minReadySeconds: MinReadySeconds
    paused: Annotated[bool, Doc("Nothing is rolled out while this is true.")]
    progressDeadlineSeconds: Annotated[Int32, Doc("Deprecated: has no effect.")]
    replicas: Replicas
    revisionHistoryLimit: Annotated[Int32, Doc("Deprecated: has no effect.")]
    rolloutAfter: RolloutAfter
    selector: Required[MachineSelector]
    strategy: Strategy
    template: Required[MachineTemplate]


class MachineDeploymentStatus(MachineDeploymentLegacyStatus, total=False):
    """The observed state of a MachineDeployment."""

    observedGeneration: ObservedGeneration
    phase: MachineDeploymentPhase
    replicas: Annotated[Int32, Doc("The number of Machines.")]
    selector: SelectorText
    v1beta2: NewCounts
    versions: Versions


class MachineDeployment(Object, total=False):
    """Keeps a number of Machines alive, and replaces them by new ones when what is wanted of them changes."""

    spec: MachineDeploymentSpec
    status: MachineDeploymentStatus


# --- machinehealthcheck ---------------------------------------------------------------------------------------------------

_Timeout = Annotated[Duration, Doc("The time that the condition must have had this status.")]


class UnhealthyNodeCondition(TypedDict, total=False):
    """A condition of the node that tells of bad health."""

    status: Required[Annotated[str, Doc("The status that is bad: True, False or Unknown."), Length(1)]]
    timeout: Required[_Timeout]
    type: Required[Annotated[str, Doc("The type of the node's condition."), Length(1)]]


class UnhealthyMachineCondition(TypedDict, total=False):
    """A condition of the Machine that tells of bad health."""

    status: Required[Annotated[ConditionStatus, Doc("The status that is bad.")]]
    timeout: Required[_Timeout]
    type: Required[WatchableConditionType]


class Checks(TypedDict, total=False):
    """The checks that find a Machine unhealthy, and its remediation."""

    maxUnhealthy: Annotated[
        IntOrString, Doc("Remediate only while at most this many Machines are unhealthy, as a number or a percentage.")
    ]
    nodeStartupTimeout: Annotated[Duration, Doc("The time that a Machine may take to become a node; 0: forever. Default 10m.")]
    remediationTemplate: Annotated[
        ObjectReference, Doc("The template of the objects that remediate in place of the Machine's owner.")
    ]
    unhealthyConditions: Annotated[
        list[UnhealthyNodeCondition], Doc("Conditions of the node that tell of bad health."), Items(most=100)
    ]
    unhealthyMachineConditions: Annotated[
        list[UnhealthyMachineCondition], Doc("Conditions of the Machine that tell of bad health."), Items(1, 100), Atomic()
    ]
    unhealthyRange: UnhealthyRange


class MachineHealthCheckSpec(Checks, total=False):
    """The selected Machines, and the checks."""

    clusterName: Required[ClusterName]
    selector: Required[MachineSelector]


class MachineHealthCheckStatus(LegacyStatus, total=False):
    """The observed state of the Machines that are watched."""

    currentHealthy: Annotated[Int32, Doc("The number of the Machines that are healthy."), AtLeast(0)]
    expectedMachines: Annotated[Int32, Doc("The number of Machines that are watched."), AtLeast(0)]
    observedGeneration: ObservedGeneration
    remediationsAllowed: Annotated[Int32, Doc("The number of further Machines that may be remediated now."), AtLeast(0)]
    targets: Annotated[
        list[Annotated[str, Length(1, 253)]], Doc("The names of the Machines that are watched."), Items(most=10000)
    ]
    v1beta2: NewConditions


class MachineHealthCheck(Object, total=False):
    """Watches Machines and has those replaced that are unhealthy."""

    spec: MachineHealthCheckSpec
    status: MachineHealthCheckStatus


# --- cluster --------------------------------------------------------------------------------------------------------------

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
    """The health check of Machines, and their remediation."""

    enable: Annotated[bool, Doc("Whether there is a MachineHealthCheck; missing: as the ClusterClass has it.")]


class ControlPlaneTopology(DeletionTimeouts, total=False):
    """The desired state of the control plane."""

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
    """The desired state of the workers."""

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
    """The desired state of the Cluster in terms of a ClusterClass."""

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
    pods: Annotated[NetworkRanges, Doc("The ranges of the addresses of pods.")]
    serviceDomain: Annotated[str, Doc("The DNS domain of services."), Length(1, 253)]
    services: Annotated[NetworkRanges, Doc("The ranges of the addresses of services.")]


class Endpoint(TypedDict, total=False):
    """The endpoint of the cluster's API; valid with host and port."""

    host: Annotated[str, Doc("The host name or address."), Length(most=512)]
    port: Annotated[Int32, Doc("The port.")]


class ClusterSpec(TypedDict, total=False):
    """The desired state of a Cluster."""

    availabilityGates: Annotated[AvailabilityGates, Items(most=32)]
    clusterNetwork: ClusterNetwork
    controlPlaneEndpoint: Endpoint
    controlPlaneRef: Annotated[ObjectReference, Doc("The object of a control-plane provider that runs the control plane.")]
    infrastructureRef: Annotated[ObjectReference, Doc("The object of an infrastructure provider that the cluster lives on.")]
    paused: Annotated[bool, Doc("Nothing that belongs to this Cluster is changed while this is true.")]
    topology: Topology


class FailureDomain(TypedDict, total=False):
    """A part of the infrastructure that may fail by itself."""

    attributes: Annotated[dict[str, str], Doc("The provider's attributes of it.")]
    controlPlane: Annotated[bool, Doc("Whether control-plane machines may run there.")]


class NewStatus(TypedDict, total=False):
    """The fields of the status that v1beta2 has."""

    conditions: Conditions
    controlPlane: Annotated[ClusterMachines, Doc("Control-plane Machines, counted.")]
    workers: Annotated[ClusterMachines, Doc("Worker Machines, counted.")]


class ClusterStatus(LegacyFailingStatus, total=False):
    """The observed state of a Cluster."""

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
