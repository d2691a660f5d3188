"""Kubeconfigs for downstream clusters: a context per cluster through the gateway, and more where a cluster is reached directly.

`POST /v3/clusters/<id>?action=generateKubeconfig` is Rancher's, for one cluster, with a token that is valid for that one only.
Without an id it is for all clusters that the caller may see (or those in `clusters`), with a token that is valid for all of them,
or for the only one that was named. With `server` it also has a context for this server's own API, in which clusters are declared.
A cluster with an authorised endpoint also gets contexts that bypass the gateway: they work while it is down. The cluster's owner
sets those addresses, so the credential there is a token for that cluster and never another.

Other users choose the names of clusters. They appear in the YAML as text, and nowhere else.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from remuda.api.management_cattle_io import CLUSTERS, GROUP, NODES, VERSION
from remuda.kube.authorization.actions import Action
from remuda.kube.encoding import yamlio
from remuda.kube.errors import bad_request, not_found
from remuda.kube.objects import dig, is_being_deleted, name_of, namespace_of

from ..server import norman
from ..server.dependencies import Services
from ..server.norman import told
from ..server.routing import Access, Answer, RequestContext
from ..server.serving_certificate import ca_text
from .tokens import Sessions, TokenApi

Obj = dict[str, Any]

ACTION = "generatekubeconfig"
CLUSTER_TYPE = "management.cattle.io.cluster"
DIRECT_PORT = 6443
_BY_CLUSTER = "cluster"
_MOST_WANTED = 10_000
# A name or an address, with a port or without.
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way to a cluster's API; `ca` is PEM, "" for a publicly trusted certificate. `direct`: not through the gateway."""

    context: str
    server: str
    ca: str
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a kubeconfig's user: a token, or a program that obtains one."""

    token: str = field(default="", repr=False)
    login: str = ""

    def manifest(self) -> Obj:
        if self.token:
            return {"token": self.token}
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "remuda",
            "args": ["token", "credential", "--server", self.login],
            "interactiveMode": "Never",
            "provideClusterInfo": False,
        }
        return {"exec": plugin}


def context_names(clusters: Iterable[Obj], taken: str = "") -> dict[str, str]:
    """The context's name for each cluster: its display name, with its id where two display names are the same.

    All names differ, also from `taken`, which can't be an id: the owner of a cluster must not be able to replace another cluster,
    or the server, in a user's kubeconfig.
    """
    shown = {name_of(cluster): str(dig(cluster, "spec", "displayName") or name_of(cluster)) for cluster in clusters}
    ambiguous = _ambiguous(shown, taken)
    told = {identity: f"{name}-{identity}" if identity in ambiguous else name for identity, name in shown.items()}
    ambiguous = _ambiguous(told, taken)
    return {identity: identity if identity in ambiguous else name for identity, name in told.items()}


def _ambiguous(names: Mapping[str, str], taken: str) -> set[str]:
    """The clusters whose names are also names or ids of others."""
    counted = Counter([*names.values(), taken])
    return {identity for identity, name in names.items() if name != identity and (counted[name] > 1 or name in names)}


def endpoints(cluster: Obj, context: str, base: str, ca: str, nodes: Sequence[Obj] = ()) -> list[Endpoint]:
    """All ways to a cluster: through the gateway first, then those of its authorised endpoint."""
    found = [Endpoint(context, f"{base}/k8s/clusters/{name_of(cluster)}", ca)]
    direct = dig(cluster, "spec", "localClusterAuthEndpoint") or {}
    if not isinstance(direct, dict) or direct.get("enabled") is not True:
        return found
    if fqdn := direct.get("fqdn"):
        if _ENDPOINT.fullmatch(str(fqdn)):
            found.append(Endpoint(f"{context}-fqdn", f"https://{fqdn}", str(direct.get("caCerts") or ""), True))
        return found
    own = _decoded(dig(cluster, "status", "caCert"))
    for node in sorted(nodes, key=name_of):
        address = _address(node)
        if dig(node, "spec", "controlPlane") is True and address and not is_being_deleted(node):
            named = str(dig(node, "status", "nodeName") or name_of(node))
            shown = f"[{address}]" if ":" in address else address
            found.append(Endpoint(f"{context}-{named}", f"https://{shown}:{DIRECT_PORT}", own, True))
    return found


