"""One workload cluster: connect, probe, give up, connect again.

A link has one task for its whole life. It is nudged when something it may be waiting for has happened (the kubeconfig came or
changed, the control plane is up, the cluster's agent has called), so that long pauses between tries cost nothing; and told when
its client's tunnel is gone, so that no caller keeps that client until probes have failed. Clusters that have failed a few
times wait for each other's turn, and the other clusters don't wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from remuda.client.interface import Client
from remuda.client.kubeconfig import ConfigError
from remuda.kube.bounding import SizeLimits, bounded
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.errors import ApiError, OutOfReach
from remuda.kube.objects import Key, dig, metadata
from remuda.runtime import Informer, changed

from ..workload_clusters import PROVIDER_ID, Connector, Health, Losable

log = logging.getLogger(__name__)

Obj = dict[str, Any]
# A kubeconfig as its secret holds it; None while there is none.
ReadKubeconfig = Callable[[Key], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Times are seconds; those that Cluster API has, too, are as there.

    probe:      how often a connection is probed, `probe_timeout` how long that may take, `failures` how many in a row end it.
    retry:      the longest pause between tries to connect; the first is `first_retry`, each is twice the one before.
    sync:       how long the first list of nodes may take.
    connecting: how many clusters are connected to at a time.
    """

    namespace: str = ""
    watch_filter: str = ""
    probe: float = 10.0
    probe_timeout: float = 5.0
    failures: int = 5
    first_retry: float = 0.5
    retry: float = 30.0
    sync: float = 60.0
    connecting: int = 20


class Connected:
    """A working connection; implements the port's `Workload`."""

    def __init__(self, client: Client, informer: Informer, following: asyncio.Task[None], kubeconfig: bytes) -> None:
        self.client = client
        self.nodes = informer
        self.kubeconfig = kubeconfig
        # The functions that end the watches of its followers.
        self.stops: list[Callable[[], None]] | None = None
        self._following = following

    def unfollow(self) -> None:
        for stop in self.stops or ():
            stop()
        self.stops = None

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.client.close()


class AttemptLimits:
    """Limits for concurrent attempts: one for clusters that are likely to succeed, one for those that have failed a few times."""

    _LIKELY = 3

    def __init__(self, at_a_time: int) -> None:
        self._likely = asyncio.Semaphore(at_a_time)
        self._unlikely = asyncio.Semaphore(at_a_time)

    def of(self, attempt: int) -> asyncio.Semaphore:
        return self._likely if attempt < self._LIKELY else self._unlikely


_WAY_GONE = "its tunnel has ended, or leads elsewhere now"
# Every error by which a server, a network or a kubeconfig can prevent a connection.
_UNABLE = (ApiError, OSError, ValueError, ConfigError)


class _Lost(OSError):
    """The tunnel to the cluster was lost while it was connected."""


class _NoKubeconfig(Exception):
    """There is no secret to connect with, yet."""


