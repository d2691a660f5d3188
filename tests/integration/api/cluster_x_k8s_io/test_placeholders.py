"""Kinds that others take for granted and Remuda does not have: served, empty, and it stays so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from remuda import api
from remuda.api.cluster_x_k8s_io import GROUP, OLD_VERSION, VERSION
from remuda.api.cluster_x_k8s_io.crds import NO_POOLS
from remuda.api.crd_installation import install_missing
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, with_path
from tests.waiting import until

POOLS = GroupVersionResource(GROUP, VERSION, "machinepools")
NAME = "machinepools.cluster.x-k8s.io"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running(Config(data_dir=None), listen=False) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Client:
    return InProcessClient(server)


async def served(server: Server) -> None:
    await until(lambda: all(server.registry.find(GROUP, version, "machinepools") for version in (VERSION, OLD_VERSION)))


@pytest.mark.parametrize("version", [VERSION, OLD_VERSION])
async def test_machine_pools_can_be_listed_and_none_can_be_made(server: Server, client: Client, version: str) -> None:
    assert await install_missing(client, api.placeholders(GROUP)) == [NAME]
    await served(server)
    pools = POOLS._replace(version=version)
    assert (await client.list(pools))["items"] == []
    pool = {"apiVersion": f"{GROUP}/{version}", "kind": "MachinePool", "metadata": {"name": "p"}, "spec": {"clusterName": "c1"}}
    with pytest.raises(ApiError) as refused:
        await client.create(pools, pool, "default")
    assert refused.value.code == 422
    assert NO_POOLS in refused.value.message


async def test_a_foreign_definition_is_left_alone(client: Client) -> None:
    (ours,) = api.placeholders(GROUP)
    theirs = with_path(ours, ("spec", "names", "shortNames"), ["pool"])
    await client.create(CRDS, theirs)
    before = await client.get(CRDS, NAME)
    assert await install_missing(client, api.placeholders(GROUP)) == []
    assert (await client.get(CRDS, NAME))["spec"] == before["spec"]
