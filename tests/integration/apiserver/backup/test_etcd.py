"""Backups from etcd and into it; the etcd is a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.apiserver.backup import restore, restore_to_etcd
from remuda.apiserver.backup.format import Backup, BackupError, InUse, NotEmpty
from remuda.apiserver.backup.restore import MARGIN, Restored
from remuda.apiserver.backup.restore_to_etcd import EtcdTarget, RestoreMark
from remuda.apiserver.backup.take import of_etcd, take
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys import key_agreement
from remuda.apiserver.replicas import server_leases
from remuda.apiserver.replicas.server_leases import ServerLease
from remuda.apiserver.server import Config, PartFailed, Server
from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.revision_offset import read_offset
from remuda.apiserver.storage.store import Compacted, Delete, Op, Put, StoreError
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng, deadline

from .small_backups import PASSPHRASE, QUICK, back_up, fill, gathered, no_progress, read_state, state_of

pytestmark = pytest.mark.real
TOKEN = "the token of the tests"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A data directory, a backup of it, and its revision."""
    place = tmp_path_factory.mktemp("made")

    async def make() -> int:
        await fill(place / "data", ["one", "two"])
        return (await back_up(place / "data", place / "x.backup")).revision

    return place / "data", place / "x.backup", asyncio.run(make())


