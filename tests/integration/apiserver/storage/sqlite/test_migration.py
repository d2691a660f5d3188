"""A database of an older Remuda: copied, brought to the present schema in one transaction, or left as it was."""

from __future__ import annotations

import gzip
import logging
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from remuda.apiserver.storage.sqlite import SqliteStore, tables
from remuda.apiserver.storage.store import Put, StoreError
from remuda.kube.clock import VirtualClock

from .closed_database import meta_of

# Written by the last Remuda of that schema: a config map of two states, one that was deleted, a lease.
SCHEMA_1 = Path(__file__).with_name("schema-1.db.gz")
MAP = "/registry/configmaps/default/a"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "state.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(SCHEMA_1.read_bytes()))
    path.chmod(0o600)
    return path


def copies(path: Path) -> list[Path]:
    return sorted((path.parent / "backups").glob("*"))


def columns(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [row[1] for row in connection.execute("PRAGMA table_info(log)").fetchall()]
    finally:
        connection.close()


async def test_a_database_of_schema_1_opens_with_all_that_was_in_it(
    old: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = await SqliteStore.open(old, clock)
    assert (store.revision, store.floor, store.history_floor) == (4, 2, 0)
    versions = await store.history(MAP)
    assert [(version.revision, version.at, version.who) for version in versions] == [(2, 1790000060.0, ""), (1, 1790000000.0, "")]
    assert [kv.key for kv in (await store.range_history("/registry/configmaps/", 2)).items] == [MAP, MAP[:-1] + "b"]
    await store.write([Put(MAP, b"new", who="ann")])
    assert [version.who for version in await store.history(MAP)] == ["ann", "", ""]
    await store.close()
    assert meta_of(old)["schema"] == tables.VERSION
    told = [record.getMessage() for record in caplog.records if record.name.endswith("tables")]
    assert "copying it first" in told[0] and "from schema 1 to 2" in "".join(told) and "has schema 2 now" in told[-1]


async def test_the_copy_is_private_and_one_that_the_older_version_can_open(old: Path, clock: VirtualClock) -> None:
    before = old.read_bytes()
    await (await SqliteStore.open(old, clock)).close()
    (copy,) = copies(old)
    assert copy.name == "state.db.schema-1.20270115T080000Z.db"
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert meta_of(copy)["schema"] == 1 and "who" not in columns(copy)
    # Started again as it was, it comes here again.
    shutil.copy(copy, old)
    assert meta_of(old) == meta_of_bytes(before, old.with_name("first.db"))
    await clock.advance(60)
    await (await SqliteStore.open(old, clock)).close()
    assert len(copies(old)) == 2


def meta_of_bytes(content: bytes, path: Path) -> object:
    path.write_bytes(content)
    return meta_of(path)


async def test_the_last_two_copies_are_kept_and_nothing_else_is_touched(old: Path, clock: VirtualClock) -> None:
    first = old.read_bytes()
    backups = old.parent / "backups"
    backups.mkdir()
    (backups / "monday.db").write_bytes(b"somebody's own")
    for _ in range(4):
        old.write_bytes(first)
        await (await SqliteStore.open(old, clock)).close()
        await clock.advance(60)
    names = [copy.name for copy in copies(old)]
    assert names == ["monday.db", "state.db.schema-1.20270115T080200Z.db", "state.db.schema-1.20270115T080300Z.db"]


async def test_an_up_to_date_database_is_not_copied(clock: VirtualClock, tmp_path: Path) -> None:
    for _ in range(2):
        await (await SqliteStore.open(tmp_path / "state.db", clock)).close()
    assert not (tmp_path / "backups").exists()


class Usage(NamedTuple):
    total: int
    used: int
    free: int


async def test_without_room_it_says_so_before_it_touches_anything(
    old: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 1 << 30, 3 << 20))
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(old, clock)
    assert str(caught.value) == (
        f"the database {old} has schema 1 and must be brought to 2, which takes 17 MiB on the disk of {old.parent}, a copy "
        "included, and 3 are free: make room and start again; nothing was changed"
    )
    assert (old.read_bytes(), copies(old)) == (before, [])
    monkeypatch.undo()
    await (await SqliteStore.open(old, clock)).close()


async def test_a_newer_schema_is_refused_and_left_as_it_is(old: Path, clock: VirtualClock) -> None:
    connection = sqlite3.connect(old)
    connection.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError) as caught:
        await SqliteStore.open(old, clock)
    assert str(caught.value) == (
        f"the database {old} was written by a newer Remuda (schema 99, this one knows {tables.VERSION}): start that version, "
        "or restore a copy made before the upgrade"
    )
    assert meta_of(old)["clean"] == 1 and copies(old) == []


async def test_a_schema_that_nothing_leads_from_is_refused(
    old: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "VERSION", tables.VERSION + 1)
    with pytest.raises(StoreError, match=r"schema 1, which this Remuda can't upgrade to 3: start a version in between first"):
        await SqliteStore.open(old, clock)
    assert copies(old) == []


async def test_a_step_that_fails_leaves_all_as_it_was(old: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (name)")
        raise sqlite3.OperationalError("no more")

    monkeypatch.setattr(tables, "VERSION", 3)
    monkeypatch.setitem(tables.MIGRATIONS, 2, fails)
    with pytest.raises(StoreError, match="no more"):
        await SqliteStore.open(old, clock)
    assert meta_of(old)["schema"] == 1 and "who" not in columns(old)


KILLED = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    from pathlib import Path
    from remuda.apiserver.storage.sqlite import SqliteStore, files, tables
    from remuda.kube.clock import SYSTEM_CLOCK

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def half(connection):
        step(connection)
        die()

    step, where = tables.MIGRATIONS[1], sys.argv[2]
    if where == "step":
        tables.MIGRATIONS[1] = half
    else:
        real = files.sync
        files.sync = lambda directory: die() if directory.name == "backups" else real(directory)
    asyncio.run(SqliteStore.open(Path(sys.argv[1]), SYSTEM_CLOCK))
    """
)


@pytest.mark.parametrize("where", ["step", "copy"])
async def test_killed_in_the_middle_it_begins_again(old: Path, clock: VirtualClock, where: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(old), where], capture_output=True, timeout=180, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert meta_of(old)["schema"] == 1
    store = await SqliteStore.open(old, clock)
    assert len(await store.history(MAP)) == 2
    await store.close()
    assert meta_of(old)["schema"] == tables.VERSION
    assert 1 <= len(copies(old)) <= 2


async def test_several_steps_are_one_transaction(old: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def second(connection: sqlite3.Connection) -> None:
        seen.append(connection.in_transaction)
        connection.execute("CREATE TABLE added (name)")

    monkeypatch.setattr(tables, "VERSION", 3)
    monkeypatch.setitem(tables.MIGRATIONS, 2, second)
    await (await SqliteStore.open(old, clock)).close()
    assert seen == [True] and meta_of(old)["schema"] == 3
    assert len(copies(old)) == 1
