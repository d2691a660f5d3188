"""Machines of a driver from their making to their end, on a whole API; a hand does what Jobs would."""

from __future__ import annotations

from typing import Any

import pytest

from remuda import __version__
from remuda.api import cluster_x_k8s_io as capi
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import annotations_of, dig, finalizers_of, labels_of, uid_of
from remuda.machines.machineprovision.well_known import (
    CAPI_MACHINE,
    FINALIZER,
    FORCE_REMOVE,
    JOB_UID,
    JOBS,
    attempts_name,
    environment_name,
    job_name,
    state_name,
)
from tests.unit.access.management_api import EVENTS
from tests.unit.provisioning.rke_machines import DEMO, FLEET

from .driver_machines import CLUSTERS, CREDENTIAL, PAPERS, Papers, papers

Obj = dict[str, Any]


async def test_a_machine_is_made_by_a_job() -> None:
    async with papers() as made:
        await made.cluster()
        await made.machine(size="small")
        await made.world.settle()
        infra, job = await made.get(), await made.job()
        assert FINALIZER in finalizers_of(infra) and labels_of(infra)[CAPI_MACHINE] == "m1"
        assert job is not None and annotations_of(infra)[JOB_UID] == uid_of(job)
        assert "--paper-size=small" in job["spec"]["template"]["spec"]["containers"][0]["args"]
        assert await made.condition("CreateJob") == ("Unknown", "")
        assert dig(infra, "status", "jobName") == "m1-machine-provision"
        ready = next(each for each in infra["status"]["conditions"] if each["type"] == "Ready")
        assert ready["message"] == (
            "creating server [fleet-default/m1] of kind (PaperMachine) for machine m1 in infrastructure provider"
        )
        await made.keep()
        await made.succeeds()
        infra = await made.get()
        assert await made.condition("CreateJob") == ("True", "") and await made.condition("Ready") == ("True", "")
        assert dig(infra, "status", "initialization", "provisioned") is False, "not before its node is known"
        (attempt,) = await made.attempts()
        assert (attempt.machine, attempt.action, attempt.result) == ("m1", "create", "Complete")


async def test_only_the_state_stays_when_the_node_is_known() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await made.world.patch(PAPERS, "m1", {"spec": {"providerID": "paper://m1"}}, FLEET)
        await made.world.settle()
        infra = await made.get()
        assert dig(infra, "status", "initialization", "provisioned") is True and JOB_UID not in annotations_of(infra)
        assert await made.job() is None
        for resource in (ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS):
            assert await made.world.find(resource, job_name("m1"), FLEET) is None
        assert await made.world.find(SECRETS, state_name("m1"), FLEET) is not None


@pytest.mark.parametrize("missing", ["bootstrap", "infrastructure", "paused"])
async def test_nothing_is_made_before_all_is_ready(missing: str) -> None:
    async with papers() as made:
        await made.cluster()
        if missing == "infrastructure":
            absent = {"status": {"initialization": {"infrastructureProvisioned": False}}}
            await made.world.patch(capi.CLUSTERS, DEMO, absent, FLEET, "status")
        if missing == "paused":
            await made.world.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": True}}, FLEET)
        await made.machine(bootstrapped=missing != "bootstrap")
        await made.world.settle(100)
        assert await made.job() is None and await made.condition("CreateJob") == ("", "")
        if missing == "bootstrap":
            await made.world.patch(capi.MACHINES, "m1", {"spec": {"bootstrap": {"dataSecretName": "m1-script"}}}, FLEET)
        elif missing == "infrastructure":
            there = {"status": {"initialization": {"infrastructureProvisioned": True}}}
            await made.world.patch(capi.CLUSTERS, DEMO, there, FLEET, "status")
        else:
            await made.world.patch(capi.CLUSTERS, DEMO, {"spec": {"paused": None}}, FLEET)
        await made.world.settle()
        assert await made.job() is not None


