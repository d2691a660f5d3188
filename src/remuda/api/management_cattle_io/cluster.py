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
    """Changes to the deployment of an agent."""


@rules(Preserve())
class OpenWebhookCustomization(WebhookDeploymentCustomization, total=False):
    """Changes to the deployment of the webhook."""


@rules(Preserve())
class ImportedConfig(TypedDict, total=False):
    """The connection to a cluster that existed before."""

    kubeConfig: Annotated[Text, NoEffect("a cluster is reached through its agent: apply the import manifest there")]


@rules(Preserve())
class ClusterSecrets(TypedDict, total=False):
    """Secrets of this cluster, by what they are for."""

    privateRegistrySecret: Annotated[Text, Doc("The Secret to pull images with.")]
    privateRegistryURL: Annotated[Text, Doc("The registry that system images come from.")]


@rules(Preserve())
class ClusterSpec(TypedDict, total=False):
    """The desired state of the cluster."""

    agentEnvVars: Annotated[list[EnvVar] | None, Doc("Environment variables of the cluster agent.")]
    agentImageOverride: Annotated[Text, Doc("The image of the cluster agent, instead of the wanted one.")]
    assetsImageOverride: Annotated[Text, Doc("The image with the charts, instead of the wanted one.")]
    clusterAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("Changes to the deployment of the cluster agent.")
    ]
    clusterSecrets: Annotated[ClusterSecrets | None, Doc("Secrets of this cluster, by what they are for.")]
    defaultPodSecurityAdmissionConfigurationTemplateName: Annotated[
        Text, Doc("The template of the cluster's pod security admission.")
    ]
    description: Annotated[Text, Doc("A description, for people.")]
    desiredAgentImage: Annotated[Text, Doc("The image of the cluster agent.")]
    desiredAssetsImage: Annotated[Text, Doc("The image with the charts.")]
    desiredAuthImage: Annotated[Text, NoEffect("the image of the cluster agent authenticates at the cluster's own endpoint")]
    displayName: Annotated[Text, Doc("Its name for people; that of its clusters.provisioning.cattle.io.")]
    enableNetworkPolicy: Annotated[bool | None, Doc("Keep projects from talking to each other.")]
    fleetAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("Changes to the deployment of the fleet agent.")
    ]
    fleetWorkspaceName: Annotated[
        Text, Doc("The fleet workspace it is in: the namespace of its clusters.provisioning.cattle.io.")
    ]
    importedConfig: Annotated[ImportedConfig | None, Doc("The connection to a cluster that existed before.")]
    internal: Annotated[bool | None, Doc("It is the cluster that this server itself runs on.")]
    localClusterAuthEndpoint: Annotated[
        OpenAuthEndpoint | None, Doc("The way to the cluster's API that does not lead through this server.")
    ]
    webhookDeploymentCustomization: Annotated[OpenWebhookCustomization | None, Doc("Changes to the deployment of the webhook.")]


@rules(Preserve())
class KubernetesVersion(TypedDict, total=False):
    """The answer of the cluster's API to /version."""

    gitVersion: Annotated[Text, Doc("The version of Kubernetes.")]
    major: Annotated[Text, Doc("The first number of it.")]
    minor: Annotated[Text, Doc("The second number of it.")]
    platform: Annotated[Text, Doc("The operating system and processor architecture it was built for.")]


@rules(Preserve())
class ClusterInfo(TypedDict, total=False):
    """The summary in lists of clusters."""

    arch: Annotated[Text, Doc("The processor architecture of its nodes, or mixed.")]
    kubernetesVersion: Annotated[Text, Doc("The version of Kubernetes.")]
    machineProvider: Annotated[Text, Doc("The driver of its machines.")]
    nodeCount: Annotated[int | None, Doc("The number of its nodes.")]
    provisioningClusterRef: Annotated[ObjectReference | None, Doc("The object it was made from.")]


