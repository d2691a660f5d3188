"""The kinds of this group: names, how each is served, and the columns of `kubectl get`.

Most have no status subresource, as in Rancher: whoever may write such an object may write its status with it.
"""

from __future__ import annotations

from typing import Literal

from ..crd import Column, Kind, Version
from . import GROUP, VERSION
from .v3 import (
    cluster,
    node,
    nodedriver,
    podsecurity,
    roles,
    settings,
    users,
)

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
        settings.Feature,
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
    _kind(podsecurity.PodSecurityAdmissionConfigurationTemplate),
    _kind(roles.RoleTemplate),
    _kind(settings.Setting, Column("Value", ".value", "string", "What was chosen")),
    _kind(users.Token),
    _kind(users.User),
)
