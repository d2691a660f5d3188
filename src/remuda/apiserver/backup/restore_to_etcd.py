"""Restore into etcd, under a mark that keeps servers from starting, so that a partial state is never used.

etcd can't replace many keys at once. So the mark is written first and removed last. A restore that finds a mark knows that the
existing keys are from an interrupted restore, and starts over; so an interrupted restore can be repeated.

Servers and restores detect each other by :mod:`..replicas.server_leases`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, Rng

from ..keys import key_agreement
from ..keys.token_sealing import ScryptCost
from ..replicas import server_leases
from ..replicas.server_leases import ServerLease
from ..storage import key_layout
from ..storage import revision_offset as shifting
from ..storage.etcd import EtcdConfig, EtcdStore
from ..storage.store import Check, Delete, KeyValue, Mismatch, Op, Put, StoreError, Unknown
from .format import Backup, BackupError, InUse, NotEmpty, Object
from .restore import MARGIN, Contents, Restored, check_keys_fit, contents, share_keys, timed_name
from .take import Progress, is_over, of_store, sealed, take

# Limits of one transaction: etcd's defaults are 128 operations and 1.5 MiB.
_OPS, _BYTES = 100, 512 * 1024
_PAGE = 100


class EtcdTarget(NamedTuple):
    """The etcd, its servers' keys, and the directory for a copy of the old state."""

    etcd: EtcdConfig
    pki_dir: Path | None
    token: str
    aside: Path


async def restore(
    backup: Backup,
    key: bytes,
    passphrase: str,
    place: EtcdTarget,
    clock: Clock,
    rng: Rng,
    entropy: Entropy,
    *,
    force: bool,
    progress: Progress,
    cost: ScryptCost = ScryptCost(),  # noqa: B008 - a constant
) -> Restored:
    """Restore the backup. Raises BackupError and StoreError. If it is interrupted, no server starts until it is repeated."""
    # Read everything once: a damaged backup must be detected before the first write.
    backup.verify(key)
    found = contents(backup, key)
    check_keys_fit(place.pki_dir, found.material)
    store = await EtcdStore.open(place.etcd, clock, rng)
    try:
        async with _alone(store, clock, entropy) as own:
            wreck = await store.get(server_leases.RESTORING)
            there = wreck is None and bool(
                (await store.range(key_layout.ROOT, limit=1)).items or await store.get(key_agreement.KEY)
            )
            if there and not force:
                raise NotEmpty(
                    f"{place.etcd.prefix}{key_layout.ROOT} in this etcd is not empty: say another --etcd-prefix, "
                    "or --force to replace what is there"
                )
            aside = await _put_aside(store, place, passphrase, clock, entropy, cost) if there else None
            marked = RestoreMark(store, await _mark(store, own, wreck, backup.path))
            offset = await _clear(marked, backup.header.revision)
            restored = await _fill(marked, found, place, clock, entropy, backup.header.objects, progress)
            if place.pki_dir is not None:
                share_keys(place.pki_dir, found.material)
            await marked.write([Put(key_agreement.KEY, await key_agreement.note(found.material, place.token, entropy, cost))])
            # The old state must not be part of the new state's history.
            await store.compact(store.revision)
            await marked.remove()
        return restored._replace(revision=restored.revision + offset, aside=aside)
    except PkiError as error:
        raise BackupError(str(error)) from error
    finally:
        await store.close()


@asynccontextmanager
async def _alone(store: EtcdStore, clock: Clock, entropy: Entropy) -> AsyncIterator[ServerLease]:
    """No server and no other restore starts while the block runs; raises InUse when one is already running."""
    own = ServerLease(store, clock, entropy, restoring=True)
    await own.put()
    keeping = asyncio.create_task(own.keep(), name="the restore's record")
    try:
        await _check_alone(own)
        yield own
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await own.leave()


async def _check_alone(own: ServerLease) -> None:
    if others := await own.others():
        raise InUse(
            f"{others[0]} works on this etcd: stop it first; "
            f"one that was killed is forgotten after {server_leases.SECONDS} seconds"
        )


async def _mark(store: EtcdStore, own: ServerLease, wreck: KeyValue | None, path: Path) -> int:
    """Put the mark: the state is invalid until the restore is complete. Gives the revision of the mark."""
    put = Put(server_leases.RESTORING, path.name.encode(), 0 if wreck is None else wreck.mod_revision)
    with _unless_another():
        revision = await _write(store, [put])
    try:
        # No server can have started since, except one that renewed its lease late.
        await _check_alone(own)
    except InUse:
        if wreck is None:
            with _unless_another():
                await _write(store, [Delete(server_leases.RESTORING, revision)])
        raise
    return revision


