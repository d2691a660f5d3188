"""The kinds of this group: how each is served, and the columns of `kubectl get`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypedDict

from ..crd import Column, Kind, Version, age_column, condition_column
from ..kubernetes import Conditions
from ..schema import Doc, Duration, Length, Object, Preserve, Time
from . import GROUP, VERSION

# --- issuers ------------------------------------------------------------------------------------------------------------------


class CaIssuer(TypedDict, total=False):
    """Signs with a CA in a Secret."""

    secretName: Required[Annotated[str, Doc("The Secret with the CA: tls.crt and tls.key."), Length(1)]]


class IssuerSpec(TypedDict, total=False):
    """How certificates are signed. Other issuers than these two are accepted, and never ready."""

    ca: Annotated[CaIssuer, Doc("Sign with a CA."), Preserve()]
    selfSigned: Annotated[dict[str, Any], Doc("Each certificate is signed with its own key."), Preserve()]


class IssuerStatus(TypedDict, total=False):
    """The state of an issuer."""

    conditions: Conditions


class Issuer(Object, total=False):
    """Signs the Certificates of its namespace."""

    spec: Required[Annotated[IssuerSpec, Preserve()]]
    status: Annotated[IssuerStatus, Preserve()]


class ClusterIssuer(Object, total=False):
    """Signs the Certificates of all namespaces. Its CA is in the namespace cert-manager."""

    spec: Required[Annotated[IssuerSpec, Preserve()]]
    status: Annotated[IssuerStatus, Preserve()]


# --- certificates -------------------------------------------------------------------------------------------------------------


class IssuerReference(TypedDict, total=False):
    """The issuer of a certificate."""

    group: Annotated[str, Doc("The group of the issuer's kind; cert-manager.io.")]
    kind: Annotated[str, Doc("Issuer, the default, or ClusterIssuer.")]
    name: Required[Annotated[str, Doc("The name of the issuer."), Length(1)]]


class PrivateKey(TypedDict, total=False):
    """The key of a certificate."""

    algorithm: Annotated[Literal["RSA", "ECDSA", "Ed25519"], Doc("The kind of key; ECDSA unless said otherwise.")]
    encoding: Annotated[Literal["PKCS1", "PKCS8"], Doc("The form of the key in the Secret; PKCS1 unless said otherwise.")]
    rotationPolicy: Annotated[Literal["Never", "Always"], Doc("Never: a renewed certificate keeps its key.")]
    size: Annotated[int, Doc("Its size: 2048, 3072 or 4096 for RSA, 256, 384 or 521 for ECDSA.")]


class Subject(TypedDict, total=False):
    """The subject of a certificate, besides its common name."""

    countries: Annotated[list[str], Doc("Countries.")]
    localities: Annotated[list[str], Doc("Cities.")]
    organizationalUnits: Annotated[list[str], Doc("Organizational units.")]
    organizations: Annotated[list[str], Doc("Organizations.")]
    provinces: Annotated[list[str], Doc("States or provinces.")]


class SecretTemplate(TypedDict, total=False):
    """Metadata of the Secret."""

    annotations: Annotated[dict[str, str], Doc("Annotations of the Secret.")]
    labels: Annotated[dict[str, str], Doc("Labels of the Secret.")]


class CertificateSpec(TypedDict, total=False):
    """A certificate and its key, kept in a Secret."""

    commonName: Annotated[str, Doc("The common name of the subject."), Length(most=64)]
    dnsNames: Annotated[list[str], Doc("DNS names for which it is valid.")]
    duration: Annotated[Duration, Doc("How long a certificate is valid; 90 days unless said otherwise.")]
    ipAddresses: Annotated[list[str], Doc("IP addresses for which it is valid.")]
    isCA: Annotated[bool, Doc("It may sign other certificates.")]
    issuerRef: Required[Annotated[IssuerReference, Doc("The issuer that signs it.")]]
    privateKey: Annotated[PrivateKey, Doc("The key."), Preserve()]
    renewBefore: Annotated[Duration, Doc("How long before its end it is renewed; a third of its life unless said otherwise.")]
    secretName: Required[Annotated[str, Doc("The Secret that is made for it."), Length(1)]]
    secretTemplate: Annotated[SecretTemplate, Doc("Metadata of that Secret.")]
    subject: Annotated[Subject, Doc("The subject, besides the common name."), Preserve()]
    uris: Annotated[list[str], Doc("URIs for which it is valid.")]
    usages: Annotated[list[str], Doc("What its key may be used for; digital signature and key encipherment unless said.")]


class CertificateStatus(TypedDict, total=False):
    """The state of a certificate."""

    conditions: Conditions
    notAfter: Annotated[Time, Doc("The end of the certificate.")]
    notBefore: Annotated[Time, Doc("Its beginning.")]
    renewalTime: Annotated[Time, Doc("When it will be renewed.")]
    revision: Annotated[int, Doc("How often one was signed.")]


class Certificate(Object, total=False):
    """A certificate that an issuer signs and renews, kept in a Secret with its key."""

    spec: Required[Annotated[CertificateSpec, Preserve()]]
    status: Annotated[CertificateStatus, Preserve()]


# --- crds ---------------------------------------------------------------------------------------------------------------------

_STATUS = Column("Status", '.status.conditions[?(@.type=="Ready")].message', "string", "Why it is ready or not", 1)
_READY = condition_column("Ready", "Ready", "Whether it can be used")


def _issuer(kind: str, type_: type, scope: Literal["Namespaced", "Cluster"]) -> Kind:
    version = Version(VERSION, type_, (_READY, _STATUS, age_column()), storage=True)
    return Kind(GROUP, kind, (version,), categories=("cert-manager",), scope=scope)


CERTIFICATE = Kind(
    GROUP,
    "Certificate",
    (
        Version(
            VERSION,
            Certificate,
            (
                _READY,
                Column("Secret", ".spec.secretName", "string", "The Secret that is made for it"),
                Column("Issuer", ".spec.issuerRef.name", "string", "Its issuer", 1),
                _STATUS,
                age_column(),
            ),
            storage=True,
        ),
    ),
    short_names=("cert", "certs"),
    categories=("cert-manager",),
)

KINDS = (_issuer("Issuer", Issuer, "Namespaced"), _issuer("ClusterIssuer", ClusterIssuer, "Cluster"), CERTIFICATE)
