"""Who may do what on the management API: a table with the attacker's cases first, then how access comes and goes."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.roles.role_names import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, workspace_role
from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.api.management_cattle_io import (
    CLUSTER_REGISTRATION_TOKENS,
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    CLUSTERS,
    GLOBAL_ROLE_BINDINGS,
    GLOBAL_ROLES,
    ROLE_TEMPLATES,
    TOKENS,
    USERS,
)
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.api.rke_cattle_io import ETCD_SNAPSHOTS
from remuda.kube.authorization.actions import Action
from remuda.kube.objects import GroupVersionResource
from remuda.kube.wrangler import safe_concat

from .management_house import SECRETS, WORKSPACE, House, cluster_binding, house, person, refused, secret

Obj = dict[str, Any]

A, B = "c-aaaaa", "c-bbbbb"  # the clusters of two tenants, who work in one workspace
WRITES = ("update", "patch", "delete")
ALL = ("get", "list", "watch", *WRITES)
NO_ONE = person("u-nobody")
PEOPLE = {
    "nobody": NO_ONE,
    "tenant": person("u-tenant"),  # owns A
    "other": person("u-other"),  # owns B
    "member": person("u-member"),  # of A
    "reader": person("u-reader"),  # read-only in A
    "team": person("u-teammate", "github_team://1"),  # member of A by group
    "auditor": person("u-auditor"),  # global read-only
    "admin": person("u-admin"),
    "agent": person("system:serviceaccount:cattle-system:cattle"),
}
# Who, what, where, which one, the verbs asked for, the verbs allowed.
TABLE: tuple[tuple[str, GroupVersionResource, str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    # A tenant at somebody else's door.
    ("tenant", CLUSTERS, "", B, ALL, ()),
    ("tenant", PROVISIONING_CLUSTERS, WORKSPACE, f"{B}-prov", ALL, ()),
    ("tenant", SECRETS, WORKSPACE, f"{B}-prov-kubeconfig", ALL, ()),
    ("tenant", SECRETS, WORKSPACE, f"{B}-prov-registry", ALL, ()),
    ("tenant", SECRETS, B, "crt-token-default-token", ALL, ()),
    ("tenant", SECRETS, "cattle-global-data", f"{A}-sa", ALL, ()),
    ("tenant", SECRETS, "cattle-global-data", f"{B}-sa", ALL, ()),
    ("tenant", SECRETS, WORKSPACE, "", ("list", "watch", "create", "deletecollection"), ()),
    ("tenant", SECRETS, "", "", ("list", "watch"), ()),
    ("tenant", SECRETS, WORKSPACE, "stolen", ALL, ()),
    ("tenant", CLUSTER_REGISTRATION_TOKENS, B, "default-token", ALL, ()),
    ("tenant", CLUSTER_ROLE_TEMPLATE_BINDINGS, B, "", ("list", "create"), ()),
    ("tenant", CLUSTER_ROLE_TEMPLATE_BINDINGS, "", "", ("list",), ()),
    ("tenant", MACHINES, WORKSPACE, "machine-b", ALL, ()),
    ("tenant", MACHINES, WORKSPACE, "machine-a", ("create", "update", "patch"), ()),
    ("tenant", GLOBAL_ROLES, "", "admin", ALL, ()),
    ("tenant", GLOBAL_ROLE_BINDINGS, "", "", ("list", "create"), ()),
    ("tenant", ROLE_TEMPLATES, "", "cluster-owner", WRITES, ()),
    ("tenant", USERS, "", "u-other", ALL, ()),
    ("tenant", TOKENS, "", "token-x", ALL, ()),
    ("tenant", CLUSTER_ROLES, "", "cluster-admin", ("bind", "escalate", *WRITES), ()),
    ("tenant", ROLES, WORKSPACE, "", ("create", "list"), ()),
    ("tenant", ROLE_BINDINGS, A, "", ("create", "list"), ()),
    ("tenant", CLUSTERS, "", "", ("list", "watch", "deletecollection"), ()),
    ("tenant", PROVISIONING_CLUSTERS, "fleet-local", "", ("create", "list"), ()),
    ("tenant", PROVISIONING_CLUSTERS, "kube-system", "", ("create",), ()),
    ("nobody", CLUSTERS, "", A, ALL, ()),
    ("nobody", CLUSTERS, "", "", ("create", "list"), ()),
    ("agent", SECRETS, A, "crt-token-default-token", ALL, ()),
    # Members and readers are no owners.
    ("member", CLUSTERS, "", A, ALL, ("get", "list", "watch")),
    ("member", PROVISIONING_CLUSTERS, WORKSPACE, f"{A}-prov", ALL, ("get", "list", "watch")),
    ("member", SECRETS, WORKSPACE, f"{A}-prov-kubeconfig", ALL, ()),
    ("member", SECRETS, A, "crt-token-default-token", ALL, ()),
    ("member", CLUSTER_REGISTRATION_TOKENS, A, "default-token", ALL, ()),
    ("member", CLUSTER_ROLE_TEMPLATE_BINDINGS, A, "", ("list", "create", "delete"), ("list",)),
    ("member", CLUSTERS, "", B, ALL, ()),
    ("reader", CLUSTERS, "", A, ALL, ("get", "list", "watch")),
    ("reader", PROVISIONING_CLUSTERS, WORKSPACE, f"{A}-prov", ALL, ("get", "list", "watch")),
    ("reader", SECRETS, WORKSPACE, f"{A}-prov-kubeconfig", ALL, ()),
    ("reader", CLUSTER_ROLE_TEMPLATE_BINDINGS, A, "", ("list", "create", "delete"), ("list",)),
    ("auditor", CLUSTERS, "", B, ALL, ("get", "list", "watch")),
    ("auditor", PROVISIONING_CLUSTERS, WORKSPACE, "", ("list", "create", "delete"), ("list",)),
    ("auditor", SECRETS, WORKSPACE, f"{B}-prov-kubeconfig", ALL, ()),
    ("auditor", SECRETS, B, "crt-token-default-token", ALL, ()),
    ("auditor", CLUSTER_REGISTRATION_TOKENS, B, "default-token", ALL, ()),
    ("auditor", TOKENS, "", "token-x", ALL, ()),
    ("auditor", USERS, "", "u-other", WRITES, ()),
    # And what people are there for.
    ("team", CLUSTERS, "", A, ALL, ("get", "list", "watch")),
    ("team", CLUSTERS, "", B, ALL, ()),
    ("tenant", CLUSTERS, "", A, ALL, ALL),
    ("tenant", CLUSTERS, "", "", ("create",), ("create",)),
    ("tenant", PROVISIONING_CLUSTERS, WORKSPACE, f"{A}-prov", ALL, ALL),
    ("tenant", PROVISIONING_CLUSTERS, WORKSPACE, "", ("create", "list"), ("create",)),
    ("tenant", SECRETS, WORKSPACE, f"{A}-prov-kubeconfig", ALL, ("get", "list", "watch")),
    ("tenant", SECRETS, WORKSPACE, f"{A}-prov-registry", ALL, ALL),
    ("tenant", SECRETS, A, "crt-token-default-token", ALL, ("get", "list", "watch")),
    ("tenant", CLUSTER_REGISTRATION_TOKENS, A, "default-token", ALL, ALL),
    ("tenant", CLUSTER_ROLE_TEMPLATE_BINDINGS, A, "", ("list", "create", "delete"), ("list", "create", "delete")),
    ("tenant", MACHINES, WORKSPACE, "machine-a", ("get", "delete"), ("get", "delete")),
    ("tenant", ROLE_TEMPLATES, "", "", ("list",), ("list",)),
    ("admin", SECRETS, "cattle-global-data", f"{B}-sa", ALL, ALL),
    ("admin", GLOBAL_ROLES, "", "", ("create", "escalate"), ("create", "escalate")),
)


def machine(name: str, cluster: str) -> Obj:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": WORKSPACE, "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "spec": {
            "clusterName": cluster,
            "bootstrap": {"dataSecretName": "data"},
            "infrastructureRef": {"apiGroup": "test.io", "kind": "TestMachine", "name": name},
        },
    }


async def settled(here: House) -> None:
    """Two tenants with a cluster each, and everybody else of the table."""
    for name in ("u-tenant", "u-other"):
        await here.grant("user", name)
    await here.grant("admin", "u-admin")
    await here.grant("read-only", "u-auditor")
    await here.cluster(A, creator="u-tenant")
    await here.cluster(B, creator="u-other")
    await here.member(A, "cluster-member", "u-member")
    await here.member(A, "cluster-readonly", "u-reader")
    await here.member(A, "cluster-member", group="github_team://1")
    await here.create(MACHINES, machine("machine-a", f"{A}-prov"))
    await here.create(MACHINES, machine("machine-b", f"{B}-prov"))
    # A trap: the token of somebody's service account that says it belongs to A.
    trap = secret("stolen", labels={"cluster.x-k8s.io/cluster-name": f"{A}-prov"}, type_="kubernetes.io/service-account-token")
    trap["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    await here.create(SECRETS, trap)
    await here.settle(3)


async def test_who_may_do_what() -> None:
    async with house() as here:
        await settled(here)
        wrong = []
        for who, resource, namespace, name, asked, allowed in TABLE:
            for verb in asked:
                action = Action(PEOPLE[who], verb, *resource, "", namespace, name)
                decision = here.server.rbac.authorize(action)
                if decision.allowed is not (verb in allowed):
                    wrong.append(f"{who} {verb} {resource.resource} {namespace}/{name}: {decision}")
        assert wrong == []
        # Into a machine go who owns its cluster, and who may do everything.
        for who, mine, theirs in (
            ("tenant", True, False),
            ("member", False, False),
            ("reader", False, False),
            ("admin", True, True),
        ):
            for name, expected in (("machine-a", mine), ("machine-b", theirs)):
                action = Action(PEOPLE[who], "create", *MACHINES, "shell", WORKSPACE, name)
                assert here.server.rbac.authorize(action).allowed is expected, (who, name)


async def test_the_creator_is_made_owner_once() -> None:
    async with house() as here:
        await here.grant("user", "u-tenant")
        await here.cluster(A, creator="u-tenant")
        binding = await here.client.get(CLUSTER_ROLE_TEMPLATE_BINDINGS, "creator-cluster-owner", A)
        assert (binding["userName"], binding["roleTemplateName"]) == ("u-tenant", "cluster-owner")
        assert binding["status"]["summaryLocal"] == "Complete"
        tenant = here.as_("u-tenant")
        assert (await tenant.get(CLUSTERS, A))["metadata"]["name"] == A
        # An administrator takes it away, and it stays away.
        await here.client.delete(CLUSTER_ROLE_TEMPLATE_BINDINGS, "creator-cluster-owner", A)
        await here.settle(1000)
        assert await here.find(CLUSTER_ROLE_TEMPLATE_BINDINGS, "creator-cluster-owner", A) is None
        await refused(tenant.get(CLUSTERS, A))
        await refused(tenant.get(SECRETS, f"{A}-prov-kubeconfig", WORKSPACE))


async def test_a_removed_cluster_leaves_no_role_behind() -> None:
    async with house() as here:
        await here.grant("user", "u-tenant")
        await here.cluster(A, creator="u-tenant")
        assert await here.names(CLUSTER_ROLES, labels="authz.management.cattle.io/cluster") == [
            f"{A}-clustermember",
            f"{A}-clusterowner",
        ]
        assert await here.names(ROLES, WORKSPACE, "authz.management.cattle.io/cluster") == [f"r-cluster-{A}-prov-admin"]
        await here.client.delete(CLUSTERS, A)
        await here.client.delete(PROVISIONING_CLUSTERS, f"{A}-prov", WORKSPACE)
        await here.client.delete_collection(SECRETS, WORKSPACE)
        await here.settle(5)
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS):
            assert await here.names(resource, labels="authz.management.cattle.io/cluster") == []
        # Somebody else's new cluster of the same name is not theirs, and what an older one left is not that somebody's.
        await here.create(SECRETS, secret("left-over", labels={"cluster.x-k8s.io/cluster-name": f"{A}-prov"}))
        await here.settle(2)
        await here.grant("user", "u-other")
        await here.cluster("c-ccccc", creator="u-other", workspace_name=f"{A}-prov")
        await refused(here.as_("u-other").get(SECRETS, "left-over", WORKSPACE))
        assert await here.as_("u-other").get(SECRETS, f"{A}-prov-kubeconfig", WORKSPACE)
        await refused(here.as_("u-tenant").get(PROVISIONING_CLUSTERS, f"{A}-prov", WORKSPACE))
        await refused(here.as_("u-tenant").get(SECRETS, f"{A}-prov-kubeconfig", WORKSPACE))


async def test_edited_roles_are_restored() -> None:
    async with house() as here:
        await here.cluster(A, creator="u-tenant")
        wide = {"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
        await here.client.patch(CLUSTER_ROLES, f"{A}-clustermember", wide)
        await here.client.delete(ROLES, f"r-cluster-{A}-prov-admin", WORKSPACE)
        await here.settle()
        found = await here.client.get(CLUSTER_ROLES, f"{A}-clustermember")
        assert found["rules"][0]["resourceNames"] == [A]
        assert await here.find(ROLES, f"r-cluster-{A}-prov-admin", WORKSPACE) is not None


async def test_what_comes_later_is_given_and_what_goes_is_taken() -> None:
    async with house() as here:
        await here.cluster(A, creator="u-tenant")
        tenant = here.as_("u-tenant")
        await here.create(SECRETS, secret("late", labels={"cluster.x-k8s.io/cluster-name": f"{A}-prov"}))
        await here.settle()
        assert (await tenant.get(SECRETS, "late", WORKSPACE))["metadata"]["name"] == "late"
        await here.client.patch(
            SECRETS, "late", {"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "another"}}}, WORKSPACE
        )
        await here.settle()
        await refused(tenant.get(SECRETS, "late", WORKSPACE))


def capi_cluster(name: str) -> Obj:
    reference = {"apiGroup": "test.io", "kind": "TestCluster", "name": name}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": WORKSPACE},
        "spec": {"infrastructureRef": reference},
    }


@pytest.mark.parametrize("first", [True, False], ids=["there before", "comes later"])
async def test_a_cluster_of_the_same_name_gives_nothing_of_another(first: bool) -> None:
    """Somebody else's Cluster of Cluster API: its keys, how its machines are started, and the machines are not the tenant's."""
    name = f"{A}-prov"
    async with house() as here:
        if first:
            await here.create(CAPI_CLUSTERS, capi_cluster(name))
        await here.grant("user", "u-tenant")
        await here.cluster(A, creator="u-tenant")
        # Somebody may bring their own keys before there is the cluster.
        mark = {"cluster.x-k8s.io/cluster-name": name}
        await here.create(SECRETS, secret(f"{name}-ca", labels=mark, type_="cluster.x-k8s.io/secret"))
        await here.settle(2)
        tenant = here.as_("u-tenant")
        await refused(tenant.get(SECRETS, f"{name}-ca", WORKSPACE))
        if not first:
            await here.create(CAPI_CLUSTERS, capi_cluster(name))
        await here.create(MACHINES, machine("machine-of-another", name))
        await here.create(SECRETS, secret("bootstrap", labels=mark))
        await here.settle(2)
        await refused(tenant.get(SECRETS, f"{name}-ca", WORKSPACE))
        await refused(tenant.get(SECRETS, "bootstrap", WORKSPACE))
        await refused(tenant.get(MACHINES, "machine-of-another", WORKSPACE))
        await refused(tenant.delete(MACHINES, "machine-of-another", WORKSPACE))
        assert await tenant.get(PROVISIONING_CLUSTERS, name, WORKSPACE)


async def test_owners_have_snapshots_checked_and_deleted_and_members_only_see_them() -> None:
    async with house(provisions=True) as here:
        for name in ("u-tenant", "u-member"):
            await here.grant("user", name)
        await here.cluster(A, creator="u-tenant")
        await here.member(A, "cluster-member", "u-member")
        marks = {"name": "snapshot", "namespace": WORKSPACE, "labels": {"rke.cattle.io/cluster-name": f"{A}-prov"}}
        of_cluster = {"apiVersion": "rke.cattle.io/v1", "kind": "ETCDSnapshot", "spec": {"clusterName": f"{A}-prov"}}
        await here.create(ETCD_SNAPSHOTS, {**of_cluster, "metadata": marks})
        await here.settle(3)
        asked = {"metadata": {"annotations": {"remuda.dev/verify": "1"}}}
        tenant, member = here.as_("u-tenant"), here.as_("u-member")
        assert await member.get(ETCD_SNAPSHOTS, "snapshot", WORKSPACE)
        await refused(member.patch(ETCD_SNAPSHOTS, "snapshot", asked, WORKSPACE))
        await refused(member.delete(ETCD_SNAPSHOTS, "snapshot", WORKSPACE))
        found = await tenant.patch(ETCD_SNAPSHOTS, "snapshot", asked, WORKSPACE)
        await refused(tenant.update(ETCD_SNAPSHOTS, found))
        await tenant.delete(ETCD_SNAPSHOTS, "snapshot", WORKSPACE)


def test_two_clusters_never_share_a_role() -> None:
    """Long names that a short form would make one of, of which anybody finds as many as they like."""
    names = [f"{'a' * 48}{end}" for end in ("236", "346")]
    assert safe_concat("r-cluster", names[0], "admin") == safe_concat("r-cluster", names[1], "admin")
    assert len({workspace_role(name, admin=admin) for name in names for admin in (True, False)}) == 4
    longest = workspace_role("x" * 63, admin=True)
    assert longest == f"r-cluster-{'x' * 63}-admin"


async def test_an_owner_can_not_exclude_users_who_may_see_every_cluster() -> None:
    async with house() as here:
        await here.grant("user", "u-tenant")
        await here.grant("read-only", "u-auditor")
        await here.cluster(A, creator="u-tenant")
        (name,) = [each for each in await here.names(CLUSTER_ROLE_TEMPLATE_BINDINGS, A) if each.startswith("crtb-grb-")]
        tenant, auditor = here.as_("u-tenant"), person("u-auditor")
        seeing = Action(auditor, "list", *CLUSTER_ROLE_TEMPLATE_BINDINGS, "", A)
        of_it = Action(auditor, "get", *GroupVersionResource("management.cattle.io", "v3", "nodes"), "", A, "x")

        async def is_given() -> None:
            await here.settle(3)
            found = await here.client.get(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, A)
            assert (found["userName"], found["roleTemplateName"]) == ("u-auditor", "cluster-readonly")
            assert "deletionTimestamp" not in found["metadata"]
            assert all(here.server.rbac.authorize(action).allowed for action in (seeing, of_it))

        await is_given()
        # It stays there for ever, on its way out.
        held = {"metadata": {"finalizers": ["tenant.example/never"]}}
        await tenant.patch(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, held, A)
        await tenant.delete(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, A)
        await is_given()
        # Its name is somebody else's.
        await tenant.delete(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, A)
        taken = cluster_binding(A, "cluster-readonly", "u-nobody")
        taken["metadata"]["name"] = name
        await tenant.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, taken, A)
        await is_given()


async def test_a_role_template_that_changes_changes_what_it_gives() -> None:
    async with house() as here:
        await here.cluster(A)
        rules = [{"verbs": ["get"], "apiGroups": ["management.cattle.io"], "resources": ["clusterregistrationtokens"]}]
        template = {"apiVersion": "management.cattle.io/v3", "kind": "RoleTemplate", "metadata": {"name": "watcher"}}
        await here.create(ROLE_TEMPLATES, {**template, "context": "cluster", "rules": rules})
        await here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(A, "watcher", "u-member"))
        await here.settle()
        somebody = here.as_("u-member")
        assert await somebody.get(CLUSTER_REGISTRATION_TOKENS, "default-token", A)
        await here.client.patch(ROLE_TEMPLATES, "watcher", {"rules": []})
        await here.settle()
        await refused(somebody.get(CLUSTER_REGISTRATION_TOKENS, "default-token", A))
        assert await somebody.get(CLUSTERS, A)


async def test_global_roles_become_cluster_roles() -> None:
    async with house() as here:
        role = {
            "apiVersion": "management.cattle.io/v3",
            "kind": "GlobalRole",
            "metadata": {"name": "helpdesk"},
            "rules": [{"verbs": ["list"], "apiGroups": ["management.cattle.io"], "resources": ["users"]}],
            "namespacedRules": {
                WORKSPACE: [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}],
                "later": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}],
            },
        }
        await here.create(GLOBAL_ROLES, role)
        binding = await here.grant("helpdesk", "u-helper")
        assert binding["metadata"]["ownerReferences"][0]["name"] == "helpdesk"
        found = await here.client.get(CLUSTER_ROLES, "cattle-globalrole-helpdesk")
        assert found["rules"] == role["rules"]
        bound = await here.client.get(CLUSTER_ROLE_BINDINGS, "cattle-globalrolebinding-grb-helpdesk-u-helper")
        assert bound["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-helper"}]
        helper = here.as_("u-helper")
        config_maps = GroupVersionResource("", "v1", "configmaps")
        assert await helper.list(USERS)
        await refused(helper.list(config_maps, WORKSPACE))
        assert here.server.rbac.authorize(Action(person("u-helper"), "get", "", "v1", "configmaps", "", WORKSPACE, "x")).allowed
        # A namespace that comes later gets its Role then.
        await here.create(
            GroupVersionResource("", "v1", "namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}
        )
        await here.settle()
        assert here.server.rbac.authorize(Action(person("u-helper"), "get", "", "v1", "configmaps", "", "later", "x")).allowed
        # Without its role a binding is nothing, and goes.
        await here.client.delete(GLOBAL_ROLES, "helpdesk")
        await here.settle(5)
        assert await here.find(CLUSTER_ROLES, "cattle-globalrole-helpdesk") is None
        assert await here.names(CLUSTER_ROLE_BINDINGS, labels="authz.management.cattle.io/grb-owner") == []
        assert await here.find(GLOBAL_ROLE_BINDINGS, "grb-helpdesk-u-helper") is None


async def test_groups_have_what_their_bindings_give() -> None:
    async with house() as here:
        await here.grant("read-only", group="github_org://42")
        await here.cluster(A)
        insider, outsider = person("u-in", "github_org://42"), person("u-out", "github_org://43")
        assert await here.as_(insider).list(CLUSTERS)
        assert await here.as_(insider).get(CLUSTERS, A)
        await refused(here.as_(outsider).list(CLUSTERS))


async def test_a_global_role_gives_its_templates_in_every_cluster_until_it_goes() -> None:
    async with house() as here:
        await here.cluster(A)
        binding = await here.grant("read-only", "u-auditor")
        await here.cluster(B)
        label = "authz.management.cattle.io/grb-owner"
        for cluster in (A, B):
            (name,) = await here.names(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster, label)
            found = await here.client.get(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, cluster)
            assert (found["roleTemplateName"], found["userName"]) == ("cluster-readonly", "u-auditor")
        # Who removes one finds it there again.
        await here.client.delete(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, B)
        await here.settle()
        assert await here.names(CLUSTER_ROLE_TEMPLATE_BINDINGS, B, label) == [name]
        await here.client.delete(GLOBAL_ROLE_BINDINGS, binding["metadata"]["name"])
        await here.settle()
        for cluster in (A, B):
            assert await here.names(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster, label) == []


async def test_a_principal_counts_when_a_user_has_it() -> None:
    async with house() as here:
        await here.cluster(A)
        binding = cluster_binding(A, "cluster-member", name="seven")
        await here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, {**binding, "userPrincipalName": "github_user://7"})
        await here.settle()
        await refused(here.as_("u-seven").get(CLUSTERS, A))
        user = {"apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": "u-seven"}}
        await here.create(USERS, {**user, "principalIds": ["github_user://7", "local://u-seven"]})
        await here.settle()
        assert await here.as_("u-seven").get(CLUSTERS, A)


async def test_who_is_removed_takes_their_bindings_along() -> None:
    async with house() as here:
        await here.cluster(A)
        user = {"apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": "u-leaver"}}
        await here.create(USERS, user)
        await here.grant("user", "u-leaver")
        await here.grant("user", "u-unborn")
        await here.member(A, "cluster-owner", "u-leaver")
        await here.member(A, "cluster-member", "u-unborn")
        await here.client.delete(USERS, "u-leaver")
        await here.settle()
        assert await here.names(GLOBAL_ROLE_BINDINGS) == ["grb-user-u-unborn"]
        assert await here.names(CLUSTER_ROLE_TEMPLATE_BINDINGS, A) == ["crtb-cluster-member-u-unborn"]
        await here.create(USERS, user)
        await here.settle()
        await refused(here.as_("u-leaver").get(CLUSTERS, A))


async def test_built_in_roles_come_back_and_keep_what_was_chosen() -> None:
    async with house() as here:
        assert {"admin", "user", "user-base", "read-only", "clusters-create"} <= set(await here.names(GLOBAL_ROLES))
        assert {"cluster-owner", "cluster-member", "cluster-readonly"} <= set(await here.names(ROLE_TEMPLATES))
        await here.client.patch(GLOBAL_ROLES, "user", {"newUserDefault": False})
        await here.client.patch(ROLE_TEMPLATES, "cluster-member", {"locked": True})
        # As if an older version had made it, and nobody had been there to refuse.
        here.server.hooks._hooks.clear()
        await here.client.patch(GLOBAL_ROLES, "user", {"rules": [], "displayName": "Somebody"})
        await here.client.delete(ROLE_TEMPLATES, "cluster-owner")
        await here.settle()
        user = await here.client.get(GLOBAL_ROLES, "user")
        assert (user["displayName"], user.get("newUserDefault")) == ("User", False)
        assert user["rules"]
        assert (await here.client.get(ROLE_TEMPLATES, "cluster-member"))["locked"] is True
        assert (await here.client.get(ROLE_TEMPLATES, "cluster-owner"))["builtin"] is True