class Accessor:
    """`on_change` is called when the connection comes or goes and when probes begin or cease to fail."""

    def __init__(
        self,
        cluster: Key,
        connector: Connector,
        kubeconfig: ReadKubeconfig,
        turns: AttemptLimits,
        rhythm: ProbeSchedule,
        options: CacheOptions,
        clock: Clock,
        rng: Rng,
        on_change: Callable[[Key, Connected | None], None],
    ) -> None:
        self.cluster = cluster
        self.connected: Connected | None = None
        self.health = Health()
        self.good_probes = 0
        self.failed_probes = 0
        self._connector = connector
        self._kubeconfig = kubeconfig
        self._turns = turns
        self._rhythm = rhythm
        self._options = options
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._nudged = asyncio.Event()
        self._news = self._due = False
        self._counted = float("-inf")
        self._complained = ""

    def nudge(self) -> None:
        """Look again now."""
        self._news = True
        self._nudged.set()

    def _to_be_probed(self) -> None:
        self._due = True
        self._nudged.set()

    async def run(self) -> None:
        """Keep the cluster connected until cancelled."""
        while True:
            found = await self._connect()
            try:
                self.connected = found
                self._succeeded()
                self._on_change(self.cluster, found)
                async with _while_it_leads_there(found.client):
                    await self._hold(found)
            except _Lost as error:
                log.warning("%s: disconnected: %s", self.cluster, error)
            except Exception:
                log.exception("%s: disconnected", self.cluster)
            finally:
                self.connected = None
                found.unfollow()
                self._on_change(self.cluster, None)
                await found.close()

    # --- connecting -----------------------------------------------------------------------------------------------------

    async def _connect(self) -> Connected:
        attempts = count()
        while True:
            attempt = next(attempts)
            self._nudged.clear()
            pause = min(self._options.retry, self._options.first_retry * 2 ** min(attempt, 16))
            unwatch: Callable[[], None] | None = None
            try:
                async with self._turns.of(attempt):
                    return await self._try()
            except _NoKubeconfig:
                pause = self._options.retry
                self._failed_to_connect()
            except _UNABLE as error:
                self._failed_to_connect()
                self._complain(str(error) or type(error).__name__)
                unwatch = error.watch(self.nudge) if isinstance(error, OutOfReach) else None
            except Exception:
                self._failed_to_connect()
                log.exception("%s: can't connect; again in %.0fs", self.cluster, pause)
            try:
                if await self._rest(pause * self._rng.uniform(0.8, 1.2)):
                    attempts = count()
            finally:
                if unwatch is not None:
                    unwatch()

    async def _try(self) -> Connected:
        options, clock = self._options, self._clock
        kubeconfig = await self._kubeconfig(self.cluster)
        if kubeconfig is None:
            raise _NoKubeconfig
        async with deadline(clock, 2 * options.probe_timeout):
            client = await self._connector.connect(self.cluster, kubeconfig)
        following: asyncio.Task[None] | None = None
        try:
            async with _while_it_leads_there(client):
                await self._probe(client)
                indexes = {PROVIDER_ID: provider_ids}
                informer = Informer(client, NODES, clock, self._rng, indexes=indexes, transform=slim, most=MOST)
                following = asyncio.create_task(informer.run(), name=f"nodes of {self.cluster}")
                async with deadline(clock, options.sync):
                    await informer.synced.wait()
        except BaseException:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await client.close()
            raise
        log.info("%s: connected", self.cluster)
        self._complained = ""
        return Connected(client, informer, following, kubeconfig)

    def _failed_to_connect(self) -> None:
        now = self._clock.time()
        if now - self._counted < 0.7 * self._options.retry:
            # Quick tries in a row count as one, so that a count means as much time as it does when probes fail.
            self.health = Health(self.health.last_success, now, self.health.failures)
            return
        self._counted = now
        self._failed(now)
        if self.health.last_success is None and self.health.failures == self._options.failures:
            self._on_change(self.cluster, None)

    def _complain(self, why: str) -> None:
        """Log why the cluster can't be connected to; once, as long as the reason stays the same."""
        if why != self._complained:
            log.warning("%s: can't connect: %s", self.cluster, why)
        self._complained = why

    # --- connected ------------------------------------------------------------------------------------------------------

    async def _hold(self, found: Connected) -> None:
        """Probe until the connection must be given up, or another kubeconfig has come."""
        leave = self._rhythm.join(self._to_be_probed)
        try:
            while True:
                await self._nudged.wait()
                self._nudged.clear()
                news, due, self._news, self._due = self._news, self._due, False, False
                if news and await self._replaced(found.kubeconfig):
                    log.info("%s: the kubeconfig has changed", self.cluster)
                    return
                if due and (why := await self._lost(found)):
                    log.warning("%s: disconnected: %s", self.cluster, why)
                    return
        finally:
            leave()

    async def _replaced(self, kubeconfig: bytes) -> bool:
        try:
            present = await self._kubeconfig(self.cluster)
        except _UNABLE as error:
            # A missing or broken kubeconfig is no reason to give up a working connection.
            log.warning("%s: the kubeconfig can't be read: %s", self.cluster, error)
            return False
        return present is not None and present != kubeconfig

    async def _lost(self, found: Connected) -> str:
        """Probe once and note the result; the reason to give up the connection, or ""."""
        before = self.health.failures
        try:
            await self._probe(found.client)
        except (ApiError, OSError) as error:
            self.failed_probes += 1
            self._failed(self._clock.time())
            log.debug("%s: probe failed: %s", self.cluster, error or type(error).__name__)
            if before == 0:
                self._on_change(self.cluster, found)
            if isinstance(error, ApiError) and error.code == 401:
                return "unauthorized"
            return "" if self.health.failures < self._options.failures else f"probes fail: {error or type(error).__name__}"
        self.good_probes += 1
        self._succeeded()
        if before:
            self._on_change(self.cluster, found)
        return ""

    async def _probe(self, client: Client) -> None:
        # In this process the cheapest request will do; a remote server must also authenticate us.
        async with deadline(self._clock, self._options.probe_timeout):
            await client.raw("GET", "/" if client.remote else "/version")

    def _succeeded(self) -> None:
        now = self._clock.time()
        self.health = Health(now, now, 0)

    def _failed(self, now: float) -> None:
        self.health = Health(self.health.last_success, now, self.health.failures + 1)

    async def _rest(self, seconds: float) -> bool:
        """Wait; True when nudged before the time was over."""
        with contextlib.suppress(TimeoutError):
            async with deadline(self._clock, seconds):
                await self._nudged.wait()
        return self._nudged.is_set()


