"""What may be written of roles, bindings and clusters: the attacker's attempts, and the words they are refused with."""

from __future__ import annotations

from typing import Any

from remuda.api.management_cattle_io import (
    API_VERSION,
    CLUSTER_REGISTRATION_TOKENS,
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    CLUSTERS,
    GLOBAL_ROLE_BINDINGS,
    GLOBAL_ROLES,
    ROLE_TEMPLATES,
)
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import with_path
from remuda.kube.wrangler import marks

from .management_house import (
    WORKSPACE,
    House,
    cluster_binding,
    global_binding,
    house,
    management_cluster,
    namespace,
    provisioning_cluster,
    refused,
)

Obj = dict[str, Any]

A, B = "c-aaaaa", "c-bbbbb"
CREATOR = "field.cattle.io/creatorId"
NOT_HELD = "is attempting to grant RBAC permissions not currently held"
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def global_role(name: str, rules: list[Obj], **more: Any) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "GlobalRole", "metadata": {"name": name}, "rules": rules, **more}


def template(name: str, rules: list[Obj], **more: Any) -> Obj:
    made = {"apiVersion": API_VERSION, "kind": "RoleTemplate", "metadata": {"name": name}, "context": "cluster"}
    return {**made, "rules": rules, **more}


async def role_keeper(here: House, *more: Obj) -> None:
    """Somebody who may write roles and bindings everywhere, and holds little else."""
    kinds = ["globalroles", "globalrolebindings", "roletemplates", "clusterroletemplatebindings"]
    rules = [{"verbs": ["*"], "apiGroups": ["management.cattle.io"], "resources": kinds}]
    rules[0]["verbs"] = ["get", "list", "create", "update", "patch", "delete"]
    await here.create(GLOBAL_ROLES, global_role("keeper", [*rules, *more]))
    await here.grant("keeper", "u-keeper")


async def tenants(here: House) -> None:
    for name in ("u-tenant", "u-other"):
        await here.grant("user", name)
    await here.cluster(A, creator="u-tenant")
    await here.cluster(B, creator="u-other")


async def test_a_global_role_with_more_than_the_writer_holds_is_refused() -> None:
    async with house() as here:
        await role_keeper(here)
        keeper = here.as_("u-keeper")
        for role in (
            global_role("x", EVERYTHING),
            global_role("x", [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]),
            global_role("x", [{"verbs": ["*"], "apiGroups": ["management.cattle.io"], "resources": ["globalroles"]}]),
            global_role(
                "x", [], namespacedRules={"cattle-global-data": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]}
            ),
            global_role("x", [], inheritedClusterRoles=["cluster-owner"]),
            global_role("x", [], inheritedFleetWorkspacePermissions={"resourceRules": EVERYTHING}),
            global_role("x", [], inheritedFleetWorkspacePermissions={"workspaceVerbs": ["delete"]}),
        ):
            assert NOT_HELD in await refused(keeper.create(GLOBAL_ROLES, role))
        held = [{"verbs": ["get"], "apiGroups": ["management.cattle.io"], "resources": ["globalroles"]}]
        await keeper.create(GLOBAL_ROLES, global_role("x", held))
        assert NOT_HELD in await refused(keeper.patch(GLOBAL_ROLES, "x", {"rules": EVERYTHING}))
        assert NOT_HELD in await refused(keeper.patch(GLOBAL_ROLES, "admin", {"newUserDefault": True}))
        # Words may be changed also of a role that one could not have made.
        await here.create(GLOBAL_ROLES, global_role("big", EVERYTHING))
        await keeper.patch(GLOBAL_ROLES, "big", {"description": "all of it"})


