"""Lookup of registration tokens: the Secrets `crt-token-<name>` in the clusters' namespaces, by the token's hash.

Two values of a token are valid, as docs/reference/registration.md#tokens-of-a-cluster has it: the current one until it expires,
and the previous one until its grace period ends. Unknown and expired tokens get the same answer. :mod:`.import_manifest` and
:mod:`..agents.tunnels` call this; :mod:`remuda.access.clusters` makes and rotates the tokens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda.access.clusters.clusterregistrationtoken import FIELDS, revealed
from remuda.access.clusters.well_known import NODE_TOKEN, SECRETS, TOKEN_LABEL, is_cluster_id, token_secret
from remuda.access.clusters.well_known import TOKEN_SECRET_PREFIX as PREFIX
from remuda.api.management_cattle_io import CLUSTER_REGISTRATION_TOKENS, GROUP
from remuda.kube.authorization.actions import Action
from remuda.kube.clock import Clock, time_of
from remuda.kube.errors import not_found
from remuda.kube.objects import Key, is_being_deleted, metadata, name_of, namespace_of
from remuda.runtime import Informer

from ..server import norman
from ..server.dependencies import Services
from ..server.norman import told
from ..server.routing import Access, RequestContext

__all__ = ["NODE_TOKEN", "PREFIX", "SECRETS", "Registration", "Registrations", "digest"]

Obj = dict[str, Any]

LONGEST_TOKEN: Final = 256
# A token that has just expired is about to be rotated, and then has its grace period: no session is closed in between.
ROTATION: Final = 60.0

_INDEX = "registration-token"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_FIELDS = ("token", "previousToken", "expiresAt", "gracePeriodExpiresAt")


@dataclass(frozen=True, slots=True)
class Registration:
    """The use of a token. `until` is when it expires, in seconds since the epoch; None: never."""

    cluster: str
    crt_name: str
    is_node_token: bool
    # It has been rotated already, and is valid only for the grace period.
    is_previous: bool = False
    until: float | None = None


def digest(token: str) -> bytes:
    """The lookup key of a token, so that the timing of comparisons reveals nothing about it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def slim(secret: Obj) -> Obj:
    """The cached part of a Secret with a token."""
    metadata = secret.get("metadata") or {}
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    data = secret.get("data")
    return {"metadata": kept, "data": {name: data[name] for name in _FIELDS if name in data} if isinstance(data, dict) else {}}


def _text(data: Any, field: str) -> str:
    value = data.get(field) if isinstance(data, Mapping) else None
    try:
        return base64.b64decode(value, validate=True).decode("utf-8") if isinstance(value, str) else ""
    except (binascii.Error, ValueError):
        return ""


def digests_of(secret: Obj) -> Iterable[bytes]:
    if not name_of(secret).startswith(PREFIX):
        return ()
    data = secret.get("data")
    return [digest(token) for token in (_text(data, "token"), _text(data, "previousToken")) if token]


def registration_of(secret: Obj, wanted: bytes, now: float) -> Registration | None:
    """The current use of the token with this digest, by one Secret."""
    data = secret.get("data")
    crt_name = name_of(secret).removeprefix(PREFIX)
    if is_being_deleted(secret) or not crt_name:
        return None
    cluster, node = namespace_of(secret), crt_name == NODE_TOKEN
    token, previous = _text(data, "token"), _text(data, "previousToken")
    if token and digest(token) == wanted:
        expires = _until(_text(data, "expiresAt"), ROTATION)
        return Registration(cluster, crt_name, node, False, expires) if expires is None or now < expires else None
    if previous and digest(previous) == wanted:
        # A grace period without an end would make the old token as valid as the new one.
        ends = time_of(_text(data, "gracePeriodExpiresAt"))
        return Registration(cluster, crt_name, node, True, ends) if ends is not None and now < ends else None
    return None


def _until(text: str, more: float) -> float | None:
    if not text:
        return None
    found = time_of(text)
    # An unreadable time must not make a token valid for ever.
    return 0.0 if found is None else found + more


