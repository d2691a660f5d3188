"""Trying to get in: each attempt gets the right refusal, nothing that it should not learn, and a line in the audit log."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.harness import Answer

from .harness import PASSWORD, Agent, Cluster, Embedded, Gateway, Imported, Person, to_its_end, until
from .test_agent import ended

pytestmark = pytest.mark.story

Obj = dict[str, Any]

_numbers = count()
WHO_AM_I = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> Person:
    return gateway.first_user()


@pytest.fixture(scope="module")
def alice(gateway: Gateway, imported: Imported) -> Person:
    """Owns the cluster."""
    person = gateway.user("alice", password=PASSWORD)
    gateway.bind(imported.id, person)
    until(lambda: person.request("GET", imported.path("/api/v1/namespaces")).status == 200, log=gateway)
    return person


@pytest.fixture(scope="module")
def mallory(gateway: Gateway) -> Person:
    """A tenant like any other, with nothing of alice's."""
    return gateway.user("mallory")


@dataclass
class Attempt:
    """A request, and what the audit log says about it."""

    answer: Answer
    lines: list[Obj]

    @property
    def line(self) -> Obj:
        assert self.lines, "no line in the audit log"
        return self.lines[-1]


def attempt(person: Person, method: str, path: str, body: Any = None, **headers: str) -> Attempt:
    mark = f"attempt-{next(_numbers)}"
    answer = person.request(method, path, body, User_Agent=mark, **headers)
    found: list[Obj] = []

    def told() -> bool:
        found[:] = [line for line in person.gateway.audit() if line.get("agent") == mark]
        return any(line["result"] != "started" for line in found)

    with contextlib.suppress(AssertionError):
        until(told, 30)
    return Attempt(answer, found)


def refused(tried: Attempt, *statuses: int) -> Attempt:
    assert tried.answer.status in statuses, (tried.answer.status, tried.answer.body)
    assert tried.line["result"] == "refused", tried.line
    assert tried.line["status"] == tried.answer.status
    return tried


# --- tokens --------------------------------------------------------------------------------------------------------------


PLACES = ["/api/v1/secrets", "/apis/management.cattle.io/v3/clusters", "/v3/users", "/v3/tokens"]


@pytest.mark.parametrize("path", [*PLACES, "/k8s/clusters/{id}/api/v1/namespaces", "/k8s/clusters/c-nobody/api"])
@pytest.mark.parametrize(
    "token", ["", "token-abcde:nothing", "kubeconfig-u-abcde:" + "x" * 54, "x", ":", "a:b:c", "token-\u00e9:x"]
)
def test_without_a_token_that_is_known_there_is_nothing(gateway: Gateway, imported: Imported, path: str, token: str) -> None:
    stranger = Person(gateway, token.encode("utf-8").decode("latin-1"))
    tried = attempt(stranger, "GET", path.format(id=imported.id))
    if not token and path.startswith("/api"):
        # Kubernetes knows callers without a name, who may do nothing here.
        refused(tried, 401, 403)
    else:
        refused(tried, 401)
    assert set(tried.answer.json or {}) <= {
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "reason",
        "code",
        "details",
    } or (tried.answer.json["type"] == "error")


