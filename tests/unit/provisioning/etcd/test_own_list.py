"""The cluster's own list of snapshots: in pages, begun anew when they expire, else of the ConfigMap of older versions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client, Send, WrappedClient
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError, expired
from remuda.lab.distro.crds import DEFINITIONS
from remuda.lab.sim.workload_clusters import Beginning
from remuda.provisioning.etcd.own_list import SNAPSHOT_FILES, OwnList, read
from remuda.provisioning.etcd.snapshot_reports import of_cluster

Obj = dict[str, Any]

MACHINES = {"n1": "m1"}
WITH, WITHOUT = Beginning(lambda: DEFINITIONS), Beginning()


def file(number: int) -> Obj:
    name = f"on-demand-n1-{1_700_000_000 + number}"
    return {
        "apiVersion": "k3s.cattle.io/v1",
        "kind": "ETCDSnapshotFile",
        "metadata": {"name": f"local-{name}"},
        "spec": {"snapshotName": name, "nodeName": "n1", "location": f"file:///snapshots/{name}"},
        "status": {"size": "100", "readyToUse": True},
    }


class Worn(WrappedClient):
    """The real client; of its lists those of these numbers have expired."""

    def __init__(self, client: Client, *numbers: int) -> None:
        super().__init__(client)
        self._expired = numbers
        self.lists = 0

    async def list(self, *args: Any, **options: Any) -> Obj:
        self.lists += 1
        if self.lists in self._expired:
            raise expired("The provided continue parameter is too old")
        return await super().list(*args, **options)

    async def _call(self, send: Send, *, write: bool) -> Any:
        return await send()


@asynccontextmanager
async def cluster(beginning: Beginning, files: int = 0) -> AsyncIterator[Client]:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, base=await beginning.base(), clock=clock, rng=Rng(0), entropy=Entropy(0)))
    try:
        client = InProcessClient(server, manager="k3s")
        for number in range(files):
            made = await client.create(SNAPSHOT_FILES, file(number))
            await client.update(SNAPSHOT_FILES, {**made, "status": file(number)["status"]}, subresource="status")
        yield client
    finally:
        await server.close()


async def listed(client: Client) -> OwnList:
    return await read(client, VirtualClock(), "k3s", MACHINES)


async def test_all_pages_are_read() -> None:
    async with cluster(WITH, 501) as client:
        worn = Worn(client)
        found = await listed(worn)
        assert len(found.report.by_key()) == 501 and found.report.complete and worn.lists == 2
        assert found.cluster_id == (await client.get(NAMESPACES, "kube-system"))["metadata"]["uid"]


async def test_a_list_whose_pages_have_expired_is_begun_anew_a_few_times() -> None:
    async with cluster(WITH, 501) as client:
        found = await listed(Worn(client, 2))
        assert len(found.report.by_key()) == 501 and found.report.complete
        with pytest.raises(ApiError) as error:
            await listed(Worn(client, 2, 4, 6))
        assert error.value.code == 410
        with pytest.raises(ApiError):
            await listed(Worn(client, 1))


async def test_a_cluster_without_the_kind_has_a_config_map_that_may_lack_some() -> None:
    async with cluster(WITHOUT) as client:
        assert (await listed(client)).report.seen == ()
        said = {"name": "on-demand-n1-1", "nodeName": "n1", "location": "file:///snapshots/on-demand-n1-1", "size": 100}
        made = {"metadata": {"name": "k3s-etcd-snapshots"}, "data": {"one": json.dumps(said), "two": "no JSON"}}
        await client.create(CONFIG_MAPS, made, "kube-system")
        found = (await listed(client)).report
        assert [each.file for each in found.seen] == ["on-demand-n1-1"] and not found.complete


def test_more_than_five_thousand_are_cut_and_nothing_is_concluded_from_what_lacks() -> None:
    every = of_cluster(1.0, (file(number) for number in range(5000)), MACHINES)
    assert len(every.seen) == 5000 and every.complete
    cut = of_cluster(1.0, (file(number) for number in range(5001)), MACHINES)
    assert len(cut.seen) == 5000 and not cut.complete
