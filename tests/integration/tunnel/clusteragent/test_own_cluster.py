"""What an agent needs in its own cluster, made once, and what it tells about it; against a whole API server in memory."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError
from remuda.tunnel.clusteragent.own_cluster import ACCOUNTS, BINDINGS, ROLES, SECRETS, ClusterError, OwnCluster, address_of
from remuda.tunnel.clusteragent.server_trust import Trust
from remuda.tunnel.clusteragent.settings import Settings

from .gate import TOKEN, entered

SETTINGS = Settings("https://remuda.example.com", TOKEN, "ab" * 32)


async def test_a_process_makes_the_account_that_the_manifest_would(server: Server) -> None:
    found = await entered(server).introduction()
    assert found.address == "10.43.0.1:443"
    assert found.ca == b"the cluster's CA"
    client = InProcessClient(server)
    binding = await client.get(BINDINGS, "cattle-admin-binding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "cattle", "namespace": "cattle-system"}]
    assert (await client.get(ROLES, "cattle-admin"))["rules"][0] == {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert await entered(server).introduction() == found
    claims = json.loads(base64.urlsafe_b64decode(found.token.split(".")[1] + "=="))
    assert claims["sub"] == "system:serviceaccount:cattle-system:cattle"


async def test_what_is_told_to_the_server(server: Server) -> None:
    found = await entered(server).introduction()
    told = json.loads(base64.b64decode(found.parameters(["f" * 64])))
    assert told == {
        "cluster": {
            "address": "10.43.0.1:443",
            "token": found.token,
            "caCert": base64.b64encode(b"the cluster's CA").decode(),
        },
        "trusts": ["f" * 64],
    }
    assert found.token not in repr(found)


async def test_two_at_once_get_the_same(server: Server) -> None:
    first, second = await asyncio.gather(entered(server).introduction(), entered(server).introduction())
    assert first == second


async def test_a_kubeconfig_without_a_ca_is_helped_by_the_cluster(server: Server) -> None:
    found = await entered(server, target=KubeTarget("https://10.43.0.1")).introduction()
    assert found.ca.startswith(b"-----BEGIN CERTIFICATE-----")


async def test_a_pod_makes_nothing_but_the_token(server: Server) -> None:
    client = InProcessClient(server)
    with pytest.raises(ApiError, match="cattle-system"):
        await entered(server, prepared=True).introduction()
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cattle", "namespace": "cattle-system"}}
    await client.create(ACCOUNTS, account)
    assert (await entered(server, prepared=True).introduction()).token
    with pytest.raises(ApiError):
        await client.get(BINDINGS, "cattle-admin-binding")


async def test_another_token_after_the_secret_was_removed(server: Server) -> None:
    before = await entered(server).introduction()
    await InProcessClient(server).delete(SECRETS, "cattle-token", "cattle-system")
    after = await entered(server).introduction()
    assert after.token != before.token


async def test_a_secret_of_that_name_that_is_something_else(server: Server) -> None:
    client = InProcessClient(server)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cattle-token", "namespace": "cattle-system"}}
    await client.create(SECRETS, secret)
    with pytest.raises(ClusterError, match="is not one for tokens of cattle"):
        await entered(server).introduction()


async def test_the_wait_for_an_empty_token_secret_ends() -> None:
    alone = await Server.open(Config(None, default_roles=False))
    clock = VirtualClock()
    asking = asyncio.create_task(
        OwnCluster(InProcessClient(alone), KubeTarget("https://x"), clock, prepared=False).introduction()
    )
    for _ in range(4000):
        if asking.done():
            break
        await clock.advance(1)
        await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match="no token was put into Secret"):
        await asking
    await alone.close()


async def test_others_learn_about_the_server(server: Server) -> None:
    own = entered(server)
    await own.introduction()
    client = InProcessClient(server)
    for trust, valid in ((Trust(b"PEM"), "true"), (Trust(), "false")):
        await own.announce(SETTINGS, trust)
        secret = await client.get(SECRETS, "stv-aggregation", "cattle-system")
        data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        assert data.pop("ca.crt", None) == ("PEM" if trust.ca else None)
        assert data == {
            "CATTLE_SERVER": "https://remuda.example.com",
            "CATTLE_TOKEN": TOKEN,
            "CATTLE_CA_CHECKSUM": "ab" * 32,
            "CATTLE_CACERTS_VALID": valid,
            "url": "https://remuda.example.com/v3/connect",
            "token": f"stv-cluster-{TOKEN}",
        }


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("https://10.43.0.1:443", "10.43.0.1:443"),
        ("https://127.0.0.1:6443/", "127.0.0.1:6443"),
        ("https://api.example.com", "api.example.com:443"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443"),
    ],
)
def test_where_a_cluster_is(server: str, address: str) -> None:
    assert address_of(KubeTarget(server)) == address


@pytest.mark.parametrize(
    "target",
    [
        KubeTarget("http://x"),
        KubeTarget("https://x/k8s/clusters/c-1"),
        KubeTarget("https://x", tls_server_name="y"),
        KubeTarget("https://x", proxy_url="http://p:1"),
    ],
)
def test_what_cannot_be_introduced(target: KubeTarget) -> None:
    with pytest.raises(ClusterError):
        address_of(target)
