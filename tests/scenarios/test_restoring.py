"""A snapshot of etcd brings a cluster of hosts back to what it was, whatever is killed meanwhile."""

from __future__ import annotations

import random
from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import CONFIG_MAPS
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.snapshot_sets import copy_of

from .provisioned import DEMO, FROM, TO, build, change, init_nodes, machine_of, message, nodes, ready

Obj = dict[str, Any]
MAPS = "/registry/configmaps/default/"


async def add_map(world: ProvisioningWorld, name: str) -> None:
    await world.distribution(DEMO).cluster.client.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")


async def maps(world: ProvisioningWorld) -> set[str]:
    found = await world.distribution(DEMO).cluster.state()
    return {key.removeprefix(MAPS) for key in found if key.startswith(MAPS)} - {"kube-root-ca.crt"}


async def status(world: ProvisioningWorld) -> Obj:
    found: Obj = (await world.control_plane(DEMO)).get("status") or {}
    return found


async def save(world: ProvisioningWorld, generation: int) -> None:
    await change(world, rkeConfig={"etcdSnapshotCreate": {"generation": generation}})

    async def saved() -> bool:
        found = await status(world)
        done = dig(found, "etcdSnapshotCreate", "generation") == generation
        return done and found.get("etcdSnapshotCreatePhase") == "Finished"

    await world.until("a snapshot is taken", saved)
    await ready(world)


async def listed(world: ProvisioningWorld, host: SimulatedHost) -> str:
    """The name of the ETCDSnapshot of a host's newest snapshot, as soon as there is one."""
    machine, file = name_of(await machine_of(world, host)), max(world.distribution(DEMO).snapshots[host.name])

    async def found() -> str:
        objects = (await world.client.list(rke.ETCD_SNAPSHOTS, WORKSPACE))["items"]
        copies = [each for each in map(copy_of, objects) if (each.machine, each.file) == (machine, file)]
        return copies[0].name if copies else ""

    return await world.until(f"{file} is listed", found, 60)


async def request(world: ProvisioningWorld, name: str, generation: int = 1, mode: str = "none", **spec: Any) -> None:
    asked = {"name": name, "generation": generation, "restoreRKEConfig": mode}
    await change(world, rkeConfig={"etcdSnapshotRestore": asked, **spec.pop("rkeConfig", {})}, **spec)


async def ended(world: ProvisioningWorld, generation: int = 1) -> str:
    async def is_over() -> str:
        found = await status(world)
        phase = str(found.get("etcdSnapshotRestorePhase") or "")
        of_this = dig(found, "etcdSnapshotRestore", "generation") == generation
        return phase if of_this and phase in ("Finished", "Failed") else ""

    return await world.until("the restore ends", is_over, 1800)


async def why(world: ProvisioningWorld) -> str:
    return str((condition_of(await world.control_plane(DEMO), "EtcdSnapshotRestored") or {}).get("message"))


@pytest.mark.parametrize(
    "roles", [["ecw"], ["ec", "ec", "ec", "w"], ["e", "c", "w"], ["ecw"] * 5, ["e", "e", "e", "c", "c", "w"]], ids=" ".join
)
async def test_what_was_there_comes_back_and_what_came_later_is_gone(roles: list[str]) -> None:
    async with provisioned() as world:
        hosts = await build(world, roles)
        await add_map(world, "before")
        await save(world, 1)
        holder = [host for host in hosts if "e" in host.roles][-1]
        snapshot = await listed(world, holder)
        await add_map(world, "after")
        await request(world, snapshot)
        assert await ended(world) == "Finished"
        await ready(world)
        assert await maps(world) == {"before"}
        assert await init_nodes(world) == [holder.name]
        assert set(await nodes(world)) == {host.name for host in hosts}
        assert world.distribution(DEMO).violations == [] and world.distribution(DEMO).epoch == 1
        assert (await status(world))["configGeneration"] == 1


@pytest.mark.parametrize("mode", ["none", "kubernetesVersion", "all"])
async def test_the_spec_comes_back_as_far_as_it_is_asked_for(mode: str) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: brought, namespace: default}\n"
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        snapshot = await listed(world, hosts[1])
        await change(world, kubernetesVersion=TO, rkeConfig={"additionalManifest": manifest})
        await ready(world)
        await request(world, snapshot, mode=mode)
        assert await ended(world) == "Finished"
        await ready(world)
        spec = (await world.cluster(DEMO))["spec"]
        assert spec["kubernetesVersion"] == (TO if mode == "none" else FROM)
        assert ("additionalManifest" in spec["rkeConfig"]) == (mode != "all")
        assert set((await nodes(world)).values()) == {spec["kubernetesVersion"]}
        assert world.distribution(DEMO).violations == []
        # What is changed afterwards stays.
        await change(world, kubernetesVersion=TO)
        await ready(world)
        assert set((await nodes(world)).values()) == {TO}


async def test_a_restore_that_can_not_succeed_changes_nothing() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        gone = await listed(world, hosts[1])
        await change(world, kubernetesVersion=TO)
        await ready(world)
        # Deleted by hand, which the next report of the host will tell.
        (file,) = world.distribution(DEMO).snapshots.pop("h1")
        started = list(world.distribution(DEMO).starts)
        await request(world, gone, mode="all")
        assert await ended(world) == "Failed"
        assert f"there is no snapshot at {file}" in await why(world)
        await ready(world)
        assert world.distribution(DEMO).starts == started, "nothing was stopped or started"
        assert (await world.cluster(DEMO))["spec"]["kubernetesVersion"] == TO, "and the spec is as it was"
        with pytest.raises(ApiError, match="missing snapshot never in namespace"):
            await request(world, "never", 2)


