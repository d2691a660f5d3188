"""A pool of machines of a cluster: it becomes a MachineDeployment of Cluster API."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..cattle import Text
from ..kubernetes import ObjectReference, Taint
from ..schema import (
    AtLeast,
    Between,
    Cel,
    Default,
    Doc,
    Duration,
    Form,
    Int32,
    IntOrString,
    Length,
    Names,
    NoEffect,
    Pattern,
    Rule,
    rules,
)

HostnameLength = Annotated[
    int, Doc("The maximum length of a machine's host name; longer ones are cut. Default 63."), Between(10, 63)
]
CredentialName = Annotated[Text, Length(most=317), Names("", "secrets", Form.CREDENTIAL)]


def _never_empty(role: str) -> Rule:
    """A cluster that lost its last machine of this role would be lost itself."""
    field = role[0].lower() + role[1:]
    return Cel(
        f"!has(self.{field}) || !self.{field} || !has(self.autoscalingMinSize) || self.autoscalingMinSize > 0",
        f"AutoscalingMinSize must be greater than 0 when {role} is true",
    )


class RollingUpdate(TypedDict, total=False):
    """The rollout strategy of the machines."""

    maxSurge: Annotated[IntOrString | None, Doc("The number of machines beyond the wanted number, or a percentage. Default 1.")]
    maxUnavailable: Annotated[IntOrString | None, Doc("The number that may be missing, as a number or a percentage. Default 0.")]


class Userdata(TypedDict, total=False):
    """User data of the machines' first start; for providers that are not Rancher's."""

    inlineUserdata: Annotated[Text, Doc("The text of it, as cloud-config.")]


class MachinePoolDefaults(TypedDict, total=False):
    """Defaults of the pools."""

    hostnameLengthLimit: HostnameLength


@rules(
    _never_empty("ControlPlaneRole"),
    _never_empty("EtcdRole"),
    Cel(
        "!has(self.autoscalingMaxSize) || !has(self.autoscalingMinSize) || self.autoscalingMinSize <= self.autoscalingMaxSize",
        "AutoscalingMinSize must be less than or equal to AutoscalingMaxSize when both are non-nil",
    ),
    Cel(
        "has(self.autoscalingMinSize) == has(self.autoscalingMaxSize)",
        "AutoscalingMinSize and AutoscalingMaxSize must both be set if enabling cluster-autoscaling",
    ),
)
class MachinePool(TypedDict, total=False):
    """Machines that are alike."""

    autoscalingMaxSize: Annotated[Int32 | None, Doc("The most machines that the autoscaler makes.")]
    autoscalingMinSize: Annotated[Int32 | None, Doc("The fewest machines that the autoscaler leaves.")]
    cloudCredentialSecretName: Annotated[CredentialName, Doc("The Secret to make machines with, instead of the cluster's.")]
    controlPlaneRole: Annotated[bool, Doc("The machines run the control plane.")]
    displayName: Annotated[Text, NoEffect("a pool is shown by its name")]
    drainBeforeDelete: Annotated[bool, Doc("Drain a machine before it is deleted.")]
    drainBeforeDeleteTimeout: Annotated[Duration | None, Doc("The time limit of the drain, such as 10m; unset: forever.")]
    dynamicSchemaSpec: Annotated[Text, Doc("The fields of the driver's machines when the pool was made, as JSON.")]
    etcdRole: Annotated[bool, Doc("The machines run etcd.")]
    hostnameLengthLimit: HostnameLength
    hostnamePrefix: Annotated[Text, NoEffect("host names begin with the names of cluster and pool")]
    labels: Annotated[dict[str, str] | None, Doc("Labels of the nodes, and of the Machines.")]
    machineConfigRef: Required[
        Annotated[
            ObjectReference | None,
            Doc("The object that says what the machines are like; without apiVersion it is of rke-machine-config.cattle.io/v1."),
            Names("rke-machine-config.cattle.io", "", Form.OBJECT),
        ]
    ]
    machineDeploymentAnnotations: Annotated[dict[str, str] | None, Doc("Annotations of the MachineDeployment.")]
    machineDeploymentLabels: Annotated[dict[str, str] | None, Doc("Labels of the MachineDeployment.")]
    machineOS: Annotated[
        Text,
        Doc("The operating system: linux or windows. Machines with Windows get no plan yet."),
        Pattern("^(linux|windows|)$"),
        Default("linux"),
    ]
    maxUnhealthy: Annotated[
        Text, Doc("Unhealthy machines are replaced while at most this many are, as a number or a percentage; empty: always.")
    ]
    name: Required[Annotated[str, Doc("The name of the pool in its cluster."), Length(1)]]
    nodeStartupTimeout: Annotated[
        Duration | None,
        Doc("The time that a machine may take to become a node; 0: forever. Default 10m. Counts with unhealthyNodeTimeout."),
    ]
    paused: Annotated[
        bool, Doc("Leave the machines as they are, also when their machine config changes; how many there are still counts.")
    ]
    quantity: Annotated[Int32 | None, Doc("The number of machines; unset: another controller sets it."), AtLeast(0)]
    rollingUpdate: Annotated[RollingUpdate | None, Doc("The rollout strategy of the machines.")]
    taints: Annotated[list[Taint] | None, Doc("Taints of the nodes.")]
    unhealthyNodeTimeout: Annotated[
        Duration | None, Doc("The time that a node may be not ready before its machine is replaced; unset or 0: forever.")
    ]
    unhealthyRange: Annotated[Text, Doc("Unhealthy machines are replaced while their number is in this range, such as [1-3].")]
    userdata: Annotated[Userdata | None, Doc("User data of the machines' first start.")]
    workerRole: Annotated[bool, Doc("The machines run what users bring.")]
