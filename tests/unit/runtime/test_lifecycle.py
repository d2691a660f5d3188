"""Controllers from declaration to a clean stop, on a real API server in memory and the virtual clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.clock import Rng, VirtualClock, parse_rfc3339
from remuda.kube.errors import STALE, ApiError, ConversionError, conflict
from remuda.kube.objects import GroupVersionResource, Key, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Controller, Elector, Manager, Result, Retry, Watch, label, logger, spec_change

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")
log = logger("remuda.test")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def server(clock: VirtualClock) -> AsyncIterator[Server]:
    made = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    yield made
    await made.close()


def made(kind: str, name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default", "labels": labels}}


class Copies:
    """For each ConfigMap with a label: note who asked, wait until a Secret that names it is there."""

    controller = Controller(
        "copies",
        CONFIG_MAPS,
        watches=(Watch(SECRETS, label("for"), spec_change, metadata_only=True),),
        labels="copied=yes",
        wait=50,
    )

    def __init__(self, manager: Manager, take: float = 0.0) -> None:
        self._maps = manager.informers.of(CONFIG_MAPS, labels="copied=yes")
        self._secrets = manager.informers.of(SECRETS, metadata_only=True)
        self._events = manager.recorder("copies")
        self._clock = manager.clock
        self._take = take
        self.seen: list[str] = []
        self.finished: list[str] = []

    async def reconcile(self, key: Key) -> Result:
        self.seen.append(key.name)
        log.info("looking")
        if self._take:
            await self._clock.sleep(self._take)
        found = self._maps.get(*key)
        self.finished.append(key.name)
        if found is None or self._secrets.get(key.namespace, key.name) is not None:
            return Result()
        self._events.event(found, "Normal", "Waiting", "there is no Secret")
        return Result(waits=(Wait(Code.DEPENDENTS, Ref("", "ConfigMap", *key), Actor.USER),))


async def test_a_controller_sees_its_objects_and_what_belongs_to_them(
    server: Server, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    await client.create(CONFIG_MAPS, made("ConfigMap", "other"))
    manager = Manager(client, clock, Rng(1))
    copies = Copies(manager)
    manager.add(copies)
    stop = asyncio.Event()
    caplog.set_level(logging.INFO, "remuda.test")
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(1)
    assert copies.seen == ["a"]
    assert 'remuda_waiting{controller="copies",code="Dependents"} 1' in manager.registry.text()
    record = caplog.records[-1]
    assert record.getMessage() == f"copies: default/a [{record.__dict__['reconcile_id']}]: looking"
    await client.create(CONFIG_MAPS, made("ConfigMap", "b", copied="yes"))
    await clock.advance(1)
    assert copies.seen == ["a", "b"]
    # The slow look at what waits, without any event.
    await clock.advance(56)
    assert sorted(copies.seen) == ["a", "a", "b", "b"]
    await client.create(SECRETS, made("Secret", "a", **{"for": "a"}))
    await clock.advance(1)
    assert copies.seen.count("a") == 3
    working = manager.working("copies")
    assert working is not None and set(working.waits) == {Key("default", "b")}
    # Since it was first seen to wait, however often it was looked at.
    wait = next(iter(working.waits.values())).waits[0]
    assert list(manager.waits()) == [wait] and clock.time() - parse_rfc3339(wait.since) > 50
    events = await client.list(GroupVersionResource("", "v1", "events"), "default")
    assert sorted((event["involvedObject"]["name"], event["count"]) for event in events["items"]) == [("a", 2), ("b", 2)]
    stop.set()
    await clock.advance(1)
    await running
    assert manager.working("copies") is None and list(manager.waits()) == []


async def test_what_an_object_waits_for_is_logged_when_it_changes(
    server: Server, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    manager = Manager(client, clock, Rng(1))
    manager.add(Copies(manager))
    stop = asyncio.Event()
    caplog.set_level(logging.DEBUG, "remuda.runtime.lifecycle")
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(120)
    await client.create(SECRETS, made("Secret", "a", **{"for": "a"}))
    await clock.advance(1)
    stop.set()
    await clock.advance(1)
    await running
    told = [record.getMessage() for record in caplog.records if record.name == "remuda.runtime.lifecycle"]
    assert [line.partition("]: ")[2] for line in told] == ["waiting (Dependents)", "waits for nothing any more"]


async def test_everything_is_looked_at_again_now_and_then(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    await client.create(SECRETS, made("Secret", "a", **{"for": "a"}))
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    manager = Manager(client, clock, Rng(1))
    copies = Copies(manager)
    manager.add(copies)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(500)
    # Twice at the start at most: for itself, and for the Secret that names it.
    first = len(copies.seen)
    assert first <= 2
    await clock.advance(700)
    assert len(copies.seen) > first
    stop.set()
    await clock.advance(1)
    await running


@pytest.mark.parametrize(("take", "finished"), [(20.0, ["a"]), (40.0, [])])
async def test_a_clean_stop_finishes_what_is_in_hand_but_not_for_ever(
    server: Server, clock: VirtualClock, take: float, finished: list[str]
) -> None:
    client = InProcessClient(server)
    for name in "ab":
        await client.create(CONFIG_MAPS, made("ConfigMap", name, copied="yes"))
    manager = Manager(client, clock, Rng(1), grace=30)
    copies = Copies(manager, take)
    manager.add(copies)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(1)
    stop.set()
    await clock.advance(29)
    await clock.advance(5)
    await running
    assert copies.seen == ["a"], "nothing new is begun"
    assert copies.finished == finished


async def test_a_standby_takes_over_with_full_caches_and_sees_everything(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    for name in "abc":
        await client.create(CONFIG_MAPS, made("ConfigMap", name, copied="yes"))
    stops, runs, controllers = [], [], []
    for number in (1, 2):
        elector = Elector(client, clock, Rng(number), namespace="default", name="test", identity=str(number))
        manager = Manager(client, clock, Rng(number), elector=elector)
        controllers.append(Copies(manager))
        manager.add(controllers[-1])
        stops.append(asyncio.Event())
        runs.append(asyncio.create_task(manager.run(stops[-1])))
        await clock.advance(5)
    assert sorted(controllers[0].seen) == ["a", "b", "c"] and controllers[1].seen == []
    stops[0].set()
    await clock.advance(3)
    await runs[0]
    assert sorted(set(controllers[1].seen)) == ["a", "b", "c"]
    stops[1].set()
    await clock.advance(3)
    await runs[1]


async def test_the_same_seed_gives_the_same_run() -> None:
    async def once() -> list[str]:
        clock = VirtualClock()
        server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
        client = InProcessClient(server)
        manager = Manager(client, clock, Rng(7))
        told: list[str] = []

        class Noted(Copies):
            async def reconcile(self, key: Key) -> Result:
                told.append(f"{clock.time():.6f} {key}")
                return await super().reconcile(key)

        manager.add(Noted(manager, 0.3))
        stop = asyncio.Event()
        running = asyncio.create_task(manager.run(stop))
        for number in range(20):
            await client.create(CONFIG_MAPS, made("ConfigMap", f"m{number}", copied="yes"))
            await clock.advance(0.7)
        await clock.advance(1500)
        stop.set()
        await clock.advance(40)
        await running
        listed = await client.list(CONFIG_MAPS, "default")
        await server.close()
        return [*told, *map(name_of, listed["items"])]

    first = await once()
    assert len(first) > 60
    assert first == await once()


class Fails:
    """Waits, fails, or is done, as it is told for each reconcile."""

    controller = Controller("fails", CONFIG_MAPS, labels="copied=yes", wait=50)

    def __init__(self, outcome: Result | Exception) -> None:
        self.outcome = outcome

    async def reconcile(self, key: Key) -> Result:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


HOOKED = 'Internal error occurred: failed calling webhook "v.example.com": connection refused'
CONVERSION = "conversion webhook for example.com/v1, Kind=Thing failed: Post https://127.0.0.1:1/convert: connection refused"
IN_WAIT = Result(waits=(Wait(Code.PAUSED, Ref("", "ConfigMap", "default", "a"), Actor.USER),))


@pytest.mark.parametrize(
    ("error", "code", "actor", "evidence"),
    [
        (ApiError(500, "InternalError", HOOKED), Code.FAILED, Actor.USER, HOOKED),
        (ConversionError(CONVERSION), Code.FAILED, Actor.USER, CONVERSION),
        (ApiError(403, "Forbidden", "exceeded quota"), Code.FAILED, Actor.USER, "exceeded quota"),
        (ApiError(500, "InternalError", "no leader"), Code.FAILED, Actor.REMUDA, "no leader"),
        (OSError("no room"), Code.FAILED, Actor.REMUDA, "OSError: no room"),
        (Retry("not seen yet"), Code.STEP, Actor.REMUDA, "not seen yet"),
    ],
)
async def test_a_failing_reconcile_leaves_no_earlier_wait(
    server: Server, clock: VirtualClock, error: Exception, code: Code, actor: Actor, evidence: str
) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    manager = Manager(client, clock, Rng(1))
    fails = Fails(IN_WAIT)
    manager.add(fails)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(1)
    assert [wait.code for wait in manager.waits()] == [Code.PAUSED]
    fails.outcome = error
    await clock.advance(80)
    first = list(manager.waits())
    assert [(wait.code, wait.actor, wait.evidence) for wait in first] == [(code, actor, evidence)]
    assert first[0].subject == Ref("", "ConfigMap", "default", "a")
    await clock.advance(400)
    # Since the first failure in a row.
    assert list(manager.waits()) == first
    fails.outcome = Result()
    # A failure that a user mends is looked at as often as a wait; others pause up to five minutes.
    await clock.advance(60 if actor is Actor.USER else 300)
    assert list(manager.waits()) == []
    stop.set()
    await clock.advance(1)
    await running


async def test_a_conflict_leaves_the_waits_as_they_are(server: Server, clock: VirtualClock) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    manager = Manager(client, clock, Rng(1))
    fails = Fails(IN_WAIT)
    manager.add(fails)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(1)
    fails.outcome = conflict("", "configmaps", "a", STALE)
    await clock.advance(60)
    assert [wait.code for wait in manager.waits()] == [Code.PAUSED]
    stop.set()
    await clock.advance(1)
    await running


@pytest.mark.parametrize(("code", "again"), [(Code.PAUSED, True), (Code.WITHOUT_EFFECT, False)])
async def test_a_key_with_nothing_but_notes_is_not_looked_at_again(
    server: Server, clock: VirtualClock, code: Code, again: bool
) -> None:
    client = InProcessClient(server)
    await client.create(CONFIG_MAPS, made("ConfigMap", "a", copied="yes"))
    manager = Manager(client, clock, Rng(1))
    outcome = Result(waits=(Wait(code, Ref("", "ConfigMap", "default", "a"), Actor.USER),))
    counted: list[Key] = []

    class Counts(Fails):
        async def reconcile(self, key: Key) -> Result:
            counted.append(key)
            return await super().reconcile(key)

    manager.add(Counts(outcome))
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await clock.advance(1)
    first = len(counted)
    await clock.advance(300)
    assert first and (len(counted) > first) == again
    assert [wait.code for wait in manager.waits()] == [code]
    stop.set()
    await clock.advance(1)
    await running
