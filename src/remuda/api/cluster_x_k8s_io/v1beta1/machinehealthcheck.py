"""MachineHealthCheck, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import ConditionStatus, ObjectReference
from ...schema import AtLeast, Atomic, Doc, Duration, Int32, IntOrString, Items, Length, Object
from ..shared_types import (
    ClusterName,
    LegacyStatus,
    MachineSelector,
    NewConditions,
    ObservedGeneration,
    UnhealthyRange,
    WatchableConditionType,
)

_Timeout = Annotated[Duration, Doc("How long the condition must have had this status.")]


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
    """What makes a Machine unhealthy, and what is done about it."""

    maxUnhealthy: Annotated[
        IntOrString, Doc("Remediate only while at most this many Machines are unhealthy, as a number or a percentage.")
    ]
    nodeStartupTimeout: Annotated[Duration, Doc("How long a Machine may take to become a node; 0: forever. Default 10m.")]
    remediationTemplate: Annotated[ObjectReference, Doc("What remediates, instead of the owner of the Machine.")]
    unhealthyConditions: Annotated[
        list[UnhealthyNodeCondition], Doc("Conditions of the node that tell of bad health."), Items(most=100)
    ]
    unhealthyMachineConditions: Annotated[
        list[UnhealthyMachineCondition], Doc("Conditions of the Machine that tell of bad health."), Items(1, 100), Atomic()
    ]
    unhealthyRange: UnhealthyRange


class MachineHealthCheckSpec(Checks, total=False):
    """Which Machines are watched, and for what."""

    clusterName: Required[ClusterName]
    selector: Required[MachineSelector]


class MachineHealthCheckStatus(LegacyStatus, total=False):
    """What is known of the Machines that are watched."""

    currentHealthy: Annotated[Int32, Doc("How many of the Machines are healthy."), AtLeast(0)]
    expectedMachines: Annotated[Int32, Doc("How many Machines are watched."), AtLeast(0)]
    observedGeneration: ObservedGeneration
    remediationsAllowed: Annotated[Int32, Doc("How many more Machines may be remediated now."), AtLeast(0)]
    targets: Annotated[
        list[Annotated[str, Length(1, 253)]], Doc("The names of the Machines that are watched."), Items(most=10000)
    ]
    v1beta2: NewConditions


class MachineHealthCheck(Object, total=False):
    """Watches Machines and has those replaced that are unhealthy."""

    spec: MachineHealthCheckSpec
    status: MachineHealthCheckStatus
