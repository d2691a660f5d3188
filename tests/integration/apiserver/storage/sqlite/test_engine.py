"""What only the sqlite engine has: files, locks, damage, history that outlives compaction."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import Compacted, Delete, Put, StoreError
from remuda.kube.clock import VirtualClock

from .closed_database import meta_of


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_a_closed_database_is_one_private_file_and_opens_as_it_was(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "data" / "state.db"
    store = await SqliteStore.open(path, clock)
    await store.write([Put("/a", b"1", ttl=10), Put("/b", b"1")])
    await store.write([Delete("/b")])
    await store.compact(1)
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    await store.close()
    await store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.db", "state.db.lock"]
    assert meta_of(path)["clean"] == 1
    store = await SqliteStore.open(path, clock)
    assert (store.revision, store.floor) == (2, 1)
    assert [kv.key for kv in (await store.range("")).items] == ["/a"]
    await clock.advance(20)
    assert await store.expire(clock.time()) == 1
    await store.close()


async def test_the_settings_that_make_a_commit_durable(sqlite: SqliteStore) -> None:
    connection = sqlite._writer._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA page_size").fetchone() == (8192,)


async def test_a_second_opener_is_refused_with_the_process_that_has_it(
    sqlite: SqliteStore, clock: VirtualClock, tmp_path: Path
) -> None:
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(tmp_path / "state.db", clock)
    assert str(caught.value) == (
        f"the database {tmp_path / 'state.db'} is in use by another process (pid {os.getpid()}): "
        "stop that one first, or use another data directory"
    )
    await sqlite.write([Put("/a", b"")])


async def test_a_watcher_that_falls_behind_reads_the_log_and_catches_up(sqlite: SqliteStore) -> None:
    async with sqlite.watch(0, "/w/") as events:
        for round_ in range(3):
            await asyncio.gather(*(sqlite.write([Put(f"/{'wx'[index % 2]}/{index}", b"")]) for index in range(1200)))
            got: list[int] = []
            while len(got) < 600:
                got.extend(event.revision for event in await anext(events))
            assert got == sorted(set(got)) and len(got) == 600
            assert got[0] > round_ * 1200


async def test_a_watcher_that_falls_behind_compaction_is_told(sqlite: SqliteStore) -> None:
    async with sqlite.watch(0) as events:
        for index in range(20):
            await sqlite.write([Put("/a", str(index).encode())])
        await sqlite.compact(15)
        with pytest.raises(Compacted) as caught:
            await anext(events)
    assert (caught.value.revision, caught.value.floor) == (0, 15)


async def test_a_replay_never_splits_a_transaction(sqlite: SqliteStore) -> None:
    for _ in range(5):
        await sqlite.write([Put(f"/{index}", b"") for index in range(200)])
    async with sqlite.watch(0) as events:
        seen: list[int] = []
        while len(seen) < 1000:
            batch = [event.revision for event in await anext(events)]
            assert not seen or batch[0] > seen[-1]
            seen.extend(batch)
    assert seen == sorted(seen)


async def test_history_outlives_compaction_but_for_leases_and_events(sqlite: SqliteStore, clock: VirtualClock) -> None:
    keys = ("/registry/leases/a", "/registry/events/a", "/registry/pods/a")
    begin = clock.time()
    for index in range(4):
        await clock.advance(10)
        await sqlite.write([Put(key, str(index).encode()) for key in keys])
    await sqlite.write([Delete(key) for key in keys])
    await sqlite.compact(4)
    assert [len(await sqlite.history(key)) for key in keys] == [2, 2, 5]
    version = await sqlite.read_history(keys[2], at_time=begin + 15)
    assert version is not None and version.kv is not None and version.kv.value == b"0"
    with pytest.raises(Compacted):
        await sqlite.read_history(keys[0], at_revision=3)
    await sqlite.compact(5)
    assert [len(await sqlite.history(key)) for key in keys] == [0, 0, 5]


async def test_pruning_forgets_what_is_too_old(sqlite: SqliteStore, clock: VirtualClock) -> None:
    begin = clock.time()
    await sqlite.write([Put("/kept", b"")])
    for index in range(10):
        await clock.advance(600)
        await sqlite.write([Put("/a", str(index).encode())])
    await sqlite.write([Delete("/a")])
    await sqlite.compact(sqlite.revision)
    assert sqlite.history_bytes > 0
    await clock.advance(1)
    assert await sqlite.prune() == 3
    assert sqlite.history_floor == 5
    assert [version.revision for version in await sqlite.history("/a")] == [12, 11, 10, 9, 8, 7, 6, 5]
    with pytest.raises(Compacted):
        await sqlite.read_history("/a", at_revision=4)
    with pytest.raises(Compacted):
        await sqlite.read_history("/a", at_time=begin + 601)
    version = await sqlite.read_history("/a", at_time=begin + 2400)
    assert version is not None and version.revision == 5
    await clock.advance(10_000)
    await sqlite.prune()
    assert await sqlite.history("/a") == []
    assert sqlite.history_bytes == 0
    assert [kv.key for kv in (await sqlite.range("")).items] == ["/kept"]
    assert await sqlite.write([Put("/a", b"")]) == 13


async def test_pruning_forgets_the_oldest_when_history_weighs_too_much(clock: VirtualClock, tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db", clock, history_max_bytes=600_000)
    for _ in range(1500):
        await store.write([Put("/a", bytes(1000))])
    await store.compact(1400)
    assert store.history_bytes > 1_500_000
    await store.prune()
    assert store.history_bytes <= 600_000
    assert 0 < store.history_floor < 1400
    revision = store.revision
    assert await store.get("/a", 1400) is not None
    await store.close()
    store = await SqliteStore.open(tmp_path / "state.db", clock)
    assert store.revision == revision and store.history_bytes <= 600_000
    assert (await store.read_history("/a", at_revision=store.history_floor)) is not None
    await store.close()


async def test_the_log_stays_whole_when_everything_was_forgotten(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path, clock, history_seconds=0)
    await store.write([Put("/a", b"")])
    await store.write([Delete("/a")])
    await store.compact(2)
    await clock.advance(1)
    await store.prune()
    await store.close()
    assert rows(path, "SELECT * FROM log") == rows(path, "SELECT * FROM current") == []
    store = await SqliteStore.open(path, clock)
    assert await store.write([Put("/a", b"")]) == 3
    await store.close()


# Damage


async def filled(path: Path, clock: VirtualClock, *, clean: bool = True) -> None:
    store = await SqliteStore.open(path, clock)
    for index in range(50):
        await store.write([Put(f"/{index}", os.urandom(6000))])
    await store.close()
    if not clean:
        connection = sqlite3.connect(path)
        connection.execute("UPDATE meta SET value = 0 WHERE name = 'clean'")
        connection.commit()
        connection.close()


@pytest.mark.parametrize("damage", ["header", "end", "middle", "empty-header"])
async def test_a_damaged_database_is_refused_with_what_to_do(clock: VirtualClock, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "state.db"
    await filled(path, clock, clean=damage != "middle")
    whole = path.read_bytes()
    match damage:
        case "header":
            path.write_bytes(b"rubbish" + whole[7:])
        case "empty-header":
            path.write_bytes(bytes(50))
        case "end":
            path.write_bytes(whole[: len(whole) // 2])
        case "middle":
            middle = len(whole) // 2 // 8192 * 8192
            path.write_bytes(whole[:middle] + b"\xff" * 8192 + whole[middle + 8192 :])
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(path, clock)
    text = str(caught.value)
    assert text.startswith(f"the database {path} is damaged: ")
    assert "state.db-wal" in text and text.endswith("aside, then restore a backup with `remuda restore`")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "monday.db").write_bytes(whole)
    with pytest.raises(StoreError, match=r"restore the newest good copy; in .*backups there are monday\.db"):
        await SqliteStore.open(path, clock)
    path.write_bytes(whole)
    store = await SqliteStore.open(path, clock)
    assert len((await store.range("")).items) == 50
    await store.close()


async def test_damage_that_is_met_only_in_reading_speaks_as_well(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await filled(path, clock)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 8192 // 2 * 8192)
        file.write(b"\xff" * 8192)
    store = await SqliteStore.open(path, clock)
    with pytest.raises(StoreError, match="is damaged"):
        await store.range("")
    await store.close()


async def test_other_sqlite_files_and_newer_ones_are_refused(clock: VirtualClock, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE things (name)")
    connection.close()
    with pytest.raises(StoreError, match="not one of Remuda's"):
        await SqliteStore.open(other, clock)
    newer = tmp_path / "newer.db"
    await (await SqliteStore.open(newer, clock)).close()
    connection = sqlite3.connect(newer)
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="written by a newer Remuda"):
        await SqliteStore.open(newer, clock)


async def test_a_file_that_a_crash_left_empty_is_begun_anew(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    store = await SqliteStore.open(path, clock)
    assert await store.write([Put("/a", b"")]) == 1
    await store.close()


FULL = textwrap.dedent(
    """
    import asyncio, resource, sys
    from pathlib import Path
    from remuda.apiserver.storage.store import Put, StoreError
    from remuda.apiserver.storage.sqlite import SqliteStore
    from remuda.kube.clock import SystemClock

    async def main(path):
        store = await SqliteStore.open(path, SystemClock())
        async with store.watch(0) as events:
            await store.write([Put("/before", b"1")])
            await anext(events)
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
            acknowledged, refused = 1, None
            for index in range(200):
                try:
                    acknowledged = await store.write([Put(f"/{index:03}", bytes(4096), expect=0)])
                except StoreError as error:
                    refused = str(error)
                    break
            assert refused, "nothing was refused"
            whole = await store.range("")
            assert whole.revision == acknowledged == store.revision, (whole.revision, acknowledged)
            assert (await store.get("/before")).value == b"1"
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            later = await store.write([Put("/after", b"1")])
            assert later > acknowledged
            seen = []
            while not seen or seen[-1].key != "/after":
                seen.extend(await anext(events))
            assert [event.revision for event in seen] == [*range(2, acknowledged + 1), later]
        await store.close()
        print(refused)

    asyncio.run(main(Path(sys.argv[1])))
    """
)


def test_a_full_disk_acknowledges_nothing_and_reads_go_on(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "state.db")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"could not write to the database {tmp_path / 'state.db'}" in done.stdout
    assert "free some space" in done.stdout
