"""Node: a node of a managed cluster, as seen from here, in the namespace of that cluster. Kept open as :mod:`.cluster` is."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import Opaque, OpenCondition, Resources, Strings, Text
from ..kubernetes import Taint
from ..schema import Doc, NoEffect, Object, Preserve, rules


@rules(Preserve())
class CustomConfig(TypedDict, total=False):
    """The node's own description at its registration by a user."""

    address: Annotated[Text, Doc("The address for clients outside of the cluster.")]
    internalAddress: Annotated[Text, Doc("The address for the other nodes.")]
    label: Annotated[Strings, Doc("Labels it is to have.")]
    taints: Annotated[list[str] | None, Doc("Taints it is to have, as key=value:effect.")]


@rules(Preserve())
class LabelChanges(TypedDict, total=False):
    """Changes to a map."""

    add: Annotated[Strings, Doc("The entries to set.")]
    delete: Annotated[dict[str, bool] | None, Doc("The keys to remove.")]


@rules(Preserve())
class MetadataUpdate(TypedDict, total=False):
    """Changes to the node's metadata that are still to be made."""

    annotations: Annotated[LabelChanges | None, Doc("Changes to its annotations.")]
    labels: Annotated[LabelChanges | None, Doc("Changes to its labels.")]


@rules(Preserve())
class DrainInput(TypedDict, total=False):
    """The options of draining a node."""

    deleteLocalData: Annotated[bool | None, Doc("Go on although pods lose what is in their emptyDir volumes.")]
    force: Annotated[bool | None, Doc("Also delete pods that no controller recreates.")]
    gracePeriod: Annotated[int | None, Doc("The seconds a pod has to end; negative: what the pod itself says.")]
    ignoreDaemonSets: Annotated[bool | None, Doc("Leave pods of DaemonSets alone.")]
    timeout: Annotated[int | None, Doc("The seconds it may take.")]


@rules(Preserve())
class NodeSpec(TypedDict, total=False):
    """The desired state of the node."""

    controlPlane: Annotated[bool | None, Doc("It runs the control plane.")]
    customConfig: Annotated[CustomConfig | None, Doc("The node's own description at its registration by a user.")]
    description: Annotated[Text, Doc("A description, for people.")]
    desiredNodeTaints: Annotated[list[Taint] | None, NoEffect("taint the node in its cluster")]
    desiredNodeUnschedulable: Annotated[Text, NoEffect("cordon or drain the node in its cluster")]
    displayName: Annotated[Text, Doc("Its name for people.")]
    etcd: Annotated[bool | None, Doc("It runs etcd.")]
    imported: Annotated[bool | None, Doc("It was there already.")]
    internalNodeSpec: Annotated[Opaque, Doc("The spec of the Node in its cluster.")]
    metadataUpdate: Annotated[MetadataUpdate | None, NoEffect("label and annotate the node in its cluster")]
    nodeDrainInput: Annotated[DrainInput | None, NoEffect("drain the node in its cluster")]
    nodePoolName: Annotated[Text, NoEffect("machine pools are part of clusters.provisioning.cattle.io")]
    nodeTemplateName: Annotated[Text, NoEffect("machine configs are named by the pools of clusters.provisioning.cattle.io")]
    requestedHostname: Annotated[Text, Doc("The host name it is to have.")]
    scaledownTime: Annotated[Text, NoEffect("delete its Machine, or lower the quantity of its pool")]
    updateTaintsFromAPI: Annotated[bool | None, NoEffect("taint the node in its cluster")]
    worker: Annotated[bool | None, Doc("It runs what users bring.")]


@rules(Preserve())
class NodeStatus(TypedDict, total=False):
    """The observed state of the node."""

    appliedNodeVersion: Annotated[int | None, Doc("The plan that it last carried out, by number.")]
    conditions: Annotated[list[OpenCondition] | None, Doc("The state of this object, aspect by aspect.")]
    internalNodeStatus: Annotated[Opaque, Doc("The status of the Node in its cluster.")]
    limits: Annotated[Resources, Doc("The limits of its pods, added up.")]
    nodeAnnotations: Annotated[Strings, Doc("The annotations of the Node in its cluster.")]
    nodeLabels: Annotated[Strings, Doc("The labels of the Node in its cluster.")]
    nodeName: Annotated[Text, Doc("The name of the Node in its cluster.")]
    nodeTaints: Annotated[list[Taint] | None, Doc("The taints of the Node in its cluster.")]
    requested: Annotated[Resources, Doc("The requests of its pods, added up.")]


@rules(Preserve())
class Node(Object, total=False):
    """A node of a managed cluster, in the namespace of that cluster."""

    spec: Annotated[NodeSpec | None, Doc("The desired state of the node.")]
    status: Annotated[NodeStatus | None, Doc("The observed state of the node.")]