async def test_escalate_and_bind_are_honoured() -> None:
    async with house() as here:
        group = {"apiGroups": ["management.cattle.io"]}
        await role_keeper(
            here,
            {**group, "verbs": ["escalate"], "resources": ["globalroles"], "resourceNames": ["x"]},
            {**group, "verbs": ["bind"], "resources": ["globalroles", "roletemplates"], "resourceNames": ["x", "cluster-owner"]},
        )
        await here.cluster(A)
        keeper = here.as_("u-keeper")
        await keeper.create(GLOBAL_ROLES, global_role("x", EVERYTHING))
        assert NOT_HELD in await refused(keeper.create(GLOBAL_ROLES, global_role("y", EVERYTHING)))
        await keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("x", "u-friend"))
        assert NOT_HELD in await refused(keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("admin", "u-keeper")))
        await keeper.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(A, "cluster-owner", "u-friend"), A)
        assert NOT_HELD in await refused(
            keeper.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(A, "cluster-member", "u-f"), A)
        )


async def test_a_binding_of_a_global_role_with_more_than_the_writer_holds_is_refused() -> None:
    async with house() as here:
        await role_keeper(here)
        await here.grant("user", "u-tenant")
        keeper = here.as_("u-keeper")
        assert NOT_HELD in await refused(keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("admin", "u-keeper")))
        assert NOT_HELD in await refused(keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("read-only", "u-keeper")))
        assert NOT_HELD in await refused(
            keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("admin", group="system:authenticated", name="all"))
        )
        await keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("keeper", "u-friend"))
        assert "cannot create" in await refused(
            here.as_("u-tenant").create(GLOBAL_ROLE_BINDINGS, global_binding("admin", "u-tenant"))
        )
        await here.grant("admin", "u-admin")
        await here.as_("u-admin").create(GLOBAL_ROLE_BINDINGS, global_binding("admin", "u-second"))


async def test_removing_a_global_role_with_more_than_the_writer_holds_is_refused() -> None:
    """Else a server could be left without its administrators."""
    async with house() as here:
        await role_keeper(here)
        mine = await here.grant("admin", "u-admin")
        keeper = here.as_("u-keeper")
        assert "more than you hold" in await refused(keeper.delete(GLOBAL_ROLE_BINDINGS, mine["metadata"]["name"]))
        friend = await keeper.create(GLOBAL_ROLE_BINDINGS, global_binding("keeper", "u-friend"))
        await keeper.delete(GLOBAL_ROLE_BINDINGS, friend["metadata"]["name"])
        await here.as_("u-admin").delete(GLOBAL_ROLE_BINDINGS, mine["metadata"]["name"])


async def test_only_an_owner_makes_owners_and_only_of_their_cluster() -> None:
    async with house() as here:
        await tenants(here)
        manage = [
            {"verbs": ["*"], "apiGroups": ["management.cattle.io"], "resources": ["clusterroletemplatebindings"]},
            {"verbs": ["get", "list", "watch"], "apiGroups": ["management.cattle.io"], "resources": ["nodes"]},
        ]
        await here.create(ROLE_TEMPLATES, template("members-manage", manage))
        await here.member(A, "members-manage", "u-warden")
        await here.member(A, "cluster-member", "u-member")
        await here.settle()
        crtb = CLUSTER_ROLE_TEMPLATE_BINDINGS
        owner, other, member, warden = (here.as_(f"u-{name}") for name in ("tenant", "other", "member", "warden"))
        await owner.create(crtb, cluster_binding(A, "cluster-owner", "u-friend"), A)
        await owner.create(crtb, cluster_binding(A, "cluster-readonly", group="github_team://1"), A)
        assert "cannot create" in await refused(owner.create(crtb, cluster_binding(B, "cluster-owner", "u-tenant"), B))
        assert "cannot create" in await refused(other.create(crtb, cluster_binding(A, "cluster-owner", "u-other"), A))
        assert "cannot create" in await refused(member.create(crtb, cluster_binding(A, "cluster-owner", "u-member"), A))
        # May write bindings, but holds little.
        assert NOT_HELD in await refused(warden.create(crtb, cluster_binding(A, "cluster-owner", "u-warden"), A))
        assert NOT_HELD in await refused(warden.create(crtb, cluster_binding(A, "cluster-member", "u-warden"), A))
        await warden.create(crtb, cluster_binding(A, "members-manage", "u-second"), A)
        # A binding in one's own namespace that is about another cluster.
        stray = {**cluster_binding(A, "cluster-owner", "u-tenant", name="stray"), "clusterName": B}
        assert "clusterName" in await refused(owner.create(crtb, stray, A))
        # Deleting one's own binding is up to who may write bindings there.
        assert "cannot delete" in await refused(member.delete(crtb, "crtb-cluster-member-u-member", A))
        await owner.delete(crtb, "creator-cluster-owner", A)
        await here.settle()
        await refused(owner.get(CLUSTERS, A))


