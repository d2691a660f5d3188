"""What the controllers of the core share."""

from __future__ import annotations

import asyncio

from remuda.apiserver.inprocess import InProcessClient
from remuda.capi.controller_context import Core
from remuda.kube.clock import Rng
from remuda.kube.objects import Key
from remuda.runtime import Manager

from .memory_clusters import NAMESPACE, world


async def test_no_reconcile_begins_before_every_cache_is_filled() -> None:
    async with world() as w:
        manager = Manager(InProcessClient(w.server), w.clock, Rng(2))
        core = Core(manager, w.workloads)
        beginning = asyncio.create_task(core.fresh("machine", Key(NAMESPACE, "m1")))
        await w.settle(100)
        assert not beginning.done()
        running = asyncio.create_task(manager.run())
        await w.settle()
        assert beginning.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
