"""The data directory's key material: a CA, the serving and admin certificates it signed, and the service-account key.

Everything is made at first start and kept. A file appears whole or not at all, and a key always before its certificate,
so that a crash between any two lines leaves a directory that the next start completes. `state.json` remembers the hashes,
names and expiry of what was made: an ordinary start compares those and does no X.509 work (nor pays for importing it);
anything unexpected falls back to a full check of the files themselves.

:mod:`remuda.apiserver.authn.certificates` reads the client certificates made here, :mod:`remuda.apiserver.authn.keys` the
service-account key.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.kube import jsonio, yamlio
from remuda.kube.clock import Clock, Entropy

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

Obj = dict[str, Any]

DAY = 86_400
CA_SECONDS = 3650 * DAY
LEAF_SECONDS = 365 * DAY
RENEW_BEFORE = 30 * DAY
# Certificates are valid from a little before they are made: the clients' clocks may be behind.
BACKDATE = 3600

ADMIN_USER = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)
ALWAYS_SERVED = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_WILDCARDS = frozenset(("", "0.0.0.0", "::", "*"))
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class PkiError(Exception):
    """Key material that can't be used and must not be replaced without being asked."""


class ClientCertificate(NamedTuple):
    """PEM of a client certificate and its key."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Pki:
    """Where the key material is; what needs the CA's key does it here."""

    directory: Path
    clock: Clock
    entropy: Entropy

    @property
    def ca_certificate(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def serving_certificate(self) -> Path:
        return self.directory / "serving.crt"

    @property
    def serving_key(self) -> Path:
        return self.directory / "serving.key"

    @property
    def admin_certificate(self) -> Path:
        return self.directory / "admin.crt"

    @property
    def admin_key(self) -> Path:
        return self.directory / "admin.key"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"

    @property
    def ca_pem(self) -> bytes:
        return self.ca_certificate.read_bytes()

    @classmethod
    def ensure(cls, directory: Path, hosts: Iterable[str], clock: Clock, entropy: Entropy) -> Pki:
        """Make what is missing, renew what ends soon; afterwards every file is there and they belong together."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pki = cls(directory, clock, entropy)
        _check_modes(pki)
        names = serving_names(hosts)
        if not _as_recorded(pki, names):
            _complete(pki, names)
        return pki

    def issue_client(self, name: str, groups: Iterable[str] = (), seconds: int = LEAF_SECONDS) -> ClientCertificate:
        """A client certificate that :mod:`authn.certificates` reads as this user in these groups."""
        authority = _load_authority(self)
        key = _new_key(self.entropy)
        certificate = _sign_leaf(self, authority, key, _subject(name, groups), seconds, names=())
        return ClientCertificate(certificate, _key_pem(key))

    def kubeconfig(self, server_url: str) -> Obj:
        """The admin's kubeconfig, with everything inline so that the one file is enough."""
        user: Obj = {
            "client-certificate-data": _text(self.admin_certificate.read_bytes()),
            "client-key-data": _text(self.admin_key.read_bytes()),
        }
        return kubeconfig(server_url, self.ca_pem, ADMIN_USER, user)

    def write_kubeconfig(self, path: Path, server_url: str) -> None:
        """Put the admin's kubeconfig at `path`, readable by its owner only; untouched when it already says that."""
        content = yamlio.dumps(self.kubeconfig(server_url)).encode()
        if not path.exists() or path.read_bytes() != content:
            write_private(path, content)


def kubeconfig(server_url: str, ca_pem: bytes, user_name: str, user: Obj) -> Obj:
    """A kubeconfig with one cluster, one user (`user` is its credential fields) and one context."""
    context = f"{user_name}@remuda"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "remuda", "cluster": {"server": server_url, "certificate-authority-data": _text(ca_pem)}}],
        "users": [{"name": user_name, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "remuda", "user": user_name}}],
        "current-context": context,
        "preferences": {},
    }


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by `content` (mode 0600) so that a crash leaves the old file or the new one, durably."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def serving_names(hosts: Iterable[str]) -> tuple[str, ...]:
    """The names and addresses the serving certificate is good for, in a stable order; wildcards name nothing."""
    found = {_canonical(host) for host in (*ALWAYS_SERVED, socket.gethostname(), *hosts)}
    return tuple(sorted(name for name in found if name not in _WILDCARDS and name.isascii()))


def _canonical(host: str) -> str:
    bare = host.strip("[]").lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


# ---------------------------------------------------------------------------------------------------------------------
# The quick way: nothing changed since state.json was written


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _check_modes(pki: Pki) -> None:
    """A key that others have been able to read is not used before somebody has looked at it."""
    for path in (pki.ca_key, pki.serving_key, pki.admin_key, pki.service_account_key):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        if mode & 0o077:
            raise PkiError(f"{path} is a private key and others may read it: run chmod 600 {path}")


def _recorded_files(pki: Pki) -> tuple[Path, ...]:
    return (
        pki.ca_key,
        pki.ca_certificate,
        pki.serving_key,
        pki.serving_certificate,
        pki.admin_key,
        pki.admin_certificate,
        pki.service_account_key,
    )