async def test_what_a_binding_is_about_stays() -> None:
    async with house() as here:
        await tenants(here)
        await here.member(A, "cluster-member", "u-member")
        await here.grant("user", "u-member")
        changes = {"roleTemplateName": "cluster-owner", "userName": "u-else", "clusterName": B, "groupPrincipalName": "g"}
        for field, value in changes.items():
            patched = here.client.patch(CLUSTER_ROLE_TEMPLATE_BINDINGS, "crtb-cluster-member-u-member", {field: value}, A)
            assert f"{field}: Invalid value: " in (message := await refused(patched))
            assert "field is immutable" in message
        admin = here.client.patch(GLOBAL_ROLE_BINDINGS, "grb-user-u-member", {"globalRoleName": "admin"})
        assert "globalRoleName: Invalid value" in await refused(admin)


BAD_BINDINGS: tuple[tuple[Obj, str], ...] = (
    ({"userName": None}, "userName: Required value"),
    ({"groupPrincipalName": "g"}, "groupPrincipalName: Forbidden: a binding is for a user or for a group"),
    ({"userName": "system:anonymous"}, "userName: Invalid value"),
    ({"userName": None, "groupName": "system:unauthenticated"}, "groupName: Invalid value"),
    ({"userPrincipalName": "local://u-other"}, "userName: Invalid value"),
    ({"roleTemplateName": "none"}, 'roleTemplateName: Not found: "none"'),
    ({"roleTemplateName": "locked"}, "roleTemplateName: Forbidden: RoleTemplate locked is locked"),
    ({"roleTemplateName": "edit"}, "roleTemplateName: Invalid value"),
    ({"roleTemplateName": ""}, "roleTemplateName: Required value"),
    ({"clusterName": "c-zzzzz"}, "clusterName: Invalid value"),
)


async def test_a_binding_must_make_sense() -> None:
    async with house() as here:
        await here.cluster(A)
        await here.create(ROLE_TEMPLATES, template("locked", [], locked=True))
        for change, words in BAD_BINDINGS:
            binding = {
                key: value for key, value in (cluster_binding(A, "cluster-member", "u-x") | change).items() if value is not None
            }
            assert words in await refused(here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, binding)), change
        assert "globalRoleName: Not found" in await refused(here.create(GLOBAL_ROLE_BINDINGS, global_binding("none", "u-x")))
        local = {**cluster_binding(A, "cluster-member", name="local"), "userPrincipalName": "local://u-x"}
        assert (await here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, local))["userName"] == "u-x"


async def test_role_templates_must_make_sense() -> None:
    async with house() as here:
        await here.create(ROLE_TEMPLATES, template("one", []))
        await here.create(ROLE_TEMPLATES, template("two", [], roleTemplateNames=["one"]))
        for wrong, words in (
            (template("x", [{"verbs": []}]), "rules[0].verbs: Required value"),
            (template("x", [{"verbs": ["get"], "resources": ["pods"]}]), "rules[0].apiGroups: Required value"),
            (template("x", [], context=""), "context: Required value"),
            (template("x", [], projectCreatorDefault=True), "projectCreatorDefault: Forbidden"),
            (template("x", [], externalRules=EVERYTHING), "externalRules: Forbidden"),
            (template("x", EVERYTHING, external=True), "rules: Forbidden"),
            (template("x", [], roleTemplateNames=["none"]), 'roleTemplateNames[0]: Not found: "none"'),
            (template("x", [], builtin=True), "builtin: Forbidden"),
        ):
            assert words in await refused(here.create(ROLE_TEMPLATES, wrong))
        assert "must not include" in await refused(here.client.patch(ROLE_TEMPLATES, "one", {"roleTemplateNames": ["two"]}))
        assert "RoleTemplate two includes it" in await refused(here.client.delete(ROLE_TEMPLATES, "one"))
        await here.client.delete(ROLE_TEMPLATES, "two")
        await here.client.delete(ROLE_TEMPLATES, "one")


