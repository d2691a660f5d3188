"""What a server tells the others stays in its record as long as it lives."""

from __future__ import annotations

import asyncio

from remuda.apiserver.replicas.server_leases import SECONDS, ServerLease
from remuda.apiserver.storage.memory import MemoryStore
from remuda.kube.clock import Entropy, VirtualClock


async def test_what_a_server_publishes_is_found_until_it_leaves() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    one, two, restore = (ServerLease(store, clock, Entropy(seed), restoring=seed == 3) for seed in (1, 2, 3))
    await one.announce()
    await two.announce()
    assert await one.published() == {}
    await two.publish("text")
    assert await one.published() == {two.id: "text"}
    assert await two.published() == {}
    keeping = asyncio.create_task(two.keep())
    await clock.advance(2 * SECONDS)
    assert await one.published() == {two.id: "text"}, "renewed with it"
    before = store.revision
    await two.publish("text")
    assert store.revision == before, "nothing new"
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await two.leave()
    assert await one.published() == {}
    await restore.put()
    assert await one.published() == {}, "a restore is no server"
