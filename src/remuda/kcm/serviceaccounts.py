"""Defaults of every namespace for its pods: the account `default` and the CA in `kube-root-ca.crt`; and legacy token Secrets."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from remuda.client.interface import Client
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    annotations_of,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from remuda.runtime import Informers, Workers, WorkQueue, synced

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
ROOT_CA_NAME = "kube-root-ca.crt"
DESCRIPTION = "kubernetes.io/description"
_ROOT_CA_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal "
    "service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


def _is_active(namespace: Obj) -> bool:
    return dig(namespace, "status", "phase", default="Active") != "Terminating" and not is_being_deleted(namespace)


def _came_too_late(error: ApiError) -> bool:
    """True if the namespace was deleted meanwhile: nothing is left to do."""
    causes = (error.details or {}).get("causes") or ()
    return error.is_not_found or any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


class DefaultServiceAccounts:
    name = "serviceaccount-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._namespaces = watches.of(NAMESPACES)
        self._accounts = watches.of(SERVICE_ACCOUNTS)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._namespaces, self._accounts)
        self._namespaces.on_change(self._namespace_changed)
        self._accounts.on_change(self._account_changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _namespace_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._queue.add(name_of(new))

    def _account_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None and name_of(old) == "default":
            self._queue.add(namespace_of(old))

    async def reconcile(self, namespace: str) -> None:
        found = self._namespaces.get("", namespace)
        if found is None or not _is_active(found) or self._accounts.get(namespace, "default") is not None:
            return
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
        try:
            await self._client.create(SERVICE_ACCOUNTS, account, namespace, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists and not _came_too_late(error):
                raise


class RootCaPublisher:
    name = "root-ca-certificate-publisher-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers, root_ca: RootCa) -> None:
        self._client = client
        self._root_ca = root_ca
        self._namespaces = watches.of(NAMESPACES)
        self._maps = watches.of(CONFIG_MAPS, fields=f"metadata.name={ROOT_CA_NAME}")
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._namespaces, self._maps)
        self._namespaces.on_change(self._namespace_changed)
        self._maps.on_change(lambda new, old: self._queue.add(namespace_of(new or old or {})))
        self._root_ca.on_change(self._authority_changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _namespace_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._queue.add(name_of(new))

    async def reconcile(self, namespace: str) -> None:
        found = self._namespaces.get("", namespace)
        if found is None or not _is_active(found):
            return
        present = self._maps.get(namespace, ROOT_CA_NAME)
        try:
            if present is None:
                await self._client.create(CONFIG_MAPS, self._wanted(namespace), namespace, field_manager=MANAGER)
            elif present.get("data") != self._data() or not annotations_of(present).get(DESCRIPTION):
                annotations = {**annotations_of(present), DESCRIPTION: _ROOT_CA_TEXT}
                wanted = with_metadata({**present, "data": self._data()}, annotations=annotations)
                await self._client.update(CONFIG_MAPS, wanted, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists and not _came_too_late(error):
                raise

    def _authority_changed(self) -> None:
        for namespace in self._namespaces.objects():
            self._queue.add(name_of(namespace))

    def _data(self) -> dict[str, str]:
        return {"ca.crt": self._root_ca.pem}

    def _wanted(self, namespace: str) -> Obj:
        metadata = {"name": ROOT_CA_NAME, "namespace": namespace, "annotations": {DESCRIPTION: _ROOT_CA_TEXT}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._data()}


# --- rootca ---------------------------------------------------------------------------------------------------------------
#
# The CAs that pods trust, which may change.


class RootCa:
    """PEM; empty where nothing is published. Followers are called when it has changed."""

    def __init__(self, pem: str) -> None:
        self.pem = pem
        self._followers: list[Callable[[], None]] = []

    def use(self, pem: str) -> None:
        if pem == self.pem:
            return
        self.pem = pem
        for follower in list(self._followers):
            follower()

    def on_change(self, follower: Callable[[], None]) -> None:
        self._followers.append(follower)


# --- legacy tokens --------------------------------------------------------------------------------------------------------
#
# Legacy token Secrets: one of type `kubernetes.io/service-account-token` is filled for its account, and deleted with it.

TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


class TokenIssuer(Protocol):
    def legacy_token(self, account: Obj, secret: Obj) -> str:
        """A signed token of the account that is valid as long as the Secret holds it."""


class SecretKey(NamedTuple):
    """A Secret and the account that it names; the account must still be known after the Secret is gone."""

    namespace: str
    name: str
    uid: str
    account: str
    account_uid: str


def _account_of(secret: Obj) -> list[tuple[str, str]]:
    return [(namespace_of(secret), annotations_of(secret).get(ACCOUNT_NAME, ""))]


class TokenSecrets:
    name = "serviceaccount-token-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers, issuer: TokenIssuer, root_ca: RootCa) -> None:
        self._client = client
        self._issuer = issuer
        self._authority = root_ca
        self._accounts = watches.of(SERVICE_ACCOUNTS)
        self._secrets = watches.of(SECRETS, fields=f"type={TOKEN_TYPE}")
        self._secrets.add_index("account", _account_of)
        self._queue: WorkQueue[SecretKey] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._accounts, self._secrets)
        self._secrets.on_change(self._secret_changed)
        self._accounts.on_change(self._account_changed)
        self._authority.on_change(self._authority_changed)
        await Workers(self.name, self._queue, self.reconcile, concurrency=5).run()

    def _secret_changed(self, new: Obj | None, old: Obj | None) -> None:
        self._enqueue(new or old or {})

    def _account_changed(self, new: Obj | None, old: Obj | None) -> None:
        account = new or old or {}
        for secret in self._secrets.indexed("account", (namespace_of(account), name_of(account))):
            self._enqueue(secret)

    def _authority_changed(self) -> None:
        for secret in self._secrets.objects():
            self._enqueue(secret)

    @property
    def _root_ca(self) -> str:
        return base64.b64encode(self._authority.pem.encode()).decode()

    def _enqueue(self, secret: Obj) -> None:
        marks = annotations_of(secret)
        if marks.get(ACCOUNT_NAME):
            identity = (namespace_of(secret), name_of(secret), uid_of(secret))
            self._queue.add(SecretKey(*identity, marks[ACCOUNT_NAME], marks.get(ACCOUNT_UID, "")))

    async def reconcile(self, key: SecretKey) -> None:
        secret = self._secrets.get(key.namespace, key.name)
        if secret is None or uid_of(secret) != key.uid:
            await self._unlist(key)
            return
        account = await self._account(key)
        if account is None:
            await self._delete(key)
            return
        await self._fill(account, secret)

    async def _account(self, key: SecretKey) -> Obj | None:
        account = self._accounts.get(key.namespace, key.account)
        if account is None or (key.account_uid and uid_of(account) != key.account_uid):
            try:
                account = await self._client.get(SERVICE_ACCOUNTS, key.account, key.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                raise
        return account if not key.account_uid or uid_of(account) == key.account_uid else None

    async def _delete(self, key: SecretKey) -> None:
        try:
            await self._client.delete(SECRETS, key.name, key.namespace, uid=key.uid)
        except ApiError as error:
            if not error.is_not_found and not error.is_conflict:
                raise

    def _missing(self, secret: Obj) -> dict[str, str]:
        data = secret.get("data") or {}
        missing: dict[str, str] = {}
        if self._root_ca and data.get("ca.crt") != self._root_ca:
            missing["ca.crt"] = self._root_ca
        if not data.get("namespace"):
            missing["namespace"] = base64.b64encode(namespace_of(secret).encode()).decode()
        if not data.get("token"):
            missing["token"] = ""
        return missing

    async def _fill(self, account: Obj, secret: Obj) -> None:
        if not self._missing(secret):
            return
        try:
            live = await self._client.get(SECRETS, name_of(secret), namespace_of(secret))
            if resource_version_of(live) != resource_version_of(secret):
                return
            missing = self._missing(live)
            if "token" in missing:
                token = self._issuer.legacy_token(account, live)
                missing["token"] = base64.b64encode(token.encode()).decode()
            marks = {**annotations_of(live), ACCOUNT_NAME: name_of(account), ACCOUNT_UID: uid_of(account)}
            filled = with_metadata({**live, "data": {**(live.get("data") or {}), **missing}}, annotations=marks)
            await self._client.update(SECRETS, filled, field_manager=MANAGER)
        except ApiError as error:
            # The next event about it queues it again.
            if not error.is_not_found and not error.is_conflict:
                raise

    async def _unlist(self, key: SecretKey) -> None:
        """Remove a deleted Secret from its account's list."""
        account = self._accounts.get(key.namespace, key.account)
        if account is None or (key.account_uid and uid_of(account) != key.account_uid):
            return
        listed = account.get("secrets") or []
        kept = [reference for reference in listed if reference.get("name") != key.name]
        if len(kept) == len(listed) or self._secrets.get(key.namespace, key.name) is not None:
            return
        changed = {**account, "secrets": kept}
        if not kept:
            del changed["secrets"]
        try:
            await self._client.update(SERVICE_ACCOUNTS, changed, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
