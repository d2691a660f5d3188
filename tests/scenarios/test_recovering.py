"""A cluster whose servers are lost comes back from a snapshot in a bucket, or from the data of a server that is left: with new
machines of its pools or with hosts that are registered, and with the workers that it had."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.apiserver.storage.store import Delete, Put
from remuda.app.rehearsal import provisioning as provisioned
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import labels_of, name_of, uid_of
from remuda.kube.waits import Actor, Code
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.machine_jobs import pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.well_known import INIT_NODE, NODE_NAME, RECOVER, plan_name

from . import test_pools
from .provisioned import DEMO, NODES, init_nodes, machine_of, message, nodes, ready
from .test_pools import of_pools, until_pools
from .test_restoring import add_map, maps, save, status
from .test_restoring_from_buckets import CREDENTIAL, FOLDER, S3, record, saved

Obj = dict[str, Any]
WORKERS = pool("workers", "w", 2, "big")


async def recover(world: ProvisioningWorld, request: RecoveryRequest | None = None) -> None:
    request = request or RecoveryRequest(1, snapshot="snap")
    patch = {"metadata": {"annotations": {RECOVER: request.text()}}}
    await world.client.patch(provisioning.CLUSTERS, DEMO, patch, WORKSPACE)


async def ended(world: ProvisioningWorld, generation: int = 1) -> str:
    async def is_over() -> str:
        found = await status(world)
        phase = str(found.get("recoverPhase") or "")
        return phase if (found.get("recover") or {}).get("generation") == generation and phase in ("Finished", "Failed") else ""

    return await world.until("the recovery ends", is_over, 3600)


async def why(world: ProvisioningWorld) -> str:
    return str((condition_of(await world.control_plane(DEMO), "ClusterRecovered") or {}).get("message"))


async def in_phase(world: ProvisioningWorld, phase: str, restore: str = "") -> None:
    async def is_there() -> bool:
        found = await status(world)
        return found.get("recoverPhase") == phase and (not restore or found.get("etcdSnapshotRestorePhase") == restore)

    await world.until(f"it is in {phase} {restore}", is_there, 3600)


async def says(world: ProvisioningWorld, text: str) -> None:
    async def said() -> bool:
        return text in await message(world)

    await world.until(f"it says {text}", said, 600)


async def uids(world: ProvisioningWorld, names: set[str]) -> dict[str, str]:
    """Of Machines, by the names of their nodes."""
    found = {labels_of(each)[NODE_NAME]: uid_of(each) for each in await world.machines(DEMO) if NODE_NAME in labels_of(each)}
    return {name: uid for name, uid in found.items() if name in names}


async def node_uids(world: ProvisioningWorld, names: set[str]) -> dict[str, str]:
    listed = (await world.distribution(DEMO).cluster.client.list(NODES))["items"]
    return {name_of(each): uid_of(each) for each in listed if name_of(each) in names}


async def inits(world: ProvisioningWorld) -> list[str]:
    """The Machines that are marked as init node; in pools, hosts have the names of their Machines."""
    found = []
    for machine in await world.machines(DEMO):
        secret = await find(world.client, SECRETS, plan_name(name_of(machine)), WORKSPACE)
        if secret is not None and labels_of(secret).get(INIT_NODE) == "true":
            found.append(name_of(machine))
    return found


def of_world(world: ProvisioningWorld) -> list[SimulatedHost]:
    return list(world.hosts.hosts.values())


async def pooled(world: ProvisioningWorld, servers: int) -> None:
    """A cluster of pools with a snapshot in a bucket, and a ConfigMap that is in it, and one that is not."""
    keys = {"accessKey": "AKIA", "secretKey": "hidden"}
    data = {f"s3credentialConfig-{key}": base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    await world.client.create(SECRETS, {"metadata": {"name": CREDENTIAL}, "data": data}, WORKSPACE)
    await test_pools.build(world, pool("servers", "ec", servers), WORKERS, etcd={"s3": S3})
    await add_map(world, "before")
    await save(world, 1)
    bucket = world.hosts.buckets.of(S3["bucket"])
    key = min(key for key in bucket.objects if key.startswith(f"{FOLDER}/on-demand"))
    await record(world, key.rpartition("/")[2], bucket.objects[key].size, S3)
    await add_map(world, "after")


async def lose_servers(world: ProvisioningWorld) -> list[str]:
    """Cut the power of all servers."""
    lost = [host for host in of_world(world) if world.distribution(DEMO).members[host.name].etcd]
    for host in lost:
        await world.hosts.power_off(host)
    return [host.name for host in lost]


# --- hosts that are registered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "roles",
    [
        ["ec", "w"],
        ["ec", "ec", "ec", "w"],
        ["e", "c", "w"],
        ["ecw"] * 3,
        pytest.param(["ec"] * 5 + ["w", "w"], marks=pytest.mark.variant),
    ],
    ids=" ".join,
)
async def test_registered_hosts_take_the_places_of_lost_ones(roles: list[str]) -> None:
    async with provisioned() as world:
        await saved(world, roles)
        hosts = of_world(world)
        servers = [host for host in hosts if host.roles != "w"]
        workers = {host.name for host in hosts if host.roles == "w"}
        before, on = await uids(world, workers), await node_uids(world, workers)
        for host in servers:
            await world.hosts.remove(host)
        await recover(world)
        await says(world, "recovering (Hosts): waiting for hosts to be registered: 0 of ")
        (wait,) = [each for each in world.waits() if each.code is Code.ROLES and each.evidence.startswith("recovering (Hosts)")]
        assert wait.actor is Actor.USER and "remuda cluster registration-command demo" in wait.evidence
        for number, host in enumerate(servers):
            await world.host(DEMO, f"n{number}", host.roles)
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        await world.until("all are nodes", lambda: _are_nodes(world, workers | {f"n{n}" for n in range(len(servers))}))
        assert await maps(world) == {"before"}
        assert await uids(world, workers) == before and await node_uids(world, workers) == on
        distribution = world.distribution(DEMO)
        assert distribution.violations == [] and distribution.epoch == 1 and len(await init_nodes(world)) == 1


async def _are_nodes(world: ProvisioningWorld, names: set[str]) -> bool:
    return set(await nodes(world)) == names and await world.is_ready(DEMO)


async def test_one_new_host_is_enough_and_others_join_when_they_come() -> None:
    async with provisioned() as world:
        await saved(world, ["ec", "ec", "ec", "w"])
        for host in [host for host in of_world(world) if host.roles == "ec"]:
            await world.hosts.remove(host)
        await recover(world)
        await says(world, "0 of 3 with etcd,controlplane (missing: etcd, control plane)")
        await world.host(DEMO, "n0", "ec")
        assert await ended(world) == "Finished", await why(world)
        await ready(world)
        assert await maps(world) == {"before"} and set(await nodes(world)) == {"n0", "h3"}
        for name in ("n1", "n2"):
            await world.host(DEMO, name, "ec")
        await world.until("they join", lambda: _are_nodes(world, {"n0", "n1", "n2", "h3"}))
        assert world.distribution(DEMO).violations == []


async def test_nothing_happens_without_a_snapshot_of_this_cluster() -> None:
    async with provisioned() as world:
        await saved(world, ["ec", "w"])
        with pytest.raises(ApiError, match="there is no ETCDSnapshot other of this cluster"):
            await recover(world, RecoveryRequest(1, snapshot="other"))
        with pytest.raises(ApiError, match="name either a snapshot or a machine"):
            await recover(world, RecoveryRequest(1))
        assert await world.is_ready(DEMO)


# --- machines of pools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3, pytest.param(5, marks=pytest.mark.variant)])
async def test_pools_make_new_servers_and_keep_their_workers(servers: int) -> None:
    async with provisioned(pools=True) as world:
        await pooled(world, servers)
        before = {name_of(each): uid_of(each) for each in await world.machines(DEMO)}
        workers = (await of_pools(world))["workers"]
        await lose_servers(world)
        await recover(world)
        assert await ended(world) == "Finished", await why(world)
        await until_pools(world, servers=servers, workers=2)
        after = {name_of(each): uid_of(each) for each in await world.machines(DEMO)}
        assert {name: after[name] for name in workers} == {name: before[name] for name in workers}
        assert set(after) & set(before) == set(workers) and await maps(world) == {"before"}
        assert world.distribution(DEMO).violations == [] and world.distribution(DEMO).epoch == 1


async def test_machines_that_were_deleted_by_hand_before_are_no_obstacle() -> None:
    async with provisioned(pools=True) as world:
        await pooled(world, 3)
        await lose_servers(world)
        for name in (await of_pools(world))["servers"]:
            patch = {"metadata": {"annotations": {"remuda.dev/delete-last-etcd": "true"}}}
            await world.client.patch(MACHINES, name, patch, WORKSPACE)
            await world.client.delete(MACHINES, name, WORKSPACE)
        await world.settle(60)
        await recover(world)
        assert await ended(world) == "Finished", await why(world)
        await until_pools(world, servers=3, workers=2)
        assert await maps(world) == {"before"} and world.distribution(DEMO).violations == []


async def test_new_machines_that_die_in_the_middle_are_replaced_by_another_request() -> None:
    async with provisioned(pools=True) as world:
        await pooled(world, 3)
        await lose_servers(world)
        await recover(world)
        await in_phase(world, "Restoring", "Restore")
        (init,) = await inits(world)
        (host,) = [each for each in of_world(world) if each.name == init]
        await world.hosts.power_off(host)
        await world.settle(300)
        assert init in "".join(wait.evidence for wait in world.waits()), "the machine that is waited for is named"
        await recover(world, RecoveryRequest(2, snapshot="snap"))
        assert await ended(world, 2) == "Finished", await why(world)
        await until_pools(world, servers=3, workers=2)
        assert await maps(world) == {"before"} and init not in await nodes(world)
        assert world.distribution(DEMO).violations == []


# --- a server that is left ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [2, 3])
async def test_a_server_that_is_left_goes_on_with_all_that_was_stored(servers: int) -> None:
    async with provisioned() as world:
        await saved(world, ["ec"] * servers + ["w"])
        hosts = of_world(world)
        left, worker = hosts[0], hosts[-1]
        before = await uids(world, {left.name, worker.name})
        for host in hosts[1:-1]:
            await world.hosts.remove(host)
        await recover(world, RecoveryRequest(1, machine=name_of(await machine_of(world, left))))
        assert await ended(world) == "Finished", await why(world)
        await world.until("two are left", lambda: _are_nodes(world, {left.name, worker.name}))
        assert await maps(world) == {"before", "after"} and await init_nodes(world) == [left.name]
        assert await uids(world, {left.name, worker.name}) == before
        for number in range(servers - 1):
            await world.host(DEMO, f"n{number}", "ec")
        await world.until(
            "they join", lambda: _are_nodes(world, {left.name, worker.name, *(f"n{n}" for n in range(servers - 1))})
        )
        assert world.distribution(DEMO).violations == []


async def test_a_machine_that_does_not_answer_is_not_gone_on_from() -> None:
    async with provisioned() as world:
        await saved(world, ["ec", "ec", "ec", "w"])
        lost = of_world(world)[:2]
        for host in lost:
            await world.hosts.power_off(host)
        before = [name_of(each) for each in await world.machines(DEMO)]
        machine = name_of(await machine_of(world, lost[0]))
        await recover(world, RecoveryRequest(1, machine=machine))
        assert await ended(world) == "Failed"
        assert f"machine {machine} does not answer" in await why(world)
        assert [name_of(each) for each in await world.machines(DEMO)] == before, "nothing was deleted"
        for host in lost:
            world.hosts.power_on(host)
        await ready(world)
        assert await maps(world) == {"before", "after"} and world.distribution(DEMO).violations == []


# --- trouble --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.variant), pytest.param(2, marks=pytest.mark.variant)])
async def test_it_goes_on_wherever_the_server_and_the_agents_are_killed(seed: int) -> None:
    dice = random.Random(seed)
    async with provisioned(pools=True, seed=seed) as world:
        await pooled(world, 3)
        workers = {name: uid for name, uid in (await _machine_uids(world)).items() if "-workers-" in name}
        await lose_servers(world)
        await recover(world)
        for _ in range(40):
            await world.settle(dice.uniform(0.1, 6))
            if dice.random() < 0.6:
                await world.kill()
                world.begin()
            else:
                host = dice.choice(of_world(world))
                if world.hosts.is_running(host):
                    await world.hosts.kill(host)
                    world.hosts.revive(host)
            assert len(await inits(world)) <= 1
        assert await ended(world) == "Finished", await why(world)
        await until_pools(world, servers=3, workers=2)
        assert await maps(world) == {"before"} and world.distribution(DEMO).violations == []
        assert {name: uid for name, uid in (await _machine_uids(world)).items() if "-workers-" in name} == workers


async def _machine_uids(world: ProvisioningWorld) -> dict[str, str]:
    return {name_of(each): uid_of(each) for each in await world.machines(DEMO)}


async def stored(world: ProvisioningWorld) -> dict[str, bytes]:
    """All that the management server has stored."""
    return {each.key: each.value for each in (await world.server.store.range("/registry/")).items}


async def go_back(world: ProvisioningWorld, backup: dict[str, bytes]) -> None:
    """Restore the management server, which is down, from its backup."""
    now = await stored(world)
    ops: list[Put | Delete] = [Delete(key) for key in now if key not in backup]
    ops += [Put(key, value) for key, value in backup.items() if now.get(key) != value]
    for op in ops:
        await world.server.store.write([op])


async def test_it_works_after_the_management_server_was_restored_from_its_own_backup() -> None:
    """The backup is of a time when the servers were there; they are lost, and the server knows nothing of it."""
    async with provisioned() as world:
        await saved(world, ["ec", "ec", "ec", "w"])
        backup = await stored(world)
        worker = {"h3"}
        before = await uids(world, worker)
        await add_map(world, "later")
        await world.kill()
        await go_back(world, backup)
        for host in [host for host in of_world(world) if host.roles == "ec"]:
            await world.hosts.remove(host)
        world.begin()
        await recover(world)
        await says(world, "recovering (Hosts)")
        for number in range(3):
            await world.host(DEMO, f"n{number}", "ec")
        assert await ended(world) == "Finished", await why(world)
        await world.until("all are nodes", lambda: _are_nodes(world, {"n0", "n1", "n2", "h3"}))
        assert await maps(world) == {"before"} and await uids(world, worker) == before
        assert world.distribution(DEMO).violations == []
