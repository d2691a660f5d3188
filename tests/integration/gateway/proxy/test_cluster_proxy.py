"""Clusters through the proxy: who gets in, as whom, and that everything an API does works as if it were not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from remuda.access.agent_objects import IMPERSONATION_NAMESPACE
from remuda.api.management_cattle_io import CLUSTERS
from remuda.apiserver.http import listener
from remuda.apiserver.http.paths import Target
from remuda.gateway.proxy import cluster_proxy as proxying
from remuda.gateway.proxy import connection_pool, tunnel_downstreams
from remuda.gateway.proxy.impersonation import SERVICE_ACCOUNTS, account_name
from remuda.gateway.server.path_validation import judge
from remuda.kube.authorization.users import User
from remuda.tunnel import Session, Stream
from tests.integration.tunnel.pair import listening
from tests.waiting import until

from .proxied_cluster import CLUSTER, CONFIGMAPS, MEMBER, World, bind, world

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


# One world for all of them: whoever breaks something mends it.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def found(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("world")) as made:
        yield made


async def ask(found: World, path: str, token: str = "token-a:admin", method: str = "GET", **more: Any) -> tuple[int, Any]:
    async with found.session(token) as session, session.request(method, found.url + path, **more) as response:
        body = await response.read()
        kind = response.content_type
        return response.status, await response.json() if kind == "application/json" else body


async def who(found: World, token: str, headers: dict[str, str] | list[tuple[str, str]] | None = None) -> tuple[int, Any]:
    status, body = await ask(
        found, "/apis/authentication.k8s.io/v1/selfsubjectreviews", token, "POST", json=REVIEW, headers=headers or {}
    )
    return status, body["status"]["userInfo"] if status == 201 else body


def configmap(name: str, size: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y" * size}}


# --- who gets in --------------------------------------------------------------------------------------------------------


async def test_a_token_and_permission_for_the_cluster_are_required(found: World) -> None:
    assert (await ask(found, "/api", ""))[0] == 401
    status, body = await ask(found, "/api", "token-s:stranger")
    assert status == 403 and body["kind"] == "Status"
    # One that is not there looks the same to them.
    told = set()
    async with found.session("token-s:stranger") as session:
        for cluster in (CLUSTER, "c-not-there"):
            async with session.get(f"http://127.0.0.1:{found.port}/k8s/clusters/{cluster}/api") as response:
                told.add((response.status, (await response.text()).replace(cluster, "<id>")))
    assert len(told) == 1


async def test_a_caller_is_themselves_in_the_cluster(found: World) -> None:
    status, user = await who(found, "token-m:member")
    assert status == 201
    assert user["username"] == "u-member" and set(user["groups"]) == set(MEMBER.groups)
    assert user["extra"] == MEMBER.extra
    assert (await ask(found, "/api/v1/configmaps", "token-m:member"))[0] == 200
    status, body = await ask(found, "/api/v1/namespaces/default/configmaps", "token-m:member", "POST", json=configmap("a"))
    assert status == 403 and 'User "u-member" cannot create' in body["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Remote-User": "root", "X-Remote-Group": "system:masters"},
        {"Impersonate_User": "root", "Impersonate_Group": "system:masters"},
        {"Cookie": "R_SESS=token-a:admin"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Connection": "close, Impersonate-User, Authorization"},
        {"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.Zm9v, v5.channel.k8s.io"},
    ],
)
async def test_identity_headers_of_the_client_have_no_effect(found: World, headers: dict[str, str]) -> None:
    status, user = await who(found, "token-m:member", headers)
    assert status == 201 and user["username"] == "u-member" and "system:masters" not in user["groups"]


async def test_forged_headers_are_noted(found: World) -> None:
    await who(found, "token-m:member", {"X-Remote-User": "root"})
    assert found.asked[-1].forged == ("x-remote-user",) and found.asked[-1].cluster == CLUSTER


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "u-admin"},
        {"Impersonate-User": "u-member", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:kube-system:default"},
        {"Impersonate-User": "u-member", "Impersonate-Extra-Principalid": "local://u-admin"},
        {"Impersonate-User": "u-member", "Impersonate-Uid": "0"},
        {"Impersonate-User": "system:admin"},
    ],
)
async def test_impersonation_needs_permission(found: World, headers: dict[str, str]) -> None:
    status, body = await who(found, "token-m:member", headers)
    assert status == 403, body
    assert found.asked[-1].impersonated == headers["Impersonate-User"]


async def test_groups_without_a_user_are_a_mistake(found: World) -> None:
    assert (await who(found, "token-m:member", {"Impersonate-Group": "team"}))[0] == 400


async def test_a_caller_may_leave_groups_of_theirs_behind(found: World) -> None:
    status, user = await who(found, "token-m:member", {"Impersonate-User": "u-member", "Impersonate-Group": "team"})
    assert status == 201 and set(user["groups"]) == {"team", "system:authenticated"}


async def test_a_user_who_may_impersonate_does(found: World) -> None:
    may = [{"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]}]
    await bind(found.management, "u-admin", "may-be-anybody", may)
    status, user = await who(
        found,
        "token-a:admin",
        [("Impersonate-User", "u-member"), ("Impersonate-Group", "team")],
    )
    assert status == 201 and user["username"] == "u-member" and "team" in user["groups"]
    await found.below.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}},
    )
    status, user = await who(found, "token-a:admin", {"Impersonate-User": "system:serviceaccount:default:robot"})
    assert status == 201 and user["username"] == "system:serviceaccount:default:robot"


async def test_a_token_id_of_another_user_can_not_be_impersonated(found: World) -> None:
    may = [
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/requesttokenid"], "verbs": ["impersonate"]},
    ]
    await bind(found.management, "u-admin", "may-say-who-came", may)
    headers = {"Impersonate-User": "u-member", "Impersonate-Extra-Requesttokenid": "token-of-nobody"}
    status, body = await who(found, "token-a:admin", headers)
    assert status == 403 and "token" in body["message"]


# --- where the cluster is not -------------------------------------------------------------------------------------------


async def test_a_cluster_that_is_not_there_yet_says_so(found: World) -> None:
    async with found.session() as session, session.get(f"http://127.0.0.1:{found.port}/k8s/clusters/gone/api") as response:
        assert response.status == 404
    await found.management.patch(CLUSTERS, CLUSTER, {"status": {"conditions": [{"type": "Provisioned", "status": "Unknown"}]}})

    async def refused() -> bool:
        async with found.session() as session, session.get(found.url + "/api") as response:
            if response.status != 503:
                return False
            assert response.headers["Retry-After"]
            assert "not provisioned" in await response.text()
            return True

    await until(refused, "the end of the cluster")
    await found.cluster_status()

    async def served() -> bool:
        return (await ask(found, "/api"))[0] != 503

    await until(served)


async def test_an_agent_that_is_away_for_a_moment_is_waited_for(found: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine the moment is long; that it was connected until now makes it longer.
    monkeypatch.setattr(proxying, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(proxying, "RECONNECT_SECONDS", 60.0)
    await found.leave()
    asking = asyncio.create_task(ask(found, "/api"))
    await asyncio.sleep(0.1)
    assert not asking.done()
    await found.join()
    assert (await asking)[0] == 200


async def test_an_agent_that_stays_away_is_not_waited_for_long(found: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(proxying, "RECONNECT_SECONDS", 0.1)
    await found.leave()
    async with found.session() as session, session.get(found.url + "/api") as response:
        assert response.status == 503 and int(response.headers["Retry-After"]) > 0
        assert (await response.json())["message"] == "cluster agent disconnected"
    await found.join()


async def test_a_tunnel_that_is_cut_ends_what_goes_through_it(found: World) -> None:
    async with found.session() as session:
        url = f"{found.url}/api/v1/configmaps?watch=true"
        async with session.get(url) as response:
            assert response.status == 200
            found.services.tunnels.drop(CLUSTER, "revoked")
            with pytest.raises(aiohttp.ClientError):
                while await response.content.readany():
                    pass
    found.agents.pop(CLUSTER)[1].cancel()
    await found.join()


async def test_requests_go_on_through_the_second_agent(found: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of the first one has lost power: its connection still stands, and nothing comes back through it."""
    monkeypatch.setattr(tunnel_downstreams, "_OTHER_AGENT_AFTER", 0.1)
    tunnels = found.services.tunnels
    before = found.agents.pop(CLUSTER)
    try:
        (first,) = tunnels.sessions(CLUSTER)
        assert (await ask(found, "/api/v1/configmaps"))[0] == 200
        client, second = found.tunnel(CLUSTER)
        found.agents[CLUSTER] = (client, second)
        await until(lambda: len(tunnels.sessions(CLUSTER)) == 2)
        async with listening(lambda *_: asyncio.Event().wait()) as nowhere:
            opened: list[str] = []

            def into_nothing(network: str, address: str) -> Stream:
                opened.append(address)
                return Session.open(first, network, nowhere)

            monkeypatch.setattr(first, "open", into_nothing)
            reach = found.downstreams.reach(CLUSTER)
            assert reach is not None
            for line in reach.pool._idle:
                line.stream.close()
            # No ping of it is missing yet; the other one is tried after a moment.
            assert (await ask(found, "/api/v1/configmaps"))[0] == 200
            assert opened
            # So do the requests of this server's own controllers.
            opened.clear()
            connector = reach.connector(1, reach._context)
            async with aiohttp.ClientSession(connector=connector) as http, http.get(f"https://{reach.address}/version") as answer:
                assert answer.status in (200, 401)
            assert opened
    finally:
        before[1].cancel()
        await asyncio.gather(before[1], return_exceptions=True)
        await until(lambda: len(tunnels.sessions(CLUSTER)) == 1)
    assert (await ask(found, "/api/v1/configmaps"))[0] == 200


