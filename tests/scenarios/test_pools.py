"""Machines that come in pools: what one edits, and who is replaced by it. Jobs are made as ever; their work is simulated."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.clock import Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, labels_of, name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import SimulatedJobs, config, pool
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.machines.machineprovision.job_outcome import attempts_of
from remuda.machines.machineprovision.well_known import CONFIG_MAPS

from .provisioned import DEMO, FROM, NODES, TO, change, delete, everything, nodes, ready

Obj = dict[str, Any]
SERVERS, WORKERS = pool("servers", "ec"), pool("workers", "w", 2, "big")


async def build(world: ProvisioningWorld, *pools: Obj, **spec: Any) -> SimulatedJobs:
    for name, size in (("small", "s"), ("big", "l")):
        await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size), WORKSPACE)
    await world.want(DEMO, FROM, machinePools=list(pools) or [SERVERS, WORKERS], **spec)
    await ready(world)
    assert world.jobs is not None
    return world.jobs


async def of_pools(world: ProvisioningWorld) -> dict[str, list[str]]:
    """The Machines that are meant to stay, by pool."""
    found: dict[str, list[str]] = {}
    for machine in await world.machines(DEMO):
        if "deletionTimestamp" not in machine["metadata"]:
            found.setdefault(labels_of(machine)["rke.cattle.io/rke-machine-pool-name"], []).append(name_of(machine))
    return found


async def repool(world: ProvisioningWorld, *pools: Obj) -> None:
    """What the cluster's pools are from now on; what it keeps of their drivers stays by itself."""
    await change(world, rkeConfig={"machinePools": list(pools)})


async def test_pools_become_a_cluster_and_go_without_a_trace() -> None:
    async with provisioned(pools=True) as world:
        await world.settle(30)
        before = await everything(world)
        made = await build(world)
        assert {name: len(found) for name, found in (await of_pools(world)).items()} == {"servers": 1, "workers": 2}
        assert set(await nodes(world)) == {host.name for host in made.hosts.values()}
        await world.settle(30)
        for machine in await world.machines(DEMO):
            assert dig(machine, "status", "phase") == "Running"
        await delete(world)
        assert made.hosts == {} and sorted(made.made) == sorted(made.removed)
        assert set(await everything(world)) - set(before) == set()


async def test_a_pool_grows_and_shrinks_in_place() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world)
        before = await of_pools(world)
        await repool(world, pool("servers", "ec", 3), pool("workers", "w", 3, "big"))
        await until_pools(world, servers=3, workers=3)
        grown = await of_pools(world)
        assert set(before["servers"]) < set(grown["servers"]) and set(before["workers"]) < set(grown["workers"])
        # Whom the user marks goes first, else the oldest.
        marked = grown["workers"][-1]
        annotations = {"cluster.x-k8s.io/delete-machine": "yes"}
        await world.client.patch(capi.MACHINES, marked, {"metadata": {"annotations": annotations}}, WORKSPACE)
        with pytest.raises(ApiError, match="etcd has 3 members and can spare 1 at a time"):
            await repool(world, pool("servers", "ec", 1), pool("workers", "w", 2, "big"))
        for size in (2, 1):
            await repool(world, pool("servers", "ec", size), pool("workers", "w", 2, "big"))
            await until_pools(world, servers=size, workers=2)
        shrunk = await of_pools(world)
        assert set(shrunk["workers"]) == set(grown["workers"]) - {marked}
        assert set(await nodes(world)) == {host.name for host in made.hosts.values()}
        assert world.distribution(DEMO).violations == []


async def until_pools(world: ProvisioningWorld, **sizes: int) -> None:
    """As many machines in each pool, all of them running, nobody on the way out, and the cluster ready."""

    async def there() -> bool:
        machines = await world.machines(DEMO)
        found = {name: len(each) for name, each in (await of_pools(world)).items()}
        settled = all(dig(each, "status", "phase") == "Running" for each in machines)
        return found == {name: size for name, size in sizes.items() if size} and settled and await world.is_ready(DEMO)

    await world.settle(1)
    await world.until(f"there are {sizes}", there)


