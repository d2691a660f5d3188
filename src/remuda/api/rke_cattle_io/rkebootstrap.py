"""RKEBootstrap and RKEBootstrapTemplate: how a machine becomes part of a cluster, for Cluster API."""

from __future__ import annotations

from typing import Annotated, Required, TypedDict

from ..provisioning_cattle_io.machinepool import Userdata
from ..schema import Doc, Length, MinProperties, Object, rules

_ClusterName = Annotated[str, Doc("The name of the Cluster that the machine belongs to.")]


class RKEBootstrapSpec(TypedDict, total=False):
    """The desired state."""

    clusterName: _ClusterName
    userdata: Annotated[Userdata | None, Doc("User data of the machine's first start, besides the generated part.")]


@rules(MinProperties(1))
class BootstrapInitialization(TypedDict, total=False):
    """The progress, in the form of Cluster API's contract of bootstrap data."""

    dataSecretCreated: Annotated[bool, Doc("The Secret is there; never changes back.")]


class RKEBootstrapStatus(TypedDict, total=False):
    """The observed state."""

    dataSecretName: Annotated[str, Doc("The Secret with the script that installs the system agent."), Length(1, 253)]
    initialization: BootstrapInitialization
    ready: Annotated[bool, Doc("Deprecated: use initialization.dataSecretCreated.")]


class RKEBootstrap(Object, total=False):
    """The bootstrap config of one machine, for Cluster API."""

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
    """The desired state."""

    clusterName: _ClusterName
    template: Required[BootstrapTemplate]


class RKEBootstrapTemplate(Object, total=False):
    """The template of a pool's RKEBootstraps. Existing ones do not change with it."""

    spec: Required[RKEBootstrapTemplateSpec]