async def test_connections_through_a_silent_agent_are_not_taken_again(found: World) -> None:
    tunnels = found.services.tunnels
    reach = found.downstreams.reach(CLUSTER)
    assert reach is not None and (await ask(found, "/api/v1/configmaps"))[0] == 200
    idle = reach.pool.idle
    assert idle
    _, second = found.tunnel(CLUSTER)
    try:
        await until(lambda: len(tunnels.sessions(CLUSTER)) == 2)
        first, other = tunnels.sessions(CLUSTER)
        first.heard_at -= 60
        streams = other.streams
        assert (await ask(found, "/api/v1/configmaps"))[0] == 200
        assert other.streams == streams + 1 and reach.pool.idle == 1
    finally:
        first.heard_at += 60
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await until(lambda: len(tunnels.sessions(CLUSTER)) == 1)


async def test_a_removed_account_is_made_again(found: World) -> None:
    assert (await ask(found, "/api/v1/configmaps"))[0] == 200
    name = account_name("u-admin")
    await found.below.delete(SERVICE_ACCOUNTS, name, IMPERSONATION_NAMESPACE)
    assert (await ask(found, "/api/v1/configmaps"))[0] == 200
    await found.below.delete(SERVICE_ACCOUNTS, name, IMPERSONATION_NAMESPACE)
    path = "/api/v1/namespaces/default/configmaps"
    status, _ = await ask(found, path, method="POST", json=configmap("again"))
    # Asked once more by the client, since its body was passed on already.
    assert status in (201, 503)
    if status == 503:
        assert (await ask(found, path, method="POST", json=configmap("again")))[0] == 201


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "TRACK"])
async def test_methods_that_no_api_has_go_nowhere(found: World, method: str) -> None:
    target = judge(f"/k8s/clusters/{CLUSTER}/api")
    assert isinstance(found.services.routes.find(method, target), frozenset)


