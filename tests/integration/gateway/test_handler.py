"""The door: what a request goes through before anybody answers it, with the attacker's requests first."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from remuda.access.users.tokens import Presented
from remuda.api.management_cattle_io import TOKENS
from remuda.apiserver.http.listener import Listener
from remuda.gateway import handler as module
from remuda.gateway.server.audit_log import Result
from remuda.gateway.server.csrf import CSRF_COOKIE, CSRF_HEADER, issue
from remuda.gateway.server.routing import Access, InProcess, RequestContext
from remuda.kube.clock import Entropy
from remuda.kube.errors import bad_request
from remuda.kube.objects import GroupVersionResource
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until


async def echo(asked: RequestContext) -> web.StreamResponse:
    body = await asked.request.read()
    user = asked.caller.user.name if asked.caller is not None else ""
    return web.json_response({"user": user, "parameters": dict(asked.parameters), "body": body.decode()})


async def broken(asked: RequestContext) -> web.StreamResponse:
    raise RuntimeError("secret detail")


async def refused(asked: RequestContext) -> web.StreamResponse:
    asked.why = "for the log only"
    raise bad_request("no")


async def streaming(asked: RequestContext) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(asked.request)
    await response.write(b"piece")
    return response


@pytest.fixture
async def place() -> AsyncIterator[Standing]:
    async with standing() as found:
        add = found.gateway.services.routes.add
        add("GET POST", "/v3/echo/{name}", echo, Access.USER, largest=100)
        add("GET POST", "/v3/open", echo, Access.PUBLIC, largest=100)
        add("GET", "/v3/broken", broken, Access.PUBLIC)
        add("GET", "/v3/refused", refused, Access.PUBLIC)
        add("GET", "/v3/streaming", streaming, Access.PUBLIC)
        add("POST", "/v3/newcomer", echo, Access.PASSWORD_CHANGE)
        yield found


# --- who is not let in ------------------------------------------------------------------------------------------------------


async def test_requests_without_a_token_are_refused(place: Standing) -> None:
    for path in ("/v3/echo/a", "/k8s/clusters/c-1/api", "/api/v1/namespaces", "/v3/settings"):
        answer = await place.get(path)
        assert answer.status == 401, path
        assert (await answer.json())["message"] == "Unauthorized"
        assert place.audit.records[-1].result is Result.REFUSED


BAD_TOKENS: tuple[tuple[dict[str, object], dict[str, object], str], ...] = (
    ({"enabled": False}, {}, "the token is disabled"),
    ({"expired": True}, {}, "the token is expired"),
    ({"expiresAt": "2001-01-01T00:00:00Z"}, {}, "the token is expired"),
    ({"userId": "u-gone"}, {}, "the token's user does not exist"),
    ({"cluster": "c-1"}, {}, "the token is valid for another cluster only"),
    ({}, {"enabled": False}, "the user is disabled"),
)


async def test_a_token_that_is_good_no_more_opens_nothing(place: Standing) -> None:
    for number, (changes, user, why) in enumerate(BAD_TOKENS):
        name = f"u-{number}"
        await place.user(name, **user)
        token = await place.token(name, **changes)
        for path in ("/v3/echo/a", "/api/v1/namespaces"):
            answer = await place.get(path, token)
            assert answer.status == 401, why
            assert (await answer.json())["message"] == "Unauthorized"
            # A controller may have removed it already.
            assert place.audit.records[-1].why in (why, "there is no such token")


async def test_wrong_secrets_and_unknown_names_look_alike(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    answers = []
    for shown in (f"{token.name}:wrong", "token-nobody:wrong", f"{token.name}:{token.secret}x"):
        answer = await place.get("/v3/echo/a", headers={"Authorization": f"Bearer {shown}"})
        answers.append((answer.status, await answer.text()))
    assert answers[0][0] == 401
    assert len(set(answers)) == 1


async def test_a_token_for_one_cluster_is_good_there_and_nowhere_else(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1", cluster="c-1")
    # Known there, though nobody has let them see that cluster.
    assert (await place.get("/k8s/clusters/c-1/api", token)).status == 403
    for path in ("/k8s/clusters/c-2/api", "/v3/echo/a", "/api", "/k8s/clusters/c-1%2f..%2fc-2/api"):
        assert (await place.get(path, token)).status in (400, 401), path


async def test_two_credentials_at_once_are_none(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    head = f"GET /v1/echo/a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token.text}\r\nAuthorization: Bearer x:y\r\n\r\n"
    answer = await place.raw(head.encode() + b"GET / HTTP/1.1\r\n\r\n")
    assert b" 401 " in answer.split(b"\r\n")[0] or b" 400 " in answer.split(b"\r\n")[0]


async def test_who_has_to_change_the_password_does_just_that(place: Standing) -> None:
    await place.user("u-1", mustChangePassword=True)
    token = await place.token("u-1")
    assert (await place.get("/v3/newcomer", token, "POST")).status == 200
    for path in ("/v3/echo/a", "/k8s/clusters/c-1/api", "/api/v1/namespaces"):
        assert (await place.get(path, token)).status == 403, path


async def test_a_user_is_what_the_api_says_no_more(place: Standing) -> None:
    await place.user("u-1", principalIds=["local://u-1"])
    groups = [{"metadata": {"name": name}} for name in ("system:masters", "local://system:masters", "github_team://7")]
    token = await place.token("u-1", groupPrincipals=groups)
    assert (await place.get("/api/v1/secrets", token)).status == 403
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await place.get("/apis/authentication.k8s.io/v1/selfsubjectreviews", token, "POST", json=review)
    info = (await answer.json())["status"]["userInfo"]
    assert (info["username"], info["uid"]) == ("u-1", "u-1")
    assert info["groups"] == ["github_team://7", "system:authenticated", "system:cattle:authenticated"]
    assert info["extra"]["principalid"] == ["local://u-1"]
    assert info["extra"]["requesttokenid"] == [token.name]


async def test_impersonation_needs_permission(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    forged = {"Impersonate-User": "kubernetes-admin", "Impersonate-Group": "system:masters", "X-Remote-User": "admin"}
    answer = await place.get("/api/v1/secrets", token, headers=forged)
    assert answer.status == 403
    record = place.audit.records[-1]
    assert (record.user, record.result, record.forged) == ("u-1", Result.REFUSED, ("x-remote-user",))


# --- what is not read in two ways -------------------------------------------------------------------------------------------


PATHS = (
    "//v1/echo/a",
    "/v3//echo/a",
    "/v3/../v1/echo/a",
    "/v3/%2e%2e/v1/echo/a",
    "/k8s/clusters/a/..%2fb",
    "/k8s/clusters/a%00/x",
    "/api/../k8s/clusters/a",
    "/ping/..;/api",
    "/./ping",
)


async def test_paths_that_two_programs_could_read_differently(place: Standing) -> None:
    for number, path in enumerate(PATHS, 1):
        answer = await place.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 "), path
        assert [record.status for record in place.audit.records] == [400] * number


HEADS = (
    "POST /v1/open HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/open HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "POST /v1/open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "GET /v1/open HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET /v1/open HTTP/1.1\r\n\r\n",
    "GET /v1/open HTTP/1.1\r\nHost: a\r\nContent_Length: 3\r\n\r\n",
    "GET /v1/open HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
    "GET http://elsewhere/v1/open HTTP/1.1\r\nHost: a\r\n\r\n",
    "\x16\x03\x01 no http at all\r\n\r\n",
)


async def test_requests_whose_end_or_addressee_is_uncertain(place: Standing) -> None:
    for number, head in enumerate(HEADS, 1):
        answer = await place.raw(head.encode())
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")), head
        # One answer, whatever came behind it.
        assert answer.count(b"HTTP/1.") == 1
        assert [record.status for record in place.audit.records] == [400] * number


async def test_a_session_is_not_used_by_other_sites(place: Standing) -> None:
    await place.user("u-1")
    session = await place.token("u-1")
    cookie = {"Cookie": f"R_SESS={session.text}", "Host": f"127.0.0.1:{place.port}"}
    assert (await place.get("/v3/echo/a", headers=cookie)).status == 200
    # Where cookies do not count.
    assert (await place.get("/k8s/clusters/c-1/api", headers=cookie)).status == 401
    assert (await place.get("/api/v1/namespaces", headers=cookie)).status == 401
    assert (await place.get("/v3/echo/a", method="POST", headers=cookie)).status == 403
    token = issue(session, Entropy())
    own = {**cookie, "Cookie": f"R_SESS={session.text}; {CSRF_COOKIE}={token}", CSRF_HEADER: token}
    ours = f"https://127.0.0.1:{place.port}"
    assert (await place.get("/v3/echo/a", method="POST", headers={**own, "Origin": ours})).status == 200
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{place.port}", f"{ours}.evil.example"):
        assert (await place.get("/v3/echo/a", method="POST", headers={**own, "Origin": origin})).status == 403, origin


# --- how much ---------------------------------------------------------------------------------------------------------------


async def test_bodies_are_bounded_said_or_not(place: Standing) -> None:
    assert (await place.get("/v3/open", method="POST", data=b"x" * 100)).status == 200
    assert (await place.get("/v3/open", method="POST", data=b"x" * 101)).status == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10

    assert (await place.get("/v3/open", method="POST", data=pieces())).status == 413


async def test_heads_are_bounded(place: Standing) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(300))
    for head in (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n", b"GET /ping HTTP/1.1\r\nHost: a\r\n" + headers):
        answer = await place.raw(head + b"\r\n")
        assert answer.split(b"\r\n")[0].endswith(b"400 Bad Request")


# --- the ordinary way -------------------------------------------------------------------------------------------------------


async def test_what_is_ours_is_answered_and_what_is_not_is_the_apis(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    answer = await place.get("/v3/echo/who", token, "POST", data=b"text")
    assert await answer.json() == {"user": "u-1", "parameters": {"name": "who"}, "body": "text"}
    assert (await place.get("/v3/nothing", token)).status == 404
    wrong = await place.get("/v3/echo/a", token, "DELETE")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, POST")
    assert (await place.get("/version", token)).status == 200
    assert await (await place.get("/healthz")).text() == "ok"


async def test_a_token_counts_at_once_and_no_longer_when_it_is_gone(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    assert (await place.get("/version", token)).status == 200
    await place.client.delete(TOKENS, token.name)
    await until(lambda: place.gateway.services.informers.of(TOKENS).get("", token.name) is None)
    assert (await place.get("/version", token)).status == 401


async def test_basic_is_as_good_as_bearer(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    shown = base64.b64encode(token.text.encode()).decode()
    for path in ("/v3/echo/a", "/version"):
        assert (await place.get(path, headers={"Authorization": f"Basic {shown}"})).status == 200


async def test_every_answer_says_how_it_may_be_used(place: Standing) -> None:
    for path, policy in (
        ("/v3/open", "default-src 'self'"),
        ("/v3/streaming", "default-src 'self'"),
        ("/healthz", "sandbox"),
    ):
        answer = await place.get(path)
        assert answer.headers["Content-Security-Policy"].startswith(policy)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in answer.headers


async def test_errors_say_no_more_than_they_must(place: Standing, caplog: pytest.LogCaptureFixture) -> None:
    answer = await place.get("/v3/broken")
    assert answer.status == 500
    assert "secret detail" not in await answer.text()
    answer = await place.get("/v3/refused")
    assert (answer.status, (await answer.json())["message"]) == (400, "no")
    assert place.audit.records[-1].why == "for the log only"
    assert "RuntimeError" in caplog.text


async def test_the_audit_log_has_users_and_requests(place: Standing) -> None:
    await place.user("u-1")
    token = await place.token("u-1")
    await place.get("/k8s/clusters/c-1/api", token, headers={"User-Agent": "test"})
    record = place.audit.records[-1]
    assert (record.user, record.token, record.cluster, record.result) == ("u-1", token.name, "c-1", Result.REFUSED)
    assert (record.method, record.path, record.status, record.agent) == ("GET", "/k8s/clusters/c-1/api", 403, "test")
    await place.get("/v3/echo/a", token)
    record = place.audit.records[-1]
    assert (record.user, record.path, record.status, record.result) == ("u-1", "/v3/echo/a", 200, Result.ALLOWED)
    assert record.address == "127.0.0.1"
    before = len(place.audit.records)
    await place.get("/ping")
    assert len(place.audit.records) == before, "what is asked all the time and is nobody's business is not written"


async def _administrator(place: Standing, name: str) -> Presented:
    await place.user(name)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    await place.client.create(GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings"), binding)
    return await place.token(name)


async def test_a_pod_is_answered_with_a_warning_and_audited_with_its_standard(place: Standing) -> None:
    labels = {f"pod-security.kubernetes.io/{mode}": "baseline" for mode in ("enforce", "audit")}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}}
    await place.client.create(GroupVersionResource("", "v1", "namespaces"), namespace)
    # A controller makes it elsewhere.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await place.client.create(GroupVersionResource("", "v1", "serviceaccounts"), account, "strict")
    token = await _administrator(place, "u-1")
    for name, privileged, status in (("good", False, 201), ("bad", True, 403)):
        container = {"name": "c", "image": "i", "securityContext": {"privileged": privileged}}
        spec = {"containers": [container], "automountServiceAccountToken": False}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        answer = await place.get("/api/v1/namespaces/strict/pods", token, "POST", json=pod)
        assert answer.status == status, await answer.text()
        said = place.audit.records[-1].annotations
        assert said["pod-security.kubernetes.io/enforce-policy"] == "baseline:latest"
        assert ("pod-security.kubernetes.io/audit-violations" in said) == privileged
        assert ("stored without effect" in answer.headers.get("Warning", "")) == (not privileged)


async def test_a_watch_is_told_when_it_begins_and_when_it_ends(place: Standing) -> None:
    token = await _administrator(place, "u-1")
    headers = {"Authorization": f"Bearer {token.text}"}
    async with place.http.get(f"{place.url}/api/v1/namespaces?watch=true&timeoutSeconds=1", headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == "sandbox"
        first = await answer.content.readline()
        assert json.loads(first)["type"] == "ADDED"
        assert place.audit.records[-1].result is Result.STARTED
    await until(lambda: place.audit.records[-1].result is not Result.STARTED)
    assert place.audit.records[-1].user == "u-1"


async def test_one_token_has_so_many_requests_at_once(place: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_TOKEN", 1)
    entered, gate = asyncio.Event(), asyncio.Event()

    async def waiting(asked: RequestContext) -> web.StreamResponse:
        entered.set()
        await gate.wait()
        return web.Response(text="done")

    place.gateway.services.routes.add("GET", "/v3/waiting", waiting, Access.USER)
    narrow = module.GatewayHandler(
        place.gateway.services, place.gateway.callers, InProcess(place.server.handler), place.audit, place.gateway.lines
    )
    listener = Listener(narrow, None)
    await listener.open("127.0.0.1", 0)
    await place.user("u-1")
    token, other = await place.token("u-1"), await place.token("u-1")
    place.url = f"http://127.0.0.1:{listener.port}"
    first = asyncio.create_task(place.get("/v3/waiting", token))
    await entered.wait()
    assert (await place.get("/v3/echo/a", token)).status == 429
    assert (await place.get("/v3/echo/a", other)).status == 200
    gate.set()
    assert (await first).status == 200
    assert (await place.get("/v3/echo/a", token)).status == 200
    await listener.close(0.0)
