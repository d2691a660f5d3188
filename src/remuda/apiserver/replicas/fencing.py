"""Fences: the store itself refuses a leader's writes after the end of its term.

A leader that was paused, or whose packets took long, can't know that another one leads by now: any check before it
writes may be outdated. So a leadership has a key in the store, its fence, which a new leader rewrites before
doing anything else. Each write of a leader goes into one transaction with a check that the fence is still the one it wrote
itself, and a late write is refused by the store.

The fence is written in one transaction with a check of the Lease (:mod:`remuda.runtime.leader_election`): a server that
has lost it meanwhile writes no fence. The previous leader's writes all come before the new fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from remuda.kube.errors import Fenced

from ..storage import key_layout
from ..storage.store import Check, Mismatch, Op, Put, Store

_current: ContextVar[Fence | None] = ContextVar("fence", default=None)


class Fence:
    """One term. `broken` is set when the store has refused a write because of it."""

    def __init__(self, name: str, key: str, revision: int) -> None:
        self.name = name
        self.revision = revision
        self.broken = asyncio.Event()
        self._check = Check(key, revision)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Writes inside the block, also by tasks that are started there, are checked against this fence."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def checked(self, ops: Sequence[Op]) -> Sequence[Op]:
        # First, so that a broken fence is reported before any other failed check.
        return (self._check, *ops)

    def is_broken_by(self, mismatch: Mismatch) -> bool:
        if mismatch.key != self._check.key:
            return False
        self.broken.set()
        return True


def current_fence() -> Fence | None:
    """The fence of the present task's writes."""
    return _current.get()


async def acquire_fence(store: Store, name: str, identity: str, lease: str, revision: int) -> Fence:
    """A new fence for the holder of the Lease whose key is `lease`, at `revision`. Raises Fenced when it is not held any more."""
    key = f"{key_layout.OWN}fences/{name}"
    try:
        return Fence(name, key, await store.write([Check(lease, revision), Put(key, identity.encode())]))
    except Mismatch:
        raise Fenced(name) from None
