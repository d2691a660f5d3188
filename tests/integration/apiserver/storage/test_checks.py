"""Checks: keys that a transaction only looks at, to be refused when they have changed."""

from __future__ import annotations

import pytest

from remuda.apiserver.storage.store import Check, Delete, HistoryStore, Mismatch, Put, StoreError


async def test_a_transaction_goes_through_while_what_it_checks_is_unchanged(store: HistoryStore) -> None:
    guard = await store.write([Put("/guard", b"mine")])
    first = await store.write([Check("/guard", guard), Check("/absent", 0), Put("/a", b"1", expect=0)])
    await store.write([Put("/b", b"1"), Check("/guard", guard), Delete("/a", expect=first)])
    found = await store.get("/guard")
    assert found is not None
    assert found.mod_revision == guard, "a check changes nothing"
    assert [kv.key for kv in (await store.range("/")).items] == ["/b", "/guard"]


async def test_events_are_of_what_changed_only(store: HistoryStore) -> None:
    guard = await store.write([Put("/guard", b"mine")])
    await store.write([Check("/guard", guard), Put("/a", b"1"), Check("/absent", 0), Put("/b", b"2", ttl=60)])
    assert [event.key for event in await store.changes(guard, store.revision)] == ["/a", "/b"]


@pytest.mark.parametrize("expect", [0, -1])
async def test_a_changed_key_refuses_the_whole_transaction(store: HistoryStore, expect: int) -> None:
    guard = await store.write([Put("/guard", b"mine")])
    before = store.revision
    with pytest.raises(Mismatch) as refused:
        await store.write([Put("/a", b"1"), Check("/guard", guard + expect if expect else 0)])
    assert (refused.value.key, refused.value.current and refused.value.current.value) == ("/guard", b"mine")
    assert await store.get("/a") is None
    assert store.revision == before


async def test_a_key_that_has_gone_refuses_too(store: HistoryStore) -> None:
    guard = await store.write([Put("/guard", b"mine")])
    await store.write([Delete("/guard")])
    with pytest.raises(Mismatch):
        await store.write([Check("/guard", guard), Put("/a", b"1")])


async def test_a_transaction_that_only_checks_is_refused(store: HistoryStore) -> None:
    with pytest.raises(StoreError, match="only checks"):
        await store.write([Check("/a", 0)])
