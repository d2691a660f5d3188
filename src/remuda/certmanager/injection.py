"""The controllers that write CAs into webhook configurations and definitions: cert-manager's `inject-ca-from`.

The annotation names a Certificate, whose CA all webhooks of the object then trust. It needs no consent of the Certificate's
owner: a CA is not a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from remuda.api.cert_manager_io import CERTIFICATES
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import CRDS, SECRETS
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
)
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, synced
from remuda.runtime.webhook_server import MUTATING, VALIDATING

from .well_known import CERTIFICATE_NAME, INJECT_CA_FROM, OF_CERTIFICATES

Obj = dict[str, Any]

_BY_CERTIFICATE: Final = "certificate of a CA"


class CaInjection:
    """For the objects of one kind."""

    def __init__(self, manager: Manager, name: str, resource: GroupVersionResource) -> None:
        self._manager = manager
        self._client = manager.client
        self._resource = resource
        self._objects = manager.informers.of(resource)
        self._objects.add_index(_BY_CERTIFICATE, _certificates_of)
        self._certificates = manager.informers.of(CERTIFICATES)
        self.controller = Controller(
            name,
            resource,
            watches=(
                Watch(CERTIFICATES, self._of_certificate, changed("spec.secretName", "status.revision")),
                Watch(SECRETS, self._of_secret, changed("data"), labels=f"{OF_CERTIFICATES}=true"),
            ),
        )

    def _of_certificate(self, certificate: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._objects.indexed(_BY_CERTIFICATE, Key.of(certificate))]

    def _of_secret(self, secret: Obj) -> Iterable[Key]:
        key = Key(namespace_of(secret), annotations_of(secret).get(CERTIFICATE_NAME) or "")
        return [Key.of(each) for each in self._objects.indexed(_BY_CERTIFICATE, key)]

    async def reconcile(self, key: Key) -> Result:
        who = (self.controller.name, key)
        await synced(self._objects, self._certificates)
        await self._manager.freshness.caught_up(who)
        obj = self._objects.get(*key)
        if obj is None or is_being_deleted(obj):
            return DONE
        for named in _certificates_of(obj):
            bundle = await self._bundle(named)
            if bundle and (patch := patch_of(obj, bundle)):
                written = await self._client.patch(self._resource, key.name, patch, field_manager=self.controller.name)
                self._manager.freshness.wrote(who, self._objects, written)
        return DONE

    async def _bundle(self, named: Key) -> str:
        """The CA of a Certificate in base64; empty if there is none yet. An event follows when there is."""
        certificate = self._certificates.get(*named)
        if certificate is None:
            return ""
        secret = await find(self._client, SECRETS, str(dig(certificate, "spec", "secretName") or ""), named.namespace)
        if secret is None or annotations_of(secret).get(CERTIFICATE_NAME) != name_of(certificate):
            return ""
        return str(dig(secret, "data", "ca.crt") or "")


def patch_of(obj: Obj, bundle: str) -> Obj | None:
    """What makes all webhooks of the object trust the CA; None if they do, or it has none. For this very state of the object."""
    made = _trusting(obj, bundle)
    return None if made is None else {"metadata": {"resourceVersion": resource_version_of(obj)}, **made}


def _trusting(obj: Obj, bundle: str) -> Obj | None:
    webhooks = obj.get("webhooks") or []
    trusting = [with_path(each, ("clientConfig", "caBundle"), bundle) for each in webhooks]
    if trusting != webhooks:
        return {"webhooks": trusting}
    config = dig(obj, "spec", "conversion", "webhook", "clientConfig")
    if isinstance(config, dict) and config.get("caBundle") != bundle:
        return {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}
    return None


def _certificates_of(obj: Obj) -> Iterable[Key]:
    namespace, slash, name = (annotations_of(obj).get(INJECT_CA_FROM) or "").partition("/")
    return (Key(namespace, name),) if slash and namespace and name else ()


def definitions(manager: Manager) -> CaInjection:
    return CaInjection(manager, "ca-of-definitions", CRDS)


def mutating(manager: Manager) -> CaInjection:
    return CaInjection(manager, "ca-of-mutating-webhooks", MUTATING)


def validating(manager: Manager) -> CaInjection:
    return CaInjection(manager, "ca-of-validating-webhooks", VALIDATING)
