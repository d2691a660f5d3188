"""The controllers and the rules of this room, for who starts a server (:mod:`remuda.embedded`) or joins one."""

from __future__ import annotations

from remuda.apiserver.authz.rbac import Rbac
from remuda.apiserver.source import ObjectSource
from remuda.runtime import Manager, Reconciler
from remuda.runtime.admission import AdmittedType

from ..downstreams import Downstreams
from . import clusters, departed, downstream, globalroles, memberships
from .admission import RoleRules
from .creators import ClusterRules
from .held import Holdings
from .keeping import KINDS, BuiltinRoles
from .views import Views

CONTROLLERS = (
    "builtin-globalroles",
    "builtin-roletemplates",
    globalroles.ROLES,
    globalroles.BINDINGS,
    memberships.NAME,
    clusters.NAME,
    downstream.NAME,
    departed.NAME,
)


def controllers(
    manager: Manager, downstreams: Downstreams, *, machines: bool = True, provisions: bool = False
) -> list[Reconciler]:
    """For `manager.add`. `machines`: whether Cluster API's kinds are on this server; `provisions`: whether our providers' are."""
    views = Views(manager.informers, machines=machines, provisions=provisions)
    return [
        *(BuiltinRoles(manager, kind) for kind in KINDS),
        globalroles.GlobalRoles(manager, views),
        globalroles.GlobalRoleBindings(manager, views),
        memberships.Memberships(manager, views),
        clusters.ClusterAccess(manager, views),
        downstream.DownstreamAccess(manager, views, downstreams),
        departed.DepartedUsers(manager, views),
    ]


def admitted_types(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """In process `server.source` and `server.rbac`; elsewhere an :class:`~.held.InformerSource` and `Rbac` on it."""
    holdings = Holdings(source, rbac)
    return (*RoleRules(holdings).admitted_types(), *ClusterRules(holdings).admitted_types())
