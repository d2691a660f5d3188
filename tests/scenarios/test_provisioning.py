"""One YAML becomes a cluster of hosts that register by themselves, is upgraded in order, and goes without a trace."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import plan_cattle_io as plan
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.inprocess import InProcessClient
from remuda.app.rehearsal import provisioning as provisioned
from remuda.cli.remote import clusters
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import EVENTS, SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, labels_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.nodes.worker_label import LABEL
from remuda.provisioning.plans.machine_plan_secret import decode
from remuda.provisioning.well_known import PLAN_FAILURE, UNINSTALL, plan_name

from .provisioned import (
    DEMO,
    FROM,
    NODES,
    TO,
    build,
    change,
    conditions,
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

SHAPES = {
    "one for all": ["ecw"],
    "three for all": ["ecw"] * 3,
    "servers and workers": ["ec", "ec", "ec", "w", "w"],
    "split": ["e", "c", "w"],
}


@pytest.mark.parametrize("roles", SHAPES.values(), ids=SHAPES.keys())
async def test_a_cluster_is_built_upgraded_in_order_and_leaves_nothing(roles: list[str]) -> None:
    async with provisioned() as world:
        await world.settle(30)
        before = await everything(world)
        hosts = await build(world, roles)
        built = world.distribution(DEMO)
        assert built.starts[0][0] == "h0", "the first server begins it"
        assert await init_nodes(world) == ["h0"]
        assert set(await nodes(world)) == {host.name for host in hosts}
        await change(world, kubernetesVersion=TO)
        await ready(world)
        assert await nodes(world) == {host.name: TO for host in hosts}
        upgraded = [name for name, version in built.starts if version == TO]
        tiers = [_tier(roles[int(name[1:])]) for name in upgraded]
        assert tiers == sorted(tiers), "etcd first, then control planes, then workers"
        assert sorted(upgraded) == sorted(host.name for host in hosts), "each once"
        assert built.violations == []
        await delete(world)
        assert set(await everything(world)) - set(before) == set()


def _tier(roles: str) -> int:
    return 0 if "e" in roles else 1 if "c" in roles else 2


async def test_all_conditions_say_that_it_is_done() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ec", "w"])
        await world.settle(30)
        done = {"ScalingUp": "False", "ScalingDown": "False", "RollingOut": "False"}
        good = dict.fromkeys(("Ready", "Reconciled", "Stable", "Provisioned", "Bootstrapped"), "True")
        assert await conditions(world, rke.RKE_CONTROL_PLANES) == {**done, **good}
        said = await conditions(world, provisioning.CLUSTERS)
        assert said.pop("Reconciling") == said.pop("Stalled") == "False"
        assert set(said.values()) == {"True"} and {"Created", "RKECluster", "Ready", "Provisioned", "Updated"} <= set(said)
        managed = await conditions(world, management.CLUSTERS, await world.managed_name(DEMO), "")
        assert set(managed.values()) == {"True"} and {"Ready", "Connected", "Provisioned"} <= set(managed)
        core = await conditions(world, capi.CLUSTERS)
        assert core["Available"] == core["ControlPlaneInitialized"] == core["RemoteConnectionProbe"] == "True"
        for host in hosts:
            machine = await conditions(world, capi.MACHINES, name_of(await machine_of(world, host)))
            assert {machine[kind] for kind in ("Ready", "NodeHealthy", "PlanApplied", "Reconciled", "Available")} == {"True"}
        beacon = await world.client.get(plan.BEACONS, DEMO, WORKSPACE)
        assert not beacon["status"]["active"] and not beacon["status"].get("owner")
        endpoint = (await world.client.get(capi.CLUSTERS, DEMO, WORKSPACE))["spec"]["controlPlaneEndpoint"]
        assert endpoint == {"host": "localhost", "port": 6443}


async def test_a_cluster_without_hosts_says_what_it_waits_for_and_has_its_kubeconfig_already() -> None:
    async with provisioned() as world:
        await world.want(DEMO, FROM)
        await world.settle(10)
        assert await message(world) == "waiting for at least one control plane, etcd, and worker node to be registered"
        assert await world.client.get(SECRETS, "demo-kubeconfig", WORKSPACE)
        await world.host(DEMO, "h0", "ec")
        await world.settle(30)
        text = "waiting for at least one control plane, etcd, and worker node to be registered (missing: worker)"
        assert await message(world) == text
        await world.host(DEMO, "h1", "w")
        await ready(world)


async def test_an_argument_without_effect_is_said_and_holds_up_nothing() -> None:
    async with provisioned() as world:
        await world.want(DEMO, FROM, machineGlobalConfig={"made-up": "x"})
        await world.host(DEMO, "h0", "ecw")
        await ready(world)
        found = condition_of(await world.cluster(DEMO), "OperationsSupported")
        assert found is not None and found["message"] == f"arguments without effect: made-up: {FROM} has no such argument"
        await change(world, rkeConfig={"machineGlobalConfig": {"made-up": None}})
        await world.settle(10)
        assert (await conditions(world, provisioning.CLUSTERS))["OperationsSupported"] == "True"


async def test_who_has_nothing_to_do_writes_nothing() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "ecw", "ecw"])
        # The last that happens by itself: tokens of install scripts end after half an hour.
        await world.settle(2400)
        before, given = await everything(world), await plans(world)
        await world.settle(3600)
        after = await everything(world)
        # Hosts list their snapshots now and then.
        reported = {key for key in after if after[key] != before.get(key)}
        assert all(key.startswith(f"/registry/secrets/{WORKSPACE}/") and key.endswith("-machine-plan") for key in reported)
        assert (after.keys(), await plans(world)) == (before.keys(), given)


async def test_workers_are_labelled_as_such() -> None:
    async with provisioned() as world:
        await build(world, ["ec", "w"])
        listed = (await world.distribution(DEMO).cluster.client.list(NODES))["items"]
        assert {name_of(each): labels_of(each).get(LABEL) for each in listed} == {"h0": None, "h1": "true"}


async def test_a_plan_that_fails_is_tried_again_for_everybody_to_see() -> None:
    async with provisioned() as world:
        await world.want(DEMO, FROM)
        host = await world.host(DEMO, "h0", "ecw")
        host.failing = 3

        async def failed() -> str:
            text = await message(world)
            return text if "2 times" in text else ""

        text = await world.until("it failed twice", failed)
        assert "failure while applying plan (2 times, next try at " in text and "simulated trouble" in text
        noted = json.loads(annotations_of(await plan_of(world, host))[PLAN_FAILURE])
        assert noted["attempts"] == 2
        applied = condition_of(await machine_of(world, host), "PlanApplied")
        assert applied is not None and applied["status"] == "False"
        await ready(world)
        assert PLAN_FAILURE not in annotations_of(await plan_of(world, host))


async def test_a_failed_upgrade_stops_the_wave_and_says_where() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw"])
        hosts[0].failing = 2
        await change(world, kubernetesVersion=TO)
        await world.settle(15)
        assert "failure while applying plan" in await message(world)
        assert [version for _, version in world.distribution(DEMO).starts].count(TO) == 0
        await ready(world)
        assert world.distribution(DEMO).violations == []


async def test_machines_come_and_go_while_etcd_keeps_its_majority() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ecw", "ecw"])
        for gone in (hosts[0], hosts[1]):
            machine = await machine_of(world, gone)
            await world.client.delete(capi.MACHINES, name_of(machine), WORKSPACE)

            async def left(gone: object = gone, name: str = name_of(machine)) -> bool:
                return name not in [name_of(each) for each in await world.machines(DEMO)]

            await world.until(f"{gone.name} has left", left)
            await ready(world)
        assert set(await nodes(world)) == {"h2"}, "the first one may go like any other"
        assert await init_nodes(world) == ["h2"]
        more = [await world.host(DEMO, f"n{number}", "ecw") for number in range(2)]
        await world.until("all are there", lambda: _has(world, {"h2", *(host.name for host in more)}))
        await ready(world)
        assert await init_nodes(world) == ["h2"]
        assert world.distribution(DEMO).violations == []


UNINSTALLS = {"metadata": {"annotations": {UNINSTALL: "true"}}}


async def test_hosts_of_a_deleted_cluster_uninstall_when_that_is_asked_for() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "ec", "w"])
        said: list[str] = []
        # As the command line does it.
        wanted = await world.cluster(DEMO)
        deleting = clusters.delete(world.client, wanted, uninstall=True, told=said.append, clock=world.clock)
        asked = asyncio.create_task(deleting)
        await world.settle(5)
        await asked
        await world.settle(900)
        assert not (await world.client.list(provisioning.CLUSTERS, WORKSPACE))["items"]
        assert said[-1] == "3 registered hosts uninstall first; one that does not answer is left as it is"
        assert {host.name: host.uninstalled for host in hosts} == dict.fromkeys(("h0", "h1", "h2"), True)


async def test_hosts_keep_what_they_have_unless_a_user_asks() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "w", "w"])
        one = name_of(await machine_of(world, hosts[1]))
        await world.client.patch(capi.MACHINES, one, UNINSTALLS, WORKSPACE)
        for host in hosts[1:]:
            await world.client.delete(capi.MACHINES, name_of(await machine_of(world, host)), WORKSPACE)
        await world.until("they have left", lambda: _has(world, {"h0"}))
        assert [host.uninstalled for host in hosts] == [False, True, False]
        await ready(world)
        await delete(world)
        assert not hosts[0].uninstalled


async def test_a_cluster_goes_without_hosts_that_do_not_answer_or_fail() -> None:
    async with provisioned() as world:
        hosts = await build(world, ["ecw", "w", "w"])
        hosts[1].dead, hosts[2].failing = True, 1000
        await world.client.patch(provisioning.CLUSTERS, DEMO, UNINSTALLS, WORKSPACE)
        await delete(world)
        assert [host.uninstalled for host in hosts] == [True, False, False]
        said = [
            each["message"]
            for each in (await world.client.list(EVENTS, WORKSPACE))["items"]
            if each["reason"] == "NotUninstalled"
        ]
        assert len(said) == 2 and any("did not answer" in note for note in said)
        assert any("simulated trouble" in note for note in said)


async def _has(world: ProvisioningWorld, names: set[str]) -> bool:
    return set(await nodes(world)) == names


async def test_a_host_that_comes_during_an_upgrade_joins_in_the_end() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "ecw", "ecw"])
        await change(world, kubernetesVersion=TO)
        await world.settle(5)
        await world.host(DEMO, "late", "w")
        await world.until("all have it", lambda: _all_at(world, 4))
        await ready(world)
        assert ("late", FROM) not in world.distribution(DEMO).starts
        assert world.distribution(DEMO).violations == []


async def _all_at(world: ProvisioningWorld, count: int) -> bool:
    found = await nodes(world)
    return len(found) == count and set(found.values()) == {TO}


async def test_what_is_minor_restarts_nobody_and_what_is_not_restarts_each_once() -> None:
    async with provisioned() as world:
        await build(world, ["ecw", "w"])
        starts = world.distribution(DEMO).starts
        manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: default}\n"
        await change(world, rkeConfig={"additionalManifest": manifest})
        await ready(world)
        await world.settle(30)
        assert len(starts) == 2
        config_maps = type(SECRETS)("", "v1", "configmaps")
        assert await world.distribution(DEMO).cluster.client.get(config_maps, "mine", "default")
        await change(world, rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})
        await ready(world)
        assert [name for name, _ in starts[2:]] == ["h0", "h1"]


async def test_the_agents_manifest_follows_its_token_without_a_restart() -> None:
    async with provisioned() as world:
        (host,) = await build(world, ["ecw"])
        starts = len(world.distribution(DEMO).starts)
        managed = await world.managed_name(DEMO)
        before = decode(await plan_of(world, host))
        await world.client.patch(SECRETS, "crt-token-default-token", {"stringData": {"token": "n" * 54}}, managed)
        await world.settle(30)
        after = decode(await plan_of(world, host))
        assert before is not None and after is not None and before.data != after.data and after.in_sync
        assert len(world.distribution(DEMO).starts) == starts
        deployed = [
            name_of(each)
            for each in (await world.distribution(DEMO).cluster.client.list(SECRETS, "cattle-system"))["items"]
            if name_of(each).startswith("cattle-credentials-")
        ]
        assert deployed


async def test_somebody_else_who_holds_the_beacon_is_waited_for() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        held = {"status": {"active": True, "owner": "etcd-snapshot-save/fleet-default/one"}}
        await world.client.patch(plan.BEACONS, DEMO, held, WORKSPACE, subresource="status")
        await world.settle(2)
        starts = len(world.distribution(DEMO).starts)
        await change(world, kubernetesVersion=TO)
        await world.settle(60)
        assert len(world.distribution(DEMO).starts) == starts
        await world.client.patch(
            plan.BEACONS, DEMO, {"status": {"active": False, "owner": None}}, WORKSPACE, subresource="status"
        )
        await ready(world)
        assert dig(await world.control_plane(DEMO), "status", "appliedSpec", "kubernetesVersion") == TO


async def test_a_host_is_refused_with_the_reason() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        twin = await world.host(DEMO, "h0", "w")
        twin.machine_id = "f" * 62

        async def refused() -> str:
            return twin.refused

        with pytest.raises(Exception, match="another machine of the cluster"):
            await world.until("it is refused", refused)


async def test_an_endpoint_of_the_user_is_kept_and_told_to_cluster_api() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        balancer = {"host": "lb.example.com", "port": 443}
        await world.client.patch(rke.RKE_CLUSTERS, DEMO, {"spec": {"controlPlaneEndpoint": balancer}}, WORKSPACE)
        await world.settle(60)
        for resource in (rke.RKE_CLUSTERS, capi.CLUSTERS):
            assert (await world.client.get(resource, DEMO, WORKSPACE))["spec"]["controlPlaneEndpoint"] == balancer
        assert await world.is_ready(DEMO)


async def test_the_kubeconfig_is_made_anew_when_it_does_not_fit_any_more() -> None:
    async with provisioned() as world:
        await build(world, ["ecw"])
        before = await world.client.get(SECRETS, "demo-kubeconfig", WORKSPACE)
        await world.client.patch(SECRETS, "demo-kubeconfig", {"data": {"value": "eA=="}}, WORKSPACE)
        await world.settle(30)
        assert (await world.client.get(SECRETS, "demo-kubeconfig", WORKSPACE))["data"] == before["data"]
        await world.client.patch(management.SETTINGS, "server-url", {"value": "https://other.test"}, "")
        await world.settle(30)
        after = await world.client.get(SECRETS, "demo-kubeconfig", WORKSPACE)
        text = base64.b64decode(after["data"]["value"]).decode()
        assert f"https://other.test/k8s/clusters/{await world.managed_name(DEMO)}" in text


async def test_owners_see_what_their_cluster_is_made_of_and_nothing_of_others() -> None:
    async with provisioned() as world:
        mine, others = await build(world, ["ecw"]), "other"
        managed = await world.want(others, FROM)
        await world.host(others, "x0", "ecw")
        await world.until("the other one is ready, too", lambda: world.is_ready(others))
        owner = await own(world, "u-owner", managed)
        (theirs,) = await world.machines(others)
        (not_theirs,) = await world.machines(DEMO)
        seen = [
            (rke.RKE_CLUSTERS, others),
            (rke.RKE_CONTROL_PLANES, others),
            (rke.RKE_BOOTSTRAPS, name_of(theirs)),
            (rke.CUSTOM_MACHINES, name_of(theirs)),
            (capi.MACHINES, name_of(theirs)),
            (capi.CLUSTERS, others),
        ]
        for resource, name in seen:
            assert await owner.get(resource, name, WORKSPACE), resource
        hidden = [
            (rke.RKE_CONTROL_PLANES, DEMO),
            (rke.RKE_BOOTSTRAPS, name_of(not_theirs)),
            (capi.MACHINES, name_of(not_theirs)),
            (SECRETS, plan_name(name_of(not_theirs))),
            (SECRETS, "demo-rke-state"),
            (SECRETS, "demo-kubeconfig"),
        ]
        for resource, name in hidden:
            with pytest.raises(ApiError) as refused:
                await owner.get(resource, name, WORKSPACE)
            assert refused.value.code == 403, resource
        assert mine[0].access is not None
        with pytest.raises(ApiError) as refused:
            await owner.patch(SECRETS, plan_name(name_of(theirs)), {"data": {"plan": "e30="}}, WORKSPACE)
        assert refused.value.code == 403, "plans are for the planner to write"


async def own(world: ProvisioningWorld, user: str, managed: str) -> InProcessClient:
    """A client of somebody who owns a cluster."""
    made = {"apiVersion": management.API_VERSION, "kind": "User", "metadata": {"name": user}, "username": user}
    await world.client.create(management.USERS, made)
    binding = {
        "apiVersion": management.API_VERSION,
        "kind": "ClusterRoleTemplateBinding",
        "metadata": {"name": "owner", "namespace": managed},
        "clusterName": managed,
        "roleTemplateName": "cluster-owner",
        "userName": user,
    }
    await world.client.create(management.CLUSTER_ROLE_TEMPLATE_BINDINGS, binding, managed)
    await world.settle(5)
    return InProcessClient(world.server, user=User(user, groups=("system:authenticated",)))
