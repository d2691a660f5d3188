"""The kinds of rotated keys, and the shared material after each step. Pure, except for making a key.

Every kind has an order: the first key is used, the others are valid for earlier data. Each step changes one thing, so
that a server which was killed between any two lines finds a working state:

    [old]  ─ added ─►  [old, new]  ─ put first ─►  [new, old]  ─ kept only ─►  [new]

The CA's certificates are a bundle that all clients trust, the oldest first in all steps: its order, and so its checksum, tells
nothing about the signing one. Keys are known by their fingerprints, encryption keys by their names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.kube import certificates as signing
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy

from .encryption import parse_keys, render_keys
from .shared_keys import CA_KEY, SERVICE_ACCOUNT_KEY, Material

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

ENCRYPTION_KEY: Final = "encryption-key"
CA: Final = "ca"
SERVICE_ACCOUNTS: Final = "service-account-key"
KINDS: Final = (ENCRYPTION_KEY, CA, SERVICE_ACCOUNTS)
WORDS: Final = {ENCRYPTION_KEY: "the encryption key", CA: "the CA", SERVICE_ACCOUNTS: "the service-account key"}


def held(material: Material, kind: str) -> list[str]:
    """The keys of a kind, the one in use first."""
    if kind == ENCRYPTION_KEY:
        return [name for name, _ in parse_keys(material.encryption)]
    if kind == SERVICE_ACCOUNTS:
        return [signing.fingerprint(key) for key in _service_keys(material)]
    trusted = [signing.fingerprint(each) for each in signing.parse_certificates(material.ca_certificate)]
    keys = [found for key in _ca_keys(material) if (found := signing.fingerprint(key)) in trusted]
    return [*keys, *(each for each in trusted if each not in keys)]


def all_held(material: Material) -> dict[str, list[str]]:
    return {kind: held(material, kind) for kind in KINDS}


def with_new(material: Material, kind: str, clock: Clock, entropy: Entropy) -> Material:
    """The material with one more key, that is not used yet."""
    if kind == ENCRYPTION_KEY:
        keys = parse_keys(material.encryption)
        number = 1 + max([len(keys), *(int(name[3:]) for name, _ in keys if name.startswith("key") and name[3:].isdecimal())])
        return _encryption(material, [*keys, (f"key{number}", entropy.token_bytes(32))])
    key = signing.new_key(entropy)
    if kind == SERVICE_ACCOUNTS:
        return replace(material, service_account_key=_pem([*_service_keys(material), key]))
    certificate = signing.sign_authority(key, clock, entropy, f"remuda-ca-{signing.fingerprint(key)[:12]}")
    bundle = material.ca_certificate.rstrip() + b"\n" + signing.certificate_pem(certificate)
    return replace(material, ca_key=_pem([*_ca_keys(material), key]), ca_certificate=bundle)


def handed_over(material: Material, clock: Clock, entropy: Entropy) -> tuple[bytes, float]:
    """The certificates that the dropped CAs sign for the one in use, and their expiry."""
    chain = signing.chain_of(material.ca_certificate, material.ca_key, clock, entropy, signing.HANDOVER_SECONDS)
    return chain, min((signing.ends(each) for each in signing.parse_certificates(chain)), default=0.0)


def put_first(material: Material, kind: str, first: str) -> Material:
    """Raises PkiError when the key is missing."""
    found = held(material, kind)
    if first not in found:
        raise PkiError(
            f"{WORDS[kind]} that the servers use now ({first[:16]}) is not among the keys here: copy all files of another "
            "server's --pki-dir, or put the keys and the state back from the same backup"
        )
    if found[0] == first:
        return material
    if kind == ENCRYPTION_KEY:
        return _encryption(material, sorted(parse_keys(material.encryption), key=lambda each: each[0] != first))
    keys = _service_keys(material) if kind == SERVICE_ACCOUNTS else _ca_keys(material)
    pem = _pem(sorted(keys, key=lambda key: signing.fingerprint(key) != first))
    return replace(material, service_account_key=pem) if kind == SERVICE_ACCOUNTS else replace(material, ca_key=pem)


def with_only(material: Material, kind: str, kept: Collection[str]) -> Material:
    """The material without all others; the same object when there are none."""
    if all(each in kept for each in held(material, kind)):
        return material
    if kind == ENCRYPTION_KEY:
        return _encryption(material, [each for each in parse_keys(material.encryption) if each[0] in kept])
    if kind == SERVICE_ACCOUNTS:
        keys = [key for key in _service_keys(material) if signing.fingerprint(key) in kept]
        return replace(material, service_account_key=_pem(keys))
    certificates = [each for each in signing.parse_certificates(material.ca_certificate) if signing.fingerprint(each) in kept]
    keys = [key for key in _ca_keys(material) if signing.fingerprint(key) in kept]
    bundle = b"".join(signing.certificate_pem(each) for each in certificates)
    return replace(material, ca_certificate=bundle, ca_key=_pem(keys))


def _encryption(material: Material, keys: Sequence[tuple[str, bytes]]) -> Material:
    return replace(material, encryption=render_keys(keys).encode())


def _ca_keys(material: Material) -> list[ec.EllipticCurvePrivateKey]:
    return signing.parse_keys(material.ca_key, CA_KEY)


def _service_keys(material: Material) -> list[ec.EllipticCurvePrivateKey]:
    return signing.parse_keys(material.service_account_key, SERVICE_ACCOUNT_KEY)


def _pem(keys: Sequence[ec.EllipticCurvePrivateKey]) -> bytes:
    return b"".join(signing.key_pem(key) for key in keys)
