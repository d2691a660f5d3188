"""Remuda's HTTPS client on a real kube-apiserver and on Remuda itself: the same steps, the same answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.server import Config
from remuda.app.embedded import running
from remuda.client.https import HttpsClient
from remuda.client.interface import JSON_PATCH, STRATEGIC_MERGE_PATCH
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of
from tests.real import need
from tests.real.cluster import RealCluster

Obj = dict[str, Any]
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")


@pytest.fixture(scope="module")
def real_kubeconfig() -> Iterator[Path]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as started:
        yield started.kubeconfig


@pytest.fixture(params=["kube-apiserver", "remuda"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpsClient]:
    if request.param == "kube-apiserver":
        async with HttpsClient.from_kubeconfig(request.getfixturevalue("real_kubeconfig")) as found:
            yield found
        return
    async with running(Config(data_dir=tmp_path, port=0)) as server, HttpsClient.from_kubeconfig(server.kubeconfig_path) as found:
        yield found


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_writes_and_reads(client: HttpsClient) -> None:
    created = await client.create(CONFIG_MAPS, config_map("verbs", a="1"))
    with pytest.raises(ApiError) as caught:
        await client.create(CONFIG_MAPS, config_map("verbs"))
    assert caught.value.is_already_exists
    updated = await client.update(CONFIG_MAPS, {**created, "data": {"a": "2"}})
    with pytest.raises(ApiError) as caught:
        await client.update(CONFIG_MAPS, {**created, "data": {"a": "3"}})
    assert caught.value.is_conflict
    assert (await client.get(CONFIG_MAPS, "verbs", "default"))["metadata"] == updated["metadata"]
    await client.patch(CONFIG_MAPS, "verbs", {"data": {"b": "x"}}, "default")
    await client.patch(CONFIG_MAPS, "verbs", {"data": {"c": "y"}}, "default", patch_type=STRATEGIC_MERGE_PATCH)
    patch = [{"op": "remove", "path": "/data/a"}]
    patched = await client.patch(CONFIG_MAPS, "verbs", patch, "default", patch_type=JSON_PATCH)
    assert patched["data"] == {"b": "x", "c": "y"}
    await client.apply(CONFIG_MAPS, config_map("verbs", d="z"), field_manager="one")
    with pytest.raises(ApiError, match=r'conflict with "one": \.data\.d') as caught:
        await client.apply(CONFIG_MAPS, config_map("verbs", d="other"), field_manager="two")
    assert caught.value.is_conflict
    forced = await client.apply(CONFIG_MAPS, config_map("verbs", d="other"), field_manager="two", force=True, dry_run=True)
    assert forced["data"]["d"] == "other"
    await client.delete(CONFIG_MAPS, "verbs", "default", uid=created["metadata"]["uid"])
    with pytest.raises(ApiError) as caught:
        await client.get(CONFIG_MAPS, "verbs", "default")
    assert caught.value.is_not_found


async def test_lists_in_pages_and_collections_go_at_once(client: HttpsClient) -> None:
    for number in range(5):
        obj = config_map(f"page-{number}")
        await client.create(CONFIG_MAPS, {**obj, "metadata": {**obj["metadata"], "labels": {"set": "pages"}}})  # type: ignore[dict-item]
    first = await client.list(CONFIG_MAPS, "default", labels="set=pages", limit=3)
    rest = await client.list(CONFIG_MAPS, "default", labels="set=pages", limit=3, continue_=first["metadata"]["continue"])
    names = [name_of(item) for item in first["items"] + rest["items"]]
    assert names == [f"page-{number}" for number in range(5)]
    await client.delete_collection(CONFIG_MAPS, "default", labels="set=pages")
    assert (await client.list(CONFIG_MAPS, "default", labels="set=pages"))["items"] == []


async def test_a_watch_shows_changes_in_order_and_ends_when_its_time_is_up(client: HttpsClient) -> None:
    start = (await client.list(CONFIG_MAPS, "default"))["metadata"]["resourceVersion"]
    seen: list[tuple[str, str]] = []

    async def follow() -> None:
        async for event in client.watch(CONFIG_MAPS, "default", fields="metadata.name=watched", resource_version=start):
            if event.type != "BOOKMARK":
                seen.append((event.type, event.object.get("data", {}).get("a", "")))
            if event.type == "DELETED":
                return

    following = asyncio.create_task(follow())
    await client.create(CONFIG_MAPS, config_map("watched", a="1"))
    await client.patch(CONFIG_MAPS, "watched", {"data": {"a": "2"}}, "default")
    await client.delete(CONFIG_MAPS, "watched", "default")
    await asyncio.wait_for(following, 90)
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
    told = False
    while not told:
        # It ends by itself; in all of its seconds the server may have been busy with others.
        told = bool([event async for event in client.watch(CONFIG_MAPS, "default", resource_version=start, timeout_seconds=5)])


async def test_a_token_made_by_the_server_authenticates_its_account(client: HttpsClient) -> None:
    await client.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}, "default")
    made = await client.create(ACCOUNTS, {"spec": {}}, "default", name="robot", subresource="token")
    target = KubeTarget(client.target.server, ca=client.target.ca, token=made["status"]["token"])
    async with HttpsClient(target) as robot:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        told = await robot.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
        assert told["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
        with pytest.raises(ApiError, match='cannot list resource "secrets"') as caught:
            await robot.list(GroupVersionResource("", "v1", "secrets"))
        assert caught.value.reason == "Forbidden"
    await client.delete(ACCOUNTS, "robot", "default")


async def test_health_is_text_and_version_is_json(client: HttpsClient) -> None:
    async with asyncio.timeout(120):
        # A real one is not while its etcd is slow to answer.
        while (said := await _readiness(client)) != "ok":
            assert "etcd" in said
            await asyncio.sleep(0.1)
    assert (await client.raw("GET", "/version"))["major"] == "1"


async def _readiness(client: HttpsClient) -> str:
    try:
        return str(await client.raw("GET", "/readyz"))
    except ApiError as error:
        return str(error)


def renamed(document: Obj, name: str | None) -> Obj:
    """A kubeconfig whose user has another name, or none."""
    called = {} if name is None else {"name": name}
    (user,), (context,) = document["users"], document["contexts"]
    inner = {key: value for key, value in context["context"].items() if key != "user"} | ({} if name is None else {"user": name})
    return {**document, "users": [{**called, "user": user["user"]}], "contexts": [{**context, "context": inner}]}


@pytest.mark.parametrize("name", ["somebody", "", None])
async def test_a_user_whose_name_is_empty_is_taken_as_by_kubectl(real_kubeconfig: Path, tmp_path: Path, name: str | None) -> None:
    """Cluster API's own tests write kubeconfigs of this kind."""
    path = tmp_path / "config"
    path.write_text(yamlio.dumps(renamed(yamlio.loads(real_kubeconfig.read_bytes()), name)))
    kubectl = need.programs("kubernetes")["kubectl"]
    words = [
        kubectl,
        f"--kubeconfig={path}",
        f"--cache-dir={tmp_path}/cache",
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo}",
    ]
    theirs = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    async with HttpsClient.from_kubeconfig(path) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        ours = await client.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    assert ours["status"]["userInfo"]["username"] == theirs["username"] != "system:anonymous"
