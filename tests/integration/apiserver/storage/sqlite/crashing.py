"""The process that :mod:`.test_crash` kills: many writers and a watcher on one store, each telling what it knows.

Lines on standard output, each written at once: `ack <revision> <key> <value>` after a write has returned, `saw <revision>
<key>` for each watched event, `ready` at the beginning.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import Delete, Op, Put
from remuda.kube.clock import SYSTEM_CLOCK


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def write(store: SqliteStore, name: str, chance: random.Random) -> None:
    """Writes that survive any crash can be told apart: a value names its writer and its count."""
    live: set[str] = set()
    count = 0
    while True:
        count += 1
        key = f"/crash/{name}/{chance.randrange(20)}"
        if key in live and chance.random() < 0.3:
            revision = await store.write([Delete(key)])
            live.discard(key)
            tell(f"ack {revision} {key} -")
            continue
        value = f"{name}-{count}-" + "x" * chance.randrange(3000)
        ops: list[Op] = [Put(key, value.encode())]
        if chance.random() < 0.2:
            ops.append(Put(key + "/pair", value.encode()))
        revision = await store.write(ops)
        live.add(key)
        for op in ops:
            tell(f"ack {revision} {op.key} {value[:40].split('x')[0]}")


class Watching:
    """Tells what it sees, and up to where."""

    def __init__(self, store: SqliteStore, after: int) -> None:
        self.store = store
        self.reached = after

    async def run(self) -> None:
        async with self.store.watch(self.reached) as events:
            async for batch in events:
                for event in batch:
                    tell(f"saw {event.revision} {event.key}")
                self.reached = batch[-1].revision


async def forget(store: SqliteStore, watching: Watching) -> None:
    """Compaction and pruning go on as well, but never over what a watcher that is resumed may still ask for."""
    while True:
        await SYSTEM_CLOCK.sleep(0.01)
        await store.compact(max(watching.reached - 200, 0))
        await store.prune()


async def main(path: Path, seed: str, after: int) -> None:
    store = await SqliteStore.open(path, SYSTEM_CLOCK)
    watching = Watching(store, after)
    tell("ready")
    async with asyncio.TaskGroup() as group:
        group.create_task(watching.run())
        group.create_task(forget(store, watching))
        for index in range(12):
            group.create_task(write(store, f"{seed}.{index}", random.Random(f"{seed}.{index}")))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
