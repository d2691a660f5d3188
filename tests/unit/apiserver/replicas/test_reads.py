"""Whatever was answered through one server is seen through the other, also by a server that has not heard of it yet."""

from __future__ import annotations

import asyncio

from remuda.apiserver.storage.store import Put, Unavailable
from remuda.client.interface import WatchEvent
from remuda.kube.clock import VirtualClock
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, crd, crd_version, establish, widget, widgets

from .sharing import DEPLOYMENTS, Replica, deployment, error_of, replicas, settle


async def test_a_get_waits_for_what_another_server_wrote() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a", by="one"))
        found = await two.while_behind(two.client.get(CONFIG_MAPS, "a", "default"))
        assert found["data"] == {"by": "one"}


async def test_a_get_is_not_answered_before_the_server_has_caught_up() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", by="one"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", by="two"))
        asking = asyncio.create_task(two.client.get(CONFIG_MAPS, "a", "default"))
        await settle()
        assert not asking.done()
        two.line.release()
        assert (await asking)["data"] == {"by": "two"}


async def test_a_read_of_any_version_is_answered_at_once() -> None:
    async with replicas() as (one, two):
        old = await one.client.create(CONFIG_MAPS, config_map("a", by="one"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", by="two"))
        asked = two.line.asked
        assert await two.client.get(CONFIG_MAPS, "a", "default", resource_version="0") == old
        listed = await two.client.list(CONFIG_MAPS, "default", resource_version="0")
        assert [item["data"] for item in listed["items"]] == [{"by": "one"}]
        assert two.line.asked == asked


async def test_nothing_is_missed_before_the_server_has_caught_up() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        gone = await two.while_behind(error_of(two.client.get(CONFIG_MAPS, "a", "default")))
        assert gone.is_not_found


async def test_what_is_not_there_costs_one_question() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        asked = two.line.asked
        assert (await error_of(two.client.get(CONFIG_MAPS, "b", "default"))).is_not_found
        assert two.line.asked == asked + 1


async def test_a_list_and_its_pages() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        made = [await one.client.create(CONFIG_MAPS, config_map(name)) for name in "abc"]
        page = await two.while_behind(two.client.list(CONFIG_MAPS, "default", limit=2))
        assert [item["metadata"]["name"] for item in page["items"]] == ["a", "b"]
        assert page["metadata"]["resourceVersion"] == made[-1]["metadata"]["resourceVersion"]
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("d"))
        # A page that goes on shows the list as it was.
        rest = await two.client.list(CONFIG_MAPS, "default", continue_=page["metadata"]["continue"])
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
        whole = await two.while_behind(two.client.list(CONFIG_MAPS, "default"))
        assert [item["metadata"]["name"] for item in whole["items"]] == ["a", "b", "c", "d"]


async def test_a_page_of_one_server_goes_on_at_the_other() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        for name in "abc":
            await one.client.create(CONFIG_MAPS, config_map(name))
        page = await one.client.list(CONFIG_MAPS, "default", limit=1)
        rest = await two.while_behind(two.client.list(CONFIG_MAPS, "default", continue_=page["metadata"]["continue"]))
        assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]


async def first_of(replica: Replica, count: int, **options: object) -> list[tuple[str, str]]:
    found: list[WatchEvent] = []
    stream = replica.client.watch(CONFIG_MAPS, "default", **options)  # type: ignore[arg-type]
    async for event in stream:
        found.append(event)
        if len(found) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return [(event.type, event.object["metadata"].get("name", "")) for event in found]


async def test_a_watch_begins_with_what_there_is() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a"))
        assert await two.while_behind(first_of(two, 1)) == [("ADDED", "a")]


async def test_initial_events_are_of_the_present() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await one.client.create(CONFIG_MAPS, config_map("b"))
        await one.client.delete(CONFIG_MAPS, "a", "default")
        told = await two.while_behind(first_of(two, 2, send_initial_events=True))
        assert told == [("ADDED", "b"), ("BOOKMARK", "")]