async def test_a_version_that_was_asked_for_with_the_restore_is_never_installed() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "w"])
        await save(world, 1)
        snapshot = await listed(world, hosts[0])
        await request(world, snapshot, mode="all", kubernetesVersion=TO, rkeConfig={"additionalManifest": "a: b"})
        assert await ended(world) == "Finished"
        await ready(world)
        assert {version for _, version in world.distribution(DEMO).starts} == {FROM}
        assert (await world.cluster(DEMO))["spec"]["kubernetesVersion"] == FROM


async def test_a_file_is_enough_where_the_machine_and_the_objects_are_gone() -> None:
    """Another etcd host has the directory of the one that is gone."""
    async with provisioned() as world:
        hosts = await build(world, ["e", "c", "w"])
        await add_map(world, "before")
        await save(world, 1)
        distribution = world.distribution(DEMO)
        (file,) = distribution.snapshots["h0"]
        await add_map(world, "after")
        machine = await machine_of(world, hosts[0])
        marks = {"metadata": {"annotations": {"remuda.dev/delete-last-etcd": "true"}}}
        await world.client.patch(MACHINES, name_of(machine), marks, WORKSPACE)
        await world.client.delete(MACHINES, name_of(machine), WORKSPACE)
        await world.until("it is gone", lambda: _has_gone(world, name_of(machine)))
        await world.hosts.remove(hosts[0])
        await world.host(DEMO, "h9", "e")
        distribution.snapshots["h9"] = distribution.snapshots.pop("h0")
        await world.until("it waits for a restore", lambda: _says(world, "Restoration from etcd snapshot is required"))
        await request(world, file)
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"}
        assert await init_nodes(world) == ["h9"] and distribution.violations == []


async def _has_gone(world: ProvisioningWorld, machine: str) -> bool:
    return machine not in [name_of(each) for each in await world.machines(DEMO)]


async def _says(world: ProvisioningWorld, text: str) -> bool:
    return text in await message(world)


@pytest.mark.parametrize("seed", range(6))
async def test_it_goes_on_wherever_the_server_and_the_agents_are_killed(seed: int) -> None:
    dice = random.Random(seed)
    async with provisioned(seed=seed) as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await add_map(world, "before")
        await save(world, 1)
        snapshot = await listed(world, dice.choice(hosts[:3]))
        await add_map(world, "after")
        await request(world, snapshot)
        for _ in range(25):
            await world.settle(dice.uniform(0.1, 6))
            if dice.random() < 0.5:
                await world.kill()
                world.begin()
            else:
                host = dice.choice(hosts)
                if world.hosts.is_running(host):
                    await world.hosts.kill(host)
                    world.hosts.revive(host)
            assert len(await init_nodes(world)) <= 1
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"}
        assert world.distribution(DEMO).violations == []


PHASES = ("Started", "Shutdown", "Restore", "PostRestorePodCleanup", "InitialRestartCluster")
# Those that every check plays: the machine with the file, and another server that must not start by itself.
CUTS = {(0, "Restore"), (1, "Started"), (1, "Shutdown"), (1, "Restore")}


@pytest.mark.parametrize(
    ("victim", "phase"),
    [
        pytest.param(victim, phase, marks=() if (victim, phase) in CUTS else pytest.mark.variant)
        for victim in (0, 1, 3)
        for phase in PHASES
    ],
)
async def test_a_host_that_loses_its_power_in_the_middle_goes_on_when_it_is_back(victim: int, phase: str) -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await add_map(world, "before")
        await save(world, 1)
        snapshot = await listed(world, hosts[0])
        await add_map(world, "after")
        await request(world, snapshot)

        async def is_in_phase() -> bool:
            return (await status(world)).get("etcdSnapshotRestorePhase") == phase

        await world.until(f"it is in {phase}", is_in_phase)
        await world.hosts.power_off(hosts[victim])
        await world.settle(120)
        assert (await status(world)).get("etcdSnapshotRestorePhase") == "Failed" or name_of(
            await machine_of(world, hosts[victim])
        ) in await message(world), "the machine that is waited for is named"
        world.hosts.power_on(hosts[victim])
        phase_of_end = await ended(world)
        await ready(world)
        # What is lost before anything stops ends the restore; later it is waited for.
        assert phase_of_end == "Finished" or (phase == "Started" and victim != 3), await why(world)
        assert await maps(world) == ({"before"} if phase_of_end == "Finished" else {"before", "after"})
        assert world.distribution(DEMO).violations == [] and len(await init_nodes(world)) == 1


async def test_a_cluster_that_is_deleted_in_the_middle_goes() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await save(world, 1)
        snapshot = await listed(world, hosts[0])
        await request(world, snapshot)

        async def is_restoring() -> bool:
            return (await status(world)).get("etcdSnapshotRestorePhase") == "Restore"

        await world.until("it is being restored", is_restoring)
        await world.client.delete(provisioning.CLUSTERS, DEMO, WORKSPACE)

        async def is_gone() -> bool:
            listed = (await world.client.list(provisioning.CLUSTERS, WORKSPACE))["items"]
            return Key(WORKSPACE, DEMO) not in [Key.of(each) for each in listed]

        await world.until("the cluster is gone", is_gone)