@pytest.fixture(autouse=True)
def _leave_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves waits a moment for etcd and no longer. Where that is slow, its record would stay for the next who looks."""
    monkeypatch.setattr(server_leases, "_LEAVING", 60.0)


async def restore_etcd(path: Path, config: EtcdConfig, aside: Path, token: str = TOKEN, *, force: bool = False) -> Restored:
    backup = Backup.open(path)
    key = backup.key(PASSPHRASE)
    place = EtcdTarget(config, None if token else aside / "keys", token, aside)
    return await restore_to_etcd.restore(
        backup, key, PASSPHRASE, place, SYSTEM_CLOCK, Rng(1), Entropy(), force=force, progress=no_progress, cost=QUICK
    )


@asynccontextmanager
async def opened(config: EtcdConfig) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(config, SYSTEM_CLOCK, Rng(1))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def serving(config: EtcdConfig, data_dir: Path, token: str = TOKEN, pki_dir: Path | None = None) -> AsyncIterator[Server]:
    server = await Server.open(Config(data_dir=data_dir, etcd=config, token=token, pki_dir=pki_dir, default_roles=False))
    try:
        yield server
    finally:
        await server.close()


async def back_up_etcd(config: EtcdConfig, path: Path, token: str = TOKEN) -> int:
    async with of_etcd(config, None, token, SYSTEM_CLOCK, Rng(1), Entropy()) as source:
        return (await take(source, path, PASSPHRASE, SYSTEM_CLOCK, Entropy(), cost=QUICK)).revision


async def read_etcd(config: EtcdConfig) -> dict[str, object]:
    async with of_etcd(config, None, TOKEN, SYSTEM_CLOCK, Rng(1), Entropy()) as source:
        return state_of(await gathered(source))


async def test_from_sqlite_into_etcd_and_back(made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path) -> None:
    data, backup, revision = made
    state = await asyncio.to_thread(read_state, data)
    found = await restore_etcd(backup, config, tmp_path)
    assert found.objects == len(state) and found.revision > revision + MARGIN and found.aside is None
    assert await read_etcd(config) == state
    async with serving(config, tmp_path / "server") as server:
        secret = await InProcessClient(server).get(SECRETS, "one", "default")
        assert secret["data"] == {"a": "c2VjcmV0IG9uZQ=="}
        assert server.pki is not None and server.pki.service_account_pem == (data / "pki/service-account.key").read_bytes()
        # While it works: a backup, but no restore.
        second = await back_up_etcd(config, tmp_path / "second.backup")
        assert second > found.revision
        with pytest.raises(InUse, match=r"a server on .* works on this etcd: stop it first"):
            await restore_etcd(backup, config, tmp_path, force=True)
    again = Backup.open(tmp_path / "second.backup")
    key = again.key(PASSPHRASE)
    back = restore.restore(again, key, tmp_path / "back", None, SYSTEM_CLOCK, Entropy(), force=False, progress=no_progress)
    assert back.revision > second + MARGIN
    returned = await asyncio.to_thread(read_state, tmp_path / "back")
    assert {key: returned[key] for key in state if "/default/" in key} == {key: state[key] for key in state if "/default/" in key}
    assert (tmp_path / "back" / "pki" / "ca.key").read_bytes() == (data / "pki" / "ca.key").read_bytes()


async def test_revisions_of_a_restored_etcd_are_above_all_before_and_stay_so(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path
) -> None:
    _, backup, revision = made
    found = await restore_etcd(backup, config, tmp_path)
    async with serving(config, tmp_path / "server") as server:
        items = (await server.store.range("/registry/")).items
        assert min(kv.mod_revision for kv in items) >= found.revision > revision + MARGIN
        # Whoever was watching begins anew.
        for old in (revision, revision + 5, found.revision - 1):
            with pytest.raises(Compacted):
                async with server.store.watch(old):
                    pass
        reached = await server.store.write([Put("/registry/x", b"{}")])
        assert reached > found.revision
    async with serving(config, tmp_path / "server") as server:
        assert await server.store.current() >= reached


async def test_keys_in_a_directory_are_put_there(made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path) -> None:
    data, backup, _ = made
    await restore_etcd(backup, config, tmp_path, token="")
    assert (tmp_path / "keys" / "ca.key").read_bytes() == (data / "pki" / "ca.key").read_bytes()
    async with serving(config, tmp_path / "server", "", tmp_path / "keys") as server:
        await InProcessClient(server).get(SECRETS, "two", "default")


async def test_what_is_there_is_left_alone_unless_forced_and_then_it_is_kept(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path
) -> None:
    _, backup, _ = made
    await restore_etcd(backup, config, tmp_path)
    async with serving(config, tmp_path / "server") as server:
        client = InProcessClient(server)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept", "namespace": "default"}}
        kept = int((await client.create(SECRETS, secret))["metadata"]["resourceVersion"])
    with pytest.raises(NotEmpty, match=r"is not empty: say another --etcd-prefix, or --force"):
        await restore_etcd(backup, config, tmp_path)
    with pytest.raises(NotEmpty, match=r"can't be kept aside .*another token"):
        await restore_etcd(backup, config, tmp_path, token="another token of tests", force=True)
    assert "/registry/secrets/default/kept" in await read_etcd(config)
    found = await restore_etcd(backup, config, tmp_path, force=True)
    assert "/registry/secrets/default/kept" not in await read_etcd(config) and found.revision > kept
    # What was put aside is a backup itself.
    assert found.aside is not None and found.aside.stat().st_mode & 0o777 == 0o600
    await restore_etcd(found.aside, config, tmp_path, force=True)
    assert "/registry/secrets/default/kept" in await read_etcd(config)


async def test_no_server_starts_on_what_is_half_restored_and_a_repetition_heals_it(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path
) -> None:
    data, backup, revision = made
    async with opened(config) as store:
        await store.write([Put(server_leases.RESTORING, b"x"), Put("/registry/configmaps/default/wreck", b"{}")])
    with pytest.raises(StoreError, match="a restore into this etcd has not come to its end"):
        async with serving(config, tmp_path / "server"):
            pass
    # Without --force: what is there is no state.
    found = await restore_etcd(backup, config, tmp_path)
    assert found.aside is None and found.revision > revision
    assert await read_etcd(config) == await asyncio.to_thread(read_state, data)
    async with serving(config, tmp_path / "server"):
        pass


async def test_no_server_runs_beside_a_restore(made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path) -> None:
    async with opened(config) as store:
        other = ServerLease(store, SYSTEM_CLOCK, Entropy(), restoring=True)
        await other.put()
        # Its record goes by itself in a few seconds, which a slow machine may take for what follows.
        kept = asyncio.create_task(other.keep())
        with pytest.raises(InUse, match="a restore on "):
            await restore_etcd(made[1], config, tmp_path)
        with pytest.raises(StoreError, match="a restore into this etcd has not come to its end"):
            async with serving(config, tmp_path / "server"):
                pass
        assert await store.get(server_leases.RESTORING) is None and await store.get(key_agreement.KEY) is None
        kept.cancel()
        await asyncio.gather(kept, return_exceptions=True)
        await other.leave()
        # Neither has left a sign of itself; who leaves does not wait for an etcd that is slow, and then that goes by itself.
        async with asyncio.timeout(60 + 2 * server_leases.SECONDS):
            while await other.others():
                await asyncio.sleep(0.1)
        assert await read_offset(store) == 0


async def test_a_restore_that_sleeps_while_another_is_done_writes_nothing_when_it_wakes_up(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path
) -> None:
    data, backup, _ = made
    async with opened(config) as store:
        asleep = RestoreMark(store, await store.write([Put(server_leases.RESTORING, b"x")]))
        await asleep.write([Put("/registry/configmaps/default/one", b"{}"), Put("/registry/configmaps/default/two", b"{}")])
        # Its record has gone meanwhile: it is taken for dead.
        await restore_etcd(backup, config, tmp_path)
        late: list[Op] = [Delete("/registry/configmaps/default/one"), Put("/registry/configmaps/default/three", b"{}")]
        with pytest.raises(InUse, match="another restore into this etcd has begun since"):
            await asleep.write(late)
    assert await read_etcd(config) == await asyncio.to_thread(read_state, data)


async def test_a_server_that_was_cut_off_while_its_store_was_restored_ends_when_it_is_back(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_leases, "SECONDS", 3)
    await restore_etcd(made[1], config, tmp_path)
    async with opened(config) as store:
        own = ServerLease(store, SYSTEM_CLOCK, Entropy())
        await own.announce()
        # Its record goes, since it can't renew it.
        await own.leave()
        await restore_etcd(made[1], config, tmp_path, force=True)
        with pytest.raises(StoreError, match="the store was restored from a backup, and this server was cut off from it"):
            async with deadline(SYSTEM_CLOCK, 60):
                await own.keep()
        assert await server_leases.alive(store) == {}
    async with serving(config, tmp_path / "server") as server:
        async with opened(config) as store:
            await store.write([Put(server_leases.RESTORING, b"x")])
        with pytest.raises(PartFailed, match="the store is being restored from a backup"):
            async with deadline(SYSTEM_CLOCK, 60):
                await server.serve_forever(asyncio.Event())


async def test_a_backup_needs_the_keys_of_the_servers(made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no server has worked on this etcd"):
        await back_up_etcd(config, tmp_path / "x.backup")
    await restore_etcd(made[1], config, tmp_path)
    with pytest.raises(BackupError, match="another token"):
        await back_up_etcd(config, tmp_path / "x.backup", "another token of tests")
    assert not (tmp_path / "x.backup").exists()


async def test_what_goes_by_itself_goes_by_itself_after_a_restore_too(
    made: tuple[Path, Path, int], config: EtcdConfig, tmp_path: Path
) -> None:
    await restore_etcd(made[1], config, tmp_path)
    async with opened(config) as store:
        await store.write([Put("/registry/events/default/x", b"{}", ttl=3600)])
    await back_up_etcd(config, tmp_path / "x.backup")
    backup = Backup.open(tmp_path / "x.backup")
    now = SYSTEM_CLOCK.time()
    entries = {record.key: record for record in backup.records(backup.key(PASSPHRASE)) if hasattr(record, "expires")}
    assert now < entries["/registry/events/default/x"].expires < now + 2 * 3600
    assert not any(entry.expires for key, entry in entries.items() if not key.startswith("/registry/events/"))
    await restore_etcd(tmp_path / "x.backup", config, tmp_path, force=True)
    async with opened(config) as store:
        _, expires = await store.leased_page("/registry/events/", limit=10)
        assert now < expires["/registry/events/default/x"] < now + 2 * 3600
