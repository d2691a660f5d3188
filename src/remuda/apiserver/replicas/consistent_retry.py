"""True answers from a cache that may be behind its store.

Where other servers write to the same store, an attempt at a request may fail for a reason that no longer holds: a missing object
was created elsewhere, a found one is gone. So no such error is returned before the cache has caught up with the store; if
it had to move for that, the request is attempted once more. Success needs none of this: writes are compared with the store's
state, and reads wait for the cache first (:meth:`remuda.apiserver.cache.watch_cache.WatchCache.consistent`).

Both the HTTP handler and the in-process client use it, by :meth:`remuda.apiserver.verbs.context.Api.run_consistently`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from remuda.kube import errors
from remuda.kube.errors import ApiError

from ..storage.store import StoreError, Unavailable, Unknown

# Errors that depend on objects: bad preconditions, nothing there, something there, too late, invalid. A 403 that
# comes out of an attempt is admission's, which reads namespaces and accounts; authorization comes before.
_BY_STATE = frozenset((400, 403, 404, 405, 409, 410, 422))


class Attempt:
    """The state of an attempt: waited for the cache, so that its answer is true; written, so that it is no longer
    free to begin anew."""

    __slots__ = ("certain", "outer", "wrote")

    def __init__(self, outer: Attempt | None) -> None:
        # A request made on behalf of another: its writes count as the other's.
        self.outer = outer
        self.certain = False
        self.wrote = False

    def is_doubtful(self, error: ApiError) -> bool:
        return error.code in _BY_STATE and not self.certain and not self.wrote


_attempt: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


@contextmanager
def attempt() -> Iterator[Attempt]:
    """The block, and all tasks that it starts, belong to one attempt."""
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
    """The error that a client gets when the store fails."""
    if isinstance(error, Unknown):
        return errors.timeout(f"the outcome is not known: {error}")
    if isinstance(error, Unavailable):
        return errors.unavailable(f"the store can't be reached now: {error}", retry_after=1)
    return errors.unavailable(f"the store can't do this now: {error}")
