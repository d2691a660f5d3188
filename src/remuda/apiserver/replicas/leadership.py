"""Leader election for controllers of several servers on one store: only the holder of the Lease runs them.

Callers choose the controllers: :mod:`remuda.app.embedded` the management server's controllers, :mod:`remuda.lab.distro` those of
a cluster.

The store itself refuses a leader's writes after the end of its term. A leader that was paused, or whose packets took long, cannot
know that another one leads by now: any check before it writes may be outdated. So a leadership has a key in the store, its
:class:`Fence`, which a new leader rewrites before doing anything else. Each write of a leader goes into one transaction with a
check that the fence is still the one it wrote itself, and a late write is refused by the store. The fence is written in one
transaction with a check of the Lease (:mod:`remuda.runtime.leader_election`): a server that has lost it meanwhile writes no
fence. The previous leader's writes all come before the new fence.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import LEASES
from remuda.kube.clock import Clock, Entropy, Rng, deadline
from remuda.kube.errors import ApiError, Fenced
from remuda.kube.objects import dig
from remuda.runtime import Elector, Informers, LeaseTerm, NotLeading, Registry
from remuda.runtime.leader_election import GuardedClient, lead

from ..storage import key_layout
from ..storage.store import Check, Mismatch, Op, Put, Store, StoreError

log = logging.getLogger(__name__)

LEASE_NAMESPACE, LEASE = "kube-system", "remuda-controllers"
Wrap = Callable[[Client], Client]


@dataclass(frozen=True, slots=True)
class Replica:
    """One of several servers on a store, as its leader election needs it.

    `lease_key` is the Lease's key in the store; `caught_up` waits until the server's cache has all that the store has; `metrics`
    are the texts at the server's /metrics.
    """

    client: Client
    store: Store
    lease_key: str
    caught_up: Callable[[], Awaitable[object]]
    metrics: list[Callable[[], str]]
    clock: Clock
    rng: Rng
    entropy: Entropy


async def run_as_leader(
    replica: Replica,
    run: Callable[[Wrap], Coroutine[Any, Any, None]],
    term: LeaseTerm = LeaseTerm(),  # noqa: B008 - a constant
    *,
    passing: tuple[type[BaseException], ...] = (),
) -> None:
    """`run` whenever this replica leads; give the Lease back when cancelled. All that it writes must go through the wrap.

    Besides what the API says, errors of the kinds in `passing` may go better next time.
    """
    registry = Registry()
    elector = Elector(
        replica.client,
        replica.clock,
        replica.rng,
        namespace=LEASE_NAMESPACE,
        name=LEASE,
        # Unlike any other identity, also of an earlier start of the same machine.
        identity=f"{socket.gethostname()}_{replica.entropy.uuid()}",
        term=term,
        registry=registry,
    )

    async def prepare() -> Fence:
        try:
            async with deadline(replica.clock, term.renew_deadline):
                return await _fenced(replica, elector)
        except (ApiError, StoreError, TimeoutError) as error:
            log.warning("leadership could not begin: %s", error)
            raise NotLeading(LEASE) from error

    async def work(fence: Fence) -> None:
        def wrap(inner: Client) -> Client:
            return GuardedClient(inner, elector, fence.active)

        await _until_broken(fence, run(wrap), (ApiError, OSError, *passing))

    replica.metrics.append(registry.text)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow_lease(replica, elector), name="lease informer")
            await lead(elector, prepare, work, replica.clock)
    finally:
        replica.metrics.remove(registry.text)


async def _follow_lease(replica: Replica, elector: Elector) -> None:
    """Watch the Lease: one that is given back need not be waited for."""
    informers = Informers(replica.client, replica.clock, replica.rng)
    lease = informers.of(LEASES, LEASE_NAMESPACE, fields=f"metadata.name={LEASE}")

    def changed(new: dict[str, Any] | None, old: dict[str, Any] | None) -> None:
        if new is None or not dig(new, "spec", "holderIdentity"):
            elector.nudge()

    lease.on_change(changed)
    await informers.run()


async def _fenced(replica: Replica, elector: Elector) -> Fence:
    fence = await acquire_fence(replica.store, LEASE, elector.identity, replica.lease_key, elector.revision)
    # The last leader's writes came before the fence; nothing is decided before the cache has them.
    await replica.caught_up()
    return fence


async def _until_broken(fence: Fence, work: Coroutine[Any, Any, None], passing: tuple[type[BaseException], ...]) -> None:
    """Raises NotLeading when the store refuses the leader's writes, and for passing errors."""
    working = asyncio.create_task(work, name="the leader's controllers")
    broken = asyncio.create_task(fence.broken.wait())
    try:
        await asyncio.wait([working, broken], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise NotLeading(LEASE)
        error = working.exception()
        if error is None:
            return
        if not all(isinstance(each, passing) for each in _innermost(error)):
            raise error
        log.warning("the controllers ended and begin anew: %s", "; ".join(str(each) for each in _innermost(error)))
        raise NotLeading(LEASE) from error
    finally:
        for task in (working, broken):
            task.cancel()
        await asyncio.gather(working, broken, return_exceptions=True)


def _innermost(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _innermost(each)]


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
