"""Impersonation in clusters: a service account there for each user, which may act as that user only
(docs/reference/proxy.md#impersonation).

The agent's account makes the account `cattle-impersonation-<user>` at the user's first request, with a role that allows it to
impersonate the user's name, groups and extras. Our requests carry its token and name the user in `Impersonate-*`, so that a
cluster's own rules decide about `<user>`, and its audit log has both. A token lives for an hour and never leaves this process.
When a user is deleted, their accounts are removed; in disconnected clusters, as soon as those connect.

User names that no Kubernetes object could have (those of client certificates) appear as a hash in the account's name.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from dataclasses import dataclass, field
from typing import Any

from remuda.access.agent_objects import IMPERSONATION_NAMESPACE, MADE_FOR
from remuda.api.management_cattle_io import USERS
from remuda.client.idempotent import discard
from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, name_of

from ..server.dependencies import Services
from .tunnel_downstreams import TunnelDownstreams

log = logging.getLogger(__name__)

Obj = dict[str, Any]

PREFIX = "cattle-impersonation-"
LABEL = "authz.cluster.cattle.io/impersonator"
# The account's user, since a name may be a hash.
USER = "remuda.dev/user"
EXTRAS = ("requesttokenid", "requesthost", "principalid", "username")


SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")

TOKEN_SECONDS = 3600
# As Rancher requests them, for a user who impersonates one of the cluster's own accounts.
ACCOUNT_SECONDS = 600
# The share of its lifetime after which a token is replaced.
_SPENT = 0.8
_MANAGER = "remuda-impersonation"
# The number of clusters cleaned at a time.
_AT_ONCE = 8
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Grant:
    """The identity that an account may impersonate: one user, with some of these groups, principals and names."""

    user: str
    groups: frozenset[str] = frozenset()
    principals: frozenset[str] = frozenset()
    usernames: frozenset[str] = frozenset()

    @classmethod
    def of(cls, user: User) -> Grant:
        found = user.extra
        principals, usernames = (frozenset(found.get(key, ())) for key in ("principalid", "username"))
        return cls(user.name, frozenset(user.groups), principals - {""}, usernames - {""})

    def covers(self, other: Grant) -> bool:
        return self.groups >= other.groups and self.principals >= other.principals and self.usernames >= other.usernames

    def with_(self, other: Grant) -> Grant:
        return Grant(self.user, self.groups | other.groups, self.principals | other.principals, self.usernames | other.usernames)


def account_name(user: str) -> str:
    if _NAME.fullmatch(user):
        return PREFIX + user
    return f"{PREFIX}x-{hashlib.sha256(user.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"


def rules_for(grant: Grant) -> list[Obj]:
    """The rules of an account's role. A rule without resource names would allow all, so there is none."""
    named = (
        ("", "users", [grant.user]),
        ("", "groups", sorted(grant.groups)),
        ("authentication.k8s.io", "userextras/principalid", sorted(grant.principals)),
        ("authentication.k8s.io", "userextras/username", sorted(grant.usernames)),
    )
    rules: list[Obj] = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"], "resourceNames": names}
        for group, resource, names in named
        if names
    ]
    anything = ["userextras/requesttokenid", "userextras/requesthost"]
    return [*rules, {"apiGroups": ["authentication.k8s.io"], "resources": anything, "verbs": ["impersonate"]}]


def headers_for(user: User) -> list[tuple[str, str]]:
    """The headers that tell a cluster who the user is."""
    found = [("Impersonate-User", user.name)]
    found += [("Impersonate-Group", group) for group in user.groups]
    for key in EXTRAS:
        found += [(f"Impersonate-Extra-{key.capitalize()}", value) for value in user.extra.get(key, ()) if value]
    return found


