"""Reading the past: the states of a key, and what a range held, in steps that are small whatever there is."""

from __future__ import annotations

import random

import pytest

from remuda.apiserver.storage.sqlite import SqliteStore, history
from remuda.apiserver.storage.store import Compacted, Delete, FutureRevision, HistoryStore, KeyValue, Put
from remuda.kube.clock import VirtualClock


async def lived(store: HistoryStore, rounds: int = 100) -> list[dict[str, KeyValue]]:
    """What there was after each revision."""
    chance = random.Random(7)
    states: list[dict[str, KeyValue]] = [{}]
    for step in range(rounds):
        now = dict(states[-1])
        key = f"/k/{chance.choice('aabbbcdefgh')}"
        if key in now and chance.random() < 0.3:
            await store.write([Delete(key, who=f"user-{step}")])
            del now[key]
        else:
            value = chance.randbytes(chance.randrange(60))
            revision = await store.write([Put(key, value, who=f"user-{step}")])
            created = now[key].create_revision if key in now else revision
            now[key] = KeyValue(key, value, created, revision)
        states.append(now)
    return states


@pytest.fixture(params=[2, history.STEPS])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How far a walk goes in one go: what it finds must not depend on it."""
    monkeypatch.setattr(history, "STEPS", request.param)
    monkeypatch.setattr(history, "HEADS", min(request.param, history.HEADS))
    return int(request.param)


async def test_every_past_range_is_as_it_was(kept: HistoryStore, steps: int) -> None:
    states = await lived(kept)
    for revision, state in list(enumerate(states))[1::3]:
        whole = await kept.range_history("/k/", revision)
        assert (whole.items, whole.more) == ([state[key] for key in sorted(state)], False)
        seen: list[KeyValue] = []
        start = ""
        while True:
            page = await kept.range_history("/k/", revision, start=start, limit=2, most_bytes=80)
            seen += page.items
            if not page.more:
                break
            start = page.items[-1].key + "\0"
        assert seen == whole.items


async def test_every_state_of_a_key_is_told_once_whatever_the_pages(kept: HistoryStore, steps: int) -> None:
    states = await lived(kept)
    for key in sorted({key for state in states for key in state}):
        whole = await kept.history(key)
        assert [version.revision for version in whole] == [
            at for at in range(len(states) - 1, 0, -1) if states[at].get(key) != states[at - 1].get(key)
        ]
        assert all(version.kv == states[version.revision].get(key) for version in whole)
        assert all(version.who == f"user-{version.revision - 1}" for version in whole)
        paged = []
        before = 0
        while page := await kept.history(key, before=before, limit=3, most_bytes=100):
            paged += page
            before = page[-1].revision
        assert paged == whole
        # From a revision that is not one of its own, too.
        for before in (1, 40, 77, len(states) + 5):
            assert await kept.history(key, before=before) == [each for each in whole if each.revision < before]


async def test_a_page_ends_when_its_bytes_are_full(kept: HistoryStore) -> None:
    for index in range(6):
        await kept.write([Put("/a", bytes(1000)), Put(f"/b/{index}", bytes(1000))])
    assert len(await kept.history("/a", limit=100, most_bytes=2500)) == 3
    page = await kept.range_history("/b/", 6, limit=100, most_bytes=2500)
    assert (len(page.items), page.more) == (3, True)


async def test_what_was_forgotten_or_is_yet_to_come_is_refused(sqlite: SqliteStore, clock: VirtualClock) -> None:
    for _ in range(5):
        await clock.advance(1000)
        await sqlite.write([Put("/registry/pods/a", b""), Put("/registry/leases/a", b"")])
    await sqlite.compact(5)
    await sqlite.prune()
    assert sqlite.history_floor == 1
    with pytest.raises(FutureRevision):
        await sqlite.range_history("/registry/pods/", 6)
    await sqlite.range_history("/registry/pods/", 1)
    with pytest.raises(Compacted):
        await sqlite.range_history("/registry/leases/", 4)
    await clock.advance(1000)
    await sqlite.prune()
    with pytest.raises(Compacted):
        await sqlite.range_history("/registry/pods/", 1)
    assert [version.revision for version in await sqlite.history("/registry/pods/a", before=5)] == [4, 3, 2]
    assert await sqlite.history("/registry/pods/a", before=2) == []


async def test_the_time_of_a_revision_is_known(kept: HistoryStore, clock: VirtualClock) -> None:
    begin = clock.time()
    for _ in range(3):
        await clock.advance(10)
        await kept.write([Put("/a", b"")])
    assert [await kept.time_of(revision) - begin for revision in (1, 2, 3)] == [10, 20, 30]
    assert await kept.revision_at(begin + 25) == 2
