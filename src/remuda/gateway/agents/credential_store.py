"""The stored access to a cluster: endpoint and CA in its status, the service account token in a Secret of its own.

A change makes a new Secret and then refers to it in the status in one write, together with the endpoint and the CA: readers of
the cluster see the old three or the new three. The cluster owns the Secret, which is deleted with it
(docs/reference/tunnel.md#claims-of-an-agent).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.access.rancher_conditions import FALSE, TRUE, conditions_of, with_condition, write_status
from remuda.api.management_cattle_io import API_VERSION, CLUSTERS
from remuda.client.idempotent import discard, find
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of, resource_version_of, uid_of

from .agent_claims import IMPORTED, Params, Stored

Obj = dict[str, Any]

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CREDENTIALS_NAMESPACE: Final = "cattle-global-data"
CREDENTIAL: Final = "credential"
# The keys that the cluster signs its tokens with, as it publishes them.
KEYS: Final = "jwks"
# The CAs by which the last connected agent knows this server, as it reports them; absent when it does not.
TRUSTS: Final = "agent-trusts"
_PREFIX = "cluster-serviceaccounttoken-"
_TRUSTED_BY = ","
ACCEPTED: Final = "EndpointAccepted"
_HELP = "; to take it nevertheless, empty apiEndpoint, caCert and serviceAccountTokenSecret in the status of this cluster"


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster as read; `stored` is None when no agent has connected yet."""

    cluster: Obj
    stored: Stored | None
    keys: str
    secret: Obj = field(default_factory=dict)

    @property
    def driver(self) -> str:
        return _text(self.cluster, "status", "driver")


class CredentialKeeper:
    def __init__(self, client: Client, clock: Clock, entropy: Entropy) -> None:
        self._client = client
        self._clock = clock
        self._entropy = entropy

    async def known(self, name: str) -> Known | None:
        """The stored facts about a cluster; None when the cluster does not exist."""
        cluster = await find(self._client, CLUSTERS, name)
        if cluster is None:
            return None
        endpoint, ca = _text(cluster, "status", "apiEndpoint"), _text(cluster, "status", "caCert")
        reference = _text(cluster, "status", "serviceAccountTokenSecret")
        if not (endpoint or ca or reference):
            return Known(cluster, None, "")
        secret = await self._secret(reference)
        return Known(cluster, Stored(endpoint, _decoded(secret, CREDENTIAL), ca), _decoded(secret, KEYS), secret)

    async def note_trust(self, known: Known, trusts: tuple[str, ...] | None) -> None:
        """Store the CAs by which an agent knows this server, if they changed."""
        if not known.secret or trusts_in(known.secret) == trusts:
            return
        said = None if trusts is None else base64.b64encode(_TRUSTED_BY.join(trusts).encode()).decode()
        await self._client.patch(SECRETS, name_of(known.secret), {"data": {TRUSTS: said}}, CREDENTIALS_NAMESPACE)

    async def _secret(self, name: str) -> Obj:
        return (await find(self._client, SECRETS, name, CREDENTIALS_NAMESPACE) if name else None) or {}

    async def store(self, known: Known, params: Params) -> None:
        """Store an agent's claims. Raises a conflict when the cluster has changed since they were judged."""
        cluster = known.cluster
        secret = await self._client.create(SECRETS, self._new_secret(cluster, params, known.keys), CREDENTIALS_NAMESPACE)
        before = _text(cluster, "status", "serviceAccountTokenSecret")
        try:
            await self._point(cluster, params, name_of(secret))
        except ApiError:
            await self._forget(name_of(secret))
            raise
        if before:
            await self._forget(before)

    def _new_secret(self, cluster: Obj, params: Params, keys: str) -> Obj:
        owner = {"apiVersion": API_VERSION, "kind": "Cluster", "name": name_of(cluster), "uid": uid_of(cluster)}
        data = {CREDENTIAL: params.token, **({KEYS: keys} if keys else {})}
        if params.trusts is not None:
            data[TRUSTS] = _TRUSTED_BY.join(params.trusts)
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": _PREFIX + self._entropy.token_text(10),
                "namespace": CREDENTIALS_NAMESPACE,
                "ownerReferences": [owner],
            },
            "type": "Opaque",
            "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
        }

    async def _point(self, cluster: Obj, params: Params, secret: str) -> None:
        judged = _reached(cluster)
        for attempt in range(5):
            accepted = with_condition(cluster, ACCEPTED, TRUE, now=self._clock.time())
            status = {
                "apiEndpoint": params.endpoint,
                "caCert": params.ca,
                "serviceAccountTokenSecret": secret,
                "driver": _text(cluster, "status", "driver") or IMPORTED,
                "conditions": conditions_of(accepted),
            }
            patch = {"metadata": {"resourceVersion": resource_version_of(cluster)}, "status": status}
            try:
                await self._client.patch(CLUSTERS, name_of(cluster), patch)
                return
            except ApiError as error:
                if not error.is_conflict or attempt == 4:
                    raise
            # Others write conditions all the time. That is no reason to give up, unless the access itself has changed.
            cluster = await self._client.get(CLUSTERS, name_of(cluster))
            if _reached(cluster) != judged:
                raise ApiError(409, "Conflict", "the cluster was changed in the meantime")

    async def _forget(self, secret: str) -> None:
        await discard(self._client, SECRETS, secret, CREDENTIALS_NAMESPACE)

    async def refused(self, known: Known, why: str) -> None:
        """Report on the cluster that an agent with its token was refused."""
        for _ in range(5):
            cluster = await self._client.get(CLUSTERS, name_of(known.cluster))
            changed = with_condition(cluster, ACCEPTED, FALSE, "NotProven", why + _HELP, now=self._clock.time())
            try:
                await write_status(self._client, CLUSTERS, cluster, changed)
                return
            except ApiError as error:
                if not error.is_conflict:
                    raise


def trusts_in(secret: Obj) -> tuple[str, ...] | None:
    """The CAs by which a cluster's agent knows this server; None when it has not reported them."""
    if dig(secret, "data", TRUSTS) is None:
        return None
    return tuple(each for each in _decoded(secret, TRUSTS).split(_TRUSTED_BY) if each)


def _reached(cluster: Obj) -> tuple[str, ...]:
    return tuple(_text(cluster, "status", name) for name in ("apiEndpoint", "caCert", "serviceAccountTokenSecret"))


def _text(obj: Obj, *path: str) -> str:
    found = dig(obj, *path)
    return found if isinstance(found, str) else ""


def _decoded(secret: Obj, name: str) -> str:
    value = dig(secret, "data", name)
    try:
        return base64.b64decode(value, validate=True).decode() if isinstance(value, str) else ""
    except (binascii.Error, ValueError):
        return ""
