"""The kubeconfig Secret of a cluster, with its user and token: created, and repaired.

The Secret is written before the Token, which only has a hash of it. A Secret that does not match the Token is never
trusted: an attacker may have written it to know the token beforehand. Both are then created anew, as after a crash between
the two. Not at once, though: another controller may be between the two writes, and both would overwrite each other for ever.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

from remuda.access.clusters.server_settings import ServerFacts, ServerSettings
from remuda.access.users.token_hashes import hashed_secret
from remuda.access.users.tokens import CONTROLLERS_KIND, SECRET_LENGTH, Presented, TokenSpec, make_token, owns
from remuda.access.users.user_objects import is_enabled, user_manifest
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_ROLE_TEMPLATE_BINDINGS, TOKENS, USERS
from remuda.capi.well_known import CLUSTER_NAME, kubeconfig_secret
from remuda.capi.well_known import SECRET_TYPE as CLUSTER_SECRET_TYPE
from remuda.capi.workload_clusters import cluster_secrets, data_of, only_kubeconfigs
from remuda.client.idempotent import find, make, remove
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.objects import Key, is_being_deleted, labels_of, name_of, namespace_of, owner_references_of, resource_version_of
from remuda.kube.owners import is_owned_by, reference, with_owner
from remuda.kube.wrangler import marks, origin_of, safe_concat
from remuda.runtime import Manager, Retry, Watch, changed

from ..well_known import FROM_WANTED

Obj = dict[str, Any]

_PATIENCE = (1.0, 4.0)
_BINDING_FIELDS = ("clusterName", "roleTemplateName", "userName")


class BeingWritten(Exception):
    """Try again in so many `seconds`: another controller may be writing."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the token and its Secret don't fit each other")
        self.seconds = seconds