async def test_a_failure_says_what_to_do_and_outlives_the_machine() -> None:
    async with papers() as made:
        await made.world.setting("delete-machine-on-failure-after", "1h")
        await made.cluster()
        await made.machine()
        await made.world.settle()
        job = await made.job()
        await made.fails("making it\nAuthFailed: the key paper-1 is not known")
        infra = await made.get()
        text = (
            "failed creating server [fleet-default/m1] of kind (PaperMachine) for machine m1 in infrastructure provider: "
            "CreateError: AuthFailed: the key paper-1 is not known"
        )
        assert await made.condition("CreateJob") == ("False", "CreateError")
        assert [each["message"] for each in infra["status"]["conditions"] if each["type"] == "Ready"] == [text]
        assert dig(infra, "status", "failureReason") == "CreateError"
        assert dig(infra, "status", "failureMessage") == "making it\nAuthFailed: the key paper-1 is not known"
        events = await made.world.list(EVENTS, FLEET)
        assert any(each["reason"] == "CreationFailed" and "AuthFailed" in each["message"] for each in events)
        # Nothing was kept, so there is nothing to remove.
        await made.world.delete(capi.MACHINES, "m1", FLEET)
        await made.world.settle(5)
        assert await made.gone() and job is not None
        (attempt,) = await made.attempts()
        assert (attempt.job, attempt.reason, attempt.message) == (uid_of(job), "AuthFailed", "the key paper-1 is not known")
        owner = (await made.world.get(CLUSTERS, DEMO, FLEET))["metadata"]["uid"]
        kept = await made.world.get(_CONFIG_MAPS, attempts_name(DEMO, "workers"), FLEET)
        assert [each["uid"] for each in kept["metadata"]["ownerReferences"]] == [owner]


async def test_a_machine_that_failed_stays_as_long_as_the_setting_says() -> None:
    async with papers() as made:
        await made.world.setting("delete-machine-on-failure-after", "10m")
        await made.cluster()
        await made.machine()
        await made.world.settle()
        await made.fails()
        await made.world.settle(500)
        assert await made.world.find(capi.MACHINES, "m1", FLEET) is not None
        await made.world.settle(120)
        assert await made.world.find(capi.MACHINES, "m1", FLEET) is None


async def test_a_pool_that_fails_again_and_again_is_tried_more_slowly() -> None:
    async with papers() as made:
        await made.cluster()
        waited = []
        for name in ("a", "b", "c", "d"):
            await made.machine(name)
            await made.world.settle()
            await made.fails(name=name)
            began = made.world.clock.time()
            while await made.world.find(capi.MACHINES, name, FLEET) is not None:
                await made.world.settle(1)
            waited.append(made.world.clock.time() - began)
        assert waited[0] == 0 and 7 <= waited[1] <= 11 and 17 <= waited[2] <= 21 and 37 <= waited[3] <= 41, waited


async def removing(made: Any) -> None:
    await made.world.delete(PAPERS, "m1", FLEET)
    await made.world.settle()
    job = await made.job()
    assert job is not None and job["spec"]["template"]["spec"]["containers"][0]["args"][-4:] == [
        "rm",
        "-y",
        "--update-config",
        "m1",
    ]


async def test_a_machine_is_removed_by_a_job_before_it_is_let_go() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await removing(made)
        assert await made.condition("DeleteJob") == ("Unknown", "")
        await made.world.settle(1000)
        assert not await made.gone()
        await made.keep(empty=True)
        await made.succeeds()
        assert await made.gone() and await made.job() is None
        for resource in (ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS):
            assert await made.world.find(resource, job_name("m1"), FLEET) is None
        await made.world.settle(5)
        assert await made.world.find(SECRETS, state_name("m1"), FLEET) is None, "the state goes with the machine"
        assert [each.action for each in await made.attempts()] == ["create", "remove"]