def objects_for(grant: Grant, cluster: str) -> list[tuple[GroupVersionResource, Obj]]:
    """The objects that an account needs, in the order in which they are made."""
    name = account_name(grant.user)
    marks = {MADE_FOR: cluster, USER: grant.user}
    labels = {LABEL: "true"}
    metadata: Obj = {"name": name, "labels": labels, "annotations": marks}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": IMPERSONATION_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        (
            NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": IMPERSONATION_NAMESPACE}},
        ),
        (
            SERVICE_ACCOUNTS,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": IMPERSONATION_NAMESPACE}},
        ),
        (CLUSTER_ROLES, {"apiVersion": rbac, "kind": "ClusterRole", "metadata": metadata, "rules": rules_for(grant)}),
        (
            CLUSTER_ROLE_BINDINGS,
            {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [subject], "roleRef": role},
        ),
    ]


@dataclass(slots=True)
class _Account:
    """One account and its token, as far as they exist. With the lock, concurrent first requests make them once."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    grant: Grant | None = None
    made_of: object = None
    token: str = field(default="", repr=False)
    until: float = 0.0


class Impersonation:
    """The accounts of all users in all clusters."""

    _MOST = 50_000

    def __init__(self, services: Services, downstreams: TunnelDownstreams) -> None:
        self._clock = services.clock
        self._downstreams = downstreams
        self._users = services.informers.of(USERS)
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._to_sweep: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._work = asyncio.Event()
        self._users.on_change(self._user_changed)
        downstreams.on_change(self._cluster_changed)
        services.beside.append(self._clean_up)

    async def token(self, cluster: str, user: User) -> str:
        """The token with which to act as this user in this cluster. Raises ApiError."""
        grant = Grant.of(user)
        account = self._account(cluster, user.name)
        if account.token and self._is_good(cluster, account, grant):
            return account.token
        async with account.lock:
            if not (account.token and self._is_good(cluster, account, grant)):
                await self._make(cluster, account, grant)
            return account.token

    async def account_token(self, cluster: str, namespace: str, name: str) -> str:
        """The token of one of the cluster's own accounts, for a user who may impersonate it."""
        account = self._account(cluster, f"system:serviceaccount:{namespace}:{name}\0")
        async with account.lock:
            if not account.token or self._clock.monotonic() >= account.until:
                await self._request(account, self._client(cluster), namespace, name, ACCOUNT_SECONDS)
            return account.token

    def forget_account(self, cluster: str, namespace: str, name: str) -> None:
        self._accounts.pop((cluster, f"system:serviceaccount:{namespace}:{name}\0"), None)

    def forget(self, cluster: str, user: str) -> None:
        """The token was refused: the next request creates everything again."""
        self._accounts.pop((cluster, user), None)

    def _account(self, cluster: str, user: str) -> _Account:
        found = self._accounts.get((cluster, user))
        if found is None:
            if len(self._accounts) >= self._MOST:
                now = self._clock.monotonic()
                for key in [key for key, account in self._accounts.items() if account.until < now and not account.lock.locked()]:
                    del self._accounts[key]
            found = self._accounts[cluster, user] = _Account()
        return found

    def _is_good(self, cluster: str, account: _Account, grant: Grant) -> bool:
        if self._clock.monotonic() >= account.until or account.grant is None or not account.grant.covers(grant):
            return False
        reach = self._downstreams.reach(cluster)
        return reach is not None and reach.made_of == account.made_of

    def _client(self, cluster: str) -> Client:
        reach = self._downstreams.reach(cluster)
        if reach is None:
            raise self._downstreams.out_of_reach(cluster)
        return reach.client

    # --- making ---------------------------------------------------------------------------------------------------------

    async def _make(self, cluster: str, account: _Account, grant: Grant) -> None:
        client = self._client(cluster)
        reach = self._downstreams.reach(cluster)
        # Two logins of a user may differ in their groups; the role allows both, so that it is not rewritten each time.
        spent = self._clock.monotonic() >= account.until
        wanted = grant if account.grant is None or spent else account.grant.with_(grant)
        for resource, obj in objects_for(wanted, cluster):
            await _put(client, resource, obj)
        await self._until_it_counts(client, wanted)
        if spent or not account.token or reach is None or account.made_of != reach.made_of:
            name = account_name(grant.user)
            await self._request(account, client, IMPERSONATION_NAMESPACE, name, TOKEN_SECONDS)
        account.grant = wanted
        account.made_of = reach.made_of if reach is not None else None

    async def _until_it_counts(self, client: Client, grant: Grant) -> None:
        """Wait until the role counts: an API server notices it a moment after storing it."""
        account = f"system:serviceaccount:{IMPERSONATION_NAMESPACE}:{account_name(grant.user)}"
        last = [("users", grant.user), *(("groups", group) for group in sorted(grant.groups)[-1:])]
        for pause in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 0.0):
            if all([await _may_be(client, account, resource, name) for resource, name in last]):
                return
            await self._clock.sleep(pause)

    async def _request(self, account: _Account, client: Client, namespace: str, name: str, seconds: int) -> None:
        began = self._clock.monotonic()
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        given = await client.create(SERVICE_ACCOUNTS, wanted, namespace, name=name, subresource="token")
        token = dig(given, "status", "token")
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,16384}", token):
            raise ApiError(502, "BadGateway", "the cluster gave no token for the user's service account")
        # Its lifetime is measured here: the cluster's clock may differ from ours.
        lasting = dig(given, "spec", "expirationSeconds")
        account.token = token
        account.until = began + _SPENT * (lasting if isinstance(lasting, int) and 60 <= lasting <= seconds else seconds)

    # --- cleaning up ----------------------------------------------------------------------------------------------------

    def _user_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None:
            self._gone[name_of(old)] = None
            self._work.set()

    def _cluster_changed(self, cluster: str) -> None:
        if self._downstreams.reach(cluster) is not None:
            self._to_sweep[cluster] = None
            self._work.set()

    async def _clean_up(self) -> None:
        await self._users.synced.wait()
        turns = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._work.wait()
                self._work.clear()
                gone, self._gone = self._gone, {}
                changed, self._to_sweep = self._to_sweep, {}
                for user in gone:
                    for cluster in self._downstreams.reached():
                        group.create_task(self._quietly(turns, cluster, user))
                for cluster in changed:
                    group.create_task(self._quietly(turns, cluster))

    async def _quietly(self, turns: asyncio.Semaphore, cluster: str, user: str = "") -> None:
        """Remove the account of one user, or of all deleted users. A cluster that does not answer does not delay others."""
        try:
            async with turns:
                await (self._remove(cluster, account_name(user), user) if user else self._sweep(cluster))
        except (ApiError, OSError) as error:
            log.info("accounts of deleted users stay in cluster %s until it is connected again: %s", cluster, error)

    async def _sweep(self, cluster: str) -> None:
        """Remove the accounts of users who were deleted while this cluster was not connected."""
        listed = await self._client(cluster).list(SERVICE_ACCOUNTS, IMPERSONATION_NAMESPACE, labels=f"{LABEL}=true")
        for found in listed["items"]:
            user = annotations_of(found).get(USER)
            # Leave accounts made by others; a user without a User object comes by certificate, and may come again.
            if user and _NAME.fullmatch(user) and name_of(found) == account_name(user) and self._users.get("", user) is None:
                await self._remove(cluster, name_of(found), user)

    async def _remove(self, cluster: str, name: str, user: str) -> None:
        client = self._client(cluster)
        self.forget(cluster, user)
        for resource, namespace in (
            (CLUSTER_ROLE_BINDINGS, ""),
            (CLUSTER_ROLES, ""),
            (SERVICE_ACCOUNTS, IMPERSONATION_NAMESPACE),
        ):
            await discard(client, resource, name, namespace)


async def _may_be(client: Client, account: str, resource: str, name: str) -> bool:
    attributes = {"verb": "impersonate", "resource": resource, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "resourceAttributes": attributes},
    }
    return dig(await client.create(REVIEWS, review), "status", "allowed") is True


async def _put(client: Client, resource: GroupVersionResource, obj: Obj) -> None:
    """Apply exactly this, replacing any change by others: roles and subjects are lists that one manager owns as a whole."""
    try:
        await apply_owned(client, resource, obj, _MANAGER)
    except ApiError as error:
        if resource is not CLUSTER_ROLE_BINDINGS or error.code != 422:
            raise
        # A binding's role can't be changed, so the binding is replaced.
        await client.delete(resource, name_of(obj))
        await apply_owned(client, resource, obj, _MANAGER)
