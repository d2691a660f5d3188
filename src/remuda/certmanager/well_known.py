"""cert-manager's labels and annotations, byte for byte, and how its issuers are named."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any, Final

from remuda.api.cert_manager_io import CLUSTER_ISSUERS, GROUP, ISSUERS
from remuda.api.crd_installation import INSTALLED_BY
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, dig, namespace_of

Obj = dict[str, Any]

CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
ISSUER_NAME: Final = "cert-manager.io/issuer-name"
ISSUER_KIND: Final = "cert-manager.io/issuer-kind"
ISSUER_GROUP: Final = "cert-manager.io/issuer-group"
COMMON_NAME: Final = "cert-manager.io/common-name"
ALT_NAMES: Final = "cert-manager.io/alt-names"
IP_SANS: Final = "cert-manager.io/ip-sans"
URI_SANS: Final = "cert-manager.io/uri-sans"
# On every Secret of a Certificate, so that watches need not have all Secrets.
OF_CERTIFICATES: Final = "controller.cert-manager.io/fao"
# On an object with a webhook: the Certificate, as namespace/name, whose CA it should trust.
INJECT_CA_FROM: Final = "cert-manager.io/inject-ca-from"
# The namespace of ClusterIssuers' CAs.
CLUSTER_NAMESPACE: Final = "cert-manager"
CLUSTER_ISSUER: Final = "ClusterIssuer"


def issuer_of(certificate: Obj) -> tuple[GroupVersionResource, Key]:
    """The kind and the key of the issuer that a Certificate names."""
    name = str(dig(certificate, "spec", "issuerRef", "name") or "")
    if dig(certificate, "spec", "issuerRef", "kind") == CLUSTER_ISSUER:
        return CLUSTER_ISSUERS, Key("", name)
    return ISSUERS, Key(namespace_of(certificate), name)


def is_ours(certificate: Obj) -> bool:
    """False if an issuer of another group signs it."""
    return (dig(certificate, "spec", "issuerRef", "group") or GROUP) == GROUP


def ca_secret(issuer: Obj) -> Key | None:
    """The Secret of a CA issuer; None for another issuer."""
    name = dig(issuer, "spec", "ca", "secretName")
    return Key(namespace_of(issuer) or CLUSTER_NAMESPACE, str(name)) if name else None


def data_of(secret: Obj) -> dict[str, bytes]:
    """The data of a Secret; values that are not base64 are left out."""
    found = {}
    for name, value in (secret.get("data") or {}).items():
        with suppress(ValueError, TypeError):
            found[name] = base64.b64decode(value, validate=True)
    return found


def is_served_by_us(definition: Obj) -> bool:
    """True if the definition is ours: where cert-manager's own is installed, cert-manager works."""
    return INSTALLED_BY in annotations_of(definition)
