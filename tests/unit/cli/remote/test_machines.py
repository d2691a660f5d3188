"""Which machine a name means, whose machines there are, and whether somebody works on one."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.cli.exit_codes import Code, Failure
from remuda.cli.remote import machines
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import ApiError
from remuda.machines.machineprovision.well_known import CONFIG_MAPS, LOG, log_name
from tests.unit.machines.machineprovision.driver_machines import PAPERS, Papers, papers
from tests.unit.provisioning.rke_machines import DEMO, FLEET

Obj = dict[str, Any]


async def _machine(made: Papers, name: str, node: str = "", namespace: str = FLEET, cluster: str = DEMO) -> None:
    ref = {"apiGroup": "rke-machine.cattle.io", "kind": "PaperMachine", "name": f"{name}-infra"}
    spec = {"clusterName": cluster, "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": ref}
    labels = {"cluster.x-k8s.io/cluster-name": cluster}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    await made.world.create(capi.MACHINES, {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": meta, "spec": spec})
    if node:
        await made.world.patch(capi.MACHINES, name, {"status": {"nodeRef": {"name": node}}}, namespace, "status")


async def test_a_machine_is_found_by_each_of_its_names_and_by_no_name_of_two() -> None:
    async with papers(begin=False) as made:
        client = made.world.client
        await made.world.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        await _machine(made, "a", "node-1")
        await _machine(made, "b", "node-2", cluster="other")
        await _machine(made, "c", "node-2")
        await _machine(made, "d", "node-4", "elsewhere")
        for name in ("a", "a-infra", "node-1"):
            assert (await machines.find(client, FLEET, name))["metadata"]["name"] == "a"
        with pytest.raises(Failure, match="node-2 matches several machines: b of other, c of demo") as several:
            await machines.find(client, FLEET, "node-2")
        assert several.value.code is Code.CONFLICT
        for name in ("d", "node-4"):
            with pytest.raises(
                Failure, match=r"no machine .* in the workspace fleet-default, but in another: -n elsewhere"
            ) as far:
                await machines.find(client, FLEET, name)
            assert far.value.code is Code.NOT_FOUND
        with pytest.raises(Failure, match="there is no machine nobody in the workspace fleet-default: remuda machine ls") as none:
            await machines.find(client, FLEET, "nobody")
        assert none.value.code is Code.NOT_FOUND
        assert [each["metadata"]["name"] for each in await machines.every(client)] == ["d", "a", "c", "b"]
        assert [each["metadata"]["name"] for each in await machines.every(client, FLEET)] == ["a", "c", "b"]


class Narrow:
    """Somebody who may list the machines of clusters that are theirs, and no others."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list(self, resource: Any, namespace: str = "", **more: Any) -> Obj:
        if resource == capi.MACHINES and not more.get("labels"):
            raise ApiError(403, "Forbidden", "no")
        return await self._client.list(resource, namespace, **more)

    async def get(self, resource: Any, name: str, namespace: str = "", **more: Any) -> Obj:
        if resource == capi.MACHINES and name != "a":
            raise ApiError(403, "Forbidden", "not yours")
        return await self._client.get(resource, name, namespace, **more)


async def test_who_may_not_list_all_machines_gets_those_of_their_clusters() -> None:
    async with papers(begin=False) as made:
        await made.cluster()
        await _machine(made, "a")
        await _machine(made, "b", cluster="somebody-elses")
        client: Any = Narrow(made.world.client)
        assert [each["metadata"]["name"] for each in await machines.every(client)] == ["a"]
        with pytest.raises(ApiError, match="not yours"):
            await machines.find(client, FLEET, "nobody")


async def test_a_machine_is_in_work_until_its_job_has_ended() -> None:
    async with papers() as made:
        client = made.world.client
        await made.cluster()
        await made.machine(bootstrapped=False)
        await made.world.settle()
        machine = await made.world.get(capi.MACHINES, "m1", FLEET)
        assert await made.job() is None and await machines.is_worked_on(client, machine), "its Job is about to be"
        await made.world.patch(capi.MACHINES, "m1", {"spec": {"bootstrap": {"dataSecretName": "m1-script"}}}, FLEET)
        await made.world.settle()
        assert await made.job() is not None and await machines.is_worked_on(client, machine)
        await made.keep()
        await made.succeeds()
        assert not await machines.is_worked_on(client, machine)
        await made.world.delete(PAPERS, "m1", FLEET)
        await made.world.settle(5)
        assert await machines.is_worked_on(client, machine), "it is being removed"
        await made.fails("PermissionDenied: no")
        assert not await machines.is_worked_on(client, machine), "it is tried again later"


async def test_the_log_of_a_machine_that_is_gone_is_found() -> None:
    async with papers(begin=False) as made:
        client = made.world.client
        meta = {"name": log_name("gone"), "namespace": FLEET, "labels": {LOG: "true"}}
        await made.world.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"log": "a\n"}})
        other = {"name": log_name("other"), "namespace": FLEET}
        await made.world.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": other, "data": {"log": "b\n"}})
        assert await machines.log_of_the_past(client, FLEET, "gone") == "a\n"
        assert await machines.log_of_the_past(client, FLEET, "other") is None, "it is somebody else's"
        assert await machines.log_of_the_past(client, FLEET, "nobody") is None
