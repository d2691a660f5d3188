"""What goes on for long ends with the token it was begun with, and with its user; nobody else's does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.gateway.auth.session_revocation import GONE
from remuda.gateway.server.audit_log import Result
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
PATH = "/api/v1/namespaces?watch=true"


@asynccontextmanager
async def watching(place: Standing, token: Presented) -> AsyncIterator[asyncio.Task[str]]:
    """A watch that has begun; the task ends with it, and says how."""
    headers = {"Authorization": f"Bearer {token.text}"}
    async with aiohttp.ClientSession() as http, http.get(place.url + PATH, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert json.loads(await response.content.readline())["type"] == "ADDED"

        async def read() -> str:
            try:
                while await response.content.readline():
                    pass
            except aiohttp.ClientError:
                return "cut"
            return "ended"

        task = asyncio.create_task(read())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("how", ["revoked", "switched off", "the user disabled", "the user removed", "its time over"])
async def test_a_watch_ends_with_its_token(how: str) -> None:
    async with standing() as place:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in ("u-1", "u-2")]
        await place.client.create(BINDINGS, {"metadata": {"name": "a"}, "roleRef": role, "subjects": subjects})
        await place.user("u-1")
        await place.user("u-2")
        token, other = await place.token("u-1", 3600), await place.token("u-2", 0)
        ongoing = place.gateway.callers.ongoing
        cached = place.gateway.services.informers.of(TOKENS)
        await until(lambda: cached.get("", token.name) and cached.get("", other.name))
        async with watching(place, token) as ending, watching(place, other) as going:
            assert len(ongoing) == 2
            match how:
                case "revoked":
                    await place.client.delete(TOKENS, token.name)
                case "switched off":
                    await place.client.patch(TOKENS, token.name, {"enabled": False})
                case "the user disabled":
                    await place.client.patch(USERS, "u-1", {"enabled": False})
                case "the user removed":
                    await place.client.delete(USERS, "u-1")
                case _:
                    ongoing.end_expired(SYSTEM_CLOCK.time())
                    assert len(ongoing) == 2
                    ongoing.end_expired(SYSTEM_CLOCK.time() + 3601)
            await asyncio.wait_for(ending, 60)
            await until(lambda: len(ongoing) == 1)
            assert not going.done()

            def told() -> list[str]:
                records = [record for record in place.audit.records if record.result is not Result.STARTED]
                return [record.why for record in records if record.token == token.name]

            await until(lambda: bool(told()))
            assert told() == [GONE]
        await until(lambda: len(ongoing) == 0)


async def test_using_a_token_ends_nothing() -> None:
    async with standing() as place:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u-1"}
        await place.client.create(BINDINGS, {"metadata": {"name": "a"}, "roleRef": role, "subjects": [subject]})
        await place.user("u-1")
        token = await place.token("u-1")
        async with watching(place, token) as going:
            await place.gateway.callers.write_last_use()
            await place.client.patch(USERS, "u-1", {"description": "changed"})
            assert (await place.get("/v3/users?me=true", token)).status == 200
            assert not going.done()


async def test_a_logout_with_watch_or_upgrade_headers_is_answered() -> None:
    async with standing() as place:
        await place.user("u-1")
        token = await place.token("u-1")
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
        assert (await place.get("/v1/logout?watch=true", token, "POST", headers=upgrade)).status == 200
        assert (await place.get("/v3/users?me=true", token)).status == 401