class Kubeconfigs:
    """`who`: the name of the controller that uses it."""

    def __init__(self, manager: Manager, server: ServerSettings, entropy: Entropy, who: str) -> None:
        self._manager = manager
        self._client = manager.client
        self._server = server
        self._entropy = entropy
        self._who = who
        self._secrets = cluster_secrets(manager.informers)
        self._users = manager.informers.of(USERS)
        self._tokens = manager.informers.of(TOKENS)
        self._bindings = manager.informers.of(CLUSTER_ROLE_TEMPLATE_BINDINGS)
        # Clusters whose Secret and Token did not match, with the revisions.
        self._unsettled: dict[Key, tuple[str, str]] = {}
        self.caches = (self._secrets, self._users, self._tokens, self._bindings)
        self.watches = (
            Watch(SECRETS, _cluster_of_secret, labels=CLUSTER_NAME, transform=only_kubeconfigs),
            Watch(USERS, _origin),
            # The Token is used all the time, which changes its time of last use.
            Watch(TOKENS, _origin, changed("token", "userId", "clusterName", "enabled")),
            Watch(CLUSTER_ROLE_TEMPLATE_BINDINGS, _origin, changed("clusterName", "roleTemplateName", "userName")),
        )

    async def ensure(self, wanted: Obj, managed: str) -> str:
        """The name of the Secret, once it exists and is valid; empty while this server's address is unknown, the user is
        disabled, or the Secret belongs to another owner. Raises Unsettled."""
        facts = self._server.facts()
        if not facts.internal_url:
            return ""
        key = Key.of(wanted)
        user = self._users.get("", user_name(key))
        if user is None:
            self._wrote(key, self._users, await make(self._client, USERS, user_of(wanted)))
        elif not is_enabled(user):
            # An administrator disabled it; its rights are removed elsewhere.
            return ""
        await self._ensure_binding(wanted, managed)
        name = kubeconfig_secret(key.name)
        secret = self._secrets.get(key.namespace, name) or await find(self._client, SECRETS, name, key.namespace)
        if secret is not None and _is_anothers(secret, wanted):
            # It belongs to a cluster that only has the same name; its kubeconfig would point to this cluster.
            return ""
        token = self._tokens.get("", user_name(key))
        text = _known_text(secret, token, managed, user_name(key))
        if not text:
            self._wait_for_others(key, secret, token)
            text = f"{user_name(key)}:{new_secret(self._entropy)}"
            await self._write_secret(secret, secret_of(wanted, managed, text, facts), wanted)
            await self._write_token(token, wanted, managed, text.partition(":")[2])
        else:
            await self._write_secret(secret, secret_of(wanted, managed, text, facts), wanted)
        return name

    def _wait_for_others(self, key: Key, secret: Obj | None, token: Obj | None) -> None:
        """A missing Secret is created at once; an existing one may be half of another controller's writes."""
        seen = (resource_version_of(secret or {}), resource_version_of(token or {}))
        if secret is not None and self._unsettled.get(key) != seen:
            self._unsettled[key] = seen
            raise BeingWritten(self._manager.rng.uniform(*_PATIENCE))
        self._unsettled.pop(key, None)

    async def forget(self, wanted: Obj, managed: Iterable[str]) -> None:
        """Delete the user, its token and its bindings; the Secret goes with its owner."""
        name = user_name(Key.of(wanted))
        self._unsettled.pop(Key.of(wanted), None)
        for cluster in managed:
            binding = self._bindings.get(cluster, name_of(binding_of(wanted, cluster)))
            if binding is not None:
                await remove(self._client, CLUSTER_ROLE_TEMPLATE_BINDINGS, binding)
        for resource in (TOKENS, USERS):
            if (found := await find(self._client, resource, name)) is not None:
                await remove(self._client, resource, found)

    # --- writing --------------------------------------------------------------------------------------------------------

    def _wrote(self, key: Key, informer: Any, obj: Obj | None) -> None:
        if obj is not None:
            self._manager.freshness.wrote((self._who, key), informer, obj)

    async def _ensure_binding(self, wanted: Obj, managed: str) -> None:
        target = binding_of(wanted, managed)
        found = self._bindings.get(managed, name_of(target))
        if found is not None and all(found.get(field) == target[field] for field in _BINDING_FIELDS):
            return
        if found is not None:
            # The subject and role of a binding can't be changed.
            await remove(self._client, CLUSTER_ROLE_TEMPLATE_BINDINGS, found)
            raise Retry("a binding that is not as it was made has to go first")
        self._wrote(Key.of(wanted), self._bindings, await make(self._client, CLUSTER_ROLE_TEMPLATE_BINDINGS, target))

    async def _write_secret(self, found: Obj | None, target: Obj, wanted: Obj) -> None:
        key = Key.of(wanted)
        if found is None:
            made = await make(self._client, SECRETS, target)
            if made is None:
                raise Retry(f"the Secret {name_of(target)} has just been made by another client")
            self._wrote(key, self._secrets, made)
            return
        patch: Obj = {}
        if {name: (found.get("data") or {}).get(name) for name in target["data"]} != target["data"]:
            patch["data"] = target["data"]
        meta: Obj = {}
        if labels_of(found).get(CLUSTER_NAME) != key.name:
            meta["labels"] = {CLUSTER_NAME: key.name}
        if not is_owned_by(found, wanted):
            meta["ownerReferences"] = with_owner(found, reference(wanted))["metadata"]["ownerReferences"]
        if patch or meta:
            patch["metadata"] = {**meta, "resourceVersion": resource_version_of(found)}
            self._wrote(key, self._secrets, await self._client.patch(SECRETS, name_of(found), patch, key.namespace))

    async def _write_token(self, found: Obj | None, wanted: Obj, managed: str, secret: str) -> None:
        target = token_of(wanted, managed, secret, self._manager.clock.time(), self._entropy)
        key = Key.of(wanted)
        if found is None:
            made = await make(self._client, TOKENS, target)
            if made is None:
                raise Retry(f"the Token {name_of(target)} has just been made by another client")
            self._wrote(key, self._tokens, made)
            return
        if is_being_deleted(found):
            raise Retry(f"the Token {name_of(target)} is being deleted")
        target["metadata"]["resourceVersion"] = resource_version_of(found)
        self._wrote(key, self._tokens, await self._client.update(TOKENS, target))


def _is_anothers(secret: Obj, wanted: Obj) -> bool:
    """True if another owner made a Secret of that name, as Cluster API does."""
    if is_owned_by(secret, wanted):
        return False
    return bool(owner_references_of(secret)) or secret.get("type") == CLUSTER_SECRET_TYPE


def _known_text(secret: Obj | None, token: Obj | None, managed: str, user: str) -> str:
    """The token in the Secret, if it matches the Token and is for this cluster; else empty."""
    if secret is None or token is None or is_being_deleted(secret) or is_being_deleted(token):
        return ""
    text = (data_of(secret, "token") or b"").decode(errors="replace")
    name, _, rest = text.partition(":")
    if name != user or token.get("userId") != user or token.get("clusterName") != managed or token.get("enabled") is False:
        return ""
    return text if owns(token, Presented(name, rest)) else ""