def test_every_unknown_cluster_looks_like_one_of_others(mallory: Person, imported: Imported) -> None:
    said = []
    for cluster in (imported.id, "c-m-abcdefgh", "local"):
        tried = refused(attempt(mallory, "GET", f"/k8s/clusters/{cluster}/api/v1/namespaces"), 403)
        said.append(tried.answer.raw.decode().replace(cluster, "<it>"))
        assert tried.line["cluster"] == cluster
    assert len(set(said)) == 1


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PATCH"])
def test_another_tenants_objects_are_out_of_reach(
    gateway: Gateway, mallory: Person, imported: Imported, alice: Person, verb: str
) -> None:
    alices = next(
        token["metadata"]["name"]
        for token in gateway.endpoint.request("GET", "/apis/management.cattle.io/v3/tokens").json["items"]
        if token["userId"] == gateway.user_id(alice)
    )
    for path in (
        f"/apis/management.cattle.io/v3/clusters/{imported.id}",
        f"/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters/{imported.cluster.name}",
        f"/api/v1/namespaces/{imported.id}/secrets/crt-token-default-token",
        f"/apis/management.cattle.io/v3/namespaces/{imported.id}/clusterregistrationtokens/default-token",
        "/api/v1/namespaces/cattle-global-data/secrets",
        f"/apis/management.cattle.io/v3/tokens/{alices}",
        f"/apis/management.cattle.io/v3/users/{gateway.user_id(alice)}",
    ):
        body = {"metadata": {"labels": {"mine": "now"}}} if verb == "PATCH" else None
        kind = {"Content_Type": "application/merge-patch+json"} if verb == "PATCH" else {}
        tried = attempt(mallory, verb, path, body, **kind)
        if verb == "GET" and tried.answer.status == 404:
            # What mallory may create herself is answered like an object that does not exist.
            absent = mallory.request("GET", f"{path}-absent")
            assert absent.raw.decode().replace("-absent", "") == tried.answer.raw.decode()
        else:
            refused(tried, 403, 405)
    assert alice.request("GET", imported.path("/api/v1/namespaces")).status == 200


def test_a_tenant_grants_nothing_to_themselves(gateway: Gateway, mallory: Person, imported: Imported) -> None:
    me = gateway.user_id(mallory)
    v3 = "/apis/management.cattle.io/v3"
    for path, obj in (
        (
            f"{v3}/globalrolebindings",
            {"kind": "GlobalRoleBinding", "metadata": {"name": "m"}, "globalRoleName": "admin", "userName": me},
        ),
        (
            f"{v3}/namespaces/{imported.id}/clusterroletemplatebindings",
            {
                "kind": "ClusterRoleTemplateBinding",
                "metadata": {"name": "m"},
                "clusterName": imported.id,
                "roleTemplateName": "cluster-owner",
                "userName": me,
            },
        ),
        (
            f"{v3}/globalroles",
            {
                "kind": "GlobalRole",
                "metadata": {"name": "m"},
                "displayName": "m",
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            },
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "m"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "User", "name": me, "apiGroup": "rbac.authorization.k8s.io"}],
            },
        ),
    ):
        group = "/".join(path.split("/")[2:4])
        refused(attempt(mallory, "POST", path, {"apiVersion": group, **obj}), 403)


def test_a_revoked_token_opens_nothing_more(gateway: Gateway, imported: Imported, alice: Person) -> None:
    once = gateway.login("alice", PASSWORD)
    assert once.request("GET", imported.path("/api/v1/namespaces")).status == 200
    name = once.token.partition(":")[0]
    assert gateway.endpoint.request("DELETE", f"/apis/management.cattle.io/v3/tokens/{name}").status == 200
    until(lambda: once.request("GET", "/v3/users?me=true").status == 401)
    for path in (imported.path("/api/v1/namespaces"), "/apis/management.cattle.io/v3/clusters", "/v3/tokens"):
        refused(attempt(once, "GET", path), 401)


