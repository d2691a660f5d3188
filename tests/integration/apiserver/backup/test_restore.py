"""A state in a data directory, backed up and restored into another, or over itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from remuda.apiserver.backup import restore, restore_staging
from remuda.apiserver.backup.format import Backup, BackupError, Damaged, InUse, NotEmpty
from remuda.apiserver.backup.restore import MARGIN, Restored
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys import rotation_record
from remuda.apiserver.keys.shared_keys import ensure_directory
from remuda.apiserver.replicas import server_leases
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import Compacted, Put, StoreError
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, VirtualClock

from .small_backups import PASSPHRASE, back_up, fill, no_progress, read_state


def restore_to(
    path: Path, data_dir: Path, *, force: bool = False, pki_dir: Path | None = None, clock: Clock = SYSTEM_CLOCK
) -> Restored:
    backup = Backup.open(path)
    key = backup.key(PASSPHRASE)
    return restore.restore(backup, key, data_dir, pki_dir, clock, Entropy(), force=force, progress=no_progress)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A data directory, a backup of it, and its revision."""
    place = tmp_path_factory.mktemp("made")

    async def make() -> int:
        revision = await fill(place / "data", ["one", "two"])
        header = await back_up(place / "data", place / "x.backup")
        assert header.revision == revision
        return revision

    return place / "data", place / "x.backup", asyncio.run(make())


