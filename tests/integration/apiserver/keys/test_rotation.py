"""Rotation on whole servers, one alone and several on one store; and what a server that is killed in between leaves behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys import key_places, rotation_record, token_sealing
from remuda.apiserver.keys import pki as pkis
from remuda.apiserver.keys import shared_keys as materials
from remuda.apiserver.keys.encryption import PREFIX
from remuda.apiserver.keys.rotation_record import DROPPING, KEEPING, MAKING, SPREADING
from remuda.apiserver.keys.token_sealing import ScryptCost
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import StoreError
from remuda.kube.certificates import PkiError
from remuda.kube.clock import SYSTEM_CLOCK, deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.replicas.sharing import Line
from tests.unit.certificates import issue_client
from tests.waiting import until

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
TOKEN = "the token of these tests"


@asynccontextmanager
async def serving(directory: Path, **options: Any) -> AsyncIterator[Server]:
    server = await Server.open(Config(directory, default_roles=False, port=0, **options))
    try:
        yield server
    finally:
        await server.close(0.01)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """One store in memory for all servers that are opened, which they believe to be shared with others."""
    store = MemoryStore(SYSTEM_CLOCK)

    async def open_store(config: Config) -> Line:
        assert config.data_dir is not None
        config.data_dir.mkdir(parents=True, exist_ok=True)
        return Line(store)

    monkeypatch.setattr("remuda.apiserver.startup.open_store", open_store)
    monkeypatch.setattr("remuda.apiserver.keys.rotation._REST", 0.05)
    real = token_sealing._stretched
    # Stretching a token takes long on purpose.
    monkeypatch.setattr(
        token_sealing, "_stretched", lambda token, salt, cost, purpose: real(token, salt, ScryptCost(2, 1, 1), purpose)
    )
    return store


async def reached(server: Server, kind: str, *stages: str) -> None:
    """No stage stands for the end of it."""
    stage: str | None = None

    async def there() -> bool:
        nonlocal stage
        found = (await rotation_record.read(server.store)).record.active.get(kind)
        stage = found.stage if found is not None else ""
        return stage in (stages or ("",))

    await until(there, f"the stage {' or '.join(stages) or 'after the last'} of {kind}", seen=lambda: stage)


async def make_secrets(server: Server, count: int = 3) -> InProcessClient:
    client = InProcessClient(server)
    for number in range(count):
        body = {"metadata": {"name": f"s{number}", "namespace": "default"}, "stringData": {"a": f"value {number}"}}
        await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **body}, "default")
    return client


async def sealed_with(server: Server) -> set[str]:
    found = await server.store.range("/registry/secrets/")
    return {kv.value[len(PREFIX) :].partition(b":")[0].decode() for kv in found.items}


def held(server: Server, kind: str) -> list[str]:
    assert server.rotations is not None
    return server.rotations._holds.get(kind, [])


async def begin(server: Server, kind: str) -> None:
    assert server.rotations is not None
    await server.rotations.begin(kind)


async def finish(server: Server, kind: str) -> None:
    assert server.rotations is not None
    await server.rotations.finish(kind)


# --- one alone ------------------------------------------------------------------------------------------------------------------


async def test_every_secret_is_sealed_with_the_new_key_and_stays_readable(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        client = await make_secrets(server)
        await begin(server, rotation_record.ENCRYPTION_KEY)
        await reached(server, rotation_record.ENCRYPTION_KEY, KEEPING)
        assert await sealed_with(server) == {"key2"}
        assert (await client.get(SECRETS, "s1", "default"))["data"]["a"] == "dmFsdWUgMQ=="
        found = (await rotation_record.read(server.store)).record.active[rotation_record.ENCRYPTION_KEY]
        # Past states are kept for a week, and with them the key.
        assert found.keep_until - found.started >= 7 * 86400
        with pytest.raises(ApiError, match="still valid"):
            await begin(server, rotation_record.ENCRYPTION_KEY)
        await finish(server, rotation_record.ENCRYPTION_KEY)
        await reached(server, rotation_record.ENCRYPTION_KEY)
        assert held(server, rotation_record.ENCRYPTION_KEY) == ["key2"]
        with pytest.raises(ApiError, match="no old one"):
            await finish(server, rotation_record.ENCRYPTION_KEY)
    async with serving(tmp_path) as server:
        assert len((await InProcessClient(server).list(SECRETS, "default"))["items"]) == 3


async def test_a_watch_from_before_a_dropped_key_begins_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await make_secrets(server)
        before = server.store.revision - 1
        await begin(server, rotation_record.ENCRYPTION_KEY)
        await reached(server, rotation_record.ENCRYPTION_KEY, KEEPING)
        await finish(server, rotation_record.ENCRYPTION_KEY)
        await reached(server, rotation_record.ENCRYPTION_KEY)
    async with serving(tmp_path) as server:
        # The changes are not in memory any more, and the store has them under the old key.
        secrets = server.registry.resource("", "secrets")
        assert secrets is not None
        with pytest.raises(StoreError, match="compacted"):
            await server.cache.changes_since(secrets.bucket, before)


async def test_certificates_of_the_old_ca_are_good_until_it_is_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert server.pki is not None
        told: list[int] = []
        server.on_trust.append(lambda: told.append(server.trusted.count(b"BEGIN CERTIFICATE")))
        old = issue_client(server.pki, "jane")
        await begin(server, rotation_record.CA)
        await reached(server, rotation_record.CA, KEEPING)
        new = issue_client(server.pki, "jane")
        for each in (old, new):
            assert await _name(server, each.certificate) == "jane"
        await finish(server, rotation_record.CA)
        await reached(server, rotation_record.CA)
        assert await _name(server, new.certificate) == "jane"
        with pytest.raises(BadCredentials):
            await _name(server, old.certificate)
        assert told == [2, 1]
        assert server.pki.ca_pem == server.trusted


async def _name(server: Server, certificate: bytes) -> str:
    import ssl

    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    found = await server.chain.identify(Credentials(der))
    assert found is not None
    return found.user.name


async def test_tokens_of_the_old_key_are_good_until_it_is_dropped(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}}
        await InProcessClient(server).create(ACCOUNTS, account, "default")

        def token() -> str:
            return str(server.issuer.issue("default", "robot", {})["status"]["token"])

        async def accepted(text: str) -> bool:
            try:
                return await server.chain.identify(Credentials(None, text)) is not None
            except BadCredentials:
                return False

        old = token()
        await begin(server, rotation_record.SERVICE_ACCOUNTS)
        await reached(server, rotation_record.SERVICE_ACCOUNTS, KEEPING)
        new = token()
        assert await accepted(old) and await accepted(new)
        assert len(server.token_keys.key_set()["keys"]) == 2
        await finish(server, rotation_record.SERVICE_ACCOUNTS)
        await reached(server, rotation_record.SERVICE_ACCOUNTS)
        assert not await accepted(old) and await accepted(new)


async def test_the_serving_certificate_is_another_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert server.pki is not None
        await server.listen()
        before = (server.pki.serving_certificate.read_bytes(), server.pki.serving_key.read_bytes())
        await server.renew(serving=True)
        assert await _shown(server) == server.pki.serving_certificate.read_bytes().decode()
        assert (server.pki.serving_certificate.read_bytes(), server.pki.serving_key.read_bytes()) != before


async def _shown(server: Server) -> str:
    import ssl

    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))


# --- killed ---------------------------------------------------------------------------------------------------------------------


class _Killed(BaseException):
    pass


class _Fuse:
    """Ends whoever writes for the n-th time, a file or to the store: before it is done, or right after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.after = False
        self.blown = asyncio.Event()
        real = pkis.write_private
        for module in (pkis, key_places, materials):
            monkeypatch.setattr(module, "write_private", lambda path, content: self._around(lambda: real(path, content)))

    def _burn(self) -> bool:
        self.left -= 1
        return self.left == 0

    def _around(self, work: Callable[[], None]) -> None:
        ends = self._burn()
        if ends and not self.after:
            self._blow()
        work()
        if ends:
            self._blow()

    def _blow(self) -> None:
        raise _Killed

    def watch(self, server: Server) -> None:
        real = server.store.write

        async def write(ops: Any) -> int:
            ends = self._burn()
            if ends and not self.after:
                self._blow()
            revision = await real(ops)
            if ends:
                self._blow()
            return revision

        server.store.write = write  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", rotation_record.KINDS)
