"""A core that dies in the middle of its work, and another that takes its place.

Death is as sudden as kill -9 makes it: the last write reaches the API and its answer nobody; no call that comes after it has
any effect. What the next core finds is what stands in the API.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from remuda.client.interface import Client
from remuda.lab.sim.capi_world import EmbeddedWorld

_WRITES = frozenset({"create", "update", "patch", "apply", "delete", "delete_collection"})
_CALLS = _WRITES | {"get", "list", "raw"}


class Mortal:
    """A client whose owner dies right after so many writes; None: never."""

    def __init__(self, client: Client, writes: int | None = None) -> None:
        self._client = client
        self._left = writes
        self._buried = False
        self.written = 0
        self.died = asyncio.Event()
        self.remote = client.remote

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if name not in _CALLS:
            return call

        async def alive(*args: Any, **options: Any) -> Any:
            await self._stop_if_dead()
            answer = await call(*args, **options)
            if name in _WRITES:
                self.written += 1
                if self._left is not None and self.written >= self._left:
                    self.died.set()
            # Also whoever was answered in the meantime does not know any more.
            await self._stop_if_dead()
            return answer

        return alive

    async def _stop_if_dead(self) -> None:
        if self._buried:
            raise ConnectionError("its process is dead")
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()

    def bury(self) -> None:
        """From here on calls fail at once, so that what is left of the core can be cleared away."""
        self.died.set()
        self._buried = True


class Lives:
    """How long each core lives in turn, in writes; the last for ever. `pause`: seconds between one and the next."""

    def __init__(self, world: EmbeddedWorld, writes: Callable[[int], int | None], pause: float) -> None:
        self._world = world
        self._writes = writes
        self._pause = pause
        self.cores: list[Mortal] = []

    @property
    def written(self) -> int:
        return sum(core.written for core in self.cores)

    def begin(self) -> None:
        self._world.start_core(self._through)

    def _through(self, client: Client) -> Any:
        self.cores.append(Mortal(client, self._writes(len(self.cores))))
        return self.cores[-1]

    async def go_on(self) -> None:
        """Whenever one dies, begin another."""
        while True:
            await self.cores[-1].died.wait()
            self.cores[-1].bury()
            await self._world.kill_core()
            if self._pause:
                await self._world.clock.sleep(self._pause)
            self.begin()


@contextlib.asynccontextmanager
async def lives(world: EmbeddedWorld, writes: Callable[[int], int | None], pause: float = 0.0) -> AsyncIterator[Lives]:
    """Cores that live for `writes(0)`, `writes(1)`, … writes, in place of the one that the world began with."""
    await world.kill_core()
    found = Lives(world, writes, pause)
    found.begin()
    keeper = asyncio.create_task(found.go_on())
    try:
        yield found
        if keeper.done():
            keeper.result()
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        found.cores[-1].bury()
        await world.kill_core()
