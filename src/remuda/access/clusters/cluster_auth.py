"""The controller that tells clusters with an authorised endpoint which tokens they may accept.

Keyed by the management Cluster. The cluster's objects are compared as a whole with the wanted ones, so that a token revoked
while the cluster was away is deleted when it returns. A note on the Cluster says that it contains objects of ours: it is written
before the first one is made and removed after the last is deleted, so a disabled endpoint leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda import api
from remuda.api.cluster_cattle_io import API_VERSION, CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP
from remuda.api.crd_installation import established, install_missing
from remuda.api.management_cattle_io import CLUSTERS, TOKENS, USERS
from remuda.client.idempotent import discard, find, make, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, is_being_deleted, name_of, namespace_of, with_path
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

from ..agent_objects import AUTH, MADE_FOR, NAMESPACE
from ..downstreams import Downstreams, not_connected, while_working
from ..users.tokens import HASHED_ANNOTATION, ends_at, groups_of, is_expired
from ..users.user_objects import is_enabled

# --- cluster auth tokens --------------------------------------------------------------------------------------------------
#
# Objects with which a cluster checks its users' tokens by itself: pure, from tokens and users.
#
# Only tokens for this cluster alone: a token that also opens others must not be shown to a cluster's owner, not even its hash.

TOKEN: Final = "ClusterAuthToken"
USER: Final = "ClusterUserAttribute"


def is_wanted(cluster: Obj) -> bool:
    """True if the cluster has an authorised endpoint. The management cluster is its own."""
    return dig(cluster, "spec", "localClusterAuthEndpoint", "enabled") is True and not dig(cluster, "spec", "internal")


def desired(cluster: str, tokens: Iterable[Obj], users: Mapping[str, Obj], now: float) -> list[Obj]:
    """The wanted objects, users first: the token of an unknown user gives no access."""
    found: list[Obj] = []
    groups: dict[str, set[str]] = {}
    for token in sorted(tokens, key=name_of):
        user = str(token.get("userId") or "")
        if _counts(token, cluster, now) and user in users and _is_let_in(users[user]):
            groups.setdefault(user, set()).update(groups_of(token))
            found.append(_token(token, user, cluster))
    return [*(_user(name, sorted(groups[name]), cluster) for name in sorted(groups)), *found]


def _counts(token: Obj, cluster: str, now: float) -> bool:
    return (
        token.get("clusterName") == cluster
        and token.get("enabled") is not False
        # Nothing about a token whose secret is stored in plain text.
        and annotations_of(token).get(HASHED_ANNOTATION) == "true"
        and not is_being_deleted(token)
        and not is_expired(token, now)
    )


def _is_let_in(user: Obj) -> bool:
    return is_enabled(user) and not is_being_deleted(user) and user.get("mustChangePassword") is not True


def _token(token: Obj, user: str, cluster: str) -> Obj:
    ends = ends_at(token)
    return {
        **_object(TOKEN, name_of(token), cluster),
        "userName": user,
        "hash": str(token.get("token") or ""),
        "expiresAt": "" if ends is None else rfc3339(ends),
        "enabled": True,
    }


def _user(name: str, groups: list[str], cluster: str) -> Obj:
    return {**_object(USER, name, cluster), "groups": groups, "enabled": True}


def _object(kind: str, name: str, cluster: str) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": {MADE_FOR: cluster}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}


def difference(existing: Obj, wanted: Obj) -> Obj:
    """The merge patch to the wanted object; empty if nothing differs."""
    patch = {name: value for name, value in wanted.items() if name != "metadata" and existing.get(name) != value}
    for name in ("apiVersion", "kind"):
        # Objects in a list may lack apiVersion and kind.
        patch.pop(name, None)
    if annotations_of(existing).get(MADE_FOR) != annotations_of(wanted)[MADE_FOR]:
        patch["metadata"] = {"annotations": annotations_of(wanted)}
    return patch


# --- cluster auth ---------------------------------------------------------------------------------------------------------

log = logger(__name__)

Obj = dict[str, Any]

NAME: Final = "cluster-auth"
# An annotation of a Cluster: it contains objects of this controller.
TOLD: Final = "remuda.dev/authorized-endpoint"
_BY_CLUSTER, _BY_USER = "bound-cluster", "bound-user"
_RBAC = "rbac.authorization.k8s.io"
# The objects that the manifest creates for it (:mod:`remuda.gateway.registration.agent_manifest`).
_DEPLOYED = (
    (GroupVersionResource("apps", "v1", "daemonsets"), NAMESPACE),
    (GroupVersionResource(_RBAC, "v1", "clusterrolebindings"), ""),
    (GroupVersionResource(_RBAC, "v1", "clusterroles"), ""),
    (GroupVersionResource("", "v1", "serviceaccounts"), NAMESPACE),
)

_RESOURCES: Final = {TOKEN: CLUSTER_AUTH_TOKENS, USER: CLUSTER_USER_ATTRIBUTES}


class ClusterAuth:
    def __init__(self, manager: Manager, downstreams: Downstreams) -> None:
        self._manager = manager
        self._client, self._clock = manager.client, manager.clock
        self._downstreams = downstreams
        self._clusters = manager.informers.of(CLUSTERS)
        self._users = manager.informers.of(USERS)
        self._tokens = manager.informers.of(TOKENS)
        self._tokens.add_index(_BY_CLUSTER, _cluster_of)
        self._tokens.add_index(_BY_USER, lambda token: (str(token.get("userId") or ""),) if _cluster_of(token) else ())
        self.controller = Controller(
            NAME,
            CLUSTERS,
            when=changed(is_wanted),
            watches=(
                Watch(TOKENS, lambda token: [Key("", cluster) for cluster in _cluster_of(token)], when=_token_change),
                Watch(USERS, self._of_user, when=_user_change),
            ),
            concurrency=8,
            lane=lambda key: key,
        )
        while_working(manager, lambda: downstreams.on_change(self._look))

    def _of_user(self, user: Obj) -> list[Key]:
        bound = self._tokens.indexed(_BY_USER, name_of(user))
        return [Key("", cluster) for cluster in sorted({cluster for token in bound for cluster in _cluster_of(token)})]

    def _look(self, cluster: str) -> None:
        working = self._manager.working(NAME)
        if working is not None and self._downstreams.is_connected(cluster):
            working.queue.add(Key("", cluster))

    async def reconcile(self, key: Key) -> Result:
        await synced(self._clusters, self._users, self._tokens)
        cluster = self._clusters.get(*key)
        # Cluster removal also removes our objects there.
        if cluster is None or is_being_deleted(cluster):
            return DONE
        told = annotations_of(cluster).get(TOLD) == "true"
        if not is_wanted(cluster) and not told:
            return DONE
        downstream = self._downstreams.get(key.name)
        if downstream is None:
            return Result(waits=(not_connected(cluster),))
        try:
            if is_wanted(cluster):
                if not told:
                    await self._note("true", key.name)
                await self._tell(key.name, downstream.client)
            else:
                await forget(downstream.client, key.name)
                await self._note(None, key.name)
        except OSError as error:
            # The controller tries again when the cluster is back.
            log.info("the tokens could not be written into the cluster: %s", error)
        return DONE

    async def _note(self, value: str | None, cluster: str) -> None:
        await self._client.patch(CLUSTERS, cluster, {"metadata": {"annotations": {TOLD: value}}}, field_manager=NAME)

    async def _tell(self, cluster: str, client: Client) -> None:
        tokens = self._tokens.indexed(_BY_CLUSTER, cluster)
        named = {str(token.get("userId") or "") for token in tokens}
        users = {name: user for name in named if (user := self._users.get("", name)) is not None}
        wanted = desired(cluster, tokens, users, self._clock.time())
        existing = await self._existing(client, cluster)
        kept = {(each["kind"], name_of(each)) for each in wanted}
        for (kind, name), obj in existing.items():
            if (kind, name) not in kept and annotations_of(obj).get(MADE_FOR) == cluster:
                await remove(client, _RESOURCES[kind], obj)
        for each in wanted:
            await _put(client, each, existing.get((each["kind"], name_of(each))))

    async def _existing(self, client: Client, cluster: str) -> dict[tuple[str, str], Obj]:
        """The existing objects, after the definitions are installed."""
        try:
            return await _listed(client)
        except ApiError as error:
            if error.code != 404:
                raise
        definitions = [with_path(each, ("metadata", "annotations", MADE_FOR), cluster) for each in api.crds([GROUP])]
        await install_missing(client, definitions)
        await established(client, self._clock, [name_of(each) for each in definitions])
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "annotations": {MADE_FOR: cluster}}}
        await make(client, NAMESPACES, space, NAME)
        return await _listed(client)


async def _listed(client: Client) -> dict[tuple[str, str], Obj]:
    found = {}
    for kind, resource in _RESOURCES.items():
        for obj in (await client.list(resource, NAMESPACE))["items"]:
            found[kind, name_of(obj)] = obj
    return found


async def _put(client: Client, wanted: Obj, found: Obj | None) -> None:
    resource = _RESOURCES[wanted["kind"]]
    if found is None:
        if await make(client, resource, wanted, NAME) is not None:
            return
        found = await find(client, resource, name_of(wanted), NAMESPACE)
    if found is not None and (patch := difference(found, wanted)):
        await client.patch(resource, name_of(wanted), patch, NAMESPACE, field_manager=NAME)


async def forget(client: Client, cluster: str) -> None:
    """Remove all objects of this controller from a cluster, the program that uses them first."""
    for resource, namespace in _DEPLOYED:
        obj = await find(client, resource, AUTH, namespace)
        if obj is not None and annotations_of(obj).get(MADE_FOR) == cluster:
            await remove(client, resource, obj, propagation="Background")
    for definition in api.crds([GROUP]):
        obj = await find(client, CRDS, name_of(definition))
        if obj is not None and annotations_of(obj).get(MADE_FOR) == cluster:
            await remove(client, CRDS, obj)
        elif obj is not None:
            await _forget_objects(client, cluster)


async def _forget_objects(client: Client, cluster: str) -> None:
    """Only our objects: definitions made by others stay, and so do the objects that others made of them."""
    for (kind, name), obj in (await _listed(client)).items():
        if annotations_of(obj).get(MADE_FOR) == cluster:
            await discard(client, _RESOURCES[kind], name, namespace_of(obj))


def _cluster_of(token: Obj) -> Iterable[str]:
    cluster = token.get("clusterName")
    return (cluster,) if isinstance(cluster, str) and cluster else ()


# Not the last use of a token.
_token_fields = changed("token", "enabled", "expired", "expiresAt", "ttl", "groupPrincipals", "clusterName", "userId")
_user_fields = changed("enabled", "mustChangePassword")


def _token_change(new: Obj | None, old: Obj | None) -> bool:
    return is_being_deleted(new or {}) or _token_fields(new, old)


def _user_change(new: Obj | None, old: Obj | None) -> bool:
    return is_being_deleted(new or {}) or _user_fields(new, old)