async def test_a_role_template_needs_a_writer_who_holds_it_everywhere() -> None:
    async with house() as here:
        await role_keeper(here)
        keeper = here.as_("u-keeper")
        assert NOT_HELD in await refused(keeper.create(ROLE_TEMPLATES, template("x", EVERYTHING)))
        assert NOT_HELD in await refused(keeper.create(ROLE_TEMPLATES, template("x", [], roleTemplateNames=["cluster-owner"])))
        external = {key: value for key, value in template("cluster-admin2", []).items() if key != "rules"}
        wide = {**external, "external": True, "externalRules": EVERYTHING}
        assert NOT_HELD in await refused(keeper.create(ROLE_TEMPLATES, wide))


async def test_built_in_roles_stay() -> None:
    async with house() as here:
        await here.grant("admin", "u-admin")
        admin = here.as_("u-admin")
        assert "built in" in await refused(admin.delete(GLOBAL_ROLES, "admin"))
        assert "built in" in await refused(admin.delete(ROLE_TEMPLATES, "cluster-owner"))
        assert "rules: Forbidden: a built-in GlobalRole" in await refused(
            admin.patch(GLOBAL_ROLES, "user", {"rules": EVERYTHING})
        )
        assert "builtin: Forbidden" in await refused(admin.patch(GLOBAL_ROLES, "user", {"builtin": False}))
        assert "rules: Forbidden" in await refused(admin.patch(ROLE_TEMPLATES, "cluster-member", {"rules": EVERYTHING}))
        await admin.patch(ROLE_TEMPLATES, "cluster-member", {"locked": True})
        await admin.patch(GLOBAL_ROLES, "user", {"newUserDefault": False})


# --- clusters ---------------------------------------------------------------------------------------------------------------


async def test_who_makes_a_cluster_is_its_creator_whatever_they_say() -> None:
    async with house() as here:
        await tenants(here)
        tenant = here.as_("u-tenant")
        made = await tenant.create(PROVISIONING_CLUSTERS, provisioning_cluster("mine"), WORKSPACE)
        assert made["metadata"]["annotations"][CREATOR] == "u-tenant"
        made = await tenant.create(CLUSTERS, management_cluster("c-mine1", fleetWorkspaceName=WORKSPACE))
        assert made["metadata"]["annotations"][CREATOR] == "u-tenant"
        forged = with_path(provisioning_cluster("forged"), ("metadata", "annotations", CREATOR), "u-other")
        assert "must be the user who creates the cluster" in await refused(
            tenant.create(PROVISIONING_CLUSTERS, forged, WORKSPACE)
        )
        # Neither changed nor taken away.
        marks = {"metadata": {"annotations": {CREATOR: "u-friend"}}}
        assert "field is immutable" in await refused(tenant.patch(CLUSTERS, A, marks))
        assert "field is immutable" in await refused(tenant.patch(PROVISIONING_CLUSTERS, f"{A}-prov", marks, WORKSPACE))
        kept = await tenant.patch(CLUSTERS, A, {"metadata": {"annotations": {CREATOR: None}}})
        assert kept["metadata"]["annotations"][CREATOR] == "u-tenant"
        # Nor given to one that has none.
        await here.cluster("c-ccccc")
        await here.member("c-ccccc", "cluster-owner", "u-tenant")
        assert CREATOR in await refused(tenant.patch(CLUSTERS, "c-ccccc", marks))
        # The server copies it from one to the other.
        copied = management_cluster("c-m-copied12")
        copied["metadata"]["annotations"] = {CREATOR: "u-tenant"}
        await here.create(CLUSTERS, copied)


