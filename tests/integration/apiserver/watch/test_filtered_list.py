"""Lists and watches of which somebody may see a part, over HTTP, where a group opts in; everywhere else they are refused."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.apiserver.watch.filtered_list import FilteredLists
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, served

Obj = dict[str, Any]

MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "rbac.authorization.k8s.io"
ROLES = GroupVersionResource(RBAC, "v1", "roles")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0, default_roles=False) as made:
        made.handler.filtered_lists = FilteredLists(made.rbac, [""], lambda: made.cache.revision)
        await made.listen()
        client = InProcessClient(made)
        for name in ("a", "b", "c"):
            await client.create(CONFIG_MAPS, config_map(name))
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await client.create(CONFIG_MAPS, config_map("a", "other"))
        yield made


async def give(
    server: Server, name: str, verbs: list[str], names: list[str], user: str = "ann", namespace: str = "default"
) -> None:
    """A Role of its own, bound to the user; given again it is changed."""
    client = InProcessClient(server)
    rule: Obj = {"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]}
    if names:
        rule["resourceNames"] = names
    metadata = {"name": name, "namespace": namespace}
    await client.apply(
        ROLES, {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}, field_manager="test"
    )
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await client.apply(GroupVersionResource(RBAC, "v1", "rolebindings"), binding, field_manager="test")


class Asked:
    """One request as somebody, by an administrator's certificate."""

    def __init__(self, status: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
        self.status = status
        self._reader = reader
        self.writer = writer
        self._length = length

    async def body(self) -> Any:
        data = json.loads(await self._reader.readexactly(self._length))
        self.writer.close()
        return data

    async def event(self) -> tuple[str, str]:
        async with asyncio.timeout(60):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            found = json.loads(await self._reader.readexactly(size + 2))
        return found["type"], found["object"]["metadata"].get("name", "")


async def ask(server: Server, path: str, user: str = "ann", method: str = "GET") -> Asked:
    assert server.pki is not None
    context = ssl.create_default_context(cafile=str(server.pki.ca_certificate))
    context.load_cert_chain(server.pki.admin_certificate, server.pki.admin_key)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]), ssl=context)
    who = f"Impersonate-User: {user}\r\nImpersonate-Group: system:authenticated\r\n"
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{who}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    length = next((int(line.partition(":")[2]) for line in head if line.startswith("content-length:")), 0)
    return Asked(int(head[0].split()[1]), reader, writer, length)


async def listed(server: Server, path: str = MAPS, user: str = "ann") -> list[str] | int:
    asked = await ask(server, path, user)
    found = await asked.body()
    if asked.status != 200:
        return asked.status
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found["items"]]


async def test_a_list_shows_what_is_permitted_by_name(server: Server) -> None:
    assert await listed(server) == 403
    await give(server, "some", ["get", "list", "watch"], ["a", "c", "unborn"])
    assert await listed(server) == ["default/a", "default/c"]
    assert await listed(server, f"{MAPS}?limit=1") == ["default/a"]
    assert await listed(server, f"{MAPS}?labelSelector=x%3Dy") == []
    # One by name is as ever.
    assert await listed(server, f"{MAPS}?fieldSelector=metadata.name%3Da") == ["default/a"]
    assert await listed(server, f"{MAPS}?fieldSelector=metadata.name%3Db") == 403
    # Another verb, another user, another group's kinds, another namespace.
    assert (await ask(server, MAPS, method="DELETE")).status == 403
    assert await listed(server, user="bob") == 403
    assert await listed(server, "/apis/apps/v1/namespaces/default/deployments") == 403
    assert await listed(server, "/api/v1/namespaces/other/configmaps") == 403
    assert await listed(server, "/api/v1/namespaces/default/secrets") == 403


async def test_no_count_and_no_token_tells_of_others(server: Server) -> None:
    await give(server, "some", ["list"], ["a", "c"])
    page = await (await ask(server, f"{MAPS}?limit=1")).body()
    assert "remainingItemCount" not in page["metadata"]
    rest = await (await ask(server, f"{MAPS}?limit=1&continue={page['metadata']['continue']}")).body()
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c"]


