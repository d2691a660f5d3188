"""The HTTPS client against a scripted server on loopback, with real TLS."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from remuda.apiserver.http.listener import Listener, server_context
from remuda.apiserver.keys.pki import Pki
from remuda.client import interface, kubeconfig
from remuda.client.connection import LoggedOnce, Unreachable
from remuda.client.https import HttpsClient, object_path
from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.certificates import issue_client

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

SECRETS = GroupVersionResource("", "v1", "secrets")
MACHINES = GroupVersionResource("cluster.x-k8s.io", "v1beta2", "machines")


class Peer:
    """A server that answers from a list, and remembers what it was asked."""

    def __init__(self, pki: Pki) -> None:
        self.pki = pki
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.peer_names: list[bytes | None] = []
        context = server_context(pki.serving_certificate, pki.serving_key, pki.ca_certificate)
        self.listener = Listener(self.handle, context)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(
            (request.method, request.raw_path if hasattr(request, "raw_path") else request.path_qs, await request.read())
        )
        self.headers.append(dict(request.headers))
        self.peer_names.append(request.protocol.peer_certificate)  # type: ignore[attr-defined]
        return await self.answers.pop(0)(request)

    def target(self, **changes: Any) -> KubeTarget:
        shown = {"ca": self.pki.ca_pem, **changes}
        return KubeTarget(f"https://127.0.0.1:{self.listener.port}", **shown)


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


@pytest.fixture
async def peer(pki: Pki) -> AsyncIterator[Peer]:
    made = Peer(pki)
    await made.listener.open("127.0.0.1", 0)
    yield made
    await made.listener.close(0.01)


def says(body: Any, code: int = 200, **headers: str) -> Answer:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(body, status=code, headers=headers)

    return answer


def failure(code: int, reason: str, **headers: str) -> Answer:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"it is {reason}",
        "reason": reason,
        "code": code,
    }
    return says(status, code, **headers)


def streams(*chunks: bytes, cut: bool = False) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


def test_paths_of_collections_objects_and_subresources() -> None:
    assert object_path(SECRETS) == "/api/v1/secrets"
    assert object_path(SECRETS, "apps", "a b/c") == "/api/v1/namespaces/apps/secrets/a%20b%2Fc"
    assert object_path(MACHINES, "x", "m", "status") == "/apis/cluster.x-k8s.io/v1beta2/namespaces/x/machines/m/status"
    roles = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
    assert object_path(roles, "", "system:node").endswith("/clusterroles/system:node")


async def test_every_verb_asks_what_kubernetes_expects(peer: Peer) -> None:
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}}
    peer.answers = [says(obj)] * 9
    async with HttpsClient(peer.target()) as client:
        await client.get(SECRETS, "s", "n", resource_version="0")
        await client.list(SECRETS, labels="a in (b,c)", limit=5, continue_="x=")
        await client.create(SECRETS, obj, dry_run=True, field_manager="me")
        await client.update(SECRETS, obj, subresource="status")
        await client.patch(SECRETS, "s", [{"op": "remove", "path": "/data"}], "n", patch_type=interface.JSON_PATCH)
        await client.apply(SECRETS, obj, field_manager="me", force=True)
        await client.delete(SECRETS, "s", "n", propagation="Foreground", grace_seconds=0, uid="u", resource_version="7")
        await client.delete_collection(SECRETS, "n", labels="a=b")
        await client.create(GroupVersionResource("", "v1", "serviceaccounts"), {"spec": {}}, "n", name="d", subresource="token")
    lines = [f"{method} {path}" for method, path, _ in peer.asked]
    assert lines == [
        "GET /api/v1/namespaces/n/secrets/s?resourceVersion=0",
        "GET /api/v1/secrets?labelSelector=a+in+%28b%2Cc%29&limit=5&continue=x%3D",
        "POST /api/v1/namespaces/n/secrets?dryRun=All&fieldManager=me",
        "PUT /api/v1/namespaces/n/secrets/s/status",
        "PATCH /api/v1/namespaces/n/secrets/s",
        "PATCH /api/v1/namespaces/n/secrets/s?fieldManager=me&force=true",
        "DELETE /api/v1/namespaces/n/secrets/s",
        "DELETE /api/v1/namespaces/n/secrets?labelSelector=a%3Db",
        "POST /api/v1/namespaces/n/serviceaccounts/d/token",
    ]
    assert [h.get("Content-Type") for h in peer.headers[2:6]] == [
        "application/json",
        "application/json",
        interface.JSON_PATCH,
        interface.APPLY_PATCH,
    ]
    assert json.loads(peer.asked[6][2]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


async def test_the_client_certificate_is_shown_and_bearer_and_impersonation_headers_sent(peer: Peer, pki: Pki) -> None:
    peer.answers = [says({}), says({})]
    issued = issue_client(pki, "jane")
    async with HttpsClient(peer.target(client_certificate=issued.certificate, client_key=issued.key)) as client:
        await client.raw("GET", "/version")
    assert peer.peer_names[0]
    target = peer.target(token="secret", impersonate="joe", impersonate_extra=(("a/b", ("c",)),))
    async with HttpsClient(target) as client:
        await client.raw("GET", "/version")
    assert peer.peer_names[1] is None
    sent = peer.headers[1]
    assert (sent["Authorization"], sent["Impersonate-User"]) == ("Bearer secret", "joe")
    assert sent["Impersonate-Extra-a%2Fb"] == "c"


async def test_a_server_with_another_authority_is_refused_unless_told_otherwise(peer: Peer, tmp_path: Path) -> None:
    other = Pki.ensure(tmp_path, [], SYSTEM_CLOCK, Entropy())
    async with HttpsClient(peer.target(ca=other.ca_pem)) as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.raw("GET", "/version")
    peer.answers = [says({"ok": True})]
    async with HttpsClient(peer.target(ca=b"", insecure=True)) as client:
        assert await client.raw("GET", "/version") == {"ok": True}


async def test_the_name_in_the_certificate_can_be_another(peer: Peer) -> None:
    peer.answers = [says({})]
    async with HttpsClient(peer.target(tls_server_name="kubernetes.default.svc")) as client:
        await client.raw("GET", "/version")
    async with HttpsClient(peer.target(tls_server_name="elsewhere.test")) as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.raw("GET", "/version")


async def test_a_refused_connection_is_one_clear_sentence() -> None:
    async with HttpsClient(KubeTarget("https://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable, match=r"https://127.0.0.1:1 can't be reached: .*refused"):
            await client.raw("GET", "/version")


async def test_a_status_becomes_the_error_it_describes(peer: Peer) -> None:
    peer.answers = [failure(409, "AlreadyExists")]
    async with HttpsClient(peer.target()) as client:
        with pytest.raises(ApiError, match="it is AlreadyExists") as caught:
            await client.create(SECRETS, {}, "n")
    assert caught.value.is_already_exists


@pytest.mark.parametrize(
    ("code", "body", "kind", "reason", "message"),
    [
        (502, "<html>x</html>", "text/html", "", 'GET /x was answered with "502 Bad Gateway"'),
        (404, "404 page not found\n", "text/plain", "NotFound", "the server could not find the requested resource"),
        (404, "no page", "text/plain", "NotFound", 'GET /x was answered with "404 Not Found": no page'),
        (401, '{"detail": 1}', "application/json", "Unauthorized", 'GET /x was answered with "401 Unauthorized"'),
        (302, "", "text/plain", "", 'GET /x was answered with "302 Found"'),
    ],
)
async def test_an_answer_that_is_no_status_is_still_an_error(
    peer: Peer, code: int, body: str, kind: str, reason: str, message: str
) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=code, text=body, content_type=kind)

    peer.answers = [answer]
    async with HttpsClient(peer.target()) as client:
        with pytest.raises(ApiError) as caught:
            await client.raw("GET", "/x")
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert caught.value.message.startswith(message)


async def test_only_a_get_is_repeated_when_the_server_asks_for_it(peer: Peer) -> None:
    clock = VirtualClock()
    async with HttpsClient(peer.target(), clock, request_seconds=1e6) as client:
        peer.answers = [failure(429, "TooManyRequests", **{"Retry-After": "7"}), says({"items": []})]
        before = clock.time()
        listing = asyncio.create_task(client.list(SECRETS))
        while not listing.done():
            await asyncio.sleep(0.005)
            if len(peer.asked) == 1:
                await clock.advance(1)
        assert (await listing) == {"items": []}
        assert clock.time() - before >= 7
        peer.answers = [failure(429, "TooManyRequests", **{"Retry-After": "7"})]
        with pytest.raises(ApiError) as caught:
            await client.create(SECRETS, {}, "n")
        assert caught.value.retry_after == 7
        peer.answers = [failure(503, "ServiceUnavailable")]
        with pytest.raises(ApiError, match="it is ServiceUnavailable"):
            await client.list(SECRETS)


async def test_a_refused_token_is_read_anew_once(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        path.write_text("new")
        return await failure(401, "Unauthorized")(request)

    peer.answers = [refuse, says({}), failure(401, "Unauthorized"), failure(401, "Unauthorized")]
    async with HttpsClient(peer.target(token_file=path)) as client:
        await client.create(SECRETS, {}, "n")
        assert [sent["Authorization"] for sent in peer.headers] == ["Bearer old", "Bearer new"]
        with pytest.raises(ApiError, match="it is Unauthorized"):
            await client.raw("GET", "/version")


async def test_a_plugins_certificate_is_used(peer: Peer, pki: Pki, tmp_path: Path) -> None:
    issued = issue_client(pki, "robot")
    status = {"clientCertificateData": issued.certificate.decode(), "clientKeyData": issued.key.decode()}
    answer = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = kubeconfig.ExecPlugin("cat", (str(tmp_path / "answer"),))
    peer.answers = [says({}), says({})]
    async with HttpsClient(peer.target(exec_plugin=plugin)) as client:
        await client.raw("GET", "/a")
        await client.raw("GET", "/b")
    assert all(peer.peer_names)


async def test_warnings_reach_the_caller(peer: Peer) -> None:
    seen: list[str] = []
    peer.answers = [says({}, Warning='299 - "say \\"hi\\" to v2"')]
    async with HttpsClient(peer.target(), on_warning=seen.append) as client:
        await client.raw("GET", "/x")
    assert seen == ['say "hi" to v2']


async def test_raw_gives_text_where_it_is_not_json(peer: Peer) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="ok")

    peer.answers = [answer]
    async with HttpsClient(peer.target()) as client:
        assert await client.raw("GET", "/readyz", query={"verbose": "true"}) == "ok"
    assert peer.asked[0][1] == "/readyz?verbose=true"


async def test_a_compressed_list_is_read(peer: Peer) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        body = gzip.compress(json.dumps({"items": [{"metadata": {"name": "x" * 200_000}}]}).encode())
        return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    peer.answers = [answer]
    async with HttpsClient(peer.target()) as client:
        assert len((await client.list(SECRETS))["items"][0]["metadata"]["name"]) == 200_000


def event(kind: str, **metadata: Any) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


async def collect(client: HttpsClient, **options: Any) -> list[tuple[str, str]]:
    found = [(event.type, event.object["metadata"]["name"]) async for event in client.watch(SECRETS, "n", **options)]
    return [(kind, name[:5]) for kind, name in found]


async def test_watch_lines_may_be_split_anywhere_and_be_huge(peer: Peer) -> None:
    huge = event("MODIFIED", name="b", blob="x" * 3_000_000)
    whole = event("ADDED", name="a") + huge + event("BOOKMARK", name="c")
    peer.answers = [streams(whole[:5], whole[5:70_000], whole[70_000:-3], whole[-3:])]
    async with HttpsClient(peer.target()) as client:
        found = await collect(client, resource_version="5", timeout_seconds=9, send_initial_events=True)
    assert found == [("ADDED", "a"), ("MODIFIED", "b"), ("BOOKMARK", "c")]
    assert peer.asked[0][1] == (
        "/api/v1/namespaces/n/secrets?watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9"
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    )


async def test_a_connection_that_is_cut_ends_the_watch(peer: Peer) -> None:
    peer.answers = [streams(event("ADDED", name="a"), b'{"type":"ADD', cut=True)]
    async with HttpsClient(peer.target()) as client:
        assert await collect(client) == [("ADDED", "a")]


async def test_an_error_event_is_raised(peer: Peer) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    peer.answers = [streams(event("ADDED", name="a"), line)]
    async with HttpsClient(peer.target()) as client:
        with pytest.raises(ApiError, match="too old") as caught:
            await collect(client)
    assert caught.value.is_gone


async def test_many_watches_leave_room_for_requests(peer: Peer) -> None:
    hold = asyncio.Event()

    async def stay(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", name="a"))
        await hold.wait()
        return response

    peer.answers = [stay] * 8 + [says({"ok": True})]
    async with HttpsClient(peer.target(), connections=1) as client:
        watches = [client.watch(SECRETS) for _ in range(8)]
        assert [(await anext(watch)).type for watch in watches] == ["ADDED"] * 8
        assert await client.raw("GET", "/version") == {"ok": True}
        hold.set()
        for watch in watches:
            await watch.aclose()  # type: ignore[attr-defined]


async def test_a_silent_server_is_given_up_on(peer: Peer) -> None:
    clock, reached = VirtualClock(), asyncio.Event()

    async def stay(_: web.BaseRequest) -> web.StreamResponse:
        reached.set()
        await asyncio.sleep(60)
        return web.Response()

    peer.answers = [stay]
    async with HttpsClient(peer.target(), clock, request_seconds=30) as client:
        asking = asyncio.create_task(client.raw("GET", "/version"))
        await reached.wait()
        await clock.advance(31)
        with pytest.raises(Unreachable, match="no answer in 30 s"):
            await asking


async def test_a_socks_proxy_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="neither http nor https"):
        HttpsClient(KubeTarget("https://x", proxy_url="socks5://p:1"))


async def test_a_closed_client_opens_no_connections(peer: Peer) -> None:
    client = HttpsClient(peer.target())
    peer.answers.append(says({"major": "1"}))
    await client.raw("GET", "/version")
    await client.close()
    with pytest.raises(Unreachable, match="the client is closed"):
        await client.raw("GET", "/version")


def test_a_warning_is_logged_once_and_the_style_of_finalizers_never(caplog: pytest.LogCaptureFixture) -> None:
    tell = LoggedOnce()
    advice = 'metadata.finalizers: "cluster.cluster.x-k8s.io": prefer a domain-qualified finalizer name including a path (/)'
    for text in ("v1 is old", advice, "v1 is old", "v2 is new"):
        tell(text)
    assert [record.getMessage() for record in caplog.records] == ["the server warns: v1 is old", "the server warns: v2 is new"]
