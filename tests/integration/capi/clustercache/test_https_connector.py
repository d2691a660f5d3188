"""Workload clusters over HTTPS: a kubeconfig holds everything inline, and a real server is connected to with it."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from remuda import kcm
from remuda.api import crds
from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.capi.clustercache import CacheOptions, ClusterCache, HttpsConnector
from remuda.capi.clustercache.cache import workload_target
from remuda.capi.workload_clusters import PROVIDER_ID
from remuda.client.kubeconfig import ConfigError
from remuda.kube.builtin_resources import CRDS, NAMESPACES, NODES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import GroupVersionResource, Key
from remuda.runtime import Manager
from tests.unit.capi.memory_clusters import NAMESPACE, core_object
from tests.waiting import until

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")


def config(cluster: Obj | None = None, user: Obj | None = None) -> bytes:
    return yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c1", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c1", "user": "u"}}],
            "current-context": "x",
        }
    ).encode()


def test_a_kubeconfig_with_everything_inline_is_good() -> None:
    ca = base64.b64encode(b"pem").decode()
    target = workload_target(config({"certificate-authority-data": ca}, {"token": "t"}))
    assert (target.server, target.ca, target.token) == ("https://127.0.0.1:1", b"pem", "t")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "YAML"),
        (b"[]", "is not a kubeconfig"),
        (b"", "no context"),
        (config(user={"exec": {"command": "evil"}}), "ExecProvider is not supported in ClusterCache"),
        (config(user={"auth-provider": {"name": "oidc"}}), "AuthProvider is not supported in ClusterCache"),
        (config(user={"tokenFile": "/etc/passwd"}), "names a file"),
        (config(user={"client-certificate": "/a", "client-key": "/b"}), "names a file"),
        (config(cluster={"certificate-authority": "/a"}), "names a file"),
    ],
)
async def test_a_kubeconfig_that_runs_or_reads_things_here_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        workload_target(content)
    with pytest.raises(ValueError, match="the kubeconfig of herd/c1 can't be used"):
        await HttpsConnector().connect(Key("herd", "c1"), content)


async def test_a_real_server_is_connected_to_lost_and_found_again(tmp_path: Path) -> None:
    pki = Pki.ensure(tmp_path / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy(1))
    workload = await Server.open(Config(data_dir=None, pki=pki, port=0))
    await workload.listen()
    management = await Server.open(Config(data_dir=None))
    client = InProcessClient(management, manager="kubectl")
    keeper = asyncio.create_task(kcm.run(InProcessClient(management), SYSTEM_CLOCK, Rng(1)))
    manager = Manager(InProcessClient(management, manager="manager"), SYSTEM_CLOCK, Rng(1))
    options = CacheOptions(probe=0.1, probe_timeout=2, failures=2, first_retry=0.05, retry=0.2)
    cache = ClusterCache(manager, HttpsConnector(seconds=5, policy=lambda: Policy.of("allow:127.0.0.0/8")), options)
    manager.beside(cache.run)
    running: asyncio.Task[None] | None = None
    key = Key(NAMESPACE, "c1")
    try:
        await prepare(client, yamlio.dumps(pki.kubeconfig(workload.url)))
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"providerID": "test:///n1"}}
        await InProcessClient(workload).create(NODES, node)
        running = asyncio.create_task(manager.run())
        await until(lambda: cache.get(key) is not None)
        found = cache.get(key)
        assert found is not None
        assert [node["metadata"]["name"] for node in found.nodes.indexed(PROVIDER_ID, "test:///n1")] == ["n1"]
        # Somebody whom the server does not know: noticed at the next probe, and put right by the next secret.
        await put_kubeconfig(client, yamlio.dumps(pki.kubeconfig("https://127.0.0.1:1")))
        await until(lambda: cache.get(key) is None)
        await put_kubeconfig(client, yamlio.dumps(pki.kubeconfig(workload.url)))
        await until(lambda: cache.get(key) is not None)
        await workload.close()
        await until(lambda: cache.get(key) is None)
    finally:
        for task in (running, keeper):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await management.close()


async def prepare(client: InProcessClient, kubeconfig: str) -> None:
    for crd in crds():
        await client.create(CRDS, crd)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    await put_kubeconfig(client, kubeconfig)
    for _ in range(100):
        try:
            await client.create(CLUSTERS, core_object("Cluster", "c1", {"paused": False}), NAMESPACE)
            break
        except ApiError:
            await SYSTEM_CLOCK.sleep(0.05)
    patch = {"status": {"initialization": {"infrastructureProvisioned": True}}}
    await client.patch(CLUSTERS, "c1", patch, NAMESPACE, subresource="status")


async def put_kubeconfig(client: InProcessClient, kubeconfig: str) -> None:
    meta = {"name": "c1-kubeconfig", "namespace": NAMESPACE, "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}
    data = {"value": base64.b64encode(kubeconfig.encode()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
    await client.apply(SECRETS, secret, field_manager="test", force=True)
