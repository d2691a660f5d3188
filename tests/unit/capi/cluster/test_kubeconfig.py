"""The kubeconfig secret that is made for a Cluster without a control plane object."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from remuda.apiserver.keys.pki import Pki
from remuda.capi.cluster import Clusters
from remuda.client.kubeconfig import parse, select
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.objects import GroupVersionResource
from tests.unit.capi.memory_clusters import NAMESPACE, World, world

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Obj:
    pki = Pki.ensure(tmp_path_factory.mktemp("pki"), (), VirtualClock(), Entropy(1))
    return {"tls.crt": pki.ca_pem, "tls.key": pki.ca_key.read_bytes()}


def ca_secret(data: Obj, name: str = "c1") -> Obj:
    meta = {"name": f"{name}-ca", "namespace": NAMESPACE, "labels": {"cluster.x-k8s.io/cluster-name": name}}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "cluster.x-k8s.io/secret", "data": encoded}


async def standing(w: World, *, control_plane: bool = False) -> None:
    await w.cluster(control_plane=control_plane)
    await w.provision_cluster("c1")
    await w.settle(2)


async def test_it_is_made_and_signed_by_the_clusters_authority(authority: Obj) -> None:
    async with world(Clusters) as w:
        await w.create(SECRETS, ca_secret(authority))
        await standing(w)
        secret = await w.get(SECRETS, "c1-kubeconfig")
        assert secret["type"] == "cluster.x-k8s.io/secret"
        assert secret["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "c1"}
        assert [(owner["kind"], owner["name"]) for owner in secret["metadata"]["ownerReferences"]] == [("Cluster", "c1")]
        content = base64.b64decode(secret["data"]["value"])
        config = parse(content, Path("kubeconfig"))
        assert (list(config["clusters"]), list(config["users"]), list(config["contexts"])) == (
            ["c1"],
            ["c1-admin"],
            ["c1-admin@c1"],
        )
        target = select(config)
        assert target.server == "https://127.0.0.1:6443"
        assert target.ca == authority["tls.crt"]
        certificate = x509.load_pem_x509_certificate(target.client_certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority["tls.crt"]))
        assert certificate.subject.rfc4514_string() == "CN=kubernetes-admin,O=system:masters"


async def test_an_authority_that_comes_later_is_waited_for(authority: Obj) -> None:
    async with world(Clusters) as w:
        await standing(w)
        assert await w.find(SECRETS, "c1-kubeconfig") is None
        await w.create(SECRETS, ca_secret(authority))
        await w.settle(2)
        assert await w.find(SECRETS, "c1-kubeconfig") is not None


async def test_one_that_is_there_is_never_touched(authority: Obj) -> None:
    async with world(Clusters) as w:
        await w.create(SECRETS, ca_secret(authority))
        own = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c1-kubeconfig", "namespace": NAMESPACE}}
        await w.create(SECRETS, {**own, "data": {"value": base64.b64encode(b"mine").decode()}})
        await standing(w)
        assert base64.b64decode((await w.get(SECRETS, "c1-kubeconfig"))["data"]["value"]) == b"mine"


async def test_one_that_is_deleted_is_made_again(authority: Obj) -> None:
    async with world(Clusters) as w:
        await w.create(SECRETS, ca_secret(authority))
        await standing(w)
        await w.delete(SECRETS, "c1-kubeconfig")
        await w.settle(2)
        assert await w.find(SECRETS, "c1-kubeconfig") is not None


async def test_a_control_plane_object_makes_its_own(authority: Obj) -> None:
    async with world(Clusters) as w:
        await w.create(SECRETS, ca_secret(authority))
        await standing(w, control_plane=True)
        assert await w.find(SECRETS, "c1-kubeconfig") is None


async def test_without_an_endpoint_there_is_nothing_to_name(authority: Obj) -> None:
    async with world(Clusters) as w:
        await w.create(SECRETS, ca_secret(authority))
        await w.cluster(control_plane=False)
        await w.settle(2)
        assert await w.find(SECRETS, "c1-kubeconfig") is None


async def test_an_authority_that_cannot_sign_stops_nothing_else(authority: Obj) -> None:
    key = rsa.generate_private_key(65537, 2048)
    other = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for data in ({"tls.crt": b"nonsense"}, {**authority, "tls.key": b"nonsense"}, {**authority, "tls.key": other}):
        async with world(Clusters) as w:
            await w.create(SECRETS, ca_secret(data))
            await standing(w)
            assert await w.find(SECRETS, "c1-kubeconfig") is None
            working = w.manager.working("cluster")
            assert working is not None
            assert [wait.code.value for result in working.waits.values() for wait in result.waits] == ["Malformed"]
