"""The token of a host's plan at the door, by trying: its own Secret and nothing else; and agents that work with it.

Before our own API and before a real kube-apiserver, where the token is that server's to judge and the gateway must not help.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.provisioning.plans.plan import File, Instruction, Plan
from tests.api.harness import Answer, Endpoint
from tests.real.systemagents import KINDS, NAMESPACE, Agent, Api, PlanSecret, asking, both_possible, namespace

from .harness import Gateway, until
from .test_door_kubernetes import Place, place

__all__ = ["place"]

pytestmark = pytest.mark.timeout(600)

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture(
    scope="module", params=[pytest.param("embedded", marks=pytest.mark.story), pytest.param("kubernetes", marks=pytest.mark.real)]
)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    if request.param == "kubernetes":
        found: Place = request.getfixturevalue("place")
        made = Api(found.real.request, found.url, found.ask("/cacerts")[1])
        namespace(made)
        yield made
        return
    with Gateway(tmp_path_factory.mktemp("plans") / "server", "--controllers=-capi,-provisioning") as gateway:
        made = Api(asking(gateway.endpoint), gateway.url, gateway.ca.read_text())
        namespace(made)
        yield made
        assert gateway.tracebacks() == [], gateway.told()[-4000:]


@pytest.fixture(scope="module")
def plans(api: Api, tmp_path_factory: pytest.TempPathFactory) -> list[PlanSecret]:
    directory = tmp_path_factory.mktemp("hosts")
    made = [api.plan(name, directory / name) for name in ("one", "two")]
    for plan in made:
        # A real API server learns of a role a moment after it is made.
        until(lambda plan=plan: asked(api, plan.token, "GET", plan.path).status == 200)  # type: ignore[misc]
    return made


def asked(api: Api, token: str, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    context = ssl.create_default_context(cadata=api.ca)
    host = api.url.removeprefix("https://").partition(":")
    connection = http.client.HTTPSConnection(host[0], int(host[2]), context=context, timeout=60)
    said = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json", **headers}
    try:
        return Endpoint._exchange(connection, method, path, None if body is None else json.dumps(body).encode(), said)
    finally:
        connection.close()


def test_a_host_has_its_own_plan(api: Api, plans: list[PlanSecret]) -> None:
    one = plans[0]
    found = asked(api, one.token, "GET", one.path)
    assert found.status == 200
    secret = {**found.json, "data": {"plan-revision": "MQ=="}}
    assert asked(api, one.token, "PUT", one.path, secret).status == 200
    only = f"{SECRETS}?fieldSelector=metadata.name%3D{one.name}"
    listed = asked(api, one.token, "GET", only)
    assert [each["metadata"]["name"] for each in listed.json["items"]] == [one.name]
    assert asked(api, one.token, "GET", f"{only}&watch=true&timeoutSeconds=1").status == 200


def test_it_writes_its_answers_and_nothing_else_of_its_secret(api: Api, plans: list[PlanSecret]) -> None:
    one = plans[0]

    def put(**changes: Any) -> int:
        found = one.get()
        meta = {**found["metadata"], **changes.pop("metadata", {})}
        data = {**(found.get("data") or {}), **changes.pop("data", {})}
        return asked(api, one.token, "PUT", one.path, {**found, **changes, "metadata": meta, "data": data}).status

    # A real API server learns of a webhook a moment after it is registered.
    until(lambda: put(metadata={"annotations": {"example.com/x": str(time.monotonic())}}) == 403)
    own = one.get()
    tries: list[dict[str, Any]] = [
        {"immutable": True},
        {"data": {"plan": "e30="}},
        {"data": {"mine": "e30="}},
        {"stringData": {"plan": "{}"}},
        {"metadata": {"labels": {"rke.cattle.io/init-node": "true"}}},
        {"metadata": {"annotations": {"rke.cattle.io/join-url": "https://evil.example:9345"}}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}]}},
    ]
    for changes in tries:
        assert put(**changes) == 403, changes
    assert one.get()["metadata"]["resourceVersion"] == own["metadata"]["resourceVersion"]
    assert put(data={"plan-revision": "Mg=="}) == 200


def test_it_has_nothing_else(api: Api, plans: list[PlanSecret]) -> None:
    one, two = plans
    own = one.get()
    other: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": one.name, "namespace": NAMESPACE}],
    }
    tries: list[tuple[str, str, Any]] = [
        ("GET", two.path, None),
        ("PUT", two.path, {**two.get(), "data": {}}),
        ("GET", SECRETS, None),
        ("GET", f"{SECRETS}?watch=true", None),
        ("GET", f"{SECRETS}?fieldSelector=metadata.name%3D{two.name}", None),
        ("GET", f"{SECRETS}?fieldSelector=metadata.name%3D{one.name},type%3Dx", None),
        ("GET", f"{SECRETS}/{one.name}-token", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("DELETE", one.path, None),
        ("PATCH", one.path, {"data": {"a": "Yg=="}}),
        ("POST", SECRETS, other),
        ("POST", f"{accounts}/{two.name}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ("POST", f"{accounts}/{one.name}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        ("GET", accounts, None),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
        ("GET", "/api/v1/namespaces", None),
        ("GET", "/apis/management.cattle.io/v3/settings", None),
        ("GET", "/apis/management.cattle.io/v3/tokens", None),
        ("GET", f"/apis/provisioning.cattle.io/v1/namespaces/{NAMESPACE}/clusters", None),
        ("GET", "/metrics", None),
    ]
    for method, path, body in tries:
        # Two selectors may come down to one name; then it is the name that counts.
        more = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        found = asked(api, one.token, method, path, body, **more)
        allowed = found.status == 200 and path.endswith(f"{one.name},type%3Dx") and found.json["items"] == []
        assert found.status == 403 or allowed, (method, path, found.status)
    assert one.get()["metadata"]["uid"] == own["metadata"]["uid"]


@pytest.mark.parametrize("header", ["Impersonate-User", "X-Remote-User", "Impersonate_User"])
def test_a_plan_token_authenticates_only_its_machine(api: Api, plans: list[PlanSecret], header: str) -> None:
    one, two = plans
    assert asked(api, one.token, "GET", two.path, **{header: "admin"}).status == 403
    assert asked(api, one.token, "GET", two.path, **{header: f"system:serviceaccount:{NAMESPACE}:{two.name}"}).status == 403


@pytest.mark.parametrize(
    "path",
    ["/v3/users?me=true", "/v3/settings", "/v3/tokens", "/k8s/clusters/local/api/v1/secrets", "/v3/connect/progress?machine=a/b"],
)
def test_it_is_no_user_of_the_gateway(api: Api, plans: list[PlanSecret], path: str) -> None:
    assert asked(api, plans[0].token, "GET", path).status in (401, 403)


def test_it_opens_no_tunnel_and_registers_no_host(api: Api, plans: list[PlanSecret]) -> None:
    token = plans[0].token
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "x" * 22 + "==",
    }
    for path in ("/v3/connect", "/v3/connect/register"):
        for shown in ({"X-API-Tunnel-Token": token}, {"Authorization": f"Bearer stv-cluster-{token}"}, {}):
            assert asked(api, token, "GET", path, **upgrade, **shown).status in (400, 401)
    assert (
        asked(api, token, "GET", "/v3/connect/agent", **{"X-Cattle-Id": "a" * 63, "X-Cattle-Role-Worker": "true"}).status == 401
    )


def test_agents_work_with_it(api: Api, tmp_path: Path) -> None:
    both_possible()
    plan = Plan(
        files=(File.of("{root}/made", "x"),),
        instructions=(Instruction(name="a", command="cat", args=("{root}/made",), saveOutput=True),),
    )
    given = {kind: api.plan(f"agent-{kind[:6]}", tmp_path / kind) for kind in KINDS}
    agents = {kind: Agent.remote(kind, secret, api) for kind, secret in given.items()}
    try:
        for kind, agent in agents.items():
            given[kind].give(plan)
            agent.start()
        for kind, agent in agents.items():
            agent.until(lambda kind=kind: given[kind].text("plan-state") == "succeeded")
        ours, theirs = (secret.said() for secret in given.values())
        assert ours == theirs and ours["applied-output"] == {"a": "x\n"}
    finally:
        for agent in agents.values():
            agent.kill()
