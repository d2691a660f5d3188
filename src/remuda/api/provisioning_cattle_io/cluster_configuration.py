"""The configuration of a cluster's machines: a part of :mod:`.cluster`'s spec, and of its control plane's."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..cattle import SHARE, FreeMap, Text
from ..kubernetes import LabelSelector
from ..schema import AtLeast, Doc, Form, Format, Length, Names, NoEffect, Pattern

_Concurrency = Annotated[Text, Length(most=10), Pattern(SHARE)]
_ObjectName = Annotated[Text, Length(most=253)]
_SecretName = Annotated[_ObjectName, Names("", "secrets")]
# Arguments of the distribution; one of them may be kept in a Secret.
_Arguments = Annotated[FreeMap, Names("", "secrets", Form.URL, "cloud-provider-config")]


class DrainHook(TypedDict, total=False):
    """A hook that must approve before a drain goes on."""

    annotation: Annotated[
        Text, Doc("The annotation of the plan secret that they copy the value of pre-drain or post-drain into."), Length(most=317)
    ]


class DrainOptions(TypedDict, total=False):
    """The options of draining a node."""

    deleteEmptyDirData: Annotated[bool, Doc("Go on although pods lose what is in their emptyDir volumes.")]
    disableEviction: Annotated[bool, Doc("Delete pods instead of evicting them, past all disruption budgets.")]
    enabled: Annotated[bool, Doc("Whether nodes are drained at all; the only machine of a cluster never is.")]
    force: Annotated[bool, Doc("Also delete pods that no controller recreates.")]
    gracePeriod: Annotated[int, Doc("The seconds a pod has to end; unset or negative: what the pod itself says.")]
    ignoreDaemonSets: Annotated[bool | None, Doc("Leave pods of DaemonSets alone. Default true.")]
    ignoreErrors: Annotated[bool, NoEffect("a drain that fails is tried again, and its error is shown")]
    postDrainHooks: Annotated[list[DrainHook] | None, Doc("Hooks that must approve after the node is drained and updated.")]
    preDrainHooks: Annotated[list[DrainHook] | None, Doc("Hooks that must approve before the node is drained.")]
    skipWaitForDeleteTimeoutSeconds: Annotated[
        int, Doc("Do not wait for pods that have been going for this many seconds; 0: wait for all.")
    ]
    timeout: Annotated[int, NoEffect("a drain has no time limit; what delays it is shown")]


class UpgradeStrategy(TypedDict, total=False):
    """The number of nodes that change at the same time, and how."""

    controlPlaneConcurrency: Annotated[
        _Concurrency, Doc("The number of servers that change at the same time: a number, a percentage, empty for 1, 0 for all.")
    ]
    controlPlaneDrainOptions: Annotated[DrainOptions, Doc("The options of draining servers.")]
    workerConcurrency: Annotated[
        _Concurrency, Doc("The number of workers that change at the same time: a number, a percentage, empty for 1, 0 for all.")
    ]
    workerDrainOptions: Annotated[DrainOptions, Doc("The options of draining workers.")]


_Machines = Annotated[LabelSelector | None, Doc("The selected machines, by the labels of their Machines; unset: all.")]


class SelectorConfig(TypedDict, total=False):
    """Arguments of the distribution for some machines."""

    config: Annotated[_Arguments, Doc("The arguments, by name.")]
    machineLabelSelector: _Machines


class KeyToPath(TypedDict, total=False):
    """One file."""

    dynamic: Annotated[bool, Doc("Whether nodes go on without a restart when the content changes.")]
    hash: Annotated[Text, Doc("The SHA-256 that the content must have, in base64; empty: any.")]
    key: Required[Annotated[Text, Doc("The key in the Secret or ConfigMap.")]]
    path: Required[Annotated[Text, Doc("The absolute path of the file on the machine.")]]
    permissions: Annotated[Text, Doc("The mode of the file, such as 0644; empty: defaultPermissions, else 0600.")]


class ObjectFileSource(TypedDict, total=False):
    """Files from one object."""

    defaultPermissions: Annotated[Text, Doc("The mode of files that do not say one, such as 0644; empty: 0600.")]
    items: Annotated[list[KeyToPath] | None, Doc("The files.")]
    name: Required[Annotated[_ObjectName, Doc("The name of the object, in the namespace of the cluster.")]]


class FileSource(TypedDict, total=False):
    """The source of files: a Secret or a ConfigMap, one of the two."""

    configMap: Annotated[ObjectFileSource, Doc("Files from a ConfigMap."), Names("", "configmaps", key="name")]
    secret: Annotated[ObjectFileSource, Doc("Files from a Secret."), Names("", "secrets", key="name")]


class SelectorFiles(TypedDict, total=False):
    """Files for some machines."""

    fileSources: Annotated[list[FileSource] | None, Doc("The sources of the files.")]
    machineLabelSelector: _Machines


class Mirror(TypedDict, total=False):
    """The mirrors of a registry."""

    endpoint: Annotated[list[str] | None, Doc("URLs that are tried one by one.")]
    rewrite: Annotated[dict[str, str] | None, Doc("New names of repositories, by a regular expression on their names.")]


class RegistryConfig(TypedDict, total=False):
    """The connection to one registry."""

    authConfigSecretName: Annotated[
        _SecretName, Doc("The Secret with username, password, auth or identityToken, in the namespace of the cluster.")
    ]
    caBundle: Annotated[Text, Format("byte"), Doc("The certificates that it is verified with, base64 of PEM.")]
    insecureSkipVerify: Annotated[bool, Doc("Do not verify it at all.")]
    tlsSecretName: Annotated[_SecretName, Doc("The Secret with the certificate and key of this client.")]


class Registries(TypedDict, total=False):
    """The sources of images."""

    configs: Annotated[dict[str, RegistryConfig] | None, Doc("The connection to each registry, by its host name or address.")]
    mirrors: Annotated[dict[str, Mirror] | None, Doc("Mirrors, by the registry that they stand for.")]


class SnapshotS3(TypedDict, total=False):
    """A bucket for snapshots; what is empty is taken from the cloud credential."""

    bucket: Annotated[Text, Doc("The name of the bucket."), Length(most=63)]
    cloudCredentialName: Annotated[Text, Doc("The Secret with the keys, as namespace:name."), Names("", "secrets", Form.SCOPED)]
    endpoint: Annotated[Text, Doc("The host name of the service.")]
    endpointCA: Annotated[
        Text, Doc("The certificates that it is verified with: a file name ending in .crt, PEM, or base64 of PEM.")
    ]
    folder: Annotated[Text, Doc("A folder in the bucket.")]
    region: Annotated[Text, Doc("The region of the bucket.")]
    retention: Annotated[
        int | None, Doc("The number of snapshots that are kept in the bucket; unset: as many as on a node."), AtLeast(0)
    ]
    skipSSLVerify: Annotated[bool, Doc("Do not verify the service.")]


class Etcd(TypedDict, total=False):
    """Snapshots of etcd."""

    disableSnapshots: Annotated[bool, Doc("Take none.")]
    s3: Annotated[SnapshotS3 | None, Doc("A bucket that they are copied to.")]
    snapshotBeforeUpgrade: Annotated[
        bool | None,
        Doc("Take one before the minor version changes, which waits for it; unset: yes. Without effect where etcd is another's."),
    ]
    snapshotRetention: Annotated[int, Doc("The number of snapshots that are kept; 0: as many as the distribution keeps.")]
    snapshotScheduleCron: Annotated[Text, Doc("When they are taken, in cron's notation; empty: as the distribution does.")]


class Networking(TypedDict, total=False):
    """The address families of the machines."""

    stackPreference: Annotated[
        Text,
        Doc("The address family by which probes reach the node itself: ipv4, ipv6 or dual. Default dual."),
        Pattern("^(ipv4|ipv6|dual|)$"),
    ]


class DataDirectories(TypedDict, total=False):
    """Directories on the machines; can't be changed later."""

    k8sDistro: Annotated[
        Text, Doc("The data of the distribution. Default /var/lib/rancher/rke2, or the name of another distribution.")
    ]
    provisioning: Annotated[Text, Doc("The directory of provisioning's own files. Default /var/lib/rancher/capr.")]
    systemAgent: Annotated[Text, Doc("The plans and the connection of the system agent. Default /var/lib/rancher/agent.")]


class ClusterConfiguration(TypedDict, total=False):
    """The configuration of a cluster's machines."""

    additionalManifest: Annotated[Text, Doc("YAML of objects that the cluster is to have; those that are taken out are deleted.")]
    chartValues: Annotated[FreeMap, Doc("Values for charts of the distribution, by the chart's name.")]
    dataDirectories: Annotated[DataDirectories, Doc("Directories on the machines; can't be changed later.")]
    etcd: Annotated[Etcd | None, Doc("Scheduled snapshots of etcd.")]
    machineGlobalConfig: Annotated[
        _Arguments, Doc("Arguments of the distribution for all machines. Numbers are written as texts: others are left out.")
    ]
    machineSelectorConfig: Annotated[list[SelectorConfig] | None, Doc("Arguments of the distribution for some machines.")]
    machineSelectorFiles: Annotated[list[SelectorFiles] | None, Doc("Files for some machines.")]
    networking: Annotated[Networking | None, Doc("The address families of the machines.")]
    provisionGeneration: Annotated[int, Doc("Change it to have every node configured and restarted again.")]
    registries: Annotated[Registries | None, Doc("The sources of images.")]
    upgradeStrategy: Annotated[UpgradeStrategy, Doc("The number of nodes that change at the same time, and how.")]
