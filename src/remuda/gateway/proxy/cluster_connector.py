"""Cluster API's connection to a cluster whose kubeconfig leads through our own proxy: the same path, without the network.

Such a kubeconfig names `<server-url>/k8s/clusters/<id>` and a token of ours (docs/reference/proxy.md#kubeconfig-of-a-cluster).
Everyone who may write a Secret can write one, so nothing is trusted: the token is checked, its user must be allowed to see the
cluster, and in the cluster requests act as that user. Any other kubeconfig is left to `otherwise`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from remuda.api.management_cattle_io import GROUP
from remuda.capi.clustercache.cache import workload_target
from remuda.capi.workload_clusters import Connector
from remuda.client.credentials import Credential
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock
from remuda.kube.errors import unauthorized
from remuda.kube.objects import Key

from ..server.credentials import Presented, parse_token
from ..server.dependencies import Services
from ..server.routing import Caller
from .impersonation import EXTRAS, Impersonation
from .tunnel_downstreams import LARGEST_ANSWER, LOCAL, Reach, TunnelDownstreams

Identify = Callable[[Presented, str], Awaitable[Caller]]
"""Authenticates a token for a cluster; raises ApiError (401)."""

_PATH = re.compile(r"(https://[^/?#]+)/k8s/clusters/([a-z0-9][-a-z0-9.]*)/?")
_SECONDS, _CONNECTIONS = 10.0, 10


class DownstreamConnector:
    def __init__(
        self,
        services: Services,
        downstreams: TunnelDownstreams,
        impersonation: Impersonation,
        identify: Identify,
        otherwise: Connector,
    ) -> None:
        self._services = services
        self._downstreams = downstreams
        self._impersonation = impersonation
        self._identify = identify
        self._otherwise = otherwise

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        try:
            target = workload_target(kubeconfig)
        except ConfigError as error:
            raise ValueError(f"the kubeconfig of {cluster} can't be used: {error}") from None
        found = _PATH.fullmatch(target.server)
        if found is None or found[1] not in self._ours() or found[2] == LOCAL:
            return await self._otherwise.connect(cluster, kubeconfig)
        return await self._connect(found[2], target)

    def _ours(self) -> set[str]:
        settings = self._services.settings()
        return {settings.text(name).rstrip("/") for name in ("server-url", "internal-server-url")} - {""}

    async def _connect(self, cluster: str, target: KubeTarget) -> Client:
        shown = parse_token(target.token)
        if shown is None:
            raise unauthorized("the kubeconfig has no token of this server")
        user = (await self._identify(shown, cluster)).user
        action = Action(user, "get", GROUP, "v3", "clusters", name=cluster)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)
        reach = self._downstreams.reach(cluster)
        if reach is None:
            raise self._downstreams.out_of_reach(cluster)
        there = KubeTarget(
            f"https://{reach.address}",
            ca=reach.ca,
            impersonate=user.name,
            impersonate_groups=user.groups,
            # Empty values are not granted either: our own accounts have no login name.
            impersonate_extra=tuple((key, tuple(filter(None, user.extra.get(key, ())))) for key in EXTRAS),
        )
        return ThroughTunnel(reach, there, self._services.clock, UserToken(self._impersonation, cluster, user))


class ThroughTunnel(HttpsClient):
    """A client that knows when its tunnel is closed: a `Losable`. A request would learn it only by waiting for an answer."""

    def __init__(self, reach: Reach, target: KubeTarget, clock: Clock, token: UserToken) -> None:
        super().__init__(
            target,
            clock,
            connections=_CONNECTIONS,
            request_seconds=_SECONDS,
            connector=reach.connector,
            largest=LARGEST_ANSWER,
            credentials=token,
        )
        self.on_lost = reach.on_lost


class UserToken:
    """The token of a user's account in a cluster, renewed in time: a CredentialSource."""

    def __init__(self, impersonation: Impersonation, cluster: str, user: User) -> None:
        self._impersonation = impersonation
        self._cluster = cluster
        self._user = user

    async def current(self) -> Credential:
        return Credential(f"Bearer {await self._impersonation.token(self._cluster, self._user)}")

    def forget(self) -> bool:
        self._impersonation.forget(self._cluster, self._user.name)
        return True
