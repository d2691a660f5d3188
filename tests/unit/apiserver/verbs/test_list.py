"""Lists: pages of one revision, however long they take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from remuda.apiserver.http import list_bodies
from remuda.apiserver.http.tables import MetadataShape, TableShape
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.apiserver.verbs import list as listing
from remuda.apiserver.verbs.list import decode_continue, encode_continue
from remuda.apiserver.watch import selection
from remuda.kube.clock import yield_to_loop
from remuda.kube.errors import ApiError
from tests.unit.apiserver.serving import CONFIG_MAPS, Obj, config_map, labelled, served, version_of

PREFIX = "/registry/configmaps/default/"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as found:
        yield found


@pytest.fixture
async def client(server: Server) -> InProcessClient:
    client = InProcessClient(server)
    for number in range(10):
        await client.create(CONFIG_MAPS, labelled(config_map(f"c{number}", k="v"), odd=str(number % 2)))
    return client


def names(listed: Obj) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def pages(client: InProcessClient, limit: int, **options: str) -> list[Obj]:
    found = [await client.list(CONFIG_MAPS, "default", limit=limit, **options)]  # type: ignore[arg-type]
    while token := found[-1]["metadata"].get("continue"):
        found.append(await client.list(CONFIG_MAPS, "default", limit=limit, continue_=token, **options))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11])
async def test_pages_put_together_are_the_list(client: InProcessClient, limit: int) -> None:
    whole = await client.list(CONFIG_MAPS, "default")
    assert [name for page in await pages(client, limit) for name in names(page)] == names(whole)


async def test_how_many_remain_is_said_only_without_a_selector(client: InProcessClient) -> None:
    first = (await pages(client, 4))[0]
    assert first["metadata"]["remainingItemCount"] == 6
    first = (await pages(client, 4, labels="odd=1"))[0]
    assert "remainingItemCount" not in first["metadata"]
    assert first["metadata"]["continue"]


async def test_all_pages_are_of_the_first_one_s_revision(client: InProcessClient) -> None:
    first = await client.list(CONFIG_MAPS, "default", limit=3)
    await client.delete(CONFIG_MAPS, "c5", "default")
    await client.create(CONFIG_MAPS, config_map("c55"))
    rest = await client.list(CONFIG_MAPS, "default", continue_=first["metadata"]["continue"])
    assert names(first) + names(rest) == [f"c{number}" for number in range(10)]
    assert first["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"]


async def test_a_page_of_a_past_that_is_gone_says_how_to_go_on(server: Server, client: InProcessClient) -> None:
    first = await client.list(CONFIG_MAPS, "default", limit=3)
    await client.create(CONFIG_MAPS, config_map("c55"))
    await server.store.compact(server.store.revision)
    with pytest.raises(ApiError) as caught:
        await client.list(CONFIG_MAPS, "default", continue_=first["metadata"]["continue"])
    assert caught.value.code == 410
    rest = await client.list(CONFIG_MAPS, "default", continue_=caught.value.continue_token)
    assert names(first) + names(rest) == sorted([f"c{number}" for number in range(10)] + ["c55"])


async def test_a_long_list_lets_others_run_and_is_still_of_one_revision(
    server: Server, client: InProcessClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "SLICE", 2)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await yield_to_loop()
            turns += 1
            if turns == 2:
                await client.delete(CONFIG_MAPS, "c9", "default")
                await client.create(CONFIG_MAPS, config_map("d"))

    task = asyncio.create_task(others())
    revision = str(server.cache.revision)
    listed = await client.list(CONFIG_MAPS, "default", labels="odd")
    task.cancel()
    assert turns >= 2
    assert listed["metadata"]["resourceVersion"] == revision
    assert names(listed) == [f"c{number}" for number in range(10)]


async def test_every_shape_of_a_list_has_its_items_in_order(server: Server, client: InProcessClient) -> None:
    version = version_of(server, CONFIG_MAPS)
    bucket = version.resource.bucket
    page = listing.Page(bucket.snapshot(PREFIX), 7)
    expected = [f"c{number}" for number in range(10)]
    assert names(json.loads(await list_bodies.body(version, page))) == expected
    assert names(json.loads(await MetadataShape("v1").page(version, page))) == expected
    table = json.loads(await TableShape("v1", "Metadata", server.config.clock).page(version, page, server.config.clock.time()))
    assert [row["cells"][0] for row in table["rows"]] == expected
    assert [row["object"]["metadata"]["name"] for row in table["rows"]] == expected
    empty = listing.Page([], 7)
    assert json.loads(await list_bodies.body(version, empty))["items"] == []
    assert json.loads(await TableShape("v1", "None", server.config.clock).page(version, empty, 0.0))["rows"] == []


# --- continue tokens ------------------------------------------------------------------------------------------------------


def test_a_token_leads_back_to_its_key() -> None:
    assert decode_continue(encode_continue(PREFIX + "c3\x00", 7, PREFIX), PREFIX) == (PREFIX + "c3\x00", 7)


@pytest.mark.parametrize(
    "token", ["!", "e30", "bm8", encode_continue(PREFIX + "../../secrets/x", 7, PREFIX), encode_continue(PREFIX, 7, PREFIX)]
)
def test_a_token_that_is_none_or_leads_elsewhere_is_refused(token: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_continue(token, PREFIX)
    assert caught.value.code == 400


@pytest.mark.parametrize("piece", [1, 700, 1 << 20])
async def test_the_pieces_of_a_list_are_the_list(
    server: Server, client: InProcessClient, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(list_bodies, "_PIECE", piece)
    version = version_of(server, CONFIG_MAPS)
    for entries in (version.resource.bucket.snapshot(PREFIX), []):
        page = listing.Page(entries, 7, "next", 3)
        made = [piece async for piece in list_bodies.pieces(version, page, server.flow.pieces)]
        assert b"".join(made) == await list_bodies.body(version, page)
