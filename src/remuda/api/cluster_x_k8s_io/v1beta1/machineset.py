"""MachineSet, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ...kubernetes import Conditions
from ...schema import Doc, Int32, Object
from ..shared_types import (
    ClusterName,
    DeleteOrder,
    MachineSelector,
    NameTemplate,
    ObservedGeneration,
    Replicas,
    SelectorText,
    Versions,
)
from ..v1beta2.machineset import MachineCounts, MachineSetLegacyStatus
from .machine import MachineTemplate

MinReadySeconds = Annotated[Int32, Doc("How long a node must have been ready to count as available, in seconds.")]


class MachineNaming(TypedDict, total=False):
    """How Machines are named."""

    template: NameTemplate


class MachineSetSpec(TypedDict, total=False):
    """What is wanted of a MachineSet."""

    clusterName: Required[ClusterName]
    deletePolicy: DeleteOrder
    machineNamingStrategy: MachineNaming
    minReadySeconds: MinReadySeconds
    replicas: Replicas
    selector: Required[MachineSelector]
    template: MachineTemplate


class NewCounts(MachineCounts, total=False):
    """What v1beta2 says of the status."""

    conditions: Conditions


class MachineSetStatus(MachineSetLegacyStatus, total=False):
    """What is known of a MachineSet."""

    observedGeneration: ObservedGeneration
    replicas: Annotated[Int32, Doc("How many Machines there are.")]
    selector: SelectorText
    v1beta2: NewCounts
    versions: Versions


class MachineSet(Object, total=False):
    """Keeps a number of Machines alive that are made from one template."""

    spec: MachineSetSpec
    status: MachineSetStatus
