"""The agent's own cluster: the objects that the agent needs there, and its introduction to the server.

The server reaches the cluster's API as ServiceAccount `cattle-system/cattle`, whose token is in a Secret: tokens of pods end with
the pod and after an hour, and a kubeconfig may have a client certificate only. In a pod, the import manifest has made account and
role; as a plain process the agent makes them itself, through its kubeconfig.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from remuda.access.agent_objects import ADMIN_BINDING as BINDING
from remuda.access.agent_objects import ADMIN_ROLE as ROLE
from remuda.access.agent_objects import AGENT, BY_AGENT, MADE_BY, NAMESPACE
from remuda.access.agent_objects import AGGREGATION_SECRET as AGGREGATION
from remuda.access.agent_objects import SERVICE_ACCOUNT as ACCOUNT
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.client.kubeconfig import KubeTarget
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, resource_version_of

from .server_trust import Trust
from .settings import Settings

Obj = dict[str, Any]

TOKEN_SECRET = "cattle-token"
MANAGER = "remuda-cluster-agent"


ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")

_TOKEN_TYPE, _ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
# The token controller usually fills such Secrets in milliseconds.
_FILLED_WITHIN, _LOOK_EVERY = 30.0, 0.25


class ClusterError(Exception):
    """The cluster can't be introduced; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The server's access to the cluster: `host:port` (as dialled from here), a token, and the trusted CA."""

    address: str
    token: str = field(repr=False)
    ca: bytes

    def parameters(self, trusts: Sequence[str]) -> str:
        """The header `X-API-Tunnel-Params` (docs/reference/tunnel.md#claims-of-an-agent). `trusts`, our addition, has the
        fingerprints of the CAs with which the agent verifies the server."""
        cluster = {"address": self.address, "token": self.token, "caCert": base64.b64encode(self.ca).decode()}
        return base64.b64encode(jsonio.dumps({"cluster": cluster, "trusts": list(trusts)})).decode()


class OwnCluster:
    """One API server, as the agent sees it. `prepared`: the import manifest was applied, so account and role exist."""

    def __init__(self, client: Client, target: KubeTarget, clock: Clock, *, prepared: bool) -> None:
        self.target = target
        self._client = client
        self._clock = clock
        self._prepared = prepared

    async def close(self) -> None:
        await self._client.close()

    async def introduction(self) -> Introduction:
        """The introduction; creates missing objects. Raises ApiError and ClusterError."""
        address = address_of(self.target)
        if not self._prepared:
            await self._prepare()
        secret = await self._token_secret()
        token = _decoded(secret, "token").decode("ascii", "replace")
        return Introduction(address, token, await self._ca(secret))

    async def announce(self, settings: Settings, trust: Trust) -> None:
        """Write the Secret from which programs in this cluster learn about the server
        (docs/reference/tunnel.md#claims-of-an-agent)."""
        data = {
            "CATTLE_SERVER": settings.url,
            "CATTLE_TOKEN": settings.token,
            "CATTLE_CA_CHECKSUM": settings.ca_checksum,
            "CATTLE_CACERTS_VALID": "true" if trust.ca else "false",
            "url": f"{settings.url}/v3/connect",
            "token": f"stv-cluster-{settings.token}",
        }
        if trust.ca:
            data["ca.crt"] = trust.ca.decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": AGGREGATION, "namespace": NAMESPACE},
            "type": "Opaque",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        await apply_owned(self._client, SECRETS, secret, MANAGER)

    async def retire(self, credentials: str) -> None:
        """Scale this agent's own Deployment to zero. One that mounts other credentials is not ours any more: the cluster was
        imported again."""
        deployment = await find(self._client, DEPLOYMENTS, AGENT, NAMESPACE)
        volumes = dig(deployment or {}, "spec", "template", "spec", "volumes") or ()
        if deployment is None or credentials not in [dig(volume, "secret", "secretName") for volume in volumes]:
            return
        patch = {"metadata": {"resourceVersion": resource_version_of(deployment)}, "spec": {"replicas": 0}}
        await self._client.patch(DEPLOYMENTS, AGENT, patch, NAMESPACE, field_manager=MANAGER)

    async def _prepare(self) -> None:
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        everything = [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]
        role = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": ROLE}
        await self._ensure(NAMESPACES, _made("v1", "Namespace", NAMESPACE))
        await self._ensure(ACCOUNTS, _made("v1", "ServiceAccount", ACCOUNT, NAMESPACE))
        labels = {"cattle.io/creator": "norman"}
        version = f"{ROLES.group}/{ROLES.version}"
        await self._ensure(ROLES, _made(version, "ClusterRole", ROLE, labels=labels) | {"rules": everything})
        binding = _made(version, "ClusterRoleBinding", BINDING, labels=labels)
        await self._ensure(BINDINGS, binding | {"subjects": [subject], "roleRef": role})

    async def _ensure(self, resource: GroupVersionResource, obj: Obj) -> None:
        """Ensure that an object of that name exists; an existing one stays as it is."""
        namespace = obj["metadata"].get("namespace", "")
        try:
            await self._client.get(resource, obj["metadata"]["name"], namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
            try:
                await self._client.create(resource, obj, namespace, field_manager=MANAGER)
            except ApiError as refusal:
                if refusal.reason != "AlreadyExists":
                    raise

    async def _token_secret(self) -> Obj:
        secret = _made("v1", "Secret", TOKEN_SECRET, NAMESPACE)
        secret["metadata"]["annotations"][_ACCOUNT_NAME] = ACCOUNT
        await self._ensure(SECRETS, secret | {"type": _TOKEN_TYPE})
        until = self._clock.monotonic() + _FILLED_WITHIN
        while True:
            found = await self._client.get(SECRETS, TOKEN_SECRET, NAMESPACE)
            if found.get("type") != _TOKEN_TYPE or annotations_of(found).get(_ACCOUNT_NAME) != ACCOUNT:
                raise ClusterError(f"Secret {NAMESPACE}/{TOKEN_SECRET} is not one for tokens of {ACCOUNT}: remove it")
            if _decoded(found, "token"):
                return found
            if self._clock.monotonic() >= until:
                raise ClusterError(f"no token was put into Secret {NAMESPACE}/{TOKEN_SECRET}")
            await self._clock.sleep(_LOOK_EVERY)

    async def _ca(self, secret: Obj) -> bytes:
        """The CA for the introduced address: the kubeconfig's, else the one that the cluster itself publishes."""
        if self.target.ca:
            return self.target.ca
        if told := _decoded(secret, "ca.crt"):
            return told
        published = await self._client.get(CONFIG_MAPS, "kube-root-ca.crt", NAMESPACE)
        if told := str((published.get("data") or {}).get("ca.crt") or "").encode():
            return told
        raise ClusterError("the CA of the cluster's API server was not found")


def address_of(target: KubeTarget) -> str:
    """`host:port` of an API server. Raises ClusterError for an address that has no such form."""
    parts = urlsplit(target.server)
    if parts.scheme != "https" or not parts.hostname:
        raise ClusterError(f"{target.server} is not reached by https")
    if parts.path.strip("/"):
        raise ClusterError(f"{target.server} has a path, and only hosts can be introduced: use the cluster's own kubeconfig")
    if target.tls_server_name:
        raise ClusterError(
            "the kubeconfig has a tls-server-name, which can't be sent to the server: use a name of its certificate"
        )
    if target.proxy_url:
        raise ClusterError(
            "the kubeconfig has a proxy-url, and the API is dialled directly: run the agent where that is possible"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or 443}"


def _made(api_version: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None) -> Obj:
    # The annotation marks the objects for removal with the cluster.
    metadata: Obj = {"name": name, "annotations": {MADE_BY: BY_AGENT}}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _decoded(secret: Obj, key: str) -> bytes:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key) or "")
    except (binascii.Error, ValueError):
        return b""
