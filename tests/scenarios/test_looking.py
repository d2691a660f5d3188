"""A cluster's whole life as people look at it, second by second: what is shown is always true, and there is always a why."""

from __future__ import annotations

from dataclasses import replace

from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.rehearsal import provisioning as provisioned
from remuda.cli.remote import clusters
from remuda.cli.views import chain_tree, cluster_tree
from remuda.gateway.explain import states, wait_chain, waits
from remuda.gateway.explain.states import ClusterView
from remuda.kube.objects import Key
from remuda.kube.waits import Code
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld

from .provisioned import DEMO, FROM, TO, change

# A drain and an uncordon are told apart by their codes only; a step is whatever was just written.
_LOOSE = {Code.DRAIN, Code.UNCORDON, Code.STEP, Code.HOOK}


class Onlooker:
    def __init__(self, world: ProvisioningWorld) -> None:
        self._world = world
        self.words: list[str] = []
        self.told: list[str] = []
        self._facts: dict[str, str] = {}

    async def look(self) -> ClusterView:
        client = self._world.client
        sight = await clusters.look(client, await client.get(provisioning.CLUSTERS, DEMO, WORKSPACE))
        return replace(sight, waits=tuple(await self._world.gateway.waits.about(Key(WORKSPACE, DEMO))))

    async def follow(self, until: str, seconds: int = 600) -> ClusterView:
        for _ in range(seconds):
            await self._world.settle(1)
            sight = await self.look()
            word = states.of_cluster(sight.wanted, sight.managed, sight.plane).word
            if self.words[-1:] != [word]:
                self.words.append(word)
            facts = cluster_tree.facts(sight)
            self.told += cluster_tree.news(self._facts, facts)
            self._facts = facts
            self._check(sight, word)
            if word == until:
                return sight
        raise AssertionError(f"never {until}: {self.words}, {self.told[-5:]}")

    def _check(self, sight: ClusterView, word: str) -> None:
        now = self._world.clock.time()
        for found in (sight, replace(sight, waits=None)):
            links = wait_chain.chain(found, now)
            drawn = [cluster_tree.plain(line) for line in cluster_tree.drawn(chain_tree.of_chain(found, links, now))]
            assert all(line == line.rstrip() and line for line in drawn)
            if word != states.ACTIVE:
                assert wait_chain.to_do(links, found), (word, drawn, self.told[-5:])
        said = [each for each in waits.read_off(sight) if each.evidence]
        for told in sight.waits or ():
            same = [each for each in said if (each.subject, each.evidence) == (told.subject, told.evidence)]
            # The control plane is written before its machines: in between it says that there is a step, and none of them which.
            same = [each for each in same if not (each.code is Code.STEP and each.on is None)]
            assert all(each.code == told.code for each in same if told.code not in _LOOSE), (told, same)


async def test_a_cluster_is_seen_to_come_to_change_and_to_be() -> None:
    async with provisioned() as world:
        await world.settle(30)
        await world.want(DEMO, FROM)
        eyes = Onlooker(world)
        await eyes.follow(states.WAITING_FOR_MACHINES)
        for number, roles in enumerate(("ecw", "ec", "ec", "w", "w")):
            await world.host(DEMO, f"h{number}", roles)
        done = await eyes.follow(states.ACTIVE)
        assert states.count(done.wanted, done.managed, done.machines) == "5/5"
        assert {states.of_machine(each).word for each in done.machines} == {states.READY}
        await change(world, kubernetesVersion=TO)
        await eyes.follow(states.UPDATING)
        done = await eyes.follow(states.ACTIVE)
        assert {states.kubelet_of(each) for each in done.machines} == {TO}
        await world.settle(60)
        quiet = await eyes.look()
        assert wait_chain.chain(quiet, world.clock.time()) == () and cluster_tree.facts(quiet)["control plane"] == "ready"
        steps = [word for word in eyes.words if word != states.PROVISIONING or eyes.words.index(word)]
        assert steps == [
            states.WAITING_FOR_MACHINES,
            states.PROVISIONING,
            states.ACTIVE,
            states.UPDATING,
            states.ACTIVE,
        ]
        assert not any(": error" in line or ": failed" in line or ": gone" in line for line in eyes.told), eyes.told
