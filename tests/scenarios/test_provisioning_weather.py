"""Everything at once: hosts lose their power, agents and controllers die, the API goes away, machines come and go and wishes
change, in any order. When it is over there is the cluster that is wanted, and on the way nothing was done that must not be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.app.rehearsal import provisioning
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, labels_of, name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.well_known import NODE_NAME

from .provisioned import DEMO, TO, build, change, init_nodes, nodes, plans, ready
from .soaking import SOAK, dice

STORMS = 60 if SOAK else 1
ACTS = 25


class Storm:
    """What is broken is remembered, so that it can be mended."""

    def __init__(self, world: ProvisioningWorld, hosts: list[SimulatedHost], chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.hosts = {host.name: host for host in hosts}
        self.dark: set[str] = set()
        self.silent: set[str] = set()
        self.wishes = 0
        self.done: list[str] = []

    async def blow(self) -> None:
        acts = [self.kill, self.power, self.power, self.cut, self.fail, self.come, self.leave, self.wish, self.die]
        for _ in range(ACTS):
            act = self.chance.choice(acts)
            self.done.append(f"{act.__name__} {await act()}")
            await self.world.settle(self.chance.choice([0.5, 2, 10, 60]))

    def _one(self) -> SimulatedHost:
        return self.hosts[self.chance.choice(sorted(self.hosts))]

    async def kill(self) -> str:
        host = self._one()
        if host.name in self.silent:
            self.world.hosts.revive(host)
            self.silent.remove(host.name)
        elif host.name not in self.dark:
            await self.world.hosts.kill(host)
            self.silent.add(host.name)
        return host.name

    async def power(self) -> str:
        """One at a time: of an etcd that has lost its majority by itself nothing can be asked."""
        for name in sorted(self.dark):
            self.world.hosts.power_on(self.hosts[name])
            self.dark.remove(name)
            return f"on {name}"
        host = self._one()
        if host.name not in self.silent:
            await self.world.hosts.power_off(host)
            self.dark.add(host.name)
        return f"off {host.name}"

    async def cut(self) -> str:
        self.world.hosts.cut = not self.world.hosts.cut
        return str(self.world.hosts.cut)

    async def fail(self) -> str:
        host = self._one()
        host.failing = self.chance.randint(1, 3)
        return host.name

    async def come(self) -> str:
        if len(self.hosts) > 6 or self.world.hosts.cut:
            return "nobody"
        name = f"n{len(self.done)}"
        self.hosts[name] = await self.world.host(DEMO, name, self.chance.choice(["w", "c", "ecw", "ec"]))
        return name

    async def leave(self) -> str:
        """Somebody without whom there is still one for each role, and a majority of etcd that is up."""
        host = self._one()
        others = [each for each in self.hosts.values() if each is not host]
        up = [each for each in others if each.name not in self.dark and each.access is not None]
        if self.dark or any(sum(role in each.roles for each in up) < 2 for role in "ecw"):
            return "nobody"
        found = [each for each in await self.world.machines(DEMO) if labels_of(each).get(NODE_NAME) == host.name]
        for machine in found:
            try:
                await self.world.client.delete(capi.MACHINES, name_of(machine), WORKSPACE)
            except ApiError as error:
                # Another member of etcd is leaving, or a node is not ready yet.
                assert error.code == 403, error
                return "nobody"
            del self.hosts[host.name]
            self.silent.discard(host.name)
        return host.name if found else "nobody"

    async def wish(self) -> str:
        self.wishes += 1
        at_once = self.chance.choice(["1", "2", "50%"])
        drain = {"enabled": self.chance.random() < 0.5}
        strategy = {"controlPlaneConcurrency": at_once, "workerConcurrency": at_once}
        strategy |= {"controlPlaneDrainOptions": drain, "workerDrainOptions": drain}
        config: Any = {"upgradeStrategy": strategy, "machineGlobalConfig": {"kubelet-arg": [f"max-pods={100 + self.wishes}"]}}
        version = {"kubernetesVersion": TO} if self.chance.random() < 0.5 else {}
        await change(self.world, rkeConfig=config, **version)
        return str(version)

    async def die(self) -> str:
        await self.world.kill()
        await self.world.settle(self.chance.choice([0, 5]))
        self.world.begin()
        return ""

    async def calm(self) -> None:
        self.world.hosts.cut = False
        for name in sorted(self.dark):
            self.world.hosts.power_on(self.hosts[name])
        for name in sorted(self.silent):
            self.world.hosts.revive(self.hosts[name])
        for host in self.hosts.values():
            host.failing = min(host.failing, 2)


async def weather(chance: random.Random) -> None:
    async with provisioning(seed=chance.randrange(10**6)) as world:
        storm = Storm(world, await build(world, ["ecw", "ec", "ec", "w"]), chance)
        try:
            await storm.blow()
            await storm.calm()
            await change(world, kubernetesVersion=TO)

            async def all_there() -> bool:
                told = dig(await world.control_plane(DEMO), "spec", "machineGlobalConfig")
                wanted = dig(await world.cluster(DEMO), "spec", "rkeConfig", "machineGlobalConfig")
                return told == wanted and await nodes(world) == dict.fromkeys(storm.hosts, TO)

            await world.until("all are there", all_there, 7200)
            await ready(world, 7200)
            assert world.distribution(DEMO).violations == []
            assert len(await init_nodes(world)) == 1
            stable = await plans(world)
            await world.settle(120)
            assert await plans(world) == stable
        except BaseException:
            print("\n".join(storm.done))
            raise


@pytest.mark.soak
@pytest.mark.timeout(0 if SOAK else 300)
@pytest.mark.parametrize("number", range(STORMS))
async def test_after_any_storm_there_is_the_cluster_that_is_wanted(number: int) -> None:
    await weather(dice(f"provisioning storm {number}"))
