"""Types of Kubernetes that say where pods may run and what they may use; :mod:`.kubernetes` has the other ones."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from .kubernetes import LabelSelector
from .schema import Atomic, Doc, Int32, Int64, IntOrString, ListMap, Pattern, Time, rules

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
    operator: Annotated[str, Doc("How the value is compared: Exists, Equal, Lt or Gt. Default Equal.")]
    tolerationSeconds: Annotated[Int64, Doc("How long a taint that evicts is tolerated, in seconds; unset: forever.")]
    value: Annotated[str, Doc("The taint's value.")]


class Taint(TypedDict, total=False):
    """Keeps pods that do not tolerate it away from a node."""

    effect: Required[Annotated[str, Doc("What happens to such pods: NoSchedule, PreferNoSchedule or NoExecute.")]]
    key: Required[Annotated[str, Doc("The taint's key.")]]
    timeAdded: Annotated[Time, Doc("When the taint was added.")]
    value: Annotated[str, Doc("The taint's value.")]


class NodeSelectorRequirement(TypedDict, total=False):
    """A test of one label or field of a node."""

    key: Required[Annotated[str, Doc("The label's key, or the field.")]]
    operator: Required[Annotated[str, Doc("How key and values relate: In, NotIn, Exists, DoesNotExist, Gt or Lt.")]]
    values: Annotated[
        list[str], Doc("What is compared with; none with Exists and DoesNotExist, one number with Gt and Lt."), Atomic()
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

    preference: Required[Annotated[NodeSelectorTerm, Doc("Which nodes.")]]
    weight: Required[Annotated[Int32, Doc("How much better, from 1 to 100.")]]


class NodeAffinity(TypedDict, total=False):
    """Which nodes a pod wants."""

    preferredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[PreferredSchedulingTerm], Doc("Nodes that would be good."), Atomic()
    ]
    requiredDuringSchedulingIgnoredDuringExecution: Annotated[NodeSelector, Doc("Nodes that are possible at all.")]


class PodAffinityTerm(TypedDict, total=False):
    """Pods to be near to, or away from."""

    labelSelector: Annotated[LabelSelector, Doc("Which pods; unset: none.")]
    matchLabelKeys: Annotated[list[str], Doc("Labels in which those pods must be like this one."), Atomic()]
    mismatchLabelKeys: Annotated[list[str], Doc("Labels in which those pods must be unlike this one."), Atomic()]
    namespaces: Annotated[list[str], Doc("In which namespaces, by name; nothing at all: that of this pod."), Atomic()]
    namespaceSelector: Annotated[LabelSelector, Doc("In which namespaces besides, by their labels.")]
    topologyKey: Required[Annotated[str, Doc("The node label whose value makes places the same or different.")]]


class WeightedPodAffinityTerm(TypedDict, total=False):
    """Places that are liked better than others."""

    podAffinityTerm: Required[Annotated[PodAffinityTerm, Doc("Which pods there.")]]
    weight: Required[Annotated[Int32, Doc("How much better, from 1 to 100.")]]


class PodAffinity(TypedDict, total=False):
    """Which other pods decide where a pod runs."""

    preferredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[WeightedPodAffinityTerm], Doc("Places that would be good."), Atomic()
    ]
    requiredDuringSchedulingIgnoredDuringExecution: Annotated[
        list[PodAffinityTerm], Doc("What must hold of a place; all of it."), Atomic()
    ]


class Affinity(TypedDict, total=False):
    """Where a pod may run."""

    nodeAffinity: Annotated[NodeAffinity, Doc("Which nodes it wants.")]
    podAffinity: Annotated[PodAffinity, Doc("Which pods it wants to be near to.")]
    podAntiAffinity: Annotated[PodAffinity, Doc("Which pods it wants to be away from.")]


class ResourceClaim(TypedDict, total=False):
    """One of the resource claims of the pod."""

    name: Required[Annotated[str, Doc("The name of the claim in the pod.")]]
    request: Annotated[str, Doc("One request of that claim; empty: all of it.")]


class ResourceRequirements(TypedDict, total=False):
    """What a container may use."""

    claims: Annotated[list[ResourceClaim], Doc("Resource claims of the pod that it uses."), ListMap("name")]
    limits: Annotated[dict[str, Quantity], Doc("The most it gets of each resource.")]
    requests: Annotated[dict[str, Quantity], Doc("What it is sure to get of each resource.")]