async def test_machines_whose_hosts_never_come_are_replaced_one_by_one_also_the_first_server() -> None:
    async with provisioned(pools=True) as world:
        assert world.jobs is not None
        world.jobs.silent = 3
        for name in ("small", "big"):
            await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size="s"), WORKSPACE)
        await world.want(DEMO, FROM, machinePools=[SERVERS, WORKERS])
        await world.until("all have machines", lambda: _made(world, 3), 300)
        lost = list(world.jobs.made)
        await world.settle(2000)
        assert world.jobs.made == lost, "their tokens have just expired: hosts that came last may yet be heard"
        await ready(world, 3600)
        await until_pools(world, servers=1, workers=2)
        assert sorted(world.jobs.removed) == sorted(lost) and len(world.jobs.made) == 6
        assert world.distribution(DEMO).violations == []
        await world.settle(7200)
        assert len(world.jobs.made) == 6, "whoever is at work stays"


async def _made(world: ProvisioningWorld, number: int) -> bool:
    return world.jobs is not None and len(world.jobs.made) == number


async def test_another_config_replaces_the_machines_of_its_pools_one_by_one_and_nobody_else() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world)
        before = await of_pools(world)
        await world.client.patch(machine_jobs.CONFIGS, "big", {"size": "xl"}, WORKSPACE)
        fewest, most = await while_rolling(world, before["workers"])
        after = await of_pools(world)
        assert after["servers"] == before["servers"] and not set(after["workers"]) & set(before["workers"])
        assert (fewest, most) == (2, 3), "one more at a time, and never fewer"
        assert sorted(made.removed) == sorted(before["workers"])
        for name in after["workers"]:
            infra = await world.client.get(machine_jobs.MACHINES, name, WORKSPACE)
            assert infra["spec"]["size"] == "xl"
        # A field that the driver learned after the pool was made replaces nobody.
        schema = (await world.client.get(DYNAMIC_SCHEMAS, "paperconfig"))["spec"]["resourceFields"]
        learned = {"resourceFields": {**schema, "shiny": schema["size"]}}
        await world.client.patch(DYNAMIC_SCHEMAS, "paperconfig", {"spec": learned})
        await world.settle(120)
        assert await of_pools(world) == after


async def while_rolling(world: ProvisioningWorld, old: list[str]) -> tuple[int, int]:
    """Until none of the old is left: the fewest nodes of workers that were Ready at once, and the most machines."""
    fewest, most = 99, 0

    async def rolled() -> bool:
        nonlocal fewest, most
        machines = [name_of(each) for each in await world.machines(DEMO) if "-workers-" in name_of(each)]
        ready_ones = [each for each in await listed_nodes(world) if "-workers-" in name_of(each) and is_ready(each)]
        fewest, most = min(fewest, len(ready_ones)), max(most, len(machines))
        return not set(machines) & set(old)

    await world.until("the old machines are gone", rolled)
    await until_pools(world, servers=1, workers=2)
    return fewest, most


async def listed_nodes(world: ProvisioningWorld) -> list[Obj]:
    return list((await world.distribution(DEMO).cluster.client.list(NODES))["items"])


def is_ready(node: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in dig(node, "status", "conditions") or ())


async def test_labels_taints_and_versions_replace_nobody() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world)
        before = await of_pools(world)
        taint = {"key": "only", "value": "batch", "effect": "NoSchedule"}
        await repool(world, SERVERS, {**WORKERS, "labels": {"disk": "ssd"}, "taints": [taint]})
        await ready(world)
        await world.until("hosts are told", lambda: told(world, "disk=ssd", "only=batch:NoSchedule"))
        for machine in await world.machines(DEMO):
            wanted = {"disk": "ssd"} if "-workers-" in name_of(machine) else {}
            assert {key: value for key, value in labels_of(machine).items() if key == "disk"} == wanted
        await change(world, kubernetesVersion=TO)
        await ready(world)
        assert set((await nodes(world)).values()) == {TO}
        assert await of_pools(world) == before and made.removed == []


