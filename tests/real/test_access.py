"""Tokens and roles are the real server's: each side accepts what the other one made, and both start with the same roles."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.apiserver.auth.authenticator import Chain, Credentials
from remuda.apiserver.auth.service_accounts import ServiceAccountAuthenticator
from remuda.apiserver.auth.token_issuer import TokenIssuer
from remuda.apiserver.auth.token_keys import TokenKeys, openid_configuration, peek
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from tests.real import describe_roles, need
from tests.real.cluster import HOST, ISSUER, RealCluster
from tests.unit.kube.authorization.stored import Stored

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Json = dict[str, Any]

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
BOUND = [
    {},
    {"audiences": [ISSUER, "vault"], "expirationSeconds": 601},
    {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}},
    {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}, "expirationSeconds": 3607},
    {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "n"}},
    {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "legacy"}},
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as running:
        _created(running, "/api/v1/nodes", {"metadata": {"name": "n"}})
        pod = {"serviceAccountName": "default", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        _created(running, "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": pod})
        annotations = {"kubernetes.io/service-account.name": "default"}
        _created(
            running,
            "/api/v1/namespaces/default/secrets",
            {"metadata": {"name": "legacy", "annotations": annotations}, "type": "kubernetes.io/service-account-token"},
        )
        running.kubectl("wait", "--for=jsonpath={.data.token}", "secret/legacy", "--timeout=240s")
        yield running


def _created(cluster: RealCluster, path: str, body: Json) -> Json:
    status, found = cluster.request("POST", path, body)
    assert status == 201, found
    assert isinstance(found, dict)
    return found


class Ours:
    """Our side of the same cluster: its key and a copy of its objects."""

    def __init__(self, cluster: RealCluster) -> None:
        self.stored = Stored()
        for path in (
            ACCOUNT,
            "/api/v1/namespaces/default/pods/p",
            "/api/v1/nodes/n",
            "/api/v1/namespaces/default/secrets/legacy",
        ):
            status, found = cluster.request("GET", path)
            assert status == 200, found
            self.stored.put(found)
        self.keys = TokenKeys(cluster.service_account_key.read_bytes())
        self.issuer = TokenIssuer(self.keys, self.stored, SYSTEM_CLOCK, Entropy(), ISSUER, [ISSUER])
        self.chain = Chain([ServiceAccountAuthenticator(self.keys, self.stored, SYSTEM_CLOCK, [ISSUER], [ISSUER])], [ISSUER])

    async def who(self, token: str) -> Json:
        found = await self.chain.identify(Credentials(bearer=token))
        assert found is not None
        return found.user.info()


@pytest.fixture(scope="module")
def ours(cluster: RealCluster) -> Ours:
    return Ours(cluster)


def theirs_who(cluster: RealCluster, token: str) -> Json:
    """Who the real server says the bearer is."""
    port = urllib.parse.urlsplit(cluster.url).port
    connection = http.client.HTTPSConnection(HOST, port, context=ssl.create_default_context(cafile=str(cluster.ca_pem)))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(body), headers)
        found = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert found["kind"] == "SelfSubjectReview", found
    return dict(found["status"]["userInfo"])


def claims(token: str) -> Json:
    """A token's claims with what differs between any two tokens made relative or left out."""
    found = peek(token)
    assert found is not None
    made = dict(found.payload)
    began = made.pop("iat", 0)
    made |= {key: made[key] - began for key in ("exp", "nbf") if key in made}
    private = dict(made.get("kubernetes.io") or {})
    if "warnafter" in private:
        made["kubernetes.io"] = {**private, "warnafter": private["warnafter"] - began}
    assert bool(made.pop("jti", "")) == bool(private)
    return made


@pytest.mark.parametrize("spec", BOUND, ids=str)
async def test_bound_tokens_are_the_same_and_open_both_doors(cluster: RealCluster, ours: Ours, spec: Json) -> None:
    mine = ours.issuer.issue("default", "default", {"spec": spec})
    theirs = _created(cluster, f"{ACCOUNT}/token", {"spec": spec})
    assert mine["spec"] == theirs["spec"]
    assert claims(mine["status"]["token"]) == claims(theirs["status"]["token"])
    for token in (mine["status"]["token"], theirs["status"]["token"]):
        assert await ours.who(token) == theirs_who(cluster, token)


async def test_legacy_tokens_are_the_same_and_open_both_doors(cluster: RealCluster, ours: Ours) -> None:
    secret = ours.stored.get("", "secrets", "default", "legacy")
    account = ours.stored.get("", "serviceaccounts", "default", "default")
    assert secret is not None
    assert account is not None
    token = base64.b64decode(secret["data"]["token"]).decode()
    assert claims(ours.issuer.legacy_token(account, secret)) == claims(token)
    assert await ours.who(token) == theirs_who(cluster, token)


def test_the_discovery_documents_are_the_same(cluster: RealCluster, ours: Ours) -> None:
    assert ours.keys.key_set() == cluster.request("GET", "/openid/v1/jwks")[1]
    found = cluster.request("GET", "/.well-known/openid-configuration")[1]
    assert openid_configuration(ISSUER, found["jwks_uri"].removesuffix("/openid/v1/jwks")) == found


def test_the_shipped_roles_are_what_the_pinned_server_makes_for_itself() -> None:
    need.programs("kubernetes", "etcd")
    assert describe_roles.main(["--check"]) == 0
