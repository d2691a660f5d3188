"""Tokens go with their time and with their users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from remuda.access.users.controllers import TokenController, UserController
from remuda.access.users.passwords import SECRETS, PasswordSecrets
from remuda.access.users.tokens import TokenSpec, make_token
from remuda.access.users.user_objects import user_manifest
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.kube.clock import Entropy, Rng
from remuda.runtime import Manager
from tests.unit.gateway.management_gateway import Management, management

Obj = dict[str, Any]


@asynccontextmanager
async def working() -> AsyncIterator[Management]:
    async with management() as made:
        manager = Manager(made.client, made.clock, Rng(1))
        manager.add(UserController(made.client, manager.informers))
        manager.add(TokenController(made.client, manager.informers, made.clock))
        running = asyncio.create_task(manager.run())
        await made.settle()
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def user(made: Management, name: str, **more: Any) -> Obj:
    return await made.client.create(USERS, {**user_manifest(name, name), **more})


async def token(made: Management, user: str, ttl: float = 0) -> str:
    new = make_token(TokenSpec(user=user, ttl=ttl), made.clock.time(), Entropy())
    await made.client.create(TOKENS, new.manifest)
    return new.presented.name


async def names(made: Management) -> set[str]:
    return {found["metadata"]["name"] for found in (await made.client.list(TOKENS))["items"]}


async def test_a_removed_user_takes_tokens_and_password_along() -> None:
    async with working() as made:
        gone = await user(made, "u-gone")
        await user(made, "u-stays")
        await PasswordSecrets(made.client).put(gone, "$scrypt$…")
        await token(made, "u-gone")
        await token(made, "u-gone", 3600)
        kept = await token(made, "u-stays")
        await made.client.delete(USERS, "u-gone")
        await made.settle(5)
        assert await names(made) == {kept}
        assert [s for s in (await made.client.list(SECRETS))["items"] if s["metadata"]["name"] == "u-gone"] == []


async def test_a_disabled_user_loses_every_token_and_keeps_the_password() -> None:
    async with working() as made:
        found = await user(made, "u-off")
        await PasswordSecrets(made.client).put(found, "$scrypt$x")
        await token(made, "u-off")
        await made.client.patch(USERS, "u-off", {"enabled": False})
        await made.settle(5)
        assert await names(made) == set()
        # One that was made at the same moment, by a server that did not know yet, goes, too.
        await token(made, "u-off")
        await made.settle(5)
        assert await names(made) == set()
        assert await PasswordSecrets(made.client).read("u-off") == "$scrypt$x"


async def test_a_token_without_a_user_is_deleted() -> None:
    async with working() as made:
        await token(made, "u-never")
        await made.settle(5)
        assert await names(made) == set()


async def test_a_token_goes_when_its_time_is_over_and_not_before() -> None:
    async with working() as made:
        await user(made, "u-a")
        short, long, ever = await token(made, "u-a", 600), await token(made, "u-a", 86_400 * 400), await token(made, "u-a")
        await made.settle(590)
        assert await names(made) == {short, long, ever}
        await made.settle(120)
        assert await names(made) == {long, ever}


async def test_a_user_made_by_hand_is_known_to_the_local_provider() -> None:
    async with working() as made:
        await user(made, "u-hand", principalIds=["github_user://7"])
        await made.settle(5)
        found = await made.client.get(USERS, "u-hand")
        assert found["principalIds"] == ["github_user://7", "local://u-hand"]
