"""All engines behind one fixture: what holds for one holds for the others.

`memory` and `sqlite` are made anew for each test. `etcd` is a real one that the tests of a process share: each has a prefix of
its own, and what it has written is gone afterwards.
"""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.revision_offset import OffsetStore
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import HistoryStore, Store, after_prefix
from remuda.kube.clock import SYSTEM_CLOCK, Rng, VirtualClock
from tests.real import need
from tests.real.etcd import EtcdCluster

_numbers = itertools.count(1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdCluster]:
    """One member that nobody torments."""
    need.programs("etcd")
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture
def config(etcd: EtcdCluster) -> Iterator[EtcdConfig]:
    """A prefix in it for this test alone."""
    made = EtcdConfig(etcd.urls, prefix=new_prefix())
    yield made
    clear(etcd, made.prefix)


def new_prefix() -> str:
    return f"/t{next(_numbers)}-{os.getpid()}"


def clear(etcd: EtcdCluster, prefix: str) -> None:
    """Also what would go by itself: the next test counts revisions."""
    low, high = (base64.b64encode(text.encode()).decode() for text in (prefix, after_prefix(prefix)))
    etcd.call("/v3/kv/deleterange", {"key": low, "range_end": high}, timeout=60)


@pytest.fixture(params=["memory", "sqlite", "etcd", "shifted"])
async def store(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock)
    elif request.param == "sqlite":
        made = await SqliteStore.open(tmp_path / "state.db", clock, history_seconds=3600)
    elif request.param == "shifted":
        made = OffsetStore(MemoryStore(clock), 1_000_000_000)
    else:
        # etcd lives in real time, and so does its client.
        made = await EtcdStore.open(request.getfixturevalue("config"), SYSTEM_CLOCK, Rng(1))
    yield made
    await made.close()


@pytest.fixture
def base(store: Store) -> int:
    """The revision before the test's first write."""
    return store.revision


@pytest.fixture(params=["memory", "sqlite"])
async def kept(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[HistoryStore]:
    """The engines that keep history."""
    made: HistoryStore
    if request.param == "memory":
        made = MemoryStore(clock)
    else:
        made = await SqliteStore.open(tmp_path / "state.db", clock, history_seconds=3600)
    yield made
    await made.close()


@pytest.fixture
async def sqlite(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = await SqliteStore.open(tmp_path / "state.db", clock, history_seconds=3600, watch_backlog=8)
    yield made
    await made.close()
