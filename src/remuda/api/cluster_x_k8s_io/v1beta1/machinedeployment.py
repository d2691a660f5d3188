"""MachineDeployment, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...schema import Doc, Int32, IntOrString, Object
from ..shared_types import (
    ClusterName,
    DeleteOrder,
    MachineDeploymentPhase,
    MachineSelector,
    ObservedGeneration,
    Replicas,
    SelectorText,
    StrategyType,
    Versions,
)
from ..v1beta2.machinedeployment import MachineDeploymentLegacyStatus, MaxInFlight, RolloutAfter
from .machine import MachineTemplate
from .machineset import MachineNaming, MinReadySeconds, NewCounts


class RollingUpdate(TypedDict, total=False):
    """The bounds of a rolling update; not both may be 0."""

    deletePolicy: DeleteOrder
    maxSurge: Annotated[IntOrString, Doc("How many Machines may exist beyond the wanted number, or a percentage. Default 1.")]
    maxUnavailable: Annotated[IntOrString, Doc("How many Machines may be unavailable, or a percentage. Default 0.")]


class RemediationStrategy(TypedDict, total=False):
    """How unhealthy Machines are replaced."""

    maxInFlight: MaxInFlight


class Strategy(TypedDict, total=False):
    """How Machines are replaced."""

    remediation: RemediationStrategy
    rollingUpdate: RollingUpdate
    type: StrategyType


class MachineDeploymentSpec(TypedDict, total=False):
    """What is wanted of a MachineDeployment."""

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
    """What is known of a MachineDeployment."""

    observedGeneration: ObservedGeneration
    phase: MachineDeploymentPhase
    replicas: Annotated[Int32, Doc("How many Machines there are.")]
    selector: SelectorText
    v1beta2: NewCounts
    versions: Versions


class MachineDeployment(Object, total=False):
    """Keeps a number of Machines alive, and replaces them by new ones when what is wanted of them changes."""

    spec: MachineDeploymentSpec
    status: MachineDeploymentStatus
