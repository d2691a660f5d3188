"""The durable engines against a model so simple that it is right by reading: a list with the whole state at each revision."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from remuda.apiserver.storage.etcd import EtcdConfig, EtcdStore
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.store import Check, Compacted, Delete, Event, KeyValue, Mismatch, Op, Put, Store
from remuda.kube.clock import SYSTEM_CLOCK, Rng, VirtualClock
from tests.real.etcd import EtcdCluster

from .conftest import clear, new_prefix

KEYS = ["/registry/pods/a", "/registry/pods/b", "/registry/pods/bb", "/registry/leases/a", "/registry/events/ä"]
PREFIXES = ["", "/registry/pods/", "/registry/pods/b", "/registry/leases/"]

State = dict[str, KeyValue]


def operations(ttls: list[int]) -> st.SearchStrategy[Op]:
    key = st.sampled_from(KEYS)
    # Expectations are chosen when the state is known: right, wrong, absent, or none at all.
    expect = st.sampled_from([None, 0, -1, -2])
    put = st.builds(Put, key=key, value=st.binary(max_size=3), expect=expect, ttl=st.sampled_from(ttls))
    return st.one_of(put, st.builds(Delete, key=key, expect=expect), st.builds(Check, key=key, expect=expect.filter(_a_number)))


def _a_number(expect: int | None) -> bool:
    return expect is not None


class StoreMachine(RuleBasedStateMachine):
    """What every engine does. `states[0]` is the state at revision `base`, where the machine came in."""

    ttls: ClassVar[list[int]] = [0]
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.states: list[State] = [{}]
        self.events: list[Event] = []
        self.expires: dict[str, float] = {}
        self.open()
        self.base = self.store.revision
        self.floor = self.store.floor

    def open(self) -> None:
        raise AssertionError("an engine opens its own store")

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()

    @property
    def now(self) -> State:
        return self.states[-1]

    @property
    def newest(self) -> int:
        return self.base + len(self.states) - 1

    def at(self, revision: int) -> State:
        return self.states[revision - self.base]

    def some_revision(self, data: st.DataObject) -> int:
        """Any since the machine came in. What is drawn must not depend on when that was."""
        return self.base + data.draw(st.integers(0, len(self.states) - 1))

    def settled(self, op: Op) -> Op:
        held = self.now.get(op.key)
        mod = held.mod_revision if held else 0
        expect = {-1: mod, -2: mod + 1}.get(op.expect, op.expect) if op.expect is not None else None
        if isinstance(op, Check):
            return Check(op.key, expect or 0)
        return Put(op.key, op.value, expect, op.ttl) if isinstance(op, Put) else Delete(op.key, expect)

    def holds(self, op: Op) -> bool:
        held = self.now.get(op.key)
        if isinstance(op, Delete) and held is None:
            return False
        return op.expect is None or op.expect == (held.mod_revision if held else 0)

    def apply(self, ops: list[Op]) -> None:
        revision = self.newest + 1
        state = dict(self.now)
        for op in ops:
            if isinstance(op, Check):
                continue
            held = state.pop(op.key, None)
            self.expires.pop(op.key, None)
            kv = None
            if isinstance(op, Put):
                kv = state[op.key] = KeyValue(op.key, op.value, held.create_revision if held else revision, revision)
                if op.ttl:
                    self.expires[op.key] = self.clock.time() + op.ttl
            self.events.append(Event(revision, op.key, kv, held))
        self.states.append(state)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        drawn = data.draw(st.lists(operations(self.ttls), min_size=1, max_size=3, unique_by=lambda op: op.key))
        ops = [self.settled(op) for op in drawn]
        if all(isinstance(op, Check) for op in ops):
            return
        failing = next((op for op in ops if not self.holds(op)), None)
        try:
            revision = self.runner.run(self.store.write(ops))
        except Mismatch as mismatch:
            assert failing is not None and (mismatch.key, mismatch.current) == (failing.key, self.now.get(failing.key))
            return
        assert failing is None and revision == self.newest + 1
        self.apply(ops)

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        revision = max(self.newest - back, self.base)
        self.runner.run(self.store.compact(revision))
        self.floor = max(self.floor, revision)

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.open()

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES), limit=st.integers(0, 3), start=st.sampled_from(["", *KEYS]))
    def read_past(self, data: st.DataObject, prefix: str, limit: int, start: str) -> None:
        # The first stands for "now".
        step = data.draw(st.integers(0, len(self.states) - 1))
        revision = self.base + step if step else 0
        try:
            got = self.runner.run(self.store.range(prefix, start=start, limit=limit, revision=revision))
        except Compacted:
            assert 0 < revision < self.floor
            return
        at = revision or self.newest
        assert at >= self.floor
        wanted = [kv for key, kv in sorted(self.at(at).items()) if key.startswith(prefix) and key >= start]
        cut = wanted[:limit] if limit else wanted
        assert (got.items, got.revision) == (cut, at)
        assert (got.more, got.remaining) == (len(cut) < len(wanted), len(wanted) - len(cut))
        for key in KEYS:
            assert self.runner.run(self.store.get(key, at)) == self.at(at).get(key)

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES))
    def watch(self, data: st.DataObject, prefix: str) -> None:
        after = self.some_revision(data)
        wanted = [event for event in self.events if event.revision > after and event.key.startswith(prefix)]

        async def collect() -> list[Event]:
            got: list[Event] = []
            async with self.store.watch(after, prefix) as events:
                while len(got) < len(wanted):
                    got.extend(await anext(events))
            return got

        try:
            assert self.runner.run(collect()) == wanted
        except Compacted:
            assert after < self.floor

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES))
    def changes(self, data: st.DataObject, prefix: str) -> None:
        after, until = self.some_revision(data), self.some_revision(data)
        try:
            got = self.runner.run(self.store.changes(after, until, prefix))
        except Compacted:
            assert after < self.floor
            return
        assert after >= self.floor
        assert got == [each for each in self.events if after < each.revision <= until and each.key.startswith(prefix)]

    @invariant()
    def agrees(self) -> None:
        assert self.store.floor == self.floor
        assert self.runner.run(self.store.current()) == self.newest


class SqliteMachine(StoreMachine):
    """Also what only an engine has that nobody else writes to: an order of its own, a clock, history."""

    ttls: ClassVar[list[int]] = [0, 0, 5]
    store: SqliteStore

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        super().__init__()
        assert (self.base, self.floor) == (0, 0)

    def open(self) -> None:
        path = Path(self.directory.name) / "state.db"
        self.store = self.runner.run(SqliteStore.open(path, self.clock, history_seconds=20, history_max_bytes=2000))

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()

    @rule(data=st.data())
    def write_together(self, data: st.DataObject) -> None:
        """Queued at once, so one batch of the writer; still in order, each with its own outcome."""
        drawn = data.draw(st.lists(operations(self.ttls), min_size=2, max_size=6))
        ops: list[Put | Delete] = [Put(op.key, op.value, None, op.ttl) if isinstance(op, Put) else Delete(op.key) for op in drawn]

        async def together() -> list[int | BaseException]:
            return await asyncio.gather(*(self.store.write([op]) for op in ops), return_exceptions=True)

        for op, result in zip(ops, self.runner.run(together()), strict=True):
            if self.holds(op):
                assert result == self.newest + 1
                self.apply([op])
            else:
                assert isinstance(result, Mismatch) and result.current is None

    @rule(seconds=st.integers(1, 10))
    def wait_and_expire(self, seconds: int) -> None:
        self.runner.run(self.clock.advance(seconds))
        due = sorted((when, key) for key, when in self.expires.items() if when <= self.clock.time())
        assert self.runner.run(self.store.expire(self.clock.time())) == len(due)
        for _, key in due:
            self.apply([Delete(key)])

    @rule()
    def prune(self) -> None:
        self.runner.run(self.store.prune())

    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def read_history(self, data: st.DataObject, key: str) -> None:
        revision = self.some_revision(data)
        try:
            version = self.runner.run(self.store.read_history(key, at_revision=revision))
        except Compacted:
            assert revision < self.floor
            return
        assert (version.kv if version else None) == self.at(revision).get(key)

    @invariant()
    def knows_its_revision(self) -> None:
        assert self.store.revision == self.newest
        assert self.store.history_floor <= self.floor


class EtcdMachine(StoreMachine):
    """Two clients of one etcd, of which the machine uses now this and now that one."""

    cluster: ClassVar[EtcdCluster]
    store: EtcdStore

    def __init__(self) -> None:
        self.config = EtcdConfig(self.cluster.urls, prefix=new_prefix())
        self.other: EtcdStore | None = None
        self.noted = 0
        super().__init__()

    def open(self) -> None:
        opened = EtcdStore.open(self.config, SYSTEM_CLOCK, Rng(1))
        self.store = self.runner.run(opened)

    def teardown(self) -> None:
        if self.other is not None:
            self.runner.run(self.other.close())
        super().teardown()
        clear(self.cluster, self.config.prefix)

    @rule()
    def change_places(self) -> None:
        """What one wrote the other reads; it may learn of a compaction late, so that is waited for."""
        there, here = self.other, self.store
        self.other = here
        if there is None:
            self.open()
        else:
            self.store = there
        self.runner.run(self._level())

    async def _level(self) -> None:
        for _ in range(12_000):
            if self.store.floor == self.floor and self.store.revision >= self.newest:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"floor {self.store.floor}, not {self.floor}; revision {self.store.revision}, not {self.newest}")

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        # The store knows by its feed whether there is anything to forget.
        self.runner.run(self._level())
        revision, before = max(self.newest - back, self.base), self.floor
        self.runner.run(self.store.compact(revision))
        self.floor = self.store.floor
        if self.floor != max(before, revision):
            # Since the last time nothing has happened but that note; etcd is not written to for ever just to note notes.
            assert self.floor == before and not any(event.revision > self.noted for event in self.events)
        # That it was done is written down in etcd, which takes a revision that changes nothing of ours.
        while self.newest < self.runner.run(self.store.current()):
            self.states.append(self.now)
            self.noted = self.newest


def example_settings(examples: int, steps: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck))


def test_sqlite_agrees_with_the_model() -> None:
    run_state_machine_as_test(SqliteMachine, settings=example_settings(40, 40))


@pytest.fixture
def machine(etcd: EtcdCluster) -> Iterator[Any]:
    EtcdMachine.cluster = etcd
    yield EtcdMachine


def test_etcd_agrees_with_the_model(machine: Any) -> None:
    run_state_machine_as_test(machine, settings=example_settings(15, 30))
