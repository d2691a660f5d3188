"""Waiting for snapshots to be checked and deleted: until it is done, or until nothing has changed for very long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.api import crds
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.cli.exit_codes import Code, Failure
from remuda.cli.remote import snapshot_files
from remuda.client.interface import Client
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.lab.sim.workload_clusters import Beginning
from remuda.provisioning.etcd.snapshot_sets import SnapshotCopy, copy_of
from remuda.provisioning.well_known import SNAPSHOT_FILE

Obj = dict[str, Any]

WORKSPACE = "fleet-default"
KINDS = Beginning(lambda: crds([rke.GROUP]), (WORKSPACE,))
SNAPSHOT: Obj = {
    "apiVersion": rke.API_VERSION,
    "kind": "ETCDSnapshot",
    "metadata": {"name": "demo-1"},
    "spec": {"clusterName": "demo"},
    "snapshotFile": {"name": "on-demand-n1-1", "nodeName": "n1"},
}


@asynccontextmanager
async def stored() -> AsyncIterator[tuple[Client, VirtualClock, SnapshotCopy]]:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, base=await KINDS.base(), clock=clock, rng=Rng(0), entropy=Entropy(0)))
    try:
        client = InProcessClient(server, manager="remuda")
        yield client, clock, copy_of(await client.create(rke.ETCD_SNAPSHOTS, SNAPSHOT, WORKSPACE))
    finally:
        await server.close()


def told(text: str) -> Obj:
    return {"metadata": {}, "status": {"missing": False, "message": text}}


async def test_a_check_that_does_not_come_is_given_up_and_stays_requested() -> None:
    async with stored() as (client, clock, copy):
        waiting = asyncio.create_task(snapshot_files.verified(client, WORKSPACE, [copy], lambda text: None, clock))
        await clock.advance(snapshot_files.QUIET - 10)
        assert not waiting.done()
        await clock.advance(30)
        with pytest.raises(Failure, match="demo-1 not checked; the request stays") as failure:
            await waiting
        assert failure.value.code == Code.TIMEOUT
        assert (await client.get(rke.ETCD_SNAPSHOTS, "demo-1", WORKSPACE))["metadata"]["annotations"]


async def test_a_deletion_is_waited_for_as_long_as_something_changes() -> None:
    async with stored() as (client, clock, copy):
        said: list[str] = []
        waiting = asyncio.create_task(snapshot_files.delete(client, WORKSPACE, [copy], said.append, clock))
        await clock.advance(snapshot_files.QUIET - 10)
        why = told("waiting for machine m1")
        await client.patch(rke.ETCD_SNAPSHOTS, "demo-1", why, WORKSPACE, subresource="status")
        await clock.advance(snapshot_files.QUIET - 10)
        assert not waiting.done() and said[-1].endswith("waiting for machine m1")
        await clock.advance(30)
        with pytest.raises(Failure, match="not deleted"):
            await waiting


async def test_another_object_of_its_name_is_not_the_one_that_was_deleted() -> None:
    async with stored() as (client, clock, copy):
        waiting = asyncio.create_task(snapshot_files.delete(client, WORKSPACE, [copy], lambda text: None, clock))
        await clock.advance(2)
        held = await client.get(rke.ETCD_SNAPSHOTS, "demo-1", WORKSPACE)
        assert held["metadata"]["finalizers"] == [SNAPSHOT_FILE] and not waiting.done()
        await client.patch(rke.ETCD_SNAPSHOTS, "demo-1", {"metadata": {"finalizers": None}}, WORKSPACE)
        await client.create(rke.ETCD_SNAPSHOTS, SNAPSHOT, WORKSPACE)
        await clock.advance(2)
        await waiting
