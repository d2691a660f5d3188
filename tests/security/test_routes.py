"""Everything that can be asked for, by the programs' own lists, without a credential and with ones that are not good.

What is let through is what docs/security.md lists, and nothing on that page is not there: a route that nobody listed fails here.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from remuda.api.management_cattle_io import TOKENS
from remuda.apiserver.http.listener import Listener
from remuda.app.attached import Attached
from remuda.capi.admission import admitted as core_rules
from remuda.gateway.gateway import Gateway
from remuda.gateway.rancher.norman.types import TYPES
from remuda.gateway.server.routing import Access, Route
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.objects import GroupVersionResource
from remuda.lab.distro.cluster.supervisor import SupervisorHandler
from remuda.lab.distro.config import settings
from remuda.lab.distro.pki import authorities
from remuda.lab.distro.state import ServerState
from remuda.runtime.webhook_server import WebhookServer
from remuda.tunnel.clusteragent.token_review import Reviewer
from tests.integration.gateway.running_gateway import Standing, standing, until
from tests.unit.gateway.registration.test_registration_tokens import crt_secret

from .page import OPEN, OWN, Row, at
from .test_holes import powerful

NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SECRETS = GroupVersionResource("", "v1", "secrets")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
CLUSTER = "c-m-bcdfg245"
# What a path of a pattern is asked for with.
FILLED = {"cluster": CLUSTER, "id": CLUSTER, "kind": "localProviders", "provider": "local", "namespace": "fleet-default"}
# Where a user may ask without any role, for what is their own or nobody's.
OWN_AFFAIRS = {
    "GET /v3/tokens",
    "POST /v3/tokens",
    "GET /v3/users",
    "POST /v1/logout",
    "GET /v1-remuda/versions",
    "GET /v1-remuda/attention",
} | {f"GET {root}{path}" for root in ("/v1", "/k8s/clusters/local/v1") for path in ("", "/schemas", "/counts")}
OWN_AFFAIRS |= {
    f"{request}{plural}" for request in ("GET /v1/userpreference", "POST /v1/ext.cattle.io.selfuser") for plural in ("", "s")
}
OWN_AFFAIRS |= {f"GET /v1-{name}-release/{page}" for name in ("k3s", "rke2") for page in ("releases", "channels")}
OWN_AFFAIRS |= {"GET /v3", "GET /v3/schemas", "GET /v3/principals"}
OWN_AFFAIRS |= {f"GET /v3/{scope}/{CLUSTER}/schemas" for scope in ("clusters", "projects")}
# Lists that show a user without any role nothing.
EMPTY = {f"GET {type_.path}" for type_ in TYPES} | {
    "GET /v3/cloudcredentials",
    "GET /v3/clusterregistrationtoken",
    "GET /v3/clusterregistrationtokens",
}
OPEN_ACCESS = (Access.PUBLIC, Access.ANYONE)
# Where everybody may look who is known.
DISCOVERY = ("api", "openapi", "version", "healthz", "livez", "readyz")
# Subresources that would make the server connect to what a caller names.
PASSING_ON = {"proxy", "exec", "attach", "portforward", "log"}


def request_of(route: Route) -> str:
    return f"{' '.join(sorted(route.methods))} /{'/'.join(route.pattern)}"


def path_of(route: Route) -> str:
    parts = [FILLED.get(part.strip("{}*"), "x") if part.startswith("{") else part for part in route.pattern]
    if route.pattern[-1] == "{path*}" and parts[:2] in (["k8s", "clusters"], ["k8s", "proxy"]):
        parts[-1] = "api/v1/secrets"
    return "/" + "/".join(parts)


def methods_of(route: Route) -> list[str]:
    return sorted(route.methods - {"*", "HEAD", "OPTIONS"}) or ["PUT"]


# --- credentials ----------------------------------------------------------------------------------------------------------


@dataclass
class Shown:
    """What is shown, and whether the Kubernetes API knows whose it is, and lets them do nothing."""

    name: str
    authorization: str
    known: bool = False


async def wrong_credentials(place: Standing) -> list[Shown]:
    """Of every kind, none of which opens anything but what is its own."""
    user, other = "u-somebody", "u-disabled"
    await place.user(user)
    await place.user(other)
    expired = await place.token(user, ttl=1, expiresAt="2020-01-01T00:00:00Z")
    bound = await place.token(user, cluster="c-m-other")
    revoked, disabled = await place.token(user), await place.token(other)
    await until(lambda: _status(place, disabled.text, 200))
    await place.client.patch(GroupVersionResource("management.cattle.io", "v3", "users"), other, {"enabled": False})
    await until(lambda: _status(place, revoked.text, 200))
    await place.client.delete(TOKENS, revoked.name)
    await until(lambda: _status(place, revoked.text, 401))
    await until(lambda: _status(place, disabled.text, 401))
    for namespace in (CLUSTER, "fleet-default"):
        await place.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name, text in (("default-token", "r" * 54), ("node-token", "n" * 54)):
        await place.client.create(SECRETS, crt_secret(CLUSTER, name, token=text), CLUSTER)
    await until(lambda: place.gateway.registrations.cluster_of("n" * 54))
    bearers = {
        "garbage": "garbage",
        "a token that nobody has": "token-abcde:" + "x" * 54,
        "a forged JWT": f"eyJhbGciOiJub25lIn0.{base64.urlsafe_b64encode(b'{}').decode()}.",
        "an expired token": expired.text,
        "a revoked token": revoked.text,
        "a disabled user's token": disabled.text,
        "another cluster's token": bound.text,
        "a registration token": "r" * 54,
        "a node token": "n" * 54,
        "an agent's bearer": "stv-cluster-" + "x" * 54,
    }
    found = [Shown("nothing", ""), *(Shown(name, f"Bearer {text}") for name, text in bearers.items())]
    found.append(Shown("a Basic that is none", "Basic " + base64.b64encode(b"admin:admin").decode()))
    plan = await plan_token(place)
    return [*found, Shown("a plan's token", f"Bearer {plan}", known=True)]


async def _status(place: Standing, token: str, status: int) -> bool:
    answer = await place.get("/v3/users?me=true", headers={"Authorization": f"Bearer {token}"})
    return answer.status == status


async def plan_token(place: Standing) -> str:
    """Of an account that may read one Secret, as the host of a machine has it."""
    meta = {"name": "demo-plan", "namespace": "fleet-default"}
    await place.client.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}, "fleet-default")
    await place.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta}, "fleet-default")
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["demo-plan"], "verbs": ["get", "watch", "update"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
    await place.client.create(ROLES, role, "fleet-default")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "demo-plan"},
        "subjects": [{"kind": "ServiceAccount", "name": "demo-plan", "namespace": "fleet-default"}],
    }
    await place.client.create(BINDINGS, binding, "fleet-default")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = await place.client.create(ACCOUNTS, request, "fleet-default", name="demo-plan", subresource="token")
    token = str(made["status"]["token"])
    answer = await place.get("/api/v1/namespaces/fleet-default/secrets/demo-plan", headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 200, "it is good for what it is for"
    return token


# --- the server's own paths -----------------------------------------------------------------------------------------------


async def test_every_path_of_the_server_that_needs_no_user_is_listed() -> None:
    async with standing() as place:
        fronting = Gateway(dataclasses.replace(place.gateway.ground, healthz=True))
        found = {request_of(route) for route in fronting.services.routes if route.access in OPEN_ACCESS}
        assert {request_of(route) for route in place.gateway.services.routes if route.access in OPEN_ACCESS} <= found
    assert found == at("server", OPEN).keys() | at("server", OWN).keys()


async def test_no_other_path_of_the_server_answers_without_a_valid_credential() -> None:
    async with standing() as place:
        shown = await wrong_credentials(place)
        tenant = await place.token("u-somebody")
        await until(lambda: _status(place, tenant.text, 200))
        for route in place.gateway.services.routes:
            path = path_of(route)
            for method in methods_of(route):
                what = f"{method} {path}"
                row = at("server", OPEN).get(request_of(route)) or at("server", OWN).get(request_of(route))
                for each in shown:
                    headers = {"Authorization": each.authorization} if each.authorization else {}
                    answer = await place.get(path, method=method, headers=headers)
                    _judge(what, each, row, answer.status)
                if what in EMPTY:
                    answer = await place.get(path, tenant, method)
                    assert (answer.status, (await answer.json())["data"]) == (200, []), (what, "a tenant")
                elif row is None and what not in OWN_AFFAIRS:
                    answer = await place.get(path, tenant, method)
                    assert answer.status >= 400 and answer.status != 401, (what, "a tenant", answer.status)


def _judge(what: str, shown: Shown, row: Row | None, status: int) -> None:
    if row is None:
        assert status == 401, (what, shown.name, status)
    elif not row.takes:
        assert status not in (401, 403) or "localProviders" in what or "login" in what, (what, shown.name, status)
    elif shown.name.removeprefix("a ") not in row.takes:
        # 400 is the host that does not say its id, or the tunnel that does not say its cluster.
        assert status in row.refusals, (what, shown.name, status)


async def test_a_host_that_says_its_id_is_still_asked_for_its_token() -> None:
    """The first question is who it is; here that is answered, so that the token alone decides."""
    async with standing() as place:
        for each in await wrong_credentials(place):
            for request, row in at("server", OWN).items():
                if "/v3/connect/" not in request or each.name.removeprefix("a ") in row.takes:
                    continue
                method, _, path = request.partition(" ")
                headers = {"X-Cattle-Id": "a1" * 31, "X-API-Tunnel-Token": "x" * 54}
                if each.authorization:
                    headers["Authorization"] = each.authorization
                answer = await place.get(path, method=method, headers=headers, json={"lines": []} if method == "POST" else None)
                assert answer.status in row.refusals, (request, each.name, answer.status)


# --- the Kubernetes API ---------------------------------------------------------------------------------------------------


def _resources(place: Standing) -> Iterator[str]:
    for resource in place.server.registry.resources():
        for version in resource.versions.values():
            base = f"/apis/{resource.group}" if resource.group else "/api"
            yield f"{base}/{version.name}/{resource.name}"


async def test_the_api_requires_a_credential_and_health_does_not() -> None:
    async with standing() as place:
        handler = place.server.handler
        open_ = at("API", OPEN).keys()
        pages = {path for path in (*handler.paths, *(prefix.rstrip("/") for prefix in handler.prefixes)) if path}
        assert open_ <= pages
        shown = await wrong_credentials(place)
        for path in sorted(
            pages | {"/api/v1", "/apis/apps/v1", "/nothing", "/logs", "/debug/pprof", "/metrics/", "/openapi/v3/x"}
        ):
            for each in (each for each in shown if not each.known):
                headers = {"Authorization": each.authorization} if each.authorization else {}
                answer = await place.get(path, headers=headers)
                expected = {200, 500} if path in open_ and not each.authorization else {401}
                assert answer.status in expected, (path, each.name, answer.status)
        for path in _resources(place):
            for each in shown:
                headers = {"Authorization": each.authorization} if each.authorization else {}
                for method in ("GET", "POST", "DELETE") if each.name in ("nothing", "garbage") else ("GET",):
                    answer = await place.get(path, method=method, headers=headers)
                    assert answer.status == (403 if each.known else 401), (method, path, each.name, answer.status)


async def test_a_user_without_a_role_sees_nothing_of_any_kind() -> None:
    async with standing() as place:
        await place.user("u-nobody")
        token = await place.token("u-nobody")
        await until(lambda: _status(place, token.text, 200))
        for path in _resources(place):
            for accept in ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"):
                answer = await place.get(path, token, headers={"Accept": accept})
                # Of some kinds everybody may list what is theirs, which is nothing here.
                listed = (await answer.json()) if answer.status == 200 else {}
                assert answer.status == 403 or not (listed.get("items") or listed.get("rows")), (path, answer.status)


async def test_pages_of_the_api_are_for_discovery_or_need_permission() -> None:
    """Kubernetes lets everybody it knows discover; whatever else there is takes a role."""
    async with standing() as place:
        await place.user("u-nobody")
        token = await place.token("u-nobody")
        await until(lambda: _status(place, token.text, 200))
        handler = place.server.handler
        for path in sorted({*handler.paths, *handler.prefixes} - {""}):
            for method in ("GET", "POST"):
                answer = await place.get(path, token, method)
                if not path.strip("/").startswith(DISCOVERY) or (path, method) == ("/", "GET"):
                    assert answer.status == 403, (method, path, answer.status)


async def test_the_api_passes_nothing_on_to_where_a_caller_says() -> None:
    async with standing() as place:
        found = {
            (resource.name, name)
            for resource in place.server.registry.resources()
            for version in resource.versions.values()
            for name in version.subresources
        }
        assert found and not {each for each in found if each[1] in PASSING_ON}
        token = await powerful(place, "u-admin")
        await until(lambda: _status(place, token.text, 200))
        for path in (
            "/api/v1/namespaces/default/services/https:169.254.169.254:80/proxy/latest",
            "/api/v1/nodes/169.254.169.254/proxy/metrics",
            "/api/v1/namespaces/default/pods/x:80/proxy/",
        ):
            # Also not for whoever may do everything.
            assert (await place.get(path, token)).status == 404, path


# --- other doors ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def supervisor(directory: Path) -> AsyncIterator[tuple[SupervisorHandler, str]]:
    told = settings.of({"node-name": "n", "node-ip": "127.0.0.1"}, directory)
    made = authorities.ensure(told.paths, SYSTEM_CLOCK, Entropy(5))
    door = SupervisorHandler(ServerState(told, made, "of-servers", "of-nodes", SYSTEM_CLOCK, Entropy(5)))
    listener = Listener(door, None)
    await listener.open("127.0.0.1", 0)
    try:
        yield door, f"http://127.0.0.1:{listener.port}"
    finally:
        await listener.close(0.0)


async def test_every_path_of_a_clusters_supervisor_is_listed(tmp_path: Path) -> None:
    import aiohttp

    async with supervisor(tmp_path) as (door, url), aiohttp.ClientSession() as http:
        pages = {f"{method} {path}": allowed for (method, path), (allowed, _) in door._pages.items()}
        assert {page for page, allowed in pages.items() if not allowed} == at("supervisor", OPEN).keys()
        assert {page for page, allowed in pages.items() if allowed} == at("supervisor", OWN).keys()
        for page, row in at("supervisor", OWN).items():
            method, _, path = page.partition(" ")
            tries = ["", "Bearer of-servers", _basic("server", "wrong"), _basic("node", "of-servers"), _basic("", "")]
            for tried in tries:
                async with http.request(method, url + path, headers={"Authorization": tried}) as answer:
                    assert answer.status in row.refusals, (page, tried)
            if row.takes.endswith("of servers"):
                async with http.request(method, url + path, headers={"Authorization": _basic("node", "of-nodes")}) as answer:
                    assert answer.status == 403, page


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_every_path_of_the_small_doors_is_listed() -> None:
    async with standing() as place:
        reviewer = Reviewer(place.client, SYSTEM_CLOCK, Rng(1))
        routes = reviewer.application().router.routes()
        told = {f"{route.method} {route.resource.canonical}" for route in routes if route.resource and route.method != "HEAD"}
        assert told == at("kube-api-auth", OPEN).keys()
    server = WebhookServer(tuple(core_rules()), None, None, SYSTEM_CLOCK, Rng(1))  # type: ignore[arg-type]
    found = {f"{route.method} {re.sub('-.*', '-*', route.path)}" for route in server._routes()}
    assert found == at("webhooks", OPEN).keys()
    # Its answers are made where it opens them.
    source = Path(Attached._open_endpoints.__code__.co_filename).read_text()
    body = source.partition("def _open_endpoints")[2].partition("\n    async def ")[0].partition("\n    @")[0]
    assert {f"GET {path}" for path in re.findall(r'"(/\w+)": lambda', body)} == at("controllers", OPEN).keys()
