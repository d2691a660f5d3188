"""What somebody sees when they list clusters, or what those are made of: theirs. For the embedded API
(:mod:`remuda.apiserver.watch.filtered_list`), and for who asks another Kubernetes for somebody, which refuses such a list as a
whole."""

from __future__ import annotations

from typing import Final

from remuda.api.cluster_x_k8s_io.names import GROUP as CAPI
from remuda.api.management_cattle_io import GROUP
from remuda.api.provisioning_cattle_io.names import GROUP as PROVISIONING
from remuda.api.rke_cattle_io.names import GROUP as RKE
from remuda.apiserver.server import Server
from remuda.apiserver.watch.filtered_list import Partly
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import User
from remuda.kube.objects import GroupVersionResource

from .driver_kinds import GROUPS as DRIVERS

# Where a list that is forbidden as a whole shows the part that is not.
GROUPS: Final = (GROUP, PROVISIONING, CAPI, RKE, *sorted(DRIVERS))


def show_what_is_theirs(server: Server) -> None:
    """From now on lists and watches of our kinds show everybody what they may see of them."""
    server.handler.partly = Partly(server.rbac, GROUPS, lambda: server.cache.revision)


def visible(rbac: Rbac, user: User, resource: GroupVersionResource, namespace: str = "", verb: str = "list") -> Permitted | None:
    """Which objects `user` may see of a resource, in one namespace or in all; None: all of them."""
    action = Action(user, verb, *resource, "", namespace)
    return None if rbac.authorize(action).allowed else rbac.permitted(action)