def test_what_goes_on_in_a_cluster_ends_with_its_token(gateway: Gateway, imported: Imported, alice: Person) -> None:
    once = gateway.login("alice", PASSWORD)
    context = ssl.create_default_context(cafile=str(gateway.ca))
    connection = http.client.HTTPSConnection(urlsplit(gateway.url).netloc, context=context, timeout=120)
    headers = {"Authorization": f"Bearer {once.token}"}
    try:
        connection.request("GET", imported.path("/api/v1/namespaces?watch=true"), headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        assert b"ADDED" in response.readline()
        name = once.token.partition(":")[0]
        assert gateway.endpoint.request("DELETE", f"/apis/management.cattle.io/v3/tokens/{name}").status == 200
        to_its_end(response)
    finally:
        connection.close()
    until(lambda: any(line.get("token") == name and "expired or was revoked" in line.get("why", "") for line in gateway.audit()))


def test_an_expired_token_opens_nothing_more(gateway: Gateway, imported: Imported, alice: Person) -> None:
    for seconds in (2.5, 10, 60):
        began = time.monotonic()
        made = alice.request("POST", "/v3/tokens", {"type": "token", "description": "short", "ttl": int(seconds * 1000)})
        assert made.status == 201, made.body
        short = Person(gateway, made.json["token"])
        used = short.request("GET", imported.path("/api/v1/namespaces")).status
        # It counts from the whole second in which it was made, and so is up to one shorter. On a machine that has other things
        # to do it may have ended before it was used.
        if time.monotonic() - began < seconds - 1:
            break
    assert used == 200
    until(lambda: short.request("GET", "/v3/users?me=true").status == 401)
    refused(attempt(short, "GET", imported.path("/api/v1/namespaces")), 401)


def test_a_disabled_user_is_let_in_by_no_token(gateway: Gateway) -> None:
    person = gateway.user("leaver")
    assert person.request("GET", "/v3/users?me=true").status == 200
    body = json.dumps({"enabled": False}).encode()
    path = f"/apis/management.cattle.io/v3/users/{gateway.user_id(person)}"
    kind = {"Content-Type": "application/merge-patch+json"}
    assert gateway.endpoint.request("PATCH", path, body, kind).status == 200
    until(lambda: person.request("GET", "/v3/users?me=true").status == 401)
    refused(attempt(person, "GET", "/apis/management.cattle.io/v3/clusters"), 401)


# --- forged identities ---------------------------------------------------------------------------------------------------


FORGED: list[dict[str, str]] = [
    {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"},
    {"X_Remote_Extra_Scopes": "all", "X_Remote_User": "system:admin"},
    {"X_Forwarded_User": "admin", "X_Auth_Request_User": "admin", "X_WebAuth_User": "admin"},
]
BORROWED: list[dict[str, str]] = [
    {"Impersonate_User": "system:admin"},
    {"Impersonate_User": "admin", "Impersonate_Group": "system:masters"},
    {"Impersonate_User": "system:serviceaccount:cattle-system:cattle"},
]


def identity(answer: Answer) -> tuple[str, set[str]]:
    assert answer.status == 201, (answer.status, answer.body)
    found = answer.json["status"]["userInfo"]
    return found["username"], set(found.get("groups", ()))


@pytest.mark.parametrize("forged", FORGED)
def test_identity_headers_do_not_change_the_caller(
    gateway: Gateway, alice: Person, imported: Imported, forged: dict[str, str]
) -> None:
    for path in ("/apis", imported.path("/apis")):
        tried = attempt(alice, "POST", f"{path}/authentication.k8s.io/v1/selfsubjectreviews", WHO_AM_I, **forged)
        name, groups = identity(tried.answer)
        assert name == gateway.user_id(alice)
        assert "system:masters" not in groups
        assert tried.line.get("forged"), tried.line
        refused(attempt(gateway.nobody(), "GET", f"{path}/apps/v1/deployments", **forged), 401, 403)


@pytest.mark.parametrize("borrowed", BORROWED)
def test_impersonation_without_permission_is_refused(alice: Person, imported: Imported, borrowed: dict[str, str]) -> None:
    for path in ("/apis", imported.path("/apis")):
        refused(attempt(alice, "POST", f"{path}/authentication.k8s.io/v1/selfsubjectreviews", WHO_AM_I, **borrowed), 403)


def test_groups_are_not_added_to_oneself(gateway: Gateway, alice: Person, imported: Imported) -> None:
    borrowed = {"Impersonate_User": gateway.user_id(alice), "Impersonate_Group": "system:masters"}
    for path in ("/apis", imported.path("/apis")):
        refused(attempt(alice, "POST", f"{path}/authentication.k8s.io/v1/selfsubjectreviews", WHO_AM_I, **borrowed), 403)


def test_a_header_named_in_connection_is_not_taken_away(gateway: Gateway, alice: Person, imported: Imported) -> None:
    """Hop-by-hop headers are dropped: naming one that says who is asking must not drop that one with them."""
    path = imported.path("/apis/authentication.k8s.io/v1/selfsubjectreviews")
    for named in ("Impersonate-User, Impersonate-Group", "Authorization", "close, Impersonate-User"):
        answer = alice.request("POST", path, WHO_AM_I, Connection=named)
        if answer.status == 201:
            assert identity(answer)[0] == gateway.user_id(alice)
        else:
            assert answer.status == 400


# --- paths, hosts and framing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        "/../../../api/v1/secrets",
        "/api/../../../../api/v1/secrets",
        "/%2e%2e/%2e%2e/%2e%2e/api/v1/secrets",
        "/..%2f..%2f..%2fapi/v1/secrets",
        "//api/v1/secrets",
        "/api//v1/secrets",
        "/./api/v1/secrets",
        "/api/v1/secrets%00",
        "/api\\v1\\secrets",
        "/%5c..%5c/api",
        "/api/v1/secrets;x=y/..;/",
        "/api/v1/%zz",
        "/api/v1/secrets%0d%0aX:y",
    ],
)
def test_a_path_with_two_readings_has_none(mallory: Person, alice: Person, imported: Imported, tail: str) -> None:
    for person in (mallory, alice):
        tried = attempt(person, "GET", imported.path(tail))
        assert tried.answer.status in (400, 403, 404), (tried.answer.status, tried.answer.body)
        assert tried.line["status"] == tried.answer.status
        assert "items" not in (tried.answer.body or {})


