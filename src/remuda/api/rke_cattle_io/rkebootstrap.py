"""RKEBootstrap and RKEBootstrapTemplate: how a machine becomes part of a cluster, for Cluster API."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..provisioning_cattle_io.machinepool import Userdata
from ..schema import Doc, Length, MinProperties, Object, rules

_ClusterName = Annotated[str, Doc("The name of the Cluster that the machine belongs to.")]


class RKEBootstrapSpec(TypedDict, total=False):
    """What is wanted of it."""

    clusterName: _ClusterName
    userdata: Annotated[Userdata | None, Doc("What the machine is given when it first starts, besides what is made here.")]


@rules(MinProperties(1))
class BootstrapInitialization(TypedDict, total=False):
    """How far it is, as Cluster API asks of bootstrap data."""

    dataSecretCreated: Annotated[bool, Doc("The Secret is there; never changes back.")]


class RKEBootstrapStatus(TypedDict, total=False):
    """What became of it."""

    dataSecretName: Annotated[str, Doc("The Secret with the script that installs the system agent."), Length(1, 253)]
    initialization: BootstrapInitialization
    ready: Annotated[bool, Doc("Deprecated: use initialization.dataSecretCreated.")]


class RKEBootstrap(Object, total=False):
    """How one machine becomes part of a cluster, for Cluster API."""

    spec: Required[RKEBootstrapSpec]
    status: RKEBootstrapStatus


class TemplateMetadata(TypedDict, total=False):
    """Metadata inside a template."""

    annotations: Annotated[dict[str, str], Doc("Annotations to set.")]
    finalizers: Annotated[list[str], Doc("Of no effect.")]
    labels: Annotated[dict[str, str], Doc("Labels to set.")]
    name: Annotated[str, Doc("Of no effect.")]
    namespace: Annotated[str, Doc("Of no effect.")]


class BootstrapTemplate(TypedDict, total=False):
    """A whole RKEBootstrap, of which the spec counts."""

    apiVersion: Annotated[str, Doc("Of no effect.")]
    kind: Annotated[str, Doc("Of no effect.")]
    metadata: TemplateMetadata
    spec: Required[RKEBootstrapSpec]
    status: RKEBootstrapStatus


class RKEBootstrapTemplateSpec(TypedDict, total=False):
    """What is wanted of it."""

    clusterName: _ClusterName
    template: Required[BootstrapTemplate]


class RKEBootstrapTemplate(Object, total=False):
    """What the RKEBootstraps of a pool are made from. Those that are there stay as they are when it changes."""

    spec: Required[RKEBootstrapTemplateSpec]
