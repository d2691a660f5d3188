"""A server and its keys: from its own directory, from one that is shared, and bound to the place where things are stored."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from remuda.apiserver import startup
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.encryption import Envelope, Tampered
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.apiserver.storage.memory import MemoryStore
from remuda.kube.certificates import PkiError, names_in, parse_certificate
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.objects import GroupVersionResource

SECRETS = GroupVersionResource("", "v1", "secrets")


def secret(name: str) -> dict[str, object]:
    data = {"password": base64.b64encode(b"hunter2").decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_a_server_alone_can_have_its_keys_in_a_directory_of_their_own(tmp_path: Path) -> None:
    config = Config(tmp_path / "one", pki_dir=tmp_path / "pki", names=("remuda.example.org",), default_roles=False)
    server = await Server.open(config)
    assert server.pki is not None
    certificate = parse_certificate(server.pki.serving_certificate.read_bytes())
    assert certificate is not None
    assert "remuda.example.org" in names_in(certificate)
    assert server.pki.ca_pem == (tmp_path / "pki" / "ca.crt").read_bytes()
    await InProcessClient(server).create(SECRETS, secret("s"))
    await server.close()
    assert not (tmp_path / "one" / "encryption.yaml").exists()
    assert not (tmp_path / "one" / "pki" / "ca.key").exists()
    # Another server with the same keys.
    other = await Server.open(Config(tmp_path / "two", pki_dir=tmp_path / "pki", default_roles=False))
    assert other.pki is not None
    assert other.pki.ca_pem == server.pki.ca_pem
    assert other.pki.service_account_pem == server.pki.service_account_pem
    await other.close()
    # And the first one again, which reads what it had encrypted.
    again = await Server.open(config)
    found = await InProcessClient(again).get(SECRETS, "s", "default")
    assert base64.b64decode(found["data"]["password"]) == b"hunter2"
    await again.close()


async def test_a_store_that_is_shared_needs_keys_that_are(tmp_path: Path) -> None:
    config = Config(tmp_path, etcd=EtcdConfig(("http://127.0.0.1:1",)))
    with pytest.raises(PkiError, match="must have the same keys"):
        await startup.open_keys(config, MemoryStore(VirtualClock()))


async def test_a_value_is_bound_to_the_whole_key_as_etcd_has_it() -> None:
    """Which is what kube-apiserver does with a prefix."""
    store = MemoryStore(VirtualClock())
    envelope = Envelope([("key1", bytes(32))], Entropy())
    config = Config(None, etcd=EtcdConfig(("http://127.0.0.1:1",), prefix="/staging"), default_roles=False)
    server = Server(config, store, envelope, None)
    await server._start()
    await InProcessClient(server).create(SECRETS, secret("s"))
    kept = await store.get("/registry/secrets/default/s")
    assert kept is not None
    assert b"hunter2" not in envelope.open("/staging/registry/secrets/default/s", kept.value)[0]
    assert b"password" in envelope.open("/staging/registry/secrets/default/s", kept.value)[0]
    with pytest.raises(Tampered):
        envelope.open("/registry/secrets/default/s", kept.value)
    await server.close()


@pytest.mark.parametrize(
    ("host", "url"), [("0.0.0.0", "https://127.0.0.1:"), ("::", "https://[::1]:"), ("", "https://127.0.0.1:")]
)
async def test_the_kubeconfig_of_a_server_on_every_address_names_one(tmp_path: Path, host: str, url: str) -> None:
    server = await Server.open(Config(tmp_path, host=host, port=0, default_roles=False))
    try:
        await server.listen()
    except OSError:
        pytest.skip("there is no IPv6 here")
    else:
        assert server.url.startswith(url)
        assert server.url in server.kubeconfig_path.read_text()
    finally:
        await server.close()
