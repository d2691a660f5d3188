"""Predicted equals happened: the plan of a change, made on a copy, against what the same change then does to the clusters."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan.changes import Apply, Delete, Patch
from remuda.app.changeplan.result import Outcome, Verdict
from remuda.kube.objects import labels_of, name_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.machine_jobs import pool
from remuda.lab.sim.provisioning_world import WORKSPACE
from remuda.provisioning.well_known import NODE_NAME, POOL_NAME

from .predictions import CLUSTER, SERVERS, WORKERS, hosts, plan_of_change, pools, same, spec
from .provisioned import DEMO, FROM, TO

Obj = dict[str, Any]


async def test_saving_a_cluster_again_does_nothing() -> None:
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        plan = await same(world, spec(kubernetesVersion=FROM))
        assert plan.verdict is Verdict.NOTHING and plan.exit_code == 0
        assert plan.waves == () == plan.objects


async def test_the_whole_cluster_applied_as_it_is_does_nothing() -> None:
    async with hosts("ecw", "w") as world:
        found = await world.cluster(DEMO)
        written = {name: found[name] for name in ("apiVersion", "kind", "spec")}
        plan = await same(world, Apply(provisioning.CLUSTERS, {**written, "metadata": {"name": DEMO, "namespace": WORKSPACE}}))
        assert plan.verdict is Verdict.NOTHING


async def test_a_version_restarts_the_machines_one_after_another() -> None:
    async with hosts("ecw", "ecw", "ecw", "w", "w") as world:
        plan = await same(world, spec(kubernetesVersion=TO))
        assert plan.counts()[Outcome.RESTARTED] == 5 and plan.exit_code == 2
        assert [each.down.get("etcd", 0) for each in plan.waves] == [1, 1, 1, 0, 0]
        assert [each.quorum_margin for each in plan.waves] == [0, 0, 0, None, None]
        assert ("version", FROM, TO) in [(each.field, each.before, each.after) for each in plan.machines[0].reasons]


async def test_as_many_workers_at_once_as_the_spec_allows() -> None:
    async with hosts("ec", "w", "w", "w", "w", upgradeStrategy={"workerConcurrency": "50%"}) as world:
        plan = await same(world, spec(kubernetesVersion=TO))
        assert max(each.down.get("worker", 0) for each in plan.waves) == 2


async def test_an_argument_of_all_machines_and_one_without_effect() -> None:
    async with hosts("ec", "ec", "ec", "w") as world:
        plan = await same(world, spec(rkeConfig={"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"], "made-up": "x"}}))
        assert plan.counts()[Outcome.RESTARTED] == 4
        assert [reason.field for reason in plan.machines[-1].reasons] == ["config.kubelet-arg"]
        assert [text for text in plan.warnings if "made-up" in text and "has no effect" in text]


async def test_a_manifest_is_configured_without_a_restart() -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: default}\n"
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        plan = await same(world, spec(rkeConfig={"additionalManifest": manifest}))
        counts = plan.counts()
        assert (counts[Outcome.CONFIGURED], counts[Outcome.UNTOUCHED]) == (3, 1)
        assert all(each.down == {} for each in plan.waves)


async def test_a_machine_that_a_user_deletes_is_the_only_one_that_goes() -> None:
    async with hosts("ecw", "ecw", "ecw", "w") as world:
        worker = next(each for each in await world.machines(DEMO) if labels_of(each)[NODE_NAME] == "h3")
        plan = await same(world, Delete(capi.MACHINES, WORKSPACE, name_of(worker)))
        counts = plan.counts()
        assert (counts[Outcome.DELETED], counts[Outcome.RESTARTED], counts[Outcome.UNTOUCHED]) == (1, 0, 3)


@pytest.mark.parametrize("size", [1, 4])
async def test_a_pool_of_another_size(size: int) -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS, pool("workers", "w", size, "big")]}))
        counts = plan.counts()
        assert (counts[Outcome.CREATED], counts[Outcome.DELETED]) == ((2, 0) if size == 4 else (0, 1))
        # Servers note the cluster's spec for their snapshots, without a restart.
        assert (counts[Outcome.CONFIGURED], counts[Outcome.UNTOUCHED]) == (3, 2 - counts[Outcome.DELETED])


async def test_another_config_of_a_pool_replaces_its_machines() -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS, pool("workers", "w", 2, "small")]}))
        counts = plan.counts()
        assert (counts[Outcome.REPLACED], counts[Outcome.CREATED], counts[Outcome.CONFIGURED]) == (2, 2, 3)
        replaced = next(each for each in plan.machines if each.outcome is Outcome.REPLACED)
        assert [(each.field.rpartition(".")[2], each.before, each.after) for each in replaced.reasons] == [("size", "l", "s")]


async def test_an_edit_of_a_pools_config_object() -> None:
    async with pools() as world:
        plan = await same(world, Patch(machine_jobs.CONFIGS, WORKSPACE, "big", {"size": "xl"}))
        assert plan.clusters == (str(CLUSTER),)


async def test_labels_and_taints_of_a_pool() -> None:
    workers = {**WORKERS, "labels": {"tier": "web"}, "taints": [{"key": "web", "value": "yes", "effect": "NoSchedule"}]}
    async with pools() as world:
        await same(world, spec(rkeConfig={"machinePools": [SERVERS, workers]}))


async def test_a_machine_of_a_pool_that_is_deleted_is_replaced() -> None:
    async with pools() as world:
        worker = next(each for each in await world.machines(DEMO) if labels_of(each)[POOL_NAME] == "workers")
        plan = await same(world, Delete(capi.MACHINES, WORKSPACE, name_of(worker)))
        counts = plan.counts()
        assert (counts[Outcome.REPLACED], counts[Outcome.CREATED], counts[Outcome.UNTOUCHED]) == (1, 1, 4)


async def test_the_real_clusters_are_not_touched_by_a_plan() -> None:
    async with hosts("ecw", "w") as world:
        before = await world.server.store.current()
        plan = await plan_of_change(world, [spec(kubernetesVersion=TO)])
        assert plan.verdict is Verdict.CHANGES
        assert await world.server.store.current() == before
        assert plan.id == (await plan_of_change(world, [spec(kubernetesVersion=TO)], seed=12)).id
        assert plan.id != (await plan_of_change(world, [spec(kubernetesVersion=FROM)])).id


async def test_drained_machines() -> None:
    drain = {"enabled": True, "force": True}
    async with hosts("ec", "w", "w", upgradeStrategy={"workerDrainOptions": drain}) as world:
        plan = await same(world, spec(kubernetesVersion=TO))
        assert (plan.counts()[Outcome.DRAINED], plan.counts()[Outcome.RESTARTED]) == (2, 1)


async def test_a_rotation_of_certificates_restarts_all() -> None:
    async with hosts("ec", "ec", "ec", "w") as world:
        plan = await same(world, spec(rkeConfig={"rotateCertificates": {"generation": 1}}))
        assert plan.counts()[Outcome.RESTARTED] == 4
        assert all(each.reasons for each in plan.machines)


async def test_a_snapshot_on_demand_restarts_nothing() -> None:
    async with hosts("ec", "ec", "ec", "w") as world:
        plan = await same(world, spec(rkeConfig={"etcdSnapshotCreate": {"generation": 1}}))
        assert (plan.snapshots, plan.counts()[Outcome.RESTARTED]) == (3, 0)


async def test_a_variable_of_the_agents_environment() -> None:
    async with hosts("ecw", "w") as world:
        plan = await same(world, spec(agentEnvVars=[{"name": "HTTP_PROXY", "value": "http://user:pass@proxy"}]))
        assert "user:pass" not in str(plan.machines)


async def test_an_order_to_restart_everything() -> None:
    async with hosts("ecw", "w") as world:
        plan = await same(world, spec(rkeConfig={"provisionGeneration": 1}))
        assert plan.counts()[Outcome.RESTARTED] == 2


async def test_a_pool_that_goes_with_its_machines() -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS]}))
        assert plan.counts()[Outcome.DELETED] == 2


async def test_a_new_pool() -> None:
    async with pools() as world:
        plan = await same(world, spec(rkeConfig={"machinePools": [SERVERS, WORKERS, pool("more", "w", 2)]}))
        assert plan.counts()[Outcome.CREATED] == 2


async def test_the_address_of_the_server_reaches_every_cluster() -> None:
    async with hosts("ecw", "w") as world:
        plan = await same(world, Patch(management.SETTINGS, "", "server-url", {"value": "https://other.test"}))
        assert plan.clusters == (str(CLUSTER),) and plan.verdict is Verdict.CHANGES


async def test_a_hook_that_nothing_answers_gets_the_cluster_stuck() -> None:
    drain = {"enabled": True, "force": True, "preDrainHooks": [{"annotation": "example.com/ready"}]}
    async with hosts("ec", "w", "w", upgradeStrategy={"workerDrainOptions": drain}) as world:
        plan = await plan_of_change(world, [spec(kubernetesVersion=TO)])
        assert plan.verdict is Verdict.STUCK and plan.exit_code == 4
        assert any("these hooks have not answered: example.com/ready" in line for line in plan.stuck)
        assert plan.counts()[Outcome.RESTARTED] == 1


async def test_the_deletion_of_a_cluster_takes_all_its_machines() -> None:
    async with pools() as world:
        plan = await plan_of_change(world, [Delete(provisioning.CLUSTERS, *CLUSTER)])
        assert plan.counts()[Outcome.DELETED] == 5 and plan.verdict is Verdict.CHANGES
