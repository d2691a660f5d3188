"""`/v3/clusterregistrationtokens?clusterId=…`: the commands that register a cluster or a node, with the token in them.

What is stored has `{token}` where the token belongs (protocols.md §10.2). Whoever may read the Secret with it gets it filled in;
node commands get that of `node-token`, so that what is typed on a node does not open the tunnel.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from remuda.access.clusters.registration_commands import FIELDS, revealed
from remuda.access.clusters.well_known import NODE_TOKEN, is_cluster_id, token_secret
from remuda.api.management_cattle_io import CLUSTER_REGISTRATION_TOKENS, GROUP
from remuda.kube.authorization.actions import Action
from remuda.kube.errors import not_found
from remuda.kube.objects import metadata, name_of, namespace_of

from ..server import norman
from ..server.dependencies import Services
from ..server.norman import told
from ..server.request_context import Asked
from ..server.routing import Who
from .registration_tokens import Registrations

Obj = dict[str, Any]

_KIND = "clusterRegistrationToken"
_PATHS = ("/v3/clusterregistrationtokens", "/v3/clusterregistrationtoken")
_BY_CLUSTER = "cluster"


class RegistrationApi:
    def __init__(self, services: Services, registrations: Registrations) -> None:
        self._services = services
        self._registrations = registrations
        self._crts = services.informers.of(CLUSTER_REGISTRATION_TOKENS)
        self._crts.add_index(_BY_CLUSTER, lambda crt: (namespace_of(crt),))
        for path in _PATHS:
            services.routes.add("GET", path, told(self.listed), Who.USER, largest=0)
            services.routes.add("GET", f"{path}/{{id}}", told(self.get), Who.USER, largest=0)

    async def listed(self, asked: Asked) -> web.StreamResponse:
        cluster = norman.parameters_of(asked).get("clusterId", "")
        if not is_cluster_id(cluster):
            raise norman.invalid("clusterId must be the id of a cluster, such as c-m-bcdfg245")
        asked.cluster = cluster
        base = norman.base_url(asked, self._services)
        found = sorted(self._crts.indexed(_BY_CLUSTER, cluster), key=name_of)
        shown = [resource(crt, base) for each in found if (crt := await self._revealed(asked, each)) is not None]
        return norman.shown(norman.collection(_KIND, shown, f"{base}{_PATHS[0]}?clusterId={cluster}"))

    async def get(self, asked: Asked) -> web.StreamResponse:
        cluster, _, name = asked.parameters["id"].partition(":")
        asked.cluster = cluster if is_cluster_id(cluster) else ""
        found = self._crts.get(cluster, name)
        crt = None if found is None else await self._revealed(asked, found)
        if crt is None:
            asked.why = "there is no such registration token" if found is None else "the token is not for this user"
            raise not_found(GROUP, CLUSTER_REGISTRATION_TOKENS.resource, asked.parameters["id"])
        return norman.shown(resource(crt, norman.base_url(asked, self._services)))

    async def _revealed(self, asked: Asked, crt: Obj) -> Obj | None:
        """With its token; None for who may not have it."""
        cluster, name = namespace_of(crt), name_of(crt)
        if not await self._may_read(asked, cluster, name):
            return None
        node = self._registrations.token_of(cluster, NODE_TOKEN) if await self._may_read(asked, cluster, NODE_TOKEN) else ""
        return revealed(crt, self._registrations.token_of(cluster, name), node)

    async def _may_read(self, asked: Asked, cluster: str, name: str) -> bool:
        action = Action(asked.user, "get", "", "v1", "secrets", namespace=cluster, name=token_secret(name))
        return await self._services.access.allowed(action)


def resource(crt: Obj, base: str) -> Obj:
    """As clients of the old API know one."""
    cluster, name, status = namespace_of(crt), name_of(crt), crt.get("status") or {}
    itself = f"{base}{_PATHS[0]}/{cluster}:{name}"
    said = {field: status.get(field) or "" for field in (*FIELDS, "token", "expiresAt", "gracePeriodExpiresAt")}
    return {
        "id": f"{cluster}:{name}",
        "type": _KIND,
        "baseType": _KIND,
        "name": name,
        "namespaceId": cluster,
        "clusterId": cluster,
        "state": "active",
        **said,
        **norman.created_fields(metadata(crt)),
        "links": {"self": itself},
    }
