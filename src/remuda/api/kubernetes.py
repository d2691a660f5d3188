"""Types of Kubernetes itself that our kinds have inside them."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from .schema import AtLeast, Atomic, Doc, Int32, Int64, IntOrString, Items, Length, ListMap, Pattern, Time, rules

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"

DNS_LABEL = f"^{_LABEL}$"
DNS_SUBDOMAIN = rf"^{_LABEL}(\.{_LABEL})*$"
QUALIFIED_NAME = rf"^({_LABEL}(\.{_LABEL})*/)?{_QUALIFIED}$"
LABEL_VALUE = f"^{_QUALIFIED}?$"
KIND_NAME = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"
API_VERSION = rf"^{_LABEL}(\.{_LABEL})*\/[a-z]([-a-z0-9]*[a-z0-9])?$"

ConditionStatus = Literal["True", "False", "Unknown"]


class LabelSelectorRequirement(TypedDict, total=False):
    """A test of one label."""

    key: Required[Annotated[str, Doc("The label's key.")]]
    operator: Required[Annotated[str, Doc("The relation of key and values: In, NotIn, Exists or DoesNotExist.")]]
    values: Annotated[list[str], Doc("The values of In and NotIn; empty with Exists and DoesNotExist."), Atomic()]


@rules(Atomic())
class LabelSelector(TypedDict, total=False):
    """Chooses objects by their labels; all tests must hold. An empty selector chooses all objects."""

    matchExpressions: Annotated[list[LabelSelectorRequirement], Doc("Tests of single labels."), Atomic()]
    matchLabels: Annotated[dict[str, str], Doc("Labels that an object must have, with these values.")]


class Condition(TypedDict, total=False):
    """One aspect of an object's state."""

    lastTransitionTime: Required[Annotated[Time, Doc("When the status last changed.")]]
    message: Required[Annotated[str, Doc("Details for people; may be empty."), Length(most=32768)]]
    observedGeneration: Annotated[Int64, Doc("The metadata.generation that this condition was set for."), AtLeast(0)]
    reason: Required[
        Annotated[
            str,
            Doc("The reason for the status, as one CamelCase word."),
            Length(1, 1024),
            Pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        ]
    ]
    status: Required[Annotated[ConditionStatus, Doc("True, False or Unknown.")]]
    type: Required[Annotated[str, Doc("The type of the condition, in CamelCase."), Length(most=316), Pattern(QUALIFIED_NAME)]]


Conditions = Annotated[list[Condition], Doc("The state of this object, aspect by aspect."), Items(most=32), ListMap("type")]


@rules(Atomic())
class ObjectReference(TypedDict, total=False):
    """Names another object."""

    apiVersion: Annotated[str, Doc("The API version of the object.")]
    fieldPath: Annotated[str, Doc("A part of the object, if not all of it is meant.")]
    kind: Annotated[str, Doc("The kind of the object.")]
    name: Annotated[str, Doc("The name of the object.")]
    namespace: Annotated[str, Doc("The namespace of the object.")]
    resourceVersion: Annotated[str, Doc("A certain state of the object, if one is meant.")]
    uid: Annotated[str, Doc("The UID of the object.")]


class NodeSwapStatus(TypedDict, total=False):
    """The swap memory of a node."""

    capacity: Annotated[Int64, Doc("The capacity, in bytes.")]


class NodeSystemInfo(TypedDict, total=False):
    """The node's report of its system."""

    architecture: Required[Annotated[str, Doc("The processor architecture.")]]
    bootID: Required[Annotated[str, Doc("Changes each time the node boots.")]]
    containerRuntimeVersion: Required[Annotated[str, Doc("The container runtime and its version, such as containerd://2.1.4.")]]
    kernelVersion: Required[Annotated[str, Doc("The version of the kernel.")]]
    kubeProxyVersion: Required[Annotated[str, Doc("Deprecated: the version of kube-proxy.")]]
    kubeletVersion: Required[Annotated[str, Doc("The version of the kubelet.")]]
    machineID: Required[Annotated[str, Doc("Tells this node from others in the cluster.")]]
    operatingSystem: Required[Annotated[str, Doc("The operating system, such as linux.")]]
    osImage: Required[Annotated[str, Doc("The name and version of the operating system's distribution.")]]
    swap: NodeSwapStatus
    systemUUID: Required[Annotated[str, Doc("The UUID of the hardware or virtual machine.")]]


# --- scheduling -----------------------------------------------------------------------------------------------------------
#
# Types of Kubernetes that say where pods may run and what they may use.

_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"

