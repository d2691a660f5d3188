"""`remuda plan` as a user runs it: over HTTPS, as a user of the server, with nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

from tests.scenarios.provisioned import DEMO, FROM, TO, build

from .served_world import served

MANIFEST = f"""
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata: {{name: demo, namespace: fleet-default}}
spec: {{kubernetesVersion: {TO}}}
"""


async def test_a_change_is_planned_and_not_made(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        (tmp_path / "change.yaml").write_text(MANIFEST)
        starts = list(found.world.distribution(DEMO).starts)
        done = await found.run(f"plan -f {tmp_path / 'change.yaml'}")
        assert done.code == 2, done.err
        assert f"version: {FROM} → {TO}" in done.out and done.out.count("restarted") == 2
        assert "Without the change" not in done.out and "Not exact" not in done.out, done.out
        patch = json.dumps({"spec": {"kubernetesVersion": TO}})
        again = await found.run(f"plan --patch clusters.provisioning.cattle.io/demo '{patch}' -o json")
        plan = json.loads(again.out)
        assert (plan["exitCode"], plan["verdict"]) == (2, "changes")
        assert [each["outcome"] for each in plan["machines"]] == ["restarted", "restarted"]
        nothing = await found.run(f"plan --patch clusters.provisioning.cattle.io/demo '{patch.replace(TO, FROM)}'")
        assert nothing.code == 0 and "nothing happens" in nothing.out, nothing
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == FROM
        assert found.world.distribution(DEMO).starts == starts


async def test_a_plan_is_applied_as_long_as_nothing_has_moved(tmp_path: Path) -> None:
    patch = json.dumps({"spec": {"kubernetesVersion": TO}})
    change = f"--patch clusters.provisioning.cattle.io/demo '{patch}'"
    async with served(tmp_path) as found:
        await build(found.world, ["ec", "w"])
        # The last that happens by itself: tokens of install scripts expire.
        await found.world.settle(2400)
        plan = json.loads((await found.run(f"plan {change} -o json")).out)
        other = await found.run(f"apply {change.replace(TO, FROM)} --plan {plan['id']}")
        assert other.code == 4 and "does not hold any more" in other.err, other
        done = await found.run(f"apply {change} --plan {plan['id']}")
        assert (done.code, done.out) == (0, f"{plan['id']} is applied\n"), done
        assert (await found.world.cluster(DEMO))["spec"]["kubernetesVersion"] == TO
        again = await found.run(f"apply {change} --plan {plan['id']}")
        assert again.code == 4, "the cluster is another one now"


async def test_a_change_that_admission_refuses_or_that_names_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        await build(found.world, ["ecw"])
        refused = await found.run('plan --patch clusters.provisioning.cattle.io/demo \'{"spec": {"kubernetesVersion": 7}}\'')
        assert refused.code == 1 and "spec.kubernetesVersion" in refused.err, refused
        missing = await found.run("plan --delete machines.cluster.x-k8s.io/no-such")
        assert missing.code == 3 and "affects no cluster" in missing.err, missing
        unclear = await found.run("plan --delete clusters/demo")
        assert unclear.code == 1 and "give it with its group" in unclear.err, unclear
        empty = await found.run("plan")
        assert empty.code == 2 and "there is no change" in empty.err, empty
