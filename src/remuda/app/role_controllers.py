"""The controllers and rules of :mod:`remuda.access.roles`, put together for :mod:`.embedded` and the attached programs."""

from __future__ import annotations

from remuda.access.downstreams import Downstreams
from remuda.access.roles import cluster_access, cluster_memberships, downstream_access, globalroles
from remuda.access.roles.admission import RoleRules
from remuda.access.roles.builtin_roles import KINDS, BuiltinRoles
from remuda.access.roles.holdings import Holdings
from remuda.access.roles.protected_cluster_fields import ClusterRules
from remuda.access.roles.role_caches import Views
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.objects import ObjectSource
from remuda.runtime import Manager, Reconciler
from remuda.runtime.admitted_types import AdmittedType

CONTROLLERS = (
    "builtin-globalroles",
    "builtin-roletemplates",
    globalroles.ROLES,
    globalroles.BINDINGS,
    cluster_memberships.NAME,
    cluster_access.NAME,
    downstream_access.NAME,
    cluster_memberships.USER_BINDINGS,
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
        cluster_memberships.Memberships(manager, views),
        cluster_access.ClusterAccess(manager, views),
        downstream_access.DownstreamAccess(manager, views, downstreams),
        cluster_memberships.DepartedUsers(manager, views),
    ]


def admitted_types(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """In process `server.source` and `server.rbac`; elsewhere an :class:`~remuda.access.roles.holdings.InformerSource` and
    `Rbac` on it.
    """
    holdings = Holdings(source, rbac)
    return (*RoleRules(holdings).admitted_types(), *ClusterRules(holdings).admitted_types())
