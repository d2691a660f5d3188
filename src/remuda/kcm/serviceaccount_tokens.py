"""Legacy token Secrets: one of type `kubernetes.io/service-account-token` is filled for its account, and deleted with it."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple, Protocol

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, name_of, namespace_of, resource_version_of, uid_of, with_metadata
from remuda.runtime import Workers, WorkQueue

from .resources import SECRETS, SERVICE_ACCOUNTS, Informers, synced
from .serviceaccounts import RootCa

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
TYPE = "kubernetes.io/service-account-token"
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
        self._secrets = watches.of(SECRETS, fields=f"type={TYPE}")
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
