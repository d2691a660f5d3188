"""Clusters behind tunnels: reached when their agent is there and enough is known, anew when that changes, and not otherwise."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from remuda.access.downstreams import Downstreams
from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import CLUSTERS
from remuda.apiserver.keys.pki import Pki
from remuda.capi.clustercache import HttpsConnector
from remuda.capi.workload_clusters import Losable
from remuda.client.connection import Unreachable
from remuda.client.interface import Client
from remuda.gateway.proxy.cluster_connector import DownstreamConnector
from remuda.gateway.proxy.tunnel_downstreams import SECRETS, only_credential
from remuda.gateway.server.credentials import Presented
from remuda.gateway.server.routing import Caller
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError, OutOfReach, unauthorized
from remuda.kube.objects import Key
from tests.waiting import until

from .proxied_cluster import CLUSTER, TOKENS, World, agent_token, secret, world


async def test_a_connected_cluster_is_reached_as_its_administrator(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        downstreams: Downstreams = found.downstreams
        assert downstreams.is_connected(CLUSTER) and downstreams.is_connected("local")
        below = downstreams.get(CLUSTER)
        assert below is not None
        await below.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "herd"}})
        assert await found.below.get(NAMESPACES, "herd")
        local = downstreams.get("local")
        assert local is not None and local.client is found.management
        assert downstreams.get("c-unknown") is None


async def test_others_are_told_of_clusters_that_come_and_go(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        told: list[tuple[str, bool]] = []
        stop = found.downstreams.on_change(lambda name: told.append((name, found.downstreams.is_connected(name))))
        await found.leave()
        await until(lambda: told and told[-1] == (CLUSTER, False))
        assert found.downstreams.get(CLUSTER) is None
        await found.join()
        await until(lambda: told[-1] == (CLUSTER, True))
        await found.join("stv-cluster-" + CLUSTER)
        count = len(told)
        stop()
        await found.leave()
        assert len(told) == count


async def test_a_kept_client_says_that_the_cluster_is_gone(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        below = found.downstreams.get(CLUSTER)
        assert below is not None
        await below.client.raw("GET", "/version")
        await found.leave()
        with pytest.raises(Unreachable):
            await below.client.raw("GET", "/version")
        await found.join()
        again = found.downstreams.get(CLUSTER)
        assert again is not None and again is not below
        await again.client.raw("GET", "/version")


async def test_a_new_token_is_used_and_the_old_one_no_more(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        first = found.downstreams.reach(CLUSTER)
        assert first is not None
        token = await agent_token(found.below)
        await found.management.create(SECRETS, secret("second", token), "cattle-global-data")
        await found.cluster_status(serviceAccountTokenSecret="second")
        await until(lambda: found.downstreams.reach(CLUSTER) not in (None, first))
        second = found.downstreams.reach(CLUSTER)
        assert second is not None
        await second.client.raw("GET", "/api")
        await found.management.patch(SECRETS, "second", secret("second", "wrong"), "cattle-global-data")

        async def refused() -> bool:
            try:
                await second.client.raw("GET", "/api")
            except ApiError as error:
                return error.code == 401
            return False

        await until(refused, "the end of the old token")


async def test_another_ca_or_endpoint_is_another_cluster_to_tls(tmp_path: Path) -> None:
    other = Pki.ensure(tmp_path / "other", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    async with world(tmp_path) as found:
        first = found.downstreams.reach(CLUSTER)
        await found.cluster_status(caCert=base64.b64encode(other.ca_pem).decode())
        await until(lambda: found.downstreams.reach(CLUSTER) is not first)
        below = found.downstreams.get(CLUSTER)
        assert below is not None
        with pytest.raises(Unreachable, match="certificate"):
            await below.client.raw("GET", "/version")
        for broken in (
            {"caCert": "%%%"},
            {"caCert": "YQ=="},
            {"apiEndpoint": "http://plain:1"},
            {"apiEndpoint": "https://h:1/path"},
        ):
            await found.cluster_status(**broken)
            await until(lambda: found.downstreams.get(CLUSTER) is None)
            await found.cluster_status(apiEndpoint=found.endpoint, caCert=base64.b64encode(found.pki.ca_pem).decode())
            await found.known()


async def test_a_cluster_that_is_deleted_is_not_reached_any_more(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.management.delete(CLUSTERS, CLUSTER)
        await until(lambda: found.downstreams.get(CLUSTER) is None)
        assert found.services.tunnels.has_session(CLUSTER)


def test_of_other_secrets_nothing_is_kept() -> None:
    cloud = {
        "metadata": {"name": "cc-1", "namespace": "cattle-global-data"},
        "data": {"amazonec2credentialConfig-secretKey": "x"},
    }
    assert only_credential(cloud) == {"metadata": {"name": "cc-1", "namespace": "cattle-global-data"}}


# --- Cluster API's way --------------------------------------------------------------------------------------------------


def _kubeconfig(server: str, token: str) -> bytes:
    return yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": {"server": server}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "default",
        }
    ).encode()


def _connector(found: World) -> DownstreamConnector:
    async def identify(shown: Presented, cluster: str) -> Caller:
        assert cluster == CLUSTER
        user = TOKENS.get(shown.text)
        if user is None:
            raise unauthorized()
        return Caller(user, shown)

    setting = {"metadata": {"name": "server-url"}, "value": "https://remuda.example"}
    found.services.settings = lambda: Settings([setting], {})
    return DownstreamConnector(found.services, found.downstreams, found.impersonation, identify, HttpsConnector(SYSTEM_CLOCK))


async def test_a_kubeconfig_of_ours_is_reached_in_process_as_its_user(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        connector = _connector(found)
        server = f"https://remuda.example/k8s/clusters/{CLUSTER}"
        client: Client = await connector.connect(Key("herd", "c1"), _kubeconfig(server, "token-a:admin"))
        assert await client.list(NAMESPACES)
        await client.close()
        member = await connector.connect(Key("herd", "c1"), _kubeconfig(server, "token-m:member"))
        with pytest.raises(ApiError, match='User "u-member" cannot create'):
            await member.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
        await member.close()


async def test_what_is_not_known_of_a_user_is_not_said_to_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may take it on: an account of our own has no name to log in with."""
    nameless = replace(TOKENS["token-a:admin"], extra={**TOKENS["token-a:admin"].extra, "username": [""]})
    monkeypatch.setitem(TOKENS, "token-a:admin", nameless)
    async with world(tmp_path) as found:
        server = f"https://remuda.example/k8s/clusters/{CLUSTER}"
        client: Client = await _connector(found).connect(Key("herd", "c1"), _kubeconfig(server, "token-a:admin"))
        assert await client.list(NAMESPACES)
        await client.close()


