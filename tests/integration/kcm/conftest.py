"""A real API server in memory, with all controllers running on its in-process client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda import kcm
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.waiting import until

Obj = dict[str, Any]

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
ROOT_CA = "-----BEGIN CERTIFICATE-----\nnot a real one\n-----END CERTIFICATE-----\n"


class Cluster:
    """The client, and short words for what tests do most."""

    def __init__(self, client: Client, server: Server) -> None:
        self.client = client
        self.server = server

    async def make(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, obj["metadata"].get("namespace", ""))

    async def config_map(self, name: str, *owners: Obj, namespace: str = "default", **meta: Any) -> Obj:
        metadata: Obj = {"name": name, "namespace": namespace, **meta}
        if owners:
            metadata["ownerReferences"] = list(owners)
        return await self.make(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async def namespace(self, name: str) -> Obj:
        return await self.make(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
        try:
            return await self.client.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def until_gone(self, resource: GroupVersionResource, name: str, namespace: str = "") -> None:
        async def gone() -> bool:
            return await self.find(resource, name, namespace) is None

        await until(gone, f"the end of {name}")


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[Cluster]:
    client = InProcessClient(server)
    work = asyncio.create_task(kcm.run(client, SYSTEM_CLOCK, Rng(1), root_ca=ROOT_CA, tokens=server.issuer))
    try:
        yield Cluster(client, server)
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = await Server.open(Config(data_dir=None))
    yield made
    await made.close()


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    async with running(server) as found:
        yield found


def owner(obj: Obj, **fields: Any) -> Obj:
    """A reference to `obj` as its owner."""
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **fields}