async def test_no_shell_where_the_feature_is_off(found: World) -> None:
    path = "/api/v1/namespaces/default/pods/x/exec?command=sh&stdout=true"
    assert (await ask(found, path, method="POST"))[0] != 403
    found.features["pod-shell"] = False
    for refused in (path, "/api/v1/namespaces/default/pods/x/exec/", "/api/v1/namespaces/default/pods/x/attach"):
        status, body = await ask(found, refused, method="POST")
        assert status == 403 and body["message"] == "pod-shell feature is disabled"
    found.features.clear()


# --- what goes through --------------------------------------------------------------------------------------------------


async def test_everything_an_object_goes_through(found: World) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    assert (await ask(found, path, method="POST", json=configmap("a")))[0] == 201
    assert (await ask(found, path + "/a"))[1]["data"] == {"x": "y"}
    applied = {"Content-Type": "application/apply-patch+yaml"}
    status, body = await ask(
        found,
        path + "/b?fieldManager=me&force=true",
        method="PATCH",
        data=b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"z":"1"}}',
        headers=applied,
    )
    assert status == 201 and body["metadata"]["managedFields"][0]["manager"] == "me"
    assert (await ask(found, path + "/a", method="DELETE"))[0] == 200
    assert (await ask(found, path + "/a"))[0] == 404
    async with found.session() as session, session.head(found.url + "/healthz") as response:
        assert response.status == 200 and await response.read() == b""


