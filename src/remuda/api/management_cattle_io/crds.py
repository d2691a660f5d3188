"""The kinds of this group: names, how each is served, and the columns of `kubectl get`.

Most have no status subresource, as in Rancher: permission to write such an object includes its status.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from ..cattle import Text
from ..crd import Column, Kind, Version
from ..schema import Doc, Object
from . import GROUP, VERSION, cluster, node, nodedriver, project, roles, users


class Setting(Object, total=False):
    """Something that can be chosen, by name."""

    customized: Annotated[bool, Doc("A value was set.")]
    default: Annotated[Text, Doc("The default.")]
    source: Annotated[Text, Doc("The source of the value: db, default or env.")]
    value: Annotated[Text, Doc("The chosen value; empty: the default holds.")]


class FeatureSpec(TypedDict, total=False):
    """The chosen value."""

    value: Annotated[bool | None, Doc("On or off; unset: the default holds.")]


class FeatureStatus(TypedDict, total=False):
    """A setting: its default and its chosen value."""

    default: Annotated[bool, Doc("The default.")]
    description: Annotated[Text, Doc("Its purpose.")]
    dynamic: Annotated[bool, Doc("It can be changed without a restart.")]
    lockedValue: Annotated[bool | None, Doc("The value that is enforced for now, whatever was chosen.")]
    prime: Annotated[bool, Doc("It is there with a subscription only.")]


class Feature(Object, total=False):
    """A part of the server that can be switched on or off."""

    spec: FeatureSpec
    status: FeatureStatus


_AGE = Column("AGE", ".metadata.creationTimestamp", "date", "The time since it was created")
_SUMMARY = (Column("STATUS", ".status.summary", "string", "Complete, or what is missing"), _AGE)


def _kind(type_: type, *columns: Column, scope: Literal["Namespaced", "Cluster"] = "Cluster", status: bool = False) -> Kind:
    return Kind(GROUP, type_.__name__, (Version(VERSION, type_, columns, storage=True, status=status),), scope=scope)


KINDS = (
    _kind(cluster.Cluster),
    _kind(cluster.ClusterRegistrationToken, scope="Namespaced"),
    _kind(roles.ClusterRoleTemplateBinding, *_SUMMARY, scope="Namespaced", status=True),
    _kind(nodedriver.DynamicSchema),
    _kind(
        Feature,
        Column("Custom Value", ".spec.value", "string", "The chosen value"),
        Column("Default", ".status.default", "string", "The default"),
        Column("Description", ".status.description", "string", "Its purpose"),
    ),
    _kind(cluster.FleetWorkspace),
    _kind(roles.GlobalRole, *_SUMMARY, status=True),
    _kind(roles.GlobalRoleBinding, *_SUMMARY, status=True),
    _kind(node.Node, scope="Namespaced"),
    _kind(
        nodedriver.NodeDriver,
        Column("Active", ".spec.active", "boolean", "Whether machine pools can be made with it"),
        Column("Builtin", ".spec.builtin", "boolean", "Whether it came with the server"),
        Column("URL", ".spec.url", "string", "The source", 1),
        _AGE,
    ),
    _kind(cluster.PodSecurityAdmissionConfigurationTemplate),
    _kind(project.Project, scope="Namespaced"),
    _kind(roles.RoleTemplate),
    _kind(Setting, Column("Value", ".value", "string", "The chosen value")),
    _kind(users.Token),
    _kind(users.User),
)
