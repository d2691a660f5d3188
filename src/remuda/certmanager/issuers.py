"""The controllers of Issuers and ClusterIssuers: they tell whether an issuer can sign. Nothing is signed here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.cert_manager_io import CLUSTER_ISSUERS, GROUP, ISSUERS
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.conditions import FALSE, TRUE, with_condition
from remuda.kube.objects import GroupVersionResource, Key, dig, is_being_deleted, name_of, namespace_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, synced
from remuda.runtime.patching import Patch

from .signing import SigningCa, UnusableKey, parse_ca
from .well_known import CLUSTER_ISSUER, CLUSTER_NAMESPACE, OF_CERTIFICATES, ca_secret, data_of

Obj = dict[str, Any]

_BY_SECRET = "CA Secret"


class NotReady(Exception):
    """An issuer that can't sign, with the reason of its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def signer_of(client: Client, issuer: Obj) -> SigningCa | None:
    """The CA of an issuer, read now; None for a self-signed one. Raises NotReady."""
    key = ca_secret(issuer)
    if key is None:
        if not isinstance(dig(issuer, "spec", "selfSigned"), dict):
            raise NotReady("Unsupported", "only issuers with spec.selfSigned or spec.ca are supported here")
        return None
    where = f"Secret {key.namespace}/{key.name}"
    secret = await find(client, SECRETS, key.name, key.namespace)
    if secret is None:
        raise NotReady("ErrGetKeyPair", f"{where} does not exist")
    try:
        return parse_ca(data_of(secret))
    except UnusableKey as error:
        raise NotReady("ErrInvalidKeyPair", f"{where}: {error}") from None


class Issuers:
    """`kind` is Issuer or ClusterIssuer."""

    def __init__(self, manager: Manager, kind: str) -> None:
        self._manager = manager
        self._kind = kind
        self._resource: GroupVersionResource = CLUSTER_ISSUERS if kind == CLUSTER_ISSUER else ISSUERS
        self._issuers = manager.informers.of(self._resource)
        self._issuers.add_index(_BY_SECRET, _secrets_of)
        self.controller = Controller(
            f"{kind.lower()}s",
            self._resource,
            watches=(Watch(SECRETS, self._of_secret, labels=f"{OF_CERTIFICATES}=true"),),
            when=changed("spec", is_being_deleted),
        )

    def _of_secret(self, secret: Obj) -> Iterable[Key]:
        if self._kind == CLUSTER_ISSUER and namespace_of(secret) != CLUSTER_NAMESPACE:
            return ()
        return [Key.of(each) for each in self._issuers.indexed(_BY_SECRET, Key.of(secret))]

    async def reconcile(self, key: Key) -> Result:
        who = (self.controller.name, key)
        await synced(self._issuers)
        await self._manager.freshness.caught_up(who)
        issuer = self._issuers.get(*key)
        if issuer is None or is_being_deleted(issuer):
            return DONE
        try:
            await signer_of(self._manager.client, issuer)
        except NotReady as error:
            await self._say(issuer, FALSE, error.reason, str(error))
            return Result(waits=(self._wait(issuer, str(error)),))
        await self._say(issuer, TRUE, "IsReady", "")
        return DONE

    def _wait(self, issuer: Obj, evidence: str) -> Wait:
        subject = Ref(GROUP, self._kind, namespace_of(issuer), name_of(issuer))
        secret = ca_secret(issuer)
        return Wait(Code.CONTENT, subject, Actor.USER, Ref("", "Secret", *secret) if secret else None, evidence)

    async def _say(self, issuer: Obj, status: str, reason: str, message: str) -> None:
        key, manager = Key.of(issuer), self._manager
        patch = Patch(
            manager.client,
            self._resource,
            issuer,
            manager.clock,
            owned={"Ready"},
            on_written=lambda obj: manager.freshness.wrote((self.controller.name, key), self._issuers, obj),
        )
        await patch.write(with_condition(issuer, "Ready", status, reason, message, now=manager.clock.time()))


def _secrets_of(issuer: Obj) -> Iterable[Key]:
    found = ca_secret(issuer)
    return () if found is None else (found,)


def issuers(manager: Manager) -> Issuers:
    return Issuers(manager, "Issuer")


def cluster_issuers(manager: Manager) -> Issuers:
    return Issuers(manager, CLUSTER_ISSUER)
