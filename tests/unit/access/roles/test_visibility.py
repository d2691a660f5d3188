"""The clusters that a user sees."""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.api.management_cattle_io import CLUSTERS
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.app.embedded_gateway import filter_lists
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import User
from remuda.kube.objects import GroupVersionResource

from .management_house import WORKSPACE, house, person

A, B = "c-aaaaa", "c-bbbbb"
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")


def visible(rbac: Rbac, user: User, resource: GroupVersionResource, namespace: str = "") -> Permitted | None:
    """The objects that `user` may list, in one namespace or in all; None: all of them."""
    action = Action(user, "list", *resource, "", namespace)
    return None if rbac.authorize(action).allowed else rbac.permitted(action)


async def test_each_user_sees_their_own_objects() -> None:
    async with house() as here:
        filter_lists(here.server)
        for name in ("u-tenant", "u-other", "u-new"):
            await here.grant("user", name)
        await here.grant("read-only", "u-auditor")
        await here.cluster(A, creator="u-tenant")
        await here.cluster(B, creator="u-other")
        await here.member(B, "cluster-member", "u-tenant")
        rbac, partly = here.server.rbac, here.server.handler.filtered_lists
        assert partly is not None

        def seen(user: str) -> list[str]:
            found = visible(rbac, person(user), CLUSTERS)
            assert found is not None
            return sorted(found.everywhere)

        assert (seen("u-tenant"), seen("u-other"), seen("u-new")) == ([A, B], [B], [])
        assert visible(rbac, person("u-auditor"), CLUSTERS) is None
        in_workspace = visible(rbac, person("u-other"), PROVISIONING_CLUSTERS, WORKSPACE)
        assert in_workspace is not None
        assert in_workspace.everywhere == {f"{B}-prov"}
        anywhere = visible(rbac, person("u-other"), PROVISIONING_CLUSTERS)
        assert anywhere is not None
        assert anywhere.by_namespace == {WORKSPACE: frozenset({f"{B}-prov"})}
        # Whoever may make clusters has a list, if an empty one; strangers are refused.
        assert partly.of(Action(person("u-new"), "list", *CLUSTERS)) is not None
        assert partly.of(Action(person("u-new"), "list", *PROVISIONING_CLUSTERS, "", WORKSPACE)) is not None
        assert partly.of(Action(person("u-stranger"), "list", *CLUSTERS)) is None
        assert partly.of(Action(person("u-tenant"), "deletecollection", *CLUSTERS)) is None


async def test_members_list_the_machines_that_are_theirs() -> None:
    async with house() as here:
        filter_lists(here.server)
        partly = here.server.handler.filtered_lists
        assert partly is not None
        rule = {"apiGroups": [MACHINES.group], "resources": ["machines"], "resourceNames": ["m1"], "verbs": ["get", "list"]}
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "theirs", "namespace": WORKSPACE}}
        await here.create(ROLES, {**rbac, "kind": "Role", "rules": [rule]})
        role = {"apiGroup": ROLES.group, "kind": "Role", "name": "theirs"}
        subject = {"apiGroup": ROLES.group, "kind": "User", "name": "u-member"}
        await here.create(ROLE_BINDINGS, {**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
        await here.settle()
        assert partly.of(Action(person("u-member"), "list", *MACHINES, "", WORKSPACE)) is not None
        assert partly.of(Action(person("u-stranger"), "list", *MACHINES, "", WORKSPACE)) is None
