"""Watches: where they begin, what they are told, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.registry.resources import Resource
from remuda.apiserver.server import Server
from remuda.kube import errors
from remuda.kube.clock import yield_to_loop
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.serving import (
    CONFIG_MAPS,
    Obj,
    Sink,
    begin,
    config_map,
    crd,
    crd_version,
    establish,
    labelled,
    served,
    version_of,
    widget,
    widgets,
)

EVENTS = GroupVersionResource("", "v1", "events")
NEW_EVENTS = GroupVersionResource("events.k8s.io", "v1", "events")
PODS = GroupVersionResource("", "v1", "pods")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as found:
        yield found


@pytest.fixture
def client(server: Server) -> InProcessClient:
    return InProcessClient(server)


def now(server: Server) -> str:
    return str(server.cache.revision)


# --- where a watch begins -------------------------------------------------------------------------------------------------


async def test_without_a_revision_what_is_there_comes_first(server: Server, client: InProcessClient) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    sink = Sink()
    await begin(server, CONFIG_MAPS, sink, "default")
    await client.create(CONFIG_MAPS, config_map("b"))
    assert sink.names == [("ADDED", "a"), ("ADDED", "b")]


async def test_from_a_revision_only_what_came_after_it(server: Server, client: InProcessClient) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    revision = now(server)
    await client.create(CONFIG_MAPS, config_map("b"))
    sink = Sink()
    await begin(server, CONFIG_MAPS, sink, "default", resource_version=revision)
    await client.delete(CONFIG_MAPS, "a", "default")
    assert sink.names == [("ADDED", "b"), ("DELETED", "a")]


async def test_initial_events_end_at_the_revision_of_the_watcher(server: Server, client: InProcessClient) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    watcher = await begin(
        server, CONFIG_MAPS, Sink(), "default", send_initial_events=True, resource_version_match="NotOlderThan", bookmarks=True
    )
    assert watcher.revision == server.cache.revision


async def test_every_change_is_told_once_wherever_a_watch_begins(server: Server, client: InProcessClient) -> None:
    """Many watches begin while there are writes; each resumes from where its list ended."""
    sinks: list[tuple[int, Sink]] = []

    async def write() -> None:
        for number in range(60):
            await client.create(CONFIG_MAPS, config_map(f"c{number}"))

    async def join() -> None:
        for _ in range(30):
            listed = await client.list(CONFIG_MAPS, "default")
            sink = Sink()
            sinks.append((len(listed["items"]), sink))
            await begin(server, CONFIG_MAPS, sink, "default", resource_version=listed["metadata"]["resourceVersion"])
            await yield_to_loop()

    await asyncio.gather(write(), join())
    for already, sink in sinks:
        names = [name for _, name in sink.names]
        assert len(names) == len(set(names)) == 60 - already


async def test_a_revision_that_is_gone_is_410(server: Server, client: InProcessClient) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    old = now(server)
    await client.create(CONFIG_MAPS, config_map("b"))
    await server.store.compact(server.store.revision)
    with pytest.raises(ApiError) as caught:
        await begin(server, CONFIG_MAPS, Sink(), resource_version=old)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


# --- in and out of a selection --------------------------------------------------------------------------------------------


async def test_an_object_moves_in_and_out_of_the_selection(server: Server, client: InProcessClient) -> None:
    sink = Sink()
    await begin(server, CONFIG_MAPS, sink, "default", labels="app=web")
    await client.create(CONFIG_MAPS, config_map("a"))
    for labels in ({"app": "web"}, {"app": "web", "x": "y"}, {"app": "db"}, {"app": "web"}):
        obj = await client.get(CONFIG_MAPS, "a", "default")
        await client.update(CONFIG_MAPS, labelled(obj, **labels))
    await client.delete(CONFIG_MAPS, "a", "default")
    assert [type_ for type_, _ in sink.names] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]


@pytest.mark.parametrize(
    ("namespace", "options", "expected"),
    [
        ("", {}, {"a", "b", "c"}),
        ("default", {}, {"a", "b"}),
        ("default", {"fields": "metadata.name=a"}, {"a"}),
        ("", {"fields": "metadata.name=c"}, {"c"}),
        ("default", {"fields": "metadata.name=c"}, set()),
        ("default", {"fields": "metadata.name!=a"}, {"b"}),
    ],
)
async def test_who_is_told_of_what(
    server: Server, client: InProcessClient, namespace: str, options: Any, expected: set[str]
) -> None:
    past, live = Sink(), Sink()
    revision = now(server)
    await begin(server, CONFIG_MAPS, live, namespace, **options)
    live.told.clear()
    for name, where in (("a", "default"), ("b", "default"), ("c", "kube-public")):
        await client.create(CONFIG_MAPS, config_map(name, where))
    await begin(server, CONFIG_MAPS, past, namespace, resource_version=revision, **options)
    assert {name for _, name in live.names} == expected
    assert past.told == live.told


def event(name: str, kind: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": kind, "namespace": "default", "name": "x"},
        "reason": "Tested",
        "type": "Normal",
    }


async def test_events_are_selected_by_the_field_names_of_the_group_that_is_asked(server: Server, client: InProcessClient) -> None:
    """Both groups show the same objects; each has its own names for the same field."""
    old, new = Sink(), Sink()
    await begin(server, EVENTS, old, "default", fields="involvedObject.kind=Pod")
    await begin(server, NEW_EVENTS, new, "default", fields="regarding.kind=Pod")
    await client.create(EVENTS, event("one", "Pod"))
    await client.create(EVENTS, event("two", "Node"))
    for _ in range(5):
        await yield_to_loop()
    assert old.names == new.names == [("ADDED", "one")]
    for _ in range(2):
        for resource, fields in ((EVENTS, "involvedObject.kind=Pod"), (NEW_EVENTS, "regarding.kind=Pod")):
            listed = await client.list(resource, "default", fields=fields)
            assert [item["metadata"]["name"] for item in listed["items"]] == ["one"]


# --- the end --------------------------------------------------------------------------------------------------------------


async def test_a_reader_that_is_too_slow_is_let_go(server: Server, client: InProcessClient) -> None:
    sink = Sink(room=1)
    watcher = await begin(server, CONFIG_MAPS, sink, "default")
    for name in "abc":
        await client.create(CONFIG_MAPS, config_map(name))
    assert watcher.closed
    assert sink.ended
    assert sink.names == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watcher_that_leaves_is_forgotten(server: Server, client: InProcessClient) -> None:
    feed = server.feeds.feed(version_of(server, PODS))
    watchers = [await begin(server, PODS, Sink(), name) for name in ("a", "b", "b", "")]
    assert feed.count == 4
    for watcher in watchers:
        watcher.leave()
        watcher.leave()
    assert feed.count == 0
    assert feed.watchers() == []


async def test_an_in_process_watch_that_is_closed_leaves_its_feed(server: Server, client: InProcessClient) -> None:
    feed = server.feeds.feed(version_of(server, PODS))
    watching = client.watch(PODS, send_initial_events=True)
    await anext(watching)
    assert feed.count == 1
    await watching.aclose()  # type: ignore[attr-defined]
    assert feed.count == 0


# --- bookmarks ------------------------------------------------------------------------------------------------------------


async def test_a_watcher_has_reached_what_the_cache_has(server: Server, client: InProcessClient) -> None:
    watcher = await begin(server, PODS, Sink())
    await client.create(CONFIG_MAPS, config_map("elsewhere"))
    assert watcher.reached == server.cache.revision > watcher.revision


async def test_a_watcher_that_has_not_begun_has_reached_nothing_new(server: Server, client: InProcessClient) -> None:
    from remuda.apiserver.watch.selection import select
    from remuda.apiserver.watch.watchers import Watcher

    version = version_of(server, CONFIG_MAPS)
    sink = Sink()
    watcher = Watcher(select(version, "", "", ""), sink, server.cache.revision)
    server.feeds.feed(version).add(watcher)
    before = watcher.reached
    await client.create(CONFIG_MAPS, config_map("a"))
    assert watcher.reached == before
    assert sink.told == []
    watcher.go()
    assert sink.names == [("ADDED", "a")]
    assert watcher.reached == server.cache.revision


# --- versions that a webhook has to make ----------------------------------------------------------------------------------


class Slow:
    """A conversion that takes as long as the test likes, or fails."""

    def __init__(self, resource: Resource) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        resource.convert = self

    async def __call__(self, objs: list[Obj], to_version: str) -> list[Obj]:
        await self.gate.wait()
        if self.fails:
            raise errors.internal("conversion webhook failed")
        return [{**obj, "apiVersion": f"example.com/{to_version}"} for obj in objs]


async def converting(server: Server, client: InProcessClient) -> Slow:
    text = {"type": "string"}
    await establish(client, crd("widgets", [crd_version("v1", storage=True, a=text), crd_version("v2", a=text, b=text)]))
    resource = server.registry.resource("example.com", "widgets")
    assert resource is not None
    return Slow(resource)


async def settled() -> None:
    for _ in range(20):
        await yield_to_loop()


async def test_live_events_wait_until_the_first_ones_are_converted(server: Server, client: InProcessClient) -> None:
    slow = await converting(server, client)
    await client.create(widgets("v1"), widget("v1", "a"))
    slow.gate.clear()
    sink = Sink()
    starting = asyncio.create_task(begin(server, widgets("v2"), sink))
    await settled()
    await client.create(widgets("v1"), widget("v1", "b"))
    await settled()
    assert sink.told == []
    slow.gate.set()
    watcher = await starting
    await settled()
    assert sink.names == [("ADDED", "a"), ("ADDED", "b")]
    assert watcher.reached == server.cache.revision


async def test_a_bookmark_never_runs_ahead_of_the_conversion(server: Server, client: InProcessClient) -> None:
    slow = await converting(server, client)
    sink = Sink()
    watcher = await begin(server, widgets("v2"), sink)
    slow.gate.clear()
    before = watcher.reached
    await client.create(widgets("v1"), widget("v1", "a"))
    assert watcher.reached == before
    await settled()
    assert watcher.reached == before
    slow.gate.set()
    await settled()
    assert sink.names == [("ADDED", "a")]
    assert watcher.reached == server.cache.revision


async def test_when_conversion_fails_watches_end_and_say_nothing_wrong(server: Server, client: InProcessClient) -> None:
    slow = await converting(server, client)
    sink = Sink()
    watcher = await begin(server, widgets("v2"), sink)
    slow.fails = True
    await client.create(widgets("v1"), widget("v1", "a"))
    await settled()
    assert watcher.closed and sink.ended
    assert sink.told == []


async def test_a_watch_whose_first_events_can_not_be_converted_leaves_no_watcher(server: Server, client: InProcessClient) -> None:
    slow = await converting(server, client)
    await client.create(widgets("v1"), widget("v1", "a"))
    slow.fails = True
    with pytest.raises(ApiError):
        await begin(server, widgets("v2"), Sink())
    assert server.feeds.feed(version_of(server, widgets("v2"))).count == 0


async def test_a_definition_that_is_replaced_ends_the_watch_that_is_just_beginning(
    server: Server, client: InProcessClient
) -> None:
    slow = await converting(server, client)
    await client.create(widgets("v1"), widget("v1", "a"))
    version = version_of(server, widgets("v2"))
    slow.gate.clear()
    sink = Sink()
    starting = asyncio.create_task(begin(server, widgets("v2"), sink))
    await settled()
    server.feeds.drop(version)
    slow.gate.set()
    watcher = await starting
    assert watcher.closed and sink.ended
    assert version not in [feed.version for feed in server.feeds.all()]


async def test_a_version_that_is_no_longer_served_can_not_be_watched_any_more(server: Server, client: InProcessClient) -> None:
    await converting(server, client)
    version = version_of(server, widgets("v1"))
    followers = len(version.resource.bucket.followers)
    server.feeds.drop(version)
    sink = Sink()
    watcher = await begin(server, widgets("v1"), sink)
    assert watcher.closed and sink.ended
    assert len(version.resource.bucket.followers) == followers
