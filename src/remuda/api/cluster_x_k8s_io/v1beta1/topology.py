"""The topology of a Cluster, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import DNS_LABEL
from ...schema import Doc, Items, Length, ListMap, Pattern, Time
from ..shared_types import FailureDomainName, KubernetesVersion, Replicas, Taints, TemplateLabels
from ..shared_types import Variable as NewVariable
from ..v1beta2.topology import OfClass, RolloutMoment
from .machinedeployment import Strategy
from .machinehealthcheck import Checks
from .machineset import MinReadySeconds
from .shared_types import DeletionTimeouts, Gates

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