async def test_a_removal_that_fails_is_tried_again_until_it_succeeds() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await removing(made)
        first = await made.job()
        for _ in range(4):
            await made.fails("Unavailable: connection refused")
        assert await made.condition("DeleteJob") == ("False", "DeleteError")
        assert dig(await made.get(), "status", "failureReason") == "DeleteError"
        await made.world.settle(400)
        second = await made.job()
        assert second is not None and first is not None and uid_of(second) != uid_of(first)
        await made.succeeds()
        assert await made.gone()


async def test_force_lets_go_of_what_can_not_be_removed_and_says_so() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await removing(made)
        for _ in range(4):
            await made.fails("AuthFailed: no")
        await made.world.settle(10)
        assert not await made.gone()
        await made.world.patch(PAPERS, "m1", {"metadata": {"annotations": {FORCE_REMOVE: "true"}}}, FLEET)
        await made.world.settle()
        assert await made.gone()
        assert (await made.attempts())[-1].result == "Abandoned"
        events = await made.world.list(EVENTS, FLEET)
        assert any(each["reason"] == "MachineAbandoned" for each in events)


async def test_a_machine_whose_job_vanished_is_removed_if_it_may_exist() -> None:
    async with papers() as made:
        await made.cluster()
        await made.machine()
        await made.world.settle()
        await made.begins()
        await made.keep()
        first = await made.job()
        await made.world.delete(JOBS, job_name("m1"), FLEET)
        await made.world.settle()
        again = await made.job()
        assert again is not None and first is not None and uid_of(again) != uid_of(first), "what was begun goes on"
        await made.begins()
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(100)
        assert not await made.gone() and "create" in _args(await made.job()), "what is half done is waited for"
        await made.succeeds()
        await made.world.settle()
        assert "rm" in _args(await made.job())
        await made.succeeds()
        assert await made.gone()


async def test_a_machine_that_was_never_begun_goes_at_once() -> None:
    async with papers() as made:
        await made.cluster()
        await made.machine()
        await made.world.settle()
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(5)
        assert await made.gone() and await made.job() is None


class LastMoment:
    """A client on which a program that is about to be cut off keeps its machine just before."""

    def __init__(self, client: Client, made: Papers) -> None:
        self._client = client
        self._made = made
        self.remote = client.remote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def delete(self, resource: Any, name: str, *args: Any, **options: Any) -> Any:
        if resource == SERVICE_ACCOUNTS:
            await self._made.keep()
        return await self._client.delete(resource, name, *args, **options)


async def test_what_is_kept_at_the_last_moment_is_removed() -> None:
    async with papers(begin=False) as made:
        await made.cluster()
        await made.machine()
        made.world.begin(lambda client: LastMoment(client, made))  # type: ignore[arg-type,return-value]
        await made.world.settle()
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(10)
        assert not await made.gone() and "rm" in _args(await made.job())
        await made.succeeds()
        assert await made.gone()


async def test_a_namespace_can_be_deleted_with_machines_in_it() -> None:
    async with papers() as made:
        await made.cluster()
        await made.made()
        await made.world.delete(NAMESPACES, FLEET)
        await made.world.settle(60)
        assert await made.gone()


async def test_a_credential_is_used_only_if_the_cluster_uses_it() -> None:
    async with papers() as made:
        await made.credential(token="s3cret-s3cret")
        await made.cluster()
        await made.machine(credential=CREDENTIAL)
        await made.world.settle(100)
        assert await made.job() is None, "whoever makes machines can't use what is somebody else's"
        found = next(each for each in (await made.get())["status"]["conditions"] if each["type"] == "Ready")
        assert "does not use the cloud credential" in found["message"]
        await made.world.patch(CLUSTERS, DEMO, {"spec": {"cloudCredentialSecretName": CREDENTIAL}}, FLEET)
        await made.world.settle(100)
        assert await made.job() is not None
        assert await made.world.find(SECRETS, environment_name("m1"), FLEET) is None, "it stays where it is"
        assert "s3cret" not in str(await made.job())


