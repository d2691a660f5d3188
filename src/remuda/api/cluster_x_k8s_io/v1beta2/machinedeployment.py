"""MachineDeployment: a MachineSet at a time, and how to get from one to the next."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions
from ...schema import Doc, Int32, IntOrString, MinProperties, Object, Time, rules
from ..shared_types import (
    ClusterName,
    LegacyStatus,
    MachineDeploymentPhase,
    MachineSelector,
    Replicas,
    SelectorText,
    StrategyType,
    Versions,
)
from .machine import MachineTemplate, ObservedGeneration
from .machineset import MachineCounts, MachineNaming, ScaleDown

MaxInFlight = Annotated[
    IntOrString, Doc("The number of Machines that may be under remediation at once, as a number or a percentage.")
]
RolloutAfter = Annotated[Time, Doc("Machines that were made before this moment are replaced once it has come.")]


@rules(MinProperties(1))
class RollingUpdate(TypedDict, total=False):
    """The bounds of a rolling update; not both may be 0."""

    maxSurge: Annotated[
        IntOrString, Doc("The number of Machines that may exist beyond the wanted number, or a percentage. Default 1.")
    ]
    maxUnavailable: Annotated[IntOrString, Doc("The number of Machines that may be unavailable, or a percentage. Default 0.")]


@rules(MinProperties(1))
class RolloutStrategy(TypedDict, total=False):
    """The strategy by which Machines are replaced."""

    rollingUpdate: RollingUpdate
    type: Required[StrategyType]


@rules(MinProperties(1))
class Rollout(TypedDict, total=False):
    """The rollout: the time after which Machines are replaced, and the strategy."""

    after: RolloutAfter
    strategy: RolloutStrategy


@rules(MinProperties(1))
class RemediationLimit(TypedDict, total=False):
    """The limits for the replacement of unhealthy Machines."""

    maxInFlight: MaxInFlight


class MachineDeploymentSpec(TypedDict, total=False):
    """The desired state of a MachineDeployment."""

    clusterName: Required[ClusterName]
    deletion: ScaleDown
    machineNaming: MachineNaming
    paused: Annotated[bool, Doc("Nothing is rolled out while this is true.")]
    remediation: RemediationLimit
    replicas: Replicas
    rollout: Rollout
    selector: Required[MachineSelector]
    template: Required[MachineTemplate]


class MachineDeploymentLegacyStatus(LegacyStatus, total=False):
    """Status as v1beta1 knows it."""

    availableReplicas: Annotated[Int32, Doc("The number of Machines that have had a ready node for long enough.")]
    readyReplicas: Annotated[Int32, Doc("The number of Machines that have a ready node.")]
    unavailableReplicas: Annotated[Int32, Doc("The number of Machines that are missing for the wanted number to be available.")]
    updatedReplicas: Annotated[Int32, Doc("The number of Machines that are made from the template as it is now.")]


class MachineDeploymentDeprecated(TypedDict, total=False):
    """Deprecated fields, for older clients."""

    v1beta1: MachineDeploymentLegacyStatus


@rules(MinProperties(1))
class MachineDeploymentStatus(MachineCounts, total=False):
    """The observed state of a MachineDeployment."""

    conditions: Conditions
    deprecated: MachineDeploymentDeprecated
    observedGeneration: ObservedGeneration
    phase: MachineDeploymentPhase
    replicas: Annotated[Int32, Doc("The number of Machines.")]
    selector: SelectorText
    versions: Versions


class MachineDeployment(Object, total=False):
    """Keeps a number of Machines alive, and replaces them by new ones when what is wanted of them changes."""

    spec: Required[MachineDeploymentSpec]
    status: MachineDeploymentStatus
