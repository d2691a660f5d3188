"""Three members that die, hang and come back at random, under clients that count, make, delete, read and watch.

:mod:`tests.unit.apiserver.storage.histories` says what must be true of it all. The seed is printed; `REMUDA_SEED` repeats the
choices, `make soak` goes on for longer.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.store import Delete, Event, Mismatch, Put, Unavailable, Unknown
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from tests.integration.apiserver.storage.conftest import new_prefix
from tests.real import need
from tests.real.etcd import Chaos, EtcdCluster
from tests.unit.apiserver.storage.histories import DONE, NOT_DONE, UNKNOWN, History, Read, Write, check

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(600)]

SECONDS = 120.0 if os.environ.get("REMUDA_SOAK") == "1" else 15.0
SERVERS = 3
COUNTERS = ["/count/0", "/count/1"]
END = "end"
ENDS = ["/", "/count/", "/made/"]


@pytest.fixture
def seed() -> int:
    found = int(os.environ.get("REMUDA_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {found} (REMUDA_SEED={found} repeats the choices)")
    return found


@pytest.fixture
def trio() -> Iterator[EtcdCluster]:
    need.programs("etcd")
    with EtcdCluster(members=3) as cluster:
        yield cluster


class Clients:
    """Everything that happens to one prefix, through several stores as several servers would."""

    def __init__(self, stores: list[EtcdStore], chance: random.Random) -> None:
        self._stores = stores
        self._chance = chance
        self._numbers = iter(range(10**9))
        self.history = History()
        self.stopping = False

    def store(self) -> EtcdStore:
        return self._chance.choice(self._stores)

    async def write(self, op: Put | Delete) -> Write:
        noted = Write(op, SYSTEM_CLOCK.monotonic())
        self.history.writes.append(noted)
        try:
            noted.revision = await self.store().write([op])
            noted.outcome = DONE
        except (Mismatch, Unavailable):
            noted.outcome = NOT_DONE
        except Unknown:
            noted.outcome = UNKNOWN
        noted.ended = SYSTEM_CLOCK.monotonic()
        return noted

    async def get(self, key: str) -> Read | None:
        began = SYSTEM_CLOCK.monotonic()
        try:
            held = await self.store().get(key)
        except Unavailable:
            return None
        ended = SYSTEM_CLOCK.monotonic()
        read = Read(key, began, ended, held.mod_revision if held else 0, held.value if held else None)
        self.history.gets.append(read)
        return read

    async def count(self) -> None:
        """Compare-and-set, until told to stop."""
        while not self.stopping:
            key = self._chance.choice(COUNTERS)
            read = await self.get(key)
            if read is None:
                continue
            number = int((read.value or b"0").split()[0]) + 1
            # Each write is told from every other, as those of objects are by their uids and times.
            await self.write(Put(key, f"{number} {next(self._numbers)}".encode(), expect=read.revision))
            await asyncio.sleep(self._chance.uniform(0, 0.01))

    async def make(self) -> None:
        """Keys that two may want, and that are sometimes deleted again."""
        while not self.stopping:
            key = f"/made/{self._chance.randrange(40)}"
            read = await self.get(key)
            if read is None:
                continue
            if read.revision and self._chance.random() < 0.7:
                await self.write(Delete(key, expect=read.revision))
            else:
                await self.write(Put(key, str(next(self._numbers)).encode(), expect=read.revision))
            await asyncio.sleep(self._chance.uniform(0, 0.02))

    async def look(self) -> None:
        """Whole states, and how far the store is."""
        while not self.stopping:
            began = SYSTEM_CLOCK.monotonic()
            store = self.store()
            try:
                if self._chance.random() < 0.5:
                    self.history.ranges.append((began, await store.range("/")))
                else:
                    revision = await store.current()
                    self.history.currents.append(Read("", began, SYSTEM_CLOCK.monotonic(), revision))
            except Unavailable:
                continue
            await asyncio.sleep(self._chance.uniform(0, 0.05))

    async def follow(self, store: EtcdStore, after: int, prefix: str, leave: bool) -> list[Event]:
        """Every event up to the end; some break off now and then and go on from where they were."""
        got: list[Event] = []
        while not any(event.key.endswith(END) for event in got[-len(ENDS) :]):
            try:
                async with store.watch(after, prefix) as events:
                    async for batch in events:
                        got += batch
                        after = batch[-1].revision
                        if batch[-1].key.endswith(END) or (leave and self._chance.random() < 0.05):
                            break
                        if self._chance.random() < 0.1:
                            await asyncio.sleep(self._chance.uniform(0, 0.3))
            except Unavailable:
                # As the cache does: what it was told so far is whole, and it goes on from there.
                await asyncio.sleep(0.05)
        return got


async def end(store: EtcdStore) -> None:
    """Once, also when members that have just come back are slow to answer."""
    while True:
        try:
            await store.write([Put(f"{prefix}{END}", b"", expect=0) for prefix in ENDS])
            return
        except Mismatch:
            return
        except (Unavailable, Unknown):
            continue


async def run(trio: EtcdCluster, seed: int) -> tuple[Clients, list[Event], int, str]:
    chance = random.Random(seed)
    config = EtcdConfig(trio.urls, prefix=new_prefix())
    stores = [await EtcdStore.open(config, SYSTEM_CLOCK, Rng(seed + index), watch_backlog=64) for index in range(SERVERS)]
    try:
        base = await stores[0].current()
        clients = Clients(stores, chance)
        prefixes = ["", "", "/count/", "/made/"]
        watching = [
            asyncio.create_task(clients.follow(stores[index % SERVERS], base, prefixes[index % 4], leave=index >= 6))
            for index in range(12)
        ]
        chaos = Chaos(trio, seed)
        chaos.start()
        jobs: list[Callable[[], Awaitable[None]]] = [clients.count] * 4 + [clients.make] * 4 + [clients.look] * 2
        working = [asyncio.ensure_future(job()) for job in jobs]
        await asyncio.sleep(SECONDS)
        clients.stopping = True
        # Before the members are all well again: what is under way now must also end by itself.
        await asyncio.wait_for(asyncio.gather(*working), 60)
        await asyncio.to_thread(chaos.stop)
        told = f"{clients.history.told()}\n{chaos.told()}"
        print(told)
        # One transaction, so that every watcher has all when it has its end.
        await end(stores[0])
        followed = await asyncio.wait_for(asyncio.gather(*watching), 60)
        whole = await stores[0].changes(base, await stores[0].current())
        for index, got in enumerate(followed):
            prefix = prefixes[index % 4]
            wanted = [event for event in whole if event.key.startswith(prefix)]
            assert got == wanted, f"the watcher {index} of {prefix!r} saw something else\n{told}"
        truth = [event for event in whole if not event.key.endswith(END)]
        return clients, truth, base, told
    finally:
        for store in stores:
            await store.close()


@pytest.mark.soak
async def test_nothing_is_lost_repeated_or_stale_while_members_die(trio: EtcdCluster, seed: int) -> None:
    clients, truth, base, told = await run(trio, seed)
    check(clients.history, truth, base)
    done = [write for write in clients.history.writes if write.outcome == DONE]
    assert len(done) > 100, told
    for key in COUNTERS:
        numbers = [int(event.kv.value.split()[0]) for event in truth if event.key == key and event.kv is not None]
        assert numbers == list(range(1, len(numbers) + 1)), f"{key} did not count one by one\n{told}"
