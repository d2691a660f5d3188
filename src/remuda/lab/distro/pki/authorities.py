"""The cluster's authorities: the secrets that all servers share, and only they.

As k3s has them: one CA for servers, one for clients, one for front proxies, two for etcd, the key of service accounts, and the
keys of encryption at rest. The first server makes the missing ones; files that an operator placed beforehand are used, also with
intermediate certificates. Other servers get all of them when they join. The certificates signed with them
are in :mod:`.certificates`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import msgspec

from remuda.apiserver.keys import token_sealing
from remuda.apiserver.keys.encryption import parse_keys, render_keys
from remuda.apiserver.keys.token_sealing import ScryptCost, Sealed
from remuda.kube import certificates
from remuda.kube.certificates import Authority, PkiError
from remuda.kube.clock import Clock, Entropy
from remuda.kube.private_files import write_private

from ..config.settings import Paths

SERVER_CA, CLIENT_CA, PROXY_CA = "server-ca", "client-ca", "request-header-ca"
ETCD_SERVER_CA, ETCD_PEER_CA = "etcd/server-ca", "etcd/peer-ca"
CAS = (SERVER_CA, CLIENT_CA, PROXY_CA, ETCD_SERVER_CA, ETCD_PEER_CA)
SERVICE_KEY = "tls/service.key"
ENCRYPTION = "cred/encryption-config.yaml"

Files = dict[str, bytes]


def names() -> tuple[str, ...]:
    """Paths of all files that servers share, below the server's directory; keys before their certificates."""
    pairs = (f"tls/{ca}.{kind}" for ca in CAS for kind in ("key", "crt"))
    return (*pairs, SERVICE_KEY, ENCRYPTION)


class Authorities:
    """All of them, in memory; each is parsed when it is first needed."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files: Files = dict(files)
        self._read: dict[str, Authority] = {}

    def ca(self, name: str) -> Authority:
        if name not in self._read:
            self._read[name] = _authority(name, self.files[f"tls/{name}.crt"], self.files[f"tls/{name}.key"])
        return self._read[name]

    def bundle(self, name: str) -> bytes:
        """The trusted certificates, as PEM."""
        return self.files[f"tls/{name}.crt"]

    @property
    def service_key(self) -> bytes:
        return self.files[SERVICE_KEY]

    @property
    def encryption(self) -> bytes:
        return self.files[ENCRYPTION]

    def check(self) -> None:
        """Raises PkiError and EncryptionError for files that can't be used."""
        for name in CAS:
            self.ca(name)
        certificates.parse_keys(self.service_key, SERVICE_KEY)
        parse_keys(self.encryption, ENCRYPTION)

    def differences(self, other: Authorities) -> list[str]:
        """The files that differ but must not: all except the encryption keys, which are rotated."""
        return [name for name in names() if name != ENCRYPTION and self.files[name] != other.files[name]]

    @property
    def fingerprint(self) -> str:
        """The same for all servers until the authorities are rotated."""
        digest = hashlib.sha256()
        for name in names():
            if name != ENCRYPTION:
                digest.update(hashlib.sha256(self.files[name]).digest())
        return digest.hexdigest()


def read(paths: Paths) -> Authorities | None:
    """The host's authorities; None when a file is missing."""
    files: Files = {}
    for name in names():
        try:
            files[name] = (paths.server / name).read_bytes()
        except FileNotFoundError:
            return None
    return Authorities(files)


def ensure(paths: Paths, clock: Clock, entropy: Entropy) -> Authorities:
    """The host's authorities; missing ones are made. For the first server only."""
    for name in CAS:
        _ensure_ca(paths.tls / f"{name}.crt", paths.tls / f"{name}.key", name, clock, entropy)
    _ensure_file(paths.server / SERVICE_KEY, lambda: certificates.new_key_pem(entropy))
    _ensure_file(paths.server / ENCRYPTION, lambda: first_encryption_keys(clock, entropy))
    found = read(paths)
    assert found is not None
    found.check()
    return found


def write(paths: Paths, authorities: Authorities) -> None:
    """Write them to disk; unchanged files are not touched."""
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
    # Both types of keys sign by the same call.
    return Authority(found, cast("ec.EllipticCurvePrivateKey", loaded))