@pytest.mark.parametrize(("token", "code"), [("token-s:stranger", 403), ("token-x:guess", 401), ("eyJhbGciOi", 401)])
async def test_a_kubeconfig_opens_no_more_than_its_token_does(tmp_path: Path, token: str, code: int) -> None:
    async with world(tmp_path) as found:
        server = f"https://remuda.example/k8s/clusters/{CLUSTER}"
        with pytest.raises(ApiError) as refusal:
            await _connector(found).connect(Key("herd", "c1"), _kubeconfig(server, token))
        assert refusal.value.code == code


async def test_a_kubeconfig_of_another_server_is_not_ours(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        other = _kubeconfig(f"https://elsewhere.example/k8s/clusters/{CLUSTER}", "token-a:admin")
        client = await _connector(found).connect(Key("herd", "c1"), other)
        assert client.target.server.startswith("https://elsewhere.example")  # type: ignore[attr-defined]
        await client.close()


async def test_a_cluster_whose_agent_is_gone_is_said_to_be(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.leave()
        config = _kubeconfig(f"https://remuda.example/k8s/clusters/{CLUSTER}", "token-a:admin")
        connector, told = _connector(found), []
        with pytest.raises(OutOfReach, match="cluster agent disconnected") as gone:
            await connector.connect(Key("herd", "c1"), config)
        stop = gone.value.watch(lambda: told.append(found.downstreams.reach(CLUSTER)))
        assert not told
        await found.join()
        await until(lambda: bool(told))
        assert None not in told
        stop()
        before = len(told)
        await found.leave()
        await found.join()
        assert len(told) == before


async def test_who_holds_a_way_is_told_when_it_is_the_way_no_more(tmp_path: Path) -> None:
    """Because the agent has gone, or because it is elsewhere and tells of another address: not by waiting for answers."""
    config = _kubeconfig(f"https://remuda.example/k8s/clusters/{CLUSTER}", "token-a:admin")
    async with world(tmp_path) as found:
        connector, told = _connector(found), []
        first = await connector.connect(Key("herd", "c1"), config)
        assert isinstance(first, Losable)
        first.on_lost(lambda: told.append("first"))
        first.on_lost(lambda: told.append("nobody any more"))()
        await found.leave()
        await until(lambda: told == ["first"])
        first.on_lost(lambda: told.append("at once"))()
        assert told == ["first", "at once"]
        await found.join()
        second = await connector.connect(Key("herd", "c1"), config)
        assert isinstance(second, Losable)
        stop = second.on_lost(lambda: told.append("second"))
        await found.cluster_status(apiEndpoint="https://127.0.0.1:1")
        await until(lambda: told == ["first", "at once", "second"])
        stop()
        for client in (first, second):
            await client.close()
