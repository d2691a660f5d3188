"""The cluster's authorities: what all servers have in common, and nobody else may have.

As k3s has them: one CA for what servers show, one for clients, one for front proxies, two for etcd, the key of service accounts,
and the keys of encryption at rest. The first server makes what is not there; what was placed beforehand is used, also with
intermediate certificates. Other servers get all of it when they join (:mod:`.bootstrap_data`). Certificates that are signed with
them are in :mod:`.certificates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from remuda.apiserver.keys.encryption import parse_keys, render_keys
from remuda.apiserver.keys.pki import write_private
from remuda.kube import certificates
from remuda.kube.certificates import Authority, PkiError
from remuda.kube.clock import Clock, Entropy

from ..config.paths import Paths

SERVER_CA, CLIENT_CA, PROXY_CA = "server-ca", "client-ca", "request-header-ca"
ETCD_SERVER_CA, ETCD_PEER_CA = "etcd/server-ca", "etcd/peer-ca"
CAS = (SERVER_CA, CLIENT_CA, PROXY_CA, ETCD_SERVER_CA, ETCD_PEER_CA)
SERVICE_KEY = "tls/service.key"
ENCRYPTION = "cred/encryption-config.yaml"

Files = dict[str, bytes]


def names() -> tuple[str, ...]:
    """Everything that servers share, as paths below the server's directory; keys before what belongs to them."""
    pairs = (f"tls/{ca}.{kind}" for ca in CAS for kind in ("key", "crt"))
    return (*pairs, SERVICE_KEY, ENCRYPTION)


class Authorities:
    """All of them, in memory; each is read when it is needed for the first time."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files: Files = dict(files)
        self._read: dict[str, Authority] = {}

    def ca(self, name: str) -> Authority:
        if name not in self._read:
            self._read[name] = _authority(name, self.files[f"tls/{name}.crt"], self.files[f"tls/{name}.key"])
        return self._read[name]

    def bundle(self, name: str) -> bytes:
        """The certificates to trust, as PEM."""
        return self.files[f"tls/{name}.crt"]

    @property
    def service_key(self) -> bytes:
        return self.files[SERVICE_KEY]

    @property
    def encryption(self) -> bytes:
        return self.files[ENCRYPTION]

    def check(self) -> None:
        """Raises PkiError and EncryptionError for what could not be used."""
        for name in CAS:
            self.ca(name)
        certificates.parse_key(self.service_key, SERVICE_KEY)
        parse_keys(self.encryption, ENCRYPTION)

    def differences(self, other: Authorities) -> list[str]:
        """What differs that must never: everything but the keys of encryption, which are changed in the course of time."""
        return [name for name in names() if name != ENCRYPTION and self.files[name] != other.files[name]]


def read(paths: Paths) -> Authorities | None:
    """What the host has; None when something is missing."""
    files: Files = {}
    for name in names():
        try:
            files[name] = (paths.server / name).read_bytes()
        except FileNotFoundError:
            return None
    return Authorities(files)


def ensure(paths: Paths, clock: Clock, entropy: Entropy) -> Authorities:
    """What the host has; what it has not is made. For the first server only."""
    for name in CAS:
        _ensure_ca(paths.tls / f"{name}.crt", paths.tls / f"{name}.key", name, clock, entropy)
    _ensure_file(paths.server / SERVICE_KEY, lambda: certificates.new_key_pem(entropy))
    _ensure_file(paths.server / ENCRYPTION, lambda: first_encryption_keys(clock, entropy))
    found = read(paths)
    assert found is not None
    found.check()
    return found


def write(paths: Paths, authorities: Authorities) -> None:
    """Onto the disk; what is there already is not touched."""
    for name in names():
        path = paths.server / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != authorities.files[name]:
            write_private(path, authorities.files[name])


def first_encryption_keys(clock: Clock, entropy: Entropy) -> bytes:
    return render_keys([new_encryption_key(clock, entropy)]).encode()


def new_encryption_key(clock: Clock, entropy: Entropy) -> tuple[str, bytes]:
    return f"aesgcmkey-{int(clock.time())}", entropy.token_bytes(32)


def made(clock: Clock, entropy: Entropy, names_of_cas: tuple[str, ...] = CAS) -> Files:
    """New CAs, in memory."""
    files: Files = {}
    for name in names_of_cas:
        key = certificates.new_key(entropy)
        files[f"tls/{name}.key"] = certificates.key_pem(key)
        files[f"tls/{name}.crt"] = certificates.certificate_pem(
            certificates.sign_authority(key, clock, entropy, _common_name(name, clock))
        )
    return files


def _common_name(name: str, clock: Clock) -> str:
    return f"remuda-{name.replace('/', '-')}@{int(clock.time())}"


def _ensure_ca(certificate: Path, key: Path, name: str, clock: Clock, entropy: Entropy) -> None:
    if certificate.exists() and not key.exists():
        raise PkiError(f"{certificate} is there, but {key} is not: put the key beside it, or remove the certificate")
    if certificate.exists():
        return
    certificate.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not key.exists():
        write_private(key, certificates.new_key_pem(entropy))
    made_for = certificates.parse_key(key.read_bytes(), key)
    signed = certificates.sign_authority(made_for, clock, entropy, _common_name(name, clock))
    write_private(certificate, certificates.certificate_pem(signed))


def _ensure_file(path: Path, content: Callable[[], bytes]) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, content())


def _authority(name: str, certificate: bytes, key: bytes) -> Authority:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = certificates.parse_certificate(certificate)
    if found is None:
        raise PkiError(f"{name}.crt is not a certificate")
    try:
        loaded = load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise PkiError(f"{name}.key can't be read as a private key: {error}") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise PkiError(f"{name}.key is neither an ECDSA nor an RSA key")
    if found.public_key() != loaded.public_key():
        raise PkiError(f"the first certificate of {name}.crt and {name}.key do not belong together: put the matching pair back")
    # What signs is called the same way whichever of the two it is.
    return Authority(found, cast("ec.EllipticCurvePrivateKey", loaded))
