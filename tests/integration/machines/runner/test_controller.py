"""Jobs run as processes, on a server that listens: with few rights, once, again after a crash, and never for somebody else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from remuda.access.rancher_conditions import condition_of
from remuda.api import cluster_x_k8s_io as capi
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, uid_of
from remuda.kube.waits import Code
from remuda.machines.machineprovision.well_known import CONFIG_MAPS, JOB_UID, JOBS, job_name, log_name
from remuda.machines.runner import jail, job_logs, job_status
from remuda.machines.runner.job_token import run_name
from remuda.machines.secretfields.markers import is_marker, secret_name
from remuda.machines.secretfields.vault import Vault
from remuda.runtime import Elector, LeaseTerm

from .running_jobs import FLEET, PAPERS, TOKEN, Runners, forged, runners

Obj = dict[str, Any]


@pytest_asyncio.fixture
async def made(tmp_path: Path) -> AsyncIterator[Runners]:
    async with runners(tmp_path) as found:
        yield found


async def test_only_the_program_gets_the_values_of_sealed_fields(made: Runners) -> None:
    made.begin()
    key, password = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5\n-----END OPENSSH PRIVATE KEY-----\n", "hunter2-hunter2"
    infra = await made.machine("m1", "works", sshKey=key, password=password)
    assert all(is_marker(infra["spec"][field]) for field in ("sshKey", "password"))
    await made.until("m1", "CreateJob", "True")
    said = await made.until_said("m1", "password ")
    lines = dict(line.partition(" ")[::2] for line in said.splitlines())
    assert lines["key"] == hashlib.sha256(key.encode()).hexdigest()
    assert lines["password"] == hashlib.sha256(password.encode()).hexdigest()
    # Not even from what there is of the Job: its arguments name the variable.
    told = json.dumps([await made.job("m1"), await made.find(PAPERS, "m1"), await made.find(CONFIG_MAPS, log_name("m1"))])
    assert password not in told and "PRIVATE KEY" not in told and "--paper-password=$(SEALED_PAPER_PASSWORD)" in told
    # A value that is gone is asked for by the field that it belongs to, also by a removal.
    await made.client.delete(SECRETS, secret_name(infra["spec"]["sshKey"]), FLEET)
    await made.client.delete(PAPERS, "m1", FLEET)

    async def waits() -> bool:
        return any("spec.sshKey is not kept any more" in wait.evidence for wait in made.waits())

    await made.eventually(waits, "it is said what is missing")
    vault = Vault(made.client, SYSTEM_CLOCK, Entropy())
    await vault.keep(FLEET, infra["spec"]["sshKey"], key)

    async def gone() -> bool:
        return await made.find(PAPERS, "m1") is None

    await made.eventually(gone, "it is removed with the value that is there again")


async def test_a_machine_comes_and_goes(made: Runners) -> None:
    made.begin()
    # What somebody else put there for the program to find.
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "somebody-elses", "namespace": FLEET}}
    await made.create(SECRETS, secret)
    data = made.data
    await made.machine("m1", "looks-around", userdata=f"{data}/kubeconfig {data}\n/etc/passwd")
    await made.until("m1", "CreateJob", "True")
    said = await made.until_said("m1", "refused" if jail.version() else "jobs")
    lines = dict(line.partition(" ")[::2] for line in said.splitlines())
    # Its arguments are those of the machine, its environment is nobody else's, its script is the machine's.
    assert '"create", "--driver=paper"' in lines["argv"] and '"--paper-size=looks-around"' in lines["argv"]
    # (Python itself adds the locale.)
    assert [each for each in lines["environment"].split() if each != "LC_CTYPE"] == [
        *("HOME", "KUBECONFIG", "MACHINE_STORAGE_PATH", "PAPER_TOKEN", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"),
        *("PYTHONSAFEPATH", "PYTHONUNBUFFERED", "REMUDA_OWNER", "TMPDIR"),
    ]
    assert lines["script"] == "the script"
    # The credential is there for the program, and hidden from who reads its log.
    assert lines["token"] == "[hidden]" and TOKEN not in said
    # It can read and write one Secret.
    assert (lines["others"], lines["jobs"]) == ("403 403", "403")
    if jail.version():
        assert [line.split()[:2] for line in said.splitlines() if line.startswith(("read", "refused"))] == [
            ["refused", f"{data}/kubeconfig"],
            ["refused", str(data)],
            ["read", "/etc/passwd"],
        ]
    job = await made.job("m1")
    assert job is not None and job["status"]["succeeded"] == 1 and not job["status"].get("active")

    async def clean() -> bool:
        return await made.find(SECRETS, run_name("m1")) is None and not list(made.directory.glob("*/job-*"))

    await made.eventually(clean, "nothing is left of the process")
    await made.client.delete(PAPERS, "m1", FLEET)

    async def gone() -> bool:
        return await made.find(PAPERS, "m1") is None

    await made.eventually(gone, "the machine is gone")
    assert '"rm", "-y", "--update-config", "m1"' in await made.log("m1"), "its log outlives it"
    assert made.processes() == []


async def test_a_failure_is_told_without_the_credential(made: Runners) -> None:
    made.begin()
    setting = {"apiVersion": "management.cattle.io/v3", "kind": "Setting", "value": "1h"}
    await made.create(_SETTINGS, {**setting, "metadata": {"name": "delete-machine-on-failure-after"}})
    await made.machine("m1", "fails")
    await made.until("m1", "CreateJob", "False")
    infra, job = await made.find(PAPERS, "m1"), await made.job("m1")
    assert str(dig(infra, "status", "failureMessage")).splitlines()[-2] == "AuthFailed: the paper is not known"
    assert "trying with [hidden]" in dig(infra, "status", "failureMessage")
    assert job is not None and job["status"]["failed"] == 1 and job_status.is_over(job)
    assert TOKEN not in str(infra) + str(job) + await made.log("m1")


async def test_a_job_that_is_deleted_loses_its_process_and_is_begun_again(made: Runners) -> None:
    made.begin()
    await made.machine("m1", "hangs")
    await made.until_said("m1", "hanging")
    (first,) = made.processes()
    job = await made.job("m1")
    await made.client.delete(JOBS, job_name("m1"), FLEET)

    async def replaced() -> bool:
        found = made.processes()
        return len(found) == 1 and found[0] != first

    await made.eventually(replaced, "another process")
    again = await made.job("m1")
    assert again is not None and job is not None and uid_of(again) != uid_of(job)


async def test_what_a_server_did_not_finish_the_next_one_does(made: Runners) -> None:
    made.begin()
    await made.machine("m1", "hangs-once")
    await made.until_said("m1", "hanging")
    assert len(made.processes()) == 1
    await made.end()
    assert made.processes() == [], "all end with the server"
    job = await made.job("m1")
    assert job is not None and not job_status.is_over(job)
    made.begin()
    await made.until("m1", "CreateJob", "True")
    assert await made.runs("m1") == 2
    again = await made.job("m1")
    assert again is not None and uid_of(again) == uid_of(job), "it is the same Job"
    log = await made.log("m1")
    assert log.count("--- create") == 2, "and its log goes on"


async def test_a_process_that_is_killed_goes_on_where_it_was(made: Runners) -> None:
    made.begin()
    await made.machine("m1", "hangs-once")
    await made.until_said("m1", "hanging")
    job = await made.job("m1")
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)
    await made.until("m1", "CreateJob", "True")
    again = await made.job("m1")
    assert again is not None and job is not None and uid_of(again) == uid_of(job)
    assert await made.runs("m1") == 2 and again["status"]["failed"] == 1
    assert "--- ended with signal 9" in await made.log("m1")


async def test_no_more_run_at_once_than_may_and_the_others_say_so(made: Runners) -> None:
    made.begin(concurrency=2)
    for number in range(5):
        await made.machine(f"m{number}", "hangs")

    async def full() -> bool:
        waiting = [each.evidence for each in made.waits() if each.code is Code.TURN]
        return len(made.processes()) == 2 and len(waiting) == 3 and all("2 Jobs run already" in each for each in waiting)

    await made.eventually(full, "two run and three wait, and say for what")
    # One that waits can be called off; nothing was made for it.
    running = [name for name in (f"m{number}" for number in range(5)) if dig(await made.job(name), "status", "startTime")]
    waiting = next(name for name in (f"m{number}" for number in range(5)) if name not in running)
    await made.client.delete(PAPERS, waiting, FLEET)

    async def gone() -> bool:
        return await made.find(PAPERS, waiting) is None

    await made.eventually(gone)
    assert await made.runs(waiting) == 0 and len(made.processes()) == 2


async def test_only_the_server_that_leads_runs_jobs(made: Runners) -> None:
    # Longer than this process may stand still: who loses its term stops what runs.
    term = LeaseTerm(90.0, 70.0, 0.3)
    for identity in ("a", "b"):
        elector = Elector(made.client, SYSTEM_CLOCK, Rng(7), namespace=FLEET, name="remuda", identity=identity, term=term)
        made.begin(elector=elector)
    await made.machine("m1", "hangs")
    await made.until_said("m1", "hanging")
    assert len(made.processes()) == 1 and await made.runs("m1") == 1
    lease = await made.client.get(_LEASES, "remuda", FLEET)
    leader = 0 if lease["spec"]["holderIdentity"] == "a" else 1
    task = made.managers[leader][1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.processes() == []
    # Its term is over at once: nobody wants to wait for that.
    await made.client.patch(_LEASES, "remuda", {"spec": {"holderIdentity": ""}}, FLEET)

    async def follows() -> bool:
        return await made.runs("m1") == 2 and len(made.processes()) == 1

    await made.eventually(follows, "the other one goes on")


async def test_foreign_jobs_are_not_run(made: Runners) -> None:
    infra = await made.machine("m1", "hangs")
    first = await made.create(JOBS, forged(infra))
    other = await made.create(JOBS, forged(infra, "other"))
    made.begin()
    await made.until_said("m1", "hanging")
    job = await made.job("m1")
    assert job is not None and uid_of(job) != uid_of(first)
    assert '"create", "--driver=paper"' in await made.log("m1")
    found = await made.find(JOBS, "other")
    assert found is not None and uid_of(found) == uid_of(other) and not found.get("status", {}).get("startTime")
    assert not Path("/tmp/evil").exists()
    # One that takes the place of ours stops what ran, and is not run itself.
    await made.client.delete(JOBS, job_name("m1"), FLEET)

    async def ours_again() -> bool:
        current, machine = await made.job("m1"), await made.find(PAPERS, "m1")
        return current is not None and annotations_of(machine or {}).get(JOB_UID) == uid_of(current) != uid_of(job)

    await made.eventually(ours_again)
    assert await made.find(capi.MACHINES, "m1") is not None


async def test_a_machine_without_the_clusters_credential_gets_no_process(made: Runners) -> None:
    meta = {"name": "somebody-elses", "namespace": FLEET}
    await made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"x-token": "eA=="}})
    made.begin()
    await made.machine("m1", common={"cloudCredentialSecretName": "somebody-elses"})

    async def told() -> bool:
        return any("does not use the cloud credential" in each.evidence for each in made.waits())

    await made.eventually(told)
    assert made.processes() == [] and await made.job("m1") is None


async def test_a_removal_is_tried_four_times_with_pauses(made: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[float] = []

    def pause(count: int) -> float:
        failed.append(SYSTEM_CLOCK.monotonic())
        return 0.5

    monkeypatch.setattr(job_status, "pause", pause)
    made.begin()
    await made.machine("m1")
    await made.until("m1", "CreateJob", "True")
    refusals = base64.b64encode(b"AuthFailed: the paper is not known|QuotaExceeded: no more|the press burns").decode()
    await made.client.patch(SECRETS, "m1-machine-state", {"data": {"refusals": refusals}}, FLEET)
    await made.client.delete(PAPERS, "m1", FLEET)
    await made.until("m1", "DeleteJob", "False")
    job = await made.job("m1")
    assert job is not None and job["status"]["failed"] == 4
    assert (await made.log("m1")).count("--- remove") == 4
    infra = await made.find(PAPERS, "m1")
    assert "DeleteError: Failed: the press burns" in str((condition_of(infra or {}, "DeleteJob") or {})["message"])
    assert dig(infra, "status", "failureMessage") == "the press burns\n--- ended with exit status 1", (
        "the reason is the last try's"
    )
    assert "AuthFailed: the paper is not known" in await made.log("m1"), "the log has all of them"
    assert len(failed) == 3 and all(later - earlier >= 0.5 for earlier, later in pairwise(failed)), failed


class Away:
    """An API that is away when it is first told, a few times, that a Job has ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.left = 3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, resource: Any, name: str, patch: Obj, *more: Any, **named: Any) -> Obj:
        if resource == JOBS and self.left and dig(patch, "status", "succeeded"):
            self.left -= 1
            raise ApiError(503, "ServiceUnavailable", "away")
        return await self._client.patch(resource, name, patch, *more, **named)


async def test_a_finished_job_is_not_run_again_when_its_report_failed(made: Runners) -> None:
    away = Away(made.client)
    made.client = cast("Client", away)
    made.begin()
    await made.machine("m1")
    await made.until("m1", "CreateJob", "True")
    assert away.left == 0 and await made.runs("m1") == 1


async def test_old_logs_are_thrown_away(made: Runners) -> None:
    made.begin()
    await made.machine("m1")
    await made.until("m1", "CreateJob", "True")
    await made.until_said("m1", "argv")
    now = SYSTEM_CLOCK.time()
    await job_logs.sweep_once(made.client, now + job_logs.KEPT_SECONDS - 3600)
    assert await made.find(CONFIG_MAPS, log_name("m1")) is not None
    await job_logs.sweep_once(made.client, now + job_logs.KEPT_SECONDS + 3600)
    assert await made.find(CONFIG_MAPS, log_name("m1")) is None


_SETTINGS = JOBS._replace(group="management.cattle.io", version="v3", resource="settings")
_LEASES = JOBS._replace(group="coordination.k8s.io", resource="leases")
