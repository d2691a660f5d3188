"""Cluster: a Kubernetes that is managed. Its name is its id, and the name of the namespace that its own objects are in.

Rancher's definition describes nothing at all and keeps everything. Ours says what is read and written here, so that a wrong
type is refused, and keeps the rest: what else Rancher or its tools put there is not ours to lose.
"""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..cattle import (
    AgentDeploymentCustomization,
    EnvVar,
    LocalClusterAuthEndpoint,
    Opaque,
    OpenCondition,
    Resources,
    Text,
    WebhookDeploymentCustomization,
)
from ..kubernetes import ObjectReference
from ..schema import AtLeast, Doc, Int64, NoEffect, Object, Preserve, rules


@rules(Preserve())
class OpenAuthEndpoint(LocalClusterAuthEndpoint, total=False):
    """The way to the cluster's API that does not lead through this server."""


@rules(Preserve())
class OpenAgentCustomization(AgentDeploymentCustomization, total=False):
    """What is changed about the deployment of an agent."""


@rules(Preserve())
class OpenWebhookCustomization(WebhookDeploymentCustomization, total=False):
    """What is changed about the deployment of the webhook."""


@rules(Preserve())
class ImportedConfig(TypedDict, total=False):
    """How a cluster that was there already is reached."""

    kubeConfig: Annotated[Text, NoEffect("a cluster is reached through its agent: apply the import manifest there")]


@rules(Preserve())
class ClusterSecrets(TypedDict, total=False):
    """Secrets of this cluster, by what they are for."""

    privateRegistrySecret: Annotated[Text, Doc("The Secret to pull images with.")]
    privateRegistryURL: Annotated[Text, Doc("The registry that system images come from.")]


@rules(Preserve())
class ClusterSpec(TypedDict, total=False):
    """What the cluster is to be like."""

    agentEnvVars: Annotated[list[EnvVar] | None, Doc("Environment variables of the cluster agent.")]
    agentImageOverride: Annotated[Text, Doc("The image of the cluster agent, instead of the wanted one.")]
    assetsImageOverride: Annotated[Text, Doc("The image with the charts, instead of the wanted one.")]
    clusterAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("What is changed about the deployment of the cluster agent.")
    ]
    clusterSecrets: Annotated[ClusterSecrets | None, Doc("Secrets of this cluster, by what they are for.")]
    defaultPodSecurityAdmissionConfigurationTemplateName: Annotated[
        Text, Doc("The template of the cluster's pod security admission.")
    ]
    description: Annotated[Text, Doc("What it is, in somebody's words.")]
    desiredAgentImage: Annotated[Text, Doc("The image of the cluster agent.")]
    desiredAssetsImage: Annotated[Text, Doc("The image with the charts.")]
    desiredAuthImage: Annotated[Text, NoEffect("the image of the cluster agent authenticates at the cluster's own endpoint")]
    displayName: Annotated[Text, Doc("Its name for people; that of its clusters.provisioning.cattle.io.")]
    enableNetworkPolicy: Annotated[bool | None, Doc("Keep projects from talking to each other.")]
    fleetAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("What is changed about the deployment of the fleet agent.")
    ]
    fleetWorkspaceName: Annotated[
        Text, Doc("The fleet workspace it is in: the namespace of its clusters.provisioning.cattle.io.")
    ]
    importedConfig: Annotated[ImportedConfig | None, Doc("How a cluster that was there already is reached.")]
    internal: Annotated[bool | None, Doc("It is the cluster that this server itself runs on.")]
    localClusterAuthEndpoint: Annotated[
        OpenAuthEndpoint | None, Doc("The way to the cluster's API that does not lead through this server.")
    ]
    webhookDeploymentCustomization: Annotated[
        OpenWebhookCustomization | None, Doc("What is changed about the deployment of the webhook.")
    ]


