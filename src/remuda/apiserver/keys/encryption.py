"""Encryption at rest: Kubernetes' aesgcm envelope, byte for byte: a kube-apiserver with the same keys reads our data.

A sealed value is `k8s:enc:aesgcm:v1:<key name>:`, twelve random bytes, and the AES-GCM ciphertext with its tag. The key it
is stored under is the additional data, so that a value moved to another key does not open. The keys file is a Kubernetes
EncryptionConfiguration; the first key seals, all of them open, and a value sealed with another key than the first, or not at
all, is reported as stale so that it can be rewritten.

The sealed kinds are chosen in :mod:`remuda.apiserver.server`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from remuda.kube.clock import Entropy
from remuda.kube.encoding import yamlio
from remuda.kube.private_files import write_private

ANY = b"k8s:enc:"
PREFIX = b"k8s:enc:aesgcm:v1:"
NONCE = 12
TAG = 16
KEY_SIZES = (16, 24, 32)
API_VERSION = "apiserver.config.k8s.io/v1"


class EncryptionError(Exception):
    """A value that can't be opened, or unusable keys; the message names it and the next step."""


class UnknownKey(EncryptionError):
    """Sealed with a key that is not in the keys file."""


class NotOurs(EncryptionError):
    """Encrypted by a provider other than aesgcm."""


class Tampered(EncryptionError):
    """The value, or the key it is stored under, is not what was sealed."""


class BadConfiguration(EncryptionError):
    """A keys file that can't be used."""


def key_name(data: bytes) -> str:
    """The name of the key that it is sealed with; empty for a value that is not sealed by us."""
    if not data.startswith(PREFIX):
        return ""
    return data[len(PREFIX) :].partition(b":")[0].decode(errors="replace")