class Registrations:
    """All registration tokens. `on_change` handlers get the name of a cluster whose tokens changed."""

    def __init__(self, services: Services) -> None:
        self._clock: Clock = services.clock
        self._secrets: Informer = services.informers.of(SECRETS, labels=TOKEN_LABEL, transform=slim)
        self._secrets.add_index(_INDEX, digests_of)

    @property
    def informer(self) -> Informer:
        return self._secrets

    def cluster_of(self, token: str) -> Registration | None:
        """The current use of a token; None for every token that is not valid."""
        if not token or len(token) > LONGEST_TOKEN or not token.isascii():
            return None
        return self.by_digest(digest(token))

    def by_digest(self, wanted: bytes) -> Registration | None:
        """The same for callers that store only the digest, and check again whether the token is still valid."""
        now = self._clock.time()
        found = [registration_of(secret, wanted, now) for secret in self._secrets.indexed(_INDEX, wanted)]
        good = [each for each in found if each is not None]
        # The same token for two clusters is valid for neither: it is ambiguous.
        if not good or len({each.cluster for each in good}) > 1:
            return None
        # The least use of a token that was issued twice.
        return next((each for each in good if each.is_node_token), good[0])

    def token_of(self, cluster: str, crt_name: str) -> str:
        """The current token of a ClusterRegistrationToken; empty when there is none."""
        secret = self._secrets.get(cluster, PREFIX + crt_name)
        token = "" if secret is None else _text(secret.get("data"), "token")
        found = registration_of(secret, digest(token), self._clock.time()) if secret is not None and token else None
        return token if found is not None else ""

    def token_by_digest(self, wanted: bytes) -> str:
        """The token itself, for a caller that sends its digest and wants a proof that we know it; empty when it is not valid."""
        if self.by_digest(wanted) is None:
            return ""
        held = [_text(secret.get("data"), field) for secret in self._secrets.indexed(_INDEX, wanted) for field in _FIELDS[:2]]
        return next((token for token in held if token and digest(token) == wanted), "")

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        def changed(new: Obj | None, old: Obj | None) -> None:
            about = new or old
            if about is not None:
                handler(Key.of(about).namespace)

        return self._secrets.on_change(changed)


# --- registration tokens api ----------------------------------------------------------------------------------------------
#
# `/v3/clusterregistrationtokens`, also of one cluster (`?clusterId=…`): the commands that register a cluster or a node, with the
# token in them.
#
# The stored commands have `{token}` in place of the token (docs/reference/registration.md#tokens-of-a-cluster). Callers who may
# read the Secret get it filled in; node commands get that of `node-token`, so that a command typed on a node does not open the
# tunnel.

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
            services.routes.add("GET", path, told(self.listed), Access.USER, largest=0)
            services.routes.add("GET", f"{path}/{{id}}", told(self.get), Access.USER, largest=0)

    async def listed(self, asked: RequestContext) -> web.StreamResponse:
        """Those of one cluster, or all that the caller may read."""
        said = norman.parameters_of(asked)
        cluster = said.get("clusterId", "")
        if "clusterId" in said and not is_cluster_id(cluster):
            raise norman.invalid("clusterId must be the id of a cluster, such as c-m-bcdfg245")
        asked.cluster = cluster
        base = norman.base_url(asked, self._services)
        found = self._crts.indexed(_BY_CLUSTER, cluster) if cluster else self._crts.objects()
        shown = []
        for each in sorted((crt for crt in found if self._seems_readable(asked, crt)), key=Key.of):
            if (crt := await self._revealed(asked, each)) is not None:
                shown.append(resource(crt, base))
        query = f"?clusterId={cluster}" if cluster else ""
        return norman.shown(norman.collection(_KIND, shown, f"{base}{_PATHS[0]}{query}"))

    async def get(self, asked: RequestContext) -> web.StreamResponse:
        cluster, _, name = asked.parameters["id"].partition(":")
        asked.cluster = cluster if is_cluster_id(cluster) else ""
        found = self._crts.get(cluster, name)
        crt = None if found is None else await self._revealed(asked, found)
        if crt is None:
            asked.why = "there is no such registration token" if found is None else "the token is not for this user"
            raise not_found(GROUP, CLUSTER_REGISTRATION_TOKENS.resource, asked.parameters["id"])
        return norman.shown(resource(crt, norman.base_url(asked, self._services)))

    async def _revealed(self, asked: RequestContext, crt: Obj) -> Obj | None:
        """The object with its token; None for callers who may not read it."""
        cluster, name = namespace_of(crt), name_of(crt)
        if not await self._may_read(asked, cluster, name):
            return None
        node = self._registrations.token_of(cluster, NODE_TOKEN) if await self._may_read(asked, cluster, NODE_TOKEN) else ""
        return revealed(crt, self._registrations.token_of(cluster, name), node)

    def _seems_readable(self, asked: RequestContext, crt: Obj) -> bool:
        """False if the caller's roles do not allow it: a list must not send a request to another Kubernetes for each token."""
        rbac = self._services.acting.rbac if self._services.acting is not None else None
        return rbac is None or rbac.authorize(_reading(asked, namespace_of(crt), name_of(crt))).allowed

    async def _may_read(self, asked: RequestContext, cluster: str, name: str) -> bool:
        return await self._services.access.allowed(_reading(asked, cluster, name))


def _reading(asked: RequestContext, cluster: str, name: str) -> Action:
    return Action(asked.user, "get", "", "v1", "secrets", namespace=cluster, name=token_secret(name))


def resource(crt: Obj, base: str) -> Obj:
    """The resource as clients of the old API know it."""
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
