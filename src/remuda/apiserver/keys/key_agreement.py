"""Agreement on keys: the servers of one store get the same keys, and check at start that they have them.

One key of the store, written by the first server, names the right keys: by their fingerprints, and, if servers were given a
token, by the keys themselves, sealed with it. A server with other keys would sign what the others don't trust and encrypt what
they can't read; it is stopped before it has written anything.

Keys that are sealed in the store have no copy on disk: without the store a server can't start anyway.
"""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

import msgspec

from remuda.kube import certificates
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy

from ..storage import key_layout
from ..storage.store import KeyValue, Mismatch, Put, Store, StoreError, Unknown
from . import rotation_record, token_sealing
from .encryption import parse_keys
from .shared_keys import CA_KEY, SERVICE_ACCOUNT_KEY, KeyMaterial, ensure_directory, is_unmade, made, read_directory
from .token_sealing import ScryptCost, Sealed

KEY = key_layout.OWN + "keys"
_WHERE = f"the key material in etcd ({KEY})"
# Losing this race once is normal; a failing store raises its own error.
_TRIES = 5


class Fingerprints(msgspec.Struct, frozen=True):
    """Fingerprints of the public halves; encryption keys by name, since more may be added later."""

    ca: str
    service_account: str
    encryption: dict[str, str]


class Noted(msgspec.Struct, frozen=True, omit_defaults=True):
    fingerprints: Fingerprints
    sealed: Sealed | None = None


class NotTheSame(PkiError):
    """The keys differ from those of the other servers."""


def fingerprints(material: KeyMaterial) -> Fingerprints:
    def public(pem: bytes, name: str) -> str:
        return certificates.fingerprint(certificates.parse_keys(pem, name)[0])

    # The secrets are random and as long as the hash: nothing can be learnt from it.
    encryption = {
        name: hmac.digest(secret, f"remuda encryption key {name}".encode(), "sha256").hex()
        for name, secret in parse_keys(material.encryption)
    }
    return Fingerprints(public(material.ca_key, CA_KEY), public(material.service_account_key, SERVICE_ACCOUNT_KEY), encryption)


async def from_directory(store: Store, directory: Path, clock: Clock, entropy: Entropy) -> KeyMaterial:
    """The directory's keys, if they are those of the other servers. Made only when there are no other servers."""
    found = await _read(store)
    used = found is not None or await _is_used(store)
    # Checked last: a server that shares the directory makes the keys before it uses the store.
    if used and is_unmade(directory):
        raise PkiError(
            f"{directory} has no keys, but other servers have worked on this etcd: copy their --pki-dir here, "
            "all of its files, or say --token-file if they were given a token"
        )
    material = rotation_record.arranged(ensure_directory(directory, clock, entropy), (await rotation_record.read(store)).record)
    own = fingerprints(material)
    if found is None:
        # A faster server has noted its own.
        await _create(store, Noted(own))
        found = await _read(store)
    if found is None:
        raise StoreError(f"{KEY} was removed while servers were starting: start this one again")
    _compare(own, _decoded(found).fingerprints, f"the keys in {directory}")
    return material


async def from_token(store: Store, token: str, clock: Clock, entropy: Entropy, cost: ScryptCost = ScryptCost()) -> KeyMaterial:  # noqa: B008 - a constant
    """The keys that are sealed in the store; made and sealed when there are none."""
    token_sealing.check_token(token)
    for _ in range(_TRIES):
        found = await _read(store)
        if found is None:
            if await _is_used(store) and await _read(store) is None:
                raise PkiError(
                    "etcd has objects but no sealed keys: say --pki-dir with the keys of the servers that made them, "
                    "or another --etcd-prefix"
                )
            await _create(store, await _sealed(made(clock, entropy), token, entropy, cost))
            # Read again even after success: the stored keys count.
            continue
        material = rotation_record.arranged(await unsealed(found, token), (await rotation_record.read(store)).record)
        renewed = material.renewed(clock, entropy)
        if renewed is None:
            return material
        await _create(store, await _sealed(renewed, token, entropy, cost), found.mod_revision)
    raise StoreError(f"{KEY} changed all the time: start this server again")


async def known(store: Store, directory: Path | None, token: str) -> KeyMaterial:
    """The keys that the servers of this store have agreed upon, for a reader: nothing is made."""
    found = await _read(store)
    if found is None:
        raise PkiError("no server has worked on this etcd: say the --etcd-prefix that the servers use")
    rotated = (await rotation_record.read(store)).record
    if directory is None:
        return rotation_record.arranged(await unsealed(found, token), rotated)
    material = rotation_record.arranged(read_directory(directory), rotated)
    _compare(fingerprints(material), _decoded(found).fingerprints, f"the keys in {directory}")
    return material


async def note(material: KeyMaterial, token: str, entropy: Entropy, cost: ScryptCost = ScryptCost()) -> bytes:  # noqa: B008 - a constant
    """The value of :data:`KEY` for these keys; with a token they are sealed in it, else only named."""
    noted = await _sealed(material, token, entropy, cost) if token else Noted(fingerprints(material))
    return msgspec.json.encode(noted)


async def _sealed(material: KeyMaterial, token: str, entropy: Entropy, cost: ScryptCost) -> Noted:
    # Key stretching is slow on purpose.
    sealed = await asyncio.to_thread(token_sealing.seal, material, token, entropy, cost)
    return Noted(fingerprints(material), sealed)


async def unsealed(found: KeyValue, token: str) -> KeyMaterial:
    """The keys that are sealed in the store. Raises PkiError."""
    noted = _decoded(found)
    if noted.sealed is None:
        raise PkiError("the servers of this etcd have their keys in a directory: say --pki-dir instead of a token")
    material = await asyncio.to_thread(token_sealing.unseal, noted.sealed, token, _WHERE)
    material.check(_WHERE)
    _compare(fingerprints(material), noted.fingerprints, _WHERE)
    return material


def _compare(own: Fingerprints, noted: Fingerprints, what: str) -> None:
    other = []
    if own.ca != noted.ca:
        other.append("the CA")
    if own.service_account != noted.service_account:
        other.append("the service-account key")
    common = own.encryption.keys() & noted.encryption.keys()
    other += [f"the encryption key {name!r}" for name in sorted(common) if own.encryption[name] != noted.encryption[name]]
    if other:
        raise NotTheSame(
            f"{what} are not those of the other servers on this etcd, {' and '.join(other)} differ: "
            "copy all files of another server's --pki-dir, or say another --etcd-prefix"
        )


# --- the store ------------------------------------------------------------------------------------------------------------


async def _read(store: Store) -> KeyValue | None:
    return await store.get(KEY)


async def _is_used(store: Store) -> bool:
    return bool((await store.range(key_layout.ROOT, limit=1)).items)


async def _create(store: Store, noted: Noted, expect: int = 0) -> None:
    """Create it unless another server was faster. The caller reads it afterwards, which also settles an unknown outcome."""
    try:
        await store.write([Put(KEY, msgspec.json.encode(noted), expect)])
    except (Mismatch, Unknown):
        return


def _decoded(found: KeyValue) -> Noted:
    try:
        return msgspec.json.decode(found.value, type=Noted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PkiError(f"{_WHERE} is damaged: restore etcd from a backup") from None
