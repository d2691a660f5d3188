"""The state of rotations, in the store: one document for all servers, and a note of each server about its keys.

The document is only replaced by a server that has read its current state. All servers may rely on it: a
stage begins when every server has noted that it has adopted the one before.

Every kind of key has an order: the first key is used, the others are valid for earlier data. Each step changes one thing, so
that a server which was killed between any two lines finds a working state:

    [old]  ─ added ─►  [old, new]  ─ put first ─►  [new, old]  ─ kept only ─►  [new]

The CA's certificates are a bundle that all clients trust, the oldest first in all steps: its order, and so its checksum, tells
nothing about the signing one. Keys are known by their fingerprints, encryption keys by their names.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from remuda.kube import certificates as signing
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy

from ..storage import key_layout
from ..storage.store import Check, KeyValue, Put, Store
from .encryption import key_name, parse_keys, render_keys
from .shared_keys import CA_KEY, SERVICE_ACCOUNT_KEY, KeyMaterial

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec


ENCRYPTION_KEY: Final = "encryption-key"
CA: Final = "ca"
SERVICE_ACCOUNTS: Final = "service-account-key"
KINDS: Final = (ENCRYPTION_KEY, CA, SERVICE_ACCOUNTS)
WORDS: Final = {ENCRYPTION_KEY: "the encryption key", CA: "the CA", SERVICE_ACCOUNTS: "the service-account key"}


def held(material: KeyMaterial, kind: str) -> list[str]:
    """The keys of a kind, the one in use first."""
    if kind == ENCRYPTION_KEY:
        return [name for name, _ in parse_keys(material.encryption)]
    if kind == SERVICE_ACCOUNTS:
        return [signing.fingerprint(key) for key in _service_keys(material)]
    trusted = [signing.fingerprint(each) for each in signing.parse_certificates(material.ca_certificate)]
    keys = [found for key in _ca_keys(material) if (found := signing.fingerprint(key)) in trusted]
    return [*keys, *(each for each in trusted if each not in keys)]


def all_held(material: KeyMaterial) -> dict[str, list[str]]:
    return {kind: held(material, kind) for kind in KINDS}


def with_new(material: KeyMaterial, kind: str, clock: Clock, entropy: Entropy) -> KeyMaterial:
    """The material with one more key, that is not used yet."""
    if kind == ENCRYPTION_KEY:
        keys = parse_keys(material.encryption)
        number = 1 + max([len(keys), *(int(name[3:]) for name, _ in keys if name.startswith("key") and name[3:].isdecimal())])
        return _encryption(material, [*keys, (f"key{number}", entropy.token_bytes(32))])
    key = signing.new_key(entropy)
    if kind == SERVICE_ACCOUNTS:
        return replace(material, service_account_key=_pem([*_service_keys(material), key]))
    certificate = signing.sign_authority(key, clock, entropy, f"remuda-ca-{signing.fingerprint(key)[:12]}")
    bundle = material.ca_certificate.rstrip() + b"\n" + signing.certificate_pem(certificate)
    return replace(material, ca_key=_pem([*_ca_keys(material), key]), ca_certificate=bundle)


def handed_over(material: KeyMaterial, clock: Clock, entropy: Entropy) -> tuple[bytes, float]:
    """The certificates that the dropped CAs sign for the one in use, and their expiry."""
    chain = signing.chain_of(material.ca_certificate, material.ca_key, clock, entropy, signing.HANDOVER_SECONDS)
    return chain, min((signing.ends(each) for each in signing.parse_certificates(chain)), default=0.0)


def put_first(material: KeyMaterial, kind: str, first: str) -> KeyMaterial:
    """Raises PkiError when the key is missing."""
    found = held(material, kind)
    if first not in found:
        raise PkiError(
            f"{WORDS[kind]} that the servers use now ({first[:16]}) is not among the keys here: copy all files of another "
            "server's --pki-dir, or put the keys and the state back from the same backup"
        )
    if found[0] == first:
        return material
    if kind == ENCRYPTION_KEY:
        return _encryption(material, sorted(parse_keys(material.encryption), key=lambda each: each[0] != first))
    keys = _service_keys(material) if kind == SERVICE_ACCOUNTS else _ca_keys(material)
    pem = _pem(sorted(keys, key=lambda key: signing.fingerprint(key) != first))
    return replace(material, service_account_key=pem) if kind == SERVICE_ACCOUNTS else replace(material, ca_key=pem)


def with_only(material: KeyMaterial, kind: str, kept: Collection[str]) -> KeyMaterial:
    """The material without all others; the same object when there are none."""
    if all(each in kept for each in held(material, kind)):
        return material
    if kind == ENCRYPTION_KEY:
        return _encryption(material, [each for each in parse_keys(material.encryption) if each[0] in kept])
    if kind == SERVICE_ACCOUNTS:
        keys = [key for key in _service_keys(material) if signing.fingerprint(key) in kept]
        return replace(material, service_account_key=_pem(keys))
    certificates = [each for each in signing.parse_certificates(material.ca_certificate) if signing.fingerprint(each) in kept]
    keys = [key for key in _ca_keys(material) if signing.fingerprint(key) in kept]
    bundle = b"".join(signing.certificate_pem(each) for each in certificates)
    return replace(material, ca_certificate=bundle, ca_key=_pem(keys))


def _encryption(material: KeyMaterial, keys: Sequence[tuple[str, bytes]]) -> KeyMaterial:
    return replace(material, encryption=render_keys(keys).encode())


def _ca_keys(material: KeyMaterial) -> list[ec.EllipticCurvePrivateKey]:
    return signing.parse_keys(material.ca_key, CA_KEY)


def _service_keys(material: KeyMaterial) -> list[ec.EllipticCurvePrivateKey]:
    return signing.parse_keys(material.service_account_key, SERVICE_ACCOUNT_KEY)


def _pem(keys: Sequence[ec.EllipticCurvePrivateKey]) -> bytes:
    return b"".join(signing.key_pem(key) for key in keys)


KEY: Final = key_layout.OWN + "rotation"
# By the name of a server's record in :mod:`..replicas.server_leases`, which shows that it is alive.
NOTES: Final = key_layout.OWN + "keys-of/"
# The names of encryption keys that must not be used any more. A server that was paused while one was dropped doesn't know
# that when it wakes up, and no server could ever open a value sealed with it: so the store itself refuses such writes.
DROPPED: Final = key_layout.OWN + "dropped/"

# The new key is made; all servers get it; all use it; old values are re-encrypted; both are valid; the old one is dropped.
MAKING, SPREADING, SWITCHING = "making", "spreading", "switching"
REWRITING, KEEPING, DROPPING = "rewriting", "keeping", "dropping"
_IN_USE: Final = frozenset((SWITCHING, REWRITING, KEEPING, DROPPING))
# The number of rotations that a client may miss and still follow. Every connection sends a certificate for each.
MOST_HANDOVERS: Final = 4


class Rotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """`old` are the keys from before, `new` the one that takes over. Times are seconds since the epoch."""

    stage: str
    old: tuple[str, ...]
    started: float
    new: str = ""
    # The place where the new key was made, for the administrator who copies it.
    made_at: str = ""
    # The time when the old key is dropped by itself; 0 to wait for a request.
    keep_until: float = 0.0
    finish: bool = False
    rewritten: int = 0
    # The old CA signs nothing for the new one: its key is not to be trusted.
    no_handover: bool = False


class Handover(msgspec.Struct, frozen=True):
    """The certificates that a dropped CA leaves for clients that still trust only it.

    `chain`: the CA that took over, signed by the dropped one; `bundle`: both certificates, by which agents that know only a
    checksum find the one that they trust. PEM. Valid `until` that time, in seconds since the epoch.
    """

    old: tuple[str, ...]
    chain: str
    bundle: str
    until: float


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """`first` are the keys in use, by kind, after their first rotation; `gone` are those that must not be used any more;
    `done` is the end of the last rotation; `handovers` are those of the CA, the newest first."""

    active: dict[str, Rotation] = {}
    first: dict[str, str] = {}
    gone: dict[str, tuple[str, ...]] = {}
    done: dict[str, float] = {}
    handovers: tuple[Handover, ...] = ()


class Found(msgspec.Struct, frozen=True):
    record: Record
    revision: int


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of one server: its keys, the one in use first; and the error that keeps it from adopting others."""

    name: str
    holds: dict[str, list[str]] = {}
    trouble: str = ""


