"""Custom resources whose definitions change: versions, storage, scope, and what becomes of stored objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from tests.unit.apiserver.serving import CRDS, Obj, Sink, begin, crd, crd_version, establish, served, widget, widgets

TEXT: Obj = {"type": "string"}
DEFAULTED: Obj = {"type": "string", "default": "filled in"}
NAME = "widgets.example.com"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as found:
        yield found


@pytest.fixture
def client(server: Server) -> InProcessClient:
    return InProcessClient(server)


def stored(server: Server, name: str) -> Obj:
    resource = server.registry.resource("example.com", "widgets")
    assert resource is not None
    entry = resource.bucket.get(resource.key("default", name))
    assert entry is not None
    found: Obj = jsonio.loads(entry.stored)
    return found


async def change(client: InProcessClient, **spec: object) -> Obj:
    found = await client.get(CRDS, NAME)
    return await client.update(CRDS, {**found, "spec": {**found["spec"], **spec}})


async def remove(server: Server, client: InProcessClient) -> None:
    """The definition and its objects, as its controller would."""
    await client.delete(CRDS, NAME)
    await client.delete_collection(widgets("v1"), "default")
    found = await client.get(CRDS, NAME)
    meta = {key: value for key, value in found["metadata"].items() if key != "finalizers"}
    await client.update(CRDS, {**found, "metadata": meta})
    assert server.registry.resource("example.com", "widgets") is None


async def test_each_version_shows_only_the_fields_that_it_knows(server: Server, client: InProcessClient) -> None:
    versions = [crd_version("v1", storage=True, a=TEXT, b=TEXT), crd_version("v2", a=TEXT)]
    await establish(client, crd("widgets", versions))
    sink = Sink()
    await begin(server, widgets("v2"), sink)
    await client.create(widgets("v1"), widget("v1", "w", a="1", b="2"))
    assert (await client.get(widgets("v1"), "w", "default"))["spec"] == {"a": "1", "b": "2"}
    seen = await client.get(widgets("v2"), "w", "default")
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v2", {"a": "1"})
    assert [item["spec"] for item in (await client.list(widgets("v2")))["items"]] == [{"a": "1"}]
    assert stored(server, "w")["spec"] == {"a": "1", "b": "2"}


async def test_what_the_stored_version_does_not_know_is_not_kept(client: InProcessClient) -> None:
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=TEXT), crd_version("v2", a=TEXT, b=TEXT)]))
    await client.create(widgets("v2"), widget("v2", "w", a="1", b="2"))
    assert (await client.get(widgets("v2"), "w", "default"))["spec"] == {"a": "1"}


async def test_versions_with_one_schema_differ_in_name_only(server: Server, client: InProcessClient) -> None:
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=TEXT), crd_version("v2", a=TEXT)]))
    await client.create(widgets("v2"), widget("v2", "w", a="1"))
    assert stored(server, "w")["apiVersion"] == "example.com/v1"
    assert (await client.get(widgets("v2"), "w", "default"))["apiVersion"] == "example.com/v2"


async def test_objects_in_the_old_storage_version_are_served_and_rewritten_by_the_next_update(
    server: Server, client: InProcessClient
) -> None:
    old, new = crd_version("v1", storage=True, a=TEXT), crd_version("v2", a=TEXT)
    await establish(client, crd("widgets", [old, new]))
    made = await client.create(widgets("v1"), widget("v1", "w", a="1"))
    changed = await change(client, versions=[{**old, "storage": False}, {**new, "storage": True}])
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    assert stored(server, "w")["apiVersion"] == "example.com/v1"
    seen = await client.get(widgets("v2"), "w", "default")
    assert (seen["apiVersion"], seen["spec"]) == ("example.com/v2", {"a": "1"})
    # Nothing changes but the version it is stored in; that is how a storage migration works.
    again = await client.update(widgets("v2"), seen)
    assert stored(server, "w")["apiVersion"] == "example.com/v2"
    assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert again["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_changed_schema_holds_for_what_was_stored_before(server: Server, client: InProcessClient) -> None:
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=TEXT, b=TEXT)]))
    made = await client.create(widgets("v1"), widget("v1", "w", a="1", b="2"))
    revision = str(int(made["metadata"]["resourceVersion"]) - 1)
    await change(client, versions=[crd_version("v1", storage=True, a=TEXT, c=DEFAULTED)])
    expected = {"a": "1", "c": "filled in"}
    assert (await client.get(widgets("v1"), "w", "default"))["spec"] == expected
    assert [item["spec"] for item in (await client.list(widgets("v1")))["items"]] == [expected]
    past = client.watch(widgets("v1"), resource_version=revision)
    assert (await anext(past)).object["spec"] == expected
    await past.aclose()  # type: ignore[attr-defined]


async def test_watches_end_when_the_definition_changes_and_go_on_when_only_its_status_does(
    server: Server, client: InProcessClient
) -> None:
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=TEXT)]))
    sink = Sink()
    watcher = await begin(server, widgets("v1"), sink)
    found = await client.get(CRDS, NAME)
    await client.update(CRDS, {**found, "metadata": {**found["metadata"], "labels": {"x": "y"}}})
    assert not watcher.closed
    await change(client, versions=[crd_version("v1", storage=True, a=TEXT, b=TEXT)])
    assert watcher.closed and sink.ended


async def test_made_again_under_the_same_name_it_is_another_kind(server: Server, client: InProcessClient) -> None:
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=TEXT)]))
    await client.create(widgets("v1"), widget("v1", "w", a="1"))
    await remove(server, client)
    with pytest.raises(ApiError) as caught:
        await client.list(widgets("v1"))
    assert caught.value.code == 404
    await establish(client, crd("widgets", [crd_version("v1", storage=True, b={"type": "integer"})], scope="Cluster"))
    assert (await client.list(widgets("v1")))["items"] == []
    made = await client.create(widgets("v1"), widget("v1", "w", namespace="", b=7))
    assert made["spec"] == {"b": 7}
    assert "namespace" not in made["metadata"]


async def test_discovery_knows_every_version_the_best_one_first(server: Server, client: InProcessClient) -> None:
    versions = [crd_version("v1beta1", a=TEXT), crd_version("v2", storage=True, a=TEXT), crd_version("v10", a=TEXT)]
    await establish(client, crd("widgets", [*versions, {**crd_version("v3", a=TEXT), "served": False}]))
    group = await client.raw("GET", "/apis/example.com")
    assert [version["version"] for version in group["versions"]] == ["v10", "v2", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v10"
    hashes = set()
    for name in ("v10", "v2", "v1beta1"):
        (listed,) = (await client.raw("GET", f"/apis/example.com/{name}"))["resources"]
        hashes.add(listed["storageVersionHash"])
    assert len(hashes) == 1, "one storage version, one hash"