async def test_a_machine_that_waits_for_its_credential_goes_on_as_soon_as_the_cluster_is_given_it() -> None:
    async with papers() as made:
        new = await made.credential(token="t")
        await made.cluster(CREDENTIAL)
        key = "/secrets/cattle-global-data/cc-paper"
        await made.world.patch(CLUSTERS, DEMO, {"status": {"references": {key: {"uid": "of-another"}}}}, FLEET, "status")
        await made.machine(credential=CREDENTIAL)
        await made.world.settle(1)
        found = next(each for each in (await made.get())["status"]["conditions"] if each["type"] == "Ready")
        assert "is not the object" in found["message"]
        bound = {"status": {"references": {key: {"uid": uid_of(new)}}}}
        await made.world.patch(CLUSTERS, DEMO, bound, FLEET, "status")
        await made.world.settle(1)
        assert await made.job() is not None


async def test_as_pods_jobs_get_their_credential_from_a_secret() -> None:
    async with papers(local=False) as made:
        await made.world.setting("delete-machine-on-failure-after", "1h")
        await made.credential(token="s3cret-s3cret")
        await made.cluster(CREDENTIAL)
        await made.machine(credential=CREDENTIAL, userdata="#!/bin/sh")
        await made.world.settle()
        job = await made.job()
        assert job is not None and "managedBy" not in job["spec"]
        assert await made.world.secret_text(environment_name("m1"), FLEET, "PAPER_TOKEN") == "s3cret-s3cret"
        assert await made.world.secret_text(job_name("m1"), FLEET, "userdata") == "#!/bin/sh\n"
        meta = {"namespace": FLEET, "labels": {"batch.kubernetes.io/job-name": job_name("m1")}}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name("m1"), "uid": uid_of(job), "controller": True}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "machine", "image": "x"}]}}
        await made.world.create(_PODS, {**pod, "metadata": {**meta, "name": "theirs"}})
        await made.world.create(_PODS, {**pod, "metadata": {**meta, "name": "p", "ownerReferences": [owner]}})
        for name, said in (("p", "QuotaExceeded: three droplets at most"), ("theirs", "AuthFailed: a lie")):
            ended = {"terminated": {"exitCode": 1, "message": said}}
            status = {"name": "machine", "state": ended, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
            await made.world.patch(_PODS, name, {"status": {"containerStatuses": [status]}}, FLEET, "status")
        await made.fails("Job has reached the specified backoff limit")
        assert dig(await made.get(), "status", "failureMessage") == "QuotaExceeded: three droplets at most"


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ({}, f"remuda/machine:{__version__}"),
        ({"server-url": "https://remuda.example.org"}, f"remuda.example.org/remuda/machine:{__version__}"),
        ({"server-url": "https://remuda"}, f"remuda:443/remuda/machine:{__version__}"),
        (
            {"server-url": "https://remuda.example.org", "system-default-registry": "registry.example.org"},
            f"registry.example.org/remuda/machine:{__version__}",
        ),
        ({"server-url": "https://remuda.example.org", "machine-provision-image": "rancher/machine:v1"}, "rancher/machine:v1"),
    ],
)
async def test_pods_of_jobs_get_our_image_from_the_server(settings: dict[str, str], image: str) -> None:
    async with papers(local=False) as made:
        for name, value in settings.items():
            await made.world.setting(name, value)
        await made.cluster()
        await made.machine()
        await made.world.settle()
        job = await made.job()
        assert job is not None and job["spec"]["template"]["spec"]["containers"][0]["image"] == image


def _args(job: Obj | None) -> list[str]:
    assert job is not None
    return list(job["spec"]["template"]["spec"]["containers"][0]["args"])


_CONFIG_MAPS = CLUSTERS._replace(group="", version="v1", resource="configmaps")
_PODS = CLUSTERS._replace(group="", version="v1", resource="pods")