def _address(node: Obj) -> str:
    """The address at which others reach a node: the external one where it has one."""
    listed = dig(node, "status", "internalNodeStatus", "addresses") or []
    by_type = {str(entry.get("type")): str(entry.get("address") or "") for entry in reversed(listed) if isinstance(entry, dict)}
    return by_type.get("ExternalIP") or by_type.get("InternalIP") or ""


def _decoded(text: object) -> str:
    try:
        return base64.b64decode(str(text or ""), validate=True).decode("ascii")
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An endpoint, and the user and credential for it."""

    endpoint: Endpoint
    user: str
    credential: Credential


def kubeconfig(entries: Sequence[Entry]) -> Obj:
    """Builds the kubeconfig; the first entry's context is the current one."""
    clusters: list[Obj] = []
    users: dict[str, Obj] = {}
    contexts: list[Obj] = []
    ours = {entry.endpoint.context for entry in entries if not entry.endpoint.direct}
    for entry in entries:
        context = entry.endpoint.context
        if entry.endpoint.direct:
            if context in ours:
                # Its owner chose the name of another cluster's context.
                continue
            ours.add(context)
        cluster: Obj = {"server": entry.endpoint.server}
        if entry.endpoint.ca.strip():
            cluster["certificate-authority-data"] = base64.b64encode(entry.endpoint.ca.encode()).decode()
        clusters.append({"name": context, "cluster": cluster})
        users[entry.user] = entry.credential.manifest()
        contexts.append({"name": context, "context": {"cluster": context, "user": entry.user}})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": contexts,
        "current-context": entries[0].endpoint.context if entries else "",
    }


