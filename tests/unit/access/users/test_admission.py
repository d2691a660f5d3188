"""Users and tokens written with kubectl: nobody becomes somebody else by it. The attacker's attempts first."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.access.roles.holdings import Holdings
from remuda.access.users.admission import admitted
from remuda.access.users.tokens import TokenSpec, make_token
from remuda.access.users.user_objects import user_manifest
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_ROLE_TEMPLATE_BINDINGS, GLOBAL_ROLE_BINDINGS, TOKENS, USERS
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.gateway.management_gateway import Management, management

Obj = dict[str, Any]
RBAC = "rbac.authorization.k8s.io/v1"
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
KEEPER, ADMIN = "u-keeper", "user-admin"


async def give(made: Management, user: str, *rules: tuple[str, str, str]) -> None:
    listed = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in rules]
    meta = {"name": f"test-{user}"}
    await made.client.create(CLUSTER_ROLES, {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": meta, "rules": listed})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": meta["name"]}
    binding = {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": meta, "subjects": [subject], "roleRef": role}
    await made.client.create(BINDINGS, binding)


@asynccontextmanager
async def house() -> AsyncIterator[tuple[Management, Callable[[str], InProcessClient]]]:
    """With an administrator, and somebody who may write users and tokens and nothing else."""
    async with management() as made:
        source, rbac = made.server.source, made.server.rbac
        install(admitted(source, rbac, Holdings(source, rbac)), made.server.hooks, made.server.converters)
        for name, login in ((ADMIN, "admin"), (KEEPER, "keeper"), ("u-jo", "jo")):
            await made.client.create(USERS, user_manifest(name, login))
        await give(made, ADMIN, ("*", "*", "*"))
        await give(made, KEEPER, ("management.cattle.io", "users", "*"), ("management.cattle.io", "tokens", "*"))

        def as_(name: str) -> InProcessClient:
            return InProcessClient(made.server, manager="kubectl", user=User(name, name, (AUTHENTICATED,)))

        yield made, as_


async def refused(attempt: Coroutine[Any, Any, Any]) -> str:
    try:
        await attempt
    except ApiError as error:
        assert error.code in (403, 422), error
        return error.message
    raise AssertionError("it was let through")


def token(user: str, **more: Any) -> Obj:
    return {**make_token(TokenSpec(user=user, ttl=3600), 1_800_000_000, Entropy()).manifest, **more}


async def test_a_token_for_another_user_or_for_a_group_is_refused() -> None:
    async with house() as (made, as_):
        keeper = as_(KEEPER)
        assert "impersonate that user" in await refused(keeper.create(TOKENS, token(ADMIN)))
        assert "a token must belong to a user" in await refused(keeper.create(TOKENS, token("")))
        for group in ({"metadata": {"name": "system:masters"}}, {"name": "github_team://1"}, {}):
            assert "impersonate that group" in await refused(keeper.create(TOKENS, token(KEEPER, groupPrincipals=[group])))
        assert (await made.client.list(TOKENS))["items"] == []
        await keeper.create(TOKENS, token(KEEPER))
        await as_(ADMIN).create(TOKENS, token("u-jo", groupPrincipals=[{"metadata": {"name": "github_team://1"}}]))


async def test_a_user_who_may_impersonate_another_may_make_them_a_token() -> None:
    async with house() as (made, as_):
        await give(made, "u-butler", ("management.cattle.io", "tokens", "*"), ("", "users", "impersonate"))
        await as_("u-butler").create(TOKENS, token("u-jo"))


async def test_a_token_keeps_its_user_and_lasts_no_longer() -> None:
    async with house() as (made, as_):
        stored = await made.client.create(TOKENS, token("u-jo", clusterName="c-a"))
        name, keeper = stored["metadata"]["name"], as_(KEEPER)
        for change in (
            {"userId": ADMIN},
            {"token": "$3:1:AAAA:AAAA"},
            {"groupPrincipals": [{"metadata": {"name": "system:masters"}}]},
            {"userPrincipal": {"metadata": {"name": "local://user-admin"}}},
            {"isDerived": False},
        ):
            assert "field is immutable" in await refused(keeper.patch(TOKENS, name, change)), change
        for change in ({"ttl": 0}, {"expiresAt": ""}, {"expiresAt": "2999-01-01T00:00:00Z"}, {"clusterName": ""}):
            assert "impersonate the token's user" in await refused(keeper.patch(TOKENS, name, change)), change
        await keeper.patch(TOKENS, name, {"enabled": False, "description": "off"})
        await keeper.delete(TOKENS, name)


async def test_what_the_server_itself_writes_is_let_through() -> None:
    async with house() as (made, _):
        name = (await made.client.create(TOKENS, token("u-jo")))["metadata"]["name"]
        await made.client.patch(TOKENS, name, {"lastUsedAt": "2026-01-01T00:00:00Z", "token": "$3:1:AAAA:BBBB"})


async def test_principals_of_login_providers_do_not_change_the_user() -> None:
    async with house() as (_, as_):
        keeper = as_(KEEPER)
        for principal in ("local://user-admin", "system://provisioning/fleet-default/prod", "github_user://1"):
            assert "only users with all permissions" in await refused(
                keeper.patch(USERS, KEEPER, {"principalIds": [principal]})
            ), principal
            made_up = {**user_manifest("u-new", "new"), "principalIds": [principal]}
            assert "only users with all permissions" in await refused(keeper.create(USERS, made_up))
        await keeper.create(USERS, user_manifest("u-new", "new"))
        await as_(ADMIN).patch(USERS, "u-jo", {"principalIds": ["local://u-jo", "github_user://1"]})
        # What is there may stay, and go.
        await keeper.patch(USERS, "u-jo", {"description": "x"})
        await keeper.patch(USERS, "u-jo", {"principalIds": ["local://u-jo"]})


async def test_who_writes_users_does_not_lock_out_an_administrator() -> None:
    async with house() as (_, as_):
        keeper = as_(KEEPER)
        for attempt in (
            keeper.patch(USERS, ADMIN, {"enabled": False}),
            keeper.patch(USERS, ADMIN, {"mustChangePassword": True}),
            keeper.delete(USERS, ADMIN),
        ):
            assert "the user has permissions that you lack" in await refused(attempt)
        await keeper.patch(USERS, ADMIN, {"description": "the boss"})
        await keeper.patch(USERS, "u-jo", {"enabled": False})
        await keeper.delete(USERS, "u-jo")


OWNERS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
BOGUS = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
TAKING_OVER: tuple[Obj, ...] = (
    {"username": "other"},
    {"username": ""},
    {"principalIds": []},
    {"enabled": False},
    {"mustChangePassword": True},
    {"metadata": {"ownerReferences": [BOGUS]}},
    {"metadata": {"finalizers": ["example.com/mine"]}},
    {"metadata": {"labels": {"authz.management.cattle.io/bootstrapping": None, "x": "y"}}},
)


@pytest.mark.parametrize("holds", ["everything", "another resource", "a namespace", "a cluster", "every cluster"])
async def test_users_with_more_permissions_can_not_be_changed(holds: str) -> None:
    """Who sets the name or the password of another is that other, and has what they have."""
    async with house() as (made, as_):
        keeper, target = as_(KEEPER), "u-above"
        await made.client.create(USERS, user_manifest(target, "above"))
        await endow(made, target, holds)
        stored = await made.client.create(TOKENS, token(target))
        for change in TAKING_OVER:
            assert "the user has permissions that you lack" in await refused(keeper.patch(USERS, target, change)), change
        assert "the user has permissions that you lack" in await refused(keeper.delete(USERS, target))
        for attempt in (
            keeper.patch(TOKENS, stored["metadata"]["name"], {"enabled": False}),
            keeper.delete(TOKENS, stored["metadata"]["name"]),
        ):
            assert "the user has permissions that you lack" in await refused(attempt)
        # Nor by making them anew, before or after: what they were given may still be there.
        await made.client.delete(USERS, target)
        assert "the user has permissions that you lack" in await refused(keeper.create(USERS, user_manifest(target, "above")))
        await as_(ADMIN).create(USERS, user_manifest(target, "above"))
        await keeper.patch(USERS, target, {"displayName": "Above", "description": "of us"})
        # Themselves, and who may be them anyway, do.
        await give(made, "u-butler", ("management.cattle.io", "users", "*"), ("", "users", "impersonate"))
        await as_("u-butler").patch(USERS, target, {"username": "renamed"})


async def endow(made: Management, user: str, what: str) -> None:
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    match what:
        case "everything":
            await give(made, user, ("*", "*", "*"))
        case "another resource":
            await give(made, user, ("management.cattle.io", "settings", "update"))
        case "a namespace":
            ref = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "view"}
            meta = {"name": "theirs", "namespace": "default"}
            binding = {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": meta, "subjects": [subject], "roleRef": ref}
            rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
            role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "view"}, "rules": [rule]}
            with contextlib.suppress(ApiError):
                await made.client.create(CLUSTER_ROLES, role)
            await made.client.create(OWNERS, binding)
        case "a cluster":
            await made.client.create(GroupVersionResource("", "v1", "namespaces"), {"metadata": {"name": "c-one"}})
            names = {"clusterName": "c-one", "roleTemplateName": "cluster-owner", "userName": user}
            meta = {"name": "owner", "namespace": "c-one"}
            await made.client.create(
                CLUSTER_ROLE_TEMPLATE_BINDINGS,
                {"apiVersion": API_VERSION, "kind": "ClusterRoleTemplateBinding", "metadata": meta, **names},
            )
        case "every cluster":
            names = {"globalRoleName": "read-only", "userName": user}
            await made.client.create(
                GLOBAL_ROLE_BINDINGS, {"apiVersion": API_VERSION, "kind": "GlobalRoleBinding", "metadata": {"name": "r"}, **names}
            )


async def test_who_holds_the_same_manages_users_as_before() -> None:
    async with house() as (made, as_):
        for user in (KEEPER + "2", "u-jo"):
            await give(
                made,
                user,
                ("management.cattle.io", "settings", "update"),
                *([("management.cattle.io", "users", "*"), ("management.cattle.io", "tokens", "*")] if user != "u-jo" else []),
            )
        keeper = as_(KEEPER + "2")
        await keeper.patch(USERS, "u-jo", {"username": "joanna", "enabled": False})
        await keeper.delete(USERS, "u-jo")
        await keeper.create(USERS, user_manifest("u-new", "new"))


async def test_a_login_name_is_one_word_and_unique() -> None:
    async with house() as (made, as_):
        keeper = as_(KEEPER)
        for name in ("admin", "a b", "admin\u200b", "ａｄｍｉｎ", "x\r\nX: y"):
            assert "username" in await refused(keeper.create(USERS, user_manifest("u-new", name))), name
            assert "username" in await refused(keeper.patch(USERS, "u-jo", {"username": name})), name
        await keeper.patch(USERS, "u-jo", {"username": "joanna"})
        # Those that stand for a cluster have none.
        await made.client.create(USERS, {**user_manifest("u-system", ""), "username": ""})
        await made.client.create(USERS, {**user_manifest("u-other", ""), "username": ""})


async def test_a_password_is_kept_in_no_user() -> None:
    async with house() as (_, as_):
        said = await refused(as_(ADMIN).create(USERS, {**user_manifest("u-new", "new"), "password": "hush, it is me"}))
        assert "setpassword" in said and "hush" not in said
