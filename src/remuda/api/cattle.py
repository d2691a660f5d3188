"""Types that the groups of Rancher (`*.cattle.io`) share.

Rancher is written in Go and its clients send `null` for what is not set, so its own definitions allow that nearly everywhere;
ours do where they do, or a cluster that Rancher takes would be refused here.
"""

from __future__ import annotations

from typing import Annotated, Any, Required, TypedDict

from .kubernetes import Affinity, Quantity, ResourceRequirements, Toleration
from .schema import AtLeast, Between, Doc, Int32, Length, ListMap, MinProperties, Pattern, Preserve, rules

Text = str | None
# RBAC on objects of a cluster follows the cluster (docs/reference/objects.md#labels-and-annotations).
CLUSTER_INDEXED = {"auth.cattle.io/cluster-indexed": "true"}
# A number, a percentage or nothing.
SHARE = "^((([1-9]|[1-9][0-9]|100)%)|([1-9][0-9]*|0)|)$"

FreeMap = dict[str, Any] | None


class Condition(TypedDict, total=False):
    """One aspect of an object's state, as Rancher writes it (docs/reference/objects.md#conditions)."""

    lastTransitionTime: Annotated[str, Doc("When the status last changed.")]
    lastUpdateTime: Annotated[str, Doc("When anything of the condition last changed.")]
    message: Annotated[str, Doc("Details for people.")]
    reason: Annotated[str, Doc("The reason for the status, as one word; Error after a failure.")]
    status: Required[Annotated[str, Doc("True, False or Unknown.")]]
    type: Required[Annotated[str, Doc("The type of the condition.")]]


class LocalClusterAuthEndpoint(TypedDict, total=False):
    """The way to the cluster's API that does not lead through this server."""

    caCerts: Annotated[Text, Doc("The certificates that it is verified with.")]
    enabled: Annotated[bool, Doc("Whether there is such a way.")]
    fqdn: Annotated[Text, Doc("The host name under which it is found.")]


class PriorityClassSpec(TypedDict, total=False):
    """The priority class that the agent gets."""

    preemptionPolicy: Annotated[Text, Doc("Whether other pods make room for it: PreemptLowerPriority or Never.")]
    value: Annotated[int, Doc("The priority; more is more important."), Between(-1_000_000_000, 1_000_000_000)]


_Share = Annotated[Text, Length(most=10), Pattern(SHARE)]


class PodDisruptionBudgetSpec(TypedDict, total=False):
    """The number of pods that an eviction must leave; one of the two, not both."""

    maxUnavailable: Annotated[_Share, Doc("The number that may be missing, as a number or a percentage.")]
    minAvailable: Annotated[_Share, Doc("The number that must be there, as a number or a percentage.")]


class AgentSchedulingCustomization(TypedDict, total=False):
    """The priority and the disruption budget of the agent's pods."""

    podDisruptionBudget: Annotated[PodDisruptionBudgetSpec | None, Doc("The number of its pods that an eviction must leave.")]
    priorityClass: Annotated[PriorityClassSpec | None, Doc("The priority class that it gets.")]


class DeploymentCustomization(TypedDict, total=False):
    """Changes to a deployment that this server makes in the cluster."""

    appendTolerations: Annotated[list[Toleration] | None, Doc("Tolerations on top of its own.")]
    overrideAffinity: Annotated[Affinity | None, Doc("The affinity instead of its own.")]
    overrideResourceRequirements: Annotated[ResourceRequirements | None, Doc("Requests and limits instead of its own.")]


class AgentDeploymentCustomization(DeploymentCustomization, total=False):
    """Changes to the deployment of an agent."""

    schedulingCustomization: Annotated[
        AgentSchedulingCustomization | None, Doc("The priority and the disruption budget of its pods.")
    ]


class WebhookDeploymentCustomization(DeploymentCustomization, total=False):
    """Changes to the deployment of the webhook."""

    podDisruptionBudget: Annotated[PodDisruptionBudgetSpec | None, Doc("The number of its pods that an eviction must leave.")]
    replicaCount: Annotated[Int32 | None, Doc("The number of pods."), AtLeast(1)]


# --- shared types ---------------------------------------------------------------------------------------------------------
#
# What several kinds of this group have inside them, where Rancher's definitions keep fields that they do not describe.

Resources = dict[str, Quantity] | None
Strings = dict[str, str] | None
# A whole type of Kubernetes, or of a provider, that is only passed on here.
Opaque = Annotated[dict[str, Any] | None, Preserve()]


@rules(Preserve())
class OpenCondition(Condition, total=False):
    """One aspect of an object's state, as Rancher writes it."""


@rules(Preserve())
class EnvVar(TypedDict, total=False):
    """An environment variable."""

    name: Required[Annotated[str, Doc("Its name.")]]
    value: Annotated[Text, Doc("Its value.")]
    valueFrom: Annotated[Opaque, Doc("The source of its value, if `value` is not set.")]


# --- shared types ---------------------------------------------------------------------------------------------------------
#
# What the kinds of this group share.

# A map by type, as elsewhere in these groups: several controllers write conditions of the same object.
Conditions = Annotated[list[Condition], Doc("The state of this object, aspect by aspect."), ListMap("type")]


@rules(MinProperties(1))
class Provisioning(TypedDict, total=False):
    """The progress, in the form of Cluster API's contract of infrastructure."""

    provisioned: Annotated[bool, Doc("The infrastructure is there; never changes back.")]
