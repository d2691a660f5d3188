"""Informers on a real API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import WatchEvent
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, OutOfReach
from remuda.kube.objects import GroupVersionResource, labels_of, name_of
from remuda.kube.selectors import parse_labels
from remuda.runtime import Informer, Informers, reflector, synced
from remuda.runtime.reflector import Reflector

from .passing import passing

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def server(clock: VirtualClock) -> AsyncIterator[Server]:
    made = await Server.open(Config(data_dir=None, clock=clock))
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def following(clock: VirtualClock, informer: Informer) -> AsyncIterator[Informer]:
    task = asyncio.create_task(informer.run())
    try:
        await until(clock, informer.synced.is_set)
        yield informer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(clock: VirtualClock, condition: Callable[[], bool]) -> None:
    for _ in range(60):
        if condition():
            return
        await clock.advance(1)
    raise AssertionError("it did not become true")


def config_map(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default", "labels": labels}}


async def test_it_shows_what_is_there_and_what_happens(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, config_map("a", app="web"))
    seen: list[tuple[str, str]] = []

    def note(new: Obj | None, old: Obj | None) -> None:
        kind = "added" if old is None else "gone" if new is None else "changed"
        seen.append((kind, name_of(new or old or {})))

    informer = Informer(client, CONFIG_MAPS, clock, Rng(1), indexes={"app": lambda obj: [labels_of(obj).get("app")]})
    informer.on_change(note)
    async with following(clock, informer):
        await client.create(CONFIG_MAPS, config_map("b", app="web"))
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"app": "db"}}}, "default")
        await client.delete(CONFIG_MAPS, "b", "default")
        await until(clock, lambda: len(seen) == 4)
        assert seen == [("added", "a"), ("added", "b"), ("changed", "a"), ("gone", "b")]
        assert [name_of(obj) for obj in informer.indexed("app", "db")] == ["a"]
        assert informer.indexed("app", "web") == []
        assert informer.get("default", "b") is None
        late: list[str] = []
        informer.on_change(lambda new, old: late.append(name_of(new or old or {})))
        assert late == ["a"]


async def test_a_forgotten_revision_makes_it_list_again_and_tell_the_difference(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name))
    seen: list[tuple[bool, str]] = []
    informer = Informer(client, CONFIG_MAPS, clock, Rng(1))
    async with following(clock, informer):
        informer.on_change(lambda new, old: seen.append((new is not None, name_of(new or old or {}))))
        seen.clear()
        version = server.registry.find(*CONFIG_MAPS)
        assert version is not None
        # The watch ends; before it is back, things happen and the past is forgotten.
        server.feeds.drop(version)
        await client.delete(CONFIG_MAPS, "a", "default")
        await client.create(CONFIG_MAPS, config_map("c"))
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        await client.create(SECRETS, secret)
        await server.store.compact(server.store.revision)
        await until(clock, lambda: informer.get("default", "c") is not None)
        assert sorted(seen) == [(False, "a"), (True, "c")]


async def test_a_selection_is_followed_in_and_out(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    informer = Informer(client, CONFIG_MAPS, clock, Rng(1), labels="app=web", namespace="default")
    async with following(clock, informer):
        await client.create(CONFIG_MAPS, config_map("a", app="db"))
        await client.create(CONFIG_MAPS, config_map("b", app="web"))
        await until(clock, lambda: len(informer) == 1)
        await client.patch(CONFIG_MAPS, "b", {"metadata": {"labels": {"app": "db"}}}, "default")
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"app": "web"}}}, "default")
        await until(clock, lambda: informer.get("default", "a") is not None)
        assert [name_of(obj) for obj in informer.objects()] == ["a"]


async def test_only_what_is_kept_costs_memory(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    for number in range(20):
        await client.create(CONFIG_MAPS, {**config_map(f"big{number}"), "data": {"text": "x" * 50_000}})
    informers = Informers(client, clock, Rng(1))
    metadata = informers.of(CONFIG_MAPS, metadata_only=True)
    bare = informers.of(CONFIG_MAPS, transform=names_only)
    assert informers.of(CONFIG_MAPS, metadata_only=True) is metadata
    running = asyncio.create_task(informers.run())
    await synced(metadata, bare)
    later = informers.of(CONFIG_MAPS, "default", labels="app=web")
    await synced(later)
    await client.create(CONFIG_MAPS, {**config_map("late", app="web"), "data": {"text": "x" * 50_000}})
    await until(clock, lambda: len(metadata) == len(bare) == 21 and len(later) == 1)
    assert len(jsonio.dumps([*metadata.objects()])) < 21 * 1_000
    assert len(jsonio.dumps([*bare.objects()])) < 21 * 150
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def names_only(obj: Obj) -> Obj:
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {"metadata": {key: value for key, value in obj["metadata"].items() if key in kept}}


async def test_a_handler_that_fails_takes_nothing_from_the_others(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    seen: list[tuple[str, bool]] = []
    informer = Informer(client, CONFIG_MAPS, clock, Rng(1))

    def broken(new: Obj | None, old: Obj | None) -> None:
        raise RuntimeError("on purpose")

    informer.on_change(broken)
    stop = informer.on_change(lambda new, old: seen.append((name_of(new or old or {}), informer.initial)))
    await client.create(CONFIG_MAPS, config_map("a"))
    async with following(clock, informer):
        made = await client.create(CONFIG_MAPS, config_map("b"))
        await until(clock, lambda: informer.has_reached(made["metadata"]["resourceVersion"]))
        assert seen == [("a", True), ("b", False)]
        stop()
        made = await client.create(CONFIG_MAPS, config_map("c"))
        await until(clock, lambda: informer.has_reached(made["metadata"]["resourceVersion"]))
        assert len(seen) == 2
        assert informer.reflector.listings == 1
        assert [name_of(obj) for obj in informer.select(parse_labels("app!=web"), "default")] == ["a", "b", "c"]
        assert informer.select(parse_labels("app!=web"), "other") == []


@pytest.mark.parametrize("streams", [True, False], ids=["as a stream", "in pages"])
async def test_a_list_that_never_ends_is_given_up(streams: bool) -> None:
    """Of a cluster whose API may be anybody's program."""
    made = [0]

    def config_map() -> Obj:
        made[0] += 1
        metadata = {"name": f"c{made[0]}", "namespace": "default", "resourceVersion": "1"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    class Endless:
        remote = True

        async def list(self, *about: Any, limit: int = 0, **more: Any) -> Obj:
            return {"metadata": {"continue": "more"}, "items": [config_map() for _ in range(limit)]}

        async def watch(self, *about: Any, **more: Any) -> AsyncIterator[WatchEvent]:
            while True:
                yield WatchEvent("ADDED", config_map())

    class Nobody:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("nothing of it is told")

    found = Reflector(cast(Any, Endless()), CONFIG_MAPS, cast(Any, Nobody()), VirtualClock(), Rng(1), most=1000)
    with pytest.raises(ApiError, match="is longer than 1000"):
        await (found._watch({}) if streams else found._list())
    assert made[0] <= 1501


async def test_who_only_glances_sees_what_happened_since_and_holds_no_watch(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, config_map("a"))
    informer = Informer(client, CONFIG_MAPS, clock, Rng(1), glances=True)
    await passing(clock, informer.fill())
    assert informer.synced.is_set() and informer.get("default", "a") is not None
    await client.create(CONFIG_MAPS, config_map("b"))
    await client.delete(CONFIG_MAPS, "a", "default")
    assert informer.get("default", "b") is None, "nobody has looked"
    assert await passing(clock, informer.look())
    assert [name_of(obj) for obj in informer.objects() if name_of(obj) in "ab"] == ["b"]
    assert informer.reflector.listings == 1
    await client.delete(CONFIG_MAPS, "b", "default")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await client.create(SECRETS, secret)
    informer.reflector.revision = "1"
    await server.store.compact(server.store.revision)
    assert await passing(clock, informer.look()), "what is forgotten is read again at once"
    assert informer.get("default", "b") is None and informer.reflector.listings == 2


async def test_a_server_that_comes_within_reach_is_asked_at_once(server: Server, clock: VirtualClock) -> None:
    """Whatever the pause has grown to: here it is an hour."""
    waiting: list[Callable[[], None]] = []
    asked: list[None] = []

    def watch(handler: Callable[[], None]) -> Callable[[], None]:
        waiting.append(handler)
        return lambda: waiting.remove(handler)

    class Away:
        remote = False

        async def list(self, *about: Any, **more: Any) -> Obj:
            asked.append(None)
            raise OutOfReach("its agent is away", watch)

        def __getattr__(self, name: str) -> Any:
            return getattr(there, name)

    there, away = InProcessClient(server), Away()
    await there.create(CONFIG_MAPS, config_map("a"))
    pauses = reflector.Pauses(3600.0, 3600.0)
    informer = Informer(cast("InProcessClient", away), CONFIG_MAPS, clock, Rng(1), pauses=pauses)
    task = asyncio.create_task(informer.run())
    try:
        await until(clock, lambda: len(waiting) == 1)
        # It was nothing: it waits on.
        waiting[0]()
        await until(clock, lambda: len(asked) == 2 and len(waiting) == 1)
        away.list = there.list  # type: ignore[assignment]
        waiting[0]()
        await until(clock, lambda: informer.get("default", "a") is not None)
        assert waiting == []
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_quiet_informer_in_process_says_how_far_it_is(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    async with following(clock, Informer(client, SECRETS, clock, Rng(1))) as informer:
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
        written = (await client.create(CONFIG_MAPS, other))["metadata"]["resourceVersion"]
        assert not informer.has_reached(written)
        began = clock.monotonic()
        await passing(clock, informer.reach(written))
        assert clock.monotonic() - began < 5, "it waited for a bookmark that comes by itself"
