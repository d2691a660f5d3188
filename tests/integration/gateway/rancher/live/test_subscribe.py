"""`/v1/subscribe` with real websockets: live objects, with the permissions of the caller at each moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import CLUSTERS, TOKENS
from remuda.apiserver.limits.caller_caps import ConnectionCaps
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.rancher.test_steve import EVERYTHING, RBAC, cluster, secret, user
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

Obj = dict[str, Any]
CLUSTER = "management.cattle.io.cluster"
WATCHING = {"verbs": ["get", "list", "watch"], "apiGroups": ["management.cattle.io"], "resources": ["clusters"]}
CLUSTER_ROLES = GroupVersionResource(RBAC, "v1", "clusterroles")


class Client:
    """One connection: what it was told and did not take yet."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, resource_type: str, **fields: Any) -> None:
        await self.socket.send_str(json.dumps({"resourceType": resource_type, **fields}))

    async def next(self) -> Obj:
        """The next message but pings."""
        while True:
            async with asyncio.timeout(30):
                found: Obj = await self.socket.receive_json()
            if found["name"] != "ping":
                return found

    async def names(self, count: int) -> list[str]:
        return [(await self.next())["name"] for _ in range(count)]

    async def find(self, matches: Callable[[Obj], bool]) -> Obj:
        while not matches(found := await self.next()):
            pass
        return found


@asynccontextmanager
async def connected(place: Standing, token: Presented, root: str = "/v1", **headers: str) -> AsyncIterator[Client]:
    all_headers = headers or {"Authorization": f"Bearer {token.text}"}
    async with place.http.ws_connect(f"{place.url}{root}/subscribe?sockId=1", headers=all_headers) as socket:
        yield Client(socket)


async def grant(place: Standing, name: str, *rules: Obj) -> None:
    await place.client.patch(CLUSTER_ROLES, f"{name}-test", {"rules": list(rules)})


async def describe(place: Standing, name: str, text: str) -> Obj:
    return await place.client.patch(CLUSTERS, name, {"spec": {"description": text}})


@pytest.mark.parametrize("root", ["/v1", "/k8s/clusters/local/v1"])
async def test_an_administrator_sees_objects_come_change_and_go(root: str) -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await secret(place, "default", "present")
        async with connected(place, admin, root) as client:
            assert (await client.socket.receive_json())["name"] == "ping"
            await client.say("secret", namespace="default")
            started, present = await client.next(), await client.next()
            assert started == {"name": "resource.start", "resourceType": "secret", "namespace": "default"}
            assert (present["name"], present["data"]["id"]) == ("resource.create", "default/present")
            assert present["data"]["links"]["update"].endswith(f"{root}/secrets/default/present")
            await secret(place, "kube-system", "elsewhere")
            await place.client.patch(SECRETS, "present", {"metadata": {"labels": {"a": "b"}}}, "default")
            await place.client.delete(SECRETS, "present", "default")
            changed, removed = await client.next(), await client.next()
            assert (changed["name"], changed["data"]["metadata"]["labels"]) == ("resource.change", {"a": "b"})
            assert (removed["name"], removed["data"]["id"]) == ("resource.remove", "default/present")
            await client.say("secret", namespace="default", stop=True)
            assert await client.names(1) == ["resource.stop"]


async def test_a_watch_continues_at_a_revision() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        before = await cluster(place, "c-m-aaaaaaaa")
        await cluster(place, "c-m-bbbbbbbb")
        async with connected(place, admin) as client:
            await client.say(CLUSTER, resourceVersion=before["metadata"]["resourceVersion"])
            assert await client.names(1) == ["resource.start"]
            found = await client.find(lambda message: message["data"]["id"].startswith("c-m-"))
            assert found["data"]["id"] == "c-m-bbbbbbbb" or found["name"] == "resource.change"


async def test_one_object_and_a_selection_can_be_watched() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        for name in ("a", "b"):
            await secret(place, "default", name)
        await place.client.patch(SECRETS, "b", {"metadata": {"labels": {"wanted": "yes"}}}, "default")
        async with connected(place, admin) as client:
            await client.say("secret", id="default/a")
            await client.say("secret", namespace="default", selector="wanted=yes")
            found = [await client.next() for _ in range(4)]
            shown = {(each.get("id", ""), each.get("selector", ""), each["data"]["id"]) for each in found if "data" in each}
            assert shown == {("default/a", "", "default/a"), ("", "wanted=yes", "default/b")}


