"""Keys that servers of one store agree on: whoever is first makes them, the others have the same or are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from remuda.apiserver.keys import key_agreement, token_sealing
from remuda.apiserver.keys.encryption import parse_keys, render_keys
from remuda.apiserver.keys.key_agreement import KEY, NotTheSame, from_directory, from_token
from remuda.apiserver.keys.shared_keys import FILES, KeyMaterial, made
from remuda.apiserver.keys.token_sealing import Damaged, ScryptCost, WrongToken
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Delete, KeyValue, Op, Put, Unknown
from remuda.kube.certificates import DAY, PkiError
from remuda.kube.clock import Entropy, VirtualClock

TOKEN = "correct horse battery staple"
CHEAP = ScryptCost(16, 1, 1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


async def joined(store: MemoryStore, clock: VirtualClock, token: str = TOKEN) -> KeyMaterial:
    return await from_token(store, token, clock, Entropy(), CHEAP)


async def stored(store: MemoryStore) -> bytes:
    found = await store.get(KEY)
    assert found is not None
    return found.value


# --- sealing ----------------------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_with_its_token_and_shows_nothing(clock: VirtualClock) -> None:
    material = made(clock, Entropy())
    sealed = token_sealing.seal(material, TOKEN, Entropy(), CHEAP)
    assert token_sealing.unseal(sealed, TOKEN, "it") == material
    wire = msgspec.json.encode(sealed)
    for secret in (b"PRIVATE", TOKEN.encode(), b"EncryptionConfiguration"):
        assert secret not in wire
    assert token_sealing.seal(material, TOKEN, Entropy(), CHEAP) != sealed


def test_another_token_is_told_from_damage(clock: VirtualClock) -> None:
    sealed = token_sealing.seal(made(clock, Entropy()), TOKEN, Entropy(), CHEAP)
    with pytest.raises(WrongToken, match="was sealed with another token"):
        token_sealing.unseal(sealed, TOKEN + "!", "it")
    for change in (
        {"data": sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])},
        {"data": b""},
        {"nonce": bytes(12)},
        {"nonce": b""},
        {"n": 2**40},
        {"n": 3},
        {"p": 0},
    ):
        with pytest.raises(Damaged, match="is damaged"):
            token_sealing.unseal(msgspec.structs.replace(sealed, **change), TOKEN, "it")


@pytest.mark.parametrize("token", ["", "short", "x" * 15])
def test_a_short_token_is_refused(clock: VirtualClock, token: str) -> None:
    with pytest.raises(PkiError, match="at least 16"):
        token_sealing.seal(made(clock, Entropy()), token, Entropy(), CHEAP)


def test_the_usual_cost_is_what_it_is_meant_to_be(clock: VirtualClock) -> None:
    sealed = token_sealing.seal(made(clock, Entropy()), TOKEN, Entropy())
    assert (sealed.n, sealed.r, sealed.p) == (65536, 8, 2)


# --- by token ---------------------------------------------------------------------------------------------------------------


async def test_the_first_makes_them_and_the_others_read_them(store: MemoryStore, clock: VirtualClock) -> None:
    first = await joined(store, clock)
    revision = store.revision
    assert await joined(store, clock) == first
    assert store.revision == revision


async def test_of_many_that_start_at_once_all_get_the_same(store: MemoryStore, clock: VirtualClock) -> None:
    found = await asyncio.gather(*(joined(store, clock) for _ in range(8)))
    assert len({each.ca_key for each in found}) == 1


async def test_a_wrong_token_is_refused_and_changes_nothing(store: MemoryStore, clock: VirtualClock) -> None:
    await joined(store, clock)
    before = await stored(store)
    with pytest.raises(WrongToken, match=f"{KEY}.* was sealed with another token"):
        await joined(store, clock, "another token of some length")
    assert await stored(store) == before


@pytest.mark.parametrize("value", [b"", b"{}", b"nonsense", b'{"fingerprints": 1}', b'{"fingerprints": {"ca": "\xff"}}'])
async def test_a_damaged_value_is_refused_and_not_replaced(store: MemoryStore, clock: VirtualClock, value: bytes) -> None:
    await store.write([Put(KEY, value)])
    with pytest.raises(PkiError, match="is damaged"):
        await joined(store, clock)
    assert await stored(store) == value


async def test_sealed_keys_that_are_not_the_noted_ones_are_refused(store: MemoryStore, clock: VirtualClock) -> None:
    await joined(store, clock)
    noted = msgspec.json.decode(await stored(store), type=key_agreement.Noted)
    swapped = msgspec.structs.replace(noted, sealed=token_sealing.seal(made(clock, Entropy()), TOKEN, Entropy(), CHEAP))
    await store.write([Put(KEY, msgspec.json.encode(swapped))])
    with pytest.raises(NotTheSame):
        await joined(store, clock)


async def test_a_store_with_objects_but_without_keys_gets_no_new_ones(store: MemoryStore, clock: VirtualClock) -> None:
    await store.write([Put("/registry/secrets/default/a", b"k8s:enc:aesgcm:v1:key1:")])
    with pytest.raises(PkiError, match="has objects but no sealed keys"):
        await joined(store, clock)
    assert await store.get(KEY) is None


async def test_the_authority_is_renewed_in_the_store(store: MemoryStore, clock: VirtualClock) -> None:
    before = await joined(store, clock)
    await clock.advance(3640 * DAY)
    first, second = await asyncio.gather(joined(store, clock), joined(store, clock))
    assert first == second
    assert (first.ca_key, first.encryption) == (before.ca_key, before.encryption)
    assert first.ca_certificate != before.ca_certificate


class Deaf(MemoryStore):
    """Writes are done, but the first one's answer is lost."""

    lost = False

    async def write(self, ops: list[Op]) -> int:  # type: ignore[override]
        done = await super().write(ops)
        if not self.lost:
            self.lost = True
            raise Unknown("the answer did not come")
        return done


