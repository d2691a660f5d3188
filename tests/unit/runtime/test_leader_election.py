"""Leader election on the virtual clock, with candidates that are cut off, paused, killed and stopped cleanly at will."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.connection import Unreachable
from remuda.kube.builtin_resources import LEASES
from remuda.kube.clock import Rng, Timer, VirtualClock
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Elector, LeaseTerm, NotLeading, Registry
from remuda.runtime.leader_election import GuardedClient

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


class SlowClock:
    """A candidate's own clock: other wall time, another zero, and nothing fires while the process is paused."""

    def __init__(self, clock: VirtualClock, skew: float) -> None:
        self._clock = clock
        self._skew = skew
        self.paused = False
        self._held: list[Callable[[], object]] = []

    def time(self) -> float:
        return self._clock.time() + self._skew

    def monotonic(self) -> float:
        return self._clock.monotonic() - self._skew

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        def fire() -> None:
            if self.paused:
                self._held.append(callback)
            else:
                callback()

        return self._clock.call_later(seconds, fire)

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: done.done() or done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for callback in held:
            callback()


class Link(InProcessClient):
    """A client whose connection can be cut: requests then fail, or arrive but are never answered."""

    state = "up"

    async def _through(self, call: Any) -> Any:
        if self.state == "cut":
            call.close()
            raise Unreachable("server", "cut")
        answer = await call
        if self.state == "mute":
            raise Unreachable("server", "no answer")
        return answer

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through(super().get(*args, **kwargs))

    async def create(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through(super().create(*args, **kwargs))

    async def update(self, *args: Any, **kwargs: Any) -> Any:
        return await self._through(super().update(*args, **kwargs))


class Candidate:
    def __init__(self, number: int, server: Server, clock: VirtualClock, skew: float) -> None:
        self.clock = SlowClock(clock, skew)
        self.link = Link(server)
        self.elector = Elector(
            self.link, self.clock, Rng(number), namespace="default", name="test", identity=f"candidate-{number}"
        )
        self.client = GuardedClient(self.link, self.elector)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.task is None:
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self.elector.acquire()
            await self.elector.keep()

    async def stop(self, clean: bool) -> None:
        if self.task is None:
            return
        task, self.task = self.task, None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if clean:
            await self.elector.release()

    @property
    def leads(self) -> bool:
        """Whether its code would act as the leader now; a paused process does nothing at all."""
        return not self.clock.paused and self.elector.leading


ACTIONS = ("start", "stop", "kill", "pause", "resume", "cut", "mute", "up")
LEADER = 3
STEPS = st.lists(
    # Mostly things happen to whoever leads; and time passes in the measures in which leases run out.
    st.tuples(
        st.sampled_from((0, 1, 2, LEADER, LEADER)), st.sampled_from(ACTIONS), st.sampled_from((0.5, 3.0, 11.0, 18.0, 20.0))
    ),
    min_size=3,
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.tuples(*[st.floats(-5000, 5000)] * 3))
def test_two_never_lead(steps: list[tuple[int, str, float]], skews: tuple[float, ...]) -> None:
    asyncio.run(_never_two(steps, skews))


async def _never_two(steps: list[tuple[int, str, float]], skews: tuple[float, ...]) -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    candidates = [Candidate(number, server, clock, skew) for number, skew in enumerate(skews)]
    try:
        for candidate in candidates:
            candidate.start()
        await pass_time(clock, candidates, 5)
        for number, action, seconds in steps:
            leader = next((candidate for candidate in candidates if candidate.leads), candidates[0])
            await act(leader if number == LEADER else candidates[number], action)
            await pass_time(clock, candidates, seconds)
        # Whatever happened: when all is well again, somebody leads.
        for candidate in candidates:
            await act(candidate, "resume")
            await act(candidate, "up")
            candidate.start()
        await pass_time(clock, candidates, 40)
        assert sum(candidate.leads for candidate in candidates) == 1
    finally:
        for candidate in candidates:
            await act(candidate, "resume")
            await candidate.stop(clean=False)
        await server.close()


async def act(candidate: Candidate, action: str) -> None:
    if action == "start":
        candidate.start()
    elif action in ("stop", "kill"):
        if not candidate.clock.paused:
            candidate.link.state = "up" if action == "stop" else candidate.link.state
            await candidate.stop(clean=action == "stop")
    elif action == "pause":
        candidate.clock.paused = True
    elif action == "resume":
        candidate.clock.resume()
    else:
        candidate.link.state = action


async def pass_time(clock: VirtualClock, candidates: list[Candidate], seconds: float) -> None:
    end = clock.time() + seconds
    while clock.time() < end:
        await clock.advance(min(0.5, end - clock.time()))
        leaders = [candidate.elector.identity for candidate in candidates if candidate.leads]
        assert len(leaders) <= 1, leaders


async def test_a_clean_stop_hands_over_at_once_and_a_death_after_the_lease() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    first, second = Candidate(1, server, clock, 0), Candidate(2, server, clock, 100)
    first.start()
    await clock.advance(1)
    second.start()
    await clock.advance(20)
    assert first.leads and second.elector.leader == "candidate-1"
    await first.stop(clean=True)
    await clock.advance(2.5)
    assert second.leads
    lease = await first.link.get(LEASES, "test", "default")
    assert lease["spec"]["leaseTransitions"] == 1
    first.start()
    await clock.advance(10)
    await second.stop(clean=False)
    await clock.advance(10)
    assert not first.leads
    await clock.advance(10)
    assert first.leads
    await first.stop(clean=False)
    await server.close()


async def test_who_lost_the_lease_is_refused_writes() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    first, second = Candidate(1, server, clock, 0), Candidate(2, server, clock, 0)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    with pytest.raises(NotLeading):
        await first.client.create(CONFIG_MAPS, body)
    first.start()
    second.start()
    await clock.advance(5)
    leader, other = (first, second) if first.leads else (second, first)
    await leader.client.create(CONFIG_MAPS, body)
    # It stops in the middle of its work; the world goes on; it wakes and wants to write what it had decided.
    leader.clock.paused = True
    await clock.advance(30)
    assert other.leads
    leader.clock.resume()
    with pytest.raises(NotLeading):
        await leader.client.delete(CONFIG_MAPS, "a", "default")
    assert await leader.client.get(CONFIG_MAPS, "a", "default")
    for each in (first, second):
        await each.stop(clean=False)
    await server.close()


async def test_a_write_that_takes_longer_than_a_term_goes_on_while_the_lease_is_renewed() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    elector = Elector(InProcessClient(server), clock, Rng(1), namespace="default", name="test", identity="a")
    await elector.acquire()
    keeping = asyncio.create_task(elector.keep())

    async def slow(seconds: float) -> str:
        async with elector.fenced():
            await clock.sleep(seconds)
        return "written"

    writing = asyncio.create_task(slow(60))
    await clock.advance(61)
    assert writing.result() == "written"
    # Nobody renews any more: what is still on its way then is cut off.
    keeping.cancel()
    writing = asyncio.create_task(slow(60))
    await clock.advance(61)
    with pytest.raises(NotLeading):
        writing.result()
    await server.close()


async def test_it_tells_whether_it_leads() -> None:
    clock, registry = VirtualClock(), Registry()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    client = InProcessClient(server)
    elector = Elector(client, clock, Rng(1), namespace="default", name="test", identity="a", registry=registry)
    assert 'leader_election_master_status{name="test"} 0' in registry.text()
    await elector.acquire()
    assert 'leader_election_master_status{name="test"} 1' in registry.text()
    await elector.release()
    assert not elector.leading
    await server.close()


def test_times_that_can_not_work_are_refused() -> None:
    with pytest.raises(ValueError, match="must last longer"):
        LeaseTerm(lease_duration=10, renew_deadline=10)
