"""MachineSet: a number of Machines from one template."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions
from ...schema import Doc, Int32, MinProperties, Object, rules
from ..shared_types import (
    ClusterName,
    DeleteOrder,
    LegacyFailingStatus,
    MachineSelector,
    NameTemplate,
    Replicas,
    SelectorText,
    Versions,
)
from .machine import MachineTemplate, ObservedGeneration


@rules(MinProperties(1))
class MachineNaming(TypedDict, total=False):
    """The names of new Machines."""

    template: NameTemplate


@rules(MinProperties(1))
class ScaleDown(TypedDict, total=False):
    """The order of deletion when there are too many Machines."""

    order: DeleteOrder


class MachineSetSpec(TypedDict, total=False):
    """The desired state of a MachineSet."""

    clusterName: Required[ClusterName]
    deletion: ScaleDown
    machineNaming: MachineNaming
    replicas: Replicas
    selector: Required[MachineSelector]
    template: Required[MachineTemplate]


class MachineCounts(TypedDict, total=False):
    """Machines counted by their conditions."""

    availableReplicas: Annotated[Int32, Doc("The number of Machines that are available.")]
    readyReplicas: Annotated[Int32, Doc("The number of Machines that are ready.")]
    upToDateReplicas: Annotated[Int32, Doc("The number of Machines that are as the template wants them.")]


class MachineSetLegacyStatus(LegacyFailingStatus, total=False):
    """Status as v1beta1 knows it."""

    availableReplicas: Annotated[Int32, Doc("The number of Machines that have had a ready node for long enough.")]
    fullyLabeledReplicas: Annotated[Int32, Doc("The number of Machines that have the labels of the template.")]
    readyReplicas: Annotated[Int32, Doc("The number of Machines that have a ready node.")]


class MachineSetDeprecated(TypedDict, total=False):
    """Deprecated fields, for older clients."""

    v1beta1: MachineSetLegacyStatus


@rules(MinProperties(1))
class MachineSetStatus(MachineCounts, total=False):
    """The observed state of a MachineSet."""

    conditions: Conditions
    deprecated: MachineSetDeprecated
    observedGeneration: ObservedGeneration
    replicas: Annotated[Int32, Doc("The number of Machines.")]
    selector: SelectorText
    versions: Versions


class MachineSet(Object, total=False):
    """Keeps a number of Machines alive that are made from one template."""

    spec: Required[MachineSetSpec]
    status: MachineSetStatus
