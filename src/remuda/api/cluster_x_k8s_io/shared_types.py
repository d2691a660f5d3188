"""Types that the kinds of this group share, in both versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypedDict

from ..kubernetes import API_VERSION, DNS_SUBDOMAIN, KIND_NAME, LABEL_VALUE, QUALIFIED_NAME, Conditions, LabelSelector
from ..schema import AtLeast, Cel, Doc, Duration, Int32, Int64, Items, Length, ListMap, MinProperties, Pattern, Time, rules

_TAINT_KEY = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
_UNWATCHABLE = ("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")

ClusterName = Annotated[str, Doc("The name of the Cluster that this object belongs to."), Length(1, 63)]
KubernetesVersion = Annotated[str, Doc("The version of Kubernetes, such as v1.33.1."), Length(1, 256)]
FailureDomainName = Annotated[str, Doc("The failure domain, one that the infrastructure offers."), Length(1, 256)]
Replicas = Annotated[Int32, Doc("The number of Machines that are wanted.")]
Subdomain = Annotated[str, Length(1, 253), Pattern(DNS_SUBDOMAIN)]
SelectorText = Annotated[str, Doc("The selector as text, for the scale subresource."), Length(1, 4096)]
MachineSelector = Annotated[LabelSelector, Doc("Chooses Machines by their labels.")]
ConditionType = Annotated[str, Doc("The type of the condition."), Length(1, 316), Pattern(QUALIFIED_NAME)]
NameTemplate = Annotated[
    str,
    Doc("The template for names of Machines; knows .cluster.name, .machineSet.name and .random, which it must contain."),
    Length(1, 256),
]
UnhealthyRange = Annotated[
    str,
    Doc("Remediate only while the number of unhealthy Machines lies in this range, such as [3-5]."),
    Length(1, 32),
    Pattern(r"^\[[0-9]+-[0-9]+\]$"),
]

DeleteOrder = Annotated[
    Literal["Random", "Newest", "Oldest"], Doc("The Machines that are deleted first when there are too many.")
]
StrategyType = Annotated[
    Literal["RollingUpdate", "OnDelete"],
    Doc("RollingUpdate replaces Machines step by step; OnDelete replaces those that are deleted."),
]
ClusterPhase = Annotated[
    Literal["Pending", "Provisioning", "Provisioned", "Deleting", "Failed", "Unknown"],
    Doc("The phase of the Cluster, in one word. Conditions say more."),
]
MachineDeploymentPhase = Annotated[
    Literal["ScalingUp", "ScalingDown", "Running", "Failed", "Unknown"],
    Doc("The phase of the MachineDeployment, in one word. Conditions say more."),
]

# Conditions that sum up others, or say what health checks did: a health check that looked at them would chase itself.
WatchableConditionType = Annotated[
    ConditionType,
    Cel(
        f"!(self in [{','.join(repr(each) for each in _UNWATCHABLE)}])",
        f"type must not be one of: {', '.join(_UNWATCHABLE)}",
    ),
]


class TemplateLabels(TypedDict, total=False):
    """Labels and annotations for what is made from a template."""

    annotations: Annotated[dict[str, str], Doc("Annotations to set.")]
    labels: Annotated[dict[str, str], Doc("Labels to set.")]


class Gate(TypedDict, total=False):
    """One more condition that counts."""

    conditionType: Required[Annotated[ConditionType, Doc("A condition of this object; missing counts as unknown.")]]
    polarity: Annotated[Literal["Positive", "Negative"], Doc("Positive (default): True is good. Negative: False is good.")]


ReadinessGates = Annotated[list[Gate], Doc("More conditions that must hold for a Machine to be ready."), ListMap("conditionType")]
AvailabilityGates = Annotated[
    list[Gate], Doc("More conditions that must hold for the Cluster to be available."), ListMap("conditionType")
]


class Taint(TypedDict, total=False):
    """A taint of the node."""

    effect: Required[
        Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], Doc("The effect on pods that do not tolerate it.")]
    ]
    key: Required[Annotated[str, Doc("The taint's key."), Length(1, 317), Pattern(_TAINT_KEY)]]
    propagation: Required[
        Annotated[
            Literal["Always", "OnInitialization"],
            Doc("Always keeps the taint on the node; OnInitialization sets it once, when the node comes up."),
        ]
    ]
    value: Annotated[str, Doc("The taint's value."), Length(1, 63), Pattern(LABEL_VALUE)]


Taints = Annotated[list[Taint], Doc("Taints for the nodes."), Items(1, 64), ListMap("key", "effect")]


class StatusVersion(TypedDict, total=False):
    """A version of Kubernetes that is in use."""

    replicas: Annotated[Int32, Doc("The number of Machines that have it."), AtLeast(1)]
    version: Required[KubernetesVersion]


Versions = Annotated[
    list[StatusVersion], Doc("The versions of Kubernetes in use, and by how many Machines."), Items(1, 100), ListMap("version")
]


class LegacyCondition(TypedDict, total=False):
    """One aspect of an object's state, in the form of v1beta1."""

    lastTransitionTime: Required[Annotated[Time, Doc("When the status last changed.")]]
    message: Annotated[str, Doc("Details for people."), Length(1, 10240)]
    reason: Annotated[str, Doc("The reason for the status, as one CamelCase word."), Length(1, 256)]
    severity: Annotated[str, Doc("The severity of False: Error, Warning or Info."), Length(most=32)]
    status: Required[Annotated[str, Doc("True, False or Unknown.")]]
    type: Required[Annotated[str, Doc("The type of the condition, in CamelCase."), Length(1, 256)]]


