"""The supervisor's door: who gets what."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from remuda.apiserver.http.listener import Listener
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.certificates import names_in, new_key_pem, parse_certificate
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.lab.distro.cluster.etcd_member_removal import NODES
from remuda.lab.distro.cluster.supervisor import SERVICES, SupervisorHandler
from remuda.lab.distro.config import settings
from remuda.lab.distro.pki import authorities, certificates
from remuda.lab.distro.state import ServerState
from remuda.lab.distro.supervisor_client import NODE_IP, NODE_NAME, NODE_PASSWORD, PREFIX

SERVER, NODE = "the-password-of-servers", "the-password-of-nodes"
ENTROPY = Entropy(5)


class Knocking:
    def __init__(self, state: ServerState, session: aiohttp.ClientSession, url: str) -> None:
        self.state = state
        self._session = session
        self._url = url

    async def ask(
        self, path: str, user: str = "", password: str = "", method: str = "GET", body: bytes = b"", **headers: str
    ) -> tuple[int, str]:
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        async with self._session.request(method, f"{self._url}{path}", data=body or None, headers=headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Knocking]:
    told = settings.of({"node-name": "n", "node-ip": "127.0.0.1", "tls-san": ["api.example.com", "10.9.9.9"]}, tmp_path)
    made = authorities.ensure(told.paths, SYSTEM_CLOCK, ENTROPY)
    state = ServerState(told, made, SERVER, NODE, SYSTEM_CLOCK, ENTROPY)
    listener = Listener(SupervisorHandler(state), None)
    await listener.open("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        yield Knocking(state, session, f"http://127.0.0.1:{listener.port}")
    await listener.close(0.0)


async def test_the_ca_is_public_and_nothing_else(door: Knocking) -> None:
    assert (await door.ask("/cacerts"))[1].encode() == door.state.authorities.bundle("server-ca")
    assert await door.ask("/ping") == (200, "pong")
    assert (await door.ask("/readyz"))[0] == 503
    door.state.ready = True
    assert (await door.ask("/readyz"))[0] == 200
    assert (await door.ask("/nothing"))[0] == 404
    for path in ("/server-bootstrap", "/apiservers", "/config"):
        assert (await door.ask(f"{PREFIX}{path}"))[0] == 401
    assert (await door.ask(f"{PREFIX}/etcd/members", method="POST", body=b"{}"))[0] == 401


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [
        ("server", SERVER, 200),
        ("server", NODE, 401),
        ("server", "", 401),
        ("node", NODE, 403),
        ("node", SERVER, 401),
        ("somebody", "", 401),
        ("somebody", SERVER, 401),
    ],
)
async def test_only_servers_get_the_authorities(door: Knocking, user: str, password: str, status: int) -> None:
    found, text = await door.ask(f"{PREFIX}/server-bootstrap", user, password)
    assert found == status
    assert ("tls/server-ca.key" in text) is (status == 200)


async def test_what_is_not_ready_says_so(door: Knocking) -> None:
    assert (await door.ask("/db/info"))[0] == 503
    assert (await door.ask(f"{PREFIX}/apiservers", "node", NODE))[0] == 503
    member = b'{"name": "m", "peerURL": "https://127.0.0.1:2380"}'
    assert (await door.ask(f"{PREFIX}/etcd/members", "server", SERVER, "POST", member))[0] == 503
    for wrong in (b"", b"[]", b"{}", b'{"name": "m", "peerURL": "http://x"}'):
        assert (await door.ask(f"{PREFIX}/etcd/members", "server", SERVER, "POST", wrong))[0] == 400


async def test_a_node_gets_its_certificate_as_long_as_it_is_the_same_host(door: Knocking, tmp_path: Path) -> None:
    server = await Server.open(Config(data_dir=None, default_roles=False))
    door.state.api = InProcessClient(server, manager="remuda")
    key = new_key_pem(ENTROPY)
    request = certificates.signing_request(key, tmp_path / "key")

    async def asked(path: str = "client-kubelet.crt", body: bytes = request, **headers: str) -> tuple[int, str]:
        said = {NODE_NAME: "worker", NODE_PASSWORD: "mine", NODE_IP: "127.7.7.7", **headers}
        return await door.ask(f"{PREFIX}/{path}", "node", NODE, "POST", body, **said)

    try:
        for path in ("client-kubelet.crt", "serving-kubelet.crt"):
            status, text = await asked(path)
            assert status == 200 and "BEGIN CERTIFICATE" in text
        status, text = await asked(**{NODE_PASSWORD: "another"})
        assert status == 403 and "another host is the node worker" in text
        assert (await asked(**{NODE_PASSWORD: "another", NODE_NAME: "other"}))[0] == 200
        assert (await asked(body=b"nonsense"))[0] == 400
        assert (await asked(body=b"x" * 100_000))[0] == 413
        assert (await asked("serving-kubelet.crt", **{NODE_IP: "not-an-address"}))[0] == 400
        for wrong in ({NODE_NAME: "../x"}, {NODE_NAME: ""}, {NODE_PASSWORD: ""}):
            assert (await asked(**wrong))[0] == 400
        # Whoever has such a certificate could be the API for others.
        for name, address in (("kubernetes", "127.7.7.7"), ("api.example.com", "127.7.7.7"), ("worker", "10.9.9.9")):
            status, text = await asked("serving-kubelet.crt", **{NODE_NAME: name, NODE_IP: address, NODE_PASSWORD: "mine"})
            assert status == 403 and "the API is known by that" in text
    finally:
        await server.close()


async def test_a_worker_gets_no_certificate_for_the_api_a_service_or_another_node(door: Knocking, tmp_path: Path) -> None:
    """Whoever has one is that to all who trust the cluster's CA: it is the same for the API and for kubelets."""
    server = await Server.open(Config(data_dir=None, default_roles=False))
    door.state.api = api = InProcessClient(server, manager="remuda")
    request = certificates.signing_request(new_key_pem(ENTROPY), tmp_path / "key")

    async def asked(name: str, *addresses: str) -> tuple[int, str]:
        said = {NODE_NAME: name, NODE_PASSWORD: "mine", NODE_IP: ",".join(addresses)}
        return await door.ask(f"{PREFIX}/serving-kubelet.crt", "node", NODE, "POST", request, **said)

    def names(text: str) -> tuple[str, ...]:
        certificate = parse_certificate(text.encode())
        assert certificate is not None
        return names_in(certificate)

    addresses = [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "other.example.com"}]
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}, "status": {"addresses": addresses}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ports": [{"port": 443}], "externalIPs": ["192.0.2.9"]},
    }
    try:
        await api.create(NODES, other)
        made = await api.create(SERVICES, service, "default")
        for name, address in (
            ("worker", made["spec"]["clusterIP"]),
            ("worker", "10.96.0.1"),
            ("worker", "10.96.7.7"),
            ("worker", "192.0.2.9"),
            ("worker", "10.9.9.9"),
            ("localhost", "10.0.0.3"),
            ("api.localhost", "10.0.0.3"),
            ("kubernetes.default.svc", "10.0.0.3"),
            ("metrics-server.kube-system.svc", "10.0.0.3"),
            ("kube-dns.kube-system.svc.cluster.local", "10.0.0.3"),
        ):
            status, text = await asked(name, "10.0.0.3", address)
            assert status == 403 and "is known by that" in text, (name, address, text)
        for name, address in (("worker", "10.0.0.2"), ("other.example.com", "10.0.0.3")):
            status, text = await asked(name, address)
            assert status == 503 and "the Node other is known by that" in text
        for address in (
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.169.254",
            "fe80::1",
            "::ffff:10.0.0.2",
            "fe80::1%1",
        ):
            assert (await asked("worker", address))[0] == 400, address
        assert (await asked("worker", *(f"10.0.1.{number}" for number in range(17))))[0] == 400
        # Its own, and nothing besides.
        status, text = await asked("worker", "10.0.0.3", "fd00::3")
        assert status == 200 and set(names(text)) == {"worker", "10.0.0.3", "fd00::3", "127.0.0.1"}
        # Of its own Node it gets them again; and no node keeps another from an address that it asks from.
        worker = {"metadata": {"name": "worker"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.3"}]}}
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", **worker})
        assert (await asked("worker", "10.0.0.3"))[0] == 200
        liar = {"metadata": {"name": "liar"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", **liar})
        assert (await asked("worker", "127.0.0.1"))[0] == 200
    finally:
        await server.close()
