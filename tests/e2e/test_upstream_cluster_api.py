"""Controllers not written here: the upstream Cluster API manager can't tell Remuda from a real kube-apiserver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.api.harness import Endpoint, RemudaProcess, difference
from tests.real import need
from tests.real.cluster import RealCluster

from .upstream_capi import CLUSTER, Manager, Story, path

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Manager]]:
    need.programs("kubernetes", "etcd", "capi")
    directory = Path(tmp_path_factory.mktemp("capi"))
    remuda = RemudaProcess(directory / "data")
    with RealCluster(controllers=True, fsync=False) as real:
        remuda.start()
        theirs = Endpoint(real.url, Path(real.ca_pem), Path(real.admin_cert), Path(real.admin_key))
        found = {
            "remuda": Manager("remuda", remuda.endpoint, remuda.kubeconfig, directory),
            "kubernetes": Manager("kubernetes", theirs, Path(real.kubeconfig), directory),
        }
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(Manager.start, found.values()))
            yield found
        finally:
            for manager in found.values():
                manager.stop()
            remuda.stop()


def test_a_cluster_and_its_workers_reach_the_same_conditions(managers: dict[str, Manager]) -> None:
    stories = [Story(managers[name]) for name in ("remuda", "kubernetes")]
    old = path(CLUSTER, "v1beta1", "machinedeployments", "workers")

    def begin(story: Story) -> None:
        story.begin()
        story.manager.until("two provisioned machines", lambda: story.provisioned(2))

    def grow(story: Story) -> None:
        # A write through the older version goes through the conversion webhook both ways.
        story.call("PATCH", old, {"spec": {"replicas": 3}}, "application/merge-patch+json")
        story.manager.until("a third machine", lambda: story.provisioned(3))

    def end(story: Story) -> dict[str, Any]:
        found: dict[str, Any] = {}
        shown = story.call("GET", old)
        found["as v1beta1"] = {"apiVersion": shown["apiVersion"], "spec": shown["spec"]}
        refused = story.manager.endpoint.request(
            "PATCH",
            path(CLUSTER, "v1beta2", "machinedeployments", "workers"),
            b'{"spec":{"clusterName":"other"}}',
            {"Content-Type": "application/merge-patch+json"},
        )
        found["refused by the webhook"] = (refused.status, refused.json["message"])
        story.call("DELETE", path(CLUSTER, "v1beta2", "clusters", "c1"))
        story.manager.until(
            "end of everything",
            lambda: (
                not story.play_providers()
                and not story.items(CLUSTER, "v1beta2", "machines")
                and not story.items(CLUSTER, "v1beta2", "clusters")
            ),
        )
        left = story.items("infrastructure.test.io", "v1", "testmachines")
        found["left over"] = [obj["metadata"]["name"] for obj in left]
        return found

    for do in (begin, grow):
        with ThreadPoolExecutor() as pool:
            list(pool.map(do, stories))
        ours, theirs = _settled(stories)
        assert ours == theirs, difference(_plain(ours), _plain(theirs), "the upstream manager's work")
    with ThreadPoolExecutor() as pool:
        left, right = pool.map(end, stories)
    assert left == right, difference(_plain(left), _plain(right), "the upstream manager's work")
    assert "Traceback" not in (managers["remuda"].directory.parent / "data" / "serve.log").read_text()


def _settled(stories: list[Story], seconds: float = 120) -> list[dict[str, Any]]:
    """What both have come to. Where they differ one of them may only be late, as a manager is that waits for its turn."""
    until = time.monotonic() + seconds
    while True:
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(Story.settled, stories))
        if found[0] == found[1] or time.monotonic() > until:
            return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value