LegacyConditions = Annotated[list[LegacyCondition], Doc("The state of this object, aspect by aspect, in the form of v1beta1.")]
FailureReason = Annotated[str, Doc("Deprecated: an error that can't be repaired, as one word.")]
FailureMessage = Annotated[str, Doc("Deprecated: an error that can't be repaired, for people."), Length(1, 10240)]


class LegacyStatus(TypedDict, total=False):
    """Status as v1beta1 knows it: conditions alone."""

    conditions: LegacyConditions


class LegacyFailingStatus(LegacyStatus, total=False):
    """Status as v1beta1 knows it: conditions and failures."""

    failureMessage: FailureMessage
    failureReason: FailureReason


class Variable(TypedDict, total=False):
    """The value of a variable of the ClusterClass."""

    name: Required[Annotated[str, Doc("The variable's name."), Length(1, 256)]]
    value: Required[Annotated[Any, Doc("Any JSON that the variable's schema allows.")]]


# --- shared types ---------------------------------------------------------------------------------------------------------
#
# What v1beta1 says in its own way in many places: timeouts as durations, counts and conditions of v1beta2 in a corner.

Gates = Annotated[ReadinessGates, Items(most=32)]
ObservedGeneration = Annotated[Int64, Doc("The metadata.generation that this status is about.")]


class DeletionTimeouts(TypedDict, total=False):
    """The timeouts of the steps of a Machine's deletion."""

    nodeDeletionTimeout: Annotated[Duration, Doc("The time to try to delete the node; 0: until it is done. Default 10s.")]
    nodeDrainTimeout: Annotated[Duration, Doc("The time that draining the node may take; 0, the default: as long as it needs.")]
    nodeVolumeDetachTimeout: Annotated[
        Duration, Doc("The time to wait for volumes to be detached; 0, the default: as long as it needs.")
    ]


class NewConditions(TypedDict, total=False):
    """The fields of the status that v1beta2 has."""

    conditions: Conditions


# --- references -----------------------------------------------------------------------------------------------------------
#
# How v1beta2 names other objects (without a version: contract labels of their CRDs tell it), and labels those it makes.

_Kind = Annotated[str, Doc("The kind of the object."), Length(1, 63), Pattern(KIND_NAME)]
_Name = Annotated[Subdomain, Doc("The name of the object.")]
Seconds = Annotated[Int32, AtLeast(0)]


class Reference(TypedDict, total=False):
    """An object in the same namespace; its version follows from the contract labels of its CRD."""

    apiGroup: Required[Annotated[Subdomain, Doc("The API group of the object.")]]
    kind: Required[_Kind]
    name: Required[_Name]


class TemplateReference(TypedDict, total=False):
    """A template in the same namespace."""

    apiVersion: Required[Annotated[str, Doc("The template's group and version."), Length(1, 317), Pattern(API_VERSION)]]
    kind: Required[_Kind]
    name: Required[_Name]


@rules(MinProperties(1))
class ObjectMeta(TemplateLabels, total=False):
    """Labels and annotations for what is made from this."""