def note_of(found: KeyValue | None) -> Note | None:
    """None also for a note that can't be read: another version's."""
    try:
        return None if found is None else msgspec.json.decode(found.value, type=Note)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


async def read(store: Store) -> Found:
    found = await store.get(KEY)
    if found is None:
        return Found(Record(), 0)
    try:
        return Found(msgspec.json.decode(found.value, type=Record), found.mod_revision)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PkiError(f"the state of rotations in the store ({KEY}) is damaged: restore the store from a backup") from None


def still_used(sealed: bytes) -> Sequence[Check]:
    """The condition for storing a sealed value: its key was not dropped."""
    name = key_name(sealed)
    return (Check(DROPPED + name, 0),) if name else ()


def changed(found: Found, record: Record) -> Put:
    """The operation that replaces it, unless another server was faster."""
    return Put(KEY, msgspec.json.encode(record), found.revision)


def with_rotation(record: Record, kind: str, rotation: Rotation) -> Record:
    first, gone = record.first, record.gone
    if rotation.stage in _IN_USE:
        first = {**first, kind: rotation.new}
    if rotation.stage == DROPPING:
        gone = {**gone, kind: tuple(dict.fromkeys((*gone.get(kind, ()), *rotation.old)))}
    return msgspec.structs.replace(record, active={**record.active, kind: rotation}, first=first, gone=gone)


def without(record: Record, kind: str, at: float) -> Record:
    """The record after the end of this rotation."""
    active = {other: rotation for other, rotation in record.active.items() if other != kind}
    return msgspec.structs.replace(record, active=active, done={**record.done, kind: at})


def handovers_at(record: Record, now: float) -> tuple[Handover, ...]:
    """The handovers that are still valid. An expired one ends those before it, too: they lead to it."""
    return tuple(itertools.takewhile(lambda each: each.until > now, record.handovers))


def with_handover(record: Record, made: Handover | None, now: float) -> Record:
    """The record with one more handover; None ends all, since the others only lead to the CA that leaves none."""
    kept = () if made is None else (made, *handovers_at(record, now))[:MOST_HANDOVERS]
    return msgspec.structs.replace(record, handovers=kept)


def arranged(material: KeyMaterial, record: Record) -> KeyMaterial:
    """The keys in the record's order, without dropped ones. Raises PkiError for one that is missing."""
    for kind, rotation in record.active.items():
        if rotation.new and rotation.new in held(material, kind):
            # A key that was made at the same time as another server's, and came too late.
            material = with_only(material, kind, (*rotation.old, rotation.new))
    for kind, first in record.first.items():
        material = put_first(material, kind, first)
        gone = record.gone.get(kind, ())
        material = with_only(material, kind, [each for each in held(material, kind) if each not in gone])
    return material
