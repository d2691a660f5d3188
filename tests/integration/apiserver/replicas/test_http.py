"""The HTTP door of a server that is behind: a request may be attempted twice, its sender does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.storage.store import Unavailable
from remuda.client.https import HttpsClient
from remuda.client.interface import JSON_PATCH
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.replicas.sharing import DEPLOYMENTS, NAMESPACES, Replica, deployment, error_of, namespace, replicas
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, crd, crd_version, establish, widget, widgets
from tests.waiting import until

T = TypeVar("T")


class Door:
    """The second of two servers, over HTTPS."""

    def __init__(self, one: Replica, two: Replica, pki: Pki) -> None:
        self.one = one
        self.two = two
        self.warnings: list[str] = []
        admin = (pki.admin_certificate.read_bytes(), pki.admin_key.read_bytes())
        target = KubeTarget(two.server.url, ca=pki.ca_pem, client_certificate=admin[0], client_key=admin[1])
        self.client = HttpsClient(target, on_warning=self.warnings.append)

    async def while_behind(self, work: Coroutine[Any, Any, T]) -> T:
        """As :meth:`Replica.while_behind`; the request has arrived when it makes the server ask how far the store is."""
        assert self.two.line.held
        assert self.two.behind
        asked = self.two.line.asked
        task = asyncio.ensure_future(work)
        await until(lambda: self.two.line.asked > asked or task.done())
        assert not task.done(), task
        self.two.line.release()
        return await task


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory: Path = tmp_path_factory.mktemp("pki")
    return Pki.ensure(directory, ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


@pytest.fixture
async def door(pki: Pki) -> AsyncIterator[Door]:
    async with replicas(clock=SYSTEM_CLOCK, pki=pki) as (one, two):
        await two.server.listen()
        made = Door(one, two, pki)
        # Connected already: what comes next is the request alone.
        await made.client.list(NAMESPACES)
        try:
            yield made
        finally:
            await made.client.close()


async def test_a_get_and_a_list(door: Door) -> None:
    door.two.line.hold()
    await door.one.client.create(CONFIG_MAPS, config_map("a", n="1"))
    assert (await door.while_behind(door.client.get(CONFIG_MAPS, "a", "default")))["data"] == {"n": "1"}
    door.two.line.hold()
    await door.one.client.create(CONFIG_MAPS, config_map("b"))
    listed = await door.while_behind(door.client.list(CONFIG_MAPS, "default"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]


async def test_a_body_is_read_once_and_used_twice(door: Door) -> None:
    door.two.line.hold()
    await door.one.client.create(NAMESPACES, namespace("new"))
    made = await door.while_behind(door.client.create(CONFIG_MAPS, config_map("a", "new", n="1")))
    assert made["data"] == {"n": "1"}


async def test_an_update_of_what_was_read_elsewhere(door: Door) -> None:
    await door.one.client.create(CONFIG_MAPS, config_map("a"))
    await door.two.told()
    door.two.line.hold()
    seen = await door.one.client.update(CONFIG_MAPS, config_map("a", n="1"))
    answer = await door.while_behind(door.client.update(CONFIG_MAPS, {**seen, "data": {"n": "2"}}))
    assert answer["data"] == {"n": "2"}


async def test_a_patch_whose_test_holds_elsewhere(door: Door) -> None:
    await door.one.client.create(CONFIG_MAPS, config_map("a", n="0"))
    await door.two.told()
    door.two.line.hold()
    await door.one.client.update(CONFIG_MAPS, config_map("a", n="1"))
    steps = [{"op": "test", "path": "/data/n", "value": "1"}, {"op": "replace", "path": "/data/n", "value": "2"}]
    answer = await door.while_behind(door.client.patch(CONFIG_MAPS, "a", steps, "default", patch_type=JSON_PATCH))
    assert answer["data"] == {"n": "2"}


async def test_a_delete_with_options_of_what_is_new(door: Door) -> None:
    door.two.line.hold()
    made = await door.one.client.create(CONFIG_MAPS, config_map("a"))
    uid = made["metadata"]["uid"]
    await door.while_behind(door.client.delete(CONFIG_MAPS, "a", "default", uid=uid, propagation="Foreground"))
    kept = await door.one.client.get(CONFIG_MAPS, "a", "default")
    assert kept["metadata"]["finalizers"] == ["foregroundDeletion"]


async def test_a_path_that_is_new(door: Door) -> None:
    door.two.line.hold()
    await establish(door.one.client, crd("widgets", [crd_version("v1", storage=True, size={"type": "integer"})]))
    made = await door.while_behind(door.client.create(widgets("v1"), widget("v1", "a", size=1)))
    assert made["spec"] == {"size": 1}


async def test_a_subresource_of_what_is_new(door: Door) -> None:
    door.two.line.hold()
    await door.one.client.create(DEPLOYMENTS, deployment("a", 3))
    patched = door.client.patch(DEPLOYMENTS, "a", {"spec": {"replicas": 4}}, "default", subresource="scale")
    assert (await door.while_behind(patched))["spec"] == {"replicas": 4}


async def test_a_watch_of_a_path_that_is_new(door: Door) -> None:
    door.two.line.hold()
    await establish(door.one.client, crd("widgets", [crd_version("v1", storage=True)]))
    await door.one.client.create(widgets("v1"), widget("v1", "a"))

    async def first() -> str:
        async for event in door.client.watch(widgets("v1"), "default"):
            return event.type
        raise AssertionError("the watch has ended")

    assert await door.while_behind(first()) == "ADDED"


async def test_warnings_come_once(door: Door) -> None:
    door.two.line.hold()
    await door.one.client.create(NAMESPACES, namespace("new"))
    strange = {**config_map("a", "new"), "strange": 1}
    await door.while_behind(door.client.create(CONFIG_MAPS, strange))
    assert door.warnings == ['unknown field "strange"']


async def test_a_refusal_still_carries_warnings(door: Door) -> None:
    strange = {**config_map("a", "nowhere"), "strange": 1}
    refused = await error_of(door.client.create(CONFIG_MAPS, strange))
    assert refused.message == 'namespaces "nowhere" not found'
    assert door.warnings == ['unknown field "strange"']


async def test_a_path_that_is_nowhere(door: Door) -> None:
    refused = await error_of(door.client.create(GroupVersionResource("none.example", "v1", "things"), widget("v1", "a")))
    assert refused.code == 404


async def test_a_store_that_does_not_answer(door: Door) -> None:
    door.two.line.asking_fails = door.two.line.writing_fails = Unavailable("no member answers")
    refused = await error_of(door.client.create(CONFIG_MAPS, config_map("a")))
    assert (refused.code, refused.reason, refused.retry_after) == (503, "ServiceUnavailable", 1)
    refused = await error_of(door.client.delete(CONFIG_MAPS, "nothing", "default"))
    assert refused.code == 503