@rules(Preserve())
class ClusterStatus(TypedDict, total=False):
    """The observed state."""

    agentFeatures: Annotated[dict[str, bool] | None, Doc("The features of the agent that is deployed.")]
    agentImage: Annotated[Text, Doc("The image of the agent that is deployed.")]
    allocatable: Annotated[Resources, Doc("The sum of its nodes' allocatable resources.")]
    apiEndpoint: Annotated[Text, Doc("The URL of its API, as seen from the agent.")]
    appliedAgentEnvVars: Annotated[list[EnvVar] | None, Doc("The environment variables of the agent that is deployed.")]
    appliedClusterAgentDeploymentCustomization: Annotated[
        OpenAgentCustomization | None, Doc("Changes that were applied to the deployment of the cluster agent.")
    ]
    appliedEnableNetworkPolicy: Annotated[bool | None, Doc("Projects are kept from talking to each other.")]
    appliedSpec: Annotated[Opaque, Doc("The spec that the cluster was last brought to.")]
    assetsImage: Annotated[Text, Doc("The image with the charts that is deployed.")]
    authImage: Annotated[Text, Doc("The image that authenticates at the cluster's own endpoint, as deployed.")]
    caCert: Annotated[Text, Doc("The certificate that its API is verified with, base64 of PEM.")]
    capacity: Annotated[Resources, Doc("The sum of its nodes' resources.")]
    conditions: Annotated[list[OpenCondition] | None, Doc("The state of this object, aspect by aspect.")]
    connected: Annotated[bool | None, Doc("The agent is connected.")]
    driver: Annotated[Text, Doc("The origin of the cluster, such as imported.")]
    failedSpec: Annotated[Opaque, Doc("The spec that the cluster could not be brought to.")]
    info: Annotated[ClusterInfo | None, Doc("The summary in lists of clusters.")]
    limits: Annotated[Resources, Doc("The limits of its pods, added up.")]
    linuxWorkerCount: Annotated[int | None, Doc("The number of its workers that run Linux.")]
    nodeCount: Annotated[int | None, Doc("The number of its nodes.")]
    provider: Annotated[Text, Doc("The distribution of Kubernetes, such as rke2.")]
    readyReconciling: Annotated[
        bool | None, Doc("The control plane is being changed, and says itself whether the cluster is ready.")
    ]
    requested: Annotated[Resources, Doc("The requests of its pods, added up.")]
    serviceAccountTokenSecret: Annotated[Text, Doc("The Secret in cattle-global-data with the token for its API.")]
    version: Annotated[KubernetesVersion | None, Doc("The answer of the cluster's API to /version.")]
    windowsWorkerCount: Annotated[int | None, Doc("The number of its workers that run Windows.")]


@rules(Preserve())
class Cluster(Object, total=False):
    """A Kubernetes that is managed."""

    spec: Annotated[ClusterSpec | None, Doc("The desired state of the cluster.")]
    status: Annotated[ClusterStatus | None, Doc("The observed state.")]


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
    """The cluster of the token, and changes of its validity."""

    clusterName: Annotated[Text, Doc("The id of the cluster; the namespace of this object.")]
    gracePeriod: Annotated[
        Int64 | None, Doc("The minutes that a replaced token stays valid; 0: as the settings say."), AtLeast(0)
    ]
    ttl: Annotated[
        Int64 | None, Doc("The minutes that a token is valid before it is replaced; 0: as the settings say."), AtLeast(0)
    ]


class RegistrationTokenStatus(TypedDict, total=False):
    """The token, and the commands that use it."""

    command: Annotated[Text, Doc("Imports a cluster.")]
    expiresAt: Annotated[Text, Doc("When the token is replaced, in RFC 3339.")]
    gracePeriodExpiresAt: Annotated[Text, Doc("Until when the token before it is good, in RFC 3339.")]
    insecureCommand: Annotated[Text, Doc("Imports a cluster, without verifying this server.")]
    insecureNodeCommand: Annotated[Text, Doc("Registers a node that runs Linux, without verifying this server.")]
    insecureWindowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows, without verifying this server.")]
    manifestUrl: Annotated[Text, Doc("The URL of the manifest that imports a cluster.")]
    nodeCommand: Annotated[Text, Doc("Registers a node that runs Linux; say its roles behind it.")]
    pinnedCommand: Annotated[Text, Doc("Imports a cluster, after a comparison of this server's CA with its checksum.")]
    pinnedNodeCommand: Annotated[Text, Doc("Registers a node that runs Linux, after the same comparison.")]
    token: Annotated[Text, Doc("Empty; in older objects the token.")]
    tokenSecretName: Annotated[Text, Doc("The Secret with the token, in the same namespace.")]
    windowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows.")]


class ClusterRegistrationToken(Object, total=False):
    """A token with which a cluster, or a node of one, registers."""

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
PodSecurityDefaults.__doc__ = "Defaults of namespaces."


class PodSecurityExemptions(TypedDict, total=False):
    """Users, runtime classes and namespaces without checks."""

    namespaces: Annotated[list[str], Doc("Pods in these namespaces.")]
    runtimeClasses: Annotated[list[str], Doc("Pods of these runtime classes.")]
    usernames: Annotated[list[str], Doc("Users whose objects are not checked.")]


class PodSecurityConfiguration(TypedDict, total=False):
    """The configuration of pod security admission."""

    defaults: Annotated[PodSecurityDefaults, Doc("Defaults of namespaces.")]
    exemptions: Annotated[PodSecurityExemptions, Doc("Users, runtime classes and namespaces without checks.")]


class PodSecurityAdmissionConfigurationTemplate(Object, total=False):
    """A template of the pod security admission of clusters that name it."""

    configuration: Required[Annotated[PodSecurityConfiguration, Doc("The configuration of pod security admission.")]]
    description: Annotated[str, Doc("Its purpose.")]
