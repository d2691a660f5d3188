"""Both engines behind one fixture: what holds for one holds for the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.store import HistoryStore
from remuda.apiserver.store.memory import MemoryStore
from remuda.apiserver.store.sqlite import SqliteStore
from remuda.kube.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[HistoryStore]:
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
