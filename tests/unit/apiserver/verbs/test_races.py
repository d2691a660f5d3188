"""Whoever loses a race sees what the winner wrote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


async def test_an_object_that_exists_already_can_be_read_at_once(tmp_path: Path) -> None:
    server = await Server.open(Config(tmp_path / "data"))
    client = InProcessClient(server)

    async def make(number: int) -> int:
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "one", "namespace": "default"},
            "data": {"by": str(number)},
        }
        try:
            await client.create(CONFIG_MAPS, obj)
        except ApiError as error:
            assert error.is_already_exists
        found = await client.get(CONFIG_MAPS, "one", "default")
        return int(found["data"]["by"])

    try:
        seen = await asyncio.gather(*(make(number) for number in range(8)))
        assert len(set(seen)) == 1
        with pytest.raises(ApiError):
            await client.get(CONFIG_MAPS, "two", "default")
    finally:
        await server.close()
