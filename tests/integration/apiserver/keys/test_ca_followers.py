"""Who takes over a new CA by itself: hosts, cluster agents with an old checksum, the config maps of namespaces, the listener."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from remuda import kcm
from remuda.agent.ca_trust import CaFollower
from remuda.agent.clock import Clock
from remuda.agent.errors import AgentError
from remuda.agent.plan_secret import KubeApi
from remuda.apiserver.http.listener import server_context
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.gateway.server.serving_certificate import Files, ServingCertificate, ca_checksum
from remuda.kcm.serviceaccounts import RootCa
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.objects import GroupVersionResource
from remuda.tunnel.clusteragent.server_trust import establish
from remuda.tunnel.clusteragent.settings import Settings
from tests.integration.agent.builders import server as web_server
from tests.integration.agent.fakeapi import KUBECONFIG
from tests.integration.tunnel.clusteragent.gate import TOKEN, Gate
from tests.waiting import until

CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
SECRETS = GroupVersionResource("", "v1", "secrets")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pki, Pki]:
    made = [Pki.ensure(tmp_path_factory.mktemp("pki"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy()) for _ in range(2)]
    return made[0], made[1]


# --- hosts ----------------------------------------------------------------------------------------------------------------------


class _Settings:
    """The setting `cacerts`, as a server shows it."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"value": self.value} if request.path == "/v3/settings/cacerts" else {}).encode()


def _connection(path: Path, url: str, ca: bytes) -> KubeApi:
    field = f"    certificate-authority-data: {base64.b64encode(ca).decode()}\n"
    config = KUBECONFIG.format(url=url, ca=field)
    path.write_text(json.dumps({"kubeConfig": config, "namespace": "ns", "secretName": "plan"}))
    path.chmod(0o600)
    return KubeApi(config, strict=True)


def test_a_host_keeps_the_ca_that_its_server_hands_out(tmp_path: Path, authorities: tuple[Pki, Pki]) -> None:
    old, new = authorities
    path = tmp_path / "connection.json"
    both = old.ca_pem.decode() + new.ca_pem.decode()
    shown = _Settings(old.ca_pem.decode())
    with web_server(shown, server_context(old.serving_certificate, old.serving_key, None)) as url:
        api = _connection(path, url, old.ca_pem)
        following = CaFollower(api, str(path), Clock(), threading.Event())
        assert not following.refresh()
        shown.value = both
        assert following.refresh()
        assert not following.refresh()
        shown.value = "nonsense, BEGIN CERTIFICATE"
        with pytest.raises(AgentError):
            following.refresh()
    # The next agent on this host, and the one that runs, believe a server with a certificate of the new one.
    written = json.loads(path.read_text())["kubeConfig"]
    assert base64.b64encode(both.encode()).decode() in written
    assert path.stat().st_mode & 0o777 == 0o600
    with web_server(shown, server_context(new.serving_certificate, new.serving_key, None)) as url:
        again = KubeApi(KUBECONFIG.format(url=url, ca=""), strict=False)
        again.believe(api.ca)
        assert again.call("GET", "/version") == {}


def test_a_host_believes_nothing_that_it_could_not_keep(tmp_path: Path, authorities: tuple[Pki, Pki]) -> None:
    old, new = authorities
    path = tmp_path / "connection.json"
    with web_server(_Settings(new.ca_pem.decode()), server_context(old.serving_certificate, old.serving_key, None)) as url:
        api = _connection(path, url, old.ca_pem)
        path.write_text("{}")
        assert not CaFollower(api, str(path), Clock(), threading.Event()).refresh()
        assert api.ca.encode() == old.ca_pem
        assert path.read_text() == "{}"


# --- cluster agents -------------------------------------------------------------------------------------------------------------


async def test_an_agent_with_the_checksum_of_the_old_ca_follows_what_that_one_vouches_for(authorities: tuple[Pki, Pki]) -> None:
    old, new = authorities
    gate = Gate(old)
    await gate.open()
    try:
        gate.ca = old.ca_pem.decode() + new.ca_pem.decode()
        found = await establish(Settings(gate.url, TOKEN, ca_checksum(old.ca_pem.decode()), True), SYSTEM_CLOCK, "")
        assert found.ca.decode() == gate.ca
        found = await establish(Settings(gate.url, TOKEN, ca_checksum(gate.ca), True), SYSTEM_CLOCK, "")
        assert found.ca.decode() == gate.ca
    finally:
        await gate.close()


# --- namespaces -----------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def publishing(root_ca: RootCa) -> AsyncIterator[InProcessClient]:
    server = await Server.open(Config(data_dir=None))
    client = InProcessClient(server)
    found = kcm.controllers(kcm.Parts(client, SYSTEM_CLOCK, Rng(1), root_ca=root_ca, tokens=server.issuer))
    work = asyncio.create_task(kcm.run_all(found))
    try:
        yield client
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await server.close()


async def test_namespaces_and_token_secrets_get_another_ca_at_once() -> None:
    root_ca = RootCa("the old one")
    async with publishing(root_ca) as client:
        secret = {"metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}}}
        await _until(client, "serviceaccounts", "default", lambda obj: bool(obj))
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", **secret}
        await client.create(SECRETS, body, "default")
        for text in ("the old one", "both"):
            root_ca.use(text)
            await _until(client, "configmaps", "kube-root-ca.crt", lambda obj, text=text: obj["data"]["ca.crt"] == text)
            encoded = base64.b64encode(text.encode()).decode()
            await _until(client, "secrets", "t", lambda obj, encoded=encoded: (obj.get("data") or {}).get("ca.crt") == encoded)


async def _until(client: InProcessClient, resource: str, name: str, true: object) -> None:
    assert callable(true)

    async def so() -> bool:
        return bool(true(await client.get(GroupVersionResource("", "v1", resource), name, "default")))

    await until(so)


# --- the listener ---------------------------------------------------------------------------------------------------------------


def test_a_given_certificate_stays_while_another_client_ca_is_believed(tmp_path: Path, authorities: tuple[Pki, Pki]) -> None:
    old, new = authorities
    believed = tmp_path / "ca.crt"
    believed.write_bytes(old.ca_pem)
    certificate = ServingCertificate(Files(old.serving_certificate, old.serving_key), SYSTEM_CLOCK, client_ca=believed)
    assert len(certificate.context.get_ca_certs()) == 1
    believed.write_bytes(old.ca_pem + new.ca_pem)
    # What is served is the same, who is believed is not.
    assert not certificate.look()
    assert len(certificate.context.get_ca_certs()) == 2
    assert certificate.context.verify_mode is ssl.CERT_OPTIONAL
