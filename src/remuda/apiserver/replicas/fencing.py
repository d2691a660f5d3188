"""Fences: the store itself refuses what a leader writes after its time.

A leader that was paused, or whose packets took long, can't know that another one leads by now: whatever it looks at before it
writes was true when it looked. So a leadership has a key in the store, its fence, which whoever takes over writes anew before
doing anything else. Each write of a leader goes into one transaction with a check that the fence is still the one it put up
itself, and a late one is refused where it would be done.

The fence is put up in one transaction with a check of the Lease that was won (:mod:`remuda.runtime.leader_election`): who has
lost that meanwhile puts up nothing. What the one before wrote until then, it wrote before the new term began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from remuda.kube.errors import Fenced

from ..storage import key_layout
from ..storage.store import Check, Mismatch, Op, Put, Store

_standing: ContextVar[Fence | None] = ContextVar("fence", default=None)


class Fence:
    """One term. `broken` is set when the store has refused a write because of it."""

    def __init__(self, name: str, key: str, revision: int) -> None:
        self.name = name
        self.revision = revision
        self.broken = asyncio.Event()
        self._check = Check(key, revision)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """What is written inside, also by tasks that are started there, is written behind this fence."""
        token = _standing.set(self)
        try:
            yield
        finally:
            _standing.reset(token)

    def behind(self, ops: Sequence[Op]) -> Sequence[Op]:
        # First, so that a broken fence is told before anything else that does not hold.
        return (self._check, *ops)

    def is_broken_by(self, mismatch: Mismatch) -> bool:
        if mismatch.key != self._check.key:
            return False
        self.broken.set()
        return True


def standing() -> Fence | None:
    """The fence that the present task writes behind."""
    return _standing.get()


async def put_up(store: Store, name: str, identity: str, lease: str, revision: int) -> Fence:
    """A new fence for who holds the Lease whose key is `lease`, at `revision`. Raises Fenced when that is no longer so."""
    key = f"{key_layout.OWN}fences/{name}"
    try:
        return Fence(name, key, await store.write([Check(lease, revision), Put(key, identity.encode())]))
    except Mismatch:
        raise Fenced(name) from None
