"""Keys and certificates: creation, signing and parsing. :mod:`remuda.apiserver.keys.pki` and
:mod:`remuda.apiserver.keys.shared_keys` store them.

Nothing here imports `cryptography` before it is needed: an ordinary start does no X.509 work.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from .clock import Clock, Entropy

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

DAY = 86_400
CA_SECONDS = 3650 * DAY
RENEW_BEFORE = 30 * DAY
# Certificates are valid from a little before they are made: the clients' clocks may be behind.
BACKDATE = 3600
# The time for which a replaced CA cross-signs its successor, for agents that were away during the rotation.
HANDOVER_SECONDS = 365 * DAY

_KEYS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class PkiError(Exception):
    """Unusable key material that must not be replaced without the user's consent."""


class Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_key_pem(entropy: Entropy | None = None) -> bytes:
    """A fresh private key."""
    return key_pem(new_key(entropy or Entropy()))


def new_key(entropy: Entropy) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    # 128 bits more than the order has, so that the remainder is not biased (FIPS 186-5, A.2.1).
    secret = 1 + int.from_bytes(entropy.token_bytes(48)) % (_P256_ORDER - 1)
    return ec.derive_private_key(secret, ec.SECP256R1())


def parse_key(data: bytes, where: object) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise PkiError(f"{where} can't be read as a private key: {error}; put it back from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{where} is not an ECDSA key")
    return key


def parse_certificate(data: bytes) -> x509.Certificate | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        return None


def parse_certificates(data: bytes) -> list[x509.Certificate]:
    """All certificates of a bundle; none when it is not PEM."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        return []


def blocks(data: bytes) -> list[bytes]:
    """The private keys of a PEM file, one by one."""
    return _KEYS.findall(data) or [data]


def parse_keys(data: bytes, where: object) -> list[ec.EllipticCurvePrivateKey]:
    """All private keys of a file, in their order: more than one while they are being rotated."""
    return [parse_key(block, where) for block in blocks(data)]


def fingerprint(key: ec.EllipticCurvePrivateKey | x509.Certificate) -> str:
    """The same value for a key, its public half and any certificate of it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    found = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(found).hexdigest()


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public key in DER, which identifies the key pair without its private half."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def ends(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


def subject(name: str, groups: Iterable[str] = ()) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def sign_authority(
    key: ec.EllipticCurvePrivateKey, clock: Clock, entropy: Entropy, common_name: str = "remuda-ca"
) -> x509.Certificate:
    """A certificate for the CA's key. Always with the same name: certificates signed before a renewal stay valid."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    name = subject(common_name)
    builder = (
        _builder(name, name, key.public_key(), CA_SECONDS, clock, entropy)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return builder.sign(key, SHA256())


def cross_signed(old: Authority, new: x509.Certificate, clock: Clock, entropy: Entropy, most_seconds: int = CA_SECONDS) -> bytes:
    """PEM of the new authority, signed by the old one: clients that trust only the old one accept the new one, too.

    For server certificates only: this does not make the new authority's client certificates valid under the old one.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    public_key = cast("ec.EllipticCurvePublicKey", new.public_key())
    seconds = min(int(min(ends(new), ends(old.certificate)) - clock.time()), most_seconds)
    builder = (
        _builder(new.subject, old.certificate.subject, public_key, seconds, clock, entropy)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(old.key.public_key()), critical=False)
    )
    return certificate_pem(builder.sign(old.key, SHA256()))