async def test_all_namespaces_are_those_in_which_something_is_permitted(server: Server) -> None:
    await give(server, "some", ["list"], ["b"])
    await give(server, "all", ["list"], [], namespace="other")
    assert await listed(server, "/api/v1/configmaps") == ["default/b", "other/a"]


async def test_a_hidden_object_does_not_exist_for_a_caller_who_may_create(server: Server) -> None:
    """`kubectl apply` reads before it creates. The same answer for what exists and for what does not."""
    assert (await ask(server, f"{MAPS}/a")).status == (await ask(server, f"{MAPS}/none")).status == 403
    await give(server, "create", ["create"], [])
    await give(server, "some", ["get"], ["c"])
    hidden, absent = await ask(server, f"{MAPS}/a"), await ask(server, f"{MAPS}/none")
    assert hidden.status == absent.status == 404
    assert json.dumps(await hidden.body()).replace('"a"', '"none"').replace('\\"a\\"', '\\"none\\"') == json.dumps(
        await absent.body()
    )
    assert (await ask(server, f"{MAPS}/c")).status == 200
    # Another verb, a subresource, another user, another namespace, another kind, another group.
    for method in ("DELETE", "PATCH", "PUT"):
        assert (await ask(server, f"{MAPS}/a", method=method)).status in (403, 411, 415), method
    assert (await ask(server, f"{MAPS}/a/status")).status == 403
    assert (await ask(server, f"{MAPS}/a", "bob")).status == 403
    assert (await ask(server, "/api/v1/namespaces/other/configmaps/a")).status == 403
    assert (await ask(server, "/api/v1/namespaces/default/secrets/a")).status == 403
    assert (await ask(server, "/apis/apps/v1/namespaces/default/deployments/a")).status == 403


async def test_who_may_make_one_has_an_empty_list_until_then(server: Server) -> None:
    await give(server, "create", ["create"], [])
    assert await listed(server) == []
    assert await listed(server, "/api/v1/configmaps") == []
    assert await listed(server, "/api/v1/namespaces/other/configmaps") == 403


async def test_a_watch_follows_what_is_permitted(server: Server) -> None:
    client = InProcessClient(server)
    await give(server, "some", ["list", "watch"], ["a"])
    watch = await ask(server, f"{MAPS}?watch=true")
    assert await watch.event() == ("ADDED", "a")
    await client.patch(CONFIG_MAPS, "b", {"data": {"k": "hidden"}}, "default")
    await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, "default")
    assert await watch.event() == ("MODIFIED", "a")
    # It is given one more, and it is as if that had just come.
    await give(server, "some", ["list", "watch"], ["a", "b"])
    assert await watch.event() == ("ADDED", "b")
    await client.patch(CONFIG_MAPS, "b", {"data": {"k": "w"}}, "default")
    assert await watch.event() == ("MODIFIED", "b")
    await give(server, "some", ["list", "watch"], ["b"])
    assert await watch.event() == ("DELETED", "a")
    await client.delete(CONFIG_MAPS, "a", "default")
    await client.delete(CONFIG_MAPS, "b", "default")
    assert await watch.event() == ("DELETED", "b")
    watch.writer.close()


async def test_who_resumes_from_before_a_change_of_what_is_permitted_lists_anew(server: Server) -> None:
    await give(server, "some", ["list", "watch"], ["a"])
    before = (await (await ask(server, MAPS)).body())["metadata"]["resourceVersion"]
    await give(server, "some", ["list", "watch"], ["a", "b"])
    found = await (await ask(server, f"{MAPS}?watch=true&resourceVersion={before}")).body()
    assert (found["type"], found["object"]["code"]) == ("ERROR", 410)
    after = (await (await ask(server, MAPS)).body())["metadata"]["resourceVersion"]
    watch = await ask(server, f"{MAPS}?watch=true&resourceVersion={after}")
    await InProcessClient(server).patch(CONFIG_MAPS, "b", {"data": {"k": "w"}}, "default")
    assert await watch.event() == ("MODIFIED", "b")
    watch.writer.close()


async def test_without_opting_in_nothing_changes(server: Server) -> None:
    server.handler.filtered_lists = None
    await give(server, "some", ["get", "list", "watch"], ["a"])
    assert await listed(server) == 403
