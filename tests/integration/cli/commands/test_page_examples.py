"""Every command of the pages about clusters' state is run, and prints what its page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as core
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import rfc3339
from remuda.kube.objects import labels_of, name_of
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.lab.sim.saved_snapshots import SavedSnapshot
from remuda.provisioning.well_known import CERTIFICATES, NODE_NAME
from tests.scenarios.provisioned import DEMO, FROM, build, change, ready
from tests.scenarios.test_restoring import add_map
from tests.scenarios.test_restoring_from_buckets import S3, add_credential

from .page_examples import Reader, examples, manifests
from .served_world import served


async def with_archive(world: ProvisioningWorld, kept: dict[str, SavedSnapshot]) -> None:
    """A bucket with the files of `n1`, and the credential for it in the cluster's settings."""
    await add_credential(world)
    for file, saved in kept.items():
        world.hosts.buckets.of("archive").upload("2026", file, saved, node="n1", cluster_id="", now=world.clock.time())
    await change(world, rkeConfig={"etcd": {"s3": S3}})
    await ready(world)


async def test_the_page_about_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with served(tmp_path) as found:
        world = found.world
        await world.want(DEMO, FROM)
        for number, roles in enumerate(("ec", "ec", "ec", "w"), 1):
            await world.host(DEMO, f"n{number}", roles)
        await ready(world)
        reader = Reader(found)
        kept: dict[str, SavedSnapshot] = {}
        for at, example in enumerate(examples("snapshots.md")):
            kept |= world.distribution(DEMO).snapshots.get("n1", {})
            if example.command.startswith("snapshot import demo ./"):
                await with_archive(world, kept)
                for file, saved in kept.items():
                    found.keep(saved, tmp_path / file)
            if at == 2:
                for name in ("one", "two"):
                    await add_map(world, name)
            await reader.does(example)


async def test_the_page_about_rotations(tmp_path: Path) -> None:
    async with served(tmp_path) as found:
        world = found.world
        await build(world, ["ec", "w"])
        # Simulated hosts have no certificates.
        await _reported(
            world,
            "h0",
            ("server/tls/client-admin.crt", "system:admin", "client", 28),
            ("server/tls/serving-kube-apiserver.crt", "kube-apiserver", "server", 28),
        )
        await _reported(world, "h1", ("agent/client-kubelet.crt", "system:node:w0", "client", 292))
        reader = Reader(found)
        for example in examples("cluster-rotation.md"):
            await reader.does(example)
        await ready(world)
        status = (await world.control_plane(DEMO))["status"]
        assert status["certificateRotationGeneration"] == 1 and status["rotateEncryptionKeysPhase"] == "Done"


async def _reported(world: ProvisioningWorld, host: str, *certificates: tuple[str, str, str, int]) -> None:
    """The Machine of a host says this of its certificates: file, subject, use, and the days that are left."""
    machine = next(each for each in await world.machines(DEMO) if labels_of(each)[NODE_NAME] == host)
    names, now = ("file", "subject", "use"), world.clock.time()
    said = [{**dict(zip(names, words, strict=True)), "notAfter": rfc3339(now + days * 86_400)} for *words, days in certificates]
    patch = {"metadata": {"annotations": {CERTIFICATES: json.dumps(said)}}}
    await world.client.patch(core.MACHINES, name_of(machine), patch, WORKSPACE)


@pytest.mark.parametrize("page", ["snapshots.md", "cluster-rotation.md"])
async def test_the_manifests_of_a_page_are_taken_as_they_are(tmp_path: Path, page: str) -> None:
    async with served(tmp_path) as found:
        await found.world.want(DEMO, FROM)
        # What a page names, its reader has.
        await found.world.client.create(SECRETS, {"metadata": {"name": "cc-s3", "namespace": "cattle-global-data"}})
        named = {"name": "demo-on-demand-n1-1795089600-local", "namespace": WORKSPACE}
        snapshot = {"apiVersion": rke.API_VERSION, "kind": "ETCDSnapshot", "metadata": named, "spec": {"clusterName": DEMO}}
        await found.world.client.create(rke.ETCD_SNAPSHOTS, snapshot)
        for manifest in manifests(page):
            wanted = await found.world.client.patch(provisioning.CLUSTERS, DEMO, manifest, WORKSPACE)
            assert _lacking(manifest, wanted) == []


def _lacking(said: Any, stored: Any, path: str = "") -> list[str]:
    if not isinstance(said, dict) or not isinstance(stored, dict):
        return [] if said == stored else [f"{path}: {stored}"]
    return [line for key, value in said.items() for line in _lacking(value, stored.get(key), f"{path}.{key}")]