@pytest.mark.parametrize("path", ["//k8s/clusters/{id}/api", "/k8s//clusters/{id}/api", "/K8S/clusters/{id}/api/v1/secrets"])
def test_another_spelling_of_a_route_is_no_way_around_it(mallory: Person, imported: Imported, path: str) -> None:
    tried = attempt(mallory, "GET", path.format(id=imported.id))
    assert tried.answer.status in (400, 403, 404)
    assert tried.line["status"] == tried.answer.status


def raw(gateway: Gateway, request: bytes, seconds: float = 60) -> bytes:
    """Bytes as they are, and everything that comes back."""
    plain = socket.create_connection((gateway.host, gateway.port), timeout=seconds)
    with gateway.trusting().wrap_socket(plain, server_hostname=gateway.host) as connection:
        # It may be refused and hung up on before the last of it is sent.
        with contextlib.suppress(OSError):
            connection.sendall(request)
        found = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                found += data
        return found


SMUGGLED = b"GET /v3/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 0\r\nContent-Length: 39\r\n",
        b"Content-Length: 0, 39\r\n",
        b"Content-Length: +0\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 0x0\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"X: y\r\n Content-Length: 39\r\n",
        b"X: y\nContent-Length: 39\r\n",
        b"X: y\rContent-Length: 39\r\n",
        b"X\x00: y\r\n",
        b"Host: elsewhere\r\n",
    ],
)
def test_a_request_with_two_ends_is_the_last_on_its_connection(
    gateway: Gateway, imported: Imported, alice: Person, head: bytes
) -> None:
    for target in (imported.path("/api/v1/namespaces"), "/api/v1/namespaces", "/v3/users?me=true"):
        before = len(gateway.audit())
        request = (
            f"POST {target} HTTP/1.1\r\nHost: {gateway.host}:{gateway.port}\r\nAuthorization: Bearer {alice.token}\r\n".encode()
            + head
            + b"\r\n0\r\n\r\n"
            + SMUGGLED
        )
        answer = raw(gateway, request)
        assert re.match(rb"HTTP/1\.[01] 4", answer), answer[:300]
        assert len(re.findall(rb"HTTP/1\.[01] \d", answer)) == 1, answer
        assert b"aiohttp" not in answer
        until(lambda: any(line["result"] == "refused" for line in gateway.audit()[before:]), 60)  # noqa: B023
        told = gateway.audit()[before:]
        assert any(line["result"] == "refused" for line in told), told
        assert not any("smuggled" in line.get("path", "") for line in told)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "evil.example:443", "a b"])
