"""MachineHealthCheck: which Machines are unhealthy, and what is done about them."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions, ConditionStatus
from ...schema import AtLeast, Atomic, Doc, Int32, IntOrString, Items, Length, MinProperties, Object, rules
from ..shared_types import (
    ClusterName,
    LegacyStatus,
    MachineSelector,
    Seconds,
    TemplateReference,
    UnhealthyRange,
    WatchableConditionType,
)
from .machine import ObservedGeneration

_Timeout = Annotated[Seconds, Doc("The time that the condition must have had this status, in seconds.")]


class UnhealthyNodeCondition(TypedDict, total=False):
    """A condition of the node that tells of bad health."""

    status: Required[Annotated[str, Doc("The status that is bad: True, False or Unknown."), Length(1)]]
    timeoutSeconds: Required[_Timeout]
    type: Required[Annotated[str, Doc("The type of the node's condition."), Length(1)]]


class UnhealthyMachineCondition(TypedDict, total=False):
    """A condition of the Machine that tells of bad health."""

    status: Required[Annotated[ConditionStatus, Doc("The status that is bad.")]]
    timeoutSeconds: Required[_Timeout]
    type: Required[WatchableConditionType]


@rules(MinProperties(1))
class Checks(TypedDict, total=False):
    """The conditions of an unhealthy Machine; any one of these is enough."""

    nodeStartupTimeoutSeconds: Annotated[
        Seconds, Doc("The time that a Machine may take to become a node; 0: forever. Default 600.")
    ]
    unhealthyMachineConditions: Annotated[
        list[UnhealthyMachineCondition], Doc("Conditions of the Machine that tell of bad health."), Items(1, 100), Atomic()
    ]
    unhealthyNodeConditions: Annotated[
        list[UnhealthyNodeCondition], Doc("Conditions of the node that tell of bad health."), Items(1, 100), Atomic()
    ]


@rules(MinProperties(1))
class RemediationTrigger(TypedDict, total=False):
    """The limits of remediation: above them, people should look at the failures first."""

    unhealthyInRange: UnhealthyRange
    unhealthyLessThanOrEqualTo: Annotated[
        IntOrString, Doc("Remediate only while at most this many Machines are unhealthy, as a number or a percentage.")
    ]


@rules(MinProperties(1))
class Remediation(TypedDict, total=False):
    """The remediation of unhealthy Machines."""

    templateRef: Annotated[TemplateReference, Doc("The template of the objects that remediate in place of the Machine's owner.")]
    triggerIf: RemediationTrigger


class MachineHealthCheckSpec(TypedDict, total=False):
    """The selected Machines, and the checks."""

    checks: Checks
    clusterName: Required[ClusterName]
    remediation: Remediation
    selector: Required[MachineSelector]


class MachineHealthCheckDeprecated(TypedDict, total=False):
    """Deprecated fields, for older clients."""

    v1beta1: LegacyStatus


@rules(MinProperties(1))
class MachineHealthCheckStatus(TypedDict, total=False):
    """The observed state of the Machines that are watched."""

    conditions: Conditions
    currentHealthy: Annotated[Int32, Doc("The number of the Machines that are healthy."), AtLeast(0)]
    deprecated: MachineHealthCheckDeprecated
    expectedMachines: Annotated[Int32, Doc("The number of Machines that are watched."), AtLeast(0)]
    observedGeneration: ObservedGeneration
    remediationsAllowed: Annotated[Int32, Doc("The number of further Machines that may be remediated now."), AtLeast(0)]
    targets: Annotated[
        list[Annotated[str, Length(1, 253)]], Doc("The names of the Machines that are watched."), Items(most=10000), Atomic()
    ]


class MachineHealthCheck(Object, total=False):
    """Watches Machines and has those replaced that are unhealthy."""

    spec: Required[MachineHealthCheckSpec]
    status: MachineHealthCheckStatus