async def test_a_server_that_is_killed_at_any_write_goes_on_where_it_was(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    points = random.Random(seed).sample(range(1, 14), 4)
    fuse = _Fuse(monkeypatch)
    directory = tmp_path / "data"
    async with serving(directory) as server:
        await make_secrets(server)
    for point in points:
        fuse.after = bool(point % 2)
        server = await Server.open(Config(directory, default_roles=False, port=0))
        fuse.watch(server)
        fuse.left = point
        work = asyncio.create_task(_whole(server, kind))
        (task,) = [each for each in server.background._tasks if each.get_name() == "upkeep Rotations.run"]
        await asyncio.wait([work, task], return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        fuse.left = -1
        # As a process that is gone: nothing is put in order first.
        await server.background.stop()
        await server.cache.stop()
        await server.store.close()
    async with serving(directory) as server:
        await _whole(server, kind)
        assert len(held(server, kind)) == 1
        client = InProcessClient(server)
        assert [each["data"]["a"] for each in (await client.list(SECRETS, "default"))["items"]] == [
            "dmFsdWUgMA==",
            "dmFsdWUgMQ==",
            "dmFsdWUgMg==",
        ]
        assert len(await sealed_with(server)) == 1


async def _whole(server: Server, kind: str) -> None:
    """From wherever it is to its end."""
    active = (await rotation_record.read(server.store)).record.active.get(kind)
    if active is None or active.stage not in (KEEPING, DROPPING):
        await begin(server, kind)
        await reached(server, kind, KEEPING)
    if active is None or active.stage != DROPPING:
        await finish(server, kind)
    await reached(server, kind)


# --- several on one store -------------------------------------------------------------------------------------------------------


async def test_all_servers_have_a_key_before_one_of_them_uses_it(tmp_path: Path, shared: MemoryStore) -> None:
    async with serving(tmp_path / "a", token=TOKEN) as one, serving(tmp_path / "b", token=TOKEN) as two:
        await make_secrets(one)
        for kind in rotation_record.KINDS:
            await begin(two, kind)
            await reached(one, kind, KEEPING)
            assert held(one, kind) == held(two, kind)
            assert len(held(one, kind)) == 2
        assert await sealed_with(one) == {"key2"}
        assert len((await InProcessClient(two).list(SECRETS, "default"))["items"]) == 3
        async with serving(tmp_path / "c", token=TOKEN) as three:
            assert three.trusted == one.trusted
            for kind in rotation_record.KINDS:
                await finish(three, kind)
                await reached(one, kind)
            assert [held(each, rotation_record.CA) for each in (one, two, three)] == [held(one, rotation_record.CA)] * 3
            assert len(held(three, rotation_record.CA)) == 1


async def test_with_a_directory_for_each_server_the_new_key_is_copied_by_hand(tmp_path: Path, shared: MemoryStore) -> None:
    import shutil

    async with serving(tmp_path / "a", pki_dir=tmp_path / "keys-a") as one:
        shutil.copytree(tmp_path / "keys-a", tmp_path / "keys-b")
        async with serving(tmp_path / "b", pki_dir=tmp_path / "keys-b") as two:
            await make_secrets(one)
            await begin(one, rotation_record.ENCRYPTION_KEY)
            await reached(one, rotation_record.ENCRYPTION_KEY, SPREADING)
            assert one.rotations is not None
            rotations = one.rotations
            await until(lambda: len(held(one, rotation_record.ENCRYPTION_KEY) + held(two, rotation_record.ENCRYPTION_KEY)) >= 3)

            async def waiting() -> rotation_record.Rotation | None:
                rotation = (await rotation_record.read(one.store)).record.active[rotation_record.ENCRYPTION_KEY]
                waits = rotations.waits(rotation, rotation_record.ENCRYPTION_KEY, await rotations.notes())
                return rotation if len(waits) == 1 and "copy the files of" in waits[0] else None

            rotation = await until(waiting)
            assert await sealed_with(one) == {"key1"}
            made_by = "keys-a" if "keys-a" in rotation.made_at else "keys-b"
            other = "keys-b" if made_by == "keys-a" else "keys-a"
            shutil.copy(tmp_path / made_by / "encryption.yaml", tmp_path / other / "encryption.yaml")
            await reached(one, rotation_record.ENCRYPTION_KEY, KEEPING)
            assert await sealed_with(one) == {"key2"}
            await finish(one, rotation_record.ENCRYPTION_KEY)
            await reached(one, rotation_record.ENCRYPTION_KEY)
            assert (tmp_path / "keys-a" / "encryption.yaml").read_bytes() == (
                tmp_path / "keys-b" / "encryption.yaml"
            ).read_bytes()
    # Who kept the old files is told what to do, and has done no harm.
    (tmp_path / "keys-b" / "encryption.yaml").write_bytes(materials.made(SYSTEM_CLOCK, pkis.Entropy()).encryption)
    with pytest.raises(PkiError, match="copy all files"):
        async with serving(tmp_path / "b", pki_dir=tmp_path / "keys-b"):
            pass


async def pause(server: Server) -> None:
    """For so long that nobody waits for it: it does nothing for rotations, and does not say that it is there."""
    names = ("the record of this server in its store", "upkeep Rotations.run")
    pausing = [each for each in server.background._tasks if each.get_name() in names]
    assert len(pausing) == len(names)
    for each in pausing:
        each.cancel()
    await asyncio.gather(*pausing, return_exceptions=True)
    assert server.lease is not None
    await server.lease.leave()


async def test_a_server_that_was_away_looks_for_a_key_that_others_use_already(tmp_path: Path, shared: MemoryStore) -> None:
    async with serving(tmp_path / "a", token=TOKEN) as one, serving(tmp_path / "b", token=TOKEN) as two:
        await pause(two)
        await begin(one, rotation_record.ENCRYPTION_KEY)
        await reached(one, rotation_record.ENCRYPTION_KEY, KEEPING)
        await make_secrets(one, 1)
        async with deadline(SYSTEM_CLOCK, 60):
            await two.cache.reached(shared.revision)
        found = await InProcessClient(two).get(SECRETS, "s0", "default")
        assert found["data"]["a"] == "dmFsdWUgMA=="


async def test_nothing_is_sealed_with_a_key_that_was_dropped_while_a_server_was_away(tmp_path: Path, shared: MemoryStore) -> None:
    async with serving(tmp_path / "a", token=TOKEN) as one, serving(tmp_path / "b", token=TOKEN) as two:
        await pause(two)
        await begin(one, rotation_record.ENCRYPTION_KEY)
        await reached(one, rotation_record.ENCRYPTION_KEY, KEEPING)
        await finish(one, rotation_record.ENCRYPTION_KEY)
        await reached(one, rotation_record.ENCRYPTION_KEY)
        assert two.envelope is not None and two.envelope.seal("k", b"").startswith(PREFIX + b"key1:")
        await make_secrets(two, 2)
        assert await sealed_with(one) == {"key2"}
        async with deadline(SYSTEM_CLOCK, 60):
            await one.cache.reached(shared.revision)
        assert (await InProcessClient(one).get(SECRETS, "s1", "default"))["data"]["a"] == "dmFsdWUgMQ=="


async def test_what_was_asked_for_is_remembered(tmp_path: Path) -> None:
    """Asked for, and killed before anything was made."""
    async with serving(tmp_path) as server:
        await server.background.stop()
        await begin(server, rotation_record.CA)
        assert (await rotation_record.read(server.store)).record.active[rotation_record.CA].stage == MAKING
    async with serving(tmp_path) as server:
        await reached(server, rotation_record.CA, KEEPING)
