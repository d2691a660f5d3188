"""Fields that are wanted no more go, also from objects that have lost who owns what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.embedded import running
from remuda.client.interface import JSON_PATCH
from remuda.client.server_side_apply import Applier, apply_owned, entries_of, owns, was_lost, without_leftovers
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
MAPS = GroupVersionResource("", "v1", "configmaps")


def wanted(**data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default"}, "data": data}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[InProcessClient]:
    async with running(Config(tmp_path / "data", port=0)) as server:
        yield InProcessClient(server)


async def lose(client: InProcessClient) -> Obj:
    """As `kubectl` clears them."""
    return await client.patch(MAPS, "x", {"metadata": {"managedFields": [{}]}}, "default")


async def test_a_server_keeps_for_ever_what_was_there_before_the_first_apply(client: InProcessClient) -> None:
    """What this is for."""
    await client.apply(MAPS, wanted(a="1", b="1"), field_manager="m", force=True)
    await lose(client)
    await client.apply(MAPS, wanted(a="1", b="1"), field_manager="m", force=True)
    after = await client.apply(MAPS, wanted(a="1"), field_manager="m", force=True)
    assert after["data"] == {"a": "1", "b": "1"}


async def test_after_a_loss_what_is_wanted_no_more_goes_and_what_others_added_stays(client: InProcessClient) -> None:
    await apply_owned(client, MAPS, wanted(a="1", b="1"), "m")
    await client.patch(MAPS, "x", {"data": {"theirs": "1"}}, "default", field_manager="they")
    before = await client.get(MAPS, "x", "default")
    lost = await lose(client)
    assert was_lost(lost, before) and not was_lost(before, lost) and not owns(lost, "m")
    found = await apply_owned(client, MAPS, wanted(a="1", b="1"), "m")
    assert owns(found, "m") and without_leftovers(found) == [] and [each["manager"] for each in entries_of(found)] == ["m"]
    after = await apply_owned(client, MAPS, wanted(a="1"), "m")
    assert after["data"] == {"a": "1", "theirs": "1"}


async def test_an_applier_restores_what_was_lost_although_nothing_else_changed(client: InProcessClient) -> None:
    applier = Applier(client, "m")
    made = await applier.apply(MAPS, wanted(a="1", b="1"), None)
    assert made is not None and await applier.apply(MAPS, wanted(a="1", b="1"), made) is None
    found = await applier.apply(MAPS, wanted(a="1", b="1"), await lose(client))
    assert found is not None and owns(found, "m")
    assert await applier.apply(MAPS, wanted(a="1", b="1"), found) is None
    after = await applier.apply(MAPS, wanted(a="1"), found)
    assert after is not None and after["data"] == {"a": "1"}


async def test_a_stale_managed_fields_entry_is_found_also_later(client: InProcessClient) -> None:
    """Somebody died between the apply and what follows it."""
    await client.apply(MAPS, wanted(a="1", b="1"), field_manager="m", force=True)
    await lose(client)
    half = await client.apply(MAPS, wanted(a="1", b="1"), field_manager="m", force=True)
    assert not owns(half, "m")
    assert (await apply_owned(client, MAPS, wanted(a="1"), "m"))["data"] == {"a": "1", "b": "1"}
    # By then nobody has it: a later word of it is ours, and goes.
    await apply_owned(client, MAPS, wanted(a="1", b="2"), "m")
    assert (await apply_owned(client, MAPS, wanted(a="1"), "m"))["data"] == {"a": "1"}


async def test_what_others_wrote_meanwhile_is_no_conflict(client: InProcessClient) -> None:
    await client.apply(MAPS, wanted(a="1"), field_manager="m", force=True)
    await lose(client)
    half = await client.apply(MAPS, wanted(a="1"), field_manager="m", force=True)
    await client.patch(MAPS, "x", {"data": {"theirs": "1"}}, "default", field_manager="they")
    after = await client.patch(MAPS, "x", without_leftovers(half), "default", patch_type=JSON_PATCH)
    assert {each["manager"] for each in entries_of(after)} == {"m", "they"}