@contextlib.asynccontextmanager
async def _while_it_leads_there(client: Client) -> AsyncIterator[None]:
    """Raise _Lost inside the block once a client's tunnel is gone, also during any wait there."""
    if not isinstance(client, Losable):
        yield
        return
    task = asyncio.current_task()
    assert task is not None
    inside, gone, ended = True, False, False

    def lost() -> None:
        nonlocal gone
        gone = True
        # Not from within: the caller may be the very task that is told.
        asyncio.get_running_loop().call_soon(end)

    def end() -> None:
        nonlocal ended
        if inside:
            ended = True
            task.cancel()

    stop = client.on_lost(lost)
    try:
        yield
        if gone:
            raise _Lost(_WAY_GONE)
    except asyncio.CancelledError:
        if ended and task.uncancel() == 0:
            raise _Lost(_WAY_GONE) from None
        raise
    finally:
        inside = False
        stop()


# --- probe schedule -------------------------------------------------------------------------------------------------------
#
# The schedule of probes: each cluster once in an interval, a share of them at each beat.
#
# One timer for all. A timer for each would wake the process as often as there are clusters, which at rest costs more than the
# probes themselves; and clusters that were connected together would be probed together for ever.

_BEATS = 20


class ProbeSchedule:
    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._pause = interval / _BEATS
        self._members: list[dict[object, Callable[[], None]]] = [{} for _ in range(_BEATS)]
        self._anybody = asyncio.Event()

    def join(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once in an interval, spread over the beats; call the result to end that."""
        share = min(self._members, key=len)
        token = object()
        share[token] = call
        self._anybody.set()

        def leave() -> None:
            share.pop(token, None)

        return leave

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            if not any(self._members):
                self._anybody.clear()
            await self._anybody.wait()
            for share in self._members:
                await self._clock.sleep(self._pause)
                for call in list(share.values()):
                    call()


# --- nodes ----------------------------------------------------------------------------------------------------------------
#
# The cached fields of a workload cluster's nodes: what the core and providers read. A list of images is most of a node.

_META = ("name", "uid", "resourceVersion", "labels", "annotations", "creationTimestamp", "deletionTimestamp", "finalizers")
_SPEC = ("providerID", "taints", "unschedulable")
_STATUS = ("addresses", "nodeInfo", "volumesAttached")
# Nodes of a workload cluster may hold anything, and much of it is repeated in Machines' status. Volumes are only waited for.
_BOUNDS = {"volumesAttached": SizeLimits(items=1024, total=256 << 10)}
# More than Kubernetes itself accepts, so that no real value is cut.
_META_BOUNDS = SizeLimits(text=256 << 10, items=4096, total=512 << 10)
# The nodes of a cluster that has more are not watched.
MOST = 20_000


def slim(node: Obj) -> Obj:
    status = {key: value for key, value in (node.get("status") or {}).items() if key in _STATUS}
    conditions = dig(node, "status", "conditions")
    if conditions:
        # A kubelet updates its heartbeats every few minutes, which is no change that matters.
        status["conditions"] = [
            {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
            for each in conditions
            if isinstance(each, dict)
        ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": bounded({key: value for key, value in metadata(node).items() if key in _META}, _META_BOUNDS)[0],
        "spec": bounded({key: value for key, value in (node.get("spec") or {}).items() if key in _SPEC})[0],
        "status": {key: bounded(value, _BOUNDS.get(key, SizeLimits()))[0] for key, value in status.items()},
    }


def _without_revision(node: Obj) -> Obj:
    return {key: value for key, value in node["metadata"].items() if key != "resourceVersion"}


# True if any cached field but the revision has changed.
node_change = changed("spec", "status", _without_revision)


def provider_ids(node: Obj) -> Iterable[str]:
    found = dig(node, "spec", "providerID")
    return (found,) if found else ()
