"""Certificates for tests: good today, which OpenSSL compares with the machine's time, or of a server's own authority."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.apiserver.keys.pki import LEAF_SECONDS, Pki
from remuda.kube import certificates


def certificate(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


class Issued(NamedTuple):
    certificate: bytes
    key: bytes


def issue_client(pki: Pki, name: str, groups: Iterable[str] = (), seconds: int = LEAF_SECONDS) -> Issued:
    """A client certificate that the server of these keys reads as this user in these groups."""
    if pki.material is not None:
        authority = pki.material.authority()
    else:
        files = pki.ca_certificate, pki.ca_key
        authority = certificates.authority_of(files[0].read_bytes(), files[1].read_bytes(), files)
    key = certificates.new_key(pki.entropy)
    made = certificates.sign_leaf(authority, key, certificates.subject(name, groups), seconds, (), pki.clock, pki.entropy)
    return Issued(made, certificates.key_pem(key))
