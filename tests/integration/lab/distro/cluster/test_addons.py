"""Manifests of two servers of one cluster: applied once, pruned, and never undone by the one that is behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kcm import run as run_kubernetes
from remuda.kube.clock import SYSTEM_CLOCK, Rng, VirtualClock
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.lab.distro import crds
from remuda.lab.distro.cluster.addons import NAMESPACE, Deploying
from remuda.lab.distro.cluster.apiserver import places
from remuda.lab.distro.config import settings
from remuda.lab.distro.crds import ADDONS

MAPS = GroupVersionResource("", "v1", "configmaps")
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


class Cluster:
    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.client = InProcessClient(server, manager="test")
        self.clock = VirtualClock()
        self._directory = directory

    def host(self, name: str, **values: Any) -> Deploying:
        told = settings.of({"node-name": name, "node-ip": "127.0.0.1", **values}, self._directory / name)
        told.paths.manifests.mkdir(parents=True, exist_ok=True)
        return Deploying(told, self.client, places(self.server), self.clock)

    def write(self, host: str, *objects: Any, at: float, name: str = "file") -> Path:
        path = self._directory / host / "var/lib/rancher/remuda/server/manifests" / f"{name}.yaml"
        path.write_text("---\n".join(yamlio.dumps(each) for each in objects))
        os.utime(path, (at, at))
        return path

    async def maps(self) -> set[str]:
        return {name_of(each) for each in (await self.client.list(MAPS, "default"))["items"]} - {"kube-root-ca.crt"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    server = await Server.open(Config(data_dir=None, default_roles=False))
    made = Cluster(server, tmp_path)
    running = asyncio.create_task(run_kubernetes(made.client, SYSTEM_CLOCK, Rng(1)))
    try:
        await crds.ensure(made.client, SYSTEM_CLOCK)
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_the_newest_version_of_a_file_counts(cluster: Cluster) -> None:
    one, two = cluster.host("one"), cluster.host("two")
    for host in ("one", "two"):
        cluster.write(host, config_map("a"), config_map("b"), at=100)
    await one.step()
    await two.step()
    assert await cluster.maps() == {"a", "b"}
    # A plan has reached the second server, and not yet the first.
    cluster.write("two", config_map("b"), config_map("c"), at=200)
    await two.step()
    await one.step()
    await cluster.host("one").step()
    assert await cluster.maps() == {"b", "c"}
    cluster.write("one", at=300)
    await one.step()
    assert await cluster.maps() == set()


async def test_a_file_that_is_gone_takes_what_it_brought_along(cluster: Cluster) -> None:
    one, two = cluster.host("one"), cluster.host("two")
    path = cluster.write("one", config_map("a"), at=100)
    await one.step()
    other = cluster.write("two", config_map("z"), at=100, name="other")
    await two.step()
    path.unlink()
    await two.step()
    assert await cluster.maps() == {"a", "z"}
    await one.step()
    assert await cluster.maps() == {"z"}
    # Also when it went while the server did not run.
    other.unlink()
    await cluster.host("two")._remove_vanished()
    assert await cluster.maps() == set()
    assert (await cluster.client.list(ADDONS, NAMESPACE))["items"] == []


async def test_what_can_not_be_applied_yet_is_tried_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    one = cluster.host("one")
    cluster.write("one", config_map("a"), WIDGET, at=100)
    for _ in range(3):
        await one.step()
    assert await cluster.maps() == set()
    assert sum("Widget" in record.getMessage() for record in caplog.records) == 1
    cluster.write("one", config_map("a"), at=101)
    await cluster.clock.advance(10)
    await one.step()
    assert await cluster.maps() == {"a"}


async def test_a_disabled_file_is_taken_back(cluster: Cluster) -> None:
    one = cluster.host("one")
    cluster.write("one", config_map("a"), at=100)
    await one.step()
    assert await cluster.maps() == {"a"}
    await cluster.host("one", disable=["file"]).step()
    assert await cluster.maps() == set()
    with pytest.raises(ApiError):
        await cluster.client.get(ADDONS, "file", NAMESPACE)