# --- bootstrap data -------------------------------------------------------------------------------------------------------
#
# The authorities in etcd, sealed with the token: a snapshot and the token are enough to restore a cluster.
#
# The first server writes them; every server compares its own with them when it starts. The encryption keys in etcd may be newer
# than on a server's disk: another server has rotated them meanwhile.

KEY = "/bootstrap/remuda"
_REPLACED = "/remuda-distro/replaced-authorities"
_MOST_REPLACED = 20
_PURPOSE = b"remuda distribution bootstrap data, version 1"
_WHERE = "the bootstrap data in etcd"
_TRIES = 5
# Each server does this at every start: half of the memory that keys of the management server cost is hard enough to guess.
_COST = ScryptCost(n=2**15)


class KeyValue(Protocol):
    value: bytes
    revision: int


class KeyValues(Protocol):
    """The part of a client of etcd that this needs (:class:`~..etcd.client.EtcdClient`)."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def replace(self, key: str, value: bytes, revision: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Saved:
    authorities: Authorities
    revision: int


class Replaced(PkiError):
    """The cluster's authorities are others since they were rotated."""

    def __init__(self, authorities: Authorities) -> None:
        super().__init__("the cluster's authorities were rotated: start this server again")
        self.authorities = authorities


def encode(files: Files) -> bytes:
    return msgspec.json.encode(files)


def decode(content: bytes, where: str) -> Authorities:
    """Raises PkiError."""
    try:
        files = msgspec.json.decode(content, type=dict[str, bytes])
    except msgspec.DecodeError:
        raise PkiError(f"{where} can't be read") from None
    if missing := set(names()) - set(files):
        raise PkiError(f"{where} has no {min(missing)}")
    return Authorities(files)


async def load(etcd: KeyValues, password: str) -> Saved | None:
    """The authorities in etcd. Raises WrongToken and StoreError."""
    found = await etcd.get(KEY)
    if found is None:
        return None
    try:
        sealed = msgspec.json.decode(found.value, type=Sealed)
    except msgspec.DecodeError:
        raise PkiError(f"{_WHERE} is damaged: restore etcd from a snapshot") from None
    content = await asyncio.to_thread(token_sealing.unseal_bytes, sealed, password, _WHERE, _PURPOSE)
    return Saved(decode(content, _WHERE), found.revision)


async def save(etcd: KeyValues, authorities: Authorities, password: str, entropy: Entropy, revision: int = 0) -> bool:
    """Write them to etcd, replacing that revision only, 0 for a missing key; True if they were written."""
    sealed = await asyncio.to_thread(token_sealing.seal_bytes, encode(authorities.files), password, entropy, _PURPOSE, _COST)
    return await etcd.replace(KEY, msgspec.json.encode(sealed), revision)


async def agree(etcd: KeyValues, own: Authorities, password: str, entropy: Entropy) -> Authorities:
    """The authorities that all servers share: `own`, with the encryption keys of etcd. Raises Replaced if they were rotated
    since, and PkiError when they differ otherwise."""
    for _ in range(_TRIES):
        found = await load(etcd, password)
        if found is None:
            await save(etcd, own, password, entropy)
            continue
        if other := own.differences(found.authorities):
            if own.fingerprint in _read(await etcd.get(_REPLACED)):
                raise Replaced(found.authorities)
            raise PkiError(
                f"{other[0]} on this host is not the one of the cluster: this host was a server of another one; "
                "remove the server directory of its data, or put the right files there"
            )
        return Authorities({**own.files, ENCRYPTION: found.authorities.encryption})
    raise PkiError(f"{_WHERE} changes all the time: start this server again")


async def note_replaced(etcd: KeyValues, old: Authorities) -> None:
    """Record that these are about to be replaced, so that servers that have them take the new ones. Raises PkiError."""
    found = await etcd.get(_REPLACED)
    noted = msgspec.json.encode([*(each for each in _read(found) if each != old.fingerprint), old.fingerprint][-_MOST_REPLACED:])
    if not await etcd.replace(_REPLACED, noted, 0 if found is None else found.revision):
        raise PkiError("the authorities in etcd were changed at the same time: try again")


def _read(found: KeyValue | None) -> list[str]:
    """The fingerprints of replaced authorities."""
    if found is None:
        return []
    try:
        return msgspec.json.decode(found.value, type=list[str])
    except msgspec.DecodeError:
        return []