class Envelope:
    """Seals with the first of `keys`, opens with any. At most 2^32 values should ever be sealed with one key.

    The keys may be replaced while it is used.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]], entropy: Entropy) -> None:
        self._entropy = entropy
        self.use(keys)

    def use(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """Use these keys from now on. Raises BadConfiguration, and then nothing has changed."""
        if not keys:
            raise BadConfiguration("no encryption keys: at least one is needed")
        ciphers: dict[bytes, AESGCM] = {}
        for name, secret in keys:
            if not name or ":" in name:
                raise BadConfiguration(f"encryption key name {name!r} must not be empty or have a colon in it")
            if name.encode() in ciphers:
                raise BadConfiguration(f"encryption key name {name!r} is there twice")
            if len(secret) not in KEY_SIZES:
                raise BadConfiguration(f"encryption key {name!r} has {len(secret)} bytes, it must have 16, 24 or 32")
            ciphers[name.encode()] = AESGCM(secret)
        self._ciphers = ciphers
        self._first = next(iter(ciphers))
        self._seal = ciphers[self._first]
        self._prefix = PREFIX + self._first + b":"

    def knows(self, data: bytes) -> bool:
        """True if its key is known, or none is needed."""
        if not data.startswith(PREFIX):
            return True
        return data[len(PREFIX) :].partition(b":")[0] in self._ciphers

    def seal(self, key: str, plain: bytes) -> bytes:
        """`plain` as it is to be stored under `key`."""
        nonce = self._entropy.token_bytes(NONCE)
        return self._prefix + nonce + self._seal.encrypt(nonce, plain, key.encode())

    def open(self, key: str, data: bytes) -> tuple[bytes, bool]:
        """The plain value, and whether it should be sealed again (other key, or none)."""
        if not data.startswith(ANY):
            return data, True
        if not data.startswith(PREFIX):
            provider = data[len(ANY) :].split(b":", 1)[0].decode(errors="replace")
            raise NotOurs(f"{key} is encrypted with {provider}, which this server can't read: only aesgcm is supported")
        name, colon, body = data[len(PREFIX) :].partition(b":")
        cipher = self._ciphers.get(name) if colon else None
        if cipher is None:
            raise UnknownKey(f"{key} is encrypted with key {name[:64].decode(errors='replace')!r}, which is not in the keys file")
        if len(body) < NONCE + TAG:
            raise Tampered(f"{key} is too short to be encrypted data: restore it from a backup")
        try:
            plain = cipher.decrypt(body[:NONCE], body[NONCE:], key.encode())
        except InvalidTag:
            raise Tampered(
                f"{key} does not open with key {name.decode()!r}: it was changed, or stored under another key"
            ) from None
        return plain, name != self._first


def parse_keys(text: str | bytes, source: object = "the keys file") -> list[tuple[str, bytes]]:
    """The aesgcm keys of an EncryptionConfiguration, in their order."""
    try:
        document = yamlio.loads(text)
    except yamlio.YamlError as error:
        raise BadConfiguration(f"{source} is not YAML: {error}") from None
    if not isinstance(document, Mapping) or document.get("kind") != "EncryptionConfiguration":
        raise BadConfiguration(f"{source} is not an EncryptionConfiguration")
    if document.get("apiVersion") != API_VERSION:
        raise BadConfiguration(f"{source} has apiVersion {document.get('apiVersion')!r}, it must be {API_VERSION}")
    keys: dict[str, bytes] = {}
    for name, secret in _key_entries(document, source):
        # The same keys are usually listed again for each group of resources.
        if keys.setdefault(name, secret) != secret:
            raise BadConfiguration(f"{source} has two different keys named {name!r}")
    if not keys:
        raise BadConfiguration(f"{source} has no aesgcm keys")
    return list(keys.items())


def _key_entries(document: Mapping[str, object], source: object) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for resource in _listed(document, "resources", source):
        for provider in _listed(resource, "providers", source):
            if unknown := set(provider) - {"aesgcm", "identity"}:
                raise BadConfiguration(f"{source} names provider {min(unknown)!r}: only aesgcm and identity are supported")
            aesgcm = provider.get("aesgcm")
            if isinstance(aesgcm, Mapping):
                found.extend(_key(entry, source) for entry in _listed(aesgcm, "keys", source))
    return found


def _listed(parent: Mapping[str, object], field: str, source: object) -> list[Mapping[str, object]]:
    value = parent.get(field)
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise BadConfiguration(f"{source}: {field} must be a list of objects")
    return value


def _key(entry: Mapping[str, object], source: object) -> tuple[str, bytes]:
    name, secret = entry.get("name"), entry.get("secret")
    if not isinstance(name, str) or not isinstance(secret, str):
        raise BadConfiguration(f"{source}: a key must have a name and a secret")
    try:
        return name, base64.b64decode(secret, validate=True)
    except binascii.Error:
        raise BadConfiguration(f"{source}: the secret of key {name!r} is not base64") from None


def render_keys(keys: Sequence[tuple[str, bytes]], resources: Sequence[str] = ("secrets",)) -> str:
    """An EncryptionConfiguration that kube-apiserver accepts as it is: sealed with the first key, plain values still read."""
    entries = [{"name": name, "secret": base64.b64encode(secret).decode()} for name, secret in keys]
    providers = [{"aesgcm": {"keys": entries}}, {"identity": {}}]
    return yamlio.dumps(
        {
            "apiVersion": API_VERSION,
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": list(resources), "providers": providers}],
        }
    )


def load_or_create(path: Path, entropy: Entropy) -> Envelope:
    """The envelope of the keys file at `path`, which is made, readable by its owner only, when there is none."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return _create(path, entropy)
    if path.stat().st_mode & 0o077:
        raise BadConfiguration(f"{path} holds encryption keys and others may read it: run chmod 600 {path}")
    return Envelope(parse_keys(text, path), entropy)


def _create(path: Path, entropy: Entropy) -> Envelope:
    keys = [("key1", entropy.token_bytes(32))]
    # A value sealed with a key that a power cut deletes is lost, so the key is made durable first.
    write_private(path, render_keys(keys).encode())
    return Envelope(keys, entropy)
