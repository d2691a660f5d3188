"""Whoever owned a cluster may know the token in its kubeconfig Secret: when they leave, it opens nothing any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.access.roles.role_names import RBAC_KINDS
from remuda.access.users.tokens import Presented, owns
from remuda.access.users.user_objects import user_manifest
from remuda.api import management_cattle_io as management
from remuda.kube.clock import VirtualClock
from remuda.kube.objects import Key
from remuda.provisioning.cluster.kubeconfig import user_name
from remuda.runtime import Reconciler
from tests.unit.access.management_api import Parts, World, world
from tests.unit.access.roles.management_house import MemoryDownstreams, role_controllers

from .mirrored_clusters import FLEET, everything
from .test_kubeconfig import BINDINGS, check, connected

Obj = dict[str, Any]


def with_roles(parts: Parts) -> Iterable[Reconciler]:
    yield from everything(parts)
    clock = parts.manager.clock
    assert isinstance(clock, VirtualClock)
    yield from role_controllers(parts.manager, MemoryDownstreams(parts.manager.client, clock), machines=False)


async def member(made: World, cluster: str, user: str, template: str = "cluster-owner") -> None:
    if await made.find(management.USERS, user) is None:
        await made.create(management.USERS, user_manifest(user, user))
    await bind(made, cluster, f"crtb-{user}", template, {"userName": user})


async def bind(made: World, cluster: str, name: str, template: str, subject: Obj) -> None:
    body: Obj = {"apiVersion": management.API_VERSION, "kind": "ClusterRoleTemplateBinding"}
    body |= {"metadata": {"name": name, "namespace": cluster}, "clusterName": cluster, "roleTemplateName": template}
    await made.create(BINDINGS, {**body, **subject})
    await made.settle(20)


async def is_good(made: World, text: str) -> bool:
    token = await made.find(management.TOKENS, user_name(Key(FLEET, "demo")))
    return token is not None and owns(token, Presented(text.partition(":")[0], text.partition(":")[2]))


@pytest.mark.parametrize("how", ["unbound", "disabled", "deleted"])
async def test_an_owner_who_leaves_knows_a_token_that_opens_nothing(how: str) -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await member(made, cluster, "u-alice")
        await member(made, cluster, "u-bob")
        before = await check(made, cluster)
        match how:
            case "unbound":
                await made.delete(BINDINGS, "crtb-u-alice", cluster)
            case "disabled":
                await made.patch(management.USERS, "u-alice", {"enabled": False})
            case _:
                await made.delete(management.USERS, "u-alice")
        await made.settle(1)
        assert not await is_good(made, before)
        await made.settle(30)
        after = await check(made, cluster)
        assert after != before and not await is_good(made, before)
        await made.settle(60)
        assert await check(made, cluster) == after, "once is enough"


async def test_a_group_that_leaves_knows_it_too() -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await bind(made, cluster, "crtb-group", "cluster-owner", {"groupPrincipalName": "local_group://ops"})
        before = await check(made, cluster)
        await made.delete(BINDINGS, "crtb-group", cluster)
        await made.settle(30)
        assert await check(made, cluster) != before


async def test_who_could_not_read_it_leaves_it_as_it_is() -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await member(made, cluster, "u-alice")
        await member(made, cluster, "u-carol", "cluster-member")
        # The same person by a second binding: to lose one of them is not to leave.
        await bind(made, cluster, "crtb-again", "cluster-owner", {"userName": "u-alice"})
        before = await check(made, cluster)
        await made.delete(BINDINGS, "crtb-u-carol", cluster)
        await made.delete(BINDINGS, "crtb-again", cluster)
        await made.delete(BINDINGS, f"{cluster}-fleet-default-owner", cluster)
        await made.settle(60)
        assert await check(made, cluster) == before


async def test_an_owner_who_leaves_while_no_controller_runs_is_noticed_later() -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await member(made, cluster, "u-alice")
        before = await check(made, cluster)
        await made.end()
        found = await made.get(BINDINGS, "crtb-u-alice", cluster)
        if found["metadata"].get("finalizers"):
            await made.patch(BINDINGS, "crtb-u-alice", {"metadata": {"finalizers": None}}, cluster)
        await made.delete(BINDINGS, "crtb-u-alice", cluster)
        made.begin()
        await made.settle(30)
        assert await check(made, cluster) != before


async def test_a_user_who_was_disabled_and_enabled_again_is_an_owner_as_before() -> None:
    async with world(with_roles) as made:
        cluster = await connected(made)
        await member(made, cluster, "u-alice")
        roles = {each["metadata"]["name"] for each in await bindings_of(made, "u-alice")}
        assert roles
        await made.patch(management.USERS, "u-alice", {"enabled": False})
        await made.settle(20)
        assert not await bindings_of(made, "u-alice")
        await made.patch(management.USERS, "u-alice", {"enabled": True})
        await made.settle(20)
        assert {each["metadata"]["name"] for each in await bindings_of(made, "u-alice")} == roles


async def bindings_of(made: World, user: str) -> list[Obj]:
    found = await made.list(RBAC_KINDS["RoleBinding"], FLEET)
    return [each for each in found if any(subject["name"] == user for subject in each.get("subjects") or ())]
