"""A pool on a whole server: its Job runs the real program, which makes a real host; and takes it away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.access.rancher_conditions import is_true
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.embedded import chosen, running
from remuda.client.interface import Client
from remuda.hosts.hosts import Hosts
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of
from remuda.machines.machineprovision.job_outcome import attempts_of
from remuda.machines.machineprovision.well_known import (
    CONFIG_MAPS,
    JOBS,
    STATE_KEY,
    attempts_name,
    job_name,
    log_name,
    state_name,
)
from tests.real.ports import free_port

Obj = dict[str, Any]
FLEET, DEMO = "fleet-default", "demo"
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "localconfigs")
MACHINES = GroupVersionResource("rke-machine.cattle.io", "v1", "localmachines")
CLUSTERS = GroupVersionResource("provisioning.cattle.io", "v1", "clusters")
# A machine that others use, too, takes its time.
_PATIENCE = 240.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Those of the server in `tmp_path`; none outlives the test, whatever became of it."""
    found = Hosts(tmp_path / "data" / "hosts")
    try:
        yield found
    finally:
        for each in found.all():
            found.remove(each.name)


async def eventually(check: Callable[[], Awaitable[Any]], what: str) -> Any:
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    while not (found := await check()):
        assert loop.time() < until, f"it never came true: {what}"
        await asyncio.sleep(0.1)
    return found


async def applied(client: Client) -> None:
    """As soon as the driver's kinds are there."""
    config = {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig"}

    async def made(resource: GroupVersionResource, obj: Obj) -> bool:
        try:
            return bool(await client.create(resource, obj, FLEET))
        except ApiError as error:
            assert error.code in (404, 429, 503), error
            return False

    async def are_served(resource: GroupVersionResource) -> bool:
        try:
            return bool(await client.list(resource, FLEET))
        except ApiError as error:
            assert error.code in (404, 429, 503), error
            return False

    small = {**config, "metadata": {"name": "small", "namespace": FLEET}}
    await eventually(lambda: made(CONFIGS, small), "the kinds of the driver local")
    # Of which there are two, one after the other.
    await eventually(lambda: are_served(MACHINES), "the kinds of the driver local")
    roles = dict.fromkeys(("etcdRole", "controlPlaneRole", "workerRole"), True)
    pool = {"name": "all", "quantity": 1, **roles, "machineConfigRef": {"kind": "LocalConfig", "name": "small"}}
    spec = {"kubernetesVersion": "v1.34.1+remuda1", "rkeConfig": {"machinePools": [pool]}}
    meta = {"name": DEMO, "namespace": FLEET}
    cluster = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": meta, "spec": spec}
    await eventually(lambda: made(CLUSTERS, cluster), "the cluster is declared")


@pytest.mark.story
async def test_a_pool_gets_its_host_and_loses_it(tmp_path: Path, hosts: Hosts) -> None:
    async with running(Config(data_dir=tmp_path / "data", port=0), choice=chosen("*")) as server:
        client = InProcessClient(server, manager="kubectl")
        await applied(client)

        async def ready() -> Obj | None:
            listed = (await client.list(MACHINES, FLEET))["items"]
            return next((each for each in listed if is_true(each, "Ready")), None)

        infra = await eventually(ready, "the Job has made its machine")
        name = name_of(infra)
        assert [(each.name, each.running) for each in hosts.all()] == [(name, True)]
        job = await client.get(JOBS, job_name(name), FLEET)
        assert job["status"]["succeeded"] == 1 and job["spec"]["managedBy"] == "remuda.dev/job-runner"
        assert dig(await client.get(SECRETS, state_name(name), FLEET), "data", STATE_KEY)

        async def log() -> str:
            found = await client.get(CONFIG_MAPS, log_name(name), FLEET)
            return str(found["data"]["log"])

        assert "is made, at 127." in await log()
        await client.delete(CLUSTERS, DEMO, FLEET)

        async def gone() -> bool:
            return not (await client.list(MACHINES, FLEET))["items"]

        await eventually(gone, "the machine is gone")
        assert hosts.all() == [], "and so is its host"


async def test_what_a_server_did_not_finish_the_next_one_does(tmp_path: Path, hosts: Hosts) -> None:
    """Ended in the middle of a Job, whatever it has done by then: one machine, one host, one attempt that counts."""
    # At the same address: it is in the script that the host runs.
    config = Config(data_dir=tmp_path / "data", port=free_port())
    async with running(config, choice=chosen("*")) as server:
        client = InProcessClient(server, manager="kubectl")
        await applied(client)

        async def begun() -> bool:
            jobs = (await client.list(JOBS, FLEET))["items"]
            return any(dig(each, "status", "startTime") for each in jobs)

        await eventually(begun, "a Job has begun")
    async with running(config, choice=chosen("*")) as server:
        client = InProcessClient(server, manager="kubectl")

        async def ready() -> Obj | None:
            listed = (await client.list(MACHINES, FLEET))["items"]
            return next((each for each in listed if is_true(each, "Ready")), None)

        infra = await eventually(ready, "the Job has made its machine")
        assert [each.name for each in hosts.all()] == [name_of(infra)]
        kept = await client.get(CONFIG_MAPS, attempts_name(DEMO, "all"), FLEET)
        assert [(each.action, each.result) for each in attempts_of(kept)] == [("create", "Complete")]
        await client.delete(CLUSTERS, DEMO, FLEET)

        async def gone() -> bool:
            return not (await client.list(MACHINES, FLEET))["items"]

        await eventually(gone, "the machine is gone")
        assert hosts.all() == []
