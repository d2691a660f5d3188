"""Machine: one machine that is to become a node."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ...kubernetes import Conditions, NodeSystemInfo
from ...schema import AtLeast, Atomic, Doc, Int64, Items, Length, MinProperties, Object, Time, rules
from ..shared_types import (
    ClusterName,
    FailureDomainName,
    KubernetesVersion,
    LegacyFailingStatus,
    ObjectMeta,
    ReadinessGates,
    Reference,
    Seconds,
    Subdomain,
    Taints,
)

Gates = Annotated[ReadinessGates, Items(1, 32)]
MinReadySeconds = Annotated[Seconds, Doc("The time that a Machine must have been ready to count as available, in seconds.")]
ObservedGeneration = Annotated[Int64, Doc("The metadata.generation that this status is about."), AtLeast(1)]


class Bootstrap(TypedDict, total=False):
    """The source of the bootstrap data, which turns the machine into a node: one of both."""

    configRef: Annotated[Reference, Doc("The object of a bootstrap provider that makes the data.")]
    dataSecretName: Annotated[str, Doc("The Secret that holds the data. Set by hand, no provider is asked."), Length(0, 253)]


@rules(MinProperties(1))
class DeletionTimeouts(TypedDict, total=False):
    """The timeouts of the steps of a Machine's deletion."""

    nodeDeletionTimeoutSeconds: Annotated[Seconds, Doc("The time to try to delete the node; 0: until it is done. Default 10.")]
    nodeDrainTimeoutSeconds: Annotated[
        Seconds, Doc("The time that draining the node may take; 0, the default: as long as it needs.")
    ]
    nodeVolumeDetachTimeoutSeconds: Annotated[
        Seconds, Doc("The time to wait for volumes to be detached; 0, the default: as long as it needs.")
    ]


class MachineSpec(TypedDict, total=False):
    """The desired state of a Machine."""

    bootstrap: Required[Bootstrap]
    clusterName: Required[ClusterName]
    deletion: DeletionTimeouts
    failureDomain: FailureDomainName
    infrastructureRef: Required[Annotated[Reference, Doc("The object of an infrastructure provider that is the machine.")]]
    minReadySeconds: MinReadySeconds
    providerID: Annotated[str, Doc("The machine's identity at its provider; equals its node's spec.providerID."), Length(1, 512)]
    readinessGates: Gates
    taints: Taints
    version: KubernetesVersion


class MachineAddress(TypedDict, total=False):
    """An address of the machine."""

    address: Required[Annotated[str, Doc("The address itself."), Length(1, 256)]]
    type: Required[
        Annotated[Literal["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"], Doc("The type of the address.")]
    ]


class NodeReference(TypedDict, total=False):
    """The node that this Machine became."""

    name: Required[Annotated[Subdomain, Doc("The node's name.")]]


@rules(MinProperties(1))
class MachineInitialization(TypedDict, total=False):
    """Steps of the initialization of the Machine that are done; afterwards these fields do not change."""

    bootstrapDataSecretCreated: Annotated[bool, Doc("The bootstrap provider has made the data.")]
    infrastructureProvisioned: Annotated[bool, Doc("The infrastructure provider has made the machine.")]


class MachineDeletionStatus(TypedDict, total=False):
    """The progress of the Machine's deletion."""

    nodeDrainStartTime: Annotated[Time, Doc("When draining the node began.")]
    waitForNodeVolumeDetachStartTime: Annotated[Time, Doc("When waiting for volumes to be detached began.")]
    waitForPreDrainHookStartTime: Annotated[Time, Doc("When waiting for pre-drain hooks began.")]
    waitForPreTerminateHookStartTime: Annotated[Time, Doc("When waiting for pre-terminate hooks began.")]


class MachineDeprecated(TypedDict, total=False):
    """Deprecated fields, for older clients."""

    v1beta1: LegacyFailingStatus


@rules(MinProperties(1))
class MachineStatus(TypedDict, total=False):
    """The observed state of a Machine."""

    addresses: Annotated[list[MachineAddress], Doc("The machine's addresses."), Items(most=256), Atomic()]
    certificatesExpiryDate: Annotated[Time, Doc("When the certificates of a control-plane machine expire.")]
    conditions: Conditions
    deletion: MachineDeletionStatus
    deprecated: MachineDeprecated
    failureDomain: Annotated[FailureDomainName, Doc("The failure domain that the machine runs in.")]
    initialization: MachineInitialization
    lastUpdated: Annotated[Time, Doc("When the phase last changed.")]
    nodeInfo: NodeSystemInfo
    nodeRef: NodeReference
    observedGeneration: ObservedGeneration
    phase: Annotated[
        Literal["Pending", "Provisioning", "Provisioned", "Running", "Updating", "Deleting", "Deleted", "Failed", "Unknown"],
        Doc("The phase of the Machine, in one word. Conditions say more."),
    ]


class Machine(Object, total=False):
    """A machine that is to become, or is, a node of a Cluster."""

    spec: Required[MachineSpec]
    status: MachineStatus


class MachineTemplate(TypedDict, total=False):
    """The template of Machines."""

    metadata: ObjectMeta
    spec: Required[MachineSpec]
