"""Being sure of an answer that was worked out from a cache which may be behind its store.

Where other servers write to the same store, an attempt at a request may fail for a reason that no longer holds: what it misses
has been made elsewhere, what it finds is gone. So nobody is told such a thing before the cache has caught up with the store; if
it had to move for that, the request is attempted once more. Success needs none of this: writes are compared with what the store
holds, and reads wait for the cache first (:meth:`remuda.apiserver.cache.watch_cache.Cache.consistent`).

Both doors pass here, the HTTP one and the in-process client, by :meth:`remuda.apiserver.verbs.context.Api.surely`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from remuda.kube import errors
from remuda.kube.errors import ApiError

from ..storage.store import StoreError, Unavailable, Unknown

# What is decided by looking at objects: bad preconditions, nothing there, something there, too late, invalid. A refusal that
# comes out of an attempt (403) is admission's, which looks at namespaces and accounts; who may ask at all is settled before.
_BY_STATE = frozenset((400, 403, 404, 405, 409, 410, 422))


class Attempt:
    """What an attempt has done so far: waited for the cache, so that what it says is true; written, so that it is no longer
    free to begin anew."""

    __slots__ = ("certain", "outer", "wrote")

    def __init__(self, outer: Attempt | None) -> None:
        # A request that is made for the sake of another: what it writes, that one has written.
        self.outer = outer
        self.certain = False
        self.wrote = False

    def is_doubtful(self, error: ApiError) -> bool:
        return error.code in _BY_STATE and not self.certain and not self.wrote


_attempt: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


@contextmanager
def attempt() -> Iterator[Attempt]:
    """What runs in the block, and whatever that starts, belongs to one attempt."""
    made = Attempt(_attempt.get())
    token = _attempt.set(made)
    try:
        yield made
    finally:
        _attempt.reset(token)


def note_certain() -> None:
    found = _attempt.get()
    if found is not None:
        found.certain = True


def note_written() -> None:
    found = _attempt.get()
    while found is not None:
        found.wrote = True
        found = found.outer


def as_answer(error: StoreError) -> ApiError:
    """What a client is told when the store fails."""
    if isinstance(error, Unknown):
        return errors.timeout(f"the outcome is not known: {error}")
    if isinstance(error, Unavailable):
        return errors.unavailable(f"the store can't be reached now: {error}", retry_after=1)
    return errors.unavailable(f"the store can't do this now: {error}")
