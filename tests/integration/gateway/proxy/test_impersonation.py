"""A user's account in a cluster: it may be that user and nobody else, is made once, and goes with them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.access.agent_objects import IMPERSONATION_NAMESPACE
from remuda.api.management_cattle_io import USERS
from remuda.gateway.proxy.impersonation import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LABEL,
    SERVICE_ACCOUNTS,
    TOKEN_SECONDS,
    Grant,
    account_name,
    headers_for,
    rules_for,
)
from remuda.kube.authorization.users import User
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.kube.objects import labels_of
from tests.waiting import until

from .proxied_cluster import CLUSTER, MEMBER, World, world

NAME = "cattle-impersonation-u-member"


def test_the_role_lets_an_account_be_one_user_in_their_groups() -> None:
    assert rules_for(Grant.of(MEMBER)) == [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["u-member"]},
        {
            "apiGroups": [""],
            "resources": ["groups"],
            "verbs": ["impersonate"],
            "resourceNames": ["system:authenticated", "system:cattle:authenticated", "team"],
        },
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["userextras/principalid"],
            "verbs": ["impersonate"],
            "resourceNames": ["local://u-member"],
        },
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["userextras/username"],
            "verbs": ["impersonate"],
            "resourceNames": ["mia"],
        },
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["userextras/requesttokenid", "userextras/requesthost"],
            "verbs": ["impersonate"],
        },
    ]


def test_a_user_of_whom_nothing_is_known_gets_no_rule_for_everything() -> None:
    rules = rules_for(Grant.of(User("u-bare", extra={"username": [""], "principalid": []})))
    open_ended = [rule["resources"] for rule in rules if "resourceNames" not in rule]
    assert open_ended == [["userextras/requesttokenid", "userextras/requesthost"]]
    assert all(rule.get("resourceNames", ["x"]) for rule in rules)


def test_headers_have_the_known_identity_only() -> None:
    assert headers_for(replace(MEMBER, extra={**MEMBER.extra, "evil": ["x"]})) == [
        ("Impersonate-User", "u-member"),
        ("Impersonate-Group", "team"),
        ("Impersonate-Group", "system:authenticated"),
        ("Impersonate-Group", "system:cattle:authenticated"),
        ("Impersonate-Extra-Requesttokenid", "token-1"),
        ("Impersonate-Extra-Requesthost", "remuda.example"),
        ("Impersonate-Extra-Principalid", "local://u-member"),
        ("Impersonate-Extra-Username", "mia"),
    ]


@pytest.mark.parametrize("name", ["system:admin", "Mia Müller", "a/../b", "", "x" * 300, "-a"])
def test_every_name_gives_a_name_that_an_object_can_have(name: str) -> None:
    found = account_name(name)
    assert found.startswith("cattle-impersonation-x-") and len(found) < 100
    assert account_name("u-member") == NAME


async def _made(found: World) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    return (
        await found.below.get(SERVICE_ACCOUNTS, NAME, IMPERSONATION_NAMESPACE),
        await found.below.get(CLUSTER_ROLES, NAME),
        await found.below.get(CLUSTER_ROLE_BINDINGS, NAME),
    )


async def test_concurrent_requests_make_one_account(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        tokens = await asyncio.gather(*(found.impersonation.token(CLUSTER, MEMBER) for _ in range(50)))
        assert len(set(tokens)) == 1
        account, role, binding = await _made(found)
        for made in (account, role, binding):
            assert labels_of(made)[LABEL] == "true"
        assert role["rules"] == rules_for(Grant.of(MEMBER))
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": IMPERSONATION_NAMESPACE}]
        assert binding["roleRef"]["name"] == NAME
        assert await found.impersonation.token(CLUSTER, MEMBER) == tokens[0]


async def test_a_role_follows_the_users_groups(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        token = await found.impersonation.token(CLUSTER, MEMBER)
        moved = replace(MEMBER, groups=("other-team", *MEMBER.groups[1:]))
        assert await found.impersonation.token(CLUSTER, moved) == token
        _, role, _ = await _made(found)
        names = next(rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["groups"])
        assert "other-team" in names


async def test_changes_in_the_cluster_are_reverted(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.impersonation.token(CLUSTER, MEMBER)
        all_of_them = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
        await found.below.patch(CLUSTER_ROLES, NAME, {"rules": [all_of_them]})
        await found.below.delete(CLUSTER_ROLE_BINDINGS, NAME)
        other = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        await found.below.create(
            CLUSTER_ROLE_BINDINGS,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": NAME},
                "subjects": [],
                "roleRef": other,
            },
        )
        found.impersonation.forget(CLUSTER, MEMBER.name)
        await found.impersonation.token(CLUSTER, MEMBER)
        _, role, binding = await _made(found)
        assert role["rules"] == rules_for(Grant.of(MEMBER)) and binding["roleRef"]["name"] == NAME


async def test_a_token_is_replaced_before_it_ends(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        first = await found.impersonation.token(CLUSTER, MEMBER)
        account = found.impersonation._accounts[CLUSTER, MEMBER.name]
        left = account.until - SYSTEM_CLOCK.monotonic()
        assert TOKEN_SECONDS * 0.5 < left < TOKEN_SECONDS * 0.9
        account.until = 0.0
        await asyncio.sleep(1.1)
        assert await found.impersonation.token(CLUSTER, MEMBER) != first


async def _gone(found: World) -> bool:
    try:
        await found.below.get(SERVICE_ACCOUNTS, NAME, IMPERSONATION_NAMESPACE)
        return False
    except ApiError as error:
        assert error.is_not_found
        return True


async def _until_gone(found: World) -> None:
    await until(lambda: _gone(found), "the end of the account")


async def test_an_account_goes_with_its_user(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.impersonation.token(CLUSTER, MEMBER)
        await found.management.delete(USERS, MEMBER.name)
        await _until_gone(found)
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
            with pytest.raises(ApiError, match="not found"):
                await found.below.get(resource, NAME)


async def test_an_account_goes_when_its_cluster_comes_back_after_its_user_went(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.impersonation.token(CLUSTER, MEMBER)
        await found.leave()
        await found.management.delete(USERS, MEMBER.name)
        await asyncio.sleep(0.1)
        assert not await _gone(found)
        await found.join()
        await _until_gone(found)


async def test_without_the_cluster_there_is_no_account(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.leave()
        with pytest.raises(ApiError, match="cluster agent disconnected"):
            await found.impersonation.token(CLUSTER, MEMBER)