def _origin(obj: Obj) -> Iterable[Key]:
    found = origin_of(obj, FROM_WANTED)
    return () if found is None else (found,)


def _cluster_of_secret(secret: Obj) -> Iterable[Key]:
    suffix = kubeconfig_secret("")
    name = name_of(secret)
    return (Key(namespace_of(secret), name.removesuffix(suffix)),) if name.endswith(suffix) else ()


# --- kubeconfig identity --------------------------------------------------------------------------------------------------
#
# The user as which controllers access a cluster, and its kubeconfig (docs/reference/proxy.md#kubeconfig-of-a-cluster). Pure;
# names as Rancher's.
#
# Each cluster has a user of its own, whose name follows from the cluster's: it owns only that cluster, and its token is
# valid only at that cluster's address.

OWNER_TEMPLATE = "cluster-owner"
SECRET_TYPE = "Opaque"
_HASHED = "hashed-principal-name"


def principal_of(cluster: Key) -> str:
    return f"system://provisioning/{cluster.namespace}/{cluster.name}"


def user_name(cluster: Key) -> str:
    digest = hashlib.sha256(principal_of(cluster).encode()).digest()
    return f"u-{base64.b32encode(digest).decode()[:10].lower()}"


def principal_label(cluster: Key) -> str:
    """The user's label by which Rancher finds it from its principal."""
    return base64.b32hexencode(principal_of(cluster).encode()).decode().rstrip("=")[:63]


def user_of(wanted: Obj) -> Obj:
    cluster = Key.of(wanted)
    labels, annotations = marks(FROM_WANTED, wanted)
    made = user_manifest(
        user_name(cluster),
        "",
        display_name=f"System account for cluster {cluster}",
        labels={principal_label(cluster): _HASHED, **labels},
    )
    made["metadata"]["annotations"] = annotations
    made["principalIds"] = [principal_of(cluster), *made["principalIds"]]
    return made


def new_secret(entropy: Entropy) -> str:
    return entropy.token_text(SECRET_LENGTH)


def token_of(wanted: Obj, managed: str, secret: str, now: float, entropy: Entropy) -> Obj:
    """The Token of that user, for this secret."""
    cluster = Key.of(wanted)
    name = user_name(cluster)
    labels, annotations = marks(FROM_WANTED, wanted)
    principal = {"metadata": {"name": principal_of(cluster)}, "provider": "system", "principalType": "user", "me": True}
    wish = TokenSpec(
        name,
        0,
        CONTROLLERS_KIND,
        f"controllers' access to cluster {cluster}",
        cluster=managed,
        name=name,
        labels=labels,
        principal=principal,
    )
    made = make_token(wish, now, entropy).manifest
    made["token"] = hashed_secret(secret, entropy)
    made["metadata"]["annotations"].update(annotations)
    return made


def binding_of(wanted: Obj, managed: str) -> Obj:
    """The binding that makes that user an owner of the cluster."""
    labels, annotations = marks(FROM_WANTED, wanted)
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleTemplateBinding",
        "metadata": {
            "name": safe_concat(managed, namespace_of(wanted), "owner"),
            "namespace": managed,
            "labels": labels,
            "annotations": annotations,
        },
        "clusterName": managed,
        "roleTemplateName": OWNER_TEMPLATE,
        "userName": user_name(Key.of(wanted)),
    }


def kubeconfig(managed: str, token: str, facts: ServerFacts) -> str:
    cluster: Obj = {"server": f"{facts.internal_url}/k8s/clusters/{managed}"}
    if ca := facts.internal_ca.strip():
        cluster["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    return yamlio.dumps(
        {
            "apiVersion": "v1",
            "clusters": [{"cluster": cluster, "name": "cluster"}],
            "contexts": [{"context": {"cluster": "cluster", "user": "user"}, "name": "default"}],
            "current-context": "default",
            "kind": "Config",
            "preferences": {},
            "users": [{"name": "user", "user": {"token": token}}],
        }
    )


def secret_of(wanted: Obj, managed: str, token: str, facts: ServerFacts) -> Obj:
    data = {"value": kubeconfig(managed, token, facts), "token": token}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": {
            "name": kubeconfig_secret(name_of(wanted)),
            "namespace": namespace_of(wanted),
            "labels": {CLUSTER_NAME: name_of(wanted)},
            "ownerReferences": [reference(wanted)],
        },
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }
