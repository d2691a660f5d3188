"""The state of rotations, in the store: one document for all servers, and a note of each server about its keys.

The document is only replaced by a server that has read its current state. All servers may rely on it: a
stage begins when every server has noted that it has adopted the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from remuda.kube.certificates import PkiError

from ..storage import key_layout
from ..storage.store import Check, KeyValue, Put, Store
from . import rotation_steps
from .encryption import key_name
from .shared_keys import Material

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


def arranged(material: Material, record: Record) -> Material:
    """The keys in the record's order, without dropped ones. Raises PkiError for one that is missing."""
    for kind, rotation in record.active.items():
        if rotation.new and rotation.new in rotation_steps.held(material, kind):
            # A key that was made at the same time as another server's, and came too late.
            material = rotation_steps.with_only(material, kind, (*rotation.old, rotation.new))
    for kind, first in record.first.items():
        material = rotation_steps.put_first(material, kind, first)
        gone = record.gone.get(kind, ())
        material = rotation_steps.with_only(
            material, kind, [each for each in rotation_steps.held(material, kind) if each not in gone]
        )
    return material