def test_another_name_for_us_is_no_origin_of_ours(gateway: Gateway, cookie: str, host: str) -> None:
    """A page of `evil.example`, whose name was made to lead to us, has no session here."""
    tried = attempt(gateway.nobody(), "POST", "/v3/tokens", {"type": "token"}, Cookie=cookie, Host=host, Origin=f"https://{host}")
    assert tried.answer.status in (400, 401, 403, 421), tried.answer.body
    assert tried.line["status"] == tried.answer.status


@pytest.mark.parametrize(
    ("name", "request_head"),
    [
        ("a long target", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a long header", b"GET /ping HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n"),
        ("many headers", b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n"),
        ("a long name", b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"X" * 100_000 + b": y\r\n\r\n"),
        ("no HTTP", b"\x16\x03\x01" * 1000),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_read(gateway: Gateway, name: str, request_head: bytes) -> None:
    before = len(gateway.audit())
    answer = raw(gateway, request_head)
    assert re.match(rb"HTTP/1\.[01] 4", answer) or not answer, answer[:200]
    until(lambda: any(line["result"] == "refused" for line in gateway.audit()[before:]), 60)
    assert gateway.nobody().request("GET", "/ping").status == 200


@pytest.mark.parametrize("path", ["/v3/tokens", "/v3-public/localProviders/local?action=login"])
def test_a_large_body_is_refused(gateway: Gateway, alice: Person, path: str) -> None:
    refused(attempt(alice, "POST", path, b'{"a":"' + b"x" * (17 << 20) + b'"}'), 413)


# --- pages of others -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cookie(gateway: Gateway, alice: Person) -> str:
    """A session as a browser has it after a login."""
    body = {"username": alice.name, "password": PASSWORD, "responseType": "cookie"}
    connection = gateway.nobody().connect()
    kind = {"Content-Type": "application/json"}
    connection.request("POST", "/v3-public/localProviders/local?action=login", json.dumps(body), kind)
    answer = connection.getresponse()
    said = answer.read().decode()
    assert answer.status in (200, 201), said
    (session,) = [value for value in answer.headers.get_all("Set-Cookie") or () if value.startswith("R_SESS=")]
    connection.close()
    for word in ("Secure", "HttpOnly", "SameSite=Strict"):
        assert f"; {word}".lower() in session.lower(), session
    found = session.partition(";")[0]
    # A script that reads the answer has no session by it.
    assert found.partition(":")[2] not in said
    return found


def test_a_page_of_another_site_can_do_nothing_with_a_session(gateway: Gateway, alice: Person, cookie: str) -> None:
    nobody = gateway.nobody()
    foreign = {"Cookie": cookie, "Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"}
    for method, path, body in (
        ("POST", "/v3/tokens", {"type": "token"}),
        ("POST", "/v3/users?action=changepassword", {"currentPassword": "a", "newPassword": "b"}),
        ("DELETE", f"/v3/tokens/{alice.token.partition(':')[0]}", None),
    ):
        tried = refused(attempt(nobody, method, path, body, **foreign), 401, 403)
        assert "access-control-allow-origin" not in tried.answer.headers
        # And not without an origin, as a form of an old browser would send it.
        refused(attempt(nobody, method, path, body, Cookie=cookie, Content_Type="text/plain"), 401, 403)
    asked_before = attempt(nobody, "OPTIONS", "/v3/tokens", Origin="https://evil.example", Access_Control_Request_Method="POST")
    assert "access-control-allow-origin" not in asked_before.answer.headers


def test_a_session_is_no_way_into_a_cluster_or_the_api(gateway: Gateway, cookie: str, imported: Imported) -> None:
    for path in (imported.path("/api/v1/secrets"), "/api/v1/secrets", "/apis/management.cattle.io/v3/clusters"):
        refused(attempt(gateway.nobody(), "GET", path, Cookie=cookie), 401, 403)
    foreign = {**WEBSOCKET, "Cookie": cookie, "Origin": "https://evil.example"}
    refused(attempt(gateway.nobody(), "GET", imported.path("/api/v1/namespaces?watch=1"), **foreign), 401, 403)


def test_what_comes_from_a_cluster_is_no_page_of_ours(alice: Person, imported: Imported, gateway: Gateway) -> None:
    for path in (imported.path("/api/v1/namespaces"), imported.path("/healthz"), "/api/v1/namespaces"):
        answer = alice.request("GET", path, Accept="text/html,*/*", Cookie="R_SESS=token-x:y")
        assert "sandbox" in answer.headers["content-security-policy"], (path, answer.headers)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers


# --- agents and nodes ----------------------------------------------------------------------------------------------------


def params(address: str, token: str, ca: str) -> str:
    return base64.b64encode(json.dumps({"cluster": {"address": address, "token": token, "caCert": ca}}).encode()).decode()


def stored(cluster: Cluster) -> tuple[str, str]:
    status = cluster.managed()["status"]
    return status["apiEndpoint"], status["caCert"]


def test_a_registration_token_authenticates_no_user(gateway: Gateway, imported: Imported) -> None:
    for kind in ("default-token", "node-token"):
        token = imported.cluster.token(kind)
        for shown in (token, f"stv-cluster-{token}", f"{kind}:{token}", f"{imported.id}:{token}"):
            agent = Person(gateway, shown)
            for path in ("/api/v1/secrets", "/v3/users", "/v3/tokens", imported.path("/api/v1/secrets")):
                refused(attempt(agent, "GET", path), 401)


def test_a_nodes_token_opens_no_tunnel(gateway: Gateway, imported: Imported, downstream: Embedded) -> None:
    node = imported.cluster.token("node-token")
    endpoint, ca = stored(imported.cluster)
    said = params(endpoint.removeprefix("https://"), "x", ca)
    for path in ("/v3/connect", "/v3/connect/register"):
        for shown in (
            {"X_API_Tunnel_Token": node, "X_API_Tunnel_Params": said},
            {"Authorization": f"Bearer stv-cluster-{node}"},
        ):
            refused(attempt(gateway.nobody(), "GET", path, **WEBSOCKET, **shown), 400, 401)
    # A whole agent with it does not get anywhere either, nor does it disturb the one that is there.
    before = ended(gateway, imported.id)
    other = Agent(imported.cluster, downstream, token=node, called="agent-of-a-node")
    with other:
        until(lambda: "answered 400" in other.told() or "answered 401" in other.told(), log=other)
    assert ended(gateway, imported.id) == before
    # An agent that has other things to do may be late with one answer.
    imported.cluster.until("Connected", "True")


@pytest.mark.parametrize("token", ["", "nothing", "x" * 5000])
def test_an_unknown_agent_opens_no_tunnel(gateway: Gateway, token: str) -> None:
    said = params("127.0.0.1:1", "x", base64.b64encode(b"x").decode())
    for shown in (
        {"X_API_Tunnel_Token": token, "X_API_Tunnel_Params": said} if token else {},
        {"Authorization": f"Bearer stv-cluster-{token}"} if token else {},
    ):
        refused(attempt(gateway.nobody(), "GET", "/v3/connect", **WEBSOCKET, **shown), 400, 401, 431)


@pytest.fixture(scope="module")
def second(gateway: Gateway, place: Path) -> Iterator[tuple[Imported, Embedded]]:
    """Mallory's own cluster, with an API server of its own."""
    with Embedded(place / "second", "second") as downstream, gateway.imported(downstream) as connected:
        yield connected, downstream


def test_an_agent_is_no_other_clusters_agent(
    gateway: Gateway, imported: Imported, second: tuple[Imported, Embedded], alice: Person
) -> None:
    """The token of one cluster with what another one has said of itself: the token decides, and nothing is swapped."""
    theirs, mallorys = second
    before = stored(imported.cluster), stored(theirs.cluster)
    intruder = Agent(theirs.cluster, mallorys, called="intruder")
    with intruder:
        until(lambda: "connected" in intruder.told(), log=intruder)
    assert (stored(imported.cluster), stored(theirs.cluster)) == before
    found = alice.request("GET", imported.path("/api/v1/namespaces/default"))
    assert found.status == 200


def test_an_endpoint_is_not_swapped_under_a_known_cluster(
    gateway: Gateway, imported: Imported, second: tuple[Imported, Embedded], alice: Person
) -> None:
    """Whoever has got hold of a cluster's own token can't make another API server take its place."""
    _, mallorys = second
    before = stored(imported.cluster)
    uid = alice.request("GET", imported.path("/api/v1/namespaces/kube-system")).json["metadata"]["uid"]
    hijacker = Agent(imported.cluster, mallorys, called="hijacker")
    with hijacker:
        until(lambda: "connecting in" in hijacker.told(), log=hijacker)
        time.sleep(1)
    assert stored(imported.cluster) == before
    found = alice.request("GET", imported.path("/api/v1/namespaces/kube-system"))
    assert found.json["metadata"]["uid"] == uid
    until(lambda: any("is not accepted as this cluster" in line.get("why", "") for line in gateway.audit()))


# --- secrets -------------------------------------------------------------------------------------------------------------


def test_an_import_manifest_needs_its_token(gateway: Gateway, imported: Imported) -> None:
    token = imported.cluster.token()
    assert imported.cluster.manifest().status == 200
    for wrong in (
        f"{token}_c-m-abcdefgh",
        f"{token[:-1]}_{imported.id}",
        f"_{imported.id}",
        f"{imported.cluster.token('node-token')}_{imported.id}",
    ):
        tried = attempt(gateway.nobody(), "GET", f"/v3/import/{wrong}.yaml")
        assert tried.answer.status in (400, 401, 403, 404), (wrong, tried.answer.status)
        assert tried.line["status"] == tried.answer.status


def test_no_secret_is_in_any_log(gateway: Gateway, imported: Imported, alice: Person, admin: Person) -> None:
    """Last, after everything above has been tried with them."""
    tokens = [imported.cluster.token(kind) for kind in ("default-token", "node-token")]
    keys = [person.token.partition(":")[2] for person in (alice, admin)]
    account = gateway.endpoint.request("GET", "/api/v1/namespaces/cattle-global-data/secrets").json["items"]
    stored_keys = [
        base64.b64decode(secret["data"]["credential"]).decode()
        for secret in account
        if "credential" in (secret.get("data") or {})
    ]
    assert stored_keys
    secrets = [*tokens, *keys, *stored_keys, PASSWORD]
    written = {"the audit log": json.dumps(gateway.audit()), "the log": gateway.told(), "the agent's log": imported.agent.told()}
    for name, text in written.items():
        for secret in secrets:
            assert secret
            assert secret not in text, name
    argv = Path(f"/proc/{imported.agent.pid}/cmdline").read_bytes().decode()
    assert not any(secret in argv for secret in secrets)
    shown = json.dumps(imported.cluster.managed())
    assert not any(secret in shown for secret in [*keys, *stored_keys])
