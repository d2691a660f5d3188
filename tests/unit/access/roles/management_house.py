"""A management server in memory with the controllers and rules of roles, clusters behind it, and people who ask for things."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda import kcm
from remuda.access.downstreams import Downstreams
from remuda.api import crds
from remuda.api.cluster_x_k8s_io import GROUP as CAPI_GROUP
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, GLOBAL_ROLE_BINDINGS, GROUP
from remuda.api.provisioning_cattle_io import API_VERSION as PROVISIONING_VERSION
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.api.provisioning_cattle_io import GROUP as PROVISIONING_GROUP
from remuda.api.rke_cattle_io import GROUP as RKE_GROUP
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app import controllers as table
from remuda.app.admission import role_rules
from remuda.app.parts import Parts
from remuda.client.interface import Client
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, namespace_of
from remuda.lab.sim.workload_clusters import FURNISHED, Beginning
from remuda.runtime import Manager, Reconciler

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
ROLES = (
    "builtin-globalroles",
    "builtin-roletemplates",
    "globalrole",
    "globalrolebinding",
    "cluster-memberships",
    "cluster-access",
    "downstream-access",
    "user-bindings",
)
WORKSPACE = "fleet-default"


def role_controllers(manager: Manager, downstreams: Downstreams, **kinds: bool) -> Iterable[Reconciler]:
    """The controllers of roles; `kinds` tells which kinds are served (:class:`remuda.app.parts.Parts`)."""
    return table.reconcilers(Parts(manager, downstreams=downstreams, **kinds), ROLES)


@dataclass
class Connection:
    client: Client


class MemoryDownstreams:
    """The port `Downstreams` on clusters that a test connects and cuts by hand."""

    def __init__(self, local: Client, clock: VirtualClock) -> None:
        self._clock = clock
        self.servers: dict[str, Server] = {}
        self._connected: dict[str, Connection] = {"local": Connection(local)}
        self._handlers: list[Callable[[str], None]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def get(self, cluster: str) -> Connection | None:
        return self._connected.get(cluster)

    def is_connected(self, cluster: str) -> bool:
        return cluster in self._connected

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    async def connect(self, cluster: str) -> Client:
        server = self.servers.get(cluster)
        if server is None:
            server = self.servers[cluster] = await Server.open(
                Config(data_dir=None, base=await FURNISHED.base(), clock=self._clock)
            )
            keeping = kcm.run(InProcessClient(server, manager="kube-controller-manager"), self._clock, Rng(2))
            self._tasks.append(asyncio.create_task(keeping))
        self._connected[cluster] = Connection(InProcessClient(server, manager="agent"))
        self._tell(cluster)
        return self._connected[cluster].client

    def cut(self, cluster: str) -> None:
        del self._connected[cluster]
        self._tell(cluster)

    def _tell(self, cluster: str) -> None:
        for handler in list(self._handlers):
            handler(cluster)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self.servers.values():
            await server.close()


def person(name: str, *groups: str) -> User:
    return User(name, name, (*groups, AUTHENTICATED, "system:cattle:authenticated"))


class House:
    """Make objects, let time pass with `settle`, and ask as somebody."""

    def __init__(self, server: Server, clock: VirtualClock, rng: Rng) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="remuda")
        self.downstreams = MemoryDownstreams(self.client, clock)
        self.manager = Manager(InProcessClient(server, manager="remuda"), clock, rng)

    async def settle(self, seconds: float = 1.0) -> None:
        await self.clock.advance(seconds)

    def as_(self, user: User | str) -> InProcessClient:
        return InProcessClient(self.server, manager="kubectl", user=person(user) if isinstance(user, str) else user)

    async def create(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.client.create(resource, obj, namespace_of(obj))

    async def find(
        self, resource: GroupVersionResource, name: str, namespace: str = "", client: Client | None = None
    ) -> Obj | None:
        try:
            return await (client or self.client).get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def names(self, resource: GroupVersionResource, namespace: str = "", labels: str = "") -> list[str]:
        found = await self.client.list(resource, namespace, labels=labels)
        return sorted(each["metadata"]["name"] for each in found["items"])

    # --- people -------------------------------------------------------------------------------------------------------

    async def grant(self, role: str, user: str = "", group: str = "") -> Obj:
        """A GlobalRoleBinding, as an administrator makes it."""
        made = await self.create(GLOBAL_ROLE_BINDINGS, global_binding(role, user=user, group=group))
        await self.settle(0.1)
        return made

    async def member(self, cluster: str, template: str, user: str = "", group: str = "") -> Obj:
        made = await self.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(cluster, template, user=user, group=group))
        await self.settle(0.1)
        return made

    # --- clusters -----------------------------------------------------------------------------------------------------

    async def cluster(self, name: str, *, creator: str = "", workspace_name: str = "") -> Obj:
        """What the controllers of clusters would have made: both Clusters, the namespace, tokens, kubeconfig and a machine."""
        called = workspace_name or f"{name}-prov"
        annotations = {"field.cattle.io/creatorId": creator} if creator else {}
        made = await self.create(
            CLUSTERS,
            {
                "apiVersion": API_VERSION,
                "kind": "Cluster",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"displayName": called, "fleetWorkspaceName": WORKSPACE},
                "status": {"apiEndpoint": "https://192.0.2.1", "serviceAccountTokenSecret": f"{name}-sa"},
            },
        )
        await self.create(NAMESPACES, namespace(name))
        provisioning = provisioning_cluster(called)
        provisioning["metadata"]["annotations"] = annotations
        provisioning = await self.create(PROVISIONING_CLUSTERS, provisioning)
        status = {"status": {"clusterName": name}}
        await self.client.patch(PROVISIONING_CLUSTERS, called, status, WORKSPACE, subresource="status")
        await self.create(SECRETS, secret(f"{called}-kubeconfig", labels={"cluster.x-k8s.io/cluster-name": called}))
        await self.create(SECRETS, secret(f"{called}-registry", labels={"cluster.x-k8s.io/cluster-name": called}))
        await self.create(SECRETS, secret("crt-token-default-token", name))
        await self.create(SECRETS, secret(f"{name}-sa", "cattle-global-data"))
        token = {
            "apiVersion": API_VERSION,
            "kind": "ClusterRegistrationToken",
            "metadata": {"name": "default-token", "namespace": name},
        }
        await self.create(
            GroupVersionResource(GROUP, "v3", "clusterregistrationtokens"), {**token, "spec": {"clusterName": name}}
        )
        await self.settle()
        return made


def namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def secret(name: str, where: str = WORKSPACE, *, type_: str = "Opaque", labels: dict[str, str] | None = None) -> Obj:
    metadata = {"name": name, "namespace": where, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "stringData": {"value": "hidden"}}


def provisioning_cluster(name: str, where: str = WORKSPACE) -> Obj:
    return {"apiVersion": PROVISIONING_VERSION, "kind": "Cluster", "metadata": {"name": name, "namespace": where}, "spec": {}}


def management_cluster(name: str, **spec: Any) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": {"displayName": name, **spec}}


def global_binding(role: str, user: str = "", group: str = "", name: str = "") -> Obj:
    called = name or f"grb-{role}-{user or group.split('/')[-1]}"
    made: Obj = {"apiVersion": API_VERSION, "kind": "GlobalRoleBinding", "metadata": {"name": called}, "globalRoleName": role}
    return {**made, **({"userName": user} if user else {}), **({"groupPrincipalName": group} if group else {})}


def cluster_binding(cluster: str, template: str, user: str = "", group: str = "", name: str = "") -> Obj:
    called = name or f"crtb-{template}-{user or group.split('/')[-1]}"
    metadata = {"name": called, "namespace": cluster}
    made: Obj = {"apiVersion": API_VERSION, "kind": "ClusterRoleTemplateBinding", "metadata": metadata}
    made |= {"clusterName": cluster, "roleTemplateName": template}
    return {**made, **({"userName": user} if user else {}), **({"groupPrincipalName": group} if group else {})}


_WORKSPACES = (WORKSPACE, "fleet-local", "cattle-global-data")
_BEGINNINGS = {
    False: Beginning(lambda: crds([GROUP, PROVISIONING_GROUP, CAPI_GROUP]), _WORKSPACES),
    True: Beginning(lambda: crds([GROUP, PROVISIONING_GROUP, CAPI_GROUP, RKE_GROUP]), _WORKSPACES),
}


@contextlib.asynccontextmanager
async def house(*, seed: int = 1, provisions: bool = False) -> AsyncIterator[House]:
    """With `provisions` the kinds that clusters are made of are there, too."""
    clock, rng = VirtualClock(), Rng(seed)
    base = await _BEGINNINGS[provisions].base()
    server = await Server.open(Config(data_dir=None, base=base, clock=clock, rng=rng, entropy=Entropy(seed)))
    made = House(server, clock, rng)
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager="kube-controller-manager"), clock, rng))
    try:
        install(role_rules(server.source, server.rbac), server.hooks, server.converters)
        await made.settle()
        for each in role_controllers(made.manager, made.downstreams, provisions=provisions):
            made.manager.add(each)
        running = asyncio.create_task(made.manager.run())
        try:
            await made.settle()
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await made.downstreams.close()
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()


async def refused(doing: Any) -> str:
    """The words with which the API refuses; fails when it does not."""
    try:
        await doing
    except ApiError as error:
        assert error.code in (403, 404, 422), error
        return error.message
    raise AssertionError("it was allowed")
