"""How far rotations are, in the store: one document for all servers, and a note of each server about the keys that it has.

The document is only ever replaced by who has read it as it was. What it says of a rotation is what all servers may count on: a
stage begins when every server has said that it has taken over the one before.
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
# By the name of a server's record in :mod:`..replicas.server_leases`, which says that it is alive.
NOTES: Final = key_layout.OWN + "keys-of/"
# The encryption keys that nothing may be sealed with any more, by name. A server that was paused while one went knows nothing of
# that when it wakes up, and what it sealed then nobody could ever open: so the store itself refuses that.
DROPPED: Final = key_layout.OWN + "dropped/"

# The new key is made; all servers get it; all use it; what the old one has sealed is written anew; both are good; the old goes.
MAKING, SPREADING, SWITCHING = "making", "spreading", "switching"
REWRITING, KEEPING, DROPPING = "rewriting", "keeping", "dropping"
_IN_USE: Final = frozenset((SWITCHING, REWRITING, KEEPING, DROPPING))
# Over how many rotations a client that was away may still follow. Every connection shows a certificate for each.
MOST_HANDOVERS: Final = 4


class Rotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """`old` are the keys from before, `new` the one that takes over. Times are seconds since the epoch."""

    stage: str
    old: tuple[str, ...]
    started: float
    new: str = ""
    # Where the new key was made, for whoever has to copy it.
    made_at: str = ""
    # When the old key goes by itself; 0 for when somebody says so.
    keep_until: float = 0.0
    finish: bool = False
    rewritten: int = 0
    # The old CA leaves nothing that vouches for the new one: its key is not to be trusted.
    no_handover: bool = False


class Handover(msgspec.Struct, frozen=True):
    """What a CA that was dropped has left for clients that still trust it alone.

    `chain`: the CA that took over, as the dropped one has signed it; `bundle`: both certificates, by which agents that know a
    checksum only find the one that they trust. PEM. Good `until` that time, in seconds since the epoch.
    """

    old: tuple[str, ...]
    chain: str
    bundle: str
    until: float


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """`first` is what is used, by kind, since it was rotated for the first time; `gone` are those that nobody may use any more;
    `done` is when the last rotation was over; `handovers` are those of the CA, the newest first."""

    active: dict[str, Rotation] = {}
    first: dict[str, str] = {}
    gone: dict[str, tuple[str, ...]] = {}
    done: dict[str, float] = {}
    handovers: tuple[Handover, ...] = ()


class Found(msgspec.Struct, frozen=True):
    record: Record
    revision: int


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server: which keys it works with, the first it uses; and what keeps it from having others."""

    name: str
    holds: dict[str, list[str]] = {}
    trouble: str = ""


def note_of(found: KeyValue | None) -> Note | None:
    """None also for what can't be read: another version's."""
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
    """To be held to when it is stored: that what it is sealed with was not dropped."""
    name = key_name(sealed)
    return (Check(DROPPED + name, 0),) if name else ()


def changed(found: Found, record: Record) -> Put:
    """The operation that replaces it, unless somebody was faster."""
    return Put(KEY, msgspec.json.encode(record), found.revision)


def with_rotation(record: Record, kind: str, rotation: Rotation) -> Record:
    first, gone = record.first, record.gone
    if rotation.stage in _IN_USE:
        first = {**first, kind: rotation.new}
    if rotation.stage == DROPPING:
        gone = {**gone, kind: tuple(dict.fromkeys((*gone.get(kind, ()), *rotation.old)))}
    return msgspec.structs.replace(record, active={**record.active, kind: rotation}, first=first, gone=gone)


def without(record: Record, kind: str, at: float) -> Record:
    """It is over."""
    active = {other: rotation for other, rotation in record.active.items() if other != kind}
    return msgspec.structs.replace(record, active=active, done={**record.done, kind: at})


def handovers_at(record: Record, now: float) -> tuple[Handover, ...]:
    """Those that are still good. One that is over ends those before it, too: they lead to it."""
    return tuple(itertools.takewhile(lambda each: each.until > now, record.handovers))


def with_handover(record: Record, made: Handover | None, now: float) -> Record:
    """With one more; None ends all, since the others only lead to the CA that leaves none."""
    kept = () if made is None else (made, *handovers_at(record, now))[:MOST_HANDOVERS]
    return msgspec.structs.replace(record, handovers=kept)


def arranged(material: Material, record: Record) -> Material:
    """The keys as the document says: in its order, and without those that have gone. Raises PkiError for one that is missing."""
    for kind, rotation in record.active.items():
        if rotation.new and rotation.new in rotation_steps.held(material, kind):
            # One that was made at the same time as another server's, and came too late.
            material = rotation_steps.with_only(material, kind, (*rotation.old, rotation.new))
    for kind, first in record.first.items():
        material = rotation_steps.put_first(material, kind, first)
        gone = record.gone.get(kind, ())
        material = rotation_steps.with_only(
            material, kind, [each for each in rotation_steps.held(material, kind) if each not in gone]
        )
    return material
