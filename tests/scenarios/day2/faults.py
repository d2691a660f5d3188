"""Faults in the middle of operations: of hosts, agents, buckets, the management API and its controllers. They end with
:meth:`Faults.end`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from remuda.client.interface import Client
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.provisioning.etcd.s3.answers import Why

from ..mortal import Mortal
from .shapes import BUCKET


class Faults:
    def __init__(self, world: ProvisioningWorld, chance: random.Random, tell: Callable[[str], None]) -> None:
        self.world = world
        self._chance = chance
        self._tell = tell
        # Hosts without power, and those whose agent is dead.
        self._dark: list[SimulatedHost] = []
        self._silent: list[SimulatedHost] = []
        self._mortal: asyncio.Task[None] | None = None

    async def strike(self, power: bool = True) -> None:
        """One fault, or the end of one. Without `power` no host loses it."""
        struck = [self._agent, self._bucket, self._mortality, self._restart, self._two_leaders, self._line, self._failure]
        await self._chance.choice([*struck, *([self._power] * 3 if power else [])])()

    async def end(self) -> None:
        """Repair everything that is broken."""
        self.world.hosts.cut = False
        bucket = self.world.hosts.buckets.of(BUCKET)
        bucket.trouble, bucket.seconds = None, 0.0
        for host in self._exists(self._dark):
            self.world.hosts.power_on(host)
        for host in self._exists(self._silent):
            self.world.hosts.revive(host)
        self._dark, self._silent = [], []
        for host in self.world.hosts.hosts.values():
            host.failing = 0
        if self._mortal is not None and not self._mortal.done():
            self._mortal.cancel()
            await asyncio.gather(self._mortal, return_exceptions=True)
            await self._restart()
        self._tell("  faults are over")

    def _exists(self, hosts: list[SimulatedHost]) -> list[SimulatedHost]:
        return [host for host in hosts if host in self.world.hosts.hosts.values()]

    def _one(self) -> SimulatedHost | None:
        """A host whose agent runs."""
        found = [host for host in self.world.hosts.hosts.values() if self.world.hosts.is_running(host)]
        return self._chance.choice(found) if found else None

    # --- hosts ------------------------------------------------------------------------------------------------------------

    async def _power(self) -> None:
        if self._dark and self._chance.random() < 0.5:
            host = self._dark.pop()
            if self._exists([host]):
                self._tell(f"  {host.name} has power again")
                self.world.hosts.power_on(host)
        elif (found := self._one()) is not None:
            self._tell(f"  {found.name} loses power")
            await self.world.hosts.power_off(found)
            self._dark.append(found)

    async def _agent(self) -> None:
        if self._silent and self._chance.random() < 0.5:
            host = self._silent.pop()
            if self._exists([host]):
                self._tell(f"  the agent of {host.name} starts")
                self.world.hosts.revive(host)
        elif (found := self._one()) is not None:
            self._tell(f"  the agent of {found.name} is killed")
            await self.world.hosts.kill(found)
            self._silent.append(found)

    async def _failure(self) -> None:
        if (host := self._one()) is not None:
            host.failing = self._chance.randint(1, 3)
            self._tell(f"  {host.name} fails {host.failing} times")

    # --- bucket and management API ----------------------------------------------------------------------------------------

    async def _bucket(self) -> None:
        bucket = self.world.hosts.buckets.of(BUCKET)
        bucket.trouble = self._chance.choice([None, Why.BUSY, Why.UNREACHABLE, Why.DENIED])
        bucket.seconds = self._chance.choice([0.0, 3.0, 100.0])
        self._tell(f"  the bucket: {bucket.trouble or 'well'}, {bucket.seconds} s")

    async def _line(self) -> None:
        self.world.hosts.cut = not self.world.hosts.cut
        self._tell(f"  the management API is {'away' if self.world.hosts.cut else 'back'}")

    # --- controllers ------------------------------------------------------------------------------------------------------

    async def _restart(self) -> None:
        self._tell("  the controllers restart")
        await self._stop()
        self.world.begin()

    async def _stop(self) -> None:
        if self._mortal is not None:
            self._mortal.cancel()
            await asyncio.gather(self._mortal, return_exceptions=True)
            self._mortal = None
        await self.world.kill()

    async def _mortality(self) -> None:
        """The controllers die right after one of their next writes; others follow."""
        await self._stop()
        found: list[Mortal] = []
        writes = self._chance.randint(1, 25)
        self._tell(f"  the controllers die after {writes} writes")

        def through(client: Client) -> Any:
            found.append(Mortal(client, writes))
            return found[0]

        self.world.begin(through)
        self._mortal = asyncio.create_task(self._succeed(found[0]))

    async def _succeed(self, mortal: Mortal) -> None:
        await mortal.died.wait()
        mortal.bury()
        await self.world.kill()
        self.world.begin()

    async def _two_leaders(self) -> None:
        """Two run at the same time for a while: one has lost its lease and does not know."""
        self._tell("  two leaders")
        await self._stop()
        first = self.world.begin()
        await self.world.settle(self._chance.choice([0.2, 1, 4]))
        self.world.begin()
        await self.world.settle(self._chance.choice([0.2, 1, 4]))
        await self.world.kill(first)
