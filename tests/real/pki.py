"""Certificates and keys for a throw-away real cluster, written as PEM files; `cluster.py` points the programs at them.

A CA, a serving certificate, client certificates and a service-account key, all ECDSA P-256: RSA would cost a good part
of the cluster's start.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVING_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key on disk."""

    cert: Path
    key: Path


class Authority:
    """A CA that lives in one directory and signs for one cluster."""

    def __init__(self, directory: Path, name: str = "remuda-test-ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        self.pair = Pair(directory / "ca.crt", directory / "ca.key")
        self.pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self.pair.key, self._key)

    def serving(self, file_name: str, addresses: tuple[str, ...]) -> Pair:
        """A server certificate for the usual in-cluster names and these addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVING_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        return self._issue(file_name, subject, [ExtendedKeyUsageOID.SERVER_AUTH], x509.SubjectAlternativeName(names))

    def peer(self, file_name: str, addresses: tuple[str, ...]) -> Pair:
        """For a server that is also a client of its like, as etcd is: its gateway dials itself."""
        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file_name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(file_name, subject, usages, x509.SubjectAlternativeName(names))

    def client(self, file_name: str, user: str, groups: tuple[str, ...] = ()) -> Pair:
        """A client certificate: user is the common name, groups the organisations."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(file_name, subject, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        usages: list[x509.ObjectIdentifier],
        names: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = Pair(self._directory / f"{file_name}.crt", self._directory / f"{file_name}.key")
        pair.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def service_account_key(directory: Path) -> Path:
    """The key that signs service-account tokens."""
    path = directory / "service-account.key"
    _write_key(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
