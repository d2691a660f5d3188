"""A door with logins, users and tokens on a management API in memory, asked over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import RawTestServer

from remuda.access.roles.holdings import Holdings
from remuda.access.settings.settings import Settings
from remuda.access.users.passwords import PasswordSecrets, ScryptCost, hashed
from remuda.access.users.user_objects import user_manifest
from remuda.api.management_cattle_io import TOKENS, USERS
from remuda.apiserver.http.connection_limits import ConnectionLimits
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.auth.authenticator import Callers
from remuda.gateway.gateway import Identity
from remuda.gateway.handler import GatewayHandler
from remuda.gateway.server.audit_log import Record
from remuda.gateway.server.routing import RequestContext
from remuda.kube.objects import GroupVersionResource
from tests.unit.gateway.management_gateway import Management, management

Obj = dict[str, Any]

CHEAP = ScryptCost(4, 1, 1)
PASSWORD = "correct horse battery"
LOGIN = "/v3-public/localProviders/local?action=login"
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")


class Nothing:
    """There is no API behind this door."""

    async def answer(self, asked: RequestContext) -> Any:
        from aiohttp import web

        return web.json_response({"user": asked.caller.user.name if asked.caller else None})


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any
    cookies: list[str]

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


@dataclass
class House:
    """`ask` asks as whoever has `token`; nobody without."""

    made: Management
    identity: Identity
    url: str
    session: aiohttp.ClientSession
    settings: dict[str, str]
    audit: list[Record] = field(default_factory=list)

    def record(self, record: Record) -> bool:
        self.audit.append(record)
        return True

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        data = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        async with self.session.request(method, self.url + path, headers=sent, **data) as response:
            text = await response.read()
            try:
                found = await response.json() if text else None
            except (ValueError, aiohttp.ContentTypeError):
                found = text.decode()
            return Answer(response.status, found, response.headers, response.headers.getall("Set-Cookie", []))

    async def login(self, username: str, password: str = PASSWORD, **more: Any) -> Answer:
        return await self.ask("POST", LOGIN, {"username": username, "password": password, **more})

    async def token(self, username: str, **more: Any) -> str:
        answer = await self.login(username, **more)
        assert answer.status == 201, answer.body
        return str(answer.body["token"])

    async def user(self, identity: str, username: str = "", password: str = PASSWORD, **more: Any) -> Obj:
        manifest = {**user_manifest(identity, username or identity), **more}
        user = await self.made.client.create(USERS, manifest)
        if password:
            await PasswordSecrets(self.made.client).put(user, hashed(password, self.made.services.entropy, CHEAP))
        await self.seen()
        return user

    async def seen(self) -> None:
        """Let the caches see what was written."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def allow(self, user: str, *rules: Obj) -> None:
        meta = {"name": f"test-{user}"}
        await self.made.client.create(
            CLUSTER_ROLES, {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": meta, "rules": list(rules)}
        )
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": meta["name"]}
        binding = {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": meta, "subjects": [subject], "roleRef": ref}
        await self.made.client.create(CLUSTER_ROLE_BINDINGS, binding)
        await self.seen()

    async def admin(self, identity: str = "user-admin", username: str = "admin") -> str:
        await self.user(identity, username)
        await self.allow(identity, EVERYTHING)
        return await self.token(username)

    async def tokens(self) -> list[Obj]:
        return (await self.made.client.list(TOKENS))["items"]


RBAC = "rbac.authorization.k8s.io/v1"
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def on(resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Obj:
    rule: Obj = {"apiGroups": ["management.cattle.io"], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


@contextlib.asynccontextmanager
async def house(environment: Mapping[str, str] | None = None, ca: str = "", data_dir: Path | None = None) -> AsyncIterator[House]:
    async with management(environment, ca) as made:
        services = made.services
        services.access = LocalAccess(made.server.rbac)
        services.holdings = Holdings(made.server.source, made.server.rbac)
        services.data_dir = data_dir
        chosen: dict[str, str] = {}
        services.settings = lambda: Settings(
            [{"metadata": {"name": name}, "value": value} for name, value in chosen.items()], environment or {}
        )
        identity = Identity(services, CHEAP)
        callers = Callers(services)
        await made.settle()
        records: list[Record] = []
        here = House(made, identity, "", None, chosen, records)  # type: ignore[arg-type]
        door = GatewayHandler(services, callers, Nothing(), here, ConnectionLimits(made.clock))
        async with RawTestServer(door) as server, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            here.url = str(server.make_url("")).rstrip("/")
            here.session = session
            yield here