async def test_a_watch_goes_on_at_another_server() -> None:
    async with replicas() as (one, two):
        begun = await one.client.create(CONFIG_MAPS, config_map("a"))
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        await one.client.create(CONFIG_MAPS, config_map("b"))
        version = begun["metadata"]["resourceVersion"]
        assert await two.while_behind(first_of(two, 2, resource_version=version)) == [("DELETED", "a"), ("ADDED", "b")]


async def test_the_scale_of_what_another_server_made() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(DEPLOYMENTS, deployment("a", 3))
        scale = await two.while_behind(two.client.get(DEPLOYMENTS, "a", "default", subresource="scale"))
        assert scale["spec"] == {"replicas": 3}


async def test_a_kind_that_was_defined_through_another_server() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await establish(one.client, crd("widgets", [crd_version("v1", storage=True, size={"type": "integer"})]))
        made = await two.while_behind(two.client.create(widgets("v1"), widget("v1", "a", size=1)))
        assert made["spec"] == {"size": 1}
        two.line.hold()
        await one.client.create(widgets("v1"), widget("v1", "b"))
        listed = await two.while_behind(two.client.list(widgets("v1"), "default"))
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]


async def test_a_watch_of_a_kind_that_was_defined_through_another_server() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await establish(one.client, crd("widgets", [crd_version("v1", storage=True)]))
        await one.client.create(widgets("v1"), widget("v1", "a"))

        async def first() -> str:
            async for event in two.client.watch(widgets("v1"), "default"):
                return event.type
            raise AssertionError("the watch has ended")

        assert await two.while_behind(first()) == "ADDED"


async def test_a_server_that_does_not_catch_up_says_so() -> None:
    clock = VirtualClock()
    async with replicas(clock=clock) as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a"))
        asking = asyncio.create_task(error_of(two.client.get(CONFIG_MAPS, "a", "default")))
        await clock.advance(9.9)
        assert not asking.done()
        await clock.advance(0.2)
        late = await asking
        assert (late.code, late.reason) == (504, "Timeout")
        assert "did not catch up with the store" in late.message


async def test_without_a_quorum_nothing_is_read() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.asking_fails = Unavailable("no member answers")
        for work in (two.client.get(CONFIG_MAPS, "a", "default"), two.client.list(CONFIG_MAPS, "default")):
            refused = await error_of(work)
            assert (refused.code, refused.reason, refused.retry_after) == (503, "ServiceUnavailable", 1)
            assert "no member answers" in refused.message
        # Nor is anything said to be missing that may be there.
        assert (await error_of(two.client.get(CONFIG_MAPS, "b", "default"))).code == 503
        assert (await error_of(two.client.delete(CONFIG_MAPS, "b", "default"))).code == 503


async def test_the_wait_for_foreign_writes_in_the_same_store_ends() -> None:
    """The newest revision may be of a key that no server caches."""
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await one.line.store.write([Put("/somebody/else", b"x")])
        assert (await two.client.get(CONFIG_MAPS, "a", "default"))["metadata"]["name"] == "a"


async def test_reading_in_between_is_monotonic() -> None:
    """Readers at both servers, taking turns, never see a counter go back."""
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, 40):
                await one.client.update(CONFIG_MAPS, config_map("a", n=str(number)))
            done.set()

        async def read() -> list[int]:
            seen: list[int] = []
            while not done.is_set():
                for each in (one, two):
                    seen.append(int((await each.client.get(CONFIG_MAPS, "a", "default"))["data"]["n"]))
                two.line.hold() if len(seen) % 6 == 0 else two.line.release()
                if two.line.held:
                    asyncio.get_running_loop().call_soon(two.line.release)
            return seen

        _, seen = await asyncio.gather(write(), read())
        assert seen == sorted(seen)
        assert len(seen) > 10