async def test_a_write_without_an_answer_is_looked_for(clock: VirtualClock) -> None:
    store = Deaf(clock)
    first = await joined(store, clock)
    assert await joined(store, clock) == first


class Forgetful(MemoryStore):
    """Somebody removes the key whenever it is there."""

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        found = await super().get(key, revision)
        if found is not None:
            await self.write([Delete(key)])
        return None


async def test_a_key_that_does_not_stay_is_no_endless_loop(clock: VirtualClock) -> None:
    with pytest.raises(Exception, match="changed all the time"):
        await joined(Forgetful(clock), clock)


# --- by directory -----------------------------------------------------------------------------------------------------------


async def of(store: MemoryStore, clock: VirtualClock, directory: Path) -> KeyMaterial:
    return await from_directory(store, directory, clock, Entropy())


def copy(source: Path, target: Path) -> None:
    target.mkdir()
    for name in FILES:
        (target / name).write_bytes((source / name).read_bytes())
        (target / name).chmod(0o600)


async def test_directories_with_the_same_content_agree(store: MemoryStore, clock: VirtualClock, tmp_path: Path) -> None:
    first = await of(store, clock, tmp_path / "a")
    copy(tmp_path / "a", tmp_path / "b")
    assert await of(store, clock, tmp_path / "b") == first
    assert b"PRIVATE" not in await stored(store)


async def test_an_empty_directory_is_not_filled_when_others_have_keys(
    store: MemoryStore, clock: VirtualClock, tmp_path: Path
) -> None:
    await of(store, clock, tmp_path / "a")
    with pytest.raises(PkiError, match="b has no keys, but other servers have worked on this etcd: copy"):
        await of(store, clock, tmp_path / "b")
    assert not (tmp_path / "b").exists()


async def test_an_empty_directory_is_not_filled_for_a_store_that_has_objects(
    store: MemoryStore, clock: VirtualClock, tmp_path: Path
) -> None:
    await store.write([Put("/registry/namespaces/default", b"{}")])
    with pytest.raises(PkiError, match="has no keys"):
        await of(store, clock, tmp_path / "a")


async def test_other_keys_are_refused_by_name(store: MemoryStore, clock: VirtualClock, tmp_path: Path) -> None:
    await of(store, clock, tmp_path / "a")
    await of(MemoryStore(clock), clock, tmp_path / "b")
    with pytest.raises(NotTheSame, match="the CA and the service-account key and the encryption key 'key1' differ"):
        await of(store, clock, tmp_path / "b")


async def test_keys_of_encryption_may_be_added_but_not_exchanged(store: MemoryStore, clock: VirtualClock, tmp_path: Path) -> None:
    first = await of(store, clock, tmp_path / "a")
    path = tmp_path / "a" / "encryption.yaml"
    kept = parse_keys(first.encryption)
    path.write_text(render_keys([("key2", bytes(32)), *kept]))
    await of(store, clock, tmp_path / "a")
    path.write_text(render_keys([("key1", bytes(32))]))
    with pytest.raises(NotTheSame, match="'key1'"):
        await of(store, clock, tmp_path / "a")


async def test_servers_that_share_a_directory_may_start_at_once(store: MemoryStore, clock: VirtualClock, tmp_path: Path) -> None:
    found = await asyncio.gather(*(of(store, clock, tmp_path / "pki") for _ in range(4)))
    assert len({each.ca_key for each in found}) == 1


async def test_a_directory_and_a_token_do_not_mix(store: MemoryStore, clock: VirtualClock, tmp_path: Path) -> None:
    await of(store, clock, tmp_path / "pki")
    with pytest.raises(PkiError, match="say --pki-dir instead of a token"):
        await joined(store, clock)


async def test_sealed_keys_that_were_written_to_a_directory_are_the_same(
    store: MemoryStore, clock: VirtualClock, tmp_path: Path
) -> None:
    material = await joined(store, clock)
    for name, content in material.files().items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    assert await of(store, clock, tmp_path) == material