async def told(world: ProvisioningWorld, label: str, taint: str) -> bool:
    members = [each for name, each in world.distribution(DEMO).members.items() if "-workers-" in name]
    return all(label in each.config.get("node-label", ()) and taint in each.config.get("node-taint", ()) for each in members)


async def test_a_dead_machine_is_replaced() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world, SERVERS, {**WORKERS, "unhealthyNodeTimeout": "60s", "maxUnhealthy": "50%"})
        before = await of_pools(world)
        victim = before["workers"][0]
        (host,) = [each for key, each in made.hosts.items() if key.name == victim]
        await world.hosts.power_off(host)
        await world.until("somebody else is in its place", lambda: replaced(world, victim))
        await until_pools(world, servers=1, workers=2)
        after = await of_pools(world)
        assert after["servers"] == before["servers"] and len(set(after["workers"]) & set(before["workers"])) == 1
        assert made.removed == [victim]
        # Whom the user deletes is replaced, too.
        await world.client.delete(capi.MACHINES, after["workers"][0], WORKSPACE)
        await world.until("somebody else is in its place", lambda: replaced(world, after["workers"][0]))
        await until_pools(world, servers=1, workers=2)


async def replaced(world: ProvisioningWorld, name: str) -> bool:
    found = await world.machines(DEMO)
    return len(found) == 3 and name not in {name_of(each) for each in found}


async def test_a_dead_server_is_replaced_and_its_member_of_etcd_leaves() -> None:
    async with provisioned(pools=True) as world:
        made = await build(world, pool("servers", "ecw", 3, unhealthyNodeTimeout="60s"))
        victim = (await of_pools(world))["servers"][0]
        (host,) = [each for key, each in made.hosts.items() if key.name == victim]
        await world.hosts.power_off(host)
        await world.until("somebody else is in its place", lambda: replaced(world, victim))
        await until_pools(world, servers=3)
        built = world.distribution(DEMO)
        assert built.violations == [] and made.removed == [victim]
        assert sorted(name for name, each in built.members.items() if each.etcd) == sorted(await nodes(world))


async def test_what_could_not_be_made_is_tried_again_and_remembered() -> None:
    async with provisioned(pools=True) as world:
        assert world.jobs is not None
        world.jobs.failures = ["QuotaExceeded: no more than 3 machines: ask for more, or delete some"]
        await build(world)
        listed = (await world.client.list(CONFIG_MAPS, WORKSPACE, labels="remuda.dev/machine-attempts"))["items"]
        attempts = [each for found in listed for each in attempts_of(found)]
        failed = [each for each in attempts if each.result == "Failed"]
        assert [(each.reason, each.action) for each in failed] == [("QuotaExceeded", "create")]
        assert failed[0].machine not in {name_of(each) for each in await world.machines(DEMO)}
        assert "ask for more" in failed[0].message