def files(directory: Path, *left_out: str) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_restored_state_is_the_one_that_was_backed_up(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    data, backup, _ = made
    found = restore_to(backup, tmp_path / "new")
    state = read_state(data)
    assert read_state(tmp_path / "new") == state and found.objects == len(state) and found.aside is None
    for name in ("pki/ca.crt", "pki/ca.key", "pki/service-account.key", "pki/admin.crt", "encryption.yaml"):
        assert (tmp_path / "new" / name).read_bytes() == (data / name).read_bytes()
        assert (tmp_path / "new" / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new" / "state.db").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "new" / restore_staging.PLACE).exists()


async def test_revisions_go_on_far_above_all_that_were_handed_out(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    _, backup, revision = made
    restore_to(backup, tmp_path / "new")
    store = await SqliteStore.open(tmp_path / "new" / "state.db", SYSTEM_CLOCK)
    try:
        items = (await store.range("")).items
        assert min(kv.mod_revision for kv in items) > revision + MARGIN
        with pytest.raises(Compacted):
            await store.range("", revision=revision)
        with pytest.raises(Compacted):
            async with store.watch(revision):
                pass
        assert await store.write([Put("/registry/x", b"1")]) == max(kv.mod_revision for kv in items) + 1
    finally:
        await store.close()


async def test_a_server_reads_secrets_after_the_restore_and_they_are_sealed(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    data, backup, _ = made
    await asyncio.to_thread(restore_to, backup, tmp_path / "new")
    assert b"secret one" not in (tmp_path / "new" / "state.db").read_bytes()
    server = await Server.open(Config(data_dir=tmp_path / "new", default_roles=False))
    try:
        found = await InProcessClient(server).get(SECRETS, "one", "default")
        assert found["data"] == {"a": "c2VjcmV0IG9uZQ=="}
        assert (tmp_path / "new" / "pki" / "admin.crt").read_bytes() == (data / "pki" / "admin.crt").read_bytes()
    finally:
        await server.close()


def test_what_has_outlived_its_time_does_not_come_back(tmp_path: Path) -> None:
    async def make() -> None:
        await fill(tmp_path / "data", [])
        store = await SqliteStore.open(tmp_path / "data" / "state.db", SYSTEM_CLOCK)
        await store.write(
            [Put("/registry/events/default/old", b"{}", ttl=60), Put("/registry/events/default/new", b"{}", ttl=3600)]
        )
        await store.close()
        await back_up(tmp_path / "data", tmp_path / "x.backup")

    asyncio.run(make())
    later = VirtualClock(SYSTEM_CLOCK.time() + 600)
    found = restore_to(tmp_path / "x.backup", tmp_path / "new", clock=later)
    events = {key for key in read_state(tmp_path / "new") if key.startswith("/registry/events/")}
    assert found.over == 1 and events == {"/registry/events/default/new"}


async def test_what_servers_have_noted_comes_back_but_not_what_was_true_of_them_alone(tmp_path: Path) -> None:
    await fill(tmp_path / "data", [])
    store = await SqliteStore.open(tmp_path / "data" / "state.db", SYSTEM_CLOCK)
    noted = msgspec.json.encode(rotation_record.Record(done={"serving": 7.0}))
    await store.write([Put(rotation_record.KEY, noted), Put(f"{server_leases.ROOT}x", b"{}"), Put("/remuda/fences/x", b"x")])
    await store.close()
    await back_up(tmp_path / "data", tmp_path / "x.backup")
    await asyncio.to_thread(restore_to, tmp_path / "x.backup", tmp_path / "new")
    store = await SqliteStore.open(tmp_path / "new" / "state.db", SYSTEM_CLOCK)
    try:
        assert {kv.key: kv.value for kv in (await store.range("/remuda/")).items} == {rotation_record.KEY: noted}
    finally:
        await store.close()


def test_a_place_with_a_state_is_left_alone_unless_forced_and_then_it_is_kept(
    made: tuple[Path, Path, int], tmp_path: Path
) -> None:
    _, backup, _ = made
    place = tmp_path / "place"
    asyncio.run(fill(place, ["other"]))
    (place / "audit").mkdir()
    before = files(place)
    with pytest.raises(NotEmpty, match=r"is not empty, state.db is there: say another --data-dir, or --force"):
        restore_to(backup, place)
    assert files(place) == before
    old = read_state(place)
    found = restore_to(backup, place, force=True)
    assert found.aside is not None and found.aside.parent == place and (place / "audit").is_dir()
    assert read_state(found.aside) == old and "/registry/configmaps/default/one" in read_state(place)


def test_a_place_whose_database_is_damaged_is_put_aside_as_well(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    _, backup, _ = made
    (tmp_path / "state.db").write_bytes(b"nothing of a database")
    found = restore_to(backup, tmp_path, force=True)
    assert found.aside is not None and (found.aside / "state.db").read_bytes() == b"nothing of a database"


async def test_a_running_server_is_not_restored_over(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    _, backup, _ = made
    store = await SqliteStore.open(tmp_path / "state.db", SYSTEM_CLOCK)
    try:
        with pytest.raises(InUse, match=f"pid {os.getpid()}"):
            restore_to(backup, tmp_path, force=True)
    finally:
        await store.close()


def test_a_damaged_backup_changes_nothing(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    backup = tmp_path / "x.backup"
    shutil.copy(made[1], backup)
    opened = Backup.open(backup)
    key = opened.key(PASSPHRASE)
    whole = bytearray(backup.read_bytes())
    whole[-60] ^= 1
    backup.write_bytes(whole)
    with pytest.raises(Damaged):
        restore.restore(opened, key, tmp_path / "new", None, SYSTEM_CLOCK, Entropy(), force=False, progress=no_progress)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["state.db.lock"]


def test_shared_keys_go_into_an_empty_directory_and_no_other(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    data, backup, _ = made
    restore_to(backup, tmp_path / "one", pki_dir=tmp_path / "keys")
    assert (tmp_path / "keys" / "ca.key").read_bytes() == (data / "pki" / "ca.key").read_bytes()
    assert not (tmp_path / "one" / "pki" / "ca.key").exists()
    # The same ones are fine.
    restore_to(backup, tmp_path / "two", pki_dir=tmp_path / "keys")
    asyncio.run(_server_with_other_keys(tmp_path))
    with pytest.raises(BackupError, match=r"other-keys has other keys than the backup: say an empty --pki-dir"):
        restore_to(backup, tmp_path / "three", pki_dir=tmp_path / "other-keys")


async def _server_with_other_keys(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "other", pki_dir=tmp_path / "other-keys", default_roles=False)
    await (await Server.open(config)).close()


def test_keys_in_a_directory_that_are_whole_stay_whatever_is_beside_them(made: tuple[Path, Path, int], tmp_path: Path) -> None:
    """A mark is left by who is killed when all of them are written."""
    _, backup, _ = made
    ensure_directory(tmp_path / "keys", SYSTEM_CLOCK, Entropy())
    (tmp_path / "keys" / ".unfinished").touch()
    before = files(tmp_path / "keys")
    with pytest.raises(BackupError, match="has other keys than the backup: say an empty --pki-dir"):
        restore_to(backup, tmp_path / "one", pki_dir=tmp_path / "keys")
    assert files(tmp_path / "keys") == before
    (tmp_path / "keys" / "encryption.yaml").write_text("nothing")
    with pytest.raises(BackupError, match=r"encryption\.yaml"):
        restore_to(backup, tmp_path / "one", pki_dir=tmp_path / "keys")


async def test_no_backup_without_a_state_or_without_its_keys(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match=r"there is no state in .*: say the --data-dir of the server"):
        await back_up(tmp_path, tmp_path / "x.backup")
    await _server_with_other_keys(tmp_path)
    with pytest.raises(BackupError, match=r"ca.key is missing: if the server was started with --pki-dir"):
        await back_up(tmp_path / "other", tmp_path / "x.backup")
    assert not (tmp_path / "x.backup").exists()


# --- wherever it dies -------------------------------------------------------------------------------------------------------


def die(at: int, backup: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Restore over `place`, and be killed at that step; how many there were, when it is not reached."""
    command = [sys.executable, str(Path(__file__).with_name("killed_restore.py")), str(at), str(backup), str(place), PASSPHRASE]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def steps(made: tuple[Path, Path, int], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A place with another state, and in how many steps it is restored over."""
    place = tmp_path_factory.mktemp("steps")
    asyncio.run(fill(place / "other", ["other"]))
    shutil.copytree(place / "other", place / "copy")
    done = die(0, made[1], place / "copy")
    assert done.returncode == 0, done.stderr
    return place / "other", int(done.stdout)


SAMPLE = range(60) if os.environ.get("REMUDA_SOAK") == "1" else range(8)


@pytest.mark.parametrize("sample", SAMPLE)
def test_wherever_it_is_killed_the_state_is_the_old_one_or_the_new_one(
    made: tuple[Path, Path, int], steps: tuple[Path, int], tmp_path: Path, sample: int
) -> None:
    data, backup, _ = made
    other, count = steps
    # Evenly over all steps; most of them are at the end, where names change.
    at = 1 + (count - 1) * sample // max(len(SAMPLE) - 1, 1)
    place = tmp_path / "place"
    shutil.copytree(other, place)
    done = die(at, backup, place)
    assert done.returncode == -signal.SIGKILL, done.stderr
    asyncio.run(_opened(place))
    found = read_state(place)
    old, new = read_state(other), read_state(data)
    bootstrapped = {key for key in found if "configmaps/default/" in key or "secrets/default/" in key}
    assert any(
        {key for key in state if "configmaps/default/" in key or "secrets/default/" in key} == bootstrapped
        for state in (old, new)
    )
    ca = (place / "pki" / "ca.key").read_bytes()
    whose = data if "/registry/configmaps/default/one" in found else other
    assert ca == (whose / "pki" / "ca.key").read_bytes()
    assert (place / "encryption.yaml").read_bytes() == (whose / "encryption.yaml").read_bytes()
    assert not (place / restore_staging.PLACE).exists()
    # And it can be done again.
    restore_to(backup, place, force=True)
    assert "/registry/configmaps/default/one" in read_state(place)


async def _opened(place: Path) -> None:
    """As the next start of a server finds it."""
    server = await Server.open(Config(data_dir=place, default_roles=False))
    await server.close()


async def test_a_server_does_not_start_beside_a_restore(tmp_path: Path) -> None:
    (tmp_path / restore_staging.PLACE).mkdir()
    with restore_staging.locked(tmp_path), pytest.raises(StoreError, match="in use by another process"):
        await Server.open(Config(data_dir=tmp_path, default_roles=False))
