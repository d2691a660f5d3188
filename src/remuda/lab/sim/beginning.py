"""The initial state of simulated servers: kinds and namespaces that exist already.

The objects that a server makes at its first start, and the definitions of all kinds, are the same for each simulation, and take
most of the time of a short one. They are made once in a process, by a real server with its controllers; servers in memory start
from the result (:class:`remuda.apiserver.storage.memory.InitialState`), and their writes are their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda import kcm
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.memory import InitialState
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import Entropy, Rng, VirtualClock

Obj = dict[str, Any]


# Earlier than the clock of any simulation, also the system's: no timestamp is in the future.
_TIME = 1_600_000_000.0
_REST_SECONDS = 60.0


@dataclass
class Beginning:
    """Kinds by their definitions, namespaces, and whether the default roles and kube-controller-manager's work exist."""

    definitions: Callable[[], Iterable[Obj]] = tuple
    namespaces: tuple[str, ...] = ()
    default_roles: bool = True
    controllers: bool = True
    _base: InitialState | None = field(default=None, init=False, repr=False)

    async def base(self) -> InitialState:
        """The content of a server whose kinds are established and whose controllers have become idle."""
        if self._base is None:
            self._base = await self._make()
        return self._base

    async def _make(self) -> InitialState:
        clock = VirtualClock(_TIME)
        config = Config(data_dir=None, clock=clock, rng=Rng(0), entropy=Entropy(0), default_roles=self.default_roles)
        server = await Server.open(config)
        running = []
        if self.controllers:
            keeper = InProcessClient(server, manager="kube-controller-manager")
            running.append(asyncio.create_task(kcm.run(keeper, clock, Rng(0))))
        try:
            client = InProcessClient(server, manager="kubectl")
            for definition in self.definitions():
                await client.create(CRDS, definition)
            for name in self.namespaces:
                await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            if running:
                await clock.advance(_REST_SECONDS)
            return InitialState.of(await server.store.range(""))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await server.close()


# A new Kubernetes: with its controllers' first work done; without it; and without the default roles, too.
FURNISHED = Beginning()
BARE = Beginning(controllers=False)
EMPTY = Beginning(default_roles=False, controllers=False)