async def test_a_client_may_ask_for_notices_only() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await secret(place, "default", "a")
        async with connected(place, admin) as client:
            await client.say("secret", mode="resource.changes", namespace="default", debounceMs=100)
            assert await client.names(1) == ["resource.start"]

            async def noticed() -> Obj:
                for attempt in range(10):
                    labels = {"attempt": str(attempt)}
                    last = await place.client.patch(SECRETS, "a", {"metadata": {"labels": labels}}, "default")
                return await client.find(lambda each: each["revision"] == last["metadata"]["resourceVersion"])

            assert (await noticed()) == {
                "name": "resource.changes",
                "resourceType": "secret",
                "namespace": "default",
                "mode": "resource.changes",
                "revision": (await place.client.get(SECRETS, "a", "default"))["metadata"]["resourceVersion"],
            }


async def test_a_tenant_is_told_only_of_what_the_roles_name() -> None:
    async with standing() as place:
        tenant = await user(place, "u-tenant", {**WATCHING, "resourceNames": ["c-m-bbbbbbbb"]})
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb"):
            await cluster(place, name)
        async with connected(place, tenant) as client:
            await client.say(CLUSTER)
            assert await client.names(1) == ["resource.start"]
            await describe(place, "c-m-aaaaaaaa", "not for the tenant")
            await describe(place, "c-m-bbbbbbbb", "for the tenant")
            seen: list[Obj] = []
            while not seen or seen[-1]["data"]["spec"].get("description") != "for the tenant":
                seen.append(await client.next())
            assert {each["data"]["id"] for each in seen} == {"c-m-bbbbbbbb"}
            await client.say("secret")
            refused = await client.find(lambda each: each["resourceType"] == "secret")
            assert (refused["name"], refused["data"]["error"]) == ("resource.error", "watch not allowed")
            assert (await client.find(lambda each: each["resourceType"] == "secret"))["name"] == "resource.stop"


async def test_a_watch_ends_with_the_right_to_all_objects() -> None:
    async with standing() as place:
        reader = await user(place, "u-reader", WATCHING)
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb"):
            await cluster(place, name)
        async with connected(place, reader) as client:
            await client.say(CLUSTER)
            await client.find(lambda each: each["name"] == "resource.create")
            await grant(place, "u-reader", {**WATCHING, "resourceNames": ["c-m-aaaaaaaa"]})
            # At once: no event may come from before the check.
            await describe(place, "c-m-bbbbbbbb", "secret")
            seen: list[Obj] = []
            while not seen or seen[-1]["name"] != "resource.stop":
                seen.append(await client.next())
            assert not [each for each in seen if "secret" in str((each.get("data") or {}).get("spec"))]
            assert "too old" in seen[-2]["data"]["error"]
            await client.say(CLUSTER)
            again = [await client.next() for _ in range(2)]
            assert [each["name"] for each in again] == ["resource.start", "resource.create"]
            assert again[1]["data"]["id"] == "c-m-aaaaaaaa"
            await grant(place, "u-reader")
            gone = await client.find(lambda each: each["name"] == "resource.error")
            assert gone["data"]["error"] == "watch not allowed"


async def test_a_tenant_who_gains_the_right_to_all_objects_is_told_of_no_deletion() -> None:
    async with standing() as place:
        tenant = await user(place, "u-tenant", {**WATCHING, "resourceNames": ["c-m-aaaaaaaa"]})
        for name in ("c-m-aaaaaaaa", "c-m-bbbbbbbb"):
            await cluster(place, name)
        async with connected(place, tenant) as client:
            await client.say(CLUSTER)
            await client.find(lambda each: each["name"] == "resource.create")
            await grant(place, "u-tenant", WATCHING)
            seen: list[Obj] = []
            while not seen or seen[-1]["name"] != "resource.stop":
                seen.append(await client.next())
            assert "resource.remove" not in [each["name"] for each in seen]
            assert "too old" in seen[-2]["data"]["error"]
            await client.say(CLUSTER)
            assert await client.names(1) == ["resource.start"]
            wanted = {"c-m-aaaaaaaa", "c-m-bbbbbbbb"}
            while wanted:
                wanted.discard((await client.next())["data"]["id"])