async def test_large_objects_and_lists_go_through_whole(found: World) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(6):
        body = configmap(f"big-{number}", 900_000)
        assert (await ask(found, path, method="POST", json=body))[0] == 201
    status, listed = await ask(found, path)
    assert status == 200
    assert [len(item["data"]["x"]) for item in listed["items"] if item["metadata"]["name"].startswith("big")] == [900_000] * 6


async def test_a_watch_delivers_and_leaves_nothing_behind(found: World) -> None:
    async with found.session() as session:
        version = (await ask(found, "/api/v1/configmaps"))[1]["metadata"]["resourceVersion"]
        url = f"{found.url}/api/v1/configmaps?watch=true&resourceVersion={version}"
        async with session.get(url) as response:
            assert response.headers["Content-Security-Policy"] == "sandbox"
            await found.below.create(CONFIGMAPS, configmap("seen"))
            assert b'"seen"' in await response.content.readline()
            response.close()
    reach = found.downstreams.reach(CLUSTER)
    assert reach is not None
    await until(lambda: reach.pool.busy == 0)


async def test_connections_are_shared_by_all_users(found: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # None of those that were there before goes meanwhile.
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 3600.0)
    reach = found.downstreams.reach(CLUSTER)
    assert reach is not None
    before = reach.pool.idle
    for token in ("token-a:admin", "token-m:member") * 10:
        assert (await ask(found, "/api/v1/namespaces", token))[0] == 200
    assert reach.pool.idle == max(before, 1)


async def test_three_hundred_watches_at_once(found: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 300
    # All shake hands at once, which takes a slow machine longer than anybody is waited for.
    monkeypatch.setattr(connection_pool, "CONNECT_SECONDS", 240.0)
    monkeypatch.setattr(listener, "_HANDSHAKE_SECONDS", 240.0)
    path = f"{found.url}/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3Dbell"
    version = (await ask(found, "/api/v1/configmaps"))[1]["metadata"]["resourceVersion"]
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": "Bearer token-a:admin"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        watches = await asyncio.gather(*(session.get(f"{path}&resourceVersion={version}") for _ in range(count)))
        assert all(watch.status == 200 for watch in watches)
        await found.below.create(CONFIGMAPS, configmap("bell"))
        lines = await asyncio.gather(*(watch.content.readline() for watch in watches))
        assert all(b'"bell"' in line for line in lines)
        for watch in watches:
            watch.close()
    reach = found.downstreams.reach(CLUSTER)
    assert reach is not None
    await until(lambda: reach.pool.busy == 0)


async def test_a_cluster_can_not_redirect_to_another_one(found: World) -> None:
    """Whoever follows shows their token again, and does there what they wanted to do here."""

    async def away(request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": target.query["to"], "X-Accel-Redirect": "/v3/tokens"})

    found.server.handler.paths["/away"] = away
    host = f"127.0.0.1:{found.port}"
    reach = found.downstreams.reach(CLUSTER)
    assert reach is not None
    leading = {
        "/api": f"/k8s/clusters/{CLUSTER}/api",
        f"https://{reach.address}/api": f"/k8s/clusters/{CLUSTER}/api",
        "../k8s/clusters/c-other/api": f"/k8s/clusters/{CLUSTER}/k8s/clusters/c-other/api",
        "https://login.example/": "https://login.example/",
        f"http://{host}/k8s/clusters/c-other/api/v1/namespaces/prod": None,
        f"https://{host}/v3/tokens": None,
        f"//{host}/v3/tokens": None,
    }
    async with found.session() as session:
        for to, seen in leading.items():
            asked = session.delete(f"{found.url}/away", params={"to": to}, allow_redirects=False)
            async with asked as response:
                assert (response.status, response.headers.get("Location")) == (307, seen)
                assert "X-Accel-Redirect" not in response.headers
    del found.server.handler.paths["/away"]
