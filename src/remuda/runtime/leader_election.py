"""Leader election on a Lease, as in client-go: the replica that keeps renewing leads, the others wait until the lease expires.

No clock is compared with another one. A candidate notes on its own monotonic clock when it last saw the Lease *change*, and
takes it over only when it saw no change for the lease's whole duration. The leader counts from before it sent the last renewal
that succeeded, gives up `renew_deadline` seconds after that, and is refused writes from then on (:meth:`Elector.fenced`), which
is `lease_duration - renew_deadline` seconds before another replica can begin.

On a clean stop the Lease is released, and the next candidate takes it within a retry period, or at once after a
:meth:`Elector.nudge`. :func:`lead` runs its work for as long as this process leads, again and again.

Where the store takes part, :mod:`remuda.apiserver.replicas.leadership` also refuses writes that were already under way when
leadership ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from remuda.client.interface import Client, Send, WrappedClient
from remuda.kube.builtin_resources import LEASES
from remuda.kube.clock import Clock, Rng, Timer, deadline, rfc3339_micro
from remuda.kube.errors import ApiError, Fenced
from remuda.kube.objects import with_metadata

from .metrics import Counter, Registry

log = logging.getLogger(__name__)

Obj = dict[str, Any]
T = TypeVar("T")

_JITTER = 1.2


class NotLeading(ApiError):
    """A write while this process did not lead (any more); it was not sent, or it is unknown whether it arrived."""

    def __init__(self, lease: str) -> None:
        super().__init__(503, "NotLeading", f"this process does not hold the lease {lease}")


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """The durations of leader election, in seconds."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period * _JITTER > 0:
            raise ValueError("a lease must last longer than its renewal may take, and that longer than a retry period")


@dataclass(slots=True)
class _Record:
    """The Lease's content as last seen, and the time of its last change here."""

    lease: Obj
    since: float

    @property
    def spec(self) -> Obj:
        return self.lease.get("spec") or {}

    @property
    def holder(self) -> str:
        return self.spec.get("holderIdentity") or ""

    def valid(self, now: float) -> bool:
        return self.since + float(self.spec.get("leaseDurationSeconds") or 0) > now


