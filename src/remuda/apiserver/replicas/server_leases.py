"""The live servers of a shared store: each has a record there that expires when the server is gone.

A restore must not work on a store beside a server. It has such a record, too, and before it changes anything it
writes a mark, which stays until all is done. Each first writes its own record or mark and then reads those of others. So however
close in time they are, one of them sees the other.

A server that is cut off for longer than its record lasts is invisible. When it is back, it checks whether the store was
restored meanwhile: then its keys and its count of revisions belong to a state that is gone, and it stops.
"""

from __future__ import annotations

import logging
import socket

import msgspec

from remuda.kube.clock import Clock, Entropy, deadline

from ..storage import key_layout
from ..storage.revision_offset import KEY as SHIFT
from ..storage.store import Delete, Put, Store, StoreError, Unavailable, Unknown

logger = logging.getLogger(__name__)

ROOT = f"{key_layout.OWN}present/"
RESTORING = f"{key_layout.OWN}restoring"
# A record outlives its server by this at most, a restore's by less: the user waits to repeat it. It is renewed three times
# as often.
SECONDS, RESTORE_SECONDS = 30, 9
# A server that stops does not wait for an unavailable store.
_LEAVING = 1.0


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """`peer` is what the server tells the other servers about how to reach it, sealed with the shared keys."""

    host: str
    restoring: bool = False
    peer: str = ""

    def __str__(self) -> str:
        return f"{'a restore' if self.restoring else 'a server'} on {self.host}"


class ServerLease:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, *, restoring: bool = False) -> None:
        self._store = store
        self._clock = clock
        # Unlike any other's, also of an earlier start of the same machine.
        self._key = f"{ROOT}{entropy.uuid()}"
        self._record = Record(socket.gethostname(), restoring)
        self._seconds = RESTORE_SECONDS if restoring else SECONDS
        # The revision of the note that every restore rewrites; None for a restore itself.
        self._restored: int | None = None

    @property
    def id(self) -> str:
        return self._key.removeprefix(ROOT)

    async def announce(self) -> None:
        """Announce a server. Raises StoreError when the store is being restored, or is unavailable."""
        await self.put()
        self._restored = await self._last_restore()
        if await self._store.get(RESTORING) is None and not any(other.restoring for other in await self.others()):
            return
        await self.leave()
        raise StoreError(
            "a restore into this etcd has not come to its end: wait for it, or repeat remuda restore if it was cut off"
        )

    async def put(self) -> None:
        """Write the record. Raises Unavailable when it may not be stored."""
        try:
            await self._store.write([Put(self._key, msgspec.json.encode(self._record), ttl=self._seconds)])
        except Unknown as error:
            raise Unavailable(str(error)) from error

    async def publish(self, peer: str) -> None:
        """Tell the other servers this; it stays in the record. Raises StoreError."""
        if peer == self._record.peer:
            return
        self._record = msgspec.structs.replace(self._record, peer=peer)
        await self.put()

    async def published(self) -> dict[str, str]:
        """What the other live servers tell, by their unique id. Raises StoreError."""
        found = {kv.key.removeprefix(ROOT): _decoded(kv.value) for kv in (await self._store.range(ROOT)).items}
        return {name: each.peer for name, each in found.items() if each.peer and name != self.id}

    async def others(self) -> list[Record]:
        """The other servers and restores on the store, including those that stopped a moment ago."""
        found = await self._store.range(ROOT)
        return [_decoded(kv.value) for kv in found.items if kv.key != self._key]

    async def keep(self) -> None:
        """Renew the record until cancelled. Raises StoreError when the store was replaced since the announcement."""
        while True:
            await self._clock.sleep(self._seconds / 3)
            try:
                if is_another := await self._is_another():
                    break
                await self.put()
            except StoreError as error:
                logger.debug("this server's record could not be renewed: %s", error)
        raise StoreError(f"{is_another}, and this server was cut off from it: what it knows is of the state before")

    async def _is_another(self) -> str:
        if self._restored is None:
            return ""
        if await self._store.get(RESTORING) is not None:
            return "the store is being restored from a backup"
        return "the store was restored from a backup" if await self._last_restore() != self._restored else ""

    async def _last_restore(self) -> int:
        found = await self._store.get(SHIFT)
        return 0 if found is None else found.mod_revision

    async def leave(self) -> None:
        try:
            async with deadline(self._clock, _LEAVING):
                await self._store.write([Delete(self._key)])
        except (StoreError, TimeoutError) as error:
            # It expires by itself.
            logger.debug("this server's record could not be removed: %s", error)


async def alive(store: Store) -> dict[str, str]:
    """The hosts of all servers on the store, including those that stopped a moment ago, by their unique id."""
    found = {kv.key.removeprefix(ROOT): _decoded(kv.value) for kv in (await store.range(ROOT)).items}
    return {name: each.host for name, each in found.items() if not each.restoring}


def _decoded(value: bytes) -> Record:
    try:
        return msgspec.json.decode(value, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Record("an unknown host")