class Kubeconfigs:
    def __init__(self, services: Services, tokens: TokenApi, sessions: Sessions) -> None:
        self._services = services
        self._tokens = tokens
        self._sessions = sessions
        self._clusters = services.informers.of(CLUSTERS)
        self._nodes = services.informers.of(NODES)
        self._nodes.add_index(_BY_CLUSTER, lambda node: (namespace_of(node),))
        # The answer to a request without an action.
        self.otherwise: Answer | None = None
        add, body = services.routes.add, norman.LARGEST_BODY
        add("POST", "/v3/clusters", told(self.for_several), Access.USER, largest=body)
        add("POST", "/v3/clusters/{id}", told(self.for_one), Access.USER, largest=body)

    async def for_one(self, asked: RequestContext) -> web.StreamResponse:
        self._check_action(asked)
        identity = asked.parameters["id"]
        asked.cluster = identity
        cluster = self._clusters.get("", identity)
        if cluster is None or not await self._may_see(asked, identity):
            raise not_found(GROUP, CLUSTERS.resource, identity)
        base = norman.base_url(asked, self._services)
        found = self._endpoints(cluster, context_names([cluster])[identity], base)
        credential = await self._credential(asked, base, identity)
        # A program that obtains a session's token must not send it to an address that the cluster's owner has set.
        kept = [endpoint for endpoint in found if credential.token or not endpoint.direct]
        return _answer(yamlio.dumps(kubeconfig([Entry(endpoint, found[0].context, credential) for endpoint in kept])))

    async def for_several(self, asked: RequestContext) -> web.StreamResponse:
        if self.otherwise is not None and not norman.action_of(asked):
            return await self.otherwise(asked)
        self._check_action(asked)
        body = await norman.body_of(asked)
        wanted = body.get("clusters")
        if wanted is not None and not (isinstance(wanted, list) and all(isinstance(name, str) for name in wanted)):
            raise norman.invalid("clusters must be a list of names")
        direct, server = (norman.flag_of(body, name) is True for name in ("direct", "server"))
        return _answer(await self.text_for(asked, wanted, direct=direct, server=server))

    async def text_for(
        self, asked: RequestContext, wanted: list[str] | None, *, direct: bool = False, server: bool = False, seconds: float = 0
    ) -> str:
        """The kubeconfig for the clusters with these names, or for all that the caller may see. `seconds` is the lifetime of its
        token, 0 for that of the settings."""
        found = await self._visible(asked)
        if wanted is not None:
            found = _chosen(found, wanted[:_MOST_WANTED])
        alone = wanted is not None and len(found) == 1
        entries = await self._entries(asked, found, direct, alone=alone, server=server and not alone, seconds=seconds)
        return yamlio.dumps(kubeconfig(entries))

    @staticmethod
    def _check_action(asked: RequestContext) -> None:
        if norman.action_of(asked) != ACTION:
            raise bad_request("there is no such action")

    async def _may_see(self, asked: RequestContext, name: str) -> bool:
        return await self._services.access.allowed(Action(asked.user, "get", GROUP, VERSION, CLUSTERS.resource, name=name))

    async def _visible(self, asked: RequestContext) -> list[Obj]:
        everything = sorted(self._clusters.objects(), key=name_of)
        if await self._may_see(asked, ""):
            return everything
        return [cluster for cluster in everything if await self._may_see(asked, name_of(cluster))]

    def _endpoints(self, cluster: Obj, context: str, base: str) -> list[Endpoint]:
        nodes = self._nodes.indexed(_BY_CLUSTER, name_of(cluster))
        return endpoints(cluster, context, base, self._ca(), nodes)

    def _ca(self) -> str:
        return ca_text(self._services.settings().text("cacerts") or self._services.authority.ca)

    async def _entries(
        self, asked: RequestContext, clusters: list[Obj], direct: bool, *, alone: bool, server: bool, seconds: float
    ) -> list[Entry]:
        """The server's own entry comes last: the first context is the current one."""
        base = norman.base_url(asked, self._services)
        # The name contains the user, so that kubeconfigs of two people, or of two servers, can be merged; and the cluster,
        # where there is only one.
        here = f"{asked.user.name}@{base.removeprefix('https://')}"
        named = context_names(clusters, here if server else "")
        credential = await self._credential(asked, base, name_of(clusters[0]) if alone else "", seconds)
        user = named[name_of(clusters[0])] if alone else here
        entries: list[Entry] = []
        for cluster in clusters:
            first, *others = self._endpoints(cluster, named[name_of(cluster)], base)
            entries.append(Entry(first, user, credential))
            if direct and others and credential.token:
                bound = credential if alone else await self._credential(asked, base, name_of(cluster), seconds)
                # By its id, which can't imitate another cluster's name.
                entries += [Entry(endpoint, name_of(cluster), bound) for endpoint in others]
        return [*entries, Entry(Endpoint(here, base, self._ca()), user, credential)] if server else entries

    async def _credential(self, asked: RequestContext, base: str, bound: str, seconds: float = 0) -> Credential:
        settings = self._services.settings()
        if not settings.flag("kubeconfig-generate-token"):
            return Credential(login=base)
        parent = self._tokens.shown_token(asked)
        _, new = await self._sessions.derive(parent, seconds, "Kubeconfig token", bound, kubeconfig=True)
        return Credential(token=new.presented.text)


def _answer(config: str) -> web.Response:
    kind = "generateKubeConfigOutput"
    return norman.shown({"type": kind, "baseType": kind, "config": config})


def _chosen(visible: list[Obj], wanted: list[str]) -> list[Obj]:
    """The clusters with these names, which may be ids or display names."""
    found: list[Obj] = []
    for name in dict.fromkeys(wanted):
        by_name = [cluster for cluster in visible if name_of(cluster) == name or dig(cluster, "spec", "displayName") == name]
        if not by_name:
            raise not_found(GROUP, CLUSTERS.resource, name)
        found += [cluster for cluster in by_name if cluster not in found]
    return found
