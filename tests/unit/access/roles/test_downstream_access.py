"""What people may do inside downstream clusters, which come and go."""

from __future__ import annotations

from typing import Any

from remuda.access.roles.role_names import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, DOWNSTREAM
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, GLOBAL_ROLE_BINDINGS, ROLE_TEMPLATES
from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action

from .management_house import House, cluster_binding, house, person

Obj = dict[str, Any]
A = "c-aaaaa"


def may(here: House, who: str, verb: str, resource: str, namespace: str = "", *groups: str) -> bool:
    action = Action(person(who, *groups), verb, "", "v1", resource, "", namespace)
    return here.downstreams.servers[A].rbac.authorize(action).allowed


async def ours(client: Client) -> list[str]:
    found = []
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        listed = await client.list(resource, labels=f"{DOWNSTREAM}=true")
        found += [each["metadata"]["name"] for each in listed["items"]]
    return sorted(found)


async def test_each_has_inside_what_their_role_says() -> None:
    async with house() as here:
        await here.grant("admin", "u-admin")
        await here.grant("user", "u-stranger")
        await here.cluster(A, creator="u-owner")
        await here.downstreams.connect(A)
        await here.member(A, "cluster-member", "u-member")
        await here.member(A, "cluster-readonly", "u-reader")
        await here.member(A, "cluster-owner", group="github_team://1")
        await here.settle()
        wrong = []
        for who, verb, resource, allowed in (
            ("u-stranger", "get", "nodes", False),
            ("u-stranger", "list", "pods", False),
            ("u-member", "list", "nodes", True),
            ("u-member", "list", "pods", False),
            ("u-member", "list", "secrets", False),
            ("u-member", "delete", "nodes", False),
            ("u-reader", "list", "pods", True),
            ("u-reader", "list", "nodes", True),
            ("u-reader", "list", "secrets", False),
            ("u-reader", "create", "pods", False),
            ("u-owner", "list", "secrets", True),
            ("u-admin", "list", "secrets", True),
        ):
            if may(here, who, verb, resource) is not allowed:
                wrong.append((who, verb, resource))
        assert wrong == []
        assert may(here, "u-somebody", "list", "secrets", "", "github_team://1")
        binding = await here.client.get(CLUSTER_ROLE_TEMPLATE_BINDINGS, "crtb-cluster-member-u-member", A)
        assert (binding["status"]["summary"], binding["status"]["observedGenerationRemote"]) == ("Complete", 1)


async def test_a_binding_that_went_while_the_cluster_was_away_goes_when_it_is_back() -> None:
    async with house() as here:
        await here.grant("admin", "u-admin")
        await here.cluster(A)
        await here.downstreams.connect(A)
        await here.member(A, "cluster-owner", "u-leaver")
        assert may(here, "u-leaver", "list", "secrets")
        here.downstreams.cut(A)
        await here.client.delete(CLUSTER_ROLE_TEMPLATE_BINDINGS, "crtb-cluster-owner-u-leaver", A)
        await here.client.delete(GLOBAL_ROLE_BINDINGS, "grb-admin-u-admin")
        await here.member(A, "cluster-member", "u-joiner")
        await here.settle(100)
        assert may(here, "u-leaver", "list", "secrets")
        assert await here.find(CLUSTER_ROLE_TEMPLATE_BINDINGS, "crtb-cluster-owner-u-leaver", A) is None
        await here.downstreams.connect(A)
        await here.settle()
        assert not may(here, "u-leaver", "list", "secrets")
        assert not may(here, "u-admin", "list", "secrets")
        assert may(here, "u-joiner", "list", "nodes")


async def test_what_is_removed_or_widened_inside_is_put_right() -> None:
    async with house() as here:
        await here.cluster(A)
        inside = await here.downstreams.connect(A)
        await here.member(A, "cluster-member", "u-member")
        before = await ours(inside)
        assert "cluster-member" in before
        wide = {"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
        await inside.patch(CLUSTER_ROLES, "cluster-member", wide)
        for name in before:
            if name != "cluster-member":
                await inside.delete(CLUSTER_ROLE_BINDINGS, name)
        await here.settle(400)
        assert await ours(inside) == before
        assert not may(here, "u-member", "list", "secrets")
        assert may(here, "u-member", "list", "nodes")


async def test_roles_of_the_cluster_itself_are_never_written_over() -> None:
    async with house() as here:
        await here.cluster(A)
        inside = await here.downstreams.connect(A)
        theirs = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "theirs"},
            "rules": [],
        }
        await inside.create(CLUSTER_ROLES, theirs)
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        for name in ("theirs", "system:node"):
            if ":" not in name:
                template = {"apiVersion": "management.cattle.io/v3", "kind": "RoleTemplate", "metadata": {"name": name}}
                await here.create(ROLE_TEMPLATES, {**template, "context": "cluster", "rules": everything})
                await here.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(A, name, "u-member", name="b"))
        await here.settle()
        assert not (await inside.get(CLUSTER_ROLES, "theirs")).get("rules")
        binding = await here.client.get(CLUSTER_ROLE_TEMPLATE_BINDINGS, "b", A)
        assert binding["status"]["summary"] == "Error"
        assert "is not Remuda's" in binding["status"]["remoteConditions"][0]["message"]


async def test_an_external_template_is_the_cluster_role_of_its_name() -> None:
    async with house() as here:
        await here.cluster(A)
        inside = await here.downstreams.connect(A)
        await here.member(A, "cluster-admin", "u-root")
        assert may(here, "u-root", "list", "secrets")
        found = await inside.get(CLUSTER_ROLES, "cluster-admin")
        assert DOWNSTREAM not in found["metadata"]["labels"]
