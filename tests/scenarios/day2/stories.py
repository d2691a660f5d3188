"""One story: a cluster, acts of its users, and faults while they are carried out.

Each act ends in a cluster that is Ready and has the data that it should have, or in a wait that names a user: then the story does
what it asks for.
"""

from __future__ import annotations

import random
from typing import Any

from remuda.api import rke_cattle_io as rke
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, labels_of, name_of
from remuda.kube.waits import Actor, Code
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.etcd.snapshot_sets import AVAILABLE, SnapshotCopy, grouped
from remuda.provisioning.planner.snapshot_reader import control_plane
from remuda.provisioning.well_known import NODE_NAME

from ..provisioned import DEMO, change, nodes
from ..test_recovering import recover
from ..test_restoring import MAPS, add_map, maps
from .faults import Faults
from .laws import Broken, Laws, running
from .shapes import Shape

Obj = dict[str, Any]

# Virtual seconds until an act must have ended once its faults are over; a host that does not answer takes 15 minutes, a snapshot
# that failed is tried again after 10.
_LONGEST = 4 * 3600.0
# Virtual seconds after which a cluster that is not ready must have a wait.
_SILENCE = 60.0
_STEP = 2.0
_INVALID = 422


class Story:
    def __init__(self, world: ProvisioningWorld, shape: Shape, chance: random.Random) -> None:
        self.world = world
        self.shape = shape
        self.chance = chance
        self.told: list[str] = []
        self.laws = Laws(world)
        self.faults = Faults(world, chance, self.tell)
        self._generations: dict[str, int] = {}
        self._versions = list(shape.versions[1:])
        self._maps: set[str] = set()
        self._restored = 0
        self._hosts = 0
        self._paused = False
        self._recovery = RecoveryRequest(0)

    def tell(self, text: str) -> None:
        self.told.append(f"{self.world.clock.monotonic():9.1f}  {text}")

    # --- the course of a story --------------------------------------------------------------------------------------------

    async def run(self, acts: int) -> None:
        self.tell(str(self.shape))
        await self.shape.build(self.world)
        await self._request_snapshot()
        await self._settled()
        for number in range(acts):
            await add_map(self.world, f"m{number}")
            self._maps.add(f"m{number}")
            await self._act()
        await self.laws.check_hosts()

    async def _act(self) -> None:
        act = self.chance.choice(
            [
                self._request_snapshot,
                self._request_restore,
                self._request_restore,
                self._request_certificates,
                self._expire,
                self._request_keys,
                self._upgrade,
                self._upgrade,
                self._lose_servers,
                self._go_on_from_one,
            ]
        )
        await act()
        disaster = act in (self._lose_servers, self._go_on_from_one)
        for _ in range(self.chance.choice([0, 0, 2, 5, 9])):
            await self._pass(self.chance.choice([0.3, 1, 2, 5, 15, 60]))
            if not disaster and self.chance.random() < 0.15:
                await self.chance.choice([self._request_snapshot, self._request_restore, self._request_keys, self._upgrade])()
            elif self.chance.random() < 0.1:
                await self._pause(not self._paused)
            else:
                await self.faults.strike(power=not disaster)
        await self.faults.end()
        await self._pause(False)
        await self._settled()

    async def _pass(self, seconds: float) -> None:
        """Let time pass, and look at the laws meanwhile."""
        end = self.world.clock.monotonic() + seconds
        while (left := end - self.world.clock.monotonic()) > 0:
            await self.world.settle(min(left, _STEP))
            await self._look()

    async def _look(self) -> None:
        await self.laws.check()
        restored = self.world.distribution(DEMO).restored
        if len(restored) > self._restored:
            self._restored = len(restored)
            self._maps = {key.removeprefix(MAPS) for key in restored[-1].state if key.startswith(MAPS)} - {"kube-root-ca.crt"}
            self.tell(f"  etcd went back to {restored[-1].taken:.0f}: {sorted(self._maps)}")

    # --- the end of an act ------------------------------------------------------------------------------------------------

    async def _settled(self) -> None:
        """The end of what was requested. Raises Broken if neither it nor a named wait comes."""
        end, unnamed = self.world.clock.monotonic() + _LONGEST, 0.0
        await self._pass(_STEP)
        while why := await self._unsettled():
            if self.world.clock.monotonic() > end:
                raise Broken(f"no end: {why}: {await self._present()}")
            waiting = [wait for wait in self.world.waits() if wait.evidence and wait.actor]
            unnamed = 0.0 if waiting else unnamed + _STEP
            if unnamed > _SILENCE:
                raise Broken(f"nothing says why {why}: {await self._present()}")
            await self._help()
            await self._pass(_STEP)
        if (found := await maps(self.world)) != self._maps:
            raise Broken(f"the cluster has {sorted(found)} instead of {sorted(self._maps)}")
        self.tell(f"  settled: {await self._present()}")

    async def _unsettled(self) -> str:
        """What is still to come; "" if nothing is."""
        found = await self.world.control_plane(DEMO)
        plane = control_plane(found)
        if ongoing := running(plane):
            return f"{ongoing[0]} is running"
        for field, generation in self._generations.items():
            done = dig(found, "status", field, "generation")
            if field == "rotateCertificates":
                done = plane.certificate_rotation_generation
            if done != generation:
                return f"{field} {generation} has not begun"
        if plane.recover_phase not in ("", "Finished", "Failed"):
            return "it is being recovered"
        if not await self.world.is_ready(DEMO):
            return "it is not ready"
        version = dig(await self.world.cluster(DEMO), "spec", "kubernetesVersion")
        wanted = {host.name: version for host in self.world.hosts.hosts.values()}
        there = await nodes(self.world)
        return "" if there == wanted else f"its nodes are {there} instead of {wanted}"

    async def _help(self) -> None:
        """Do what the waits ask of a user: request the restore or the recovery once more."""
        status = (await self.world.control_plane(DEMO)).get("status") or {}
        if status.get("recoverPhase") == "Failed" and not await self.world.is_ready(DEMO):
            self.tell(f"  recovery failed: {_message(status, 'ClusterRecovered')}")
            await self._recover_again()
        elif any(wait.code is Code.RESTORE and wait.actor is Actor.USER for wait in self.world.waits()):
            self.tell(f"  restore failed: {_message(status, 'EtcdSnapshotRestored')}")
            await self._request_restore()

    async def _present(self) -> str:
        plane = await self.world.control_plane(DEMO)
        status = plane.get("status") or {}
        conditions = {
            each["type"]: each.get("message", "")
            for each in status.get("conditions") or ()
            if each["status"] != "True" and each.get("message")
        }
        phases = {key: value for key, value in status.items() if key.endswith("Phase") and value}
        waits = [f"{wait.code} {wait.actor} {wait.evidence}" for wait in self.world.waits()]
        return f"{phases} {'up' if self.world.distribution(DEMO).answers else 'down'} {conditions} {waits}"

    # --- requests ---------------------------------------------------------------------------------------------------------

    async def _next(self, field: str) -> int:
        """The generation of a new request; the one in the spec may be of a recovery."""
        last = int(dig(await self.world.cluster(DEMO), "spec", "rkeConfig", field, "generation") or 0)
        self._generations[field] = max(last, self._generations.get(field, 0)) + 1
        return self._generations[field]

    async def _request_snapshot(self) -> None:
        generation = await self._next("etcdSnapshotCreate")
        self.tell(f"snapshot {generation}")
        await change(self.world, rkeConfig={"etcdSnapshotCreate": {"generation": generation}})

    async def _request_restore(self) -> None:
        copies = await self._copies()
        if not copies:
            return
        copy, mode = self.chance.choice(copies), self.chance.choice(["none", "none", "kubernetesVersion", "all"])
        generation = await self._next("etcdSnapshotRestore")
        self.tell(f"restore {generation} of {copy.file} ({copy.storage}, {copy.version}), {mode}")
        asked = {"name": copy.name, "generation": generation, "restoreRKEConfig": mode}
        await change(self.world, rkeConfig={"etcdSnapshotRestore": asked})

    async def _copies(self, *storages: str) -> list[SnapshotCopy]:
        objects = (await self.world.client.list(rke.ETCD_SNAPSHOTS, WORKSPACE))["items"]
        found = [copy for each in grouped(sorted(objects, key=name_of)) for copy in each.copies]
        return [copy for copy in found if copy.state == AVAILABLE and (not storages or copy.storage in storages)]

    async def _request_certificates(self) -> None:
        generation = await self._next("rotateCertificates")
        self.tell(f"rotate certificates {generation}")
        await change(self.world, rkeConfig={"rotateCertificates": {"generation": generation}})

    async def _expire(self) -> None:
        """The cluster was switched off for years."""
        self.tell("all certificates expire")
        self.world.distribution(DEMO).expire()
        await self._pass(self.chance.choice([1, 120]))
        await self._request_certificates()

    async def _request_keys(self) -> None:
        generation = await self._next("rotateEncryptionKeys")
        self.tell(f"rotate encryption keys {generation}")
        await change(self.world, rkeConfig={"rotateEncryptionKeys": {"generation": generation}})

    async def _upgrade(self) -> None:
        now = dig(await self.world.cluster(DEMO), "spec", "kubernetesVersion")
        newer = self.shape.versions[self.shape.versions.index(now) + 1 :]
        if newer:
            self.tell(f"upgrade to {newer[0]}")
            try:
                await change(self.world, kubernetesVersion=newer[0])
            except ApiError as error:
                # Two minor versions at once: a second request while the first is carried out.
                if error.code != _INVALID or "one minor version at a time" not in error.message:
                    raise
                self.tell(f"  refused: {error.message}")

    async def _pause(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self.tell("pause" if paused else "unpause")
            patch = {"metadata": {"annotations": {"cluster.x-k8s.io/paused": "true" if paused else None}}}
            await self.world.client.patch(rke.RKE_CONTROL_PLANES, DEMO, patch, WORKSPACE)

    # --- back from nothing ------------------------------------------------------------------------------------------------

    async def _lose_servers(self) -> None:
        """All servers are lost; a snapshot in the bucket is left."""
        copies = await self._copies("s3")
        if not copies:
            return
        lost = [host for host in self._of_world() if self._is_server(host)]
        self.tell(f"lost: {' '.join(host.name for host in lost)}")
        for host in lost:
            await self._lose(host)
        copy = self.chance.choice(copies)
        await self._recover(
            RecoveryRequest(await self._next("recover"), snapshot=copy.name, config=self.chance.choice(["", "all"]))
        )
        await self._replace(lost)

    async def _go_on_from_one(self) -> None:
        """All members of etcd but one are lost."""
        members = [host for host in self._of_world() if self.world.distribution(DEMO).members[host.name].etcd]
        if len(members) < 2:
            return
        left = self.chance.choice(members)
        lost = [host for host in members if host is not left]
        self.tell(f"lost: {' '.join(host.name for host in lost)}")
        for host in lost:
            await self._lose(host)
        machine = await self._machine_of(left)
        await self._recover(RecoveryRequest(await self._next("recover"), machine=machine))
        await self._replace(lost)

    def _of_world(self) -> list[SimulatedHost]:
        return list(self.world.hosts.hosts.values())

    def _is_server(self, host: SimulatedHost) -> bool:
        return "e" in host.roles or "c" in host.roles

    async def _machine_of(self, host: SimulatedHost) -> str:
        found = [each for each in await self.world.machines(DEMO) if host.name in (labels_of(each).get(NODE_NAME), name_of(each))]
        return name_of(found[0])

    async def _lose(self, host: SimulatedHost) -> None:
        """Hosts of pools stay without power until their machines are deleted."""
        if self.shape.pools:
            await self.world.hosts.power_off(host)
        else:
            await self.world.hosts.remove(host)

    async def _recover(self, request: RecoveryRequest) -> None:
        self.tell(f"recover {request.generation} from {request.source} {request.config}")
        self._recovery = request
        # It requests a restore of its own.
        self._generations.pop("etcdSnapshotRestore", None)
        await recover(self.world, request)

    async def _recover_again(self) -> None:
        last = self._recovery
        copies = await self._copies("s3")
        request = RecoveryRequest(await self._next("recover"), last.snapshot, last.machine, last.config)
        if last.snapshot and copies:
            request = RecoveryRequest(request.generation, snapshot=self.chance.choice(copies).name)
        await self._recover(request)

    async def _replace(self, lost: list[SimulatedHost]) -> None:
        """Register other hosts, as far as pools do not make them."""
        if self.shape.pools:
            return
        await self._pass(self.chance.choice([1, 100, 300]))
        for host in lost:
            self._hosts += 1
            self.tell(f"host n{self._hosts} {host.roles}")
            await self.world.host(DEMO, f"n{self._hosts}", host.roles, runtime=self.shape.runtime)


def _message(status: Obj, kind: str) -> str:
    return next((str(each.get("message")) for each in status.get("conditions") or () if each["type"] == kind), "")


async def tell(number: int, chance: random.Random, again: str, acts: int = 4) -> None:
    """Run the story of a number; when it fails, print what happened and the command to run it again."""
    shape = Shape.random(chance)
    async with provisioned(seed=chance.randrange(10**6), pools=shape.pools) as world:
        story = Story(world, shape, chance)
        try:
            await story.run(acts)
        except BaseException:
            print("\n".join([f"story {number}; again: {again}", *story.told]))
            raise
