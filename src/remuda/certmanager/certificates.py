"""The controller of Certificates: each has a Secret with a certificate that its issuer signed, renewed before it ends.

A Secret of another origin is never overwritten: a name in a spec is no right to the object. Certificates of issuers of other
groups are left to other programs. The key of a renewed certificate is new, unless `rotationPolicy` is Never.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from remuda.api.cert_manager_io import CERTIFICATES, CLUSTER_ISSUERS, GROUP, ISSUERS
from remuda.client.idempotent import find
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.certificates import ends, parse_certificates
from remuda.kube.clock import Entropy, rfc3339
from remuda.kube.conditions import FALSE, TRUE, with_condition
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    with_path,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.patching import Patch

from .issuers import NotReady, signer_of
from .signing import Issued, SigningCa, fits, new_key, parse_key, sign
from .well_known import (
    ALT_NAMES,
    CERTIFICATE_NAME,
    COMMON_NAME,
    IP_SANS,
    ISSUER_GROUP,
    ISSUER_KIND,
    ISSUER_NAME,
    OF_CERTIFICATES,
    URI_SANS,
    data_of,
    is_ours,
    issuer_of,
)
from .wishes import CertificateWish, InvalidSpec, wish_of

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "certificates"
_BY_ISSUER, _BY_SECRET = "issuer", "Secret"


class Certificates:
    def __init__(self, manager: Manager, entropy: Entropy) -> None:
        self._manager = manager
        self._client = manager.client
        self._entropy = entropy
        self._certificates = manager.informers.of(CERTIFICATES)
        self._certificates.add_index(_BY_ISSUER, lambda each: (issuer_of(each),))
        self._certificates.add_index(_BY_SECRET, lambda each: (_secret_key(each),))
        self._issuers = {resource: manager.informers.of(resource) for resource in (ISSUERS, CLUSTER_ISSUERS)}
        signs = changed("spec", "status.conditions")
        self.controller = Controller(
            CONTROLLER,
            CERTIFICATES,
            watches=(
                Watch(ISSUERS, lambda issuer: self._of_issuer(ISSUERS, issuer), signs),
                Watch(CLUSTER_ISSUERS, lambda issuer: self._of_issuer(CLUSTER_ISSUERS, issuer), signs),
                Watch(SECRETS, self._of_secret, changed("data"), labels=f"{OF_CERTIFICATES}=true"),
            ),
            when=changed("spec", is_being_deleted),
            concurrency=2,
        )

    def _of_issuer(self, resource: GroupVersionResource, issuer: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._certificates.indexed(_BY_ISSUER, (resource, Key.of(issuer)))]

    def _of_secret(self, secret: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._certificates.indexed(_BY_SECRET, Key.of(secret))]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._certificates, *self._issuers.values())
        await self._manager.freshness.caught_up(who)
        certificate = self._certificates.get(*key)
        if certificate is None or is_being_deleted(certificate) or not is_ours(certificate):
            return DONE
        try:
            return await self._keep(certificate)
        except InvalidSpec as error:
            return await self._refused(certificate, "InvalidSpec", str(error), Code.MALFORMED)
        except NotReady as error:
            return await self._refused(certificate, error.reason, str(error), Code.REFERENCE)

    async def _keep(self, certificate: Obj) -> Result:
        """Raises InvalidSpec, NotReady."""
        wish, ca = wish_of(certificate["spec"]), await self._signer(certificate)
        where = _secret_key(certificate)
        secret = await find(self._client, SECRETS, where.name, where.namespace)
        if secret is not None and annotations_of(secret).get(CERTIFICATE_NAME) != name_of(certificate):
            raise NotReady("SecretInUse", f"Secret {where.name} was not made for this certificate: remove it, or choose another")
        found = _issued(secret)
        revision = dig(certificate, "status", "revision") or 0
        if found is None or not self._is_good(certificate, found, secret, wish, ca):
            kept = parse_key(found.key) if found is not None and wish.keeps_key else None
            found = sign(wish, kept or new_key(wish, self._entropy), ca, self._manager.clock.time(), self._entropy)
            await apply_owned(self._client, SECRETS, _secret(certificate, wish, found), CONTROLLER)
            revision += 1
            log.info("signed, into Secret %s", where.name)
        return await self._told(certificate, found, wish, revision)

    async def _signer(self, certificate: Obj) -> SigningCa | None:
        resource, key = issuer_of(certificate)
        issuer = self._issuers[resource].get(*key)
        if issuer is None:
            kind = "ClusterIssuer" if resource == CLUSTER_ISSUERS else "Issuer"
            raise NotReady("DoesNotExist", f"there is no {kind} {key.name}")
        return await signer_of(self._client, issuer)

    def _is_good(self, certificate: Obj, found: Issued, secret: Obj | None, wish: CertificateWish, ca: SigningCa | None) -> bool:
        named = annotations_of(secret or {})
        issuer = {name: value for name, value in _annotations(certificate, wish).items() if name in (ISSUER_NAME, ISSUER_KIND)}
        same = all(named.get(name) == value for name, value in issuer.items())
        return same and fits(found, wish, ca) and _renewal(found, wish) > self._manager.clock.time()

    # --- its status -----------------------------------------------------------------------------------------------------------

    async def _told(self, certificate: Obj, found: Issued, wish: CertificateWish, revision: int) -> Result:
        leaf, renewal = parse_certificates(found.certificate)[0], _renewal(found, wish)
        told = {
            "notBefore": rfc3339(leaf.not_valid_before_utc.timestamp()),
            "notAfter": rfc3339(ends(leaf)),
            "renewalTime": rfc3339(renewal),
            "revision": revision,
        }
        after = with_path(certificate, ("status",), {**(certificate.get("status") or {}), **told})
        await self._say(certificate, after, TRUE, "Ready", "Certificate is up to date and has not expired")
        return Result(after=max(renewal - self._manager.clock.time(), 1.0))

    async def _refused(self, certificate: Obj, reason: str, message: str, code: Code) -> Result:
        await self._say(certificate, certificate, FALSE, reason, message)
        resource, issuer = issuer_of(certificate)
        kind = "ClusterIssuer" if resource == CLUSTER_ISSUERS else "Issuer"
        on = Ref(GROUP, kind, *issuer) if code is Code.REFERENCE else None
        subject = Ref(GROUP, "Certificate", *Key.of(certificate))
        return Result(waits=(Wait(code, subject, Actor.USER, on, message),))

    async def _say(self, certificate: Obj, after: Obj, status: str, reason: str, message: str) -> None:
        key, manager = Key.of(certificate), self._manager
        patch = Patch(
            self._client,
            CERTIFICATES,
            certificate,
            manager.clock,
            owned={"Ready"},
            on_written=lambda obj: manager.freshness.wrote((CONTROLLER, key), self._certificates, obj),
        )
        await patch.write(with_condition(after, "Ready", status, reason, message, now=manager.clock.time()))


def _renewal(found: Issued, wish: CertificateWish) -> float:
    return ends(parse_certificates(found.certificate)[0]) - wish.early


def _secret_key(certificate: Obj) -> Key:
    return Key(namespace_of(certificate), str(dig(certificate, "spec", "secretName") or ""))


def _issued(secret: Obj | None) -> Issued | None:
    data = data_of(secret or {})
    if not parse_certificates(data.get("tls.crt") or b""):
        return None
    return Issued(data["tls.crt"], data.get("tls.key") or b"", data.get("ca.crt") or b"")


def _annotations(certificate: Obj, wish: CertificateWish) -> dict[str, str]:
    resource, issuer = issuer_of(certificate)
    return {
        CERTIFICATE_NAME: name_of(certificate),
        ISSUER_NAME: issuer.name,
        ISSUER_KIND: "ClusterIssuer" if resource == CLUSTER_ISSUERS else "Issuer",
        ISSUER_GROUP: GROUP,
        COMMON_NAME: wish.common_name,
        ALT_NAMES: ",".join(wish.dns_names),
        IP_SANS: ",".join(wish.ip_addresses),
        URI_SANS: ",".join(wish.uris),
    }


def _secret(certificate: Obj, wish: CertificateWish, issued: Issued) -> Obj:
    template = dig(certificate, "spec", "secretTemplate") or {}
    key = _secret_key(certificate)
    data = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": issued.ca}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {**(template.get("labels") or {}), OF_CERTIFICATES: "true"},
            "annotations": {**(template.get("annotations") or {}), **_annotations(certificate, wish)},
        },
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