@rules(Preserve())
class KubernetesVersion(TypedDict, total=False):
    """What the cluster's API says of itself at /version."""

    gitVersion: Annotated[Text, Doc("The version of Kubernetes.")]
    major: Annotated[Text, Doc("The first number of it.")]
    minor: Annotated[Text, Doc("The second number of it.")]
    platform: Annotated[Text, Doc("The operating system and processor architecture it was built for.")]


@rules(Preserve())
class ClusterInfo(TypedDict, total=False):
    """What lists of clusters show."""

    arch: Annotated[Text, Doc("The processor architecture of its nodes, or mixed.")]
    kubernetesVersion: Annotated[Text, Doc("The version of Kubernetes.")]
    machineProvider: Annotated[Text, Doc("What makes its machines.")]
    nodeCount: Annotated[int | None, Doc("How many nodes it has.")]
    provisioningClusterRef: Annotated[ObjectReference | None, Doc("The object it was made from.")]


@rules(Preserve())
class ClusterStatus(TypedDict, total=False):
    """What it is like."""

    agentFeatures: Annotated[dict[str, bool] | None, Doc("The features of the agent that is deployed.")]
    agentImage: Annotated[Text, Doc("The image of the agent that is deployed.")]
    allocatable: Annotated[Resources, Doc("What its nodes have for pods.")]
    apiEndpoint: Annotated[Text, Doc("The URL of its API, as seen from the agent.")]
    appliedAgentEnvVars: Annotated[list[EnvVar] | None, Doc("The environment variables of the agent that is deployed.")]
    appliedClusterAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("What was changed about the deployment of the cluster agent.")
    ]
    appliedEnableNetworkPolicy: Annotated[bool | None, Doc("Projects are kept from talking to each other.")]
    appliedSpec: Annotated[Opaque, Doc("The spec that the cluster was last brought to.")]
    assetsImage: Annotated[Text, Doc("The image with the charts that is deployed.")]
    authImage: Annotated[Text, Doc("The image that authenticates at the cluster's own endpoint, as deployed.")]
    caCert: Annotated[Text, Doc("The certificate that its API is verified with, base64 of PEM.")]
    capacity: Annotated[Resources, Doc("What its nodes have in all.")]
    conditions: Annotated[list[OpenCondition] | None, Doc("The state of this object, aspect by aspect.")]
    connected: Annotated[bool | None, Doc("The agent is connected.")]
    driver: Annotated[Text, Doc("How it came about, such as imported.")]
    failedSpec: Annotated[Opaque, Doc("The spec that the cluster could not be brought to.")]
    info: Annotated[ClusterInfo | None, Doc("What lists of clusters show.")]
    limits: Annotated[Resources, Doc("The limits of its pods, added up.")]
    linuxWorkerCount: Annotated[int | None, Doc("How many of its workers run Linux.")]
    nodeCount: Annotated[int | None, Doc("How many nodes it has.")]
    provider: Annotated[Text, Doc("The distribution of Kubernetes, such as rke2.")]
    readyReconciling: Annotated[
        bool | None, Doc("The control plane is being changed, and says itself whether the cluster is ready.")
    ]
    requested: Annotated[Resources, Doc("The requests of its pods, added up.")]
    serviceAccountTokenSecret: Annotated[Text, Doc("The Secret in cattle-global-data with the token for its API.")]
    version: Annotated[KubernetesVersion | None, Doc("What the cluster's API says of itself at /version.")]
    windowsWorkerCount: Annotated[int | None, Doc("How many of its workers run Windows.")]


@rules(Preserve())
class Cluster(Object, total=False):
    """A Kubernetes that is managed."""

    spec: Annotated[ClusterSpec | None, Doc("What the cluster is to be like.")]
    status: Annotated[ClusterStatus | None, Doc("What it is like.")]


# --- workspace ------------------------------------------------------------------------------------------------------------
#
# FleetWorkspace: a namespace that clusters are in. All there is to say about one is its metadata.


class FleetWorkspaceStatus(TypedDict, total=False):
    """Nothing yet."""


class FleetWorkspace(Object, total=False):
    """A namespace that clusters are in, with the same name."""

    status: Annotated[FleetWorkspaceStatus, Doc("Nothing yet.")]


