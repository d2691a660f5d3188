"""Local Jobs on a bare kube-apiserver: its own Job controller leaves them alone, its rules for their status hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.client.https import HttpsClient
from remuda.machines.machineprovision.well_known import JOBS, PODS
from remuda.machines.runner import job_status
from remuda.machines.runner.job_token import cluster_of
from tests.integration.machines.runner.running_jobs import FLEET, PAPERS, TOKEN, forged, furnished
from tests.real import need
from tests.real.cluster import RealCluster

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as cluster:
        yield cluster.kubeconfig


async def test_machines_come_and_go_and_fail_as_anywhere(kubeconfig: Path, tmp_path: Path) -> None:
    async with HttpsClient.from_kubeconfig(kubeconfig) as client:
        api = cluster_of(client.target.server, client.target.ca)
        async with furnished(client, api, tmp_path) as made:
            made.begin()
            await made.machine("good", "looks-around", userdata="/etc/hostname")
            infra = await made.machine("bad", "fails")
            theirs = await made.create(JOBS, forged(infra, "theirs"))
            await made.until("good", "CreateJob", "True")
            said = await made.until_said("good", "jobs")
            assert "others 403 403" in said and "jobs 403" in said and TOKEN not in said
            job = await made.job("good")
            assert job is not None and job_status.is_over(job) and job["status"]["succeeded"] == 1

            # What failed goes with its Machine, at once; what was tried stays.
            async def bad_goes() -> bool:
                return await made.find(PAPERS, "bad") is None

            await made.eventually(bad_goes)
            assert "AuthFailed: the paper is not known" in await made.log("bad")
            await client.delete(PAPERS, "good", FLEET)

            async def good_goes() -> bool:
                return await made.find(PAPERS, "good") is None

            await made.eventually(good_goes)
            assert (await client.list(PODS, FLEET))["items"] == [], "no pod was ever made"
            # It went with the machine that it said it belonged to, or is as it was.
            left = await made.find(JOBS, "theirs") or theirs
            assert left["metadata"]["uid"] == theirs["metadata"]["uid"] and not left.get("status", {}).get("startTime")
