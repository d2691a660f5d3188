"""Rotation of keys while servers run: each server follows the record in the store, and one of them advances it.

A rotation goes by stages (:mod:`.rotation_record`). Every server puts its keys into the order of the present stage, works
with them from then on, and notes that in the store. Of the live servers (:mod:`..replicas.server_leases`), the first by
name, begins the next stage when all have noted the present one. If a server is killed, another takes over, or it goes on when it
starts again: every step may be done twice. No server uses a key that another server does not know.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from remuda.kube import certificates
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, deadline
from remuda.kube.errors import ApiError

from ..replicas import server_leases
from ..storage import key_layout
from ..storage.store import Delete, KeyValue, Mismatch, Op, Put, Store, StoreError, Unknown
from . import rotation_record
from .encryption import EncryptionError, Envelope, parse_keys
from .key_places import KeyStorage
from .pki import Pki
from .rotation_record import DROPPING, KEEPING, MAKING, REWRITING, SPREADING, SWITCHING, Found, Handover, Note, Record, Rotation
from .shared_keys import KeyMaterial

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

# Intervals between checks: while idle, and between two stages.
_REST, _BUSY = 2.0, 0.3
# Time to wait for a key that another server has used already: it must exist somewhere.
_LOOK_FOR = 20.0
_HELD_UP = (StoreError, PkiError, EncryptionError, OSError)


class _Cache(Protocol):
    def resealed(self, kv: KeyValue) -> bytes | None: ...


class _TokenKeys(Protocol):
    def use(self, pems: Sequence[bytes]) -> None: ...


class _RetiredAuthorities(Protocol):
    def add(self, *certificates: x509.Certificate, believed: bytes) -> None: ...


class _Server(Protocol):
    """The parts of a server that use keys, or that a change of keys concerns."""

    store: Store
    pki: Pki | None
    envelope: Envelope | None
    lease: server_leases.ServerLease | None
    former: tuple[str, ...]

    @property
    def trusted(self) -> bytes: ...
    @property
    def port(self) -> int: ...
    @property
    def past_seconds(self) -> int: ...
    @property
    def cache(self) -> _Cache: ...
    @property
    def token_keys(self) -> _TokenKeys: ...
    @property
    def retired(self) -> _RetiredAuthorities: ...

    async def renew(self) -> None: ...


class Rotations:
    """This server's part of rotations. `place` is the place of its keys."""

    def __init__(self, server: _Server, place: KeyStorage, clock: Clock, entropy: Entropy) -> None:
        self._server = server
        self._store = server.store
        self._clock = clock
        self._entropy = entropy
        self._place = place
        self._seen = 0
        self._material: KeyMaterial | None = None
        # The handover chain of dropped CAs, as the certificate sends it.
        self._chain: bytes | None = None
        self._holds: dict[str, list[str]] = {}
        self._noted: Note | None = None
        self._wake = asyncio.Event()
        self._adopting = asyncio.Lock()
        # The error that stops this server from going on; logged once.
        self.trouble = ""

    @property
    def name(self) -> str:
        return f"{socket.gethostname()}:{self._server.port}"

    @property
    def place(self) -> KeyStorage:
        return self._place

    @property
    def id(self) -> str:
        own = self._server.lease
        return own.id if own is not None else ""

    # --- life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Adopt the keys of the store's record, before anything is served."""
        found = await rotation_record.read(self._store)
        if found.revision:
            await self._follow(found)

    async def run(self) -> None:
        """Follow rotations until cancelled."""
        while True:
            self._wake.clear()
            seconds = await self._attempt()
            if seconds is None:
                await self._wake.wait()
                continue
            try:
                async with deadline(self._clock, seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def leave(self) -> None:
        """Withdraw: this server stops, and others need not wait for it."""
        if self._noted is not None and self.id:
            try:
                async with deadline(self._clock, 1.0):
                    await self._store.write([Delete(rotation_record.NOTES + self.id)])
            except (StoreError, TimeoutError) as error:
                log.debug("the note about this server's keys stays: %s", error)

    def nudge(self) -> None:
        self._wake.set()

    async def _attempt(self) -> float | None:
        """One check; the time until the next one, None to wait for a nudge."""
        try:
            seconds = await self._step()
        except _HELD_UP as error:
            if str(error) != self.trouble:
                log.warning("the rotation of keys is held up: %s", error)
            self.trouble = str(error)
            return _REST
        except Exception:
            log.exception("the rotation of keys met an error of its own")
            return _REST
        self.trouble = ""
        return seconds

    async def _step(self) -> float | None:
        found = await rotation_record.read(self._store)
        active = found.record.active
        idle = _REST if self._store.shared else None
        if found.revision == self._seen and not active:
            return idle
        try:
            await self._follow(found)
        except _HELD_UP as error:
            await self._note(str(error))
            raise
        if not active:
            await self.leave()
            self._noted = None
            return idle
        await self._note("")
        if await self._drives():
            for kind, rotation in active.items():
                await self._advance(found, kind, rotation)
        return self._next_look(list(active.values()))

    def _next_look(self, active: Sequence[Rotation]) -> float | None:
        if not all(each.stage == KEEPING and not each.finish for each in active):
            return _BUSY
        if self._store.shared:
            return _REST
        # Nothing else changes: until an old key expires, or a request comes.
        ends = [each.keep_until for each in active if each.keep_until]
        return max(min(ends) - self._clock.time(), _REST) if ends else None

    # --- adopting keys ----------------------------------------------------------------------------------------------------

    async def look_for_keys(self) -> None:
        """Look for a key that is not known here: another server sealed with it while this one was away for long."""
        try:
            async with deadline(self._clock, _LOOK_FOR):
                await self._follow(await rotation_record.read(self._store))
        except (*_HELD_UP, TimeoutError) as error:
            log.error("another server uses a key that can't be had here: %s", error)

    async def _follow(self, found: Found) -> None:
        async with self._adopting:
            material = await self._place.read()
            if material == self._material and found.revision == self._seen:
                return
            wanted = rotation_record.arranged(material, found.record)
            wanted.check(self._place.where)
            if self._place.copied and wanted != material:
                await self._place.save(wanted)
            handovers = rotation_record.handovers_at(found.record, self._clock.time())
            chain = "".join(each.chain for each in handovers).encode()
            pki = self._server.pki
            self._server.former = tuple(each.bundle for each in handovers)
            if pki is not None and chain != self._chain:
                # First: the certificate that is made with other keys sends the chain, too.
                await asyncio.to_thread(pki.hand_over, chain)
            if wanted != self._material:
                await self._adopt(wanted)
            if pki is not None and chain != self._chain:
                await self._server.renew()
            self._chain = chain
            self._seen = found.revision

    async def _adopt(self, material: KeyMaterial) -> None:
        """Use these keys from now on."""
        server, known = self._server, self._material
        if server.pki is not None and server.pki.material is not None:
            server.pki.material = material
        if server.envelope is not None and (known is None or known.encryption != material.encryption):
            server.envelope.use(parse_keys(material.encryption))
        if known is None or known.service_account_key != material.service_account_key:
            server.token_keys.use(material.service_account_keys())
        if known is None or (known.ca_certificate, known.ca_key) != (material.ca_certificate, material.ca_key):
            await self._adopt_authority(material)
        self._holds = rotation_record.all_held(material)
        if known is not None:
            log.info("the keys have changed")
        self._material = material

    async def _adopt_authority(self, material: KeyMaterial) -> None:
        server = self._server
        before = certificates.parse_certificates(server.trusted)
        await server.renew()
        now = {certificates.fingerprint(each) for each in certificates.parse_certificates(material.ca_certificate)}
        server.retired.add(
            *(each for each in before if certificates.fingerprint(each) not in now), believed=material.ca_certificate
        )

    async def _note(self, trouble: str) -> None:
        if not self._store.shared or not self.id:
            return
        note = Note(self.name, self._holds, trouble)
        if note != self._noted:
            await self._store.write([Put(rotation_record.NOTES + self.id, msgspec.json.encode(note))])
            self._noted = note

    # --- the servers --------------------------------------------------------------------------------------------------------

    async def notes(self) -> dict[str, Note]:
        """The notes of the live servers, by name. A server that has noted nothing yet is included without keys."""
        if not self._store.shared or not self.id:
            return {self.id: Note(self.name, self._holds, self.trouble)}
        alive = await server_leases.alive(self._store)
        said = {kv.key.removeprefix(rotation_record.NOTES): kv for kv in (await self._store.range(rotation_record.NOTES)).items}
        return {each: rotation_record.note_of(said.get(each)) or Note(host) for each, host in sorted(alive.items())}

    async def _drives(self) -> bool:
        if not self._store.shared or not self.id:
            return True
        return self.id == min(await server_leases.alive(self._store), default="")

    async def _all(self, true: Callable[[Sequence[str]], bool], kind: str) -> bool:
        return all(true(note.holds.get(kind, ())) for note in (await self.notes()).values())

    # --- moving on ----------------------------------------------------------------------------------------------------------

    async def _advance(self, found: Found, kind: str, rotation: Rotation) -> None:
        """Begin the next stage, if it is time. Other servers may do the same: the store accepts one of them."""
        stage, new = rotation.stage, rotation.new
        if stage == MAKING:
            await self._make(found, kind, rotation)
        elif stage == SPREADING:
            if await self._all(lambda holds: new in holds, kind):
                await self._begin_stage(found, kind, rotation, SWITCHING)
        elif stage == SWITCHING:
            if await self._all(lambda holds: holds[:1] == [new], kind):
                await self._begin_stage(found, kind, rotation, REWRITING if kind == rotation_record.ENCRYPTION_KEY else KEEPING)
        elif stage == REWRITING:
            count = await rewrite(self._server)
            until = self._clock.time() + self._server.past_seconds
            await self._begin_stage(found, kind, rotation, KEEPING, rewritten=count, keep_until=until)
        elif stage == KEEPING:
            if rotation.finish or 0 < rotation.keep_until <= self._clock.time():
                if kind == rotation_record.ENCRYPTION_KEY:
                    await self._forbid(rotation.old)
                    # Writes that were in progress when the keys were switched. No later ones use the old key.
                    await rewrite(self._server)
                elif kind == rotation_record.CA:
                    found = Found(await self._with_handover(found.record, rotation), found.revision)
                await self._begin_stage(found, kind, rotation, DROPPING)
        elif await self._all(lambda holds: bool(holds) and not set(holds) & set(rotation.old), kind):
            await self._write([rotation_record.changed(found, rotation_record.without(found.record, kind, self._clock.time()))])

    async def _forbid(self, old: Sequence[str]) -> None:
        """A server alone writes in the order in which it seals, so nothing needs to be refused."""
        if self._store.shared:
            await self._store.write([Put(rotation_record.DROPPED + name, b"") for name in old])

    async def _with_handover(self, known: Record, rotation: Rotation) -> Record:
        """Sign the handover while both keys exist: afterwards nothing can be signed for clients that trust only the old one."""
        now = self._clock.time()
        material = rotation_record.arranged(await self._place.read(), known)
        chain, until = rotation_record.handed_over(material, self._clock, self._entropy)
        if rotation.no_handover or not chain:
            return rotation_record.with_handover(known, None, now)
        made = Handover(rotation.old, chain.decode(), material.ca_certificate.decode(), until)
        return rotation_record.with_handover(known, made, now)

    async def _make(self, found: Found, kind: str, rotation: Rotation) -> None:
        material = await self._place.read()
        if not set(rotation_record.held(material, kind)) - set(rotation.old):
            material = rotation_record.with_new(material, kind, self._clock, self._entropy)
            # Saved before any other server learns of it.
            await self._place.save(material)
        (new, *_) = [each for each in rotation_record.held(material, kind) if each not in rotation.old]
        made_at = f"{self.name}, {self._place.where}"
        changed = msgspec.structs.replace(rotation, stage=SPREADING, new=new, made_at=made_at)
        await self._save(found, kind, changed, material)

    async def _begin_stage(self, found: Found, kind: str, rotation: Rotation, stage: str, **fields: float) -> None:
        changed = msgspec.structs.replace(rotation, stage=stage, **fields)
        await self._save(found, kind, changed, await self._place.read())
        log.info("rotation of %s: %s", rotation_record.WORDS[kind], stage)

    async def _save(self, found: Found, kind: str, rotation: Rotation, material: KeyMaterial) -> None:
        after = rotation_record.with_rotation(found.record, kind, rotation)
        arranged = rotation_record.arranged(material, after)
        noted = await self._place.noted(arranged) if arranged != material or rotation.stage == SPREADING else []
        await self._write([rotation_record.changed(found, after), *noted])
        self.nudge()

    async def _write(self, ops: Sequence[Op]) -> None:
        try:
            await self._store.write(ops)
        except (Mismatch, Unknown):
            # Another server was faster, or the outcome is unknown; the next check reads it.
            return

    # --- requests -----------------------------------------------------------------------------------------------------------

    async def begin(self, kind: str) -> None:
        """Begin a rotation, or go on with one that was begun. Raises ApiError and PkiError."""
        found = await rotation_record.read(self._store)
        rotation = found.record.active.get(kind)
        if rotation is not None:
            if rotation.stage == KEEPING and not rotation.finish:
                raise ApiError(
                    409,
                    "Conflict",
                    f"{rotation_record.WORDS[kind]} was rotated, and the old one is still valid: "
                    "say --finish when nothing needs it",
                )
            return
        held = rotation_record.held(rotation_record.arranged(await self._place.read(), found.record), kind)
        begun = Rotation(MAKING, tuple(held), self._clock.time())
        await self._insist(found, rotation_record.with_rotation(found.record, kind, begun))

    async def check_finish(self, kind: str) -> Rotation | None:
        """The rotation whose old key can be dropped now; None when its end was requested already. Raises ApiError."""
        rotation = self._can_finish((await rotation_record.read(self._store)).record, kind)
        return rotation if rotation.stage == KEEPING and not rotation.finish else None

    @staticmethod
    def _can_finish(known: Record, kind: str) -> Rotation:
        rotation = known.active.get(kind)
        if rotation is None:
            raise ApiError(409, "Conflict", f"{rotation_record.WORDS[kind]} is not being rotated: there is no old one to drop")
        if rotation.stage not in (KEEPING, DROPPING):
            raise ApiError(
                409, "Conflict", f"the rotation of {rotation_record.WORDS[kind]} is not so far ({rotation.stage}): wait for it"
            )
        return rotation

    async def finish(self, kind: str, *, no_handover: bool = False) -> None:
        """Drop the old key; with `no_handover` it signs nothing for the new one. Raises ApiError."""
        found = await rotation_record.read(self._store)
        rotation = self._can_finish(found.record, kind)
        if rotation.stage == KEEPING and (not rotation.finish or (no_handover and not rotation.no_handover)):
            asked = msgspec.structs.replace(rotation, finish=True, no_handover=no_handover)
            await self._insist(found, rotation_record.with_rotation(found.record, kind, asked))

    async def end_handovers(self) -> bool:
        """End the handovers of dropped CAs; False where there are none, or one is still to be dropped. Raises
        ApiError."""
        found = await rotation_record.read(self._store)
        rotation = found.record.active.get(rotation_record.CA)
        if (rotation is not None and rotation.stage != DROPPING) or not found.record.handovers:
            return False
        await self._insist(found, rotation_record.with_handover(found.record, None, self._clock.time()))
        return True

    async def _insist(self, found: Found, after: Record) -> None:
        try:
            await self._store.write([rotation_record.changed(found, after)])
        except Mismatch:
            raise ApiError(409, "Conflict", "the state of rotations has changed at the same moment: try again") from None
        self.nudge()

    def waits(self, rotation: Rotation, kind: str, notes: Mapping[str, Note]) -> list[str]:
        """The servers that a stage waits for, in words. A server alone waits for none."""
        if not self._store.shared:
            return [self.trouble] if self.trouble else []
        found = []
        for note in notes.values():
            holds = note.holds.get(kind, [])
            if note.trouble:
                found.append(f"{note.name}: {note.trouble}")
            elif not holds:
                found.append(f"{note.name} has not said which keys it has")
            elif rotation.stage == SPREADING and rotation.new not in holds:
                how = f": copy the files of {rotation.made_at}" if self._place.copied else ""
                found.append(f"{note.name} does not have the new key{how}")
            elif rotation.stage == SWITCHING and holds[0] != rotation.new:
                found.append(f"{note.name} does not use the new key yet")
            elif rotation.stage == DROPPING and set(holds) & set(rotation.old):
                found.append(f"{note.name} still has the old key")
        return found


# --- re-encryption --------------------------------------------------------------------------------------------------------
#
# Re-encryption: every value that is sealed with an older key is rewritten with the current one. Objects do not change.
#
# It works directly in the store, on condition of the revision that was read: a client's concurrent write wins, and is
# sealed with the new key anyway. Watchers see another resourceVersion and no other change, as from Kubernetes' own migrations.


SEALED = (key_layout.prefix_for("", "secrets", builtin=True),)
_PAGE = 500
# Written concurrently: they share a commit.
_TOGETHER = 32


async def rewrite(server: _Server) -> int:
    """Rewrite all; the number of values. Afterwards none is left that was sealed otherwise at the beginning."""
    total = 0
    for prefix in SEALED:
        while count := await _pass(server, prefix):
            total += count
    if total:
        log.info("%d Secrets are sealed with the new key", total)
    return total


async def _pass(server: _Server, prefix: str) -> int:
    """The number of values to rewrite that were found, including those rewritten by another writer meanwhile."""
    count, start = 0, ""
    while True:
        page = await server.store.range(prefix, start=start, limit=_PAGE)
        count += await _page(server, page.items)
        if not page.more:
            return count
        start = page.items[-1].key + "\0"


async def _page(server: _Server, items: Sequence[KeyValue]) -> int:
    stale = [(kv, sealed) for kv in items if (sealed := server.cache.resealed(kv)) is not None]
    for first in range(0, len(stale), _TOGETHER):
        await asyncio.gather(*(_write(server, kv, sealed) for kv, sealed in stale[first : first + _TOGETHER]))
    return len(stale)


async def _write(server: _Server, kv: KeyValue, sealed: bytes) -> None:
    try:
        await server.store.write([Put(kv.key, sealed, kv.mod_revision)])
    except (Mismatch, Unknown):
        # The next pass reads it again.
        return
