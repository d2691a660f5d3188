"""Keys and certificates as Certificates want them, of any algorithm that their spec or a CA may have.

:mod:`remuda.kube.certificates` makes those of the server itself, which are always ECDSA P-256.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from remuda.kube.certificates import BACKDATE, certificate_pem, ends, parse_certificates
from remuda.kube.clock import Entropy

from .wishes import ECDSA, ED25519, RSA, CertificateWish

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

# The orders of the curves, by their size.
_ORDERS: Final = {
    256: 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    384: int("F" * 48 + "C7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973", 16),
    521: int("01" + "F" * 64 + "FA51868783BF2F966B7FCC0148F709A5D03BB5C9B8899C47AEBB6FB71E91386409", 16),
}


class UnusableKey(Exception):
    """A Secret that has no usable key and certificate; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class SigningCa:
    """A CA: its certificate and key, the certificates between it and the root, and what clients should trust."""

    certificate: x509.Certificate
    key: PrivateKey
    chain: tuple[x509.Certificate, ...]
    trusted: bytes


@dataclass(frozen=True, slots=True)
class Issued:
    """What goes into a Secret, as PEM: a certificate with those that lead to the root, its key, and the root."""

    certificate: bytes
    key: bytes
    ca: bytes


def parse_ca(data: dict[str, bytes]) -> SigningCa:
    """The CA in a Secret's data. Raises UnusableKey."""
    chain = parse_certificates(data.get("tls.crt") or b"")
    if not chain:
        raise UnusableKey("tls.crt is not a certificate")
    key = parse_key(data.get("tls.key") or b"")
    if key is None:
        raise UnusableKey("tls.key is not a private key that can be used")
    if _public(chain[0].public_key()) != _public(key.public_key()):
        raise UnusableKey("tls.crt and tls.key do not belong together")
    if not is_authority(chain[0]):
        raise UnusableKey("tls.crt is not the certificate of a CA")
    roots = [each for each in chain if each.subject == each.issuer]
    trusted = certificate_pem(roots[0]) if roots else data.get("ca.crt") or certificate_pem(chain[-1])
    return SigningCa(chain[0], key, tuple(each for each in chain if each.subject != each.issuer), trusted)


def parse_key(pem: bytes) -> PrivateKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) else None


def new_key(wish: CertificateWish, entropy: Entropy) -> PrivateKey:
    """RSA keys come from the system's own random numbers: their generation takes no others."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if wish.algorithm == RSA:
        return rsa.generate_private_key(public_exponent=65537, key_size=wish.size)
    if wish.algorithm == ED25519:
        return ed25519.Ed25519PrivateKey.from_private_bytes(entropy.token_bytes(32))
    curve: ec.EllipticCurve = {256: ec.SECP256R1(), 384: ec.SECP384R1(), 521: ec.SECP521R1()}[wish.size]
    # 128 bits more than the order has, so that the remainder is not biased (FIPS 186-5, A.2.1).
    number = int.from_bytes(entropy.token_bytes(wish.size // 8 + 17))
    return ec.derive_private_key(1 + number % (_ORDERS[wish.size] - 1), curve)


def key_fits(key: PrivateKey, wish: CertificateWish) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        algorithm = ECDSA if isinstance(key, ec.EllipticCurvePrivateKey) else RSA
        return (algorithm, key.key_size) == (wish.algorithm, wish.size)
    return wish.algorithm == ED25519


def sign(wish: CertificateWish, key: PrivateKey, ca: SigningCa | None, now: float, entropy: Entropy) -> Issued:
    """A certificate for `key`; without a CA it is signed with the key itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.hashes import SHA256

    name = _name(wish)
    signer = key if ca is None else ca.key
    begin = datetime.datetime.fromtimestamp(int(now), datetime.UTC)
    end = now + wish.seconds if ca is None else min(now + wish.seconds, ends(ca.certificate))
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if ca is None else ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(entropy.token_bytes(20)) >> 1 or 1)
        .not_valid_before(begin - datetime.timedelta(seconds=BACKDATE))
        .not_valid_after(datetime.datetime.fromtimestamp(int(end), datetime.UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=wish.authority, path_length=None), critical=True)
        .add_extension(_key_usage(wish), critical=True)
    )
    if wish.extended_usages:
        usages = [x509.ObjectIdentifier(each) for each in wish.extended_usages]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names := _alternatives(wish):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not list(name))
    made = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else SHA256())
    pem = certificate_pem(made)
    chain = b"".join(certificate_pem(each) for each in (ca.chain if ca is not None else ()))
    return Issued(pem + chain, _key_pem(key, wish.pkcs8), pem if ca is None else ca.trusted)


def fits(found: Issued, wish: CertificateWish, ca: SigningCa | None) -> bool:
    """True if the certificate and its key are as wanted, signed by this CA; its end is not judged."""
    certificates, key = parse_certificates(found.certificate), parse_key(found.key)
    if not certificates or key is None or not key_fits(key, wish):
        return False
    leaf = certificates[0]
    return (
        _public(leaf.public_key()) == _public(key.public_key())
        and leaf.subject == _name(wish)
        and _names_of(leaf) == sorted(map(str, _alternatives(wish)))
        and is_authority(leaf) == wish.authority
        and found.ca == (certificate_pem(leaf) if ca is None else ca.trusted)
        and _is_signed_by(leaf, leaf if ca is None else ca.certificate)
    )


def is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_of(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return sorted(map(str, found))


def _alternatives(wish: CertificateWish) -> list[x509.GeneralName]:
    from cryptography import x509

    return [
        *(x509.DNSName(each) for each in wish.dns_names),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in wish.ip_addresses),
        *(x509.UniformResourceIdentifier(each) for each in wish.uris),
    ]


def _name(wish: CertificateWish) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    kinds = {
        "C": NameOID.COUNTRY_NAME,
        "ST": NameOID.STATE_OR_PROVINCE_NAME,
        "L": NameOID.LOCALITY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    }
    attributes = [x509.NameAttribute(kinds[short], value) for short, value in wish.subject]
    if wish.common_name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, wish.common_name))
    return x509.Name(attributes)


def _key_usage(wish: CertificateWish) -> x509.KeyUsage:
    from cryptography import x509

    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    flags = {name: name in wish.key_usages for name in (*names, "key_cert_sign", "crl_sign")}
    return x509.KeyUsage(**flags, encipher_only=False, decipher_only=False)


def _key_pem(key: PrivateKey, pkcs8: bool) -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    form = serialization.PrivateFormat
    newer = pkcs8 or isinstance(key, ed25519.Ed25519PrivateKey)
    return key.private_bytes(
        serialization.Encoding.PEM, form.PKCS8 if newer else form.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _public(key: object) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    known = cast("ec.EllipticCurvePublicKey", key)
    return known.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
