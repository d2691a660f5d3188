"""Kills at every point at which a run of the program keeps something, and what must be true afterwards: for any driver.

A run is what a Job's process does; it has files of its own, which go with it. What it kept is in a Secret of a real API. Killed
means that nothing more happens in it: just before a state is kept (what was done since is not known), or just after.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.kube.clock import VirtualClock
from remuda.kube.objects import GroupVersionResource
from remuda.machines import machine_state
from remuda.machines.driver import Driver, DriverContext, Machine
from remuda.machines.machine_state import MachineState
from remuda.machines.options import Options
from remuda.machines.provisioner.session import MachineOrder, Session
from remuda.machines.provisioner.state_store import MachineStateStore, StateSecret

SECRETS = GroupVersionResource("", "v1", "secrets")
NAME = "demo-workers-x"


class Killed(BaseException):
    """As SIGKILL is: nobody handles it."""


class MortalStore(MachineStateStore):
    """Dies at one of its moments: 0 is before the first write, 1 after it, and so on."""

    def __init__(self, storage: Path, secret: StateSecret, dies_at: int = -1) -> None:
        super().__init__(storage, secret)
        self._left = dies_at
        self.moments = 0

    async def save(self, kept: MachineState) -> None:
        self._moment()
        await super().save(kept)
        self._moment()

    async def remove(self, name: str) -> None:
        self._moment()
        await super().remove(name)
        self._moment()

    def _moment(self) -> None:
        if self.moments == self._left:
            raise Killed
        self.moments += 1


class Place:
    """A machine's state Secret, in an API in memory."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def secret(self) -> StateSecret:
        return StateSecret(self.client, "default", self.name, VirtualClock())

    async def files(self) -> dict[str, bytes]:
        """What is kept in it."""
        found = await self.client.get(SECRETS, self.name, "default")
        data = base64.b64decode((found.get("data") or {}).get(machine_state.KEY) or "")
        return machine_state.read(data, NAME)[1] if data else {}


class Places:
    """As many as wanted; leave it to end the API."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._made = 0

    async def __aenter__(self) -> Self:
        self._server = await Server.open(Config(data_dir=None))
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        await self._server.close()

    async def new(self) -> Place:
        assert self._server is not None
        self._made += 1
        place = Place(InProcessClient(self._server), f"state-{self._made}")
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "rke.cattle.io/machine-state", "metadata": {"name": place.name}}
        await place.client.create(SECRETS, secret, "default")
        return place


@dataclass(slots=True)
class Case:
    """A driver to be tried: how to make one, with which options, and how to see what the provider has."""

    driver: Callable[[DriverContext], Driver]
    options: Callable[[], Options]
    # What exists at the provider now, of all machines.
    existing: Callable[[], Awaitable[list[str]]]
    script: str = ""
    around: DriverContext = field(default_factory=DriverContext)


async def run(place: Place, action: Callable[[Session, MortalStore], Awaitable[object]], case: Case, dies_at: int = -1) -> int:
    """One process; how many moments it had. Raises Killed."""
    with tempfile.TemporaryDirectory() as directory:
        store = MortalStore(Path(directory), place.secret(), dies_at)
        driver = case.driver(case.around)
        try:
            await action(Session(driver, store, case.around), store)
        finally:
            with contextlib.suppress(Exception):
                await driver.aclose()
        return store.moments


async def create(place: Place, case: Case, dies_at: int = -1) -> int:
    order = MachineOrder(NAME, case.options(), case.script, "", "owner-1")

    async def action(session: Session, store: MortalStore) -> Machine:
        return await session.create(order, await store.load(NAME))

    return await run(place, action, case, dies_at)


async def remove(place: Place, case: Case, dies_at: int = -1) -> int:
    async def action(session: Session, store: MortalStore) -> None:
        known = await store.load(NAME)
        if known is not None:
            await session.remove(known, case.options())

    return await run(place, action, case, dies_at)


async def check_creating(case: Case, sampled: bool = False) -> int:
    """Killed at each moment of a creation, once gone on with and once removed: one machine, and none. How many moments it has.

    Sampled: only just before something is kept (just after it is the same as just before the next step), and one or the other.
    """
    async with Places() as places:
        for moment in itertools.count(0, 2 if sampled else 1):
            for goes_on in (moment % 4 == 0,) if sampled else (True, False):
                place = await places.new()
                try:
                    await create(place, case, moment)
                    ended = True
                except Killed:
                    ended = False
                if goes_on or ended:
                    await create(place, case)
                    found = await case.existing()
                    assert len(found) == 1, f"killed at moment {moment} of its creation and gone on with: {found}"
                await remove(place, case)
                assert await case.existing() == [], f"killed at moment {moment} of its creation and removed"
                assert await place.files() == {}
                if ended:
                    return moment
    raise AssertionError("there is no end to it")


async def check_removing(case: Case) -> int:
    """Killed at each moment of a removal, and removed: nothing is left. How many moments it has."""
    async with Places() as places:
        for moment in itertools.count():
            place = await places.new()
            await create(place, case)
            try:
                await remove(place, case, moment)
                return moment
            except Killed:
                await remove(place, case)
            assert await case.existing() == [], f"killed at moment {moment} of its removal"
            assert await place.files() == {}
    raise AssertionError("there is no end to it")
