"""Things that happen in the middle of it: while plans are applied, nodes drained and hosts on their way in or out."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.app.rehearsal import provisioning as provisioned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, name_of
from remuda.lab.sim.hosts import SimulatedHost
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import DELETE_ETCD_MAJORITY, POST_DRAIN, PRE_DRAIN

from .provisioned import (
    DEMO,
    FROM,
    NODES,
    TO,
    build,
    change,
    delete,
    everything,
    init_nodes,
    machine_of,
    message,
    nodes,
    plan_of,
    plans,
    ready,
)

PRE, POST = "hooks.example.com/pre", "hooks.example.com/post"
VICTIMS = ["the first", "a server", "a worker"]
PODS = GroupVersionResource("", "v1", "pods")
WEB = {"name": "web", "image": "web"}
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")


async def in_the_middle(world: ProvisioningWorld, host: SimulatedHost) -> None:
    """Until its agent has begun with a plan, and not ended."""

    async def begun() -> bool:
        found = decode(await plan_of(world, host))
        return found is not None and found.state == "in-progress"

    await world.until(f"{host.name} has begun", begun)


async def remove(world: ProvisioningWorld, host: SimulatedHost) -> None:
    machine = name_of(await machine_of(world, host))
    await world.client.delete(capi.MACHINES, machine, WORKSPACE)

    async def gone() -> bool:
        return machine not in [name_of(each) for each in await world.machines(DEMO)]

    await world.until(f"{host.name} has left", gone)


async def has(world: ProvisioningWorld, *names: str) -> bool:
    return set(await nodes(world)) == set(names)


def upgraded(world: ProvisioningWorld) -> list[str]:
    return [name for name, version in world.distribution(DEMO).starts if version == TO]


async def check(world: ProvisioningWorld, *names: str) -> None:
    """All have the new version, by one start each; one of them began, and nothing happened that must not."""
    await ready(world)
    assert await nodes(world) == dict.fromkeys(names, TO)
    assert sorted(upgraded(world)) == sorted(names)
    assert len(await init_nodes(world)) == 1
    assert world.distribution(DEMO).violations == []
    stable = await plans(world)
    await world.settle(120)
    assert await plans(world) == stable


# --- agents and hosts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 2, 3], ids=VICTIMS)
async def test_an_agent_that_is_killed_in_the_middle_takes_up_its_plan_again(victim: int) -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[victim])
        await world.hosts.kill(hosts[victim])
        await world.settle(400)
        assert name_of(await machine_of(world, hosts[victim])) in await message(world), "it is said who is waited for"
        world.hosts.revive(hosts[victim])
        await check(world, "h0", "h1", "h2", "h3")


@pytest.mark.parametrize("victim", [0, 2, 3], ids=VICTIMS)
async def test_a_host_that_loses_its_power_in_the_middle_goes_on_when_it_is_back(victim: int) -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[victim])
        await world.hosts.power_off(hosts[victim])
        before = upgraded(world)
        await world.settle(400)
        assert upgraded(world) == before, "nobody is touched as long as it is away"
        assert name_of(await machine_of(world, hosts[victim])) in await message(world)
        world.hosts.power_on(hosts[victim])
        await check(world, "h0", "h1", "h2", "h3")


@pytest.mark.parametrize("done", [0, 1], ids=["one that is still to come", "one that is done"])
async def test_a_member_that_dies_while_another_is_changed_is_noticed_before_the_next(done: int) -> None:
    """Its plan says that all is well, and its node does so for a while."""
    async with provisioned() as world:
        servers = (await build(world, ["ec", "ec", "ec", "w"]))[:3]
        await change(world, kubernetesVersion=TO)

        async def at_work() -> SimulatedHost | None:
            found = [(host, decode(await plan_of(world, host))) for host in servers]
            busy = [host for host, plan in found if plan is not None and plan.state == "in-progress"]
            return busy[0] if busy and len(upgraded(world)) == done else None

        changed = await world.until("one is changed", at_work)
        first = [host for host in servers if host.name in upgraded(world)]
        late = [host for host in servers if host is not changed and host not in first]
        victim, spared = (first[0], late[0]) if done else (late[0], late[1])
        await world.hosts.power_off(victim)
        dead = name_of(await machine_of(world, victim))

        async def told() -> bool:
            return dead in await message(world) and changed.name in upgraded(world)

        await world.until("it is said who does not answer", told, 60)
        await world.settle(300)
        assert spared.name not in upgraded(world) and world.distribution(DEMO).violations == []
        assert dead in await message(world)
        world.hosts.power_on(victim)
        await check(world, "h0", "h1", "h2", "h3")


@pytest.mark.parametrize("victim", [0, 1, 3], ids=VICTIMS)
async def test_a_host_that_never_comes_back_is_deleted_and_the_others_go_on(victim: int) -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[victim])
        await world.hosts.power_off(hosts[victim])
        await remove(world, hosts[victim])
        await check(world, *({"h0", "h1", "h2", "h3", "h4"} - {hosts[victim].name}))


async def test_a_first_server_that_dies_before_anybody_joined_is_followed_by_another() -> None:
    async with provisioned() as world:
        await world.want(DEMO, TO)
        first = await world.host(DEMO, "h0", "ecw")
        await world.until("it has a machine", lambda: world.machines(DEMO))
        await in_the_middle(world, first)
        await world.hosts.power_off(first)
        await world.host(DEMO, "h1", "ecw")
        await world.settle(300)
        assert await init_nodes(world) == ["h0"], "nobody knows that it will not come back"
        await remove(world, first)
        await check(world, "h1")


# --- the API --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 3], ids=["the first", "a worker"])
async def test_an_api_that_is_away_for_minutes_is_waited_for(victim: int) -> None:
    """Agents end what they have begun, nobody begins anything, and all go on where they were."""
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[victim])
        world.hosts.cut = True
        before, written = upgraded(world), await everything(world)
        await world.settle(600)
        assert upgraded(world) in (before, [*before, hosts[victim].name])
        changed = {key for key, revision in (await everything(world)).items() if written.get(key) != revision}
        assert not [key for key in changed if "machine-plan" in key]
        world.hosts.cut = False
        await check(world, "h0", "h1", "h2", "h3")


# --- machines that come and go --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roles", ["ecw", "ec", "c", "w"])
async def test_whoever_comes_during_an_upgrade_joins_with_the_new_version(roles: str) -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[1])
        await world.host(DEMO, "late", roles)
        await world.until("it has come", lambda: has(world, "h0", "h1", "h2", "late"))
        await check(world, "h0", "h1", "h2", "late")
        assert await init_nodes(world) == ["h0"]


@pytest.mark.parametrize("shape", [["ecw"] * 3, ["e", "e", "e", "c", "w"]], ids=["all", "split"])
async def test_etcd_shrinks_to_one_and_grows_to_three_again(shape: list[str]) -> None:
    async with provisioned() as world:
        hosts = await build(world, shape)
        stay = {host.name for host in hosts[2:]}
        first, second = [name_of(await machine_of(world, host)) for host in hosts[:2]]
        await world.client.delete(capi.MACHINES, first, WORKSPACE)
        with pytest.raises(ApiError, match=f"can spare 1 at a time, and {first} is leaving"):
            await world.client.delete(capi.MACHINES, second, WORKSPACE)
        # Both at once, because a user allows it: one follows the other all the same.
        allowed = {"metadata": {"annotations": {DELETE_ETCD_MAJORITY: "true"}}}
        await world.client.patch(capi.MACHINES, second, allowed, WORKSPACE)
        await world.client.delete(capi.MACHINES, second, WORKSPACE)
        await world.until("two have left", lambda: has(world, *stay))
        await ready(world)
        assert await init_nodes(world) == ["h2"]
        for number in range(2):
            await world.host(DEMO, f"n{number}", shape[0])
        await world.until("two have come", lambda: has(world, *stay, "n0", "n1"))
        await ready(world)
        await change(world, kubernetesVersion=TO)
        await check(world, *stay, "n0", "n1")
        assert await init_nodes(world) == ["h2"]


async def test_the_first_server_is_deleted_in_the_middle_of_its_upgrade() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[0])
        await remove(world, hosts[0])
        await ready(world)
        assert await nodes(world) == dict.fromkeys(("h1", "h2", "h3"), TO)
        assert len(await init_nodes(world)) == 1 and await init_nodes(world) != ["h0"]
        assert world.distribution(DEMO).violations == []


async def test_a_cluster_with_a_dead_host_goes_in_the_middle_of_an_upgrade() -> None:
    async with provisioned() as world:
        await world.settle(30)
        before = await everything(world)
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[1])
        await world.hosts.power_off(hosts[1])
        await delete(world)
        assert set(await everything(world)) - set(before) == set()


# --- roles ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "missing"), [(["e", "w"], "c"), (["c", "w"], "e"), (["ec", "c"], "w"), (["w"], "ec")])
async def test_a_mix_of_roles_that_makes_no_cluster_waits_for_the_one_that_is_missing(first: list[str], missing: str) -> None:
    async with provisioned() as world:
        await world.want(DEMO, TO)
        for number, roles in enumerate(first):
            await world.host(DEMO, f"h{number}", roles)
        await world.settle(300)
        names = ", ".join(name for letter, name in (("e", "etcd"), ("c", "control plane"), ("w", "worker")) if letter in missing)
        text = "waiting for at least one control plane, etcd, and worker node to be registered"
        assert await message(world) == f"{text} (missing: {names})"
        assert world.distribution(DEMO).starts == []
        await world.host(DEMO, "last", missing)
        await check(world, *(f"h{number}" for number in range(len(first))), "last")


async def test_a_host_without_a_role_is_refused_with_the_reason() -> None:
    async with provisioned() as world:
        await world.want(DEMO, FROM)
        host = await world.host(DEMO, "h0", "")

        async def refused() -> str:
            return host.refused

        with pytest.raises(Exception, match="asks for no role: add --etcd, --controlplane or --worker"):
            await world.until("it is refused", refused)


# --- upgrades -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "most"), [("1", 1), ("2", 2), ("50%", 2), ("0", 4)])
async def test_control_planes_change_as_many_at_once_as_may_and_etcd_one_by_one(concurrency: str, most: int) -> None:
    async with provisioned() as world:
        strategy = {"controlPlaneConcurrency": concurrency}
        await build(world, ["e", "e", "e", "c", "c", "c", "c", "w"], upgradeStrategy=strategy)
        await change(world, kubernetesVersion=TO)
        await check(world, *(f"h{number}" for number in range(8)))
        assert world.distribution(DEMO).most_down == {"etcd": 1, "control plane": most, "worker": 1}


async def test_servers_are_drained_one_after_the_other_and_their_hooks_have_their_say() -> None:
    options: Any = {"enabled": True, "preDrainHooks": [{"annotation": PRE}], "postDrainHooks": [{"annotation": POST}]}
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw"], upgradeStrategy={"controlPlaneDrainOptions": options})
        await change(world, kubernetesVersion=TO)
        client = world.distribution(DEMO).cluster.client
        order = []
        for _ in hosts:
            question = await world.until("somebody is asked", lambda: asked(world, hosts, PRE_DRAIN, PRE))
            assert question is not None
            host, text = question
            order.append(host.name)
            await world.settle(60)
            cordoned = [name_of(each) for each in (await client.list(NODES))["items"] if dig(each, "spec", "unschedulable")]
            assert cordoned == [host.name] and host.name not in upgraded(world)
            await answer(world, host, PRE, text)
            question = await world.until("it is asked again", lambda: asked(world, hosts, POST_DRAIN, POST))
            assert question is not None and question[0] is host and upgraded(world) == order
            await answer(world, host, POST, question[1])
        await check(world, "h0", "h1", "h2")


Question = tuple[SimulatedHost, str]


async def asked(world: ProvisioningWorld, hosts: list[SimulatedHost], mark: str, hook: str) -> Question | None:
    """Whose hook is asked and has not answered."""
    for host in hosts:
        notes = annotations_of(await plan_of(world, host))
        if notes.get(mark) and notes.get(hook) != notes[mark]:
            return host, notes[mark]
    return None


async def answer(world: ProvisioningWorld, host: SimulatedHost, hook: str, text: str) -> None:
    name = name_of(await plan_of(world, host))
    await world.client.patch(SECRETS, name, {"metadata": {"annotations": {hook: text}}}, WORKSPACE)


async def test_a_drain_respects_what_must_stay_up_and_says_what_it_waits_for() -> None:
    async with provisioned(pods=True) as world:
        await build(world, ["ec", "w"], upgradeStrategy={"workerDrainOptions": {"enabled": True, "force": True}})
        client = world.distribution(DEMO).cluster.client
        pod = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"nodeName": "h1", "containers": [WEB]}}
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, "default")
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}
        await client.create(BUDGETS, budget, "default")
        await change(world, kubernetesVersion=TO)
        await world.settle(300)
        assert upgraded(world) == ["h0"], "the worker waits"
        assert "default/web: Cannot evict pod as it would violate the pod's disruption budget." in await message(world)
        await client.delete(BUDGETS, "web", "default")
        await check(world, "h0", "h1")
        assert (await client.list(PODS, "default"))["items"] == []


async def test_a_change_of_mind_in_the_middle_is_followed() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "ec", "ec", "w"])
        await change(world, kubernetesVersion=TO)
        await in_the_middle(world, hosts[1])
        await change(world, rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})
        await ready(world)
        assert set((await nodes(world)).values()) == {TO}
        assert world.distribution(DEMO).violations == []
        configured = [member.config.get("kubelet-arg") for member in world.distribution(DEMO).members.values()]
        assert all("max-pods=200" in (each or []) for each in configured)
