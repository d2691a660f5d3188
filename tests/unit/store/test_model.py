"""The sqlite engine against a model so simple that it is right by reading: a list with the whole state at each revision."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.apiserver.store import Compacted, Delete, Event, KeyValue, Mismatch, Op, Put
from remuda.apiserver.store.sqlite import SqliteStore
from remuda.kube.clock import VirtualClock

KEYS = ["/registry/pods/a", "/registry/pods/b", "/registry/pods/bb", "/registry/leases/a", "/registry/events/ä"]
PREFIXES = ["", "/registry/pods/", "/registry/pods/b", "/registry/leases/"]

State = dict[str, KeyValue]


def operations() -> st.SearchStrategy[Op]:
    key = st.sampled_from(KEYS)
    # Expectations are chosen when the state is known: right, wrong, absent, or none at all.
    expect = st.sampled_from([None, 0, -1, -2])
    put = st.builds(Put, key=key, value=st.binary(max_size=3), expect=expect, ttl=st.sampled_from([0, 0, 5]))
    return st.one_of(put, st.builds(Delete, key=key, expect=expect))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.states: list[State] = [{}]
        self.events: list[Event] = []
        self.expires: dict[str, float] = {}
        self.floor = 0
        self.open()

    def open(self) -> None:
        path = Path(self.directory.name) / "state.db"
        self.store = self.runner.run(SqliteStore.open(path, self.clock, history_seconds=20, history_max_bytes=2000))

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        self.directory.cleanup()

    @property
    def now(self) -> State:
        return self.states[-1]

    def settled(self, op: Op) -> Op:
        held = self.now.get(op.key)
        mod = held.mod_revision if held else 0
        expect = {-1: mod, -2: mod + 1}.get(op.expect, op.expect) if op.expect is not None else None
        return Put(op.key, op.value, expect, op.ttl) if isinstance(op, Put) else Delete(op.key, expect)

    def holds(self, op: Op) -> bool:
        held = self.now.get(op.key)
        if isinstance(op, Delete) and held is None:
            return False
        return op.expect is None or op.expect == (held.mod_revision if held else 0)

    def apply(self, ops: list[Op]) -> None:
        revision = len(self.states)
        state = dict(self.now)
        for op in ops:
            held = state.pop(op.key, None)
            self.expires.pop(op.key, None)
            kv = None
            if isinstance(op, Put):
                kv = state[op.key] = KeyValue(op.key, op.value, held.create_revision if held else revision, revision)
                if op.ttl:
                    self.expires[op.key] = self.clock.time() + op.ttl
            self.events.append(Event(revision, op.key, kv, held))
        self.states.append(state)

    @rule(drawn=st.lists(operations(), min_size=1, max_size=3, unique_by=lambda op: op.key))
    def write(self, drawn: list[Op]) -> None:
        ops = [self.settled(op) for op in drawn]
        failing = next((op for op in ops if not self.holds(op)), None)
        try:
            revision = self.runner.run(self.store.write(ops))
        except Mismatch as mismatch:
            assert failing is not None and (mismatch.key, mismatch.current) == (failing.key, self.now.get(failing.key))
            return
        assert failing is None and revision == len(self.states)
        self.apply(ops)

    @rule(drawn=st.lists(operations(), min_size=2, max_size=6))
    def write_together(self, drawn: list[Op]) -> None:
        """Queued at once, so one batch of the writer; still in order, each with its own outcome."""
        ops = [Put(op.key, op.value, None, op.ttl) if isinstance(op, Put) else Delete(op.key) for op in drawn]

        async def together() -> list[int | BaseException]:
            return await asyncio.gather(*(self.store.write([op]) for op in ops), return_exceptions=True)

        for op, result in zip(ops, self.runner.run(together()), strict=True):
            if self.holds(op):
                assert result == len(self.states)
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

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        revision = max(len(self.states) - 1 - back, 0)
        self.runner.run(self.store.compact(revision))
        self.floor = max(self.floor, revision)

    @rule()
    def prune(self) -> None:
        self.runner.run(self.store.prune())

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.open()

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES), limit=st.integers(0, 3), start=st.sampled_from(["", *KEYS]))
    def read_past(self, data: st.DataObject, prefix: str, limit: int, start: str) -> None:
        revision = data.draw(st.integers(0, len(self.states) - 1))
        try:
            got = self.runner.run(self.store.range(prefix, start=start, limit=limit, revision=revision))
        except Compacted:
            assert 0 < revision < self.floor
            return
        at = revision or len(self.states) - 1
        assert at >= self.floor
        wanted = [kv for key, kv in sorted(self.states[at].items()) if key.startswith(prefix) and key >= start]
        cut = wanted[:limit] if limit else wanted
        assert (got.items, got.revision) == (cut, at)
        assert (got.more, got.remaining) == (len(cut) < len(wanted), len(wanted) - len(cut))
        for key in KEYS:
            assert self.runner.run(self.store.get(key, at)) == self.states[at].get(key)

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES))
    def watch(self, data: st.DataObject, prefix: str) -> None:
        after = data.draw(st.integers(0, len(self.states) - 1))
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

    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def read_history(self, data: st.DataObject, key: str) -> None:
        revision = data.draw(st.integers(0, len(self.states) - 1))
        try:
            version = self.runner.run(self.store.read_history(key, at_revision=revision))
        except Compacted:
            assert revision < self.floor
            return
        assert (version.kv if version else None) == self.states[revision].get(key)

    @invariant()
    def agrees(self) -> None:
        assert (self.store.revision, self.store.floor) == (len(self.states) - 1, self.floor)
        assert self.store.history_floor <= self.floor


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
