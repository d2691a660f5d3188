"""`/v3/import/<token>_<cluster>.yaml`: the manifest that imports a cluster, for callers with its registration token.

The token is the only credential, so every failure has the same answer: it does not tell whether the cluster, the token or the
name was wrong (docs/reference/registration.md#import-manifest). The audit log does, without the token. A node's token imports
nothing: the manifest's agent would open a tunnel with it, and :mod:`..agents.tunnels` refuses that, too.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from remuda import __version__
from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.errors import unavailable
from remuda.kube.objects import dig, is_being_deleted

from ..server.dependencies import Services
from ..server.routing import Access, RequestContext
from ..server.serving_certificate import ca_checksum
from .agent_manifest import ManifestInputs, render
from .registration_tokens import SECRETS, Registrations

Obj = dict[str, Any]

REFUSED: Final = "invalid import address"
_FILE = re.compile(r"([a-z0-9]{1,256})_([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)\.yaml", re.ASCII)
_PULL_SECRETS_IN = "cattle-system"


class Importing:
    def __init__(self, services: Services, registrations: Registrations) -> None:
        self._services = services
        self._registrations = registrations
        self._clusters = services.informers.of(CLUSTERS)
        services.routes.add("GET HEAD", "/v3/import/{file}", self.answer, Access.PUBLIC, largest=0)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        if not (self._clusters.synced.is_set() and self._registrations.informer.synced.is_set()):
            raise unavailable("not ready yet, please try again", retry_after=1)
        token, cluster, why = self._judge(asked.parameters["file"])
        if cluster is None:
            asked.why = why
            return web.Response(status=400, text=REFUSED, headers={"Cache-Control": "no-store"})
        asked.cluster = str(dig(cluster, "metadata", "name"))
        text = render(await self._wanted(asked, cluster, token))
        return web.Response(text=text, headers={"Cache-Control": "no-store"})

    def _judge(self, file: str) -> tuple[str, Obj | None, str]:
        """The token and its cluster; or the reason of a refusal, for the audit log."""
        matched = _FILE.fullmatch(file)
        if matched is None:
            return "", None, "not the name of a manifest"
        token, name = matched.groups()
        found = self._registrations.cluster_of(token)
        cluster = self._clusters.get("", name)
        if found is None:
            return "", None, "the registration token is unknown or has expired"
        if found.cluster != name:
            return "", None, "the registration token belongs to another cluster"
        if found.is_node_token:
            return "", None, "a node's registration token can't import a cluster"
        if cluster is None or is_being_deleted(cluster) or dig(cluster, "spec", "internal"):
            return "", None, "there is no such cluster to import"
        return token, cluster, ""

    async def _wanted(self, asked: RequestContext, cluster: Obj, token: str) -> ManifestInputs:
        return await wanted(self._services, cluster, token, f"https://{asked.request.host}")


async def wanted(services: Services, cluster: Obj, token: str, otherwise: str) -> ManifestInputs:
    """The current inputs of a cluster's manifest; `otherwise` is the server URL where the setting is empty."""
    settings = services.settings()
    return ManifestInputs(
        cluster=cluster,
        settings=settings,
        server=settings.text("server-url") or otherwise,
        token=token,
        ca_checksum=ca_checksum(settings.text("cacerts") or services.authority.ca),
        version=f"v{__version__}",
        pull_secrets=await _pull_secrets(services.client, settings.text("system-default-registry-pull-secrets")),
    )


async def _pull_secrets(client: Client, names: str) -> tuple[tuple[str, str], ...]:
    found = []
    for name in filter(None, (each.strip() for each in names.split(","))):
        secret = await find(client, SECRETS, name, _PULL_SECRETS_IN)
        config = dig(secret or {}, "data", ".dockerconfigjson")
        if isinstance(config, str) and config:
            found.append((name, config))
    return tuple(found)
