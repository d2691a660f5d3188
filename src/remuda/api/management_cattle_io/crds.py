"""The kinds of this group: names, how each is served, and the columns of `kubectl get`.

Most have no status subresource, as in Rancher: whoever may write such an object may write its status with it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from ..cattle import Text
from ..crd import Column, Kind, Version
from ..schema import Doc, Object
from . import GROUP, VERSION, cluster, node, nodedriver, roles, users


class Setting(Object, total=False):
    """Something that can be chosen, by name."""

    customized: Annotated[bool, Doc("Somebody chose a value.")]
    default: Annotated[Text, Doc("What holds when nothing was chosen.")]
    source: Annotated[Text, Doc("Where the value comes from: db, default or env.")]
    value: Annotated[Text, Doc("What was chosen; empty: the default holds.")]


class FeatureSpec(TypedDict, total=False):
    """What was chosen."""

    value: Annotated[bool | None, Doc("On or off; unset: the default holds.")]


class FeatureStatus(TypedDict, total=False):
    """What can be chosen."""

    default: Annotated[bool, Doc("What holds when nothing was chosen.")]
    description: Annotated[Text, Doc("What it is for.")]
    dynamic: Annotated[bool, Doc("It can be changed without a restart.")]
    lockedValue: Annotated[bool | None, Doc("What must hold for now, whatever was chosen.")]
    prime: Annotated[bool, Doc("It is there with a subscription only.")]


class Feature(Object, total=False):
    """A part of the server that can be switched on or off."""

    spec: FeatureSpec
    status: FeatureStatus


_AGE = Column("AGE", ".metadata.creationTimestamp", "date", "How long ago it was created")
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
        Column("Custom Value", ".spec.value", "string", "What was chosen"),
        Column("Default", ".status.default", "string", "What holds when nothing was chosen"),
        Column("Description", ".status.description", "string", "What it is for"),
    ),
    _kind(cluster.FleetWorkspace),
    _kind(roles.GlobalRole, *_SUMMARY, status=True),
    _kind(roles.GlobalRoleBinding, *_SUMMARY, status=True),
    _kind(node.Node, scope="Namespaced"),
    _kind(
        nodedriver.NodeDriver,
        Column("Active", ".spec.active", "boolean", "Whether machine pools can be made with it"),
        Column("Builtin", ".spec.builtin", "boolean", "Whether it came with the server"),
        Column("URL", ".spec.url", "string", "Where it comes from", 1),
        _AGE,
    ),
    _kind(cluster.PodSecurityAdmissionConfigurationTemplate),
    _kind(roles.RoleTemplate),
    _kind(Setting, Column("Value", ".value", "string", "What was chosen")),
    _kind(users.Token),
    _kind(users.User),
)