def _as_recorded(pki: Pki, names: tuple[str, ...]) -> bool:
    try:
        state = jsonio.loads((pki.directory / "state.json").read_bytes())
        files, served, renew_at = dict(state["files"]), tuple(state["names"]), float(state["renewAt"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if served != names or pki.clock.time() >= renew_at:
        return False
    return all(files.get(path.name) == (_digest(path) or None) for path in _recorded_files(pki))


def _record(pki: Pki, names: tuple[str, ...], ends: float) -> None:
    files = {path.name: _digest(path) for path in _recorded_files(pki)}
    state = {"files": files, "names": list(names), "renewAt": int(ends - RENEW_BEFORE)}
    write_private(pki.directory / "state.json", jsonio.dumps(state))


# ---------------------------------------------------------------------------------------------------------------------
# The thorough way: look into the files, keep what is good, make the rest


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _complete(pki: Pki, names: tuple[str, ...]) -> None:
    if not pki.service_account_key.exists():
        write_private(pki.service_account_key, new_key_pem(pki.entropy))
    # It is only used when the first token comes; a bad one is better told now.
    _read_key(pki.service_account_key)
    authority = _ensure_authority(pki)
    serving = _subject("remuda", ())
    ends = [
        _ends(authority.certificate),
        _ensure_leaf(pki, authority, pki.serving_key, pki.serving_certificate, serving, names),
        _ensure_leaf(pki, authority, pki.admin_key, pki.admin_certificate, _subject(ADMIN_USER, ADMIN_GROUPS), ()),
    ]
    _record(pki, names, min(ends))


def _ensure_authority(pki: Pki) -> _Authority:
    if pki.ca_certificate.exists() and not pki.ca_key.exists():
        raise PkiError(
            f"{pki.ca_key} is missing but {pki.ca_certificate} is there: put the key back from a backup, or remove the "
            "certificate to start with a new authority (every kubeconfig must then be handed out anew)"
        )
    key = _key_at(pki, pki.ca_key)
    certificate = _read_certificate(pki.ca_certificate)
    if certificate is not None and certificate.public_key() != key.public_key():
        raise PkiError(f"{pki.ca_certificate} and {pki.ca_key} do not belong together: put the matching pair back")
    if certificate is None or _ends(certificate) - pki.clock.time() < RENEW_BEFORE:
        # The same key and name: certificates signed before a renewal stay good.
        certificate = _sign_authority(pki, key)
        write_private(pki.ca_certificate, _pem(certificate))
    return _Authority(certificate, key)


def _load_authority(pki: Pki) -> _Authority:
    certificate = _read_certificate(pki.ca_certificate)
    if certificate is None:
        raise PkiError(f"{pki.ca_certificate} is missing or not a certificate")
    return _Authority(certificate, _read_key(pki.ca_key))


def _ensure_leaf(
    pki: Pki, authority: _Authority, key_path: Path, path: Path, subject: x509.Name, names: tuple[str, ...]
) -> float:
    """When the certificate at `path` ends; a new one is made when the old one does not fit any more."""
    key = _key_at(pki, key_path)
    certificate = _read_certificate(path)
    if certificate is not None and _fits(pki, authority, certificate, key, subject, names):
        return _ends(certificate)
    write_private(path, _sign_leaf(pki, authority, key, subject, LEAF_SECONDS, names))
    return pki.clock.time() + LEAF_SECONDS


def _fits(
    pki: Pki,
    authority: _Authority,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    names: tuple[str, ...],
) -> bool:
    from cryptography.exceptions import InvalidSignature

    if certificate.public_key() != key.public_key() or certificate.subject != subject:
        return False
    if _ends(certificate) - pki.clock.time() < RENEW_BEFORE or _names_in(certificate) != names:
        return False
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return tuple(sorted([*found.get_values_for_type(x509.DNSName), *addresses]))


def _ends(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()


# ---------------------------------------------------------------------------------------------------------------------
# Keys and certificates


def new_key_pem(entropy: Entropy | None = None) -> bytes:
    """A fresh private key, for a server that keeps nothing on disk."""
    return _key_pem(_new_key(entropy or Entropy()))


def _new_key(entropy: Entropy) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    # 128 bits more than the order has, so that the remainder is not biased (FIPS 186-5, A.2.1).
    secret = 1 + int.from_bytes(entropy.token_bytes(48)) % (_P256_ORDER - 1)
    return ec.derive_private_key(secret, ec.SECP256R1())


def _key_at(pki: Pki, path: Path) -> ec.EllipticCurvePrivateKey:
    if path.exists():
        return _read_key(path)
    key = _new_key(pki.entropy)
    write_private(path, _key_pem(key))
    return key


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise PkiError(f"{path} can't be read as a private key: {error}; put it back from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{path} is not an ECDSA key")
    return key


def _read_certificate(path: Path) -> x509.Certificate | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _subject(name: str, groups: Iterable[str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign_authority(pki: Pki, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    name = _subject("remuda-ca", ())
    builder = (
        _builder(pki, name, name, key.public_key(), CA_SECONDS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
    )
    return builder.sign(key, SHA256())


def _sign_leaf(
    pki: Pki,
    authority: _Authority,
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    seconds: int,
    names: tuple[str, ...],
) -> bytes:
    """PEM of a serving certificate for `names`, or of a client certificate when there are none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(pki, subject, authority.certificate.subject, key.public_key(), seconds)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    return _pem(builder.sign(authority.key, SHA256()))


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    pki: Pki, subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, seconds: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.fromtimestamp(int(pki.clock.time()), datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(int.from_bytes(pki.entropy.token_bytes(20)) >> 1 or 1)
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


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
