"""A server that has the definitions of Rancher's kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda import api
from remuda.api.crd_installation import established, install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.objects import GroupVersionResource
from tests.unit.api.rancher_objects import GROUPS, NAMESPACES

_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(Config(tmp_path / "data", port=0)) as made:
        client = InProcessClient(made)
        await established(client, SYSTEM_CLOCK, await install(client, SYSTEM_CLOCK, api.crds(GROUPS)))
        for name in NAMESPACES:
            await client.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield made