async def test_an_owner_does_not_say_where_the_cluster_is() -> None:
    async with house() as here:
        await tenants(here)
        tenant = here.as_("u-tenant")
        stolen = {"apiEndpoint": "https://192.0.2.66", "serviceAccountTokenSecret": f"{B}-sa"}
        after = await tenant.patch(CLUSTERS, A, {"status": stolen, "spec": {"description": "mine"}})
        assert after["spec"]["description"] == "mine"
        assert after["status"]["serviceAccountTokenSecret"] == f"{A}-sa"
        made = await tenant.create(CLUSTERS, {**management_cluster("c-mine1"), "status": stolen})
        assert "status" not in made
        after = await tenant.patch(CLUSTER_REGISTRATION_TOKENS, "default-token", {"status": {"token": "guess"}}, A)
        assert "status" not in after
        assert "spec.internal: Forbidden" in await refused(tenant.patch(CLUSTERS, A, {"spec": {"internal": True}}))
        moved = tenant.patch(CLUSTERS, A, {"spec": {"fleetWorkspaceName": "fleet-local"}})
        assert "spec.fleetWorkspaceName: Forbidden" in await refused(moved)
        # Controllers do.
        await here.client.patch(CLUSTERS, A, {"status": {"apiEndpoint": "https://192.0.2.2"}})
        assert (await here.client.get(CLUSTERS, A))["status"]["apiEndpoint"] == "https://192.0.2.2"


async def test_a_cluster_takes_no_namespace_and_no_other_cluster() -> None:
    async with house() as here:
        await tenants(here)
        tenant = here.as_("u-tenant")
        await here.create(NAMESPACES, namespace("c-taken"))
        for name in ("kube-system", "cattle-global-data", WORKSPACE, "local", "unborn", "c-taken"):
            assert "metadata.name: Invalid value" in await refused(tenant.create(CLUSTERS, management_cluster(name)))
        stands_for = ("metadata", "annotations", "provisioning.cattle.io/management-cluster-name")
        hijack = with_path(provisioning_cluster("hijack"), stands_for, B)
        assert "you may not edit the management Cluster" in await refused(tenant.create(PROVISIONING_CLUSTERS, hijack, WORKSPACE))
        elsewhere = ("metadata", "annotations", "provisioning.cattle.io/fleet-workspace-name")
        moved = with_path(provisioning_cluster("moved"), elsewhere, "fleet-local")
        assert "you may not create clusters in this workspace" in await refused(
            tenant.create(PROVISIONING_CLUSTERS, moved, WORKSPACE)
        )
        own = with_path(provisioning_cluster("own"), stands_for, A)
        await tenant.create(PROVISIONING_CLUSTERS, own, WORKSPACE)


async def test_the_origin_of_a_cluster_can_not_be_claimed() -> None:
    async with house() as here:
        await tenants(here)
        tenant = here.as_("u-tenant")
        soon = management_cluster("c-mine1")
        soon["metadata"].update(marks("cluster-create", provisioning_cluster("of-other"))._asdict())
        assert "is set by controllers only" in await refused(tenant.create(CLUSTERS, soon))
        claim = {"metadata": marks("cluster-create", provisioning_cluster("of-other"))._asdict()}
        assert "objectset.rio.cattle.io/owner-name" in await refused(tenant.patch(CLUSTERS, A, claim))
        assert "is set by controllers only" in await refused(tenant.patch(PROVISIONING_CLUSTERS, f"{A}-prov", claim, WORKSPACE))
        # Controllers do, and who sends the object without their marks leaves them there.
        await here.client.patch(CLUSTERS, A, {"metadata": marks("cluster-create", provisioning_cluster(f"{A}-prov"))._asdict()})
        marked = await tenant.get(CLUSTERS, A)
        bare = {**marked, "metadata": {"name": A, "resourceVersion": marked["metadata"]["resourceVersion"]}}
        after = await tenant.update(CLUSTERS, bare)
        assert after["metadata"]["annotations"] == marked["metadata"]["annotations"]
        assert after["metadata"]["labels"] == marked["metadata"]["labels"]