class Elector:
    """One candidate. `identity` must differ between all candidates, also between two runs of one process."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Rng,
        *,
        namespace: str,
        name: str,
        identity: str,
        term: LeaseTerm = LeaseTerm(),
        registry: Registry | None = None,
    ) -> None:
        self.name = name
        self.identity = identity
        self._client = client
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._term = term
        self._seen: _Record | None = None
        # The end of our term, on our own clock; counted from before the last good renewal was sent.
        self._until = 0.0
        self._nudged = asyncio.Event()
        self._slow: Counter | None = None
        if registry is not None:
            status = registry.gauge("leader_election_master_status", "Whether this process leads.", ("name",))
            status.read(lambda: [((name,), 1.0 if self.leading else 0.0)])
            self._slow = registry.counter("leader_election_slowpath_total", "Renewals that had to read the lease.", ("name",))

    @property
    def leading(self) -> bool:
        """True only while no other replica can lead, regardless of the network and of our own pauses."""
        return self._clock.monotonic() < self._until

    @property
    def pause(self) -> float:
        """The pause between two attempts of one candidate."""
        return self._term.retry_period * self._rng.uniform(1.0, _JITTER)

    @property
    def leader(self) -> str:
        """The leader's identity, as far as it is known here."""
        return self._seen.holder if self._seen is not None else ""

    @property
    def revision(self) -> int:
        """The resourceVersion of the Lease as last seen or written here."""
        return int(self._seen.lease["metadata"]["resourceVersion"]) if self._seen is not None else 0

    def nudge(self) -> None:
        """The Lease may be free: a waiting candidate checks it now, and not only after its retry period."""
        self._nudged.set()

    @asynccontextmanager
    async def fenced(self) -> AsyncIterator[None]:
        """Runs a write inside: it is refused when this process does not lead, and cancelled when leadership ends meanwhile.

        When the term is renewed meanwhile, the write continues, however long it takes.
        """
        if not self.leading:
            raise NotLeading(self.name)
        task = asyncio.current_task()
        assert task is not None
        timer: Timer
        ended = False

        def look() -> None:
            nonlocal ended, timer
            left = self._until - self._clock.monotonic()
            if left > 0:
                timer = self._clock.call_later(left, look)
                return
            ended = True
            task.cancel()

        timer = self._clock.call_later(self._until - self._clock.monotonic(), look)
        try:
            yield
        except asyncio.CancelledError:
            if ended and task.uncancel() == 0:
                raise NotLeading(self.name) from None
            raise
        finally:
            timer.cancel()

    async def acquire(self) -> None:
        """Return when this process leads."""
        log.info("waiting for the lease %s/%s as %s", self._namespace, self.name, self.identity)
        while True:
            self._nudged.clear()
            if await self._try():
                break
            timer = self._clock.call_later(self.pause, self._nudged.set)
            try:
                await self._nudged.wait()
            finally:
                timer.cancel()
        log.info("leading: %s/%s", self._namespace, self.name)

    async def keep(self) -> None:
        """Renew until that fails for too long; return then. Leadership has ended when this returns."""
        while self.leading:
            await self._clock.sleep(min(self._term.retry_period, max(self._until - self._clock.monotonic(), 0.0)))
            left = self._until - self._clock.monotonic()
            if left <= 0:
                break
            try:
                async with deadline(self._clock, left):
                    await self._try()
            except TimeoutError:
                break
            if self._seen is not None and self._seen.holder != self.identity:
                break
        self._until = 0.0
        log.warning("no longer leading: %s/%s", self._namespace, self.name)

    async def release(self) -> None:
        """Release the Lease, so that another replica need not wait for its expiry; call it when all writes have ended."""
        seen, held = self._seen, self.leading
        self._until = 0.0
        if not held or seen is None or seen.holder != self.identity:
            return
        now = rfc3339_micro(self._clock.time())
        spec = {**seen.spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            async with deadline(self._clock, self._term.renew_deadline):
                await self._client.update(LEASES, {**seen.lease, "spec": spec})
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("the lease %s/%s was not given back: %s", self._namespace, self.name, error)

    # --- one attempt ---------------------------------------------------------------------------------------------------

    async def _try(self) -> bool:
        began = self._clock.monotonic()
        try:
            async with deadline(self._clock, self._term.renew_deadline):
                return await self._acquire_or_renew(began)
        except (ApiError, OSError, TimeoutError) as error:
            log.debug("the lease %s/%s: %s", self._namespace, self.name, error)
            return False

    async def _acquire_or_renew(self, began: float) -> bool:
        seen = self._seen
        if seen is not None and seen.holder == self.identity and self.leading:
            # Most renewals need no read: our last write is still there, or else the new one is refused.
            try:
                return await self._write(seen.lease, began, renewal=True)
            except ApiError as error:
                if not error.is_conflict and not error.is_not_found:
                    raise
                if self._slow is not None:
                    self._slow.add(self.name)
        try:
            lease = await self._client.get(LEASES, self.name, self._namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return await self._create(began)
        seen = self._observe(lease)
        ours = seen.holder == self.identity
        if seen.holder and not ours and seen.valid(self._clock.monotonic()):
            return False
        # Our own expired Lease counts as another's: others may have waited it out, and the write decides.
        return await self._write(lease, began, renewal=ours)

    def _observe(self, lease: Obj) -> _Record:
        if self._seen is None or (self._seen.lease.get("spec") or {}) != (lease.get("spec") or {}):
            self._seen = _Record(lease, self._clock.monotonic())
        return self._seen

    async def _create(self, began: float) -> bool:
        metadata = {"name": self.name, "namespace": self._namespace}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._spec({}, False)}
        self._lead(await self._client.create(LEASES, lease, self._namespace), began)
        return True

    async def _write(self, lease: Obj, began: float, *, renewal: bool) -> bool:
        """Compare and set by resourceVersion: of several candidates, one succeeds."""
        spec = self._spec(lease.get("spec") or {}, renewal)
        self._lead(await self._client.update(LEASES, {**lease, "spec": spec}), began)
        return True

    def _lead(self, lease: Obj, began: float) -> None:
        self._seen = _Record(with_metadata(lease, managedFields=None), self._clock.monotonic())
        self._until = began + self._term.renew_deadline

    def _spec(self, old: Obj, renewal: bool) -> Obj:
        now = rfc3339_micro(self._clock.time())
        transitions = int(old.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            # Rounded up: for others it must not be shorter than for us.
            "leaseDurationSeconds": -int(-self._term.lease_duration // 1),
            "acquireTime": old.get("acquireTime") or now if renewal else now,
            "renewTime": now,
            "leaseTransitions": transitions if renewal or not old else transitions + 1,
        }


async def lead(
    elector: Elector, prepare: Callable[[], Awaitable[T]], work: Callable[[T], Coroutine[Any, Any, None]], clock: Clock
) -> None:
    """While this process leads, `prepare`, then `work` with its result; until cancelled, or until `work` fails.

    Lost leadership ends the work: it is cancelled and awaited. Work that ends by itself, or with NotLeading, ends the
    term as well. The Lease is given back unless it is lost. It is not renewed while `prepare` runs, which so knows its revision.
    """
    while True:
        await elector.acquire()
        tasks: list[asyncio.Task[None]] = []
        lost = False
        try:
            prepared = await prepare()
            tasks.append(asyncio.create_task(work(prepared), name=f"work of {elector.name}"))
            tasks.append(asyncio.create_task(elector.keep(), name="lease"))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            lost = tasks[1].done()
        except NotLeading as error:
            log.warning("%s", error)
        finally:
            # The work first: as long as it runs, the Lease should be held.
            for task in tasks:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await elector.release()
        _raise_failure(tasks[:1], lost)
        # Not at once: the cause may need a moment to pass, and another replica may lead meanwhile.
        await clock.sleep(elector.pause)


def _raise_failure(tasks: list[asyncio.Task[None]], lost: bool) -> None:
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is None or isinstance(error, NotLeading):
            continue
        if not lost:
            raise error
        log.warning("the %s was not left in order: %r", task.get_name(), error)


# --- guarded client -------------------------------------------------------------------------------------------------------
#
# A `Client` that always reads, and writes only while this process leads.


class GuardedClient(WrappedClient):
    """Each write goes through :meth:`Elector.fenced`, and through `around`: the store's fence where it takes part."""

    def __init__(
        self, client: Client, elector: Elector, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(client)
        self._elector = elector
        self._around = around

    async def _call(self, send: Send, *, write: bool) -> Any:
        if not write:
            return await send()
        async with self._elector.fenced():
            try:
                with self._around():
                    return await send()
            except Fenced as error:
                raise NotLeading(self._elector.name) from error
