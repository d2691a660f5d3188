"""Users and tokens written with kubectl: nobody becomes somebody else by it. The attacker's attempts first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.apiserver.users import AUTHENTICATED, User
from remuda.client.inprocess import InProcessClient
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.management.users.admission import admitted
from remuda.management.users.people import user_manifest
from remuda.management.users.tokens import Wish, make_token
from remuda.runtime.admission import install

from ...gateway.import_kit import Management, management

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
        install(admitted(made.server.source, made.server.rbac), made.server.hooks, made.server.converters)
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
    return {**make_token(Wish(user=user, ttl=3600), 1_800_000_000, Entropy()).manifest, **more}


async def test_nobody_makes_a_token_for_somebody_else_or_for_a_group() -> None:
    async with house() as (made, as_):
        keeper = as_(KEEPER)
        assert "impersonate that user" in await refused(keeper.create(TOKENS, token(ADMIN)))
        assert "a token is somebody's" in await refused(keeper.create(TOKENS, token("")))
        for group in ({"metadata": {"name": "system:masters"}}, {"name": "github_team://1"}, {}):
            assert "impersonate that group" in await refused(keeper.create(TOKENS, token(KEEPER, groupPrincipals=[group])))
        assert (await made.client.list(TOKENS))["items"] == []
        await keeper.create(TOKENS, token(KEEPER))
        await as_(ADMIN).create(TOKENS, token("u-jo", groupPrincipals=[{"metadata": {"name": "github_team://1"}}]))


async def test_who_may_impersonate_somebody_may_make_them_a_token() -> None:
    async with house() as (made, as_):
        await give(made, "u-butler", ("management.cattle.io", "tokens", "*"), ("", "users", "impersonate"))
        await as_("u-butler").create(TOKENS, token("u-jo"))


async def test_a_token_stays_whose_it_is_and_lasts_no_longer() -> None:
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


async def test_nobody_becomes_somebody_else_by_what_a_login_provider_calls_them() -> None:
    async with house() as (_, as_):
        keeper = as_(KEEPER)
        for principal in ("local://user-admin", "system://provisioning/fleet-default/prod", "github_user://1"):
            assert "may do everything" in await refused(keeper.patch(USERS, KEEPER, {"principalIds": [principal]})), principal
            made_up = {**user_manifest("u-new", "new"), "principalIds": [principal]}
            assert "may do everything" in await refused(keeper.create(USERS, made_up))
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
            assert "may do more than you" in await refused(attempt)
        await keeper.patch(USERS, ADMIN, {"description": "the boss"})
        await keeper.patch(USERS, "u-jo", {"enabled": False})
        await keeper.delete(USERS, "u-jo")


async def test_a_login_name_is_one_word_that_nobody_else_has() -> None:
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