async def test_options_of_a_pool_reach_what_they_are_for() -> None:
    options = {
        "hostnameLengthLimit": 12,
        "autoscalingMinSize": 1,
        "autoscalingMaxSize": 4,
        "drainBeforeDelete": True,
        "drainBeforeDeleteTimeout": "90s",
        "nodeStartupTimeout": "10m",
        "unhealthyNodeTimeout": "2m",
        "unhealthyRange": "[1-2]",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
        "machineDeploymentLabels": {"team": "blue"},
        "machineDeploymentAnnotations": {"note": "ours"},
    }
    async with provisioned(pools=True) as world:
        await build(world, SERVERS, {**WORKERS, **options})
        assert all(len(name) <= 12 for name in await nodes(world) if name not in {h.name for h in servers(world)})
        deployment = await world.client.get(capi.MACHINE_DEPLOYMENTS, f"{DEMO}-workers", WORKSPACE)
        marks = annotations_of(deployment)
        assert (marks["note"], labels_of(deployment)["team"]) == ("ours", "blue")
        assert {marks[f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size"] for end in ("min", "max")} == {"1", "4"}
        check = await world.client.get(capi.MACHINE_HEALTH_CHECKS, f"{DEMO}-workers", WORKSPACE)
        assert check["spec"]["checks"]["nodeStartupTimeoutSeconds"] == 600
        assert check["spec"]["remediation"]["triggerIf"] == {"unhealthyInRange": "[1-2]"}
        for machine in await world.machines(DEMO):
            drained = "-workers-" in name_of(machine)
            assert ("machine.cluster.x-k8s.io/exclude-node-draining" in annotations_of(machine)) is not drained
            assert dig(machine, "spec", "deletion", "nodeDrainTimeoutSeconds") == (90 if drained else None)
        # Paused, it stays as it is whatever changes; afterwards one goes before another comes.
        before = await of_pools(world)
        await repool(world, SERVERS, {**WORKERS, **options, "paused": True})
        await world.client.patch(machine_jobs.CONFIGS, "big", {"size": "xl"}, WORKSPACE)
        await world.settle(120)
        assert await of_pools(world) == before
        await repool(world, SERVERS, {**WORKERS, **options})
        _, most = await while_rolling(world, before["workers"])
        assert most == 2


def servers(world: ProvisioningWorld) -> list[Any]:
    assert world.jobs is not None
    return [host for key, host in world.jobs.hosts.items() if "-servers-" in key.name]


async def test_a_cluster_that_goes_while_its_machines_are_made_leaves_nothing() -> None:
    async with provisioned(pools=True) as world:
        await world.settle(30)
        before = await everything(world)
        for name, size in (("small", "s"), ("big", "l")):
            await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size), WORKSPACE)
        await world.want(DEMO, FROM, machinePools=[SERVERS, WORKERS])
        assert world.jobs is not None
        await world.until("the first is there", lambda: made_any(world))
        await delete(world)
        assert world.jobs.hosts == {}
        assert set(await everything(world)) - set(before) == set()


async def made_any(world: ProvisioningWorld) -> bool:
    return bool(world.jobs and world.jobs.made)


@pytest.mark.parametrize("seed", [1, 2])
async def test_controllers_may_die_at_any_time(seed: int) -> None:
    async with provisioned(pools=True, seed=seed) as world:
        await world.settle(30)
        before, rng = await everything(world), Rng(seed)

        async def dying(times: int) -> None:
            for _ in range(times):
                await world.settle(rng.uniform(0.1, 4.0))
                await world.kill()
                world.begin()

        assert world.jobs is not None
        world.jobs.failures = ["Unavailable: the provider does not answer"]
        for name, size in (("small", "s"), ("big", "l")):
            await world.client.create(machine_jobs.CONFIGS, config(name, WORKSPACE, size=size), WORKSPACE)
        await world.want(DEMO, FROM, machinePools=[SERVERS, WORKERS])
        await dying(12)
        await until_pools(world, servers=1, workers=2)
        old = (await of_pools(world))["workers"]
        await world.client.patch(machine_jobs.CONFIGS, "big", {"size": "xl"}, WORKSPACE)
        await dying(12)
        await world.until("the old machines are gone", lambda: gone(world, old))
        await until_pools(world, servers=1, workers=2)
        # Exactly the machines that are wanted, each somebody's.
        assert {key.name for key in world.jobs.hosts} == {name for found in (await of_pools(world)).values() for name in found}
        assert set(await nodes(world)) == {host.name for host in world.jobs.hosts.values()}
        assert world.distribution(DEMO).violations == []
        await world.client.delete(provisioning.CLUSTERS, DEMO, WORKSPACE)
        await dying(8)
        await world.until("the cluster is gone", lambda: cluster_gone(world))
        await world.settle(120)
        assert world.jobs.hosts == {} and set(await everything(world)) - set(before) == set()


async def gone(world: ProvisioningWorld, old: list[str]) -> bool:
    return not {name_of(each) for each in await world.machines(DEMO)} & set(old)


async def cluster_gone(world: ProvisioningWorld) -> bool:
    return not (await world.client.list(provisioning.CLUSTERS, WORKSPACE))["items"]
