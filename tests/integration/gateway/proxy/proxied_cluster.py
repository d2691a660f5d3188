"""A gateway with one cluster behind a tunnel: management API in memory, the cluster's API with TLS, an agent in between."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from remuda import kcm
from remuda.access.settings.settings import Features
from remuda.api import crds
from remuda.api.management_cattle_io import CLUSTERS, GROUP, USERS
from remuda.apiserver.http import responses
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.proxy.cluster_proxy import Proxy
from remuda.gateway.proxy.impersonation import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS, Impersonation
from remuda.gateway.proxy.reverse_proxy import ClientGone
from remuda.gateway.proxy.tunnel_downstreams import SECRETS, TunnelDownstreams
from remuda.gateway.server.dependencies import Services
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import Caller, RequestContext
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError, unauthorized
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informers
from remuda.tunnel import Server as Endpoint
from remuda.tunnel import TunnelClient, TunnelServer
from tests.integration.tunnel.pair import TOKEN
from tests.integration.tunnel.peer_door import PeerDoor
from tests.waiting import until

Obj = dict[str, Any]
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
CLUSTER = "c-m-abcdefgh"
KINDS = ("clusters", "users", "tokens")
_RBAC = "rbac.authorization.k8s.io"

ADMIN = User("u-admin", "u-admin", ("system:authenticated", "system:cattle:authenticated"), {"username": ["admin"]})
MEMBER = User(
    "u-member",
    "u-member",
    ("team", "system:authenticated", "system:cattle:authenticated"),
    {
        "username": ["mia"],
        "principalid": ["local://u-member"],
        "requesttokenid": ["token-1"],
        "requesthost": ["remuda.example"],
    },
)
STRANGER = User("u-stranger", "u-stranger", ("system:authenticated",))
TOKENS = {"token-a:admin": ADMIN, "token-m:member": MEMBER, "token-s:stranger": STRANGER}


class Ours:
    ca = ""


async def tunnel_key(request: web.Request) -> str | None:
    return request.headers.get("X-Key")


async def bind(client: Any, user: str, role: str, rules: list[Obj] | None = None) -> None:
    """Let a user have a role, made here when its rules are given."""
    if rules is not None:
        metadata = {"name": role}
        await client.create(
            CLUSTER_ROLES, {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
        )
    await client.create(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{role}-{user}"},
            "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": user}],
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        },
    )


@dataclass
class World:
    management: InProcessClient
    services: Services
    downstreams: TunnelDownstreams
    impersonation: Impersonation
    proxy: Proxy
    below: InProcessClient
    server: Server
    endpoint: str
    pki: Pki
    port: int = 0
    features: dict[str, bool] = field(default_factory=dict)
    asked: list[RequestContext] = field(default_factory=list)
    agents: dict[str, tuple[TunnelClient, asyncio.Task[None]]] = field(default_factory=dict)
    # The server to which agents connect, if it is another one.
    elsewhere: PeerDoor | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/k8s/clusters/{CLUSTER}"

    def tunnel(self, cluster: str) -> tuple[TunnelClient, asyncio.Task[None]]:
        client = TunnelClient(
            Endpoint(self.elsewhere.url if self.elsewhere else f"ws://127.0.0.1:{self.port}/v3/connect", proxy=""),
            lambda: {"X-Key": cluster, "X-API-Tunnel-Token": TOKEN},
            lambda *_: True,
            SYSTEM_CLOCK,
            Rng(2),
        )
        return client, asyncio.create_task(client.run())

    async def join(self, cluster: str = CLUSTER) -> None:
        self.agents[cluster] = client, _ = self.tunnel(cluster)
        await until(lambda: client.session is not None and self.services.tunnels.has_session(cluster))

    async def leave(self, cluster: str = CLUSTER) -> None:
        _, task = self.agents.pop(cluster)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not self.services.tunnels.has_session(cluster))

    def session(self, token: str = "token-a:admin") -> aiohttp.ClientSession:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return aiohttp.ClientSession(headers=headers)

    async def cluster_status(self, **status: Any) -> None:
        conditions = [{"type": "Provisioned", "status": "True"}]
        await self.management.patch(CLUSTERS, CLUSTER, {"status": {"conditions": conditions, **status}})

    async def known(self) -> None:
        """Until the caches know the cluster."""
        await until(lambda: self.downstreams.reach(CLUSTER) is not None)

    # --- the gateway's listener, with just enough of a door -----------------------------------------------------------

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/peer":
            return await self.services.tunnels.accept_server(request, "elsewhere")
        if request.path == "/v3/connect":
            return await self.services.tunnels.handle(request)  # type: ignore[arg-type]
        asked = RequestContext(request, judge(request.raw_path), "127.0.0.1")
        self.asked.append(asked)
        try:
            found = self.services.routes.find(request.method, asked.target)
            assert isinstance(found, tuple)
            user = TOKENS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
            if user is None:
                raise unauthorized()
            asked.caller = Caller(user)
            asked.parameters = found[1]
            return await found[0].answer(asked)
        except ApiError as error:
            asked.why = error.message
            return responses.error(error, request)
        except ClientGone:
            asked.why = "gone"
            raise


@asynccontextmanager
async def world(path: Path, *, elsewhere: bool = False) -> AsyncIterator[World]:
    """`elsewhere`: agents connect to another server, and the gateway reaches them through that one."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(PeerDoor()) if elsewhere else None
        pki = Pki.ensure(path / "pki", ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
        below = await Server.open(Config(data_dir=None, pki=pki, port=0))
        stack.push_async_callback(below.close)
        await below.listen()
        management = await Server.open(Config(data_dir=None))
        stack.push_async_callback(management.close)
        client, there = InProcessClient(management, manager="test"), InProcessClient(below, manager="test")
        keepers = [asyncio.create_task(kcm.run(InProcessClient(server), SYSTEM_CLOCK, Rng(3))) for server in (management, below)]
        stack.push_async_callback(_stopped, keepers)
        for crd in crds([GROUP]):
            if crd["spec"]["names"]["plural"] in KINDS:
                await client.create(CRDS, crd)
        await until(lambda: _served(management))
        made = await _assembled(management, client, below, there, pki, stack, other)
        await made.known()
        yield made
        for _, task in made.agents.values():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _stopped(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _served(server: Server) -> bool:
    return all(server.api.registry.find(GROUP, "v3", kind) is not None for kind in KINDS)


async def _assembled(
    management: Server,
    client: InProcessClient,
    below: Server,
    there: InProcessClient,
    pki: Pki,
    stack: AsyncExitStack,
    elsewhere: PeerDoor | None,
) -> World:
    rng = Rng(1)
    services = Services(
        client=client,
        informers=Informers(client, SYSTEM_CLOCK, rng),
        clock=SYSTEM_CLOCK,
        rng=rng,
        entropy=Entropy(),
        access=LocalAccess(management.api.authorizer),
        authority=Ours(),
        tunnels=TunnelServer(tunnel_key, SYSTEM_CLOCK, rng),
        environment={},
    )
    features: dict[str, bool] = {}
    services.features = lambda: Features(
        [{"metadata": {"name": name}, "spec": {"value": value}} for name, value in features.items()]
    )
    downstreams = TunnelDownstreams(services)
    impersonation = Impersonation(services, downstreams)
    made = World(
        client,
        services,
        downstreams,
        impersonation,
        Proxy(services, downstreams, impersonation),
        there,
        below,
        below.url,
        pki,
        features=features,
        elsewhere=elsewhere,
    )
    listener = Listener(made.handle, None)
    await listener.open("127.0.0.1", 0)
    made.port = listener.port
    stack.push_async_callback(listener.close, 0)
    running = [asyncio.create_task(services.informers.run()), *(asyncio.create_task(run()) for run in services.beside)]

    stack.push_async_callback(_stopped, running)
    await _stock(made)
    if elsewhere is not None:
        stack.push_async_callback(_stopped, [asyncio.create_task(elsewhere.calling(made.port, "elsewhere").run())])
    await made.join()
    return made


async def _stock(made: World) -> None:
    """What the management API and the cluster know: the cluster, its agent's account, and who may do what."""
    client, there = made.management, made.below
    for namespace in ("cattle-global-data",):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for namespace in ("cattle-system", "default"):
        try:
            await there.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        except ApiError as error:
            assert error.is_already_exists
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cattle", "namespace": "cattle-system"}}
    await there.create(SERVICE_ACCOUNTS, account)
    await bind(there, "system:serviceaccount:cattle-system:cattle", "cluster-admin")
    token = await agent_token(there)
    await client.create(SECRETS, secret("cluster-serviceaccounttoken-1", token), "cattle-global-data")
    for user in (ADMIN, MEMBER, STRANGER):
        await client.create(USERS, {"apiVersion": f"{GROUP}/v3", "kind": "User", "metadata": {"name": user.name}})
    everything = [
        {"apiGroups": [GROUP], "resources": ["clusters"], "verbs": ["get"], "resourceNames": [CLUSTER, "local", "gone"]}
    ]
    await bind(client, ADMIN.name, "sees", everything)
    await bind(client, MEMBER.name, "sees")
    await bind(there, ADMIN.name, "cluster-admin")
    await bind(there, MEMBER.name, "view")
    await client.create(
        CLUSTERS, {"apiVersion": f"{GROUP}/v3", "kind": "Cluster", "metadata": {"name": CLUSTER}, "spec": {"displayName": "c"}}
    )
    await made.cluster_status(
        apiEndpoint=made.endpoint,
        caCert=base64.b64encode(made.pki.ca_pem).decode(),
        serviceAccountTokenSecret="cluster-serviceaccounttoken-1",
    )


async def agent_token(there: InProcessClient) -> str:
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 36000}}
    given = await there.create(SERVICE_ACCOUNTS, wanted, "cattle-system", name="cattle", subresource="token")
    return str(given["status"]["token"])


def secret(name: str, token: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "cattle-global-data"},
        "data": {"credential": base64.b64encode(token.encode()).decode()},
    }
