"""Types of Kubernetes itself that our kinds have inside them."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from .schema import AtLeast, Atomic, Doc, Int64, Items, Length, ListMap, Pattern, Time, rules

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
    operator: Required[Annotated[str, Doc("How key and values relate: In, NotIn, Exists or DoesNotExist.")]]
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
            Doc("Why the condition has this status, as one CamelCase word."),
            Length(1, 1024),
            Pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        ]
    ]
    status: Required[Annotated[ConditionStatus, Doc("True, False or Unknown.")]]
    type: Required[Annotated[str, Doc("Which aspect this is, in CamelCase."), Length(most=316), Pattern(QUALIFIED_NAME)]]


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

    capacity: Annotated[Int64, Doc("How much there is, in bytes.")]


class NodeSystemInfo(TypedDict, total=False):
    """What a node says about its system."""

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
