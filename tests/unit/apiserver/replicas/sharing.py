"""Two whole API servers on one store in memory, each over a line of its own whose feed can be held back.

The line stands for the network between a server and the store: what is asked of it or written to it passes at once, what
happened there is heard of when the line lets it through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Event, KeyValue, Mismatch, Op, Range, StoreError
from remuda.kube.clock import Clock, Entropy, Rng, VirtualClock, yield_to_loop
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
T = TypeVar("T")

SERVICES = GroupVersionResource("", "v1", "services")
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
PODS = GroupVersionResource("", "v1", "pods")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")


class Line:
    """A :class:`~remuda.apiserver.storage.store.Store`: one server's way to the one that it shares."""

    shared = True

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.revision = store.revision
        self._open = asyncio.Event()
        self._open.set()
        # What asking and writing meet, if not the store; and what writing meets although it was done.
        self.asking_fails: StoreError | None = None
        self.writing_fails: StoreError | None = None
        self.answers_lost: StoreError | None = None
        self.asked = 0
        self.refused = 0

    def hold(self) -> None:
        """From now on nothing is heard of what happens."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    @property
    def held(self) -> bool:
        return not self._open.is_set()

    def _heard(self, revision: int) -> int:
        self.revision = max(self.revision, revision)
        return revision

    def _ask(self) -> None:
        if self.asking_fails is not None:
            raise self.asking_fails

    @property
    def floor(self) -> int:
        return self.store.floor

    async def current(self) -> int:
        self.asked += 1
        self._ask()
        await yield_to_loop()
        return self._heard(await self.store.current())

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        self._ask()
        await yield_to_loop()
        return await self.store.get(key, revision)

    async def range(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Range:
        self._ask()
        await yield_to_loop()
        return await self.store.range(prefix, start=start, limit=limit, revision=revision)

    async def write(self, ops: Sequence[Op]) -> int:
        if self.writing_fails is not None:
            raise self.writing_fails
        await yield_to_loop()
        try:
            revision = await self.store.write(ops)
        except Mismatch:
            self.refused += 1
            raise
        await yield_to_loop()
        if self.answers_lost is not None:
            raise self.answers_lost
        return self._heard(revision)

    @asynccontextmanager
    async def watch(self, after: int, prefix: str = "", *, marks: bool = False) -> AsyncIterator[AsyncIterator[list[Event]]]:
        async with self.store.watch(after, prefix, marks=marks) as batches:
            yield self._through(batches)

    async def _through(self, batches: AsyncIterator[list[Event]]) -> AsyncIterator[list[Event]]:
        async for batch in batches:
            await self._open.wait()
            yield batch

    async def changes(self, after: int, until: int, prefix: str = "") -> list[Event]:
        self._ask()
        return await self.store.changes(after, until, prefix)

    async def compact(self, revision: int) -> None:
        await self.store.compact(revision)

    async def expire(self, now: float) -> int:
        return 0

    async def revision_at(self, time: float) -> int:
        return await self.store.revision_at(time)

    async def close(self) -> None:
        """The store outlives its servers."""


class Replica:
    """One server, its line, and a client of it."""

    def __init__(self, server: Server, line: Line) -> None:
        self.server = server
        self.line = line
        self.client = InProcessClient(server)

    @property
    def behind(self) -> bool:
        return self.server.cache.revision < self.line.store.revision

    async def told(self) -> None:
        """Wait until it knows everything."""
        self.line.release()
        await self.server.cache.reached(self.line.store.revision)

    async def while_behind(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of a call that begins while the server is behind, and is done when it has caught up."""
        assert self.line.held
        assert self.behind, "nothing has happened that it could be behind of"
        task = asyncio.ensure_future(work)
        await settle()
        self.line.release()
        return await task


async def settle() -> None:
    """Let everything that can run do so."""
    for _ in range(50):
        await yield_to_loop()


async def replica(store: MemoryStore, clock: Clock, number: int = 0, pki: Pki | None = None) -> Replica:
    line = Line(store)
    config = Config(None, default_roles=False, clock=clock, rng=Rng(number), entropy=Entropy(number), pki=pki, port=0)
    server = Server(config, line, None, pki)
    await server._start()
    return Replica(server, line)


@asynccontextmanager
async def replicas(
    count: int = 2, clock: Clock | None = None, store: MemoryStore | None = None, pki: Pki | None = None
) -> AsyncIterator[list[Replica]]:
    clock = clock or VirtualClock()
    store = store or MemoryStore(clock)
    made: list[Replica] = []
    try:
        for number in range(count):
            made.append(await replica(store, clock, number + 1, pki))
        for each in made:
            await each.told()
        yield made
    finally:
        for each in made:
            each.line.release()
            await each.server.close(0.01)


async def error_of(work: Coroutine[Any, Any, Any]) -> ApiError:
    try:
        answer = await work
    except ApiError as error:
        return error
    raise AssertionError(f"it worked: {answer}")


def service(name: str, **spec: Any) -> Obj:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ports": ports, "selector": {"app": name}, **spec},
    }


def namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(name: str, replicas: int) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
