"""Controllers from start to end: informers first, then work; a clean stop finishes running reconciles, or cancels them in time.

Without an elector controllers work as long as :meth:`Manager.run` does. With one they work while this process leads; the
informers run all the time, so that a standby takes over with full caches. Each term has queues of its own: keys that were queued
in an earlier one are found again from the caches, as after a crash.

Cancelling a reconcile is safe because any reconcile may be the first after a crash; it is cancelled at its next await.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, deadline, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key
from remuda.kube.waits import Actor, Code, Ref, Wait

from .controller import Reconciler, Watch
from .events import Recorder
from .informer import Informer, Informers, synced
from .leader_election import Elector, GuardedClient
from .metrics import QueueMetrics, ReconcileMetrics, Registry
from .work_queue import FRESH, LOW, WorkQueue
from .workers import DONE, Freshness, Result, Retry, Workers, logger

log = logger(__name__)

Obj = dict[str, Any]

# A Retry usually succeeds at once; until this many in a row the earlier waits stand.
_FEW_RETRIES = 3
_LONGEST_REASON = 500


def _informer(informers: Informers, watch: Watch) -> Informer:
    return informers.of(
        watch.resource,
        watch.namespace,
        labels=watch.labels,
        fields=watch.fields,
        metadata_only=watch.metadata_only,
        transform=watch.transform,
    )


def _said(result: Result) -> list[str]:
    return [f"{wait.message()} ({wait.code})" for wait in result.waits]


def _reason(error: Exception) -> str:
    """The first line of an error, cut; with its type where the message alone may say nothing."""
    plain = isinstance(error, ApiError | Retry | TimeoutError)
    text = str(error) if plain else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [""])[0][:_LONGEST_REASON]


class RunningController:
    """One controller at work, for one term."""

    def __init__(self, reconciler: Reconciler, informers: Informers, clock: Clock, rng: Rng, registry: Registry) -> None:
        declared = reconciler.controller
        self.name = declared.name
        self._declared = declared
        self._informers = informers
        self._clock = clock
        self._rng = rng
        self.queue: WorkQueue[Key] = WorkQueue(
            clock,
            rng,
            backoff=declared.backoff,
            cap=declared.backoff_cap,
            lane=declared.lane,
            metrics=QueueMetrics(registry, declared.name),
        )
        self.waits: dict[Key, Result] = {}
        self._workers: Workers[Key] = Workers(
            declared.name,
            self.queue,
            reconciler.reconcile,
            declared.concurrency,
            clock=clock,
            rng=rng,
            timeout=declared.timeout,
            wait_seconds=declared.wait,
            metrics=ReconcileMetrics(registry, declared.name),
            on_result=self._noted,
            on_failure=self._failed,
        )
        self._stops: list[Callable[[], None]] = []
        gauge = registry.gauge("remuda_waiting", "Objects that wait, by reason.", ("controller", "code"))
        self._stops.append(gauge.read(self._waiting))

    def _noted(self, key: Key, result: Result) -> None:
        before = self.waits.pop(key, DONE)
        if result.waits:
            self.waits[key] = replace(result, waits=tuple(self._dated(wait, before) for wait in result.waits))
        if log.isEnabledFor(logging.DEBUG) and (said := _said(result)) != _said(before):
            log.debug("%s", "; ".join(said) or "waits for nothing any more")

    def _failed(self, key: Key, error: Exception) -> None:
        """Replaces the waits of a key whose reconcile failed: they were true before, and may not be now."""
        before = self.waits.get(key, DONE)
        passes = isinstance(error, Retry)
        if passes and self.queue.failures(key) < _FEW_RETRIES:
            return
        by_user = isinstance(error, ApiError) and error.needs_user
        if by_user:
            # A user mends it, and expects it to continue soon: no longer pause than that of a wait.
            self.queue.add_after(key, self._declared.wait, LOW)
        subject = self._subject(key, before)
        if subject is None:
            self.waits.pop(key, None)
            return
        code = Code.STEP if passes else Code.FAILED
        since = next((each.since for each in before.waits if each.code is code), "") or rfc3339(self._clock.time())
        actor = Actor.USER if by_user else Actor.REMUDA
        self.waits[key] = Result(waits=(Wait(code, subject, actor, evidence=_reason(error), since=since),))

    def _subject(self, key: Key, before: Result) -> Ref | None:
        declared = self._declared
        if declared.subject is not None:
            return declared.subject(key)
        found = _informer(self._informers, declared.primary).get(*key)
        # Items of a list of a built-in type have no kind.
        if found is not None and found.get("kind"):
            return Ref(declared.resource.group, found["kind"], *key)
        named = (each.subject for each in before.waits if (each.subject.namespace, each.subject.name) == key)
        return next(named, Ref(declared.resource.group, declared.resource.resource, *key))

    def _dated(self, wait: Wait, before: Result) -> Wait:
        """The wait with its start: its own, else the time when this process first saw it."""
        if wait.since:
            return wait
        same = (each.since for each in before.waits if replace(each, since="") == wait)
        return replace(wait, since=next(same, rfc3339(self._clock.time())))

    def _waiting(self) -> list[tuple[tuple[str, ...], float]]:
        codes = Counter(wait.code.value for result in self.waits.values() for wait in result.waits)
        return [((self.name, code), float(count)) for code, count in codes.items()]

    def watch(self, watch: Watch, informer: Informer | None = None) -> Callable[[], None]:
        """Add a watch, also while it works; `informer` when it is for another server than the controller's own.

        Call the result to end that.
        """
        # An informer without objects is false.
        found = informer if informer is not None else _informer(self._informers, watch)

        def changed(new: Obj | None, old: Obj | None) -> None:
            if not watch.when(new, old):
                return
            priority = LOW if found.initial else FRESH
            for obj in (new, old):
                if obj is not None:
                    for key in watch.to(obj):
                        self.queue.add(key, priority)

        stop = found.on_change(changed)
        self._stops.append(stop)

        def end() -> None:
            # Also dropped from the list, or the informer of a deleted cluster would be kept for as long as this works.
            stop()
            if stop in self._stops:
                self._stops.remove(stop)

        return end

    async def run(self) -> None:
        """Work until the queue is closed, or until cancelled."""
        declared = self._declared
        primary = _informer(self._informers, declared.primary)
        try:
            # All objects that a reconcile reads must be in the caches before the first one.
            await synced(primary, *(_informer(self._informers, watch) for watch in declared.watches))
            for watch in (declared.primary, *declared.watches):
                self.watch(watch)
            self._stops.append(primary.on_change(self._forget_gone))
            async with asyncio.TaskGroup() as group:
                resync = group.create_task(self._resync(primary)) if declared.resync else None
                await self._workers.run()
                if resync is not None:
                    resync.cancel()
        finally:
            for stop in self._stops:
                stop()
            self._stops.clear()
            self.queue.close()

    def _forget_gone(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None:
            self.waits.pop(Key.of(old), None)
            self.queue.drop(Key.of(old))

    async def _resync(self, primary: Informer) -> None:
        while True:
            await self._clock.sleep(self._declared.resync * self._rng.uniform(0.9, 1.1))
            for key in list(primary.keys()):
                self.queue.add(key, LOW)


class _Following:
    """A watch that a controller adds to those it declares; it stays across terms."""

    def __init__(self, name: str, watch: Watch, informer: Informer | None) -> None:
        self.name = name
        self._watch = watch
        self._informer = informer
        self._stop: Callable[[], None] | None = None

    def begin(self, working: RunningController) -> None:
        self._stop = working.watch(self._watch, self._informer)

    def end(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None


class Manager:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Rng,
        *,
        registry: Registry | None = None,
        elector: Elector | None = None,
        grace: float = 30.0,
    ) -> None:
        """`grace`: the time for running reconciles to finish when the manager is told to stop."""
        self.client: Client = GuardedClient(client, elector) if elector is not None else client
        self.clock = clock
        self.rng = rng
        self.registry = registry or Registry()
        self.informers = Informers(client, clock, rng, registry=self.registry)
        self.freshness = Freshness(clock)
        self._elector = elector
        self._grace = grace
        self._reconcilers: list[Reconciler] = []
        self._recorders: dict[str, Recorder] = {}
        self._working: dict[str, RunningController] = {}
        self._followed: list[_Following] = []
        self._aside: list[asyncio.Task[None]] = []
        self._beside: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def add(self, reconciler: Reconciler) -> None:
        """Call it before `run`. Its informers are requested at once, so that a standby fills their caches, too."""
        declared = reconciler.controller
        for watch in (declared.primary, *declared.watches):
            _informer(self.informers, watch)
        self._reconcilers.append(reconciler)

    def beside(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Another task that runs until cancelled whenever the controllers do (a connection keeper, a webhook server)."""
        self._beside.append(run)

    def recorder(self, component: str) -> Recorder:
        """The event recorder of a controller; it sends while the manager runs."""
        found = self._recorders.get(component)
        if found is None:
            found = self._recorders[component] = Recorder(self.client, self.clock, component)
            if self._working:
                self._aside.append(asyncio.create_task(found.run()))
        return found

    def follow(self, name: str, watch: Watch, informer: Informer | None = None) -> Callable[[], None]:
        """Add a watch to a controller, from now on and in every later term; call the result to remove it.

        `informer` when it is for another server than the manager's own.
        """
        following = _Following(name, watch, informer)
        self._followed.append(following)
        if (working := self._working.get(name)) is not None:
            following.begin(working)

        def stop() -> None:
            self._followed.remove(following)
            following.end()

        return stop

    def working(self, name: str) -> RunningController | None:
        """A running controller, by name: to add watches, to queue a key by hand, to see its waits."""
        return self._working.get(name)

    def waits(self) -> Iterator[Wait]:
        """The current waits of all controllers; none while they don't work."""
        for working in self._working.values():
            for result in working.waits.values():
                yield from result.waits

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Run until `stop` is set; then stop cleanly. Cancelling abandons everything at once."""
        stop = stop or asyncio.Event()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self.informers.run(), name="informers")
            try:
                if self._elector is None:
                    await self._term(stop)
                else:
                    await self._terms(self._elector, stop)
            finally:
                following.cancel()

    async def _terms(self, elector: Elector, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if not await _unless(stop, elector.acquire()):
                return
            lost = asyncio.Event()

            async def renew(lost: asyncio.Event = lost) -> None:
                await elector.keep()
                lost.set()

            keeping = asyncio.create_task(renew(), name="lease")
            try:
                await self._term(stop, lost)
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            if not lost.is_set():
                await elector.release()

    async def _term(self, stop: asyncio.Event, lost: asyncio.Event | None = None) -> None:
        """Work until told to stop (and finish), or until leadership is lost (and cancel)."""
        made = [RunningController(each, self.informers, self.clock, self.rng, self.registry) for each in self._reconcilers]
        self._working = {working.name: working for working in made}
        for following in self._followed:
            if (found := self._working.get(following.name)) is not None:
                following.begin(found)
        tasks = [asyncio.create_task(working.run(), name=working.name) for working in made]
        aside = self._aside = [
            asyncio.create_task(run()) for run in (*self._beside, *(each.run for each in self._recorders.values()))
        ]
        waiting = [asyncio.create_task(stop.wait())] + ([asyncio.create_task(lost.wait())] if lost is not None else [])
        try:
            done, _ = await asyncio.wait([*tasks, *aside, *waiting], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                # A part that ends by itself has failed; the caller gets its exception.
                if task not in waiting:
                    task.result()
            if stop.is_set() and not (lost is not None and lost.is_set()):
                await self._finish(made, tasks)
        finally:
            for task in (*tasks, *aside, *waiting):
                task.cancel()
            await asyncio.gather(*tasks, *aside, *waiting, return_exceptions=True)
            self._working = {}

    async def _finish(self, made: list[RunningController], tasks: list[asyncio.Task[None]]) -> None:
        for working in made:
            working.queue.close()
        try:
            async with deadline(self.clock, self._grace):
                if tasks:
                    await asyncio.wait(tasks)
                for recorder in self._recorders.values():
                    await recorder.flush()
        except TimeoutError:
            late = ", ".join(task.get_name() for task in tasks if not task.done())
            log.warning("abandoned after %.0fs: %s", self._grace, late)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, unless told to stop before its end; True if it was completed."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