def common_name(certificate: x509.Certificate) -> str:
    from cryptography.x509.oid import NameOID

    return next((str(found.value) for found in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def use_of(certificate: x509.Certificate) -> str:
    """CA, client, server, `client,server`, or nothing of these. Raises ValueError for extensions that can't be read."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Oid

    found = {type(extension.value): extension.value for extension in certificate.extensions}
    constraints, usage = found.get(x509.BasicConstraints), found.get(x509.ExtendedKeyUsage)
    if isinstance(constraints, x509.BasicConstraints) and constraints.ca:
        return "CA"
    uses = set(usage) if isinstance(usage, x509.ExtendedKeyUsage) else set()
    return ",".join(name for name, oid in (("client", Oid.CLIENT_AUTH), ("server", Oid.SERVER_AUTH)) if oid in uses)


def renewed_authority(authority: Authority, clock: Clock, entropy: Entropy) -> x509.Certificate:
    """A new certificate with the same key and name, valid as long as a new CA."""
    return sign_authority(authority.key, clock, entropy, common_name(authority.certificate))


def authority_of(certificates: bytes, keys: bytes, what: tuple[object, object]) -> Authority:
    """The CA of a bundle of certificates and the keys of some: the first key signs. `what` is the names of the two in errors."""
    found = {fingerprint(each): each for each in parse_certificates(certificates)}
    key = parse_keys(keys, what[1])[0]
    if not found:
        raise PkiError(f"{what[0]} is not a certificate: put it back from a backup")
    certificate = found.get(fingerprint(key))
    if certificate is None:
        raise PkiError(f"{what[0]} and {what[1]} do not belong together: put the matching pair back")
    return Authority(certificate, key)


def chain_of(certificates: bytes, keys: bytes, clock: Clock, entropy: Entropy, most_seconds: int = CA_SECONDS) -> bytes:
    """The certificates that follow a serving certificate during a CA rotation: the signing CA, cross-signed by each older CA
    in the bundle. So clients that trust only an older CA keep working."""
    bundle = {fingerprint(each): each for each in parse_certificates(certificates)}
    order = list(bundle)
    signing, *others = parse_keys(keys, "the CA's key")
    own = fingerprint(signing)
    older = [key for key in others if fingerprint(key) in bundle and order.index(fingerprint(key)) < order.index(own)]
    authorities = [Authority(bundle[fingerprint(key)], key) for key in older]
    alive = [each for each in authorities if ends(each.certificate) > clock.time()]
    return b"".join(cross_signed(each, bundle[own], clock, entropy, most_seconds) for each in alive)


def alive_in(chain: bytes, clock: Clock) -> bytes:
    """A chain up to the first expired certificate: those after it are useless."""
    now = clock.time()
    found = itertools.takewhile(lambda each: ends(each) > now, parse_certificates(chain))
    return b"".join(certificate_pem(each) for each in found)


def same_chain(one: Sequence[x509.Certificate], other: Sequence[x509.Certificate]) -> bool:
    """True if the same authorities sign the same keys until the same time; serial numbers differ with each signature."""

    def said(chain: Sequence[x509.Certificate]) -> list[tuple[str, x509.Name]]:
        return [(fingerprint(each), each.issuer) for each in chain]

    # A validity is rounded to a second.
    close = (abs(ends(left) - ends(right)) <= 2 for left, right in zip(one, other, strict=False))
    return said(one) == said(other) and all(close)


def replaced_in(bundle: bytes, certificate: x509.Certificate) -> bytes:
    """The bundle with another certificate of the same key in its place."""
    own = fingerprint(certificate)
    found = [certificate if fingerprint(each) == own else each for each in parse_certificates(bundle)]
    return b"".join(certificate_pem(each) for each in found)


def sign_leaf(
    authority: Authority,
    key: ec.EllipticCurvePrivateKey | x509.CertificateSigningRequest,
    name: x509.Name,
    seconds: int,
    served: tuple[str, ...],
    clock: Clock,
    entropy: Entropy,
    *,
    also_client: bool = False,
) -> bytes:
    """PEM of a serving certificate for the names `served`, or of a client certificate when there are none.

    `also_client` is for servers that talk to each other with one certificate. Only the public half of `key` is used.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usages = [ExtendedKeyUsageOID.SERVER_AUTH] if served else []
    if also_client or not served:
        usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    public_key = cast("ec.EllipticCurvePublicKey", key.public_key())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(name, authority.certificate.subject, public_key, seconds, clock, entropy)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if served:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in served]), critical=False)
    return certificate_pem(builder.sign(authority.key, SHA256()))


def names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses for which it is valid, sorted."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return tuple(sorted([*found.get_values_for_type(x509.DNSName), *addresses]))


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    name: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, seconds: int, clock: Clock, entropy: Entropy
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.fromtimestamp(int(clock.time()), datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(int.from_bytes(entropy.token_bytes(20)) >> 1 or 1)
        .not_valid_before(now - datetime.timedelta(seconds=BACKDATE))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