# --- clusterregistrationtoken ---------------------------------------------------------------------------------------------
#
# ClusterRegistrationToken: how a cluster, or a node of one, makes itself known. The token itself is in a Secret.
#
# Commands have `{token}` in them, which is filled in for who may read that Secret
# (docs/reference/registration.md#tokens-of-a-cluster).


class RegistrationTokenSpec(TypedDict, total=False):
    """What the token is for."""

    clusterName: Annotated[Text, Doc("The id of the cluster; the namespace of this object.")]
    gracePeriod: Annotated[
        Int64 | None, Doc("How many minutes a replaced token is still good; 0: as the settings say."), AtLeast(0)
    ]
    ttl: Annotated[
        Int64 | None, Doc("How many minutes a token is good before it is replaced; 0: as the settings say."), AtLeast(0)
    ]


class RegistrationTokenStatus(TypedDict, total=False):
    """How it is used."""

    command: Annotated[Text, Doc("Imports a cluster.")]
    expiresAt: Annotated[Text, Doc("When the token is replaced, in RFC 3339.")]
    gracePeriodExpiresAt: Annotated[Text, Doc("Until when the token before it is good, in RFC 3339.")]
    insecureCommand: Annotated[Text, Doc("Imports a cluster, without verifying this server.")]
    insecureNodeCommand: Annotated[Text, Doc("Registers a node that runs Linux, without verifying this server.")]
    insecureWindowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows, without verifying this server.")]
    manifestUrl: Annotated[Text, Doc("Where the manifest is that imports a cluster.")]
    nodeCommand: Annotated[Text, Doc("Registers a node that runs Linux; say its roles behind it.")]
    pinnedCommand: Annotated[Text, Doc("Imports a cluster, after a comparison of this server's CA with its checksum.")]
    pinnedNodeCommand: Annotated[Text, Doc("Registers a node that runs Linux, after the same comparison.")]
    token: Annotated[Text, Doc("Empty; in older objects the token.")]
    tokenSecretName: Annotated[Text, Doc("The Secret with the token, in the same namespace.")]
    windowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows.")]


class ClusterRegistrationToken(Object, total=False):
    """How a cluster, or a node of one, makes itself known."""

    spec: RegistrationTokenSpec
    status: RegistrationTokenStatus


# --- pod security ---------------------------------------------------------------------------------------------------------
#
# PodSecurityAdmissionConfigurationTemplate: what the API servers of clusters that name it ask of pods, unless a namespace says
# otherwise.

_Level = Annotated[str, Doc("privileged, baseline or restricted.")]
_Version = Annotated[str, Doc("Of which Kubernetes that level is: latest, or v1 and a minor version.")]

PodSecurityDefaults = TypedDict(
    "PodSecurityDefaults",
    {
        "audit": _Level,
        "audit-version": _Version,
        "enforce": _Level,
        "enforce-version": _Version,
        "warn": _Level,
        "warn-version": _Version,
    },
    total=False,
)
PodSecurityDefaults.__doc__ = "What holds in namespaces that say nothing themselves."


class PodSecurityExemptions(TypedDict, total=False):
    """What is let through unseen."""

    namespaces: Annotated[list[str], Doc("Pods in these namespaces.")]
    runtimeClasses: Annotated[list[str], Doc("Pods of these runtime classes.")]
    usernames: Annotated[list[str], Doc("What these users make.")]


class PodSecurityConfiguration(TypedDict, total=False):
    """What is asked of pods."""

    defaults: Annotated[PodSecurityDefaults, Doc("What holds in namespaces that say nothing themselves.")]
    exemptions: Annotated[PodSecurityExemptions, Doc("What is let through unseen.")]


class PodSecurityAdmissionConfigurationTemplate(Object, total=False):
    """What is asked of pods in clusters that name it."""

    configuration: Required[Annotated[PodSecurityConfiguration, Doc("What is asked of pods.")]]
    description: Annotated[str, Doc("What it is for.")]