Quantity = Annotated[
    IntOrString,
    Doc("An amount, such as 500m or 2Gi."),
    Pattern(rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"),
]


class Toleration(TypedDict, total=False):
    """Lets a pod run on nodes that have a certain taint."""

    effect: Annotated[str, Doc("The taint's effect; empty: any. NoSchedule, PreferNoSchedule or NoExecute.")]
    key: Annotated[str, Doc("The taint's key; empty: any, with the operator Exists.")]
    operator: Annotated[str, Doc("The comparison of the value: Exists, Equal, Lt or Gt. Default Equal.")]
    tolerationSeconds: Annotated[Int64, Doc("The time that a taint that evicts is tolerated, in seconds; unset: forever.")]
    value: Annotated[str, Doc("The taint's value.")]


class Taint(TypedDict, total=False):
    """Keeps pods that do not tolerate it away from a node."""

    effect: Required[Annotated[str, Doc("The effect on such pods: NoSchedule, PreferNoSchedule or NoExecute.")]]
    key: Required[Annotated[str, Doc("The taint's key.")]]
    timeAdded: Annotated[Time, Doc("When the taint was added.")]
    value: Annotated[str, Doc("The taint's value.")]


class NodeSelectorRequirement(TypedDict, total=False):
    """A test of one label or field of a node."""

    key: Required[Annotated[str, Doc("The label's key, or the field.")]]
    operator: Required[Annotated[str, Doc("The relation of key and values: In, NotIn, Exists, DoesNotExist, Gt or Lt.")]]
    values: Annotated[
        list[str], Doc("The values of the comparison; none with Exists and DoesNotExist, one number with Gt and Lt."), Atomic()
    ]


@rules(Atomic())
class NodeSelectorTerm(TypedDict, total=False):
    """Chooses nodes; all tests must hold. A term without tests chooses none."""

    matchExpressions: Annotated[list[NodeSelectorRequirement], Doc("Tests of the node's labels."), Atomic()]
    matchFields: Annotated[list[NodeSelectorRequirement], Doc("Tests of the node's fields."), Atomic()]


@rules(Atomic())
class NodeSelector(TypedDict, total=False):
    """Chooses nodes; one of the terms must hold."""

    nodeSelectorTerms: Required[Annotated[list[NodeSelectorTerm], Doc("The terms."), Atomic()]]


class PreferredSchedulingTerm(TypedDict, total=False):
    """Nodes that are liked better than others."""

    preference: Required[Annotated[NodeSelectorTerm, Doc("The selected nodes.")]]
    weight: Required[Annotated[Int32, Doc("The weight of the preference, from 1 to 100.")]]


class NodeAffinity(TypedDict, total=False):
    """The nodes that a pod requires or prefers."""

    preferredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[PreferredSchedulingTerm], Doc("Nodes that would be good."), Atomic()
    ]
    requiredDuringSchedulingIgnoredDuringExecution: Annotated[NodeSelector, Doc("Nodes that are possible at all.")]


class PodAffinityTerm(TypedDict, total=False):
    """Pods to be near to, or away from."""

    labelSelector: Annotated[LabelSelector, Doc("The selected pods; unset: none.")]
    matchLabelKeys: Annotated[list[str], Doc("Labels in which those pods must be like this one."), Atomic()]
    mismatchLabelKeys: Annotated[list[str], Doc("Labels in which those pods must be unlike this one."), Atomic()]
    namespaces: Annotated[list[str], Doc("In which namespaces, by name; nothing at all: that of this pod."), Atomic()]
    namespaceSelector: Annotated[LabelSelector, Doc("In which namespaces besides, by their labels.")]
    topologyKey: Required[Annotated[str, Doc("The node label whose value makes places the same or different.")]]


class WeightedPodAffinityTerm(TypedDict, total=False):
    """Places that are liked better than others."""

    podAffinityTerm: Required[Annotated[PodAffinityTerm, Doc("The selected pods.")]]
    weight: Required[Annotated[Int32, Doc("The weight of the preference, from 1 to 100.")]]


class PodAffinity(TypedDict, total=False):
    """The other pods that decide where a pod runs."""

    preferredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[WeightedPodAffinityTerm], Doc("Places that would be good."), Atomic()
    ]
    requiredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[PodAffinityTerm], Doc("The requirements of a place; all must be met."), Atomic()
    ]


class Affinity(TypedDict, total=False):
    """The constraints on the nodes of a pod."""

    nodeAffinity: Annotated[NodeAffinity, Doc("The affinity to nodes.")]
    podAffinity: Annotated[PodAffinity, Doc("The affinity to other pods.")]
    podAntiAffinity: Annotated[PodAffinity, Doc("The anti-affinity to other pods.")]


class ResourceClaim(TypedDict, total=False):
    """One of the resource claims of the pod."""

    name: Required[Annotated[str, Doc("The name of the claim in the pod.")]]
    request: Annotated[str, Doc("One request of that claim; empty: all of it.")]


class ResourceRequirements(TypedDict, total=False):
    """The resources of a container."""

    claims: Annotated[list[ResourceClaim], Doc("Resource claims of the pod that it uses."), ListMap("name")]
    limits: Annotated[dict[str, Quantity], Doc("The most it gets of each resource.")]
    requests: Annotated[dict[str, Quantity], Doc("The guaranteed amount of each resource.")]