@contextmanager
def _unless_another() -> Iterator[None]:
    """Raise InUse when the mark is not the one that was expected."""
    try:
        yield
    except Mismatch as error:
        if error.key != server_leases.RESTORING:
            raise
        raise InUse("another restore into this etcd has begun since, so this one ends: wait for that one") from error


class RestoreMark:
    """Writes that succeed only while this restore's own mark exists.

    A machine that sleeps until its lease expires is taken for dead: another restore may start, and then this one's remaining
    writes must fail when it wakes up.
    """

    def __init__(self, store: EtcdStore, mark: int) -> None:
        self.store = store
        self._mark = mark

    async def write(self, ops: list[Op]) -> int:
        with _unless_another():
            return await _write(self.store, [Check(server_leases.RESTORING, self._mark), *ops])

    async def remove(self) -> None:
        with _unless_another():
            await _write(self.store, [Delete(server_leases.RESTORING, self._mark)])


async def _put_aside(
    store: EtcdStore, place: EtcdTarget, passphrase: str, clock: Clock, entropy: Entropy, cost: ScryptCost
) -> Path:
    """A backup of the old state, sealed with the same passphrase."""
    try:
        source = await of_store(store, place.etcd.prefix, place.pki_dir, place.token, entropy)
    except BackupError as error:
        raise NotEmpty(
            f"what is in this etcd can't be kept aside ({error}): say the keys of its servers, or another --etcd-prefix"
        ) from error
    place.aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place.aside / f"{timed_name(clock)}.backup"
    await take(source, path, passphrase, clock, entropy, cost=cost)
    return path


async def _clear(marked: RestoreMark, revision: int) -> int:
    """Delete everything but the servers' leases, the mark and the note of the revision offset. Gives the new offset."""
    store = marked.store
    offset = max(await shifting.read_offset(store), revision + MARGIN - store.revision)
    kept = {server_leases.RESTORING, shifting.KEY}
    await marked.write([Put(shifting.KEY, shifting.note(offset))])
    for root in (key_layout.ROOT, key_layout.OWN):
        start = ""
        while True:
            page = await store.range(root, start=start, limit=_PAGE)
            ops: list[Op] = [
                Delete(kv.key) for kv in page.items if kv.key not in kept and not kv.key.startswith(server_leases.ROOT)
            ]
            if ops:
                await marked.write(ops)
            if not page.more:
                break
            start = page.items[-1].key + "\0"
    return offset


async def _fill(
    marked: RestoreMark, found: Contents, place: EtcdTarget, clock: Clock, entropy: Entropy, expected: int, progress: Progress
) -> Restored:
    done = over = size = first = 0
    ops: list[Op] = []

    async def send() -> None:
        nonlocal size, first
        if ops:
            revision = await marked.write(ops)
            first = first or revision
            progress(done, expected)
        ops.clear()
        size = 0

    for key, value in found.notes.items():
        await marked.write([Put(key, value)])
    envelope = found.material.envelope(entropy)
    for entry, value in sealed(found.objects, envelope, place.etcd.prefix):
        now = clock.time()
        if is_over(entry, now):
            over += 1
            continue
        if ops and size + len(value) > _BYTES:
            await send()
        ops.append(Put(entry.key, value, ttl=_seconds(entry, now)))
        size += len(value)
        done += 1
        if len(ops) >= _OPS:
            await send()
    await send()
    return Restored(done, over, first or marked.store.revision, None)


def _seconds(entry: Object, now: float) -> int:
    return max(int(entry.expires - now), 1) if entry.expires else 0


async def _write(store: EtcdStore, ops: list[Op]) -> int:
    """Write, and retry when the outcome is unknown: writing the same values again does no harm."""
    for _ in range(5):
        try:
            return await store.write(ops)
        except (Mismatch, Unknown) as error:
            # A key to delete is already gone: deleted by the previous attempt, or expired.
            left: list[Op] = [op for op in ops if not isinstance(op, Delete) or await store.get(op.key) is not None]
            if isinstance(error, Mismatch) and len(left) == len(ops):
                raise
            if all(isinstance(op, Check) for op in left):
                return store.revision
            ops = left
    raise StoreError("etcd loses too many answers: repeat the restore when it is well")
