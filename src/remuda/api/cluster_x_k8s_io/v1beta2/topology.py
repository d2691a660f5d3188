"""The topology of a Cluster: what is wanted of it in terms of a ClusterClass."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import DNS_LABEL, DNS_SUBDOMAIN
from ...schema import Atomic, Doc, Items, Length, ListMap, MinProperties, Pattern, rules
from ..shared_types import DeleteOrder, FailureDomainName, KubernetesVersion, Replicas, Subdomain, Taints, Variable
from .machine import DeletionTimeouts, Gates, MinReadySeconds
from .machinedeployment import MaxInFlight, Rollout, RolloutAfter
from .machinehealthcheck import Checks, Remediation
from .references import ObjectMeta

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
    """When control-plane Machines are unhealthy, and what is done about it."""

    checks: Checks
    enabled: _Enabled
    remediation: Remediation


@rules(MinProperties(1))
class WorkerRemediation(Remediation, total=False):
    """What is done about unhealthy Machines."""

    maxInFlight: MaxInFlight


@rules(MinProperties(1))
class WorkerHealthCheck(TypedDict, total=False):
    """When worker Machines are unhealthy, and what is done about it."""

    checks: Checks
    enabled: _Enabled
    remediation: WorkerRemediation


@rules(MinProperties(1))
class RolloutMoment(TypedDict, total=False):
    """When Machines are replaced."""

    after: RolloutAfter


@rules(MinProperties(1))
class ControlPlaneTopology(TypedDict, total=False):
    """What is wanted of the control plane."""

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
    """How worker Machines are deleted."""

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
    """What is wanted of the workers."""

    machineDeployments: Annotated[
        list[MachineDeploymentTopology], Doc("The MachineDeployments that are wanted."), Items(1, 2000), ListMap("name")
    ]
    machinePools: Annotated[list[MachinePoolTopology], Doc("The MachinePools that are wanted."), Items(1, 2000), ListMap("name")]


class Topology(TypedDict, total=False):
    """What is wanted of the Cluster in terms of a ClusterClass."""

    classRef: Required[ClassReference]
    controlPlane: ControlPlaneTopology
    variables: _Variables
    version: Required[KubernetesVersion]
    workers: WorkersTopology