async def test_a_tenant_with_nothing_yet_learns_of_the_first_object() -> None:
    async with standing() as place:
        creating = {**WATCHING, "verbs": ["create"]}
        tenant = await user(place, "u-tenant", creating)
        await cluster(place, "c-m-aaaaaaaa")
        async with connected(place, tenant) as client:
            await client.say(CLUSTER)
            assert await client.names(1) == ["resource.start"]
            await grant(place, "u-tenant", creating, {**WATCHING, "resourceNames": ["c-m-aaaaaaaa"]})
            assert await client.names(2) == ["resource.error", "resource.stop"]
            await client.say(CLUSTER)
            assert (await client.find(lambda each: each["name"] == "resource.create"))["data"]["id"] == "c-m-aaaaaaaa"


async def test_a_client_that_does_not_read_is_told_to_list_again() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        async with connected(place, admin) as client:
            await client.say("secret", namespace="default", resourceVersion="1")
            # Nothing is read while more comes than the sockets and the server hold.
            assert client.socket._response.connection is not None
            transport = client.socket._response.connection.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            text = "x" * 200_000
            for number in range(60):
                made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{number}"}, "stringData": {"t": text}}
                await place.client.create(SECRETS, made, "default")
            (socket,) = place.gateway.steve.subscriptions._open
            await until(lambda: not socket._watches)
            assert socket._outbox._size < 2 * (2 << 20)
            transport.resume_reading()
            ended = await client.find(lambda each: each["name"] == "resource.error")
            assert "too old" in ended["data"]["error"]
            stopped = await client.next()
            assert (stopped["name"], stopped["data"]) == ("resource.stop", {"reason": "slow"})
            await client.say("secret", namespace="default")
            assert await client.names(1) == ["resource.start"]
            await client.find(lambda each: each["data"]["id"] == "default/s59")


async def test_errors_of_a_request_are_told_and_the_connection_stays() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        async with connected(place, admin) as client:
            await client.socket.send_str("nonsense")
            assert (await client.next())["data"]["error"] == "the message is not JSON"
            await client.say("no.such.type")
            assert "failed to find schema" in (await client.next())["data"]["error"]
            assert await client.names(1) == ["resource.stop"]
            await client.say("secret", selector="a in")
            assert await client.names(3) == ["resource.start", "resource.error", "resource.stop"]
            await client.say("schema")
            assert await client.names(1) == ["resource.start"]


async def test_a_session_needs_its_own_origin_and_ends_the_connection() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        await place.setting("server-url", "https://remuda.example.com")
        cookie = f"R_SESS={admin.text}"
        for headers in ({}, {"Origin": "https://elsewhere.example.com"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(place, admin, Cookie=cookie, **headers):
                    pass
            assert refused.value.status == 403
        async with connected(place, admin, Cookie=cookie, Origin="https://remuda.example.com") as client:
            await client.say(CLUSTER)
            assert await client.names(1) == ["resource.start"]
            await place.client.delete(TOKENS, admin.name)
            async with asyncio.timeout(30):
                while (await client.socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
        await until(lambda: not len(place.gateway.steve.subscriptions))
        assert len(place.gateway.steve.subscriptions.watches) == 0


async def test_a_user_has_a_limited_number_of_connections_and_watches() -> None:
    async with standing() as place:
        admin = await user(place, "u-admin", EVERYTHING)
        place.gateway.steve.subscriptions._caps = ConnectionCaps(1, 10)
        place.gateway.steve.subscriptions.watches = ConnectionCaps(1, 10)
        async with connected(place, admin) as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connected(place, admin):
                    pass
            assert refused.value.status == 429
            await client.say(CLUSTER, resourceVersion="1")
            await client.say("secret", resourceVersion="1")
            error = await client.find(lambda each: each["name"] == "resource.error")
            assert (error["resourceType"], "watches" in error["data"]["error"]) == ("secret", True)
