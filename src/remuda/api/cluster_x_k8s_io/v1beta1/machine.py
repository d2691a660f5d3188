"""Machine, as v1beta1 has it."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ...kubernetes import NodeSystemInfo, ObjectReference
from ...schema import Doc, Length, Object, Time
from ..shared_types import (
    ClusterName,
    DeletionTimeouts,
    FailureDomainName,
    Gates,
    KubernetesVersion,
    LegacyFailingStatus,
    NewConditions,
    ObservedGeneration,
    Taints,
    TemplateLabels,
)
from ..v1beta2.machine import MachineAddress, MachineDeletionStatus


class Bootstrap(TypedDict, total=False):
    """Where the data comes from that turns the machine into a node: one of both."""

    configRef: Annotated[ObjectReference, Doc("The object of a bootstrap provider that makes the data.")]
    dataSecretName: Annotated[str, Doc("The Secret that holds the data. Set by hand, no provider is asked."), Length(0, 253)]


class MachineSpec(DeletionTimeouts, total=False):
    """What is wanted of a Machine."""

    bootstrap: Required[Bootstrap]
    clusterName: Required[ClusterName]
    failureDomain: FailureDomainName
    infrastructureRef: Required[Annotated[ObjectReference, Doc("The object of an infrastructure provider that is the machine.")]]
    providerID: Annotated[str, Doc("The machine's identity at its provider; equals its node's spec.providerID."), Length(1, 512)]
    readinessGates: Gates
    taints: Taints
    version: KubernetesVersion


class MachineStatus(LegacyFailingStatus, total=False):
    """What is known of a Machine."""

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
        Doc("Where the Machine is in its life, in one word."),
    ]
    v1beta2: NewConditions


class Machine(Object, total=False):
    """A machine that is to become, or is, a node of a Cluster."""

    spec: MachineSpec
    status: MachineStatus


class MachineTemplate(TypedDict, total=False):
    """What Machines are made from."""

    metadata: TemplateLabels
    spec: MachineSpec
